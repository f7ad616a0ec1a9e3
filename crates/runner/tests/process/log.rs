//! Logs, written by real programs.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{Agent, PATIENCE, new_slot, until};
use berth_domain::{Bytes, Generation};
use berth_runner::process::{Exit, LogDir, LogLimits, SpawnOptions};

const LIMITS: LogLimits = LogLimits { ring: Bytes::new(64 << 10), file: Bytes::mib(1), copies: 2 };

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |found| found.len())
}

#[test]
fn a_slot_that_writes_without_end_neither_blocks_nor_grows_the_agent() {
    let mut agent = Agent::with_sessions();
    agent.logs = LogDir::open(&agent.path("small"), LIMITS).unwrap();
    let script = "
import os, sys, time
line = b'x' * 1023 + b'\\n'
for number in range(40 * 1024): sys.stdout.buffer.write(line)
sys.stdout.buffer.flush()
open(sys.argv[2], 'w')
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
sys.stdout.buffer.write(b'the last line\\n')
";
    let go = agent.path("go");
    let done = agent.path("done");
    let slot = agent.python(script, &[go.to_str().unwrap(), done.to_str().unwrap()]);
    until("40 MiB", || {
        assert!(slot.log.tail(usize::MAX).unwrap().len() <= 64 << 10);
        done.exists()
    });
    slot.log.pump().unwrap();
    std::fs::write(&go, "").unwrap();
    assert_eq!(slot.exit(), Exit::Code(0));
    assert!(slot.log.tail(100).unwrap().ends_with(b"the last line\n"));
    slot.log.pump().unwrap();
    assert!(size(slot.log.path()) <= 1 << 20, "the file was not cut");
    let copy = |number: u32| slot.log.path().with_extension(format!("log.{number}"));
    assert!(size(&copy(1)) > 0 && size(&copy(2)) > 0);
    assert!(
        size(&copy(1)) <= 2 << 20 && size(&copy(2)) <= 2 << 20,
        "a copy is the end of what was written, not all of it"
    );
    assert!(!copy(3).exists());
}

#[test]
fn nothing_is_lost_where_a_file_can_be_cut_at_its_beginning() {
    let mut agent = Agent::new(SpawnOptions::default());
    agent.logs = LogDir::open(&agent.path("many"), LogLimits { copies: 50, ..LIMITS }).unwrap();
    // It writes while the file is being cut, but not more than 200 KiB ahead of the agent.
    let script = "
import os, sys, time
def pumps():
    try: return int(open(sys.argv[1]).read() or 0)
    except FileNotFoundError: return 0
for number in range(8000):
    if number % 200 == 0:
        seen = pumps()
        while pumps() <= seen: time.sleep(0.001)
    os.write(1, b'%09d ' % number + b'z' * 1000 + b'\\n')
";
    let pumps = agent.path("pumps");
    let slot = agent.python(script, &[pumps.to_str().unwrap()]);
    let mut count = 0;
    until("the end of the writing", || {
        slot.log.pump().unwrap();
        count += 1;
        std::fs::write(&pumps, count.to_string()).unwrap();
        slot.process.poll_exit().is_some()
    });
    let parts = (1..=50).rev().map(|number| slot.log.path().with_extension(format!("log.{number}")));
    let all: Vec<u8> =
        parts.chain([slot.log.path().to_owned()]).flat_map(|path| std::fs::read(path).unwrap_or_default()).collect();
    let text = String::from_utf8(all).unwrap();
    let numbers: Vec<u32> = text.lines().filter_map(|line| line.split_once(' ')?.0.parse().ok()).collect();
    assert!(numbers.is_sorted());
    if can_cut_at_the_beginning(agent.dir.path()) {
        let missing: Vec<u32> = (0..8000).filter(|number| numbers.binary_search(number).is_err()).take(5).collect();
        assert_eq!((numbers.len(), missing), (8000, Vec::new()));
        assert_eq!(slot.log.end().unwrap(), text.len() as u64, "the ring counts every byte once");
    }
}

