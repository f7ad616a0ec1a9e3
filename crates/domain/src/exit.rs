//! How a program ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the first process of a slot ended by itself, without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// The process exited with this code.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
}

impl ExitStatus {
    /// Returns the name of the signal, if it is a common one.
    #[must_use]
    pub const fn signal_name(self) -> Option<&'static str> {
        let Self::Signal(number) = self else { return None };
        Some(match number {
            1 => "SIGHUP",
            2 => "SIGINT",
            3 => "SIGQUIT",
            4 => "SIGILL",
            5 => "SIGTRAP",
            6 => "SIGABRT",
            7 => "SIGBUS",
            8 => "SIGFPE",
            9 => "SIGKILL",
            11 => "SIGSEGV",
            13 => "SIGPIPE",
            14 => "SIGALRM",
            15 => "SIGTERM",
            24 => "SIGXCPU",
            31 => "SIGSYS",
            _ => return None,
        })
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.signal_name()) {
            (Self::Code(code), _) => write!(f, "exit code {code}"),
            (Self::Signal(number), Some(name)) => write!(f, "signal {number} ({name})"),
            (Self::Signal(number), None) => write!(f, "signal {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_status_names_its_code_or_its_signal() {
        assert_eq!(ExitStatus::Code(-3).to_string(), "exit code -3");
        assert_eq!(ExitStatus::Signal(9).to_string(), "signal 9 (SIGKILL)");
        assert_eq!(ExitStatus::Signal(40).to_string(), "signal 40");
    }
}
