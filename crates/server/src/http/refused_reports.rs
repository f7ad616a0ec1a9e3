//! Warnings about reports of agents that were refused.
//!
//! An agent whose reports are refused looks silent to everybody who reads the listings, so the log says why. It tries
//! again and again, so the same refusal of the same runner is one line a minute.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::{Method, request::Parts};
use axum::response::Response;
use parking_lot::Mutex;

use super::problem::Failure;

/// The route of reports.
const ROUTE: &str = "/api/v1/runners/{id}/report";
/// The same refusal is told again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How many refusals are remembered. Strangers may name any runner; what they cost is bounded.
const REMEMBERED: usize = 1024;

/// A refusal of a runner's reports: the runner, the code, and the reason without its numbers, which may differ each time.
type Refused = (String, String, String);

/// What was told lately: when, and how often it was kept quiet since.
#[derive(Debug, Default)]
pub struct RefusedReports(Mutex<HashMap<Refused, (Instant, u64)>>);

impl RefusedReports {
    /// The runner that a request reports for, if it is a report.
    pub(super) fn runner_of(parts: &Parts, route: Option<&str>) -> Option<String> {
        let is_report = parts.method == Method::PUT && route == Some(ROUTE);
        is_report.then(|| parts.uri.path().split('/').nth(4).unwrap_or_default().to_owned())
    }

    /// Writes down that a report was refused, if it was.
    pub(super) fn note(&self, runner: &str, response: &Response) {
        let Some(Failure(problem)) = response.extensions().get::<Failure>() else { return };
        let reason = problem.detail.chars().filter(|letter| !letter.is_ascii_digit()).take(200).collect();
        let key = (runner.to_owned(), problem.code.clone(), reason);
        let Some(before) = self.is_due(key, Instant::now()) else { return };
        tracing::warn!(
            target: "berth::report",
            runner,
            code = problem.code,
            status = problem.status,
            repeated = Some(before).filter(|before| *before > 0),
            "a report of runner {runner} was refused: {}",
            problem.detail
        );
    }

    /// Whether it is time for a line, and how many refusals had none since the last one.
    fn is_due(&self, key: Refused, now: Instant) -> Option<u64> {
        let mut told = self.0.lock();
        if let Some((last, quiet)) = told.get_mut(&key)
            && now.duration_since(*last) < AGAIN_AFTER
        {
            *quiet += 1;
            return None;
        }
        if told.len() >= REMEMBERED {
            told.retain(|_, (last, _)| now.duration_since(*last) < AGAIN_AFTER);
        }
        if told.len() >= REMEMBERED && !told.contains_key(&key) {
            return None;
        }
        let before = told.insert(key, (now, 0));
        Some(before.map_or(0, |(_, quiet)| quiet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(runner: &str, code: &str) -> Refused {
        (runner.to_owned(), code.to_owned(), "no".to_owned())
    }

    #[test]
    fn the_same_refusal_is_one_line_a_minute() {
        let (reports, begin) = (RefusedReports::default(), Instant::now());
        assert_eq!(reports.is_due(key("a", "old_boot"), begin), Some(0));
        assert_eq!(reports.is_due(key("a", "old_boot"), begin), None);
        assert_eq!(reports.is_due(key("a", "superseded"), begin), Some(0), "another reason");
        assert_eq!(reports.is_due(key("b", "old_boot"), begin), Some(0), "another runner");
        assert_eq!(reports.is_due(key("a", "old_boot"), begin + AGAIN_AFTER), Some(1), "and how many were kept quiet");
    }

    #[test]
    fn strangers_cannot_fill_the_memory() {
        let (reports, begin) = (RefusedReports::default(), Instant::now());
        for number in 0..2 * REMEMBERED {
            let _ = reports.is_due(key(&number.to_string(), "unauthenticated"), begin);
        }
        assert_eq!(reports.0.lock().len(), REMEMBERED);
        let later = begin + AGAIN_AFTER;
        assert_eq!(reports.is_due(key("new", "superseded"), later), Some(0));
    }
}