fn can_cut_at_the_beginning(dir: &Path) -> bool {
    let file = std::fs::File::create_new(dir.join("cut")).unwrap();
    file.set_len(1 << 20).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::COLLAPSE_RANGE, 0, 64 << 10).is_ok()
}

#[test]
fn a_slot_is_never_held_up_by_an_agent_that_does_not_read() {
    let agent = Agent::with_sessions();
    let slot = agent.python("import os; [os.write(1, b'y' * 65536) for _ in range(320)]", &[]);
    assert_eq!(slot.exit(), Exit::Code(0), "it could not write 20 MiB without a reader");
    assert_eq!(slot.log.tail(3).unwrap(), b"yyy");
}

#[test]
fn output_and_errors_are_kept_as_bytes_in_the_order_of_writing() {
    let agent = Agent::new(SpawnOptions::default());
    let script = "
import os
os.write(1, b'out\\x00\\xff\\n'); os.write(2, b'err\\n'); os.write(1, b'out again')
";
    let slot = agent.python(script, &[]);
    assert_eq!(slot.exit(), Exit::Code(0));
    assert_eq!(slot.log.tail(usize::MAX).unwrap(), b"out\x00\xff\nerr\nout again");
    assert_eq!(slot.log.tail(5).unwrap(), b"again");
}

#[test]
fn a_follower_gets_every_byte_in_order_from_where_it_began() {
    let agent = Agent::new(SpawnOptions::default());
    let go = agent.path("go");
    let script = "
import os, sys, time
os.write(1, b'before\\n')
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
for number in range(500): os.write(1, b'%d\\n' % number); time.sleep(0.0005)
";
    let slot = agent.python(script, &[go.to_str().unwrap()]);
    slot.says("before\n");
    let mut follower = slot.log.follow(4).unwrap();
    std::fs::write(&go, "").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seen = runtime.block_on(async {
        let mut seen = Vec::new();
        while !seen.ends_with(b"499\n") {
            let chunk = tokio::time::timeout(PATIENCE, follower.next()).await.unwrap().unwrap().unwrap();
            assert_eq!(chunk.lost, 0);
            seen.extend(chunk.bytes);
        }
        seen
    });
    let wanted = (0..500).fold("ore\n".to_owned(), |text, number| format!("{text}{number}\n"));
    assert_eq!(String::from_utf8(seen).unwrap(), wanted);
}

#[test]
fn a_follower_that_is_too_slow_is_told_how_much_it_missed() {
    let mut agent = Agent::new(SpawnOptions::default());
    agent.logs =
        LogDir::open(&agent.path("tiny"), LogLimits { file: Bytes::new(16 << 10), copies: 0, ..LIMITS }).unwrap();
    let slot = agent.python("import os; os.write(1, b'a' * 100000 + b'end')", &[]);
    let mut follower = slot.log.follow(0).unwrap();
    assert_eq!(slot.exit(), Exit::Code(0));
    let mut lost = 0;
    let mut seen = Vec::new();
    while let Some(chunk) = follower.poll().unwrap() {
        lost += chunk.lost;
        seen.extend(chunk.bytes);
    }
    assert!(seen.ends_with(b"end"));
    assert!(lost > 0, "the file was cut before it was read");
    assert_eq!(lost + seen.len() as u64, 100_003, "what was lost and what was seen is all there was");
}

fn read_all(slot: &berth_runner::process::SlotLog, tail: u64) -> Vec<u8> {
    let mut follower = slot.follow(tail).unwrap();
    let mut all = Vec::new();
    while let Some(chunk) = follower.next_before_end().unwrap() {
        assert_eq!(chunk.lost, 0);
        all.extend(chunk.bytes);
    }
    all
}

