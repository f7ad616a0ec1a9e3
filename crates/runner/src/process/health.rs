//! The health of a slot, as a function of time and answers. Pure: it sends no probes itself.

use std::fmt;

use berth_domain::{Span, Timestamp};

use crate::runtime::{Launch, Live, Question, Ready};

/// The result of one health probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// The program is healthy.
    Healthy,
    /// The program answers with another status, or with something that is not HTTP.
    Unhealthy(Option<u16>),
    /// The program is healthy, but does not name the model: it answers with this status, or without the model.
    WithoutModel(Option<u16>),
    /// The program does not answer.
    Silent,
}

impl fmt::Display for Probed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("it answered with yes"),
            Self::Unhealthy(Some(status)) => write!(f, "it answered {status}"),
            Self::Unhealthy(None) => f.write_str("it answered with something that is not HTTP"),
            Self::WithoutModel(Some(status)) => {
                write!(f, "it was healthy and answered {status} to the question for the model")
            }
            Self::WithoutModel(None) => f.write_str("it was healthy and did not name the model"),
            Self::Silent => f.write_str("it did not answer"),
        }
    }
}

/// A change of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// The program serves.
    Ready,
    /// The program did not serve before its deadline.
    NeverReady,
    /// The program served and does no longer.
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthPhase {
    Starting,
    Ready { failures: u32 },
    Over,
}

/// The health of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthState {
    ready: Option<(Ready, Question)>,
    live: Option<Live>,
    started: Timestamp,
    next: Timestamp,
    phase: HealthPhase,
    /// The last answer, for the message when the slot is given up.
    last: Option<Probed>,
}

impl HealthState {
    /// The shortest interval between probes: the first comes at once, the next ones soon after.
    const SHORTEST: Span = Span::from_millis(5);

    /// Returns the health of a program that was started now.
    #[must_use]
    pub fn starting(launch: &Launch, now: Timestamp) -> Self {
        let (ready, live) = (launch.ready.clone(), launch.live.clone());
        Self { ready, live, started: now, next: now, phase: HealthPhase::Starting, last: None }
    }

    /// Returns the health of an adopted program that is known to have served.
    #[must_use]
    pub fn serving(launch: &Launch, now: Timestamp) -> Self {
        Self { phase: HealthPhase::Ready { failures: 0 }, ..Self::starting(launch, now) }
    }

