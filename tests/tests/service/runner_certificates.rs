//! Client certificates of runners: a runner's token counts only together with the runner's key, and nobody else needs one.
#![expect(clippy::unwrap_used, reason = "what these read on the way to a test is there, or the test has failed")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use berth_tests::service::{Api, FakeAgent, GIB, Options, RunnerOptions, Server, berth, eventually};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key.
struct Made {
    cert: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn certificate(&self, names: Vec<SanType>) -> Made {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        Made { cert: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }

    /// A certificate that names a runner.
    fn of_runner(&self, id: &str) -> Made {
        self.certificate(vec![SanType::URI(format!("urn:berth:runner:{id}").try_into().unwrap())])
    }
}

/// A server with TLS and an admin's token, whose configuration the test may change.
struct House {
    server: Server,
    admin: Api,
    authority: Authority,
    served: String,
    directory: TempDir,
}

impl House {
    /// With this of the configuration, in which `CA` is the file of the authority.
    fn new(tls: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let authority = Authority::new("runners");
        let served = made.cert.pem();
        fs::write(directory.path().join("cert.pem"), &served).unwrap();
        fs::write(directory.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        fs::write(directory.path().join("ca.pem"), &authority.pem).unwrap();
        let file = directory.path().join("berth.toml");
        fs::write(&file, config(&directory, tls)).unwrap();
        let server = Options::default().config(&file).trusting(&served).start();
        let admin = server.api().with_token(&server.api().token("ops", "admin", None));
        Self { server, admin, authority, served, directory }
    }

    /// A file of the test.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Changes the configuration, and returns what the server said until it was done with it.
    fn reload(&self, tls: &str) -> String {
        fs::write(self.directory.path().join("berth.toml"), config(&self.directory, tls)).unwrap();
        let before = self.server.log().len();
        self.server.signal(Signal::HUP);
        eventually("it is done with reloading", || {
            let said = self.server.log()[before..].to_owned();
            said.contains("action=\"reload\"").then_some(said)
        })
    }

    /// A client with a token, on new connections that show a certificate or none.
    fn client(&self, token: &str, shown: Option<&Made>) -> Api {
        let api = self.server.api().with_token(token);
        match shown {
            Some(made) => api.showing(&self.served, &made.cert, &made.key),
            None => api.on_new_connections(),
        }
    }

    /// A token of a runner.
    fn runner_token(&self, id: &str) -> String {
        self.admin.token(&format!("token of {id}"), "runner", Some(id))
    }

    /// The row of a token by its name.
    fn token_row(&self, name: &str) -> Value {
        let rows = self.admin.get("/api/v1/tokens").is(200);
        rows.rows().iter().find(|row| row["name"] == name).unwrap().clone()
    }

    /// Lines of an agent's `[agent]`, with files for its certificate.
    fn agent_lines(&self, made: &Made) -> String {
        let (cert, key) = (self.file("agent.pem", &made.cert), self.file("agent.key", &made.key));
        format!(
            "ca = '{}'\nclient_cert = '{}'\nclient_key = '{}'\n",
            self.directory.path().join("cert.pem").display(),
            cert.display(),
            key.display()
        )
    }

    fn is_ready(&self, id: &str) -> bool {
        self.admin.get(&format!("/api/v1/runners/{id}")).body["state"] == "ready"
    }
}

fn config(directory: &TempDir, tls: &str) -> String {
    let here = directory.path().display();
    let tls = tls.replace("CA", &format!("'{here}/ca.pem'"));
    format!("[tls]\ncert = '{here}/cert.pem'\nkey = '{here}/key.pem'\n{tls}\n")
}

/// Every route that takes a runner's token, and some that take none.
const ASKED: [(&str, &str); 6] = [
    ("PUT", "/api/v1/runners/box/report"),
    ("GET", "/api/v1/runners/box/desired"),
    ("POST", "/api/v1/runners/box/token"),
    ("POST", "/api/v1/runners/box/requests/01932c07-3a5b-7cc2-b7d1-58a1f7f4a922"),
    ("GET", "/api/v1/version"),
    ("GET", "/healthz"),
];

#[test]
fn a_runner_s_token_is_of_no_use_without_the_runner_s_key() {
    let house = House::new("client_ca = CA");
    let token = house.runner_token("box");
    let made = |id: &str| house.authority.of_runner(id);
    let nameless = house.authority.certificate(vec![SanType::DnsName("box".try_into().unwrap())]);
    let wrong = [
        (None, "certificate_required"),
        (Some(made("other")), "certificate_of_another"),
        (Some(made("BOX")), "certificate_of_another"),
        (Some(made("box-2")), "certificate_of_another"),
        (Some(nameless), "certificate_of_another"),
    ];
    for (shown, code) in &wrong {
        for (method, path) in ASKED {
            let body = json!({ "no_such_field": 1 });
            let api = house.client(&token, shown.as_ref());
            let ask = api.ask(method, path);
            let refused = if method == "GET" { ask } else { ask.json(&body) }.send();
            assert_eq!((refused.status, refused.code()), (403, *code), "{method} {path}: {}", refused.text);
            assert_eq!(refused.header("connection"), Some("close"), "the next connection may show another one");
        }
    }
    assert!(house.token_row("token of box")["last_used"].is_null(), "it was not used");
    let audit = house.admin.get("/api/v1/audit").is(200).text;
    assert!(audit.contains("certificate_required") && audit.contains("token of box"), "{audit}");

    // A certificate of another authority ends the handshake, whatever it names.
    let stranger = Authority::new("runners").of_runner("box");
    let refused = house.client(&token, Some(&stranger)).ask("GET", "/healthz").try_send();
    assert!(refused.is_err(), "{refused:?}");

    let own = house.client(&token, Some(&made("box")));
    let _ = FakeAgent::new(&own, "box", &[80 * GIB]).registered();
    assert!(house.is_ready("box") && !house.token_row("token of box")["last_used"].is_null());
    // One certificate may name several runners of one machine, and an id may have any letters.
    let names = ["urn:berth:runner:box", "urn:berth:runner:rack%207%2Fb"];
    let both = house.authority.certificate(names.map(|name| SanType::URI(name.try_into().unwrap())).into());
    let second = house.client(&house.runner_token("rack 7/b"), Some(&both));
    let asked = second.put("/api/v1/runners/rack%207%2Fb/report", &json!({ "no_such_field": 1 }));
    assert_eq!(asked.status, 422, "{}", asked.text);
}

#[test]
fn who_is_no_runner_needs_no_certificate() {
    let house = House::new("client_ca = CA");
    let open = house.server.api();
    assert_eq!(open.get("/healthz").status, 200);
    for role in ["viewer", "submitter", "admin"] {
        let token = house.admin.token(role, role, None);
        assert_eq!(house.client(&token, None).get("/api/v1/workloads").status, 200, "{role}");
        let shown = house.authority.of_runner("box");
        assert_eq!(house.client(&token, Some(&shown)).get("/api/v1/workloads").status, 200, "{role}");
    }
}

#[test]
fn a_machine_joins_with_the_certificate_of_the_runner_that_it_becomes() {
    let house = House::new("client_ca = CA");
    let join = house.admin.token_with(&json!({ "name": "rack", "role": "join", "uses": 1 }));
    let ask = |shown: Option<&Made>| {
        house.client(&join, shown).post("/api/v1/join", &json!({ "runner_id": "box", "key": "k".repeat(32) }))
    };
    for (shown, code) in
        [(None, "certificate_required"), (Some(house.authority.of_runner("other")), "certificate_of_another")]
    {
        let refused = ask(shown.as_ref());
        assert_eq!((refused.status, refused.code()), (403, code), "{}", refused.text);
    }
    assert_eq!(house.token_row("rack")["uses_left"], 1, "no use was counted");
    let own = house.authority.of_runner("box");
    let token = ask(Some(&own)).is(201).body["token"].as_str().unwrap().to_owned();
    let _ = FakeAgent::new(&house.client(&token, Some(&own)), "box", &[80 * GIB]).registered();
    assert_eq!(house.client(&token, None).get("/api/v1/version").code(), "certificate_required");
}

/// `berth runner` with these arguments.
fn agent(args: &[&str]) -> Command {
    let mut command = Command::new(berth());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
        command.env_remove(name);
    }
    command.arg("runner").args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_agent_joins_with_its_certificate_and_not_without() {
    let house = House::new("client_ca = CA");
    let path = |name: &str| house.directory.path().join(name).to_str().unwrap().to_owned();
    let config = format!(
        "[agent]\nid = 'box'\nserver = '{}'\ndata_dir = '{}'\n[inventory]\nmachine_id = 'm'\n\
         [[inventory.simulated]]\nuuid = 'GPU-0'\nname = 'H100'\nmemory = '80GiB'\n",
        house.server.api().base(),
        path("data")
    );
    let config = house.file("runner.toml", &config).to_str().unwrap().to_owned();
    let join = house.admin.token_with(&json!({ "name": "rack", "role": "join" }));
    let (own, stranger) = (house.authority.of_runner("box"), Authority::new("strangers").of_runner("box"));
    for (name, made) in [("own", &own), ("stranger", &stranger)] {
        let _ = house.file(&format!("{name}.pem"), &made.cert);
        let _ = house.file(&format!("{name}.key"), &made.key);
    }
    let (ca, join_with) = (path("cert.pem"), ["--config", &config, "--join", &join]);
    let base = [&join_with[..], &["--ca", &ca]].concat();
    let said = |more: &[&str]| {
        // An agent that is let in would not end by itself: the test should fail then, not hang.
        let wanted = agent(&[&base[..], more].concat());
        let mut command = Command::new("timeout");
        command.arg("30").arg(wanted.get_program()).args(wanted.get_args()).stdin(Stdio::null());
        for (name, _) in wanted.get_envs() {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        assert!(!output.status.success() && output.status.code() != Some(124), "the agent was let in");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let none = said(&[]);
    assert!(none.contains("urn:berth:runner:box") && none.contains("client_cert"), "{none}");
    let other = said(&["--client-cert", &path("stranger.pem"), "--client-key", &path("stranger.key")]);
    assert!(other.contains("does not accept the client certificate"), "{other}");
    let mixed = said(&["--client-cert", &path("own.pem"), "--client-key", &path("stranger.key")]);
    assert!(mixed.contains("own.pem") && mixed.contains("stranger.key"), "{mixed}");
    let half = said(&["--client-cert", &path("own.pem")]);
    assert!(half.contains("--client-key"), "{half}");

    // The files may come from the environment, too. A key that others can read is warned about.
    let mut command = agent(&base);
    command.env("BERTH_CLIENT_CERT", path("own.pem")).env("BERTH_CLIENT_KEY", path("own.key"));
    let log = fs::File::create(path("log")).unwrap();
    let _running = Running(command.stderr(log).spawn().unwrap());
    let log = || fs::read_to_string(path("log")).unwrap();
    eventually("the agent is part of the fleet", || house.is_ready("box").then_some(()));
    assert!(log().contains("own.key") && log().contains("chmod 600"), "{}", log());
}

#[test]
fn an_agent_s_file_names_both_of_certificate_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("runner.toml");
    fs::write(&file, "[agent]\nid = 'box'\nclient_cert = '/etc/berth/box.pem'\n").unwrap();
    let output = agent(&["--config", file.to_str().unwrap()]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && err.contains("both client_cert and client_key"), "{err}");
}

#[test]
fn the_authority_is_reloaded_and_a_wrong_file_changes_nothing() {
    let house = House::new("");
    let own = house.authority.of_runner("box");
    let token = house.runner_token("box");
    let report = |api: &Api| api.put("/api/v1/runners/box/report", &json!({ "no_such_field": 1 }));
    let (bare, shown) = (house.client(&token, None), house.client(&token, Some(&own)));
    let agent = RunnerOptions::new("agent", "sleep 1000").token(&house.runner_token("agent"));
    let _agent = agent.agent(&house.agent_lines(&house.authority.of_runner("agent"))).start(&house.admin);
    eventually("the agent is part of the fleet", || house.is_ready("agent").then_some(()));
    assert_eq!((report(&bare).status, report(&shown).status), (422, 422), "nothing is asked for yet");

    // Optional: who has none passes, who has another's does not.
    let said = house.reload("client_ca = CA\nrunner_certificates = \"optional\"");
    assert!(said.contains("certificate is reloaded"), "{said}");
    assert_eq!(report(&bare).status, 422);
    let other = house.client(&token, Some(&house.authority.of_runner("other")));
    assert_eq!(report(&other).is(403).code(), "certificate_of_another");

    // Required: connections that were made before count no more, and an agent makes new ones by itself.
    let incarnation = |house: &House| house.admin.get("/api/v1/runners/agent").is(200).body["incarnation"].clone();
    let before = incarnation(&house);
    let _ = house.reload("client_ca = CA");
    assert_eq!(report(&bare).is(403).code(), "certificate_required");
    assert_eq!(report(&house.client(&token, Some(&own))).status, 422);
    let heard = |house: &House| house.token_row("token of agent")["last_used"].clone();
    let last = heard(&house);
    eventually("the agent is heard again", || (heard(&house) != last).then_some(()));
    assert_eq!((house.is_ready("agent"), incarnation(&house)), (true, before), "it was never away");

    // A wrong file: what was in force stays in force.
    for wrong in ["", "no certificate", &own.key] {
        let _ = house.file("ca.pem", wrong);
        let said = house.reload("client_ca = CA");
        assert!(said.contains("ca.pem") && said.contains("goes on with what it had"), "{said}");
        assert_eq!(report(&bare).is(403).code(), "certificate_required");
        assert_eq!(report(&house.client(&token, Some(&own))).status, 422);
    }
    // Another authority: what the old one made counts no more, on connections that are open either.
    let kept = house.client(&token, Some(&own));
    assert_eq!(report(&kept).status, 422);
    let next = Authority::new("the next one");
    let _ = house.file("ca.pem", &next.pem);
    let _ = house.reload("client_ca = CA");
    assert_eq!(report(&kept).is(403).code(), "certificate_outdated");
    assert!(house.client(&token, Some(&own)).ask("GET", "/healthz").try_send().is_err());
    assert_eq!(report(&house.client(&token, Some(&next.of_runner("box")))).status, 422);
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let refused = |set: &[&str]| Options::default().set(set).try_start().unwrap_err().log;
    assert!(refused(&["tls.client_ca=/etc/berth/ca.pem"]).contains("needs TLS"));
    assert!(refused(&["tls.runner_certificates=required"]).contains("needs client_ca"));
}
