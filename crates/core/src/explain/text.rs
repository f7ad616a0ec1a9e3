//! Explanations for a tired operator: the reason first, then the numbers, then what would help.

use std::fmt;

use berth_domain::{Bytes, Placement};

use super::help::Help;
use super::report::{ClaimRow, CountVerdict, DeviceRow, Eviction, Outcome, Report, Verdict};
use crate::reason::{Unplaceable, WaitReason};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.headline(f)?;
        if let Some((first, rest)) = self.excluded.split_first() {
            let all = self.runners;
            write!(f, "\nrunners not used: {} of {all}: {}", first.1, first.0.code())?;
            for (reason, many) in rest {
                write!(f, "; {many} of {all}: {}", reason.code())?;
            }
        }
        self.counts(f)?;
        for row in &self.devices {
            write!(f, "\n  {row}")?;
            for claim in &row.claims {
                write!(f, "\n    {claim}")?;
            }
        }
        for eviction in &self.evictions {
            write!(f, "\n  {eviction}")?;
        }
        for help in &self.help {
            write!(f, "\nwould help: {help}")?;
        }
        Ok(())
    }
}

impl Report {
    fn headline(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.model;
        match self.outcome {
            Outcome::Reused => write!(f, "reused: {model} runs in slot {}", Known(&self.slot)),
            Outcome::Placed => {
                write!(f, "placed: {model} on runner {} ({})", Known(&self.runner), strategy(self.placement))
            }
            Outcome::Waiting(WaitReason::Releasing) => {
                write!(
                    f,
                    "waiting (releasing): {model} has memory promised on runner {} that others still release",
                    Known(&self.runner)
                )
            }
            Outcome::Waiting(why) => {
                write!(f, "waiting ({}): {}", why.code(), sentence(why))?;
                self.shortfall(f)
            }
            Outcome::Refused(why) => {
                write!(f, "refused ({}): {model} {}", why.code(), verdict(why))?;
                self.shortfall(f)
            }
        }
    }

    /// The numbers of the nearest device, which is the shortest true answer.
    fn shortfall(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(row) = self.devices.first() else { return Ok(()) };
        let (free, capacity) = (row.before.free, row.before.capacity);
        write!(f, "; {} needed, at most {free} free of {capacity} ({} on {})", Needed(row.needed), row.uuid, row.runner)
    }

    fn counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gpu_counts.iter().all(|tried| tried.count.get() == 0) {
            return Ok(());
        }
        write!(f, "\nGPU counts:")?;
        for tried in &self.gpu_counts {
            let verdict = match tried.verdict {
                CountVerdict::Chosen => "chosen",
                CountVerdict::NoRoom => "no room",
                CountVerdict::NeverFits => "no runner is that large",
                CountVerdict::NotNeeded => "not needed",
            };
            write!(f, " {} x {} {verdict};", tried.count, Needed(tried.needed))?;
        }
        Ok(())
    }
}

fn strategy(placement: Placement) -> &'static str {
    match placement {
        Placement::Spread => "spread: the least claimed share first",
        Placement::Pack => "pack: the tightest fit first",
    }
}

fn sentence(why: WaitReason) -> &'static str {
    match why {
        WaitReason::FullNow => "too little GPU memory is free now",
        WaitReason::Releasing => "its memory is being released",
        WaitReason::ReplicaLimit => "its model has all the slots it may have",
        WaitReason::BackingOff => "it failed and pauses before the next attempt",
        WaitReason::NoRunners => "no runner has registered",
        WaitReason::NoGpus => "no matching runner lists a GPU",
        WaitReason::RunnersNotReady => "every runner that could take it is shut",
        WaitReason::HostFull => "too little CPU or RAM is free on the machines",
        WaitReason::NoLongerFits => "no runner that is left could hold it",
        WaitReason::OldCopy => "its last start failed and is not proven gone yet",
    }
}

