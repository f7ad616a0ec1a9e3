//! Explanations for a tired operator: the reason first, then the numbers, then what would help.

use std::fmt;

use berth_domain::{Bytes, GpuMemory, Placement};

use super::help::Help;
use super::lack_text::{LackText, NeedText, TooSmallText};
use super::report::{ClaimRow, CountTried, CountVerdict, DeviceRow, Eviction, Outcome, Report, Verdict};
use crate::lack::Lack;
use crate::reason::WaitReason;

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
            Outcome::Waiting(why) if !self.lacks.is_empty() => {
                write!(f, "waiting ({}): {}: {}", why.code(), self.sentence(why), LackText(&self.lacks))
            }
            Outcome::Waiting(why) => {
                write!(f, "waiting ({}): {}", why.code(), self.sentence(why))?;
                self.shortfall(f)
            }
            Outcome::Refused(why) => {
                write!(f, "refused ({}): {model} can never run here: {}", why.code(), LackText(&self.lacks))
            }
        }
    }

    /// The numbers of the nearest device, which is the shortest true answer.
    fn shortfall(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(row) = self.devices.first() else { return Ok(()) };
        let place = format!("{} on {}", row.uuid, row.runner);
        let (free, capacity) = (row.before.free, row.before.capacity);
        match row.verdict {
            // Memory is not what it waits for.
            Verdict::RanksLower | Verdict::Chosen => Ok(()),
            Verdict::Short { .. } => {
                write!(f, "; {} needed, at most {free} free of {capacity} ({place})", Needed(row))
            }
            verdict => {
                write!(f, "; {} needed, and the nearest, {place}, is {}", Needed(row), VerdictText(row, verdict))
            }
        }
    }

    fn counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_gpus = |tried: &&CountTried| tried.count.get() > 0;
        if !self.gpu_counts.iter().any(|tried| has_gpus(&tried) && tried.verdict != CountVerdict::NoMatch) {
            return Ok(());
        }
        write!(f, "\nGPU counts:")?;
        for tried in &self.gpu_counts {
            match tried.needed {
                Some(needed) => write!(f, " {} x {} ", tried.count, NeedText(needed))?,
                None => write!(f, " {} ", tried.count)?,
            }
            match tried.verdict {
                CountVerdict::Chosen => f.write_str("chosen;")?,
                CountVerdict::NoRoom => f.write_str("no room;")?,
                CountVerdict::NeverFits(why) => write!(f, "{};", TooSmallText(tried.count, why))?,
                CountVerdict::NoMatch => f.write_str("no runner matches;")?,
                CountVerdict::NotNeeded => f.write_str("not needed;")?,
            }
        }
        Ok(())
    }

    /// Whether every GPU count asks for whole GPUs.
    fn wants_whole_gpus(&self) -> bool {
        let is_whole = |tried: &CountTried| matches!(tried.needed, Some(GpuMemory::Whole(_)));
        !self.gpu_counts.is_empty() && self.gpu_counts.iter().all(is_whole)
    }

    fn sentence(&self, why: WaitReason) -> &'static str {
        match why {
            WaitReason::FullNow if self.wants_whole_gpus() => "no whole GPU is free now",
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
            WaitReason::HistoryWentBack => {
                "the server's history went back, and nothing is placed until an operator continues it (`berth history`)"
            }
        }
    }
}

fn strategy(placement: Placement) -> &'static str {
    match placement {
        Placement::Spread => "spread: the least claimed share first",
        Placement::Pack => "pack: the tightest fit first",
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
        write!(f, ", free {}; needed {}: {}", before.free, Needed(self), VerdictText(self, self.verdict))?;
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
            Self::MoreGpus { count, needed } => {
                write!(f, "{count} GPU(s) on one runner ")?;
                match needed {
                    GpuMemory::Bytes(bytes) => write!(f, "with {bytes} free"),
                    GpuMemory::Fraction(fraction) => write!(f, "with {fraction} of each free"),
                    GpuMemory::Whole(Bytes::ZERO) => f.write_str("that nobody else uses"),
                    GpuMemory::Whole(least) => write!(f, "with at least {least} that nobody else uses"),
                }
            }
            Self::MoreHost => write!(f, "more CPU or RAM on a machine with free GPUs"),
            Self::MoreReplicas { limit } => write!(f, "max_replicas above {limit}"),
            Self::RunnersReturn { why, runners } => write!(f, "{runners} runner(s) come back ({})", why.code()),
            Self::RunnerRegisters => write!(f, "a runner registers"),
            Self::Match(lack) => write_match(f, lack),
        }
    }
}

/// What a runner would need, or what the model could leave out.
fn write_match(f: &mut fmt::Formatter<'_>, lack: &Lack) -> fmt::Result {
    match lack {
        Lack::KnownMemory => f.write_str("`memory` in the model: a size, or a file to estimate it from"),
        Lack::Pool { wanted, .. } => write!(f, "a runner in pool {wanted}, or another `pool` in the model"),
        Lack::Label { key, wanted, .. } => {
            write!(f, "a runner with label {key}={wanted}, or a model that does not ask for it")
        }
        Lack::Runtime { wanted, .. } => {
            write!(f, "runtime {wanted} on a runner, or another `runtime` in the model")
        }
        Lack::RuntimeKind { runtime, .. } => {
            write!(f, "another `kind` of runtime {runtime} in the configuration of an agent")
        }
        Lack::GpuName { .. } => f.write_str("a runner with such a GPU, or other `gpu_names` in the model"),
        Lack::GpuUuid { .. } => f.write_str("a runner with such a GPU, or other `gpu_uuids` in the model"),
        Lack::Size { .. } => f.write_str("a larger runner"),
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

/// What was needed of a device: bytes, or the whole of it.
struct Needed<'a>(&'a DeviceRow);

impl fmt::Display for Needed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.asked {
            GpuMemory::Whole(_) => write!(f, "{}", NeedText(self.0.asked)),
            GpuMemory::Bytes(_) | GpuMemory::Fraction(_) => write!(f, "{}", self.0.needed),
        }
    }
}

/// What a device said.
struct VerdictText<'a>(&'a DeviceRow, Verdict);

impl fmt::Display for VerdictText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Verdict::Chosen => write!(f, "chosen, {} claimed", Share(self.0)),
            Verdict::RanksLower => write!(f, "fits, ranks lower, {} claimed", Share(self.0)),
            Verdict::Short { missing } => write!(f, "{missing} short"),
            Verdict::Exclusive => f.write_str("taken whole by another slot"),
            Verdict::NotWhole => f.write_str("not empty"),
            Verdict::Closed(why) => write!(f, "closed ({})", why.code()),
        }
    }
}
