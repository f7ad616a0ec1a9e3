//! What every journal does, checked on each of them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use berth_domain::{Epoch, Revision};
use berth_store::{AppendError, Journal, LogJournal, MemoryJournal, NoSpace, Options, Record, RecordRef, sim::SimDisk};

fn record(last: u64, payload: &str) -> Record {
    Record { last: Revision::new(last), payload: payload.as_bytes().to_vec() }
}

fn append(journal: &mut dyn Journal, epoch: u64, expected: u64, records: &[Record]) -> Result<(), AppendError> {
    let records: Vec<RecordRef<'_>> = records.iter().map(RecordRef::from).collect();
    journal.append(Epoch::new(epoch), Revision::new(expected), &records)
}

/// A journal to test, and a way to read all its records back.
struct Subject {
    name: &'static str,
    journal: Box<dyn Journal>,
    read: Box<dyn Fn() -> Vec<Record>>,
    /// Leaves about so many bytes of room, or as much as there is.
    limit: Box<dyn Fn(Option<u64>)>,
}

fn subjects() -> Vec<Subject> {
    let memory = MemoryJournal::new();
    let (reader, limited) = (memory.clone(), memory.clone());
    let disk = SimDisk::new();
    let options = Options { segment_bytes: 4096, spare_bytes: 4096, limit_bytes: None, max_records: 8 };
    let log = LogJournal::open_on(disk.clone(), Path::new("data"), options).unwrap().journal;
    let full = disk.clone();
    let directory = tempfile::tempdir().unwrap();
    let real = berth_store::open(directory.path(), options).unwrap().journal;
    vec![
        Subject {
            name: "memory",
            journal: Box::new(memory),
            read: Box::new(move || reader.records()),
            limit: Box::new(move |limit| limited.set_limit(limit, 4096)),
        },
        Subject {
            name: "log on a simulated disk",
            journal: Box::new(log),
            read: Box::new(move || {
                let opened = LogJournal::open_on(disk.fork(), Path::new("data"), options).unwrap();
                opened.recovered.records.map(Result::unwrap).collect()
            }),
            limit: Box::new(move |limit| full.set_capacity(limit)),
        },
        Subject {
            name: "log on the real disk",
            journal: Box::new(real),
            read: Box::new(move || {
                let disk = berth_store::RealDisk;
                let opened = LogJournal::open_on(disk, directory.path(), options).unwrap();
                opened.recovered.records.map(Result::unwrap).collect()
            }),
            limit: Box::new(|_| {}),
        },
    ]
}

#[test]
fn a_new_journal_is_empty_and_keeps_what_is_appended_in_order() {
    for Subject { name, mut journal, read, .. } in subjects() {
        assert_eq!(journal.revision(), Revision::new(0), "{name}");
        assert_eq!(journal.epoch(), Epoch::new(0), "{name}");
        let records = [record(1, "one"), record(4, "two to four"), record(5, "")];
        append(&mut *journal, 1, 0, &records[..1]).unwrap();
        append(&mut *journal, 1, 1, &records[1..]).unwrap();
        assert_eq!(journal.revision(), Revision::new(5), "{name}");
        assert_eq!(journal.epoch(), Epoch::new(1), "{name}");
        assert_eq!(read(), records, "{name}");
    }
}

#[test]
fn an_unexpected_revision_is_a_conflict_and_writes_nothing() {
    for Subject { name, mut journal, read, .. } in subjects() {
        append(&mut *journal, 1, 0, &[record(2, "a")]).unwrap();
        for expected in [0, 1, 3] {
            let error = append(&mut *journal, 1, expected, &[record(9, "b")]).unwrap_err();
            assert!(
                matches!(error, AppendError::Conflict { actual, .. } if actual == Revision::new(2)),
                "{name}: {error}"
            );
            assert!(!error.is_fatal(), "{name}");
        }
        append(&mut *journal, 1, 2, &[record(3, "c")]).unwrap();
        assert_eq!(read(), [record(2, "a"), record(3, "c")], "{name}");
    }
}

#[test]
fn an_older_epoch_is_fenced_and_writes_nothing() {
    for Subject { name, mut journal, read, .. } in subjects() {
        append(&mut *journal, 3, 0, &[record(1, "a")]).unwrap();
        let error = append(&mut *journal, 2, 1, &[record(2, "b")]).unwrap_err();
        assert!(matches!(error, AppendError::Fenced { newest, .. } if newest == Epoch::new(3)), "{name}: {error}");
        assert!(error.is_fatal(), "{name}");
        append(&mut *journal, 3, 1, &[record(2, "c")]).unwrap();
        append(&mut *journal, 4, 2, &[record(3, "d")]).unwrap();
        assert_eq!(read(), [record(1, "a"), record(2, "c"), record(3, "d")], "{name}");
    }
}

#[test]
fn revisions_that_do_not_rise_are_refused_and_write_nothing() {
    for Subject { name, mut journal, read, .. } in subjects() {
        for records in
            [vec![record(0, "a")], vec![record(2, "a"), record(2, "b")], vec![record(2, "a"), record(1, "b")]]
        {
            let error = append(&mut *journal, 1, 0, &records).unwrap_err();
            assert!(matches!(error, AppendError::OutOfOrder { .. }), "{name}: {error}");
        }
        append(&mut *journal, 1, 0, &[]).unwrap();
        assert_eq!(journal.revision(), Revision::new(0), "{name}");
        assert_eq!(read(), [], "{name}");
    }
}

#[test]
fn s2_without_room_nothing_is_written_spare_goes_on_and_space_that_comes_back_is_used() {
    for Subject { name, mut journal, read, limit } in subjects() {
        if name == "log on the real disk" {
            // There is no full disk to be had without mounting one; limits are tested beside.
            continue;
        }
        journal.reserve(1000, false).unwrap();
        append(&mut *journal, 1, 0, &[record(1, "before")]).unwrap();
        limit(Some(3000));
        let error = journal.reserve(1000, false).unwrap_err();
        assert!(matches!(error, NoSpace::DiskFull { .. } | NoSpace::Limit { .. }), "{name}: {error}");
        journal.reserve(1000, true).unwrap();
        append(&mut *journal, 1, 1, &[record(2, "a proof of release")]).unwrap();
        assert!(matches!(
            append(&mut *journal, 1, 2, &[record(3, &"x".repeat(6000))]).unwrap_err(),
            AppendError::NoSpace(_)
        ));
        limit(None);
        journal.reserve(6000, false).unwrap();
        append(&mut *journal, 1, 2, &[record(3, &"y".repeat(6000))]).unwrap();
        assert_eq!(read().len(), 3, "{name}");
    }
}
