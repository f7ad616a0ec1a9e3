//! What became of earlier attempts at a workload.

use berth_domain::{Attempt, ExitStatus, Generation, RunnerId, SlotId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::reason::Cause;

/// An attempt that is over: where it was, and why it ended. The log of its slot is not part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastAttempt {
    /// Which attempt.
    pub attempt: Attempt,
    /// The slot that it had.
    pub slot: SlotId,
    /// Which start of that slot was the last.
    pub generation: Generation,
    /// The runner that had the slot.
    pub runner: RunnerId,
    /// When it got its slot.
    pub began: Timestamp,
    /// When it began to run, if it did.
    pub ran: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// Why it ended.
    pub cause: Cause,
    /// How the first process of its slot ended, if it ended by itself.
    pub exit: Option<ExitStatus>,
}

/// The last attempts at a workload that are over, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PastAttempts(Vec<PastAttempt>);

impl PastAttempts {
    /// How many are kept.
    pub(crate) const KEPT: usize = 10;

    /// Adds the attempt that has just ended. Where there are too many, the oldest that was no failure of the workload's
    /// own goes first: a promise that was taken back ten times must not hide a crash.
    pub(crate) fn push(&mut self, attempt: PastAttempt) {
        self.0.push(attempt);
        if self.0.len() > Self::KEPT {
            let oldest = self.0.iter().position(|row| !row.cause.is_failure()).unwrap_or(0);
            self.0.remove(oldest);
        }
    }

    pub(crate) fn list(&self) -> &[PastAttempt] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::FailureReason;
    use uuid::Uuid;

    use super::*;

    fn past(number: u32, cause: Cause) -> PastAttempt {
        let at = Timestamp::from_millis(u64::from(number));
        PastAttempt {
            attempt: Attempt::new(number),
            slot: SlotId::new(Uuid::from_u128(u128::from(number))),
            generation: Generation::new(1),
            runner: RunnerId::new("r").unwrap(),
            began: at,
            ran: None,
            ended: at,
            cause,
            exit: None,
        }
    }

    #[test]
    fn a_few_attempts_are_kept_and_failures_longest() {
        let mut attempts = PastAttempts::default();
        attempts.push(past(1, Cause::SlotFailed(FailureReason::Crashed)));
        (2..=30).for_each(|number| attempts.push(past(number, Cause::PromiseWithdrawn)));
        let numbers: Vec<u32> = attempts.list().iter().map(|row| row.attempt.get()).collect();
        assert_eq!(numbers, [1, 22, 23, 24, 25, 26, 27, 28, 29, 30]);
        (31..=50).for_each(|number| attempts.push(past(number, Cause::SlotFailed(FailureReason::Crashed))));
        let numbers: Vec<u32> = attempts.list().iter().map(|row| row.attempt.get()).collect();
        assert_eq!(numbers, (41..=50).collect::<Vec<u32>>());
    }
}
