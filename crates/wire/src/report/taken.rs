//! Decoding of reports: from JSON types to what the core takes.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::{
    Arg, DeviceUuid, Evidence, FailureReason, GpuReport, HostReport, PoolName, ReasonText, ReportedState, RunnerId,
    RunnerReport, RuntimeName, SlotEnd, SlotReport,
};

use super::{
    EngineReport, ReportRequest, ReportedClaim, ReportedGpu, ReportedMemory, ReportedSlot, ReportedSlotState,
    RuntimeKind,
};
use crate::{ExitStatus, Invalid};

impl ReportRequest {
    /// Returns the report as the core takes it, with the runner that the path names.
    pub fn into_report(self, runner: RunnerId) -> Result<RunnerReport, Invalid> {
        let number = |at: usize, field: &str| format!("{field}[{at}]");
        let gpus = self.gpus.into_iter().enumerate().map(|(at, gpu)| gpu.into_report(&number(at, "gpus")));
        let slots = self.slots.into_iter().enumerate().map(|(at, slot)| slot.into_report(&number(at, "slots")));
        Ok(RunnerReport {
            runner,
            incarnation: self.incarnation,
            cluster: self.cluster_id,
            // Only the server that has the cluster's key can tell whether the code is right.
            obeyed: None,
            // Nor can an agent say what its token grants.
            shares_machine: false,
            sequence: self.sequence,
            machine: self.machine_id,
            boot: self.boot_id,
            version: words("version", &self.version)?,
            address: words("address", &self.address)?,
            pool: self.pool.unwrap_or_else(PoolName::default_pool),
            labels: self.labels,
            allowed: allowed(self.allowed_args)?,
            engines: engines(self.engines)?,
            runtimes: runtimes(self.runtimes, &self.runtime_kinds),
            host: HostReport { cpu: self.host.cpu_millicores, ram: self.host.ram_bytes },
            gpus: gpus.collect::<Result<_, _>>()?,
            slots: slots.collect::<Result<_, _>>()?,
        })
    }
}

fn runtimes(
    names: Vec<RuntimeName>,
    kinds: &BTreeMap<RuntimeName, RuntimeKind>,
) -> BTreeMap<RuntimeName, berth_domain::RuntimeKind> {
    let kind = |name: &RuntimeName| kinds.get(name).copied().unwrap_or_default().into();
    names.into_iter().map(|name| (name.clone(), kind(&name))).collect()
}

/// How many allowed arguments one runtime may list, how many a report may, and how long each may be.
const MOST_ALLOWED: usize = 128;
const MOST_ALLOWED_IN_ALL: usize = 1024;
const LONGEST_ALLOWED: usize = 128;

fn allowed(lists: BTreeMap<RuntimeName, BTreeSet<Arg>>) -> Result<BTreeMap<RuntimeName, BTreeSet<Arg>>, Invalid> {
    let refuse = |runtime: &RuntimeName, why: String| Err(Invalid::new(format!("allowed_args.{runtime}"), why));
    let mut in_all = 0;
    for (runtime, list) in &lists {
        in_all += list.len();
        if list.len() > MOST_ALLOWED || in_all > MOST_ALLOWED_IN_ALL {
            let why = format!("at most {MOST_ALLOWED} arguments of one runtime and {MOST_ALLOWED_IN_ALL} in all");
            return refuse(runtime, why);
        }
        if list.iter().any(|arg| arg.as_str().len() > LONGEST_ALLOWED) {
            return refuse(runtime, format!("an argument of more than {LONGEST_ALLOWED} bytes"));
        }
    }
    Ok(lists)
}

/// How many engines a report may describe, and how many options it may miss of one.
const MOST_ENGINES: usize = 128;
const MOST_MISSING: usize = 64;

fn engines(
    found: BTreeMap<RuntimeName, EngineReport>,
) -> Result<BTreeMap<RuntimeName, berth_domain::EngineReport>, Invalid> {
    if found.len() > MOST_ENGINES {
        return Err(Invalid::new("engines", format!("at most {MOST_ENGINES} engines")));
    }
    let taken = found.into_iter().map(|(runtime, found)| {
        let field = |name: &str| format!("engines.{runtime}.{name}");
        if found.missing.len() > MOST_MISSING {
            return Err(Invalid::new(field("missing"), format!("at most {MOST_MISSING} options")));
        }
        let text = |name: &str, text: Option<String>| text.map(|text| words(&field(name), &text)).transpose();
        let missing = found.missing.iter().map(|option| words(&field("missing"), option));
        let report = berth_domain::EngineReport {
            missing: missing.collect::<Result<_, _>>()?,
            version: text("version", found.version)?,
            note: text("note", found.note)?,
        };
        Ok((runtime, report))
    });
    taken.collect()
}

