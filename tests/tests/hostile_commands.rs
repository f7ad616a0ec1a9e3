//! Hostile commands between ordinary ones: nothing panics, what is refused changes nothing.

use berth_tests::hostile_command::{HostileCommand, hostile_commands};
use berth_tests::system_under_test::{SystemUnderTest, config};
use berth_tests::transition::{Transition, transitions};
use berth_tests::world::{World, worlds};
use proptest::prelude::*;

fn play(world: &World, transitions: &[Transition], hostile: &[HostileCommand]) -> Result<(), String> {
    let mut run = SystemUnderTest::new(world).map_err(|failed| failed.to_string())?;
    let (mut transitions, mut hostile) = (transitions.iter(), hostile.iter());
    loop {
        let next = (transitions.next(), hostile.next());
        let done = match next {
            (None, None) => return Ok(()),
            (transition, command) => transition
                .map_or(Ok(()), |transition| run.apply(transition))
                .and_then(|()| command.map_or(Ok(()), |command| run.apply_hostile(command))),
        };
        done.map_err(|failed| run.describe(&failed))?;
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn nothing_panics_and_refusals_change_nothing(
        world in worlds(),
        transitions in transitions(40),
        hostile in prop::collection::vec(hostile_commands(), 1..60),
    ) {
        if let Err(text) = play(&world, &transitions, &hostile) {
            prop_assert!(false, "{text}");
        }
    }
}
