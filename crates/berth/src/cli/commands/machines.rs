//! Machines that several runners name.

use berth_client::routes;
use berth_domain::{ReasonText, RunnerId};
use berth_wire::MachineJudgement;
use clap::{Args, Subcommand};

use super::super::failure::{Ended, Failure};
use super::super::session::Session;

/// Say on which machine runners are that name a machine of another runner
///
/// A machine id belongs to the runner that registered it first. Another runner that names it is `machine_disputed` in
/// `berth runners` and takes nothing, until its token or you say where it is.
#[derive(Debug, Subcommand)]
pub(crate) enum Machines {
    /// They are on the machine that they name, and share its GPUs, CPU and RAM
    #[command(after_help = "Example:\n  berth machines same box-1-b --reason \"two containers on one machine\"")]
    Same(Runners),
    /// They are on other machines that have the same id, such as machines that were cloned from one image
    #[command(after_help = "Examples:\n  berth machines another box-2 --reason \"cloned image\"\n  \
        berth machines another --all-disputed --reason \"cloned image\"")]
    Another(Runners),
}

#[derive(Debug, Args)]
pub(crate) struct Runners {
    /// The runners
    #[arg(required_unless_present = "all_disputed", conflicts_with = "all_disputed")]
    runners: Vec<RunnerId>,
    /// Every runner whose machine is in dispute now
    #[arg(long)]
    all_disputed: bool,
    /// Why; it goes on record
    #[arg(long)]
    reason: ReasonText,
}

impl Machines {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let (Runners { runners, all_disputed, reason }, same) = match self {
            Self::Same(runners) => (runners, true),
            Self::Another(runners) => (runners, false),
        };
        let request = MachineJudgement { runners, all_disputed, same, reason };
        session
            .show(&routes::judge_machines(&request), |(), _| "noted: it counts from their next reports on\n".to_owned())
            .await?;
        Ok(Ended::Well)
    }
}
