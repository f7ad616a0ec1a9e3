//! Room is there before anything is decided, and comes back by itself.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;

use berth_domain::{Epoch, Revision};
use berth_store::{
    Journal, Keep, NoSpace, Opened, Options, RecordRef,
    sim::{SimDisk, Survival},
};
use common::{OPTIONS, open_on, read, record, refs};

fn append(journal: &mut impl Journal, payload: &[u8]) {
    let revision = journal.revision();
    journal.append(Epoch::new(1), revision, &[RecordRef { last: revision.next(), payload }]).unwrap();
}

#[test]
fn s2_what_was_reserved_can_be_appended_when_the_disk_is_full() {
    let disk = SimDisk::new();
    let mut journal = open_on(&disk).unwrap().journal;
    let mut count = 0;
    for bytes in (0..6000).step_by(37) {
        disk.set_capacity(None);
        journal.reserve(bytes, bytes % 2 == 0).unwrap();
        disk.set_capacity(Some(0));
        // As many records as a batch may have, which is where the headers take most.
        let before = journal.revision().get();
        let mut batch: Vec<_> = (1..8).map(|add| record(before + add, 0, 0)).collect();
        batch.push(record(before + 8, bytes, 0));
        journal.append(Epoch::new(1), Revision::new(before), &refs(&batch)).unwrap();
        count += batch.len();
    }
    assert_eq!(read(&disk.crash(&Survival::nothing())).len(), count);
}

#[test]
fn s2_with_less_space_than_a_segment_what_is_needed_is_taken_and_no_more() {
    let disk = SimDisk::new();
    let mut journal = open_on(&disk).unwrap().journal;
    disk.set_capacity(Some(2500));
    assert!(matches!(journal.reserve(2400, false).unwrap_err(), NoSpace::DiskFull { .. }));
    assert_eq!(disk.capacity(), Some(2500));
    journal.reserve(1000, false).unwrap();
    assert!(disk.capacity().unwrap() > 500, "{:?}", disk.capacity());
    append(&mut journal, &[7; 1000]);
    disk.set_capacity(Some(1 << 20));
    journal.reserve(1000, false).unwrap();
    append(&mut journal, &[7; 1000]);
    assert_eq!(read(&disk).len(), 2);
}

#[test]
fn s2_a_full_disk_is_no_reason_not_to_start_and_prepared_room_is_kept() {
    let disk = SimDisk::new();
    let mut journal = open_on(&disk).unwrap().journal;
    append(&mut journal, &[7; 3500]);
    journal.reserve(100, false).unwrap();
    disk.set_capacity(Some(0));
    let disk = disk.crash(&Survival::nothing());
    // What was prepared was not durable; the spare is what is left in the segment.
    let mut journal = open_on(&disk).unwrap().journal;
    assert!(journal.reserve(100, false).is_err());
    journal.reserve(100, true).unwrap();
    append(&mut journal, b"a proof");

    disk.set_capacity(None);
    journal.reserve(100, false).unwrap();
    disk.set_capacity(Some(0));
    let mut journal = open_on(&disk.fork()).unwrap().journal;
    journal.reserve(100, false).unwrap();
    journal.reserve(3000, true).unwrap();
    append(&mut journal, &[8; 3000]);
}

#[test]
fn more_records_than_a_batch_may_have_are_refused() {
    let disk = SimDisk::new();
    let mut journal = open_on(&disk).unwrap().journal;
    let batch: Vec<_> = (1..=OPTIONS.max_records as u64 + 1).map(|last| record(last, 1, 0)).collect();
    let error = journal.append(Epoch::new(1), Revision::new(0), &refs(&batch)).unwrap_err();
    assert!(!error.is_fatal() && error.to_string().contains("9 records"), "{error}");
    journal.append(Epoch::new(1), Revision::new(0), &refs(&batch[..8])).unwrap();
}

#[test]
fn s2_at_its_limit_a_journal_takes_only_what_may_use_the_spare_until_it_is_made_shorter() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        Options { segment_bytes: 16 << 10, spare_bytes: 4 << 10, limit_bytes: Some(64 << 10), max_records: 4 };
    let Opened { mut journal, mut compactor, .. } = berth_store::open(directory.path(), options).unwrap();
    let error = loop {
        match journal.reserve(1000, false) {
            Ok(()) => append(&mut journal, &[7; 1000]),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, NoSpace::Limit { limit: 65536, .. }), "{error}");
    let full = journal.revision();
    assert!(full.get() > 50, "{full}");
    for _ in 0..3 {
        journal.reserve(1000, true).unwrap();
        append(&mut journal, &[8; 1000]);
    }
    let size: u64 = fs::read_dir(directory.path().join("journal"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= 64 << 10, "{size}");
    assert!(journal.reserve(1000, false).is_err());
    assert!(matches!(journal.reserve(300 << 20, true).unwrap_err(), NoSpace::TooLarge { .. }));

    let last = compactor.sealed().last().unwrap().last;
    compactor.install(last, |out| out.write_all(b"state"), |_| Ok(())).unwrap();
    assert_eq!(compactor.remove(Keep::NewestTwo).unwrap().segments, 0);
    assert!(compactor.remove(Keep::Newest).unwrap().segments > 2);
    journal.reserve(1000, false).unwrap();
    append(&mut journal, &[9; 1000]);
}
