//! A real agent: `berth runner` on simulated GPUs, whose slots run a shell script of the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Api, berth, within};

/// How a real agent is to be started.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    id: String,
    script: String,
    token: Option<String>,
    agent: String,
    more: String,
}

impl RunnerOptions {
    /// An agent of this id. Its runtime `sh` runs the script, with the directory of the agent as its first argument; a
    /// slot of it counts as ready as soon as it runs.
    #[must_use]
    pub fn new(id: &str, script: &str) -> Self {
        Self { id: id.to_owned(), script: script.to_owned(), token: None, agent: String::new(), more: String::new() }
    }

    /// With this token.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// With more of the configuration's `[agent]`.
    #[must_use]
    pub fn agent(self, toml: &str) -> Self {
        Self { agent: toml.to_owned(), ..self }
    }

    /// With more of a configuration.
    #[must_use]
    pub fn more(self, toml: &str) -> Self {
        Self { more: toml.to_owned(), ..self }
    }

    /// Starts it.
    #[must_use]
    pub fn start(&self, api: &Api) -> Runner {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("runner.toml");
        std::fs::write(dir.path().join("slot.sh"), &self.script).expect("the script");
        std::fs::write(&config, self.config(api, dir.path())).expect("the configuration");
        Runner { child: spawn(&config), dir }
    }

    fn config(&self, api: &Api, dir: &Path) -> String {
        let token = self.token.as_ref().map_or(String::new(), |token| {
            std::fs::write(dir.join("token"), token).expect("the token");
            format!("token_file = '{}'\n", dir.join("token").display())
        });
        let (id, base, here, agent, more) = (&self.id, api.base(), dir.display(), &self.agent, &self.more);
        format!(
            "[agent]\nid = '{id}'\nserver = '{base}'\ndata_dir = '{here}/data'\non_agent_exit = 'kill'\n\
             stop_grace = '1s'\nreport_every = '1s'\n{token}{agent}\n\
             [inventory]\nmachine_id = 'machine-of-{id}'\n\
             [[inventory.simulated]]\nuuid = 'GPU-{id}'\nname = 'simulated'\nmemory = '80GiB'\n\n\
             [runtime.sh]\ncommand = ['/bin/sh', '{here}/slot.sh', '{here}']\n{more}"
        )
    }
}

fn spawn(config: &Path) -> Child {
    let mut command = Command::new(berth());
    command.args(["runner", "--config"]).arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("an agent can be run")
}

/// A real agent that runs. It ends, with its slots, when this is dropped.
#[derive(Debug)]
pub struct Runner {
    child: Child,
    dir: TempDir,
}

impl Runner {
    /// A file in the directory that its slots know.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// It stands still: it is there, and does nothing.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("a signal can be sent");
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        if within(super::PATIENCE, || self.child.try_wait().ok().flatten()).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
