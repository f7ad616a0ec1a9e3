//! Tokens: make, list, revoke.

use std::path::{Path, PathBuf};

use berth_client::{Answer, routes};
use berth_domain::{Bytes, Priority, Revision, RunnerId, TenantName};
use berth_wire::{NewToken, Role, SubmitterLimits, TimeSpan, TokenId, TokenName, TokenRequest};
use clap::Subcommand;

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::{Session, now};
use super::join_token::GrantArgs;
use super::secret_file::SecretFile;

/// Make, list and revoke tokens
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a run of the program")]
pub(crate) enum Token {
    /// Make a token, and print its secret once
    ///
    /// The secret alone goes to standard output, or into a file that only you can read. The first token of a server must
    /// be an admin's; from then on every request needs one.
    #[command(
        after_help = "Examples:\n  berth token create ops --role admin --data-dir /var/lib/berth --out ops.token\n  \
        berth token create gateway --role submitter\n  \
        berth token create gpu-box-1 --role runner --runner gpu-box-1 --pool big --address 10.7.0.9"
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
        #[command(flatten)]
        grant: GrantArgs,
        /// The tenant whose work it submits: tokens of one tenant see and end each other's work; with --role submitter
        #[arg(long, value_name = "TENANT")]
        tenant: Option<TenantName>,
        #[command(flatten)]
        limits: LimitArgs,
        /// For how long it is worth anything; by default until it is revoked
        #[arg(long, value_name = "TIME")]
        expires: Option<TimeSpan>,
        /// Make it in the data directory of a server that does not run, instead of asking one that does
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        #[command(flatten)]
        file: SecretFile,
    },
    /// List tokens, without their secrets
    #[command(after_help = "Example:\n  berth token list")]
    List,
    /// Make another secret for a token, and print it once
    ///
    /// The old one is good until the new one is first used.
    #[command(
        after_help = "Example:\n  berth token rotate 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921 --out gateway.token --force"
    )]
    Rotate {
        /// Which, by its id
        id: TokenId,
        #[command(flatten)]
        file: SecretFile,
    },
    /// Make a token worthless
    #[command(after_help = "Example:\n  berth token revoke 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921")]
    Revoke {
        /// Which, by its id
        id: TokenId,
    },
}

/// How much a submitter may have at once; what is left out is as the server's `[tokens]` says
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LimitArgs {
    /// Workloads that may wait
    #[arg(long, value_name = "N")]
    max_queued: Option<u32>,
    /// Workloads that may have a slot
    #[arg(long, value_name = "N")]
    max_running: Option<u32>,
    /// The highest priority that it may ask for
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_priority: Option<i32>,
    /// The arguments of one job, as a size
    #[arg(long, value_name = "SIZE")]
    max_job_args: Option<Bytes>,
}

impl LimitArgs {
    fn limits(self) -> Option<SubmitterLimits> {
        let limits = SubmitterLimits {
            queued: self.max_queued,
            running: self.max_running,
            priority: self.max_priority.map(Priority::new),
            job_args_bytes: self.max_job_args,
        };
        (limits != SubmitterLimits::default()).then_some(limits)
    }
}

impl Token {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        match self {
            Self::Create { name, role, runner, grant, tenant, limits, expires, data_dir, file } => {
                if role == Role::Join {
                    return Err(Failure::Usage("make join tokens with `berth join-token create`".to_owned()));
                }
                let request = TokenRequest {
                    runner_id: runner,
                    grant: grant.grant(),
                    tenant,
                    limits: limits.limits(),
                    expires_in: expires,
                    ..TokenRequest::new(name, role)
                };
                request.validate().map_err(|invalid| Failure::Usage(invalid.to_string()))?;
                let file = file.prepare()?;
                let answer = match data_dir {
                    Some(directory) => create_in(&directory, request)?,
                    None => session.client.ask(&routes::create_token(&request)).await?,
                };
                file.hand_over(session, &answer, "revoke it with `berth token revoke`, and make another one")?;
                let Answer { body: NewToken { about, .. }, .. } = answer;
                session.note(&format!(
                    "made token {} ({}, {}); its secret is not shown again",
                    about.id, about.name, about.role
                ));
            }
            Self::List => {
                let nothing = "no tokens: whoever reaches the server may do everything";
                session.show(&routes::tokens(), |rows, look| render::records::tokens(rows, nothing, look)).await?;
            }
            Self::Rotate { id, file } => {
                let file = file.prepare()?;
                let answer = session.client.ask(&routes::rotate_token(id)).await?;
                file.hand_over(session, &answer, "the old secret is still good: rotate it once more")?;
                session.note("the old secret is good until the new one is first used");
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
    berth_files::make_directory(directory).map_err(|error| failed(format!("{}: {error}", directory.display())))?;
    let _lock = berth_store::DirectoryLock::acquire(directory)
        .map_err(|error| failed(format!("{error}; ask the server that runs there: leave --data-dir out")))?;
    let tokens = berth_server::trust::tokens::Tokens::open(directory).map_err(|error| failed(error.to_string()))?;
    let made = tokens.create(request, now()).map_err(|error| failed(error.to_string()))?;
    let text = serde_json::to_string(&made).map_err(|error| failed(error.to_string()))?;
    Ok(Answer { body: made, text, revision: Revision::default() })
}
