//! The commands that talk to a server.
//!
//! Each command is a small struct of arguments with a `run` that asks the server and hands what came to a pure function
//! of [`render`]. What goes wrong becomes a [`Failure`], which knows its exit status and what to tell the person.

mod commands;
mod failure;
mod render;
mod session;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use commands::token::Token;
pub(crate) use failure::{Ended, Failure};
use session::Session;
pub(crate) use session::{Connection, Output};

use commands::{admin, backup, chat, fleet, history, join_token, logs, machines, models, scheduler, work};

/// Said below `berth --help`.
pub(crate) const EXIT_STATUS: &str = "Exit status:
  0  done
  1  failed, or refused by the server
  2  wrong usage: an argument, a file or an address
  3  the server cannot be reached
  4  not authorised
  5  not found
  6  waited in vain: it is still queued, or still draining

Examples:
  berth models apply models.toml
  berth submit qwen3:8b --wait 30s
  berth explain 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921
  berth ledger";

/// Commands of gateways and operators.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    Submit(work::Submit),
    Workloads(work::Workloads),
    Cancel(work::Cancel),
    Complete(work::Complete),
    Explain(work::Explain),
    Chat(chat::Chat),
    #[command(subcommand)]
    Models(models::Models),
    Fit(models::Fit),
    Runners(fleet::Runners),
    #[command(subcommand)]
    Machines(machines::Machines),
    Cordon(fleet::Cordon),
    Uncordon(fleet::Uncordon),
    Drain(fleet::Drain),
    Forget(fleet::Forget),
    Slots(scheduler::Slots),
    Logs(logs::Logs),
    Stop(scheduler::Stop),
    ForceRelease(scheduler::ForceRelease),
    Ledger(scheduler::Ledger),
    Decisions(scheduler::Decisions),
    Queue(scheduler::Queue),
    Demand(scheduler::Demand),
    Events(scheduler::Events),
    #[command(subcommand)]
    Token(Token),
    #[command(subcommand)]
    JoinToken(join_token::JoinToken),
    Audit(admin::Audit),
    LogLevel(admin::LogLevel),
    Backup(backup::Backup),
    History(history::History),
}

/// Runs a command and says how it ended.
pub(crate) fn run(connection: &Connection, command: ClientCommand) -> ExitCode {
    let ended = Session::open(connection).and_then(|session| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
        let ended = runtime.block_on(dispatch(&session, command));
        session.warn_of_history();
        ended
    });
    match ended {
        Ok(ended) => ended.code(),
        Err(failure) => {
            failure.tell();
            failure.code()
        }
    }
}

async fn dispatch(session: &Session, command: ClientCommand) -> Result<Ended, Failure> {
    match command {
        ClientCommand::Submit(submit) => submit.run(session).await,
        ClientCommand::Workloads(workloads) => workloads.run(session).await,
        ClientCommand::Cancel(cancel) => cancel.run(session).await,
        ClientCommand::Complete(complete) => complete.run(session).await,
        ClientCommand::Explain(explain) => explain.run(session).await,
        ClientCommand::Chat(chat) => chat.run(session).await,
        ClientCommand::Models(models) => models.run(session).await,
        ClientCommand::Fit(fit) => fit.run(session).await,
        ClientCommand::Runners(runners) => runners.run(session).await,
        ClientCommand::Machines(machines) => machines.run(session).await,
        ClientCommand::Cordon(cordon) => cordon.run(session).await,
        ClientCommand::Uncordon(uncordon) => uncordon.run(session).await,
        ClientCommand::Drain(drain) => drain.run(session).await,
        ClientCommand::Forget(forget) => forget.run(session).await,
        ClientCommand::Slots(slots) => slots.run(session).await,
        ClientCommand::Logs(logs) => logs.run(session).await,
        ClientCommand::Stop(stop) => stop.run(session).await,
        ClientCommand::ForceRelease(release) => release.run(session).await,
        ClientCommand::Ledger(ledger) => ledger.run(session).await,
        ClientCommand::Decisions(decisions) => decisions.run(session).await,
        ClientCommand::Queue(queue) => queue.run(session).await,
        ClientCommand::Demand(demand) => demand.run(session).await,
        ClientCommand::Events(events) => events.run(session).await,
        ClientCommand::Token(token) => token.run(session).await,
        ClientCommand::JoinToken(token) => token.run(session).await,
        ClientCommand::Audit(audit) => audit.run(session).await,
        ClientCommand::LogLevel(level) => level.run(session).await,
        ClientCommand::Backup(backup) => backup.run(session).await,
        ClientCommand::History(history) => history.run(session).await,
    }
}
