//! The command of a slot: rendered for a start, and rendered again for a slot that is adopted.

use std::collections::BTreeMap;

use berth_domain::{Bytes, DeviceUuid, FailureReason, InlineSecret};

use super::act::{ActionContext, Executor};
use super::config::AgentSettings;
use crate::inventory::Inventory;
use crate::reconcile::SlotRecord;
use crate::runtime::{Launch, LaunchContext, RenderError, Runtimes, StartRequest, render, render_started};

/// Why nothing was started for a slot: the reason code, and the exact error.
pub(super) struct StartFailure {
    pub(super) why: FailureReason,
    pub(super) text: String,
}

impl StartFailure {
    pub(super) fn new(why: FailureReason, text: &impl ToString) -> Self {
        Self { why, text: text.to_string() }
    }
}

impl Executor {
    /// Leases a port for a slot and renders its command, with its secrets.
    pub(super) fn prepare_launch(
        &mut self,
        record: &SlotRecord,
        context: &ActionContext<'_>,
    ) -> Result<Launch, StartFailure> {
        let port = self.ports.lease().map_err(|error| StartFailure::new(FailureReason::PortTaken, &error))?;
        let (runtimes, inventory) = (context.runtimes, context.inventory);
        let launch = render_new(&self.settings, runtimes, inventory, record, port);
        let planned = launch.and_then(|launch| self.with_secrets(runtimes, record, launch));
        planned.inspect_err(|_| self.ports.release(port))
    }

    /// Adds the secrets of a slot's runtime, and refuses a slot whose arguments would show a secret to all users of the
    /// machine. A slot that was started before this rule existed is still adopted.
    fn with_secrets(
        &mut self,
        runtimes: &Runtimes,
        record: &SlotRecord,
        mut launch: Launch,
    ) -> Result<Launch, StartFailure> {
        let Some(spec) = &record.spec else { return Ok(launch) };
        if let Some(secret) = InlineSecret::find(&spec.args) {
            return Err(StartFailure::new(FailureReason::ForbiddenArgument, &secret));
        }
        let runtime = runtimes.get(&spec.runtime);
        let added = runtime.map_or(Ok(()), |runtime| self.secrets.add_to(&mut launch, runtime));
        added.map_err(|error| StartFailure::new(FailureReason::BadBinary, &error))?;
        Ok(launch)
    }
}

fn render_new(
    settings: &AgentSettings,
    runtimes: &Runtimes,
    inventory: Option<&Inventory>,
    record: &SlotRecord,
    port: u16,
) -> Result<Launch, StartFailure> {
    let bad = |text: String| StartFailure { why: FailureReason::BadBinary, text };
    let request = request(record).ok_or_else(|| bad("the server does not say what to run".to_owned()))?;
    let name = &request.spec.runtime;
    let runtime = runtimes.get(name).ok_or_else(|| bad(format!("this agent has no runtime {name}")))?;
    let gpus = inventory.into_iter().flat_map(|inventory| &inventory.gpus);
    let totals = gpus.map(|gpu| (gpu.uuid.clone(), gpu.memory.total)).collect();
    let launch = render(runtime, request, &launch_context(settings, &totals, port));
    launch.map_err(|error| StartFailure::new(reason_of(&error), &error))
}

/// Renders a slot that an agent before this one started: where it answers, and how its health is probed.
///
/// Its devices are those on record, since the driver may not have been asked yet, or may not have them any more.
/// Returns `None` where no port is on record: then it is unknown where the slot answers.
pub(super) fn render_adopted(settings: &AgentSettings, runtimes: &Runtimes, record: &SlotRecord) -> Option<Launch> {
    let request = request(record)?;
    let totals = request.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.memory_bytes)).collect();
    let runtime = runtimes.get(&request.spec.runtime)?;
    render_started(runtime, request, &launch_context(settings, &totals, record.port?)).ok()
}

fn launch_context<'a>(
    settings: &'a AgentSettings,
    totals: &'a BTreeMap<DeviceUuid, Bytes>,
    port: u16,
) -> LaunchContext<'a> {
    LaunchContext {
        runner: &settings.id,
        // The server puts its own name for the host into the endpoint; programs that need one get this.
        address: settings.address.as_deref().unwrap_or("127.0.0.1"),
        bind: settings.bind,
        port,
        totals,
        environment: &settings.environment,
    }
}

/// Returns the reason code of a slot that cannot be rendered.
fn reason_of(error: &RenderError) -> FailureReason {
    match error {
        RenderError::Option { .. }
        | RenderError::Reserved(_)
        | RenderError::Unused(_)
        | RenderError::Forbidden(_)
        | RenderError::Nul => FailureReason::ForbiddenArgument,
        RenderError::UnknownDevice(_) => FailureReason::DeviceLost,
        RenderError::NotForJobs(_) | RenderError::NoDevice | RenderError::Share { .. } | RenderError::Endpoint(_) => {
            FailureReason::BadBinary
        }
    }
}

fn request(record: &SlotRecord) -> Option<StartRequest<'_>> {
    let spec = record.spec.as_ref()?;
    let secret = record.started_as.as_ref().map(|start| &start.secret);
    Some(StartRequest { slot: record.id, generation: record.generation, gpus: &record.gpus, spec, secret })
}
