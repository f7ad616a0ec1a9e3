//! `berth dev`: everything on one machine, to try it out.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use berth_client::Client;
use berth_domain::RunnerId;
use berth_runner::agent::{Agent, AgentConfig, AgentParts};
use berth_runner::process::{OnAgentExit, SpawnOptions};
use berth_server::Server;
use berth_server::config::Sources;
use berth_server::logging;
use berth_wire::{ModelFile, Role, TokenName, TokenRequest};
use secrecy::SecretString;
use tokio::sync::watch;

use crate::serve::{StopSignals, announce_or_warn};

/// Run everything on this machine, to try it out
///
/// One server, the machine's own GPUs if the driver finds any, else two simulated runners with two GPUs of 80 GiB each,
/// and two sample models whose slots are a small program inside berth that answers like a model would. Everything ends
/// with it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  berth dev\n  berth chat chat hello      in another terminal")]
pub(crate) struct Args {
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where to keep its data; a second start goes on with it
    #[arg(long, value_name = "DIR", default_value = "berth-dev")]
    data_dir: PathBuf,
    /// What is logged: a level, or levels by target
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    log: String,
    /// How many words a second the demo models say; 0: as many as they can
    #[arg(long, value_name = "WORDS", default_value_t = 20)]
    speed: u32,
    /// How many milliseconds the demo models take to load
    #[arg(long, value_name = "MS", default_value_t = 0)]
    load_ms: u64,
}

const MODELS: &str = r#"
[[model]]
name = "chat"
runtime = "demo"
memory = "45GiB"
concurrency = 4
min_run = "1s"

[[model]]
name = "vision"
runtime = "demo"
memory = "60GiB"
min_run = "1s"
"#;

/// Runs until it is told to stop.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let config = Sources::default()
            .flag("server.listen", "--listen", Some(args.listen.to_string()))
            .flag("server.data_dir", "--data-dir", Some(args.data_dir.join("server").display().to_string()))
            .flag("log.filter", "--log", Some(args.log.clone()))
            .load()?;
        let level = logging::init(&config.log).map_err(anyhow::Error::msg)?;
        let server = Server::start(config, level, |error| {
            tracing::error!(%error, "the journal cannot be written: the server ends here");
            std::process::exit(70);
        })
        .await?;
        let url = format!("http://{}", server.address());
        let (stop, stopped) = watch::channel(false);
        let admin = server.local_admin().context("no admin's token: give --data-dir another directory")?.secret.clone();
        let _announced = announce_or_warn(&server, &admin);
        let client = Client::builder(&url).token(SecretString::from(admin.clone())).build()?;
        let mut agents = Vec::new();
        for mut parts in self::agents(&url, args)? {
            let id = parts.settings.id.clone();
            parts.client = Client::builder(&url).token(runner_token(&client, &id).await?).apart().build()?;
            agents.push(tokio::spawn(Agent::run(parts, stopped.clone())));
            heard_of(&client, &id).await;
        }
        let samples: ModelFile = toml::from_str(MODELS).context("the sample models")?;
        for model in samples.model {
            let name = model.name.clone().context("a sample model without a name")?;
            client.put_model(&name, &model).await?;
        }
        crate::print(&welcome(&url, &admin, agents.len()))?;
        signals.heard().await;
        stop.send_replace(true);
        for agent in agents {
            agent.await??;
        }
        server.stop().await;
        anyhow::Ok(())
    })
}

/// Makes a token for a runner of this start. One of a start before is revoked: its secret is known to nobody any more.
async fn runner_token(client: &Client, id: &RunnerId) -> anyhow::Result<SecretString> {
    let name: TokenName = id.as_str().parse()?;
    let (known, _) = client.tokens().await?;
    for old in known.iter().filter(|token| token.name == name) {
        client.revoke_token(old.id).await?;
    }
    let request = TokenRequest { runner_id: Some(id.clone()), ..TokenRequest::new(name, Role::Runner) };
    Ok(SecretString::from(client.create_token(&request).await?.token))
}

