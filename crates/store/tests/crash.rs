//! Crashes and failures at every single change that a journal makes to its disk, not at a sample of them.
#![expect(clippy::panic, reason = "tests")]

mod common;

use std::{collections::HashSet, io::ErrorKind};

use berth_store::sim::{Effect, Fault, SimDisk, Survival, survivals};
use common::{Story, goes_on, live, open_on, read, recovered};

const EFFECTS: [Effect; 3] = [Effect::Nothing, Effect::Half, Effect::Everything];

/// How many changes the whole script makes.
fn changes() -> u64 {
    let disk = SimDisk::new();
    let story = live(&disk);
    assert!(story.stopped.is_none() && story.not_compacted == 0 && story.refused == 0, "{story:?}");
    assert_eq!(read(&disk), story.acknowledged);
    disk.operations()
}

fn stopped_at(at: u64, effect: Effect) -> (SimDisk, Story) {
    let disk = SimDisk::new();
    disk.plan(Some(Fault::Stop { at, effect }));
    let story = live(&disk);
    (disk, story)
}

/// Opens a disk that a crash left, and checks what a server would find there.
fn check(disk: &SimDisk, story: &Story, case: &dyn Fn() -> String) -> bool {
    let opened = open_on(disk).unwrap_or_else(|error| panic!("{}: refused: {error}", case()));
    let cut = opened.recovered.cut.is_some();
    assert!(opened.recovered.passed_over.is_empty(), "{}", case());
    let found = recovered(opened.recovered);
    assert!(
        story.allows(&found),
        "{}: {} found, {} acknowledged, {} under way",
        case(),
        found.len(),
        story.acknowledged.len(),
        story.under_way.len()
    );
    goes_on(disk, &found).unwrap_or_else(|error| panic!("{}: does not go on: {error}", case()));
    cut
}

#[test]
fn s1_s2_power_cut_at_every_change_with_every_survival() {
    let (mut cases, mut cuts) = (0, 0);
    for at in 1..=changes() {
        for effect in EFFECTS {
            let (disk, story) = stopped_at(at, effect);
            for survival in survivals(&disk.pending()) {
                let case = || format!("stopped at change {at} ({effect:?}), kept {survival:?}");
                cuts += usize::from(check(&disk.crash(&survival), &story, &case));
                cases += 1;
            }
        }
    }
    // The cases that this test is about did occur.
    assert!(cases > 5000 && cuts > 500, "{cases} cases, {cuts} cuts");
    println!("{} changes, {cases} crashes, {cuts} torn tails cut", changes());
}

#[test]
fn s1_a_killed_process_then_a_power_cut_loses_nothing_that_was_read_back() {
    for at in 1..=changes() {
        for effect in EFFECTS {
            let (disk, story) = stopped_at(at, effect);
            let disk = disk.fork();
            let found = read(&disk);
            assert!(story.allows(&found), "change {at}");
            // A server that starts here tells the world what it found.
            assert_eq!(read(&disk.crash(&Survival::nothing())), found, "change {at}");
        }
    }
}

#[test]
fn s2_power_cut_at_every_change_of_recovery_itself() {
    let mut cases = 0;
    let mut seen = HashSet::new();
    for at in 1..=changes() {
        let (disk, story) = stopped_at(at, Effect::Everything);
        for survival in survivals(&disk.pending()) {
            let left = disk.crash(&survival);
            if !seen.insert((left.files(), story.acknowledged.len())) {
                continue;
            }
            for again in 1.. {
                let disk = left.fork();
                disk.plan(Some(Fault::Stop { at: again, effect: Effect::Everything }));
                if open_on(&disk).is_ok() {
                    break;
                }
                for survival in survivals(&disk.pending()) {
                    let case = || format!("stopped at change {at}, then at {again} of recovery, kept {survival:?}");
                    check(&disk.crash(&survival), &story, &case);
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 5000, "{cases} cases");
    println!("{cases} crashes of recovery");
}

#[test]
fn s2_disk_full_at_every_change_loses_nothing_and_goes_on_when_there_is_space() {
    let (mut refused, mut fatal) = (0, 0);
    for at in 1..=changes() {
        for (effect, lasting) in [(Effect::Nothing, false), (Effect::Nothing, true), (Effect::Half, true)] {
            let disk = SimDisk::new();
            disk.plan(Some(Fault::Fail { at, kind: ErrorKind::StorageFull, effect, lasting }));
            let story = live(&disk);
            refused += story.refused;
            fatal += usize::from(story.stopped.is_some());
            disk.plan(None);
            let case = || format!("full at change {at} ({effect:?}, lasting {lasting})");
            check(&disk.fork(), &story, &case);
            check(&disk.crash(&Survival::nothing()), &story, &case);
        }
    }
    assert!(refused > 5 && fatal > 5, "{refused} refused, {fatal} fatal");
}

#[test]
fn s2_an_error_at_every_change_poisons_or_passes_and_loses_nothing() {
    let mut fatal = 0;
    for at in 1..=changes() {
        for effect in EFFECTS {
            let disk = SimDisk::new();
            disk.plan(Some(Fault::Fail { at, kind: ErrorKind::Other, effect, lasting: false }));
            let story = live(&disk);
            fatal += usize::from(story.stopped.is_some());
            disk.plan(None);
            for survival in survivals(&disk.pending()) {
                let case = || format!("error at change {at} ({effect:?}), kept {survival:?}");
                check(&disk.crash(&survival), &story, &case);
            }
            // The process exits and is started again; a sync that gave up on bytes has left them to be read.
            let disk = disk.fork();
            let found = read(&disk);
            assert!(story.allows(&found), "error at change {at} ({effect:?})");
            assert_eq!(read(&disk.crash(&Survival::nothing())), found, "error at change {at} ({effect:?})");
        }
    }
    assert!(fatal > 20, "{fatal} fatal");
}
