//! Real directories: locks, versions, damage as an operator meets it, and speed.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs, iter,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use berth_domain::{Epoch, Revision};
use berth_store::{
    Journal, Keep, LockError, LogJournal, OpenError, Opened, Options, RealDisk, RecordRef, sim::SimDisk,
};

fn append(journal: &mut impl Journal, payload: &[u8]) {
    let revision = journal.revision();
    journal.append(Epoch::new(1), revision, &[RecordRef { last: revision.next(), payload }]).unwrap();
}

fn fill(directory: &Path, count: u64, options: Options) {
    let mut journal = berth_store::open(directory, options).unwrap().journal;
    while journal.revision().get() < count {
        let payload = format!("record {}", journal.revision().next());
        append(&mut journal, payload.as_bytes());
    }
}

#[test]
fn records_are_there_after_reopening_and_segments_roll() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 4096, spare_bytes: 512, ..Options::default() };
    fill(directory.path(), 500, options);
    let opened = berth_store::open(directory.path(), options).unwrap();
    let sealed = opened.compactor.sealed();
    assert!(sealed.len() > 5, "{sealed:?}");
    for segment in sealed {
        // What a complete segment does not need was given back.
        let bytes = fs::read(directory.path().join(format!("journal/{:020}.log", segment.first.get()))).unwrap();
        assert!(bytes.last() != Some(&0) && bytes.len() as u64 == segment.bytes, "{segment:?}");
    }
    let records: Vec<_> = opened.recovered.records.map(Result::unwrap).collect();
    assert_eq!(records.len(), 500);
    assert_eq!(records[499].payload, b"record 500");
    assert!(opened.recovered.cut.is_none());
}

#[test]
fn s3_a_second_server_is_refused_by_directory_and_process() {
    let directory = tempfile::tempdir().unwrap();
    let first = berth_store::open(directory.path(), Options::default()).unwrap();
    let error = berth_store::open(directory.path(), Options::default()).unwrap_err();
    let OpenError::Lock(LockError::Held { pid, .. }) = &error else { panic!("{error}") };
    assert_eq!(*pid, Some(std::process::id()));
    let text = error.to_string();
    assert!(text.contains(&directory.path().display().to_string()), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    drop(first);
    berth_store::open(directory.path(), Options::default()).unwrap();
    assert!(fs::exists(directory.path().join("LOCK")).unwrap());
}

#[test]
fn a_journal_is_made_shorter_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 4096, spare_bytes: 512, ..Options::default() };
    let Opened { mut journal, mut compactor, .. } = berth_store::open(directory.path(), options).unwrap();
    let done = AtomicBool::new(false);
    let removed = thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut removed = 0;
            // Once more after the writer has ended, so that the last complete segments are seen.
            for ended in iter::from_fn(|| Some(done.load(Ordering::Acquire))) {
                if let Some(last) = compactor.sealed().last().map(|segment| segment.last) {
                    // The state of this test is the number of records.
                    compactor.install(last, |out| out.write_all(&last.get().to_le_bytes()), |_| Ok(())).unwrap();
                    removed += compactor.remove(Keep::NewestTwo).unwrap().segments;
                }
                if ended {
                    break;
                }
            }
            removed
        });
        for number in 1..=2000 {
            append(&mut journal, format!("record {number}").as_bytes());
        }
        done.store(true, Ordering::Release);
        beside.join().unwrap()
    });
    assert!(removed > 10, "{removed}");
    drop((journal, compactor));
    let opened = berth_store::open(directory.path(), options).unwrap();
    let snapshot = opened.recovered.snapshot.unwrap();
    assert_eq!(snapshot.payload, snapshot.revision.get().to_le_bytes());
    let records: Vec<_> = opened.recovered.records.map(Result::unwrap).collect();
    assert_eq!(snapshot.revision.get() + records.len() as u64, 2000);
    assert_eq!(records.last().unwrap().payload, b"record 2000");
}

#[test]
fn a_snapshot_may_only_be_where_a_durable_record_ends() {
    let directory = tempfile::tempdir().unwrap();
    let Opened { mut journal, mut compactor, .. } = berth_store::open(directory.path(), Options::default()).unwrap();
    let records = [3, 5].map(|last| RecordRef { last: Revision::new(last), payload: b"several events" });
    journal.append(Epoch::new(1), Revision::new(0), &records).unwrap();
    for wrong in [0, 1, 4, 6] {
        let error = compactor.install(Revision::new(wrong), |_| Ok(()), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains(&format!("revision {wrong}")), "{error}");
    }
    compactor.install(Revision::new(3), |out| out.write_all(b"state after three"), |_| Ok(())).unwrap();
    let refused = |bytes: &[u8]| match bytes {
        b"state after five" => Err(std::io::Error::other("nobody can read that")),
        other => panic!("{other:?} was never written"),
    };
    let unproven = compactor.install(Revision::new(5), |out| out.write_all(b"state after five"), refused);
    assert!(unproven.unwrap_err().to_string().contains("nobody can read that"));
    let failed = compactor.install(Revision::new(5), |_| Err(std::io::ErrorKind::InvalidData.into()), |_| Ok(()));
    assert!(failed.is_err());
    drop((journal, compactor));
    let opened = berth_store::open(directory.path(), Options::default()).unwrap();
    assert_eq!(opened.recovered.snapshot.unwrap().payload, b"state after three");
    let left: Vec<_> = opened.recovered.records.map(|record| record.unwrap().last.get()).collect();
    assert_eq!(left, [5]);
    let names: Vec<_> =
        fs::read_dir(directory.path().join("journal")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_hundred_thousand_records_are_read_with_a_few_reads_for_each_segment() {
    let disk = SimDisk::new();
    let options = Options { segment_bytes: 4 << 20, ..Options::default() };
    let open = || LogJournal::open_on(disk.clone(), Path::new("data"), options).unwrap();
    let mut journal = open().journal;
    let payload = [5; 100];
    while journal.revision().get() < 100_000 {
        let before = journal.revision();
        let records: Vec<_> =
            (1..=100).map(|add| RecordRef { last: Revision::new(before.get() + add), payload: &payload }).collect();
        journal.append(Epoch::new(1), before, &records).unwrap();
    }
    let before = disk.reads();
    assert_eq!(open().recovered.records.map(Result::unwrap).count(), 100_000);
    let segments = disk.files().len() as u64;
    assert!(segments >= 3 && disk.reads() - before <= 3 * segments, "{} reads", disk.reads() - before);
}

#[test]
fn a_sparse_copy_of_a_directory_gets_its_room_back() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 3, Options::default());
    let segment = directory.path().join("journal/00000000000000000001.log");
    let bytes = fs::read(&segment).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    fs::write(&segment, &bytes[..used]).unwrap();
    fs::File::options().write(true).open(&segment).unwrap().set_len(bytes.len() as u64).unwrap();
    assert!(blocks(&segment) < 16 << 20);
    let opened = LogJournal::open_on(RealDisk, directory.path(), Options::default()).unwrap();
    assert!(blocks(&segment) >= 16 << 20);
    assert_eq!(opened.recovered.records.count(), 3);
}

/// The space that a file really takes.
fn blocks(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}
