//! The server's history, and going on after it went back.

use berth_client::routes;
use berth_domain::ReasonText;
use berth_wire::ContinueHistory;
use clap::{Args, Subcommand};

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::Session;

/// Show whether the server's history went back, or go on after it did
///
/// A server that is started on an older copy of its data does not know what it did since. Its agents do: it finds out
/// from them, and then places, starts and stops nothing until an operator decides.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  berth history\n  berth history continue --reason \"the disk was rolled back, ticket 4711\""
)]
pub(crate) struct History {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Go on from the data that the server has, above everything that its agents have obeyed
    ///
    /// Slots that the server does not know are charged, and stopped once their agents obey it. Jobs that may have run
    /// since the copy was made were ended, unless they say restart_on_lost.
    #[command(after_help = "Example:\n  berth history continue --reason \"the disk was rolled back, ticket 4711\"")]
    Continue {
        /// Why; it goes on record
        #[arg(long)]
        reason: ReasonText,
    },
}

impl History {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        if let Some(Action::Continue { reason }) = self.action {
            let route = routes::continue_history(&ContinueHistory { reason });
            session.show(&route, |(), _| "the server goes on above what its agents have obeyed\n".to_owned()).await?;
            return Ok(Ended::Well);
        }
        let history = session.show(&routes::history(), render::history::history).await?;
        Ok(if history.went_back.is_some() { Ended::Badly } else { Ended::Well })
    }
}