    /// Returns whether the program serves, as far as is known.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, HealthPhase::Ready { .. })
    }

    /// Returns when to look again: for a probe or for a deadline. Returns `None` if time alone will change nothing.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        match (self.phase, &self.ready, &self.live) {
            (HealthPhase::Starting, Some((ready, _)), _) => Some(self.next.min(self.started.after(ready.deadline))),
            (HealthPhase::Starting, None, _) => Some(self.started),
            (HealthPhase::Ready { .. }, _, Some(_)) => Some(self.next),
            (HealthPhase::Ready { .. }, _, None) | (HealthPhase::Over, ..) => None,
        }
    }

    /// Returns the probe to send now, if it is time. The caller sends it once and passes the answer to
    /// [`HealthState::observe`].
    pub fn due(&mut self, now: Timestamp) -> Option<Question> {
        if now < self.next {
            return None;
        }
        let (question, pause) = match (self.phase, &self.ready, &self.live) {
            // A program that starts fast is probed often; one that takes minutes is not.
            (HealthPhase::Starting, Some((ready, question)), _) => {
                let eighth = Span::from_millis(now.since(self.started).millis() / 8);
                (question.clone(), eighth.max(Self::SHORTEST).min(ready.every))
            }
            (HealthPhase::Ready { .. }, _, Some(live)) => {
                (Question { path: live.path.clone(), model: None }, live.every)
            }
            _ => return None,
        };
        self.next = now.after(pause);
        Some(question)
    }

    /// Returns what time alone has changed: a deadline that has passed, or a program that only has to run.
    pub fn tick(&mut self, now: Timestamp) -> Option<HealthChange> {
        match (self.phase, &self.ready) {
            (HealthPhase::Starting, None) => Some(self.enter_ready(now)),
            (HealthPhase::Starting, Some((ready, _))) if now >= self.started.after(ready.deadline) => {
                self.phase = HealthPhase::Over;
                Some(HealthChange::NeverReady)
            }
            _ => None,
        }
    }

    /// Returns what an answer has changed.
    pub fn observe(&mut self, now: Timestamp, probed: Probed) -> Option<HealthChange> {
        self.last = Some(probed);
        match (&mut self.phase, probed) {
            (HealthPhase::Starting, Probed::Healthy) => Some(self.enter_ready(now)),
            (HealthPhase::Starting, _) => self.tick(now),
            (HealthPhase::Ready { failures }, Probed::Healthy) => {
                *failures = 0;
                None
            }
            (HealthPhase::Ready { failures }, _) => {
                *failures += 1;
                let limit = self.live.as_ref().map_or(u32::MAX, |live| live.failures.max(1));
                (*failures >= limit).then(|| {
                    self.phase = HealthPhase::Over;
                    HealthChange::Dead
                })
            }
            (HealthPhase::Over, _) => None,
        }
    }

    /// Returns why the slot was given up, as text: the probe, how long or how often, and the last answer.
    #[must_use]
    pub fn verdict(&self, change: HealthChange) -> Option<String> {
        let last = self.last.map(|probed| format!("; the last time {probed}")).unwrap_or_default();
        match (change, &self.ready, &self.live) {
            (HealthChange::NeverReady, Some((Ready { deadline, .. }, Question { path, model })), _) => {
                let model = model.as_ref().map(|model| format!(" and GET {} with the model's name", model.path));
                let model = model.unwrap_or_default();
                Some(format!("not ready: GET {path} was not answered with 2xx{model} within {deadline}{last}"))
            }
            (HealthChange::Dead, _, Some(Live { path, failures, .. })) => {
                Some(format!("no longer alive: GET {path} failed {failures} times in a row{last}"))
            }
            _ => None,
        }
    }

    fn enter_ready(&mut self, now: Timestamp) -> HealthChange {
        self.phase = HealthPhase::Ready { failures: 0 };
        self.next = self.live.as_ref().map_or(now, |live| now.after(live.every));
        HealthChange::Ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::ModelQuestion;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn state(ready: Option<Ready>, live: Option<Live>) -> HealthState {
        let ready = ready.map(|ready| (ready.clone(), Question { path: ready.path, model: None }));
        HealthState { ready, live, started: at(0), next: at(0), phase: HealthPhase::Starting, last: None }
    }

    fn ready() -> Option<Ready> {
        Some(Ready {
            path: "/r".into(),
            model_path: None,
            every: Span::from_millis(200),
            deadline: Span::from_secs(10),
        })
    }

    fn live() -> Option<Live> {
        Some(Live { path: "/l".into(), every: Span::from_secs(5), failures: 3 })
    }

    #[test]
    fn a_fast_start_is_noticed_fast_and_a_slow_one_is_probed_rarely() {
        let mut health = state(ready(), None);
        let mut asked = Vec::new();
        for now in 0..4000 {
            if health.due(at(now)).is_some() {
                asked.push(now);
            }
        }
        assert_eq!(asked[..4], [0, 5, 10, 15]);
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= (pair[0] / 8).clamp(5, 200)), "{asked:?}");
        assert_eq!(asked[asked.len() - 1] - asked[asked.len() - 2], 200);
    }

    #[test]
    fn n9_health_that_is_never_green_ends_at_the_deadline_even_if_no_answer_comes() {
        let mut health = state(ready(), None);
        assert_eq!(health.observe(at(9_999), Probed::Silent), None);
        assert_eq!(health.tick(at(10_000)), Some(HealthChange::NeverReady));
        assert_eq!(health.observe(at(10_001), Probed::Healthy), None, "it is over");
        assert_eq!(health.next(), None);
    }

    #[test]
    fn the_verdict_names_the_probe_and_the_last_answer() {
        let mut health = state(ready(), live());
        assert_eq!(health.observe(at(1), Probed::Unhealthy(Some(404))), None);
        let given_up = "not ready: GET /r was not answered with 2xx within 10s; the last time it answered 404";
        assert_eq!(health.verdict(HealthChange::NeverReady).as_deref(), Some(given_up));
        assert_eq!(health.observe(at(2), Probed::Silent), None);
        let dead = "no longer alive: GET /l failed 3 times in a row; the last time it did not answer";
        assert_eq!(health.verdict(HealthChange::Dead).as_deref(), Some(dead));
        assert_eq!(health.verdict(HealthChange::Ready), None);
    }

    #[test]
    fn a_healthy_program_without_the_model_is_not_ready_and_says_so() {
        let mut health = state(ready(), live());
        let model = ModelQuestion { path: "/v1/models/x".into(), names: vec!["x".into()] };
        if let Some((_, question)) = &mut health.ready {
            question.model = Some(model);
        }
        assert_eq!(health.observe(at(1), Probed::WithoutModel(Some(404))), None);
        assert!(!health.is_ready());
        let given_up = "not ready: GET /r was not answered with 2xx and GET /v1/models/x with the model's name within 10s; \
                        the last time it was healthy and answered 404 to the question for the model";
        assert_eq!(health.verdict(HealthChange::NeverReady).as_deref(), Some(given_up));
        assert_eq!(health.observe(at(2), Probed::Healthy), Some(HealthChange::Ready));
    }

    #[test]
    fn one_failure_is_not_dead_and_a_success_resets_the_count() {
        let mut health = state(ready(), live());
        assert_eq!(health.observe(at(100), Probed::Healthy), Some(HealthChange::Ready));
        assert_eq!(health.next(), Some(at(5_100)));
        assert_eq!(health.due(at(5_100)), Some(Question { path: "/l".into(), model: None }));
        for probed in [Probed::Silent, Probed::Unhealthy(None), Probed::Healthy, Probed::Silent, Probed::Silent] {
            assert_eq!(health.observe(at(6_000), probed), None);
        }
        assert_eq!(health.observe(at(7_000), Probed::Unhealthy(Some(503))), Some(HealthChange::Dead));
    }

    #[test]
    fn without_a_path_it_serves_as_soon_as_it_runs() {
        let mut health = state(None, None);
        assert_eq!(health.due(at(0)), None);
        assert_eq!(health.tick(at(0)), Some(HealthChange::Ready));
        assert_eq!((health.tick(at(1)), health.next()), (None, None));
    }
}
