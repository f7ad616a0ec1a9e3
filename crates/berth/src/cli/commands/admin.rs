//! The audit log and the server's log.

use berth_client::routes;
use berth_wire::PageQuery;
use clap::Args;

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::Session;

/// List who did what
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth audit")]
pub(crate) struct Audit {}

impl Audit {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let route = routes::audit(&PageQuery::default());
        session.show(&route, |rows, look| render::records::audit(rows, look)).await?;
        Ok(Ended::Well)
    }
}

/// Show what the server logs, or change it
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  berth log-level\n  berth log-level info,berth_server=debug")]
pub(crate) struct LogLevel {
    /// A level (error, warn, info, debug, trace), or levels by target
    filter: Option<String>,
}

impl LogLevel {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let route = match self.filter {
            Some(filter) => routes::set_log_level(&berth_wire::LogLevel { filter }),
            None => routes::log_level(),
        };
        session.show(&route, |level, _| format!("{}\n", render::look::clean(&level.filter))).await?;
        Ok(Ended::Well)
    }
}
