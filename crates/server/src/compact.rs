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
    fn keep(&mut self, snapshot: Snapshot) -> Result<usize, CompactError> {
        let revision = snapshot.revision();
        let mut size = 0;
        let write = move |to: &mut dyn Write| {
            let mut to = BufWriter::with_capacity(BUFFER, to);
            serde_json::to_writer(&mut to, &snapshot)?;
            to.flush()
        };
        // Nobody reads it before the next start: what it stands for may only go if it can be read.
        let prove = |bytes: &[u8]| {
            size = bytes.len();
            match serde_json::from_slice::<Snapshot>(bytes)?.revision() {
                read if read == revision => Ok(()),
                read => Err(std::io::Error::other(format!("it says that it is of revision {read}"))),
            }
        };
        self.compactor.install(revision, write, prove)?;
        self.last = revision;
        self.compactor.remove(Keep::NewestTwo)?;
        Ok(size)
    }
}
