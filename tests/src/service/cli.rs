//! The command line: the real program, asked for what a person would ask it.

use std::process::Command;

use super::{Api, berth};

/// What a command printed, and how it ended.
#[derive(Clone, Debug)]
pub struct Printed {
    /// Its exit status.
    pub status: i32,
    /// On standard output.
    pub out: String,
    /// On standard error.
    pub err: String,
}

impl Printed {
    /// What it printed on standard output. The test fails if the command did.
    #[track_caller]
    #[must_use]
    pub fn ok(self) -> String {
        assert_eq!(self.status, 0, "{} {}", self.out, self.err);
        self.out
    }
}

/// Runs `berth ARGS --server URL`, without anything of the environment that it would listen to.
#[must_use]
pub fn cli(api: &Api, args: &[&str]) -> Printed {
    let mut command = Command::new(berth());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
        command.env_remove(name);
    }
    let output = command.arg("--server").arg(api.base()).args(args).output().expect("berth can be run");
    Printed {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
