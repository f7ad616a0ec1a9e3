//! The server starts on its data directory.

use berth_domain::{ClusterId, EpochTag};

use crate::command::Refusal;
use crate::event::Event;
use crate::state::State;

pub(super) fn start(state: &State, cluster: ClusterId, tag: EpochTag) -> Result<Vec<Event>, Refusal> {
    match state.cluster {
        Some(other) if other != cluster => Err(Refusal::OtherCluster(other)),
        _ => Ok(vec![Event::Started { cluster, epoch: state.epoch.next(), tag }]),
    }
}
