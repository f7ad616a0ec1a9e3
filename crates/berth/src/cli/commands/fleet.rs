//! Runners and GPUs: look, close, drain, forget.

use std::time::Duration;

use berth_client::routes;
use berth_domain::{DeviceUuid, ReasonText, RunnerId};
use berth_wire::{DrainQuery, ForgetRequest, PageQuery, RunnerAdmission, TimeSpan};
use clap::Args;

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::{Output, Session, now};

/// List runners, or look at one and its GPUs
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  berth runners\n  berth runners gpu-box-1\n  berth runners gpu-box-1 --status --output json"
)]
pub(crate) struct Runners {
    /// Only this one, with what it last reported
    id: Option<RunnerId>,
    /// With JSON: what it last reported, instead of what the server holds of it
    #[arg(long, requires = "id")]
    status: bool,
}

impl Runners {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let Some(id) = self.id else {
            let route = routes::runners(&PageQuery::default());
            session.show(&route, |rows, look| render::fleet::runners(rows, look)).await?;
            return Ok(Ended::Well);
        };
        if self.status && session.output == Output::Json {
            session.show(&routes::runner_status(&id), |_, _| String::new()).await?;
            return Ok(Ended::Well);
        }
        let runner = session.client.ask(&routes::runner(&id)).await?;
        // A runner that has not reported since the server started has no status, and that is no failure.
        let status = match session.client.runner_status(&id).await {
            Ok(status) => Some(status),
            Err(error) if error.is_status(404) => None,
            Err(error) => return Err(error.into()),
        };
        session.print_answer(&runner, |runner, look| render::fleet::runner(runner, status.as_ref(), look))?;
        Ok(Ended::Well)
    }
}

/// A runner, or one of its GPUs.
#[derive(Debug, Args)]
struct Place {
    /// A runner
    #[arg(required_unless_present = "gpu")]
    runner: Option<RunnerId>,
    /// A GPU instead of a runner
    #[arg(long, value_name = "UUID", conflicts_with = "runner")]
    gpu: Option<DeviceUuid>,
}

/// Let nothing new onto a runner, or onto a GPU
///
/// What runs there goes on.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  berth cordon gpu-box-1\n  berth cordon --gpu GPU-5c1f3b7e-9d0a-4a52-8f3e-1b2c3d4e5f60"
)]
pub(crate) struct Cordon {
    #[command(flatten)]
    place: Place,
}

/// Let a runner, or a GPU, take work again
///
/// It ends a drain, too.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth uncordon gpu-box-1")]
pub(crate) struct Uncordon {
    #[command(flatten)]
    place: Place,
}

impl Cordon {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let Place { runner, gpu } = self.place;
        if let Some(runner) = runner {
            session.show(&routes::cordon(&runner), |_, _| format!("cordoned runner {runner}\n")).await?;
        }
        if let Some(gpu) = gpu {
            session.show(&routes::cordon_device(&gpu), |_, _| format!("cordoned GPU {gpu}\n")).await?;
        }
        Ok(Ended::Well)
    }
}

impl Uncordon {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let Place { runner, gpu } = self.place;
        if let Some(runner) = runner {
            session.show(&routes::uncordon(&runner), |_, _| format!("runner {runner} takes work again\n")).await?;
        }
        if let Some(gpu) = gpu {
            session.show(&routes::uncordon_device(&gpu), |_, _| format!("GPU {gpu} takes work again\n")).await?;
        }
        Ok(Ended::Well)
    }
}

/// Let a runner finish what it has, and give it nothing new
///
/// Its leases finish, then its slots stop; `berth uncordon` takes it back. After the deadline pins and leases protect
/// nothing any more.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 6 if it is not drained when --wait is over; the drain goes on.\n\n\
    Examples:\n  berth drain gpu-box-1\n  berth drain gpu-box-1 --deadline 10m --wait\n  berth drain gpu-box-1 --wait=30m")]
pub(crate) struct Drain {
    /// The runner
    runner: RunnerId,
    /// How long to be patient; for ever unless given
    #[arg(long, value_name = "TIME")]
    deadline: Option<TimeSpan>,
    /// Wait until it is drained; for ever unless a time is given
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1000years")]
    wait: Option<TimeSpan>,
}

/// How often a drain is looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Drain {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let runner = &self.runner;
        let query = DrainQuery { deadline: self.deadline };
        let Some(wait) = self.wait else {
            session.show(&routes::drain(runner, query), |_, _| format!("runner {runner} drains\n")).await?;
            return Ok(Ended::Well);
        };
        session.client.drain(runner, query).await?;
        let until = now().after(wait.0);
        loop {
            let answer = session.client.ask(&routes::runner(runner)).await?;
            let (admission, slots) = (answer.body.admission, answer.body.slots.len());
            let is_over = !matches!(admission, RunnerAdmission::Draining);
            if is_over || now() >= until {
                session.print_answer(&answer, |_, _| format!("runner {runner} is {}\n", admission.as_str()))?;
                return Ok(match admission {
                    RunnerAdmission::Drained => Ended::Well,
                    RunnerAdmission::Draining => {
                        session.note(&format!("{slots} slot(s) are left on it; the drain goes on"));
                        Ended::InVain
                    }
                    // Somebody else changed their mind.
                    RunnerAdmission::Open | RunnerAdmission::Cordoned | RunnerAdmission::Forgotten => Ended::Badly,
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Say that a runner is no more
///
/// Its memory is free with it, so be sure that its machine is off or its processes are gone. The reason goes on record.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth forget gpu-box-1 --reason \"machine was sold\"")]
pub(crate) struct Forget {
    /// The runner
    runner: RunnerId,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: ReasonText,
}

impl Forget {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let Self { runner, reason } = self;
        let route = routes::forget(&runner, &ForgetRequest { reason });
        session.show(&route, |_, _| format!("forgot runner {runner}\n")).await?;
        Ok(Ended::Well)
    }
}
