//! Random worlds, random histories: what must be true is true after every step.

use berth_core::{Command, Settings, invariants, step};
use berth_domain::{EpochTag, Span};
use berth_tests::assertions::difference;
use berth_tests::names;
use berth_tests::system_under_test::{SystemUnderTest, config};
use berth_tests::transition::{Transition, transitions};
use berth_tests::world::{World, worlds};
use proptest::prelude::*;

fn play(world: &World, transitions: &[Transition]) -> Result<SystemUnderTest, String> {
    let mut run = SystemUnderTest::new(world).map_err(|failed| failed.to_string())?;
    for transition in transitions {
        run.apply(transition).map_err(|failed| run.describe(&failed))?;
    }
    Ok(run)
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn c5_random_histories_place_as_brute_force_does_and_keep_every_invariant(world in worlds(), transitions in transitions(120)) {
        if let Err(failed) = play(&world, &transitions) {
            prop_assert!(false, "{failed}");
        }
    }

    #[test]
    fn a_restart_forgets_nothing(world in worlds(), transitions in transitions(60), after in 0u64..30_000) {
        let run = match play(&world, &transitions) {
            Ok(run) => run,
            Err(text) => return Err(TestCaseError::fail(text)),
        };
        let at = run.now.after(Span::from_millis(after));
        let start = Command::Start { cluster: names::cluster(), tag: EpochTag::default() };
        let (mut lived, mut replayed) = (run.state.clone(), run.replayed());
        let (first, second) = (step(&mut lived, &start, at), step(&mut replayed, &start, at));
        prop_assert_eq!(first.events, second.events, "what a start finds to do");
        prop_assert_eq!(lived.fingerprint(), replayed.fingerprint(), "{}", difference(&lived, &replayed));
        invariants::check(&replayed).map_err(|violation| TestCaseError::fail(violation.to_string()))?;
    }

    /// What an event means does not depend on the configuration of the server that reads it.
    #[test]
    fn a_replay_does_not_depend_on_settings(world in worlds(), transitions in transitions(60)) {
        let run = match play(&world, &transitions) {
            Ok(run) => run,
            Err(text) => return Err(TestCaseError::fail(text)),
        };
        let others = Settings {
            min_run: Span::from_secs(9_999),
            backoff: Span::from_secs(77),
            backoff_limit: Span::from_secs(7_777),
            attempts: 9,
            forgive_after: Span::from_secs(1),
            age_limit: Span::from_secs(1),
            ..Settings::default()
        };
        let (same, other) = (run.replayed(), run.replayed_with(others));
        prop_assert_eq!(same.fingerprint(), other.fingerprint(), "{}", difference(&same, &other));
    }
}