fn words(field: &str, text: &str) -> Result<ReasonText, Invalid> {
    ReasonText::new(text).map_err(|error| Invalid::new(field, error.to_string()))
}

/// Returns the physical device behind an advertised name: a replica is a name, not memory.
fn physical(path: &str, field: &str, advertised: &str) -> Result<DeviceUuid, Invalid> {
    DeviceUuid::physical(advertised).map_err(|error| Invalid::new(format!("{path}.{field}"), error.to_string()))
}

impl ReportedGpu {
    fn into_report(self, path: &str) -> Result<GpuReport, Invalid> {
        Ok(GpuReport {
            uuid: physical(path, "uuid", &self.uuid)?,
            index: self.index,
            name: self.name,
            memory_total: self.memory_total_bytes,
            memory_used: self.memory_used_bytes,
            memory_reserved: self.memory_reserved_bytes,
            parent: self.parent_uuid.map(|uuid| physical(path, "parent_uuid", &uuid)).transpose()?,
            health: self.health.into(),
        })
    }
}

impl ReportedSlot {
    fn into_report(self, path: &str) -> Result<SlotReport, Invalid> {
        let state = self.reported_state(path)?;
        let claim = |(at, claim): (usize, ReportedClaim)| {
            let uuid = physical(path, &format!("claims[{at}].uuid"), &claim.uuid)?;
            Ok(berth_domain::ReportedClaim { uuid, bytes: claim.bytes })
        };
        let memory = |(at, memory): (usize, ReportedMemory)| {
            let uuid = physical(path, &format!("memory[{at}].uuid"), &memory.uuid)?;
            let peak = memory.peak_bytes.max(memory.used_bytes);
            Ok(berth_domain::ReportedMemory { uuid, used: memory.used_bytes, peak })
        };
        Ok(SlotReport {
            id: self.id,
            generation: self.generation,
            model: self.model,
            state,
            exit: self.exit.and_then(ExitStatus::into_domain),
            endpoint: self.endpoint,
            claims: self.claims.into_iter().enumerate().map(claim).collect::<Result<_, _>>()?,
            memory: self.memory.into_iter().enumerate().map(memory).collect::<Result<_, _>>()?,
        })
    }

    /// Returns how a slot that is gone came to its end.
    fn end(&self) -> SlotEnd {
        match (self.exit_code, self.reason.as_deref()) {
            (Some(code), _) => SlotEnd::Exited(code),
            (None, None | Some(ASKED)) => SlotEnd::Asked,
            (None, Some(NO_TRACE)) => SlotEnd::NoTrace,
            (None, why) => SlotEnd::Failed(failure(why)),
        }
    }

    fn reported_state(&self, path: &str) -> Result<ReportedState, Invalid> {
        Ok(match self.state {
            ReportedSlotState::Starting => ReportedState::Starting,
            ReportedSlotState::Ready => ReportedState::Ready,
            ReportedSlotState::Stopping => ReportedState::Stopping,
            ReportedSlotState::Failed => ReportedState::Failed(failure(self.reason.as_deref())),
            ReportedSlotState::Exited => match self.exit_code {
                Some(code) => ReportedState::Exited { code },
                None => {
                    return Err(Invalid::new(format!("{path}.exit_code"), "a slot that exited says with what code"));
                }
            },
            ReportedSlotState::Refused => ReportedState::Refused,
            ReportedSlotState::Gone => {
                let seen = self.evidence.unwrap_or_default();
                let evidence = Evidence { tree_gone: seen.tree_gone, driver_clear: seen.driver_clear };
                ReportedState::Gone { why: self.end(), evidence }
            }
            ReportedSlotState::Unknown => {
                let why = self.detail.as_deref().unwrap_or("the agent does not say why");
                ReportedState::Unknown { why: words(&format!("{path}.detail"), why)? }
            }
        })
    }
}

const ASKED: &str = "asked";
pub(super) const NO_TRACE: &str = "no_trace";

fn failure(code: Option<&str>) -> FailureReason {
    let known = FailureReason::ALL.into_iter().find(|why| Some(why.code()) == code);
    known.unwrap_or(FailureReason::Crashed)
}
