//! An agent polls.

use berth_domain::{Incarnation, ObeyedAnswer, RunnerId, Timestamp};

use super::history;
use crate::command::Refusal;
use crate::event::Event;
use crate::state::{Liveness, State};

/// A poll counts as a heartbeat, from the newest incarnation only.
pub(super) fn poll(
    state: &State,
    id: &RunnerId,
    incarnation: Incarnation,
    obeyed: Option<ObeyedAnswer>,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let (_, runner) = state
        .runners
        .find(id)
        .filter(|(_, row)| !row.is_forgotten())
        .ok_or_else(|| Refusal::UnknownRunner(id.clone()))?;
    if incarnation < runner.incarnation {
        return Err(Refusal::Superseded { runner: id.clone(), current: runner.incarnation, named: incarnation });
    }
    if incarnation > runner.incarnation {
        return Err(Refusal::NotRegistered { runner: id.clone(), named: incarnation });
    }
    let mut events = history::judge_obeyed(state, id, obeyed, now);
    // A lost runner returns with a report: only that says what it still runs.
    if runner.liveness == Liveness::Suspect {
        events.push(Event::RunnerReturned { runner: id.clone() });
    }
    events.push(Event::RunnerSeen { runner: id.clone(), sequence: None });
    Ok(events)
}
