//! Snapshots of the state, so that the journal may forget its beginning. The writer copies the state between batches;
//! writing it down happens here, beside the writer.

use std::io::{BufWriter, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_core::Snapshot;
use berth_domain::{Bytes, Revision};
use berth_store::{CompactError, Compactor, Keep};

use crate::writer::Writer;

/// How often the size of the journal is looked at.
const EVERY: Duration = Duration::from_secs(5);
/// What is gathered before it goes to the snapshot's file: it is written in pieces of a few bytes.
const BUFFER: usize = 64 * 1024;

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
pub fn start(compactor: Compactor, writer: Writer, after: Bytes, from: Revision) -> std::io::Result<Compaction> {
    let (stop, stopped) = sync_channel(0);
    let keeper = Keeper { compactor, writer, after: after.get(), last: from };
    let thread = std::thread::Builder::new().name("compactor".into()).spawn(move || keeper.look_after(&stopped))?;
    Ok(Compaction { stop: Some(stop), thread: Some(thread) })
}

struct Keeper {
    compactor: Compactor,
    writer: Writer,
    after: u64,
    /// The revision of the last snapshot.
    last: Revision,
}

impl Keeper {
    fn look_after(mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let sealed = self.compactor.sealed();
            let bytes: u64 =
                sealed.iter().filter(|segment| segment.last > self.last).map(|segment| segment.bytes).sum();
            if bytes < self.after {
                continue;
            }
            // A writer that has ended needs no snapshot.
            let Ok(snapshot) = self.writer.snapshot() else { return };
            let (revision, begun) = (snapshot.revision(), Instant::now());
            match self.keep(snapshot) {
                Ok(size) => tracing::info!(
                    revision = revision.get(),
                    journal_bytes = bytes,
                    snapshot_bytes = size,
                    ms = begun.elapsed().as_millis(),
                    "a snapshot was made"
                ),
                Err(error) => tracing::error!(%error, "no snapshot was made; the journal goes on growing"),
            }
        }
    }

    /// Writes a snapshot down and removes what it stands for. If that fails, the journal is as good as before.
    fn keep(&mut self, snapshot: Snapshot) -> Result<u64, CompactError> {
        let revision = snapshot.revision();
        let mut size = 0;
        self.compactor.install(revision, |to| {
            let mut to = BufWriter::with_capacity(BUFFER, Counted { to, bytes: &mut size });
            serde_json::to_writer(&mut to, &snapshot)?;
            to.flush()
        })?;
        self.last = revision;
        drop(snapshot);
        self.compactor.remove(Keep::NewestTwo)?;
        Ok(size)
    }
}

struct Counted<'a> {
    to: &'a mut dyn Write,
    bytes: &'a mut u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        *self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}
