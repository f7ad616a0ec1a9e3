//! What the fleet lacks, and what a GPU must give, in words.

use std::fmt;

use berth_domain::{Bytes, GpuCount, GpuMemory, WorkloadKind};

use crate::lack::{Lack, Offers, PinnedElsewhere, TooSmall};
use crate::reason::Exclusion;

/// What one GPU must give.
pub(crate) struct NeedText(pub(crate) GpuMemory);

impl fmt::Display for NeedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            GpuMemory::Bytes(bytes) => write!(f, "{bytes}"),
            GpuMemory::Fraction(fraction) => write!(f, "{fraction} of a GPU"),
            GpuMemory::Whole(Bytes::ZERO) => f.write_str("a whole GPU"),
            GpuMemory::Whole(least) => write!(f, "a whole GPU of at least {least}"),
        }
    }
}

/// Everything that is lacking, one sentence each.
pub(crate) struct LackText<'a>(pub(crate) &'a [Lack]);

impl fmt::Display for LackText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, lack) in self.0.iter().enumerate() {
            write!(f, "{}{lack}", if at == 0 { "" } else { ". Also, " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KnownMemory => f.write_str(
                "the model does not say how much memory it needs; state `memory`, or name a file to estimate",
            ),
            Self::Pool { wanted, there } => {
                write!(f, "pool {wanted} has no runner; pools: {}", Names(there, ""))
            }
            Self::Label { key, wanted, there } => {
                let thing = format!("label {key}={wanted}");
                if there.names.is_empty() && there.elsewhere.is_empty() {
                    return write!(f, "no runner has {thing}; no runner has any label of that key");
                }
                write_missing(f, &thing, "runners have", there, &format!("{key}="))
            }
            Self::Runtime { wanted, there } => {
                write_missing(f, &format!("runtime {wanted}"), "runners have", there, "")
            }
            Self::RuntimeKind { runtime, kind, runners } => {
                let what = match kind {
                    WorkloadKind::Job => "is not for jobs",
                    WorkloadKind::Lease => "is for jobs only",
                };
                let each = if *runners == 1 { "the one runner" } else { "every runner" };
                let many = if *runners == 1 { String::new() } else { format!(" ({runners})") };
                write!(f, "{each} that has runtime {runtime}{many} says that it {what}")
            }
            Self::GpuName { wanted, there } => {
                let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
                let thing = format!("a GPU named {}", wanted.join(" or "));
                if there.names.is_empty() && there.elsewhere.is_empty() {
                    return write!(f, "no runner has {thing}; no runner has a GPU");
                }
                write_missing(f, &thing, "GPUs are named", there, "")
            }
            Self::GpuUuid { wanted, elsewhere } => {
                let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
                let who = if elsewhere.is_empty() { "no runner" } else { "no runner that matches" };
                match wanted.as_slice() {
                    [one] => write!(f, "{who} has the GPU {one} that it is pinned to")?,
                    many => write!(f, "{who} has one of the GPUs {} that it is pinned to", many.join(", "))?,
                }
                for PinnedElsewhere { uuid, runner, excluded_by } in elsewhere {
                    write!(f, "; {uuid} is on runner {runner}, which is excluded ({})", excluded_by.code())?;
                }
                Ok(())
            }
            Self::Size { count, choices, what } => {
                let at_best = if *choices > 1 { "at best " } else { "" };
                write_size(f, *count, *what, at_best)
            }
        }
    }
}

/// Nobody has it, or nobody of those who have the rest.
fn write_missing<N: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    thing: &str,
    have: &str,
    there: &Offers<N>,
    prefix: &str,
) -> fmt::Result {
    if there.elsewhere.is_empty() {
        write!(f, "no runner has {thing}")?;
    } else if there.among == 1 {
        write!(f, "the one runner that matches otherwise does not have {thing}")?;
    } else {
        write!(f, "none of the {} runners that match otherwise has {thing}", there.among)?;
    }
    let have = match (there.elsewhere.is_empty(), have) {
        (true, have) => have,
        (false, "runners have") if there.among == 1 => "it has",
        (false, "runners have") => "they have",
        (false, have) => have,
    };
    if there.names.is_empty() {
        f.write_str("; they have none")?;
    } else {
        write!(f, "; {have}: {}", Names(there, prefix))?;
    }
    write_elsewhere(f, &there.elsewhere)
}

