//! A scripted life of a journal, and what must be true of any disk that it left behind.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use berth_domain::{Epoch, Revision};
use berth_store::{
    AppendError, CompactError, Compactor, Disk, Journal, Keep, LogJournal, NoSpace, Opened, Options, ReadError, Record,
    RecordRef, Recovered, sim::SimDisk,
};

pub(crate) const OPTIONS: Options =
    Options { segment_bytes: 4096, spare_bytes: 512, limit_bytes: None, max_records: 8 };

pub(crate) fn open_on<D: Disk>(disk: &D) -> Result<Opened<D>, ReadError> {
    LogJournal::open_on(disk.clone(), Path::new("data"), OPTIONS)
}

pub(crate) fn refs(records: &[Record]) -> Vec<RecordRef<'_>> {
    records.iter().map(RecordRef::from).collect()
}

/// A record whose content follows from its revision, and whose bytes are hard to mistake for others.
pub(crate) fn record(last: u64, bytes: usize, salt: u64) -> Record {
    let mut state = last.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt;
    let payload = (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7] | 1
        })
        .collect();
    Record { last: Revision::new(last), payload }
}

/// A state that is nothing but its records, so that a snapshot can be compared with what went into it.
pub(crate) fn state(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend_from_slice(&record.last.get().to_le_bytes());
        bytes.extend_from_slice(&(record.payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&record.payload);
    }
    bytes
}

pub(crate) fn records_of(mut state: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while !state.is_empty() {
        let number = |at: usize| u64::from_le_bytes(state[at..at + 8].try_into().unwrap());
        let end = 16 + usize::try_from(number(8)).unwrap();
        records.push(Record { last: Revision::new(number(0)), payload: state[16..end].to_vec() });
        state = &state[end..];
    }
    records
}

/// Everything that a server would know after opening: the snapshot's records and those after it.
pub(crate) fn recovered<D: Disk>(recovered: Recovered<D>) -> Vec<Record> {
    let mut records = recovered.snapshot.map(|snapshot| records_of(&snapshot.payload)).unwrap_or_default();
    records.extend(recovered.records.map(Result::unwrap));
    records
}

/// Opens a disk and reads all there is.
pub(crate) fn read(disk: &SimDisk) -> Vec<Record> {
    recovered(open_on(disk).unwrap().recovered)
}

/// What a server knows of its journal as it stops.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// What was acknowledged.
    pub(crate) acknowledged: Vec<Record>,
    /// The batch that was under way.
    pub(crate) under_way: Vec<Record>,
    /// Why it stopped, if it did not come to its end.
    pub(crate) stopped: Option<AppendError>,
    /// How often there was no room.
    pub(crate) refused: usize,
    /// How often making the journal shorter failed.
    pub(crate) not_compacted: usize,
}

impl Story {
    /// Whether a disk may hold these records: everything acknowledged, then the batch under way or nothing.
    pub(crate) fn allows(&self, found: &[Record]) -> bool {
        match found.strip_prefix(self.acknowledged.as_slice()) {
            Some(rest) => rest.is_empty() || rest == self.under_way,
            None => false,
        }
    }
}

