//! What is cut, what is refused, and in which words.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    path::{Path, PathBuf},
    slice,
};

use berth_domain::{Epoch, Revision};
use berth_store::{
    Damage, Disk, Flaw, Journal, Keep, Opened, ReadError, Record,
    sim::{SimDisk, Survival, Surviving, survivals},
};
use common::{goes_on, live, open_on, read, record, recovered, refs, state};

/// A journal with one batch of each of these sizes.
fn journal(sizes: &[usize]) -> (SimDisk, Vec<Record>) {
    let disk = SimDisk::new();
    let mut records = Vec::new();
    let mut journal = open_on(&disk).unwrap().journal;
    for bytes in sizes {
        let next = record(journal.revision().get() + 1, *bytes, 0);
        journal.append(Epoch::new(1), journal.revision(), &refs(slice::from_ref(&next))).unwrap();
        records.push(next);
    }
    (disk, records)
}

fn segment(first: u64) -> PathBuf {
    PathBuf::from(format!("data/journal/{first:020}.log"))
}

fn snapshot(revision: u64) -> PathBuf {
    PathBuf::from(format!("data/journal/{revision:020}.snapshot"))
}

/// Where the frame with this payload begins in a file.
fn frame_of(disk: &SimDisk, path: &Path, record: &Record) -> usize {
    let files = disk.files();
    let (_, bytes) = files.iter().find(|(file, _)| file == path).unwrap();
    bytes.windows(record.payload.len()).position(|window| window == record.payload).unwrap() - 52
}

fn refusal(disk: &SimDisk) -> Damage {
    match open_on(disk).map(|opened| recovered(opened.recovered).len()) {
        Err(ReadError::Damaged(damage)) => damage,
        other => panic!("{other:?}"),
    }
}

#[test]
fn s2_a_last_record_cut_short_anywhere_is_cut() {
    let (disk, records) = journal(&[100, 300]);
    let start = frame_of(&disk, &segment(1), &records[1]);
    for end in start..start + 360 {
        let torn = disk.fork();
        torn.tamper(&segment(1), |bytes| bytes.truncate(end));
        let opened = open_on(&torn).unwrap_or_else(|error| panic!("cut at {end}: {error}"));
        if end == start {
            assert_eq!(opened.recovered.cut, None);
        } else {
            let cut = opened.recovered.cut.clone().unwrap();
            assert_eq!((cut.file, cut.offset), (segment(1), start as u64));
            assert!(cut.bytes > 0 && cut.bytes <= (end - start) as u64, "{}", cut.bytes);
        }
        assert_eq!(recovered(opened.recovered), records[..1]);
        goes_on(&torn, &records[..1]).unwrap();
    }
}

#[test]
fn s2_bytes_of_a_cut_record_never_come_back_behind_a_shorter_one() {
    let (disk, mut records) = journal(&[100]);
    let mut journal = open_on(&disk).unwrap().journal;
    let long = [record(2, 900, 0)];
    disk.plan(Some(berth_store::sim::Fault::Stop {
        at: disk.operations() + 2,
        effect: berth_store::sim::Effect::Nothing,
    }));
    assert!(journal.append(Epoch::new(1), Revision::new(1), &refs(&long)).is_err());
    let pending = disk.pending();
    let mut torn = 0;
    for survival in survivals(&pending) {
        let disk = disk.crash(&survival);
        let Opened { mut journal, recovered: found, .. } = open_on(&disk).unwrap();
        if found.cut.is_none() {
            continue;
        }
        torn += 1;
        records.truncate(1);
        records.push(record(2, 30, 1));
        journal.append(Epoch::new(2), Revision::new(1), &refs(&records[1..])).unwrap();
        for survival in survivals(&disk.pending()).into_iter().chain([Survival(vec![Surviving::All])]) {
            let disk = disk.crash(&survival);
            let opened = open_on(&disk).unwrap();
            assert_eq!(opened.recovered.cut, None);
            assert_eq!(recovered(opened.recovered), records);
        }
        // All that is left of the long one is zero.
        let (_, bytes) = disk.files().into_iter().find(|(path, _)| *path == segment(1)).unwrap();
        let end = frame_of(&disk, &segment(1), &records[1]) + 96;
        assert!(bytes[end..].iter().all(|byte| *byte == 0));
    }
    assert!(torn > 5, "{torn}");
}