fn write_elsewhere(f: &mut fmt::Formatter<'_>, elsewhere: &[(Exclusion, u32)]) -> fmt::Result {
    let runners: u32 = elsewhere.iter().map(|(_, runners)| *runners).sum();
    let reasons: Vec<String> = match elsewhere {
        [] => return Ok(()),
        [(only, _)] => vec![only.code().to_owned()],
        several => several.iter().map(|(why, runners)| format!("{runners} by {}", why.code())).collect(),
    };
    let verbs = if runners == 1 { ("runner has", "is") } else { ("runners have", "are") };
    write!(f, "; {runners} other {} it, but {} excluded ({})", verbs.0, verbs.1, reasons.join(", "))
}

/// Names with the number of runners that have each.
struct Names<'a, N>(&'a Offers<N>, &'a str);

impl<N: fmt::Display> fmt::Display for Names<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(offers, prefix) = self;
        for (at, (name, runners)) in offers.names.iter().enumerate() {
            write!(f, "{}{prefix}{name} ({runners})", if at == 0 { "" } else { ", " })?;
        }
        match offers.left_out {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn write_size(f: &mut fmt::Formatter<'_>, count: GpuCount, what: TooSmall, at_best: &str) -> fmt::Result {
    match what {
        TooSmall::Gpus { .. } => {
            write!(f, "{at_best}it needs {count} GPU(s) of one runner; {}", TooSmallText(count, what))
        }
        TooSmall::Memory { needed, ranks, largest, .. } => {
            let (need, _) = distinct(needed, largest);
            let place = match (count.get(), ranks, needed) {
                (1, _, GpuMemory::Whole(_)) => String::new(),
                (1, ..) => " on one GPU".to_owned(),
                (all, ranks, _) if ranks == all => format!(" on each of {count} GPUs of one runner"),
                _ => format!(" on one of {count} GPUs of one runner"),
            };
            write!(f, "{at_best}it needs {need}{place}; {}", TooSmallText(count, what))
        }
        TooSmall::Cpu { needed, .. } => write!(f, "it needs {needed} of CPU; {}", TooSmallText(count, what)),
        TooSmall::Ram { needed, largest } => {
            let (needed, _) = distinct(GpuMemory::Bytes(needed), largest);
            write!(f, "it needs {needed} of RAM; {}", TooSmallText(count, what))
        }
        TooSmall::Together => {
            f.write_str("some runners have the GPUs and others the CPU and RAM that it needs, but none has all of it")
        }
    }
}

impl TooSmall {
    /// Why no runner is large enough for so many GPUs, in a few words.
    #[must_use]
    pub fn for_count(self, count: GpuCount) -> impl fmt::Display {
        TooSmallText(count, self)
    }
}

/// Why no runner is large enough for one GPU count, in a few words.
pub(super) struct TooSmallText(pub(super) GpuCount, pub(super) TooSmall);

impl fmt::Display for TooSmallText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usable = |restricted: bool| if restricted { " that it may use" } else { "" };
        match self.1 {
            TooSmall::Gpus { most: 0, restricted } => write!(f, "no runner has a GPU{}", usable(restricted)),
            TooSmall::Gpus { most, restricted } => {
                write!(f, "no runner has more than {most} GPU(s){}", usable(restricted))
            }
            TooSmall::Memory { needed, largest, restricted, .. } => {
                let (_, largest) = distinct(needed, largest);
                match self.0.get() {
                    1 => write!(f, "the largest{} is {largest}", usable(restricted)),
                    _ => write!(f, "the best runner has {largest} there"),
                }
            }
            TooSmall::Cpu { largest, .. } => write!(f, "the largest machine has {largest}"),
            TooSmall::Ram { needed, largest } => {
                write!(f, "the largest machine has {}", distinct(GpuMemory::Bytes(needed), largest).1)
            }
            TooSmall::Together => f.write_str("no runner has the GPUs and the CPU and RAM together"),
        }
    }
}

/// What is needed and what there is. Sizes are rounded; where the two would read the same, they are told in bytes.
fn distinct(needed: GpuMemory, largest: Bytes) -> (String, String) {
    let bytes = match needed {
        GpuMemory::Bytes(bytes) | GpuMemory::Whole(bytes) => bytes,
        GpuMemory::Fraction(_) => return (NeedText(needed).to_string(), largest.to_string()),
    };
    if bytes.to_string() != largest.to_string() {
        return (NeedText(needed).to_string(), largest.to_string());
    }
    let exact = format!("{} bytes", bytes.get());
    let needed = if matches!(needed, GpuMemory::Whole(_)) { format!("a whole GPU of at least {exact}") } else { exact };
    (needed, format!("{} bytes", largest.get()))
}
