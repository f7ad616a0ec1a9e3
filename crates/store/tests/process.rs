//! Real processes: killed without warning, and two on one directory.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use berth_domain::{Epoch, Revision};
use berth_store::{Journal, LockError, OpenError, Opened, Options, RecordRef};

const DIRECTORY: &str = "BERTH_STORE_TEST_DIRECTORY";
const OPTIONS: Options = Options { segment_bytes: 16 << 10, spare_bytes: 1 << 10, limit_bytes: None, max_records: 16 };

/// What a record holds: it follows from its revision, so that a wrong one shows.
fn payload(revision: u64) -> Vec<u8> {
    format!("record {revision} ").repeat(usize::try_from(revision % 40).unwrap() + 1).into_bytes()
}

/// The process that the tests below start and kill.
#[test]
#[ignore = "not a test: the process that others start and kill"]
fn writer() {
    let directory = env::var(DIRECTORY).unwrap();
    let Opened { mut journal, recovered, .. } = berth_store::open(Path::new(&directory), OPTIONS).unwrap();
    drop(recovered);
    loop {
        let before = journal.revision();
        let batch: Vec<_> =
            (1..=1 + before.get() % 5).map(|add| (before.get() + add, payload(before.get() + add))).collect();
        let records: Vec<_> =
            batch.iter().map(|(last, payload)| RecordRef { last: Revision::new(*last), payload }).collect();
        journal.reserve(batch.iter().map(|(_, payload)| payload.len()).sum(), false).unwrap();
        journal.append(Epoch::new(1), before, &records).unwrap();
        // Straight to the pipe: the test harness keeps what is printed.
        writeln!(std::io::stderr(), "acknowledged {}", journal.revision()).unwrap();
    }
}

fn start(directory: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["writer", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads so many acknowledgements, kills the process, and returns the last that it gave.
fn kill_after(child: &mut Child, count: usize) -> u64 {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let number = |line: String| line.strip_prefix("acknowledged ").and_then(|number| number.parse::<u64>().ok());
    let last = lines.by_ref().filter_map(number).take(count).last();
    child.kill().unwrap();
    child.wait().unwrap();
    // What it said before it died counts too.
    lines.filter_map(number).last().or(last).unwrap()
}

#[test]
fn s1_killed_at_any_moment_everything_acknowledged_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut found = 0;
    for round in 1..=25 {
        let mut child = start(directory.path());
        let acknowledged = kill_after(&mut child, round * 7);
        let opened = berth_store::open(directory.path(), OPTIONS).unwrap();
        found = opened.recovered.revision.get();
        // One batch more may be there: written, and killed before it was acknowledged.
        assert!((acknowledged..=acknowledged + 5).contains(&found), "{acknowledged} acknowledged, {found} found");
        for (record, expected) in opened.recovered.records.map(Result::unwrap).zip(1..) {
            assert_eq!((record.last.get(), record.payload), (expected, payload(expected)));
        }
    }
    assert!(found > 25 * 7, "{found}");
}

#[test]
fn s3_a_directory_in_use_names_the_process_that_has_it_and_is_free_once_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = start(directory.path());
    let mut line = String::new();
    // Once it acknowledges something, it has the lock.
    let mut out = BufReader::new(child.stderr.take().unwrap());
    while !line.contains("acknowledged") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the writer ended");
    }
    let error = berth_store::open(directory.path(), OPTIONS).unwrap_err();
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    match &error {
        OpenError::Lock(LockError::Held { pid: Some(holder), .. }) => assert_eq!(*holder, pid),
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
    berth_store::open(directory.path(), OPTIONS).unwrap();
}
