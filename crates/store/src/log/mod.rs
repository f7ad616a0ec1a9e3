//! The journal on a disk.

mod open;
mod seed;
mod space;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use berth_domain::{Epoch, Revision};

use crate::{
    compact::SealedSegment,
    disk::{Disk, DiskFile, RealDisk},
    frame::{self, Place},
    header::{HEADER, Header, Kind},
    journal::{self, AppendError, Journal, NoSpace, RecordRef},
    lock::DirectoryLock,
    names,
};

pub use open::{Opened, Recovered, TornTail, open};
pub use seed::{SeedError, seed};

/// The largest frame that is written.
const MOST_BYTES: usize = 256 * 1024 * 1024;
/// How many bytes the buffer for frames keeps between appends.
const BUFFER: usize = 1024 * 1024;

/// How a journal uses its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes that are allocated for a segment at once. A larger batch gets a larger segment.
    pub segment_bytes: u64,
    /// Free bytes that only callers with `spare` may use.
    pub spare_bytes: u64,
    /// The most bytes that all segments together may take, if limited. Snapshots are not counted.
    pub limit_bytes: Option<u64>,
    /// The most records in one batch. Space is reserved as if each batch had this many.
    pub max_records: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 16 * 1024 * 1024, spare_bytes: 1024 * 1024, limit_bytes: None, max_records: 4096 }
    }
}

/// A journal in a directory. Made by [`open`] or [`LogJournal::open_on`].
#[derive(Debug)]
pub struct LogJournal<D: Disk = RealDisk> {
    shared: Arc<Shared<D>>,
    options: Options,
    revision: Revision,
    epoch: Epoch,
    /// The segment that is being written; `None` before the first append.
    current: Option<Segment<D::File>>,
    /// The next segment, allocated ahead.
    prepared: Option<Prepared<D::File>>,
    /// Space for a segment's header, then the frame.
    buffer: Vec<u8>,
    /// A write or sync failed, so the state in memory may differ from the disk.
    poisoned: bool,
}

#[derive(Debug)]
struct Segment<F> {
    file: F,
    first: Revision,
    /// The offset of the next frame.
    end: u64,
    /// The end of the allocated space.
    size: u64,
}

impl<F> Segment<F> {
    const fn space(&self) -> u64 {
        self.size.saturating_sub(self.end)
    }
}

#[derive(Debug)]
struct Prepared<F> {
    file: F,
    size: u64,
}

impl<F> Prepared<F> {
    const fn space(&self) -> u64 {
        self.size.saturating_sub(HEADER as u64)
    }
}

/// What the writer and the compactor both need. It holds the lock, so that the directory stays locked while either
/// lives.
#[derive(Debug)]
pub(crate) struct Shared<D> {
    pub(crate) disk: D,
    pub(crate) dir: PathBuf,
    table: Mutex<Table>,
    _lock: Option<DirectoryLock>,
}

/// The segments of the journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The complete ones, ascending.
    pub(crate) sealed: Vec<SealedSegment>,
    /// The first revision of the one that is being written.
    pub(crate) open: Option<Revision>,
    /// The last durable revision.
    pub(crate) revision: Revision,
}

impl<D> Shared<D> {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }
}

impl<D: Disk> Journal for LogJournal<D> {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn reserve(&mut self, bytes: usize, spare: bool) -> Result<(), NoSpace> {
        if self.poisoned {
            return Err(NoSpace::Poisoned);
        }
        let need = frame::frame_len(self.options.max_records, bytes);
        self.make_space(need, if spare { 0 } else { self.options.spare_bytes })
    }

    fn append(&mut self, epoch: Epoch, expected: Revision, records: &[RecordRef<'_>]) -> Result<(), AppendError> {
        if self.poisoned {
            return Err(AppendError::Poisoned);
        }
        journal::check(self.revision, self.epoch, epoch, expected, records)?;
        let most = self.options.max_records;
        if records.len() > most {
            return Err(AppendError::TooMany { records: records.len(), most });
        }
        let Some(last) = records.last() else { return Ok(()) };
        self.make_space(frame::encoded_len(records), 0)?;
        if let Err(error) = self.write(epoch, records) {
            self.poisoned = true;
            return Err(AppendError::Io(error));
        }
        self.epoch = epoch;
        self.revision = last.last;
        self.shared.table().revision = last.last;
        Ok(())
    }
}

impl<D: Disk> LogJournal<D> {
    /// Writes a batch into the segment that has space for it, and makes it durable.
    fn write(&mut self, epoch: Epoch, records: &[RecordRef<'_>]) -> io::Result<()> {
        let fits = |space: u64| space >= frame::encoded_len(records) as u64;
        if self.current.as_ref().is_some_and(|current| fits(current.space())) {
            self.write_to_current(epoch, records)
        } else {
            self.roll(epoch, records)
        }
    }

    fn write_to_current(&mut self, epoch: Epoch, records: &[RecordRef<'_>]) -> io::Result<()> {
        let Some(current) = &mut self.current else { return Err(io::ErrorKind::NotFound.into()) };
        let offset = usize::try_from(current.end).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let place = Place { segment: current.first, offset };
        encode(&mut self.buffer, place, epoch, self.revision, records)?;
        let frame = &self.buffer[HEADER..];
        current.file.write(current.end, frame)?;
        current.file.sync()?;
        current.end += frame.len() as u64;
        Ok(())
    }

    /// Begins the next segment with a batch. The segment gets its name once header and batch are durable, so that a
    /// named segment always has both.
    fn roll(&mut self, epoch: Epoch, records: &[RecordRef<'_>]) -> io::Result<()> {
        let first = self.revision.next();
        let Some(prepared) = &self.prepared else { return Err(io::ErrorKind::NotFound.into()) };
        encode(&mut self.buffer, Place { segment: first, offset: HEADER }, epoch, self.revision, records)?;
        let header = Header { revision: first, number: epoch.get(), checksum: 0 };
        self.buffer[..HEADER].copy_from_slice(&header.encode(Kind::Segment));
        prepared.file.write(0, &self.buffer)?;
        prepared.file.sync()?;
        let shared = &self.shared;
        shared.disk.rename(&shared.path(names::PREPARED), &shared.path(names::segment(first)))?;
        shared.disk.sync_dir(&shared.dir)?;
        if let Some(Prepared { file, size }) = self.prepared.take() {
            let next = Segment { file, first, end: self.buffer.len() as u64, size };
            let full = self.current.replace(next);
            self.seal(full);
        }
        Ok(())
    }

    /// Notes that a segment is complete, and frees its unused space.
    fn seal(&self, full: Option<Segment<D::File>>) {
        // A failure to free space is harmless: the records are complete, and zeros may follow them.
        let sealed = full.map(|full| SealedSegment {
            first: full.first,
            last: self.revision,
            bytes: full.file.set_size(full.end).map_or(full.size, |()| full.end),
        });
        let mut table = self.shared.table();
        table.sealed.extend(sealed);
        table.open = self.current.as_ref().map(|current| current.first);
    }
}

/// Puts space for a header and the frame of a batch into the buffer.
fn encode(
    buffer: &mut Vec<u8>,
    place: Place,
    epoch: Epoch,
    before: Revision,
    records: &[RecordRef<'_>],
) -> io::Result<()> {
    buffer.clear();
    buffer.shrink_to(BUFFER);
    buffer.resize(HEADER, 0);
    frame::encode(buffer, place, epoch, before, records).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
