//! Snapshots, made beside the writer: the last snapshot and the complete segments after it are folded into a state of
//! the compactor's own, which is written down. The writer never waits for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_core::Settings;
use berth_domain::{Bytes, Revision};
use berth_store::{CompactError, Compactor, Keep, ReadError};

use crate::engine::{BootError, Recovery};

/// How often the size of the journal is looked at.
const EVERY: Duration = Duration::from_secs(5);

/// Why no snapshot was made. The journal is as good as before.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Fold(#[from] BootError),
    #[error(transparent)]
    Write(#[from] CompactError),
}

/// The compactor's thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Compaction {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Compaction {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Starts to look after the journal: a snapshot after every `after` bytes of complete segments.
pub fn start(compactor: Compactor, settings: Settings, after: Bytes, from: Revision) -> std::io::Result<Compaction> {
    let (stop, stopped) = sync_channel(0);
    let keeper = Keeper { compactor, settings, after: after.get(), last: from };
    let thread = std::thread::Builder::new().name("compactor".into()).spawn(move || keeper.look_after(&stopped))?;
    Ok(Compaction { stop: Some(stop), thread: Some(thread) })
}

struct Keeper {
    compactor: Compactor,
    settings: Settings,
    after: u64,
    /// The revision of the last snapshot.
    last: Revision,
}

impl Keeper {
    fn look_after(mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let sealed = self.compactor.sealed();
            let new = sealed.iter().filter(|segment| segment.last > self.last);
            let bytes: u64 = new.clone().map(|segment| segment.bytes).sum();
            let Some(until) = new.map(|segment| segment.last).next_back().filter(|_| bytes >= self.after) else {
                continue;
            };
            let begun = Instant::now();
            match self.compact(until) {
                Ok(size) => tracing::info!(
                    revision = until.get(),
                    journal_bytes = bytes,
                    snapshot_bytes = size,
                    ms = begun.elapsed().as_millis(),
                    "a snapshot was made"
                ),
                Err(error) => tracing::error!(%error, "no snapshot was made; the journal goes on growing"),
            }
        }
    }

    fn compact(&mut self, until: Revision) -> Result<u64, Failed> {
        let base = self.compactor.newest()?;
        let after = base.as_ref().map(|snapshot| snapshot.revision).unwrap_or_default();
        let mut recovery =
            Recovery::begin(self.settings.clone(), base.as_ref().map(|snapshot| snapshot.payload.as_slice()))?;
        drop(base);
        for record in self.compactor.records(after) {
            let record = record?;
            recovery.replay(record.last, &record.payload)?;
            if record.last == until {
                break;
            }
        }
        let mut size = 0;
        self.compactor.install(until, |to| {
            let mut counted = Counted { to, bytes: &mut size };
            recovery.snapshot(&mut counted)
        })?;
        self.last = until;
        self.compactor.remove(Keep::NewestTwo)?;
        Ok(size)
    }
}

struct Counted<'a> {
    to: &'a mut dyn std::io::Write,
    bytes: &'a mut u64,
}

impl std::io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        *self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}
