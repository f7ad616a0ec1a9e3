//! Nothing waits for ever, and nothing stays charged: steady arrivals of one priority in random small fleets.
//!
//! Leases and jobs have a bounded length, agents do what they are told, and no model is pinned or has a minimum. Then each
//! workload that was taken in runs within a bound: the age limit, and for each workload of the run the longest time that
//! one can be in the way of another. After arrivals stop and everything is done, no memory is charged and nothing waits.

use std::collections::BTreeMap;

use berth_core::{Answer, Command, WaitReason};
use berth_domain::{
    JobSpec, Replicas, ReportedState, Span, Submission, Timestamp, WorkloadId, WorkloadKind, WorkloadState,
};
use berth_tests::names;
use berth_tests::system_under_test::{AssertionResult, FailedAssertion, SystemUnderTest, config};
use berth_tests::world::{World, settings, worlds};
use proptest::prelude::*;

/// Seconds that a lease or a job runs at most.
const LONGEST: u64 = 12;
/// Seconds that are lost on the way, at most: a slot is stopped, another one started, a minimum run is over, a review of
/// the reservations comes, an idle slot is noticed.
const OVERHEAD: u64 = 12;

/// What arrives: after so many seconds, for which model, a job or a lease, for how long.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    after: u64,
    model: usize,
    job: bool,
    seconds: u64,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let arrival = (0u64..4, 0usize..8, prop::bool::weighted(0.35), 1..=LONGEST);
    let arrival = arrival.prop_map(|(after, model, job, seconds)| Arrival { after, model, job, seconds });
    prop::collection::vec(arrival, 10..60)
}

/// Returns the world without pinned models and minimums, in which all runners agree about their GPUs.
fn without_what_must_stay(mut world: World) -> World {
    for model in &mut world.models {
        model.replicas = Replicas { min: 0, max: model.replicas.max, pinned: false };
    }
    world
}

struct Day {
    run: SystemUnderTest,
    /// When each workload was submitted, and for how long it runs.
    known: BTreeMap<WorkloadId, (Timestamp, u64)>,
    /// When each began to run.
    began: BTreeMap<WorkloadId, Timestamp>,
    bound: Span,
}

impl Day {
    fn submit(&mut self, number: u64, arrival: Arrival, models: usize) -> AssertionResult {
        let model = names::model(arrival.model % models);
        let submission = if arrival.job { Submission::job(model) } else { Submission::lease(model) };
        let submission = Submission { job: JobSpec::default(), ..submission };
        let workload = names::workload(number);
        let done = self.run.send(Command::Submit { workload, submission, limits: None })?;
        if !matches!(done.answer, Ok(Answer::Submitted { .. })) {
            return Ok(());
        }
        // Without any GPU it waits for a machine that has one, and not for its turn.
        if self.run.state.workload(workload).and_then(|row| row.waits) == Some(WaitReason::NoGpus) {
            return self.run.send(Command::Cancel { workload }).map(|_| ());
        }
        self.known.insert(workload, (self.run.now, arrival.seconds));
        Ok(())
    }

    /// Lets a second pass: agents work and report, finished work leaves, and no workload has waited too long.
    fn second(&mut self) -> AssertionResult {
        self.run.now = self.run.now.after(Span::from_secs(1));
        for agent in 0..self.run.agents.len() {
            self.run.agents[agent].work(&self.run.state);
            self.run.report(agent)?;
        }
        for row in self.run.state.workloads() {
            let Some((submitted, seconds)) = self.known.get(&row.id).copied() else { continue };
            match row.state {
                WorkloadState::Running => {
                    let began = *self.began.entry(row.id).or_insert(self.run.now);
                    if self.run.now.since(began) >= Span::from_secs(seconds) {
                        self.finish(row.id, row.kind, row.attempt)?;
                    }
                }
                WorkloadState::Queued | WorkloadState::Assigned if !self.began.contains_key(&row.id) => {
                    let waited = self.run.now.since(submitted);
                    if waited > self.bound {
                        let text = format!("{waited} of at most {}: {row:?}", self.bound);
                        return Err(FailedAssertion { check: "nothing starves", text });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(&mut self, id: WorkloadId, kind: WorkloadKind, attempt: berth_domain::Attempt) -> AssertionResult {
        if kind == WorkloadKind::Lease {
            return self.run.send(Command::Complete { workload: id, attempt, succeeded: true }).map(|_| ());
        }
        let Some(slot) = self.run.state.workload(id).and_then(|row| row.slot) else { return Ok(()) };
        for agent in 0..self.run.agents.len() {
            if self.run.agents[agent].sim.slots.contains_key(&slot) {
                self.run.agents[agent].put(slot, ReportedState::Exited { code: 0 });
                self.run.report(agent)?;
            }
        }
        Ok(())
    }
}

fn play(world: &World, arrivals: &[Arrival]) -> AssertionResult {
    let mut run = SystemUnderTest::new(world)?;
    // Brute force judges the same decisions in other properties.
    run.assertions.checks_placement = false;
    let count = u64::try_from(arrivals.len()).unwrap_or(u64::MAX);
    let bound = settings().age_limit.millis() / 1000 + (count + 1) * (LONGEST + OVERHEAD);
    let mut day = Day { run, known: BTreeMap::new(), began: BTreeMap::new(), bound: Span::from_secs(bound) };
    for (number, arrival) in (0..).zip(arrivals) {
        for _ in 0..arrival.after {
            day.second()?;
        }
        day.submit(number, *arrival, world.models.len())?;
    }
    let ends = day.run.now.after(Span::from_secs(bound + 200));
    let is_quiet = |day: &Day| day.run.state.slots().is_empty() && day.run.state.queue().is_empty();
    while day.run.now < ends && !is_quiet(&day) {
        day.second()?;
    }
    let (queue, slots) = (day.run.state.queue(), day.run.state.slots());
    let charged: Vec<_> = day.run.state.devices().into_iter().filter(|device| !device.claims.is_empty()).collect();
    let kept = day.run.state.reservations();
    if queue.is_empty() && slots.is_empty() && charged.is_empty() && kept.is_empty() {
        return Ok(());
    }
    let text = format!("queue {queue:?}\nslots {slots:?}\ncharged {charged:?}\nkept {kept:?}");
    Err(FailedAssertion { check: "all is quiet in the end", text })
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn every_workload_runs_within_a_bound_and_all_memory_comes_back(world in worlds(), arrivals in arrivals()) {
        let world = without_what_must_stay(world);
        if let Err(failed) = play(&world, &arrivals) {
            prop_assert!(false, "{failed}");
        }
    }
}
