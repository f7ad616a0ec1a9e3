//! What would help work that waits.

use berth_domain::{Bytes, DeviceUuid, GpuCount, ModelName, SlotId, Span};

use super::report::{CountVerdict, Report, Verdict};
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
        /// What each must give; zero where it is a fraction or a whole GPU.
        needed: Bytes,
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
}

pub(super) fn what_would_help(demand: &Demand<'_>, why: WaitReason, report: &Report) -> Vec<Help> {
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
            help.extend(
                wanted
                    .filter(|tried| tried.count.get() > 0)
                    .map(|tried| Help::MoreGpus { count: tried.count, needed: tried.needed }),
            );
            help
        }
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
