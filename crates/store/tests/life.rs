//! Random lives of a journal against a plain list.

mod common;

use berth_domain::Epoch;
use berth_store::{
    Journal, Keep, Opened,
    sim::{Effect, Fault, SimDisk, survivals},
};
use common::{open_on, record, recovered, refs, state};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Append(Vec<usize>),
    Reopen,
    /// Cuts the power so many changes later, in the middle of a batch of this size; which part survives is a number.
    Crash(u64, usize, usize),
    Compact(Keep),
    /// Changes a byte of a file; both are numbers to be wrapped.
    Flip(usize, usize, u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => prop::collection::vec(0_usize..3000, 1..5).prop_map(Act::Append),
        1 => Just(Act::Reopen),
        3 => (0_u64..8, 0_usize..3000, any::<usize>()).prop_map(|(at, bytes, which)| Act::Crash(at, bytes, which)),
        1 => prop_oneof![Just(Keep::Newest), Just(Keep::NewestTwo)].prop_map(Act::Compact),
        1 => (any::<usize>(), any::<usize>(), 1_u8..).prop_map(|(file, at, mask)| Act::Flip(file, at, mask)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_is_there_whatever_happens(acts in prop::collection::vec(act(), 1..40)) {
        let mut disk = SimDisk::new();
        let mut opened = open_on(&disk).unwrap();
        let mut kept = Vec::new();
        for act in acts {
            let Opened { journal, compactor, .. } = &mut opened;
            let next = journal.revision().get() + 1;
            match act {
                Act::Append(sizes) => {
                    let batch: Vec<_> = (next..).zip(sizes).map(|(last, bytes)| record(last, bytes, 0)).collect();
                    journal.append(Epoch::new(1), journal.revision(), &refs(&batch)).unwrap();
                    kept.extend(batch);
                }
                Act::Compact(keep) => {
                    compactor.install(journal.revision(), |out| out.write_all(&state(&kept)), |_| Ok(())).ok();
                    compactor.remove(keep).unwrap();
                }
                Act::Reopen => {
                    opened = open_on(&disk).unwrap();
                    prop_assert_eq!(recovered(opened.recovered), kept.clone());
                    opened = open_on(&disk).unwrap();
                }
                Act::Crash(after, bytes, which) => {
                    disk.plan(Some(Fault::Stop { at: disk.operations() + after, effect: Effect::Half }));
                    let batch = [record(next, bytes, which as u64), record(next + 1, bytes / 2, which as u64)];
                    let done = journal.append(Epoch::new(1), journal.revision(), &refs(&batch)).is_ok();
                    let survivals = survivals(&disk.pending());
                    disk = disk.crash(&survivals[which % survivals.len()]);
                    let found = recovered(open_on(&disk).unwrap().recovered);
                    if done || found.len() > kept.len() {
                        kept.extend(batch);
                    }
                    prop_assert_eq!(&found, &kept);
                    opened = open_on(&disk).unwrap();
                }
                Act::Flip(file, at, mask) => {
                    let changed = disk.fork();
                    let files = changed.files();
                    let Some((path, bytes)) = files.get(file.checked_rem(files.len()).unwrap_or(0)) else { continue };
                    let Some(at) = at.checked_rem(bytes.len()) else { continue };
                    changed.tamper(path, |bytes| bytes[at] ^= mask);
                    // Refused, or the same records, or all but the last batch where it looks as if it were torn.
                    if let Ok(opened) = open_on(&changed) {
                        let torn = opened.recovered.cut.is_some();
                        let found = recovered(opened.recovered);
                        prop_assert!(kept.starts_with(&found) && (torn || found == kept));
                        prop_assert!(kept.len() - found.len() <= 4);
                    }
                }
            }
        }
    }
}
