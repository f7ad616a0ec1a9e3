//! Hostile commands between ordinary ones: nothing panics, what is refused changes nothing.

use berth_tests::acts::{Act, acts};
use berth_tests::hostile::{Blow, blows};
use berth_tests::run::{Run, config};
use berth_tests::world::{World, worlds};
use proptest::prelude::*;

fn fight(world: &World, acts: &[Act], blows: &[Blow]) -> Result<(), String> {
    let mut run = Run::new(world).map_err(|broken| broken.to_string())?;
    let (mut acts, mut blows) = (acts.iter(), blows.iter());
    loop {
        let next = (acts.next(), blows.next());
        let done = match next {
            (None, None) => return Ok(()),
            (act, blow) => {
                act.map_or(Ok(()), |act| run.act(act)).and_then(|()| blow.map_or(Ok(()), |blow| run.suffer(blow)))
            }
        };
        done.map_err(|broken| run.told(&broken))?;
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn nothing_panics_and_refusals_change_nothing(
        world in worlds(),
        acts in acts(40),
        blows in prop::collection::vec(blows(), 1..60),
    ) {
        if let Err(text) = fight(&world, &acts, &blows) {
            prop_assert!(false, "{text}");
        }
    }
}
