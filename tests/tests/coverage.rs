//! Tests of the tests: the random histories reach what they are meant to reach.

use std::collections::BTreeMap;

use berth_core::Event;
use berth_tests::system_under_test::SystemUnderTest;
use berth_tests::transition::transitions;
use berth_tests::world::worlds;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// What random histories must reach, or the properties say little.
const WANTED: [&str; 38] = [
    "DeviceBackedOff",
    "DeviceDetached",
    "DeviceDisputed",
    "DeviceHealthChanged",
    "DrainDeadlinePassed",
    "ForeignChanged",
    "ForeignSampled",
    "MemoryCorrected",
    "MemoryJudged",
    "MemoryObserved",
    "ModelDeleted",
    "ProcessEnded",
    "PromiseKept",
    "PromiseWithdrawn",
    "Reserved",
    "RunnerBooted",
    "RunnerDrained",
    "RunnerForgotten",
    "RunnerLost",
    "RunnerReturned",
    "SlotCharged",
    "SlotDrainBegun",
    "SlotFailed",
    "SlotGranted",
    "SlotPlaced promised=false gpus=0",
    "SlotPlaced promised=false gpus=2",
    "SlotPlaced promised=true gpus=1",
    "SlotRestarted",
    "SlotReturned",
    "SlotStopping Evicted",
    "SlotStopping Idle",
    "SlotStopping Reserved",
    "SlotUnknown",
    "StopStalled",
    "StrayFound",
    "StrayReleased",
    "WorkloadForgotten",
    "WorkloadRequeued",
];

#[test]
fn random_histories_reach_every_kind_of_event() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..300 {
        let world = worlds().new_tree(&mut runner).expect("a world").current();
        let transitions = transitions(120).new_tree(&mut runner).expect("transitions").current();
        let mut run = SystemUnderTest::new(&world).unwrap_or_else(|failed| panic!("{failed}"));
        // What breaks is the business of the properties; here only what was reached counts.
        let _failed = transitions.iter().try_for_each(|transition| run.apply(transition));
        for (event, _) in &run.journal {
            let mut kind = format!("{event:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned();
            if let Event::SlotStopping { why, .. } = event {
                kind = format!("{kind} {why:?}");
            }
            if let Event::SlotPlaced(placed) = event {
                kind = format!("{kind} promised={} gpus={}", placed.promised, placed.claims.len());
            }
            *seen.entry(kind).or_default() += 1;
        }
    }
    let missing: Vec<&str> = WANTED.into_iter().filter(|kind| !seen.contains_key(*kind)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}\nseen: {seen:#?}");
}
