//! Tokens: make, list, revoke.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use berth_client::{Answer, routes};
use berth_domain::{Revision, RunnerId};
use berth_wire::{NewToken, Role, TokenId, TokenName, TokenRequest};
use clap::Subcommand;

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::{Session, now};

/// Make, list and revoke tokens
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token, and print its secret once
    ///
    /// The secret alone goes to standard output, so that it can be put into a file. The first token of a server must be
    /// an admin's; from then on every request needs one.
    #[command(
        after_help = "Examples:\n  berth token create ops --role admin --data-dir /var/lib/berth > ops.token\n  \
        berth token create gateway --role submitter\n  berth token create gpu-box-1 --role runner --runner gpu-box-1"
    )]
    Create {
        /// What people call it
        name: TokenName,
        /// What its bearer may do: admin, submitter, runner or viewer
        #[arg(long)]
        role: Role,
        /// The runner that it is for; with --role runner
        #[arg(long, value_name = "ID")]
        runner: Option<RunnerId>,
        /// Make it in the data directory of a server that does not run, instead of asking one that does
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
    },
    /// List tokens, without their secrets
    #[command(after_help = "Example:\n  berth token list")]
    List,
    /// Make a token worthless
    #[command(after_help = "Example:\n  berth token revoke 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921")]
    Revoke {
        /// Which, by its id
        id: TokenId,
    },
}

impl Token {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        match self {
            Self::Create { name, role, runner, data_dir } => {
                let request = TokenRequest { name, role, runner_id: runner };
                request.validate().map_err(|invalid| Failure::Usage(invalid.to_string()))?;
                let answer = match data_dir {
                    Some(directory) => create_in(&directory, request)?,
                    None => session.client.ask(&routes::create_token(&request)).await?,
                };
                session.print_answer(&answer, |made, _| format!("{}\n", made.token))?;
                let Answer { body: NewToken { about, .. }, .. } = answer;
                session.note(&format!(
                    "made token {} ({}, {}); its secret is not shown again",
                    about.id, about.name, about.role
                ));
            }
            Self::List => {
                session.show(&routes::tokens(), |rows, look| render::records::tokens(rows, look)).await?;
            }
            Self::Revoke { id } => {
                session.show(&routes::revoke_token(id), |_, _| format!("revoked token {id}\n")).await?;
            }
        }
        Ok(Ended::Well)
    }
}

/// Makes a token where no server is there to be asked. A server that runs would not notice, so there must be none.
fn create_in(directory: &Path, request: TokenRequest) -> Result<Answer<NewToken>, Failure> {
    let failed = |error: String| Failure::Failed(error);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| failed(format!("{}: {error}", directory.display())))?;
    let _lock = berth_store::DirectoryLock::acquire(directory)
        .map_err(|error| failed(format!("{error}; ask the server that runs there: leave --data-dir out")))?;
    let tokens = berth_server::trust::tokens::Tokens::open(directory).map_err(|error| failed(error.to_string()))?;
    let made = tokens.create(request, now()).map_err(|error| failed(error.to_string()))?;
    let text = serde_json::to_string(&made).map_err(|error| failed(error.to_string()))?;
    Ok(Answer { body: made, text, revision: Revision::default() })
}