enum Act {
    /// Appends records of these sizes as one batch.
    Append(&'static [usize]),
    /// Makes a snapshot at the end of the complete segments, then removes what it replaces.
    Compact(Keep),
    /// Makes a snapshot at the last revision, in the middle of a segment.
    SnapshotNow,
}

/// Batches from one byte to larger than a segment, segments that end full and not full, and compaction in between.
const SCRIPT: &[Act] = &[
    Act::Append(&[10]),
    Act::Append(&[100, 700, 0, 30]),
    Act::Append(&[1500]),
    Act::Append(&[400, 400]),
    Act::Append(&[1200]),
    Act::Append(&[3]),
    Act::Append(&[2500]),
    Act::Compact(Keep::NewestTwo),
    Act::Append(&[900, 20]),
    Act::Append(&[6000]),
    Act::Append(&[50]),
    Act::Append(&[1700]),
    Act::Compact(Keep::NewestTwo),
    Act::Append(&[800]),
    Act::SnapshotNow,
    Act::Append(&[1000, 1000]),
    Act::Append(&[2000]),
    Act::Compact(Keep::NewestTwo),
    Act::Append(&[5, 5, 5]),
    Act::Append(&[3500]),
    Act::Compact(Keep::Newest),
    Act::Append(&[700]),
];

/// Lives the script on a disk until its end or the first error that ends the journal. Whenever there is no room, space
/// is made, and then it must go on.
pub(crate) fn live(disk: &SimDisk) -> Story {
    let mut story = Story::default();
    let Ok(Opened { mut journal, mut compactor, .. }) = open_on(disk) else { return story };
    for act in SCRIPT {
        let result = match act {
            Act::Append(sizes) => append(disk, &mut journal, sizes, &mut story),
            Act::Compact(keep) => {
                story.not_compacted += usize::from(compact(&mut compactor, &story, *keep).is_err());
                Ok(())
            }
            Act::SnapshotNow => {
                let all = &story.acknowledged;
                let done = compactor.install(journal.revision(), |out| out.write_all(&state(all)), |_| Ok(()));
                story.not_compacted += usize::from(done.is_err());
                Ok(())
            }
        };
        if let Err(error) = result {
            if let AppendError::NoSpace(_) = error {
                return story;
            }
            let again = journal.append(Epoch::new(1), journal.revision(), &refs(&story.under_way)).unwrap_err();
            assert!(matches!(again, AppendError::Poisoned), "after {error}: {again}");
            assert!(matches!(journal.reserve(1, true), Err(NoSpace::Poisoned)));
            story.stopped = Some(error);
            return story;
        }
    }
    story.under_way.clear();
    story
}

fn append(
    disk: &SimDisk,
    journal: &mut LogJournal<SimDisk>,
    sizes: &[usize],
    story: &mut Story,
) -> Result<(), AppendError> {
    let bytes = sizes.iter().sum();
    if journal.reserve(bytes, false).is_err() {
        story.refused += 1;
        disk.end_failures();
        journal.reserve(bytes, false).inspect_err(|error| assert!(is_off(error), "{error}"))?;
    }
    let before = journal.revision();
    // Revisions skip, as those of records with several events do.
    story.under_way =
        sizes.iter().enumerate().map(|(at, bytes)| record(before.get() + 1 + 2 * at as u64, *bytes, 0)).collect();
    match journal.append(Epoch::new(1), before, &refs(&story.under_way)) {
        Ok(()) => {
            story.acknowledged.append(&mut story.under_way);
            assert_eq!(journal.revision(), story.acknowledged.last().unwrap().last);
            Ok(())
        }
        Err(error) => {
            assert!(error.is_fatal(), "{error}");
            assert_eq!(journal.revision(), before);
            Err(error)
        }
    }
}

/// Whether the machine has stopped: then there is no room, and never will be.
fn is_off(error: &NoSpace) -> bool {
    error.to_string().contains("machine is off")
}

fn compact(compactor: &mut Compactor<SimDisk>, story: &Story, keep: Keep) -> Result<(), CompactError> {
    let Some(last) = compactor.sealed().last().map(|segment| segment.last) else { return Ok(()) };
    let count = story.acknowledged.partition_point(|record| record.last <= last);
    compactor.install(last, |out| out.write_all(&state(&story.acknowledged[..count])), |_| Ok(()))?;
    compactor.remove(keep)?;
    Ok(())
}

/// Appends a batch after a crash, cuts the power, and checks that all is there.
pub(crate) fn goes_on(disk: &SimDisk, found: &[Record]) -> Result<(), String> {
    let mut journal = open_on(disk).map_err(|error| error.to_string())?.journal;
    let before = journal.revision();
    // Shorter than what was torn, so that old bytes would show behind it.
    let batch = [record(before.get() + 1, 24, 77), record(before.get() + 2, 0, 77)];
    let epoch = Epoch::new(2);
    journal.reserve(24, false).map_err(|error| error.to_string())?;
    journal.append(epoch, before, &refs(&batch)).map_err(|error| error.to_string())?;
    let after = disk.crash(&berth_store::sim::Survival::nothing());
    let opened = open_on(&after).map_err(|error| error.to_string())?;
    if opened.recovered.cut.is_some() || opened.recovered.epoch != epoch {
        return Err(format!("{:?} {:?}", opened.recovered.cut, opened.recovered.epoch));
    }
    let all = recovered(opened.recovered);
    if all.strip_prefix(found) == Some(&batch[..]) { Ok(()) } else { Err("records differ".to_owned()) }
}
