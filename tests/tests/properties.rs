//! Random worlds, random histories: what must be true is true after every step.

use berth_tests::acts::{Act, acts};
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
    #![proptest_config(config(48))]

    #[test]
    fn everything_stays_true(world in worlds(), acts in acts(120)) {
        if let Err(broken) = play(&world, &acts) {
            prop_assert!(false, "{broken}");
        }
    }
}
