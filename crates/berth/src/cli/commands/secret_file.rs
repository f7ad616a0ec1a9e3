//! Where the secret of a new token goes: to standard output, or into a file that only its owner can read.

use std::io::ErrorKind;
use std::path::PathBuf;

use berth_client::Answer;
use berth_files::NewFile;
use berth_wire::NewToken;
use clap::Args;

use super::super::failure::Failure;
use super::super::session::{Output, Session};

/// Where to put a secret.
#[derive(Debug, Args)]
pub(crate) struct SecretFile {
    /// Put the secret into a file that only you can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long, requires = "out")]
    force: bool,
}

/// A place for a secret that does not exist yet.
pub(super) struct PreparedFile {
    file: Option<(PathBuf, NewFile)>,
}

impl SecretFile {
    /// Makes sure that the file can be written before a secret is made for it.
    pub(super) fn prepare(self) -> Result<PreparedFile, Failure> {
        let Self { out, force } = self;
        let Some(path) = out else { return Ok(PreparedFile { file: None }) };
        let file = NewFile::prepare(&path, force).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                Failure::Usage(format!("{} is there: name another file, or say --force", path.display()))
            }
            _ => Failure::Usage(format!("cannot write {}: {error}", path.display())),
        })?;
        Ok(PreparedFile { file: Some((path, file)) })
    }
}

impl PreparedFile {
    /// Puts the secret of a token where it was asked for. `otherwise` says what to do if it cannot be written after all.
    pub(super) fn hand_over(
        self,
        session: &Session,
        answer: &Answer<NewToken>,
        otherwise: &str,
    ) -> Result<(), Failure> {
        let NewToken { token, about } = &answer.body;
        let Some((path, file)) = self.file else {
            return session.print_answer(answer, |made, _| format!("{}\n", made.token));
        };
        file.keep(format!("{token}\n").as_bytes()).map_err(|error| {
            Failure::Failed(format!(
                "token {} was made, and its secret cannot be written to {}: {error}; {otherwise}",
                about.id,
                path.display()
            ))
        })?;
        if session.output == Output::Json {
            let text = serde_json::to_string(about).map_err(|error| Failure::Failed(error.to_string()))?;
            session.print(&format!("{text}\n"))?;
        }
        session.note(&format!("the secret is in {} (mode 600)", path.display()));
        Ok(())
    }
}