#[test]
fn what_is_no_longer_in_memory_comes_from_the_file_and_its_copies() {
    let mut agent = Agent::new(SpawnOptions::default());
    agent.logs = LogDir::open(&agent.path("small"), LIMITS).unwrap();
    let script = "import os; os.write(1, b''.join(b'%09d\\n' % number for number in range(150000)))";
    let slot = agent.python(script, &[]);
    assert_eq!(slot.exit(), Exit::Code(0));
    let wanted: Vec<u8> = (0..150_000).flat_map(|number| format!("{number:09}\n").into_bytes()).collect();
    for tail in [0, 1, 10, 70_000, 1_200_000, 1_500_000, 99_000_000] {
        let all = read_all(&slot.log, tail);
        assert_eq!(all.len() as u64, tail.min(1_500_000));
        assert!(wanted.ends_with(&all), "the last {tail} bytes");
    }
    // The same once the slot is no more, and nothing is changed by reading.
    let past = agent.logs.past(slot.launch.slot, None).unwrap().unwrap();
    assert!(past.is_over());
    assert_eq!(read_all(&past, u64::MAX), wanted);
    assert_eq!(read_all(&slot.log, u64::MAX), wanted);
}

#[test]
fn a_log_that_is_over_is_followed_to_its_end() {
    let agent = Agent::new(SpawnOptions::default());
    let slot = agent.sh("echo one; echo two", &[]);
    assert_eq!(slot.exit(), Exit::Code(0));
    let mut follower = slot.log.follow(u64::MAX).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(follower.next().await.unwrap().unwrap().bytes, b"one\ntwo\n");
        let closing = tokio::time::timeout(std::time::Duration::from_millis(300), follower.next()).await;
        assert!(closing.is_err(), "somebody may still write");
        slot.log.close();
        assert_eq!(tokio::time::timeout(PATIENCE, follower.next()).await.unwrap().unwrap(), None);
    });
}

#[test]
fn there_is_no_log_of_a_slot_that_never_was() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogDir::open(dir.path(), LIMITS).unwrap();
    let slot = new_slot();
    assert!(logs.past(slot, None).unwrap().is_none());
    assert!(logs.past(slot, Some(Generation::new(1))).unwrap().is_none());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "asking makes nothing");
    for generation in [2, 10, 9] {
        logs.slot(slot, Generation::new(generation)).unwrap();
    }
    let newest = logs.past(slot, None).unwrap().unwrap();
    assert!(newest.path().ends_with("10.log"), "the last start, not the last name");
    assert!(logs.past(slot, Some(Generation::new(9))).unwrap().is_some());
}

#[test]
fn n3_what_was_written_while_no_agent_ran_is_there_for_the_next() {
    let agent = Agent::new(SpawnOptions::default());
    let slot = agent.sh("echo one; echo two", &[]);
    assert_eq!(slot.exit(), Exit::Code(0));
    let again = agent.logs.slot(slot.launch.slot, slot.launch.generation).unwrap();
    assert_eq!(again.tail(100).unwrap(), b"one\ntwo\n");
}

#[test]
fn only_some_starts_and_some_ended_slots_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogDir::open(dir.path(), LIMITS).unwrap();
    let slot = new_slot();
    for generation in 1..=9 {
        logs.slot(slot, Generation::new(generation)).unwrap();
    }
    let kept = |slot| std::fs::read_dir(dir.path().join(format!("{slot}"))).map_or(0, Iterator::count);
    assert_eq!(kept(slot), 3);
    let others: Vec<_> = (0..4).map(|_| new_slot()).collect();
    for other in &others {
        logs.slot(*other, Generation::new(1)).unwrap();
    }
    logs.prune(&BTreeSet::from([slot, others[0]]), 1).unwrap();
    assert_eq!(kept(slot), 3);
    assert_eq!(others.iter().map(|other| kept(*other)).sum::<usize>(), 2, "one that lives, one that ended");
    assert_eq!(kept(others[0]), 1);
}

#[test]
fn a_line_of_the_agent_stands_on_a_line_of_its_own_behind_what_the_program_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogDir::open(dir.path(), LIMITS).unwrap();
    let log = logs.slot(new_slot(), Generation::new(1)).unwrap();
    log.note("not started: no such program");
    assert_eq!(log.tail(1000).unwrap(), b"berth: not started: no such program\n");
    std::fs::OpenOptions::new()
        .append(true)
        .open(log.path())
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"half a line"))
        .unwrap();
    log.note("not ready");
    assert!(log.tail(1000).unwrap().ends_with(b"half a line\nberth: not ready\n"));
}
