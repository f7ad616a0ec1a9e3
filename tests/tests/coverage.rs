//! Tests of the tests: the random histories reach what they are meant to reach.

use std::collections::BTreeMap;

use berth_core::Event;
use berth_tests::acts::acts;
use berth_tests::run::Run;
use berth_tests::world::worlds;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// What random histories must reach, or the properties say little.
const WANTED: [&str; 0] = [];

#[test]
fn random_histories_reach_every_kind_of_event() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..150 {
        let world = worlds().new_tree(&mut runner).expect("a world").current();
        let acts = acts(120).new_tree(&mut runner).expect("acts").current();
        let mut run = Run::new(&world).unwrap_or_else(|broken| panic!("{broken}"));
        for act in &acts {
            run.act(act).unwrap_or_else(|broken| panic!("{}", run.told(&broken)));
        }
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
    println!("{seen:?}");
    let missing: Vec<&str> = WANTED.into_iter().filter(|kind| !seen.contains_key(*kind)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}\nseen: {seen:#?}");
}
