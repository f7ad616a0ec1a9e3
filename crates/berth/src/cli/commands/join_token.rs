//! Join tokens: how machines become part of the fleet.

use berth_client::routes;
use berth_domain::{LabelKey, LabelValue, MachineId, PoolName, RunnerId};
use berth_wire::{AddressGrant, Role, RunnerGrant, Time, TimeSpan, TokenId, TokenName, TokenRequest};
use clap::{Args, Subcommand};

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::{Session, now};
use super::secret_file::SecretFile;

/// Make, list and revoke join tokens
///
/// An agent exchanges a join token for a token of its own: `berth runner --join TOKEN --server URL`.
#[derive(Debug, Subcommand)]
pub(crate) enum JoinToken {
    /// Make a join token, and print its secret once
    #[command(after_help = "Examples:\n  berth join-token create --pool default\n  \
        berth join-token create rack-7 --pool big --label zone=a --address 10.7.0.0/16 --uses 8 --expires 1h\n  \
        berth join-token create --runner gpu-box-1    (for a machine that lost its token)")]
    Create {
        /// What people call it; made up if left out
        name: Option<TokenName>,
        #[command(flatten)]
        grant: GrantArgs,
        /// The only runner that may join with it, also if that runner is known already
        #[arg(long, value_name = "ID")]
        runner: Option<RunnerId>,
        /// How many machines may join with it
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        uses: u32,
        /// For how long it is worth anything
        #[arg(long, value_name = "TIME", default_value = "1h")]
        expires: TimeSpan,
        #[command(flatten)]
        file: SecretFile,
    },
    /// List join tokens, without their secrets
    #[command(after_help = "Example:\n  berth join-token list")]
    List,
    /// Make a join token worthless; runners that joined with it stay
    #[command(after_help = "Example:\n  berth join-token revoke 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921")]
    Revoke {
        /// Which, by its id
        id: TokenId,
    },
}

/// What a runner may be.
#[derive(Debug, Default, Args)]
pub(crate) struct GrantArgs {
    /// The pool that the runner is in
    #[arg(long, value_name = "POOL")]
    pool: Option<PoolName>,
    /// A label that the runner carries; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(LabelKey, LabelValue)>,
    /// The machine that the runner is on: it may share it with other runners
    #[arg(long, value_name = "ID")]
    machine: Option<MachineId>,
    /// Where slots are reached: a host, an IP address or a network; by default, where the agent connects from
    #[arg(long, value_name = "ADDRESS")]
    address: Option<AddressGrant>,
}

impl GrantArgs {
    /// The grant, if anything of it was said.
    pub(super) fn grant(self) -> Option<RunnerGrant> {
        let Self { pool, labels, machine, address } = self;
        if pool.is_none() && labels.is_empty() && machine.is_none() && address.is_none() {
            return None;
        }
        let pool = pool.unwrap_or_else(PoolName::default_pool);
        Some(RunnerGrant { pool, labels: labels.into_iter().collect(), machine_id: machine, address })
    }
}

fn label(text: &str) -> Result<(LabelKey, LabelValue), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.parse().map_err(|error| format!("{error}"))?, value.parse().map_err(|error| format!("{error}"))?))
}

impl JoinToken {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        match self {
            Self::Create { name, grant, runner, uses, expires, file } => {
                let request = TokenRequest {
                    runner_id: runner,
                    grant: grant.grant(),
                    uses: Some(uses),
                    expires_in: Some(expires),
                    ..TokenRequest::new(name.map_or_else(made_up_name, Ok)?, Role::Join)
                };
                let file = file.prepare()?;
                let answer = session.client.ask(&routes::create_token(&request)).await?;
                file.hand_over(session, &answer, "revoke it with `berth join-token revoke`, and make another one")?;
                session.note(&format!(
                    "made join token {} for {uses} machine(s), good for {expires}; on each of them run\n  \
                     berth runner --server {} --join TOKEN",
                    answer.body.about.name,
                    session.client.base(),
                ));
            }
            Self::List => {
                session
                    .show(&routes::tokens(), |rows, look| {
                        let joins: Vec<_> = rows.iter().filter(|row| row.role == Role::Join).cloned().collect();
                        render::records::tokens(&joins, "no join tokens: `berth join-token create` makes one", look)
                    })
                    .await?;
            }
            Self::Revoke { id } => {
                session.show(&routes::revoke_token(id), |_, _| format!("revoked join token {id}\n")).await?;
            }
        }
        Ok(Ended::Well)
    }
}

fn made_up_name() -> Result<TokenName, Failure> {
    format!("join {}", Time(now())).parse().map_err(|error: berth_wire::Invalid| Failure::Usage(error.to_string()))
}
