//! What the fleet lacks for work that it can never run.

use std::collections::BTreeMap;
use std::fmt::Display;

use berth_core::{Lack, Offers, TooSmall};
use berth_domain::{Bytes, GpuMemory};
use berth_wire as wire;

/// One thing that work asks for and no runner has.
pub(super) fn lack(lack: &Lack) -> wire::Lack {
    let bare = wire::Lack {
        what: lack.code().to_owned(),
        text: lack.to_string(),
        wanted: Vec::new(),
        there: BTreeMap::new(),
        gpu_count: None,
        needed_bytes: None,
        largest_bytes: None,
    };
    match lack {
        Lack::KnownMemory => bare,
        Lack::Pool { wanted, there } => wire::Lack { wanted: texts([wanted]), there: names(there, ""), ..bare },
        Lack::Label { key, wanted, there } => {
            let key = format!("{key}=");
            wire::Lack { wanted: vec![format!("{key}{wanted}")], there: names(there, &key), ..bare }
        }
        Lack::Runtime { wanted, there } => wire::Lack { wanted: texts([wanted]), there: names(there, ""), ..bare },
        Lack::RuntimeKind { runtime, .. } => wire::Lack { wanted: texts([runtime]), ..bare },
        Lack::GpuName { wanted, there } => wire::Lack { wanted: texts(wanted), there: names(there, ""), ..bare },
        Lack::GpuUuid { wanted, .. } => wire::Lack { wanted: texts(wanted), ..bare },
        Lack::Size { count, what, .. } => {
            let (needed_bytes, largest_bytes) = numbers(*what);
            wire::Lack { gpu_count: Some(*count), needed_bytes, largest_bytes, ..bare }
        }
    }
}

fn texts<N: Display>(names: impl IntoIterator<Item = N>) -> Vec<String> {
    names.into_iter().map(|name| name.to_string()).collect()
}

fn names<N: Display>(offers: &Offers<N>, prefix: &str) -> BTreeMap<String, u32> {
    offers.names.iter().map(|(name, runners)| (format!("{prefix}{name}"), *runners)).collect()
}

fn numbers(what: TooSmall) -> (Option<Bytes>, Option<Bytes>) {
    match what {
        TooSmall::Memory { needed, largest, .. } => (least(needed), Some(largest)),
        TooSmall::Ram { needed, largest } => (Some(needed), Some(largest)),
        TooSmall::Gpus { .. } | TooSmall::Cpu { .. } | TooSmall::Together => (None, None),
    }
}

/// The bytes that a GPU must have at least, where that is a number.
pub(super) fn least(memory: GpuMemory) -> Option<Bytes> {
    match memory {
        GpuMemory::Bytes(bytes) | GpuMemory::Whole(bytes) => Some(bytes),
        GpuMemory::Fraction(_) => None,
    }
}

/// Whether a GPU is wanted whole.
pub(super) fn is_whole(memory: GpuMemory) -> bool {
    matches!(memory, GpuMemory::Whole(_))
}