/// Waits until a runner has reported, so that whoever tries something finds it there, and in the same order each time.
/// An agent that cannot is no reason to wait for ever.
async fn heard_of(client: &Client, id: &RunnerId) {
    const PATIENCE: Duration = Duration::from_secs(10);
    let reported = async {
        while !client.runner(id).await.is_ok_and(|runner| runner.reported) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, reported).await;
}

fn welcome(url: &str, admin: &str, runners: usize) -> String {
    format!(
        "Berth serves at {url} with {runners} runner(s) and the models chat and vision. Try, in another terminal:\n\n  \
         export BERTH_SERVER={url} BERTH_TOKEN={admin}\n  \
         berth chat chat \"hello\"           a conversation; models load when they are asked for\n  \
         berth models list                 what is loaded\n  \
         berth submit chat --wait 30s      a lease on a slot, and where it answers\n  \
         berth slots                       what runs where\n  \
         berth ledger                      every GPU as a bar\n  \
         berth submit vision --kind job    a slot of its own\n  \
         berth explain WORKLOAD            why a workload is where it is\n  \
         berth logs WORKLOAD               what its slot wrote\n  \
         berth events -f                   what happens\n\n\
         curl -H \"Authorization: Bearer $BERTH_TOKEN\" -H \"Content-Type: application/json\" \\\n    \
         -d '{{\"model\": \"chat\", \"messages\": [{{\"role\": \"user\", \"content\": \"hello\"}}]}}' \\\n    \
         $BERTH_SERVER/v1/chat/completions\n\n\
         Commands of this user find the token by themselves; curl needs it. {url}/docs describes the API.\n\
         Ctrl-C ends everything.\n"
    )
}

/// The machine's own GPUs, or two runners that pretend.
fn agents(server: &str, args: &Args) -> anyhow::Result<Vec<AgentParts>> {
    let real = config(server, args, "dev", "")?;
    let mut machine = berth_runner::inventory::Machine::new(real.inventory.clone());
    let seen = machine.look(berth_domain::Timestamp::default(), berth_runner::inventory::Detail::Usage)?;
    if !seen.gpus.is_empty() {
        return Ok(vec![parts(&real)?]);
    }
    (1..=2)
        .map(|number| {
            let gpu = |index: u16| {
                format!("[[inventory.simulated]]\nuuid = \"GPU-dev-{number}-{index}\"\nname = \"simulated\"\nmemory = \"80GiB\"\n")
            };
            let inventory = format!("[inventory]\nmachine_id = \"dev-machine-{number}\"\n{}{}", gpu(0), gpu(1));
            parts(&config(server, args, &format!("dev-{number}"), &inventory)?)
        })
        .collect()
}

fn config(server: &str, args: &Args, id: &str, inventory: &str) -> anyhow::Result<AgentConfig> {
    let program = toml::Value::from(std::env::current_exe()?.display().to_string());
    let directory = toml::Value::from(args.data_dir.join(id).display().to_string());
    let (speed, load_ms) = (args.speed, args.load_ms);
    let text = format!(
        "[agent]\nid = \"{id}\"\nserver = \"{server}\"\ndata_dir = {directory}\nstop_grace = \"3s\"\n\n\
         [runtime.demo]\nkind = \"both\"\n\
         command = [{program}, \"demo-slot\", \"--port\", \"{{port}}\", \"--model\", \"{{model}}\", \
         \"--speed\", \"{speed}\", \"--load-ms\", \"{load_ms}\"]\n\
         ready = {{ path = \"/health\", every = \"20ms\", deadline = \"10m\" }}\n\
         endpoint = \"http://{{address}}:{{port}}\"\n\n{inventory}"
    );
    toml::from_str(&text).with_context(|| text)
}

fn parts(config: &AgentConfig) -> anyhow::Result<AgentParts> {
    let (settings, runtimes) = config.check()?;
    let trampoline = vec![std::env::current_exe()?.into_os_string(), "runner-exec".into()];
    let spawning = SpawnOptions { trampoline: Some(trampoline), on_agent_exit: OnAgentExit::Kill, cgroups: None };
    Ok(AgentParts { settings, runtimes, client: Client::builder(&config.agent.server).build()?, spawning })
}
