//! Random worlds, random histories: what must be true is true after every step.

use berth_core::{Command, invariants, step};
use berth_domain::Span;
use berth_tests::acts::{Act, acts};
use berth_tests::checks::difference;
use berth_tests::names;
use berth_tests::run::{Run, config};
use berth_tests::world::{World, worlds};
use proptest::prelude::*;

fn play(world: &World, acts: &[Act]) -> Result<Run, String> {
    let mut run = Run::new(world).map_err(|broken| broken.to_string())?;
    for act in acts {
        run.act(act).map_err(|broken| run.told(&broken))?;
    }
    Ok(run)
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn everything_stays_true(world in worlds(), acts in acts(120)) {
        if let Err(broken) = play(&world, &acts) {
            prop_assert!(false, "{broken}");
        }
    }

    #[test]
    fn a_restart_forgets_nothing(world in worlds(), acts in acts(60), after in 0u64..30_000) {
        let run = match play(&world, &acts) {
            Ok(run) => run,
            Err(text) => return Err(TestCaseError::fail(text)),
        };
        let at = run.now.after(Span::from_millis(after));
        let start = Command::Start { cluster: names::cluster() };
        let (mut lived, mut replayed) = (run.state.clone(), run.replayed());
        let (first, second) = (step(&mut lived, &start, at), step(&mut replayed, &start, at));
        prop_assert_eq!(first.events, second.events, "what a start finds to do");
        prop_assert_eq!(lived.fingerprint(), replayed.fingerprint(), "{}", difference(&lived, &replayed));
        invariants::check(&replayed).map_err(|violation| TestCaseError::fail(violation.to_string()))?;
    }
}