#[test]
fn s2_a_changed_byte_in_the_middle_is_refused_with_file_offset_and_what_to_do() {
    let (disk, records) = journal(&[100, 300, 200]);
    let start = frame_of(&disk, &segment(1), &records[1]);
    disk.tamper(&segment(1), |bytes| bytes[start + 70] ^= 4);
    let damage = refusal(&disk);
    assert_eq!(damage, Damage { file: segment(1), offset: start as u64, flaw: Flaw::BeforeOthers });
    let text = damage.to_string();
    for part in ["00000000000000000001.log", &format!("byte {start}"), "Restore the data directory from a backup"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn s2_a_hole_with_a_later_record_behind_it_is_refused_though_it_looks_torn() {
    let (disk, records) = journal(&[100, 2000, 50]);
    let start = frame_of(&disk, &segment(1), &records[1]);
    for hole in [start..start + 40, start + 600..start + 1112, start..start + 2064] {
        let disk = disk.fork();
        disk.tamper(&segment(1), |bytes| bytes[hole.clone()].fill(0));
        assert_eq!(refusal(&disk).flaw, Flaw::BeforeOthers, "{hole:?}");
    }
}

#[test]
fn s2_a_last_record_that_is_complete_but_wrong_is_refused_and_not_thrown_away() {
    let (disk, records) = journal(&[100, 700]);
    let start = frame_of(&disk, &segment(1), &records[1]);
    for at in start..start + 760 {
        let disk = disk.fork();
        disk.tamper(&segment(1), |bytes| bytes[at] ^= 0x10);
        assert_eq!(refusal(&disk), Damage { file: segment(1), offset: start as u64, flaw: Flaw::Content }, "byte {at}");
    }
}

#[test]
fn s2_damage_in_a_segment_that_is_not_the_last_is_refused_even_at_its_end() {
    let (disk, records) = journal(&[1000, 1000, 1000, 1000, 1000, 1000]);
    let start = frame_of(&disk, &segment(1), &records[2]);
    for end in [start + 1, start + 500, start + 1063] {
        let disk = disk.fork();
        disk.tamper(&segment(1), |bytes| bytes.truncate(end));
        assert_eq!(refusal(&disk).flaw, Flaw::BeforeOthers);
        assert_eq!(refusal(&disk).offset, start as u64);
    }
    let cut = disk.fork();
    cut.tamper(&segment(1), |bytes| bytes.truncate(start));
    assert_eq!(refusal(&cut).flaw, Flaw::Gap { after: Revision::new(2), next: Revision::new(3) });
    disk.tamper(&segment(4), |bytes| bytes[64 + 60] ^= 1);
    assert_eq!(refusal(&disk), Damage { file: segment(4), offset: 64, flaw: Flaw::First });
}

#[test]
fn s2_a_missing_or_misnamed_segment_is_refused() {
    let (disk, _) = journal(&[3000, 3000, 3000, 3000]);
    let gap = disk.fork();
    gap.lose(&segment(2));
    assert_eq!(
        refusal(&gap),
        Damage { file: segment(3), offset: 0, flaw: Flaw::Gap { after: Revision::new(1), next: Revision::new(2) } }
    );
    let gap = disk.fork();
    gap.lose(&segment(1));
    assert_eq!(refusal(&gap).flaw, Flaw::Gap { after: Revision::new(0), next: Revision::new(1) });
    let (_, other) = disk.files().into_iter().find(|(path, _)| *path == segment(2)).unwrap();
    disk.tamper(&segment(3), |bytes| *bytes = other);
    assert_eq!(refusal(&disk).flaw, Flaw::Name { header: Revision::new(2) });
}

/// A journal with snapshots after the second and fourth record, each record in a segment of its own.
fn compacted(keep: Keep) -> (SimDisk, Vec<Record>) {
    let (disk, records) = journal(&[3000, 3000, 3000, 3000, 3000]);
    let mut compactor = open_on(&disk).unwrap().compactor;
    for (revision, count) in [(2, 2), (4, 4)] {
        compactor.install(Revision::new(revision), |out| out.write_all(&state(&records[..count])), |_| Ok(())).unwrap();
    }
    compactor.remove(keep).unwrap();
    (disk, records)
}

#[test]
fn s2_a_damaged_snapshot_is_passed_over_while_the_one_before_it_is_kept() {
    let (disk, records) = compacted(Keep::NewestTwo);
    disk.tamper(&snapshot(4), |bytes| bytes[200] ^= 1);
    let opened = open_on(&disk).unwrap();
    assert_eq!(opened.recovered.passed_over.len(), 1);
    assert_eq!(opened.recovered.passed_over[0].file, snapshot(4));
    assert_eq!(opened.recovered.snapshot.as_ref().unwrap().revision, Revision::new(2));
    assert_eq!(recovered(opened.recovered), records);

    // It does not count when the next is made: what the good one needs stays.
    let mut compactor = opened.compactor;
    assert_eq!(compactor.remove(Keep::NewestTwo).unwrap().segments, 0);
    compactor.install(Revision::new(5), |out| out.write_all(&state(&records)), |_| Ok(())).unwrap();
    let removed = compactor.remove(Keep::NewestTwo).unwrap();
    assert_eq!((removed.snapshots, removed.segments), (1, 0));
    assert_eq!(read(&disk), records);
}

#[test]
fn s2_a_damaged_snapshot_with_no_older_one_is_refused_by_its_name() {
    let (disk, _) = compacted(Keep::Newest);
    for change in [
        |bytes: &mut Vec<u8>| bytes[100] ^= 1,
        |bytes: &mut Vec<u8>| bytes.truncate(5000),
        |bytes: &mut Vec<u8>| bytes.clear(),
    ] {
        let disk = disk.fork();
        disk.tamper(&snapshot(4), change);
        assert_eq!(refusal(&disk).file, snapshot(4));
    }
    disk.lose(&snapshot(4));
    assert_eq!(refusal(&disk).flaw, Flaw::Gap { after: Revision::new(0), next: Revision::new(4) });
}

#[test]
fn s2_a_snapshot_newer_than_all_records_is_refused() {
    let (disk, _) = compacted(Keep::NewestTwo);
    let gone = disk.fork();
    for first in [4, 5] {
        gone.lose(&segment(first));
    }
    assert_eq!(refusal(&gone).flaw, Flaw::Behind { end: Revision::new(3), snapshot: Revision::new(4) });
    for first in 3..=5 {
        disk.lose(&segment(first));
    }
    assert_eq!(refusal(&disk).flaw, Flaw::Behind { end: Revision::new(0), snapshot: Revision::new(4) });
}

#[test]
fn s3_a_newer_format_is_refused_with_what_to_do() {
    for path in [segment(5), segment(3), snapshot(4)] {
        let (disk, _) = compacted(Keep::NewestTwo);
        disk.tamper(&path, |bytes| {
            bytes[8] = 9;
            let checksum = crc32fast::hash(&bytes[..60]);
            bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        });
        let newest_is_needed = path != segment(3);
        match open_on(&disk) {
            Err(error @ ReadError::NewerFormat { found: 9, known: berth_store::FORMAT, .. }) => {
                let text = error.to_string();
                assert!(text.contains("upgrade berth") && text.contains("restore a backup"), "{text}");
            }
            // A segment that no snapshot needs any more is not even read.
            Ok(_) => assert!(!newest_is_needed),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn s2_no_changed_byte_anywhere_changes_or_loses_a_record() {
    let disk = SimDisk::new();
    let story = live(&disk);
    let (mut refused, mut passed) = (0, 0);
    for (path, bytes) in disk.files() {
        for at in 0..bytes.len() {
            let changed = disk.fork();
            changed.tamper(&path, |bytes| bytes[at] ^= 0x10);
            match open_on(&changed) {
                Err(ReadError::Damaged(_)) => refused += 1,
                Err(error) => panic!("{}: {error}", path.display()),
                Ok(opened) => {
                    assert_eq!(recovered(opened.recovered), story.acknowledged, "{} at {at}", path.display());
                    passed += 1;
                }
            }
        }
    }
    // Damage was found, and what is not needed (a kept older snapshot, room that is not used) was not mourned.
    assert!(refused > 1000 && passed > 1000, "{refused} refused, {passed} passed");
}

#[test]
fn s2_a_snapshot_that_no_record_ends_at_is_refused() {
    let disk = SimDisk::new();
    let Opened { mut journal, mut compactor, .. } = open_on(&disk).unwrap();
    journal.append(Epoch::new(1), Revision::new(0), &refs(&[record(3, 10, 0), record(5, 10, 0)])).unwrap();
    compactor.install(Revision::new(3), |out| out.write_all(b"state"), |_| Ok(())).unwrap();
    disk.tamper(&snapshot(3), |bytes| {
        bytes[16] = 4;
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    });
    disk.rename(&snapshot(3), &snapshot(4)).unwrap();
    assert_eq!(refusal(&disk), Damage { file: segment(1), offset: 0, flaw: Flaw::Inside });
}
