//! Running an engine to ask it for its version and options.
//!
//! The program gets the environment and the user of its slots, but no GPU: a query must not take GPU memory. It is
//! killed with everything that it started when its time is over.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use berth_engines::Engine;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::answers::{self, Needs, needs_of};
use super::version::EngineVersion;
use crate::runtime::SlotUser;

/// How long an engine may take to answer one query. vLLM imports all of PyTorch for it, which took 53 s on two busy cores.
const DEADLINE: Duration = Duration::from_secs(180);
/// How many bytes of an answer are read.
const LONGEST: u64 = 1024 * 1024;

/// A query to an engine.
#[derive(Clone, Debug)]
pub(super) struct EngineQuery {
    pub(super) engine: Engine,
    pub(super) program: PathBuf,
    /// What its templates need, in the order of versions.
    pub(super) needs: Vec<Needs>,
    pub(super) environment: BTreeMap<OsString, OsString>,
    pub(super) user: Option<SlotUser>,
}

/// The answer of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EngineAnswer {
    pub(super) version: Option<String>,
    pub(super) missing: Vec<String>,
    /// Why its options are not known.
    pub(super) trouble: Option<String>,
}

impl EngineQuery {
    pub(super) async fn ask(self) -> EngineAnswer {
        let version = match self.run(answers::version_arguments()).await {
            Ok(printed) => answers::version_in(&printed.text),
            Err(_) => None,
        };
        let mut trouble = "it has no question that is known".to_owned();
        for arguments in answers::help_arguments(self.engine) {
            match self.run(arguments).await {
                Ok(printed) if answers::is_help(self.engine, &printed.text) => {
                    let number = version.as_deref().and_then(EngineVersion::parse);
                    let missing = answers::missing_in(&printed.text, needs_of(&self.needs, number.as_ref()));
                    return EngineAnswer { version, missing, trouble: None };
                }
                Ok(printed) => trouble = format!("{} lists no options ({})", command(arguments), printed.status),
                Err(why) => trouble = format!("{}: {why}", command(arguments)),
            }
        }
        EngineAnswer { version, missing: Vec::new(), trouble: Some(trouble) }
    }

    async fn run(&self, arguments: &[&str]) -> Result<Printed, String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().envs(&self.environment).process_group(0).kill_on_drop(true);
        command.env("CUDA_VISIBLE_DEVICES", "");
        if self.engine == Engine::Ollama {
            // No server listens there: otherwise `--version` would ask a running server for its version.
            command.env("OLLAMA_HOST", "127.0.0.1:1");
        }
        if let Some(user) = &self.user {
            command.uid(user.uid.get()).gid(user.gid);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let printed = async {
            let (out, err, status) = tokio::join!(read(out), read(err), child.wait());
            status.map(|status| Printed { text: format!("{out}\n{err}"), status }).map_err(|error| error.to_string())
        };
        if let Ok(printed) = tokio::time::timeout(DEADLINE, printed).await {
            return printed;
        }
        // The program has not been reaped, so its pid and its group cannot have been reused.
        if let Some(group) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
            _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        _ = child.wait().await;
        Err(format!("it did not answer within {} s", DEADLINE.as_secs()))
    }
}

struct Printed {
    text: String,
    status: ExitStatus,
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let mut stream = stream.take(LONGEST);
        // After an error, the part that was read is used.
        drop(stream.read_to_end(&mut bytes).await);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn command(arguments: &[&str]) -> String {
    format!("`{}`", arguments.join(" "))
}
