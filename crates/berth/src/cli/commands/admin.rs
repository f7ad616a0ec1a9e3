//! The audit log and the server's log.

use std::path::{Path, PathBuf};

use berth_client::routes;
use berth_server::trust::audit;
use berth_wire::PageQuery;
use clap::{Args, Subcommand};

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::Session;

/// List who did what
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = "Examples:\n  berth audit\n  berth audit verify")]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Option<AuditCommand>,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Check that nobody changed the audit log of a data directory
    ///
    /// Reads the files, whether a server runs there or not. Finds lines that were changed, removed, added or moved, over
    /// all files that are kept. Exits with 0 if the log is whole and with 1 if it is not.
    #[command(after_help = "Examples:\n  berth audit verify --data-dir /var/lib/berth\n  \
        berth audit verify --data-dir /var/lib/berth --known 4711:5c2f...    (as the server's log had it)")]
    Verify {
        /// The server's data directory
        #[arg(long, value_name = "DIR", default_value = "berth-data")]
        data_dir: PathBuf,
        /// A line that somebody else has seen, which must be there: the `line` of any entry of berth::audit in the
        /// server's log
        #[arg(long, value_name = "NUMBER:HASH")]
        known: Option<audit::Link>,
    },
}

impl Audit {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        if let Some(AuditCommand::Verify { data_dir, known }) = self.command {
            return verify(session, &data_dir, known);
        }
        let route = routes::audit(&PageQuery::default());
        session.show(&route, |rows, look| render::records::audit(rows, look)).await?;
        Ok(Ended::Well)
    }
}

fn verify(session: &Session, data_dir: &Path, known: Option<audit::Link>) -> Result<Ended, Failure> {
    let found = audit::verify(data_dir, known)
        .map_err(|error| Failure::Failed(format!("the audit log in {} cannot be read: {error}", data_dir.display())))?;
    if found.files == 0 && found.flaws.is_empty() {
        let why = "there is no audit log: name the server's data directory with --data-dir";
        return Err(Failure::Usage(format!("{}: {why}", data_dir.display())));
    }
    session.print(&render::records::audit_findings(&found))?;
    Ok(if found.flaw_count == 0 { Ended::Well } else { Ended::Badly })
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