fn verdict(why: Unplaceable) -> &'static str {
    match why {
        Unplaceable::NeverFits => "is larger than any runner, even an empty one",
        Unplaceable::UnknownMemory => "does not say how much memory it needs",
        Unplaceable::NoMatchingRunner => "asks for a pool, labels or GPUs that no runner has",
        Unplaceable::RuntimeMissing => "needs a runtime that no matching runner has",
        Unplaceable::RuntimeNotForJobs => "is a job, and every runner says that its runtime is not for jobs",
        Unplaceable::RuntimeOnlyForJobs => "is a lease, and every runner says that its runtime is for jobs only",
    }
}

impl fmt::Display for DeviceRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = &self.before;
        write!(
            f,
            "{} on {} (GPU {}): capacity {}, held {}",
            self.uuid, self.runner, self.index, before.capacity, before.held
        )?;
        for (name, bytes) in
            [("releasing", before.releasing), ("promised", before.promised), ("foreign", before.foreign)]
        {
            if !bytes.is_zero() {
                write!(f, ", {name} {bytes}")?;
            }
        }
        write!(f, ", free {}; needed {}: ", before.free, Needed(self.needed))?;
        match self.verdict {
            Verdict::Chosen => write!(f, "chosen, {} claimed", Share(self))?,
            Verdict::RanksLower => write!(f, "fits, ranks lower, {} claimed", Share(self))?,
            Verdict::Short { missing } => write!(f, "{missing} short")?,
            Verdict::Exclusive => write!(f, "taken whole by another slot")?,
            Verdict::NotWhole => write!(f, "not empty")?,
            Verdict::Closed(why) => write!(f, "closed ({})", why.code())?,
        }
        match &self.after {
            Some(after) => write!(f, "; after: held {}, promised {}, free {}", after.held, after.promised, after.free),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ClaimRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let use_of_it = if self.busy { "busy" } else { "idle" };
        write!(
            f,
            "slot {} {}: {}, {} for {}, {use_of_it}",
            self.slot,
            Known(&self.model),
            self.bytes,
            self.state,
            self.for_how_long
        )
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "evicts slot {} {}: {}, idle for {}", self.slot, Known(&self.model), self.bytes, self.idle)
    }
}

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlotEnds { slot, model, bytes } => {
                write!(f, "slot {slot} {} ends and gives back {bytes}", Known(model))
            }
            Self::SeveralEnd { uuid, missing } => write!(f, "slots on {uuid} end until {missing} more is free"),
            Self::ReleaseCompletes { slot, since } => write!(f, "slot {slot} is proven gone (stopping for {since})"),
            Self::ForeignGoes { uuid, bytes } => write!(f, "others give back what they use on {uuid} ({bytes})"),
            Self::MoreGpus { count, needed } => write!(f, "{count} GPU(s) on one runner with {} free", Needed(*needed)),
            Self::MoreHost => write!(f, "more CPU or RAM on a machine with free GPUs"),
            Self::MoreReplicas { limit } => write!(f, "max_replicas above {limit}"),
            Self::RunnersReturn { why, runners } => write!(f, "{runners} runner(s) come back ({})", why.code()),
            Self::RunnerRegisters => write!(f, "a runner registers"),
        }
    }
}

struct Known<'a, T>(&'a Option<T>);

impl<T: fmt::Display> fmt::Display for Known<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => fmt::Display::fmt(value, f),
            None => f.write_str("(unknown)"),
        }
    }
}

/// How much of a device was claimed before, which is what `spread` ranks by.
struct Share<'a>(&'a DeviceRow);

impl fmt::Display for Share<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = &self.0.before;
        let parts = [before.held, before.releasing, before.promised, before.foreign];
        let claimed: u128 = parts.iter().map(|part| u128::from(part.get())).sum();
        let tenths = claimed * 1000 / u128::from(before.capacity.get().max(1));
        write!(f, "{}.{} %", tenths / 10, tenths % 10)
    }
}

struct Needed(Bytes);

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() { f.write_str("(a share)") } else { fmt::Display::fmt(&self.0, f) }
    }
}
