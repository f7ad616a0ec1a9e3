//! How a command ends.

use std::io::Write;
use std::process::ExitCode;

use berth_client::ClientError;
use berth_wire::ProblemCode;

/// A command that did what it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Done.
    Well,
    /// What was looked at failed, or can never be.
    Badly,
    /// It was waited for, and did not come.
    InVain,
}

impl Ended {
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Well => 0,
            Self::Badly => 1,
            Self::InVain => 6,
        })
    }
}

/// A command that could not be carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server, or the way to it.
    Client(ClientError),
    /// An argument or a file that makes no sense.
    Usage(String),
    /// Something else went wrong.
    Failed(String),
    /// Nobody reads what is written: that is no failure, but there is no use in going on.
    Closed,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl Failure {
    /// As `berth --help` lists them.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Client(error) => match error {
                ClientError::Problem(problem) => match (problem.status, ProblemCode::from_text(&problem.code)) {
                    (401 | 403, _) => 4,
                    (404, _) | (_, Some(ProblemCode::UnknownModel)) => 5,
                    _ => 1,
                },
                ClientError::BadUrl { .. }
                | ClientError::BadCa { .. }
                | ClientError::BadCertificate { .. }
                | ClientError::TokenOverHttp { .. }
                | ClientError::BadToken => 2,
                ClientError::Unreachable { .. }
                | ClientError::Tls { .. }
                | ClientError::Timeout { .. }
                | ClientError::Interrupted { .. }
                | ClientError::CertificateRefused { .. }
                | ClientError::NotBerth { .. } => 3,
            },
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.status())
    }

    /// What happened, and what to do.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Closed => None,
            Self::Usage(text) | Self::Failed(text) => Some(text.clone()),
            Self::Client(error) => {
                let hint = error.problem().and_then(hint).map(|hint| format!("\n{hint}")).unwrap_or_default();
                Some(format!("{error}{hint}"))
            }
        }
    }

    /// Tells the person. Where even that cannot be written there is nobody to tell.
    pub(crate) fn tell(&self) {
        if let Some(text) = self.text() {
            let text = super::render::look::clean_lines(&text);
            let _ = writeln!(std::io::stderr(), "error: {text}");
        }
    }
}

/// What helps with what the server says, where the server cannot know it.
fn hint(problem: &berth_wire::Problem) -> Option<String> {
    match (problem.status, problem.retry_after_ms) {
        (401, _) => Some("give a token: --token-file FILE, or BERTH_TOKEN in the environment".to_owned()),
        (403, _) => Some("use a token of another role: `berth token list` shows them to an admin".to_owned()),
        (_, Some(millis)) => Some(format!("try again in {} s", millis.div_ceil(1000))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_wire::Problem;

    fn problem(status: u16, code: &str) -> Failure {
        Failure::Client(ClientError::Problem(Box::new(Problem::new(status, code, "No", "no"))))
    }

    #[test]
    fn every_end_has_its_status() {
        let url = || "http://h".to_owned();
        let unreachable = ClientError::Unreachable { url: url(), why: String::new() };
        for (failure, status) in [
            (problem(409, "stale_attempt"), 1),
            (problem(422, "invalid_field"), 1),
            (problem(429, "queue_full"), 1),
            (problem(401, "unauthenticated"), 4),
            (problem(403, "forbidden"), 4),
            (problem(404, "unknown_slot"), 5),
            (problem(422, "unknown_model"), 5),
            (Failure::Client(unreachable), 3),
            (Failure::Client(ClientError::Timeout { url: url(), seconds: 1 }), 3),
            (Failure::Client(ClientError::BadUrl { url: url(), why: String::new() }), 2),
            (Failure::Usage(String::new()), 2),
            (Failure::Closed, 0),
        ] {
            assert_eq!(failure.status(), status, "{failure:?}");
        }
    }

    #[test]
    fn an_error_says_what_to_do() {
        assert!(problem(401, "x").text().unwrap().contains("--token-file"));
        let full = Problem::new(429, "queue_full", "No", "the queue is full").with_retry_after_ms(1500);
        let text = Failure::Client(ClientError::Problem(Box::new(full))).text().unwrap();
        assert_eq!(text, "the queue is full (queue_full)\ntry again in 2 s");
    }
}
