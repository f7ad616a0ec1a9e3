//! The server, who asks it, and where answers go.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use berth_client::{Answer, Client, Route};
use berth_domain::Timestamp;
use clap::ValueEnum;
use secrecy::SecretString;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::render::look::{Look, clean_json, clean_lines};
use crate::local_token;

/// Which server, and who asks.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Connection {
    /// The server's address [default: http://127.0.0.1:8080; an agent's is in its file]
    #[arg(long, global = true, value_name = "URL", env = "BERTH_SERVER")]
    server: Option<String>,
    /// The token to ask with; a file is safer, since others can see command lines. Not needed for a server that you run
    /// yourself on this machine
    #[arg(long, global = true, value_name = "TOKEN", env = "BERTH_TOKEN", hide_env_values = true, value_parser = secret)]
    token: Option<SecretString>,
    /// A file with the token to ask with; goes before --token
    #[arg(long, global = true, value_name = "FILE", env = "BERTH_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust; those of the system are then not trusted
    #[arg(long, global = true, value_name = "FILE", env = "BERTH_CA")]
    ca: Option<PathBuf>,
    /// Send the token over plain http beyond this machine, where others on the network can read it
    #[arg(long, global = true, env = "BERTH_ALLOW_TOKEN_OVER_HTTP")]
    allow_token_over_http: bool,
    /// Tables for people, or what the API said
    #[arg(long, global = true, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text))
}

/// Where a server is that was started without a word about it.
const USUAL_SERVER: &str = "http://127.0.0.1:8080";

impl Connection {
    /// The server's address, if it was said.
    pub(crate) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The certificates to trust, if they were said.
    pub(crate) fn ca(&self) -> Option<&PathBuf> {
        self.ca.as_ref()
    }

    /// Whether the token may be sent without encryption beyond this machine.
    pub(crate) fn allow_token_over_http(&self) -> bool {
        self.allow_token_over_http
    }

    /// How answers are printed.
    pub(crate) fn look(&self) -> Look {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Look { colour: wanted && std::io::stdout().is_terminal(), now: now() }
    }

    pub(crate) fn output(&self) -> Output {
        self.output
    }

    fn secret(&self) -> Result<Option<SecretString>, Failure> {
        let Some(file) = &self.token_file else {
            let server = self.server().unwrap_or(USUAL_SERVER);
            return Ok(self.token.clone().or_else(|| local_token::find(server)));
        };
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("cannot read the token file {}: {error}", file.display())))?;
        if let Some(mode) = berth_files::loose_mode(file) {
            let file = file.display();
            let _ = writeln!(
                std::io::stderr(),
                "warning: the token file {file} is open to other users (mode {mode:o}): chmod 600 {file}"
            );
        }
        Ok(Some(SecretString::from(text.trim())))
    }
}

/// The time, read in this one place.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// One run of one command.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
    pub(crate) look: Look,
}

impl Session {
    pub(crate) fn open(connection: &Connection) -> Result<Self, Failure> {
        let client = Client::builder(connection.server().unwrap_or(USUAL_SERVER))
            .token(connection.secret()?)
            .ca(connection.ca.clone())
            .allow_token_over_http(connection.allow_token_over_http)
            .build()?;
        Ok(Self { client, output: connection.output(), look: connection.look() })
    }

    /// Asks, and prints the answer: as it came, or as `render` makes of it.
    pub(crate) async fn show<T: DeserializeOwned>(
        &self,
        route: &Route<T>,
        render: impl FnOnce(&T, Look) -> String,
    ) -> Result<T, Failure> {
        let answer = self.client.ask(route).await?;
        self.print_answer(&answer, render)?;
        Ok(answer.body)
    }

    /// Prints an answer: as it came, or as `render` makes of it.
    pub(crate) fn print_answer<T>(
        &self,
        answer: &Answer<T>,
        render: impl FnOnce(&T, Look) -> String,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Json if answer.text.trim().is_empty() => Ok(()),
            Output::Json => self.print(&format!("{}\n", clean_json(answer.text.trim_end()))),
            Output::Table => self.print(&render(&answer.body, Look { now: now(), ..self.look })),
        }
    }

    /// Prints at once.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        self.write(text.as_bytes())
    }

    /// Writes bytes at once, as they are.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::Closed),
            Err(error) => Err(Failure::Failed(format!("cannot write to standard output: {error}"))),
        }
    }

    /// Tells the person that the server places nothing because its history went back.
    pub(crate) fn warn_of_history(&self) {
        if self.client.saw_history_go_back() {
            self.note(
                "warning: the history of this server went back, and it places nothing: `berth history` says what to do",
            );
        }
    }

    /// Tells the person something beside the answer.
    pub(crate) fn note(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}", clean_lines(text));
    }
}
