//! Space in the journal, which is reserved before a command is decided.
//!
//! A decision that could not be appended would end the process. So the writer asks for the space first, and a command
//! that finds none is turned away with 503 before anything is decided. A last reserve is kept for commands that give
//! memory back.

use berth_core::Command;
use berth_store::Journal;

use super::message::Execution;

/// Space for what may follow from a batch as a whole: timers that fire, promises that are kept.
pub(super) const BYTES_PER_BATCH: usize = 256 * 1024;
/// Space for what follows from one command, beside the bytes that it carries.
const BYTES_PER_COMMAND: usize = 8 * 1024;

/// The space that one batch has.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalSpace {
    /// The whole batch was reserved in one go.
    is_plentiful: bool,
    /// The bytes that were reserved so far, command by command, where the whole was not to be had.
    reserved: usize,
}

impl JournalSpace {
    /// Reserves space for a batch. The flag beside it says whether an ordinary write would find space: that is what
    /// makes the server ready.
    pub(super) fn reserve(journal: &mut impl Journal, batch: &[Execution]) -> (Self, bool) {
        let bytes: usize = batch.iter().map(|execution| journal_bytes_of(&execution.command)).sum();
        let is_plentiful = journal.reserve(BYTES_PER_BATCH + bytes, false).is_ok();
        let covers_a_write = is_plentiful && bytes >= BYTES_PER_COMMAND;
        let takes_writes = covers_a_write || journal.reserve(BYTES_PER_BATCH + BYTES_PER_COMMAND, false).is_ok();
        (Self { is_plentiful, reserved: BYTES_PER_BATCH }, takes_writes)
    }

    /// Whether there is space for one more command. A command that gives memory back may use the last of it.
    pub(super) fn admits(&mut self, command: &Command, journal: &mut impl Journal) -> bool {
        if self.is_plentiful {
            return true;
        }
        let wanted = self.reserved + journal_bytes_of(command);
        let is_admitted = journal.reserve(wanted, false).is_ok()
            || (gives_memory_back(command) && journal.reserve(wanted, true).is_ok());
        if is_admitted {
            self.reserved = wanted;
        }
        is_admitted
    }
}

/// Returns the bytes that a command may put into the journal: what it carries, and what follows from it.
pub(super) fn journal_bytes_of(command: &Command) -> usize {
    let args = |args: &[berth_domain::Arg]| args.iter().map(|arg| arg.as_str().len() * 2 + 8).sum::<usize>();
    let carried = match command {
        Command::Submit { submission, .. } => args(&submission.job.args),
        Command::PutModel { spec } => {
            let labels = spec.constraints.labels.iter().map(|(key, value)| key.as_str().len() + value.as_str().len());
            args(&spec.args) + labels.sum::<usize>() * 2 + spec.constraints.gpu_uuids.len() * 256
        }
        Command::Report(report) => {
            let labels = report.labels.iter().map(|(key, value)| key.as_str().len() + value.as_str().len());
            (report.gpus.len() + report.slots.len()) * 1024 + labels.sum::<usize>() * 2 + report.runtimes.len() * 128
        }
        _ => 0,
    };
    BYTES_PER_COMMAND + carried
}

/// Whether a command may prove a release, or only says that its sender is alive.
fn gives_memory_back(command: &Command) -> bool {
    matches!(
        command,
        Command::Report(_)
            | Command::Poll { .. }
            | Command::Tick
            | Command::Heartbeat { .. }
            | Command::Complete { .. }
            | Command::Cancel { .. }
            | Command::ForceRelease { .. }
    )
}
