//! What would help work that waits.

use berth_domain::{Bytes, DeviceUuid, GpuCount, GpuMemory, ModelName, SlotId, Span};

use super::report::{CountTried, CountVerdict, Report, Verdict};
use crate::lack::{Lack, TooSmall};
use crate::ledger::Phase;
use crate::plan::Demand;
use crate::reason::{Exclusion, WaitReason};

/// Something that would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Help {
    /// One of these ends: its going alone would be enough.
    SlotEnds {
        /// Which.
        slot: SlotId,
        /// What it serves.
        model: Option<ModelName>,
        /// What it would give back there.
        bytes: Bytes,
    },
    /// Several slots of a device end, until so much is back.
    SeveralEnd {
        /// Where.
        uuid: DeviceUuid,
        /// What is missing.
        missing: Bytes,
    },
    /// A stop that is under way completes.
    ReleaseCompletes {
        /// Which.
        slot: SlotId,
        /// For how long it has been stopping.
        since: Span,
    },
    /// Others give back what they use.
    ForeignGoes {
        /// Where.
        uuid: DeviceUuid,
        /// How much they use.
        bytes: Bytes,
    },
    /// A GPU (or several on one runner) with so much free.
    MoreGpus {
        /// How many.
        count: GpuCount,
        /// What each must give.
        needed: GpuMemory,
    },
    /// More CPU or RAM on the machines.
    MoreHost,
    /// More replicas allowed.
    MoreReplicas {
        /// The model's limit now.
        limit: u32,
    },
    /// Runners that are shut are opened or come back.
    RunnersReturn {
        /// Why they are shut.
        why: Exclusion,
        /// How many.
        runners: u32,
    },
    /// A runner registers.
    RunnerRegisters,
    /// A runner that has what every runner lacks, or a model that does not ask for it.
    Match(Lack),
}

pub(super) fn what_would_help(demand: &Demand<'_>, why: WaitReason, report: &Report) -> Vec<Help> {
    if !report.lacks.is_empty() {
        return report.lacks.iter().filter_map(|lack| against(lack, report)).collect();
    }
    match why {
        WaitReason::NoRunners => vec![Help::RunnerRegisters],
        WaitReason::ReplicaLimit => {
            demand.model.spec.replicas.max.map(|limit| Help::MoreReplicas { limit }).into_iter().collect()
        }
        WaitReason::HostFull => vec![Help::MoreHost],
        _ => {
            let mut help = on_the_nearest(report);
            let returning = report.excluded.iter().filter(|(reason, _)| is_temporary(*reason));
            help.extend(returning.map(|(why, runners)| Help::RunnersReturn { why: *why, runners: *runners }));
            let wanted = report
                .gpu_counts
                .iter()
                .find(|tried| tried.verdict == CountVerdict::NoRoom)
                .or(report.gpu_counts.first());
            help.extend(wanted.and_then(more_gpus));
            help
        }
    }
}

fn more_gpus(tried: &CountTried) -> Option<Help> {
    Some(Help::MoreGpus { count: tried.count, needed: tried.needed? })
}

/// What would help against a lack.
fn against(lack: &Lack, report: &Report) -> Option<Help> {
    match lack {
        Lack::Size { what: TooSmall::Cpu { .. } | TooSmall::Ram { .. } | TooSmall::Together, .. } => {
            Some(Help::MoreHost)
        }
        Lack::Size { count, .. } => report.gpu_counts.iter().find(|tried| tried.count == *count).and_then(more_gpus),
        lack => Some(Help::Match(lack.clone())),
    }
}

const fn is_temporary(reason: Exclusion) -> bool {
    matches!(
        reason,
        Exclusion::Cordoned
            | Exclusion::Draining
            | Exclusion::Suspect
            | Exclusion::Lost
            | Exclusion::NotReported
            | Exclusion::HistoryWentBack
            | Exclusion::InvalidCode
            | Exclusion::MachineDisputed
            | Exclusion::NeighbourNotReported
            | Exclusion::DevicesClosed
    )
}

/// What would make the nearest device do.
fn on_the_nearest(report: &Report) -> Vec<Help> {
    let Some(row) = report.devices.first() else { return Vec::new() };
    let Verdict::Short { missing } = row.verdict else { return Vec::new() };
    let mut help = Vec::new();
    for claim in row.claims.iter().filter(|claim| claim.phase == Phase::Releasing) {
        help.push(Help::ReleaseCompletes { slot: claim.slot, since: claim.for_how_long });
    }
    let mut enough = row.claims.iter().filter(|claim| claim.phase == Phase::Held && claim.bytes >= missing).peekable();
    if enough.peek().is_none() && !row.claims.is_empty() {
        help.push(Help::SeveralEnd { uuid: row.uuid.clone(), missing });
    }
    help.extend(enough.map(|claim| Help::SlotEnds {
        slot: claim.slot,
        model: claim.model.clone(),
        bytes: claim.bytes,
    }));
    if row.before.foreign >= missing {
        help.push(Help::ForeignGoes { uuid: row.uuid.clone(), bytes: row.before.foreign });
    }
    help
}
