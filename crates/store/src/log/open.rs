//! Opening a journal: finds its files, checks them, and continues after the last good record.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use berth_domain::{Epoch, Revision};

use super::{LogJournal, Options, Prepared, Segment, Shared, Table};
use crate::{
    compact::{Compactor, SealedSegment},
    disk::{self, Disk, DiskFile, RealDisk},
    error::{Damage, FileError, Flaw, OpenError, ReadError, failed},
    lock::DirectoryLock,
    names::{self, Names},
    records::Records,
    segment::{self, Role, Scan},
    snapshot::{self, Snapshot},
};

/// The journal's directory below the data directory.
pub(super) const DIRECTORY: &str = "journal";

/// A journal that was opened, with its parts.
#[derive(Debug)]
pub struct Opened<D: Disk = RealDisk> {
    /// Appends records. May be used before the recovered records are read.
    pub journal: LogJournal<D>,
    /// Makes snapshots and removes what they replace, from any thread.
    pub compactor: Compactor<D>,
    /// The state and the records that the journal had.
    pub recovered: Recovered<D>,
}

/// What a journal had when it was opened: the snapshot first, then the records after it.
#[derive(Debug)]
pub struct Recovered<D: Disk = RealDisk> {
    /// The state to begin with; `None` if the journal never had a snapshot.
    pub snapshot: Option<Snapshot>,
    /// The records after the snapshot. All of them were checked already. Read them before the compactor removes
    /// anything.
    pub records: Records<D>,
    /// The revision after the last record.
    pub revision: Revision,
    /// The newest epoch that appended.
    pub epoch: Epoch,
    /// The incomplete batch that was cut from the end, if a crash left one.
    pub cut: Option<TornTail>,
    /// Damaged snapshots that are newer than the one that was used instead.
    pub passed_over: Vec<Damage>,
}

/// A batch that a crash left incomplete. It was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment that ended with it.
    pub file: PathBuf,
    /// The offset at which the batch began.
    pub offset: u64,
    /// The number of bytes that were written of it.
    pub bytes: u64,
}

/// Locks a data directory, making it if needed, and opens the journal in it.
///
/// # Errors
///
/// Another process holds the directory, or its files cannot be read or trusted. Nothing that was acknowledged was
/// changed.
pub fn open(data_directory: &Path, options: Options) -> Result<Opened, OpenError> {
    RealDisk
        .create_dir(data_directory)
        .map_err(failed("create the data directory", data_directory))
        .map_err(ReadError::from)?;
    let lock = DirectoryLock::acquire(data_directory)?;
    Ok(recover(RealDisk, data_directory, options, Some(lock))?)
}

impl<D: Disk> LogJournal<D> {
    /// Opens the journal on a given disk, without a lock: the caller makes sure that no other process uses it.
    ///
    /// # Errors
    ///
    /// The files cannot be read or trusted.
    pub fn open_on(disk: D, data_directory: &Path, options: Options) -> Result<Opened<D>, ReadError> {
        recover(disk, data_directory, options, None)
    }
}

fn recover<D: Disk>(
    disk: D,
    data_directory: &Path,
    options: Options,
    lock: Option<DirectoryLock>,
) -> Result<Opened<D>, ReadError> {
    let dir = data_directory.join(DIRECTORY);
    let names = tidy(&disk, &dir)?;
    let (snapshot, passed_over) = snapshot::newest(&disk, &dir, &names.snapshots)?;
    let base = snapshot.as_ref().map_or(Revision::default(), |snapshot| snapshot.revision);
    // Where segments are missing because a snapshot replaced them, the error names the damaged snapshot.
    let needed =
        needed_segments(&dir, &names.segments, base).map_err(|gap| passed_over.first().cloned().unwrap_or(gap))?;
    let last = read_segments(&disk, &dir, needed, base)?;
    let cut = last.as_ref().and_then(|last| last.torn_tail(&dir));

    let table = Table {
        sealed: sealed_segments(&disk, &dir, &names.segments)?,
        open: last.as_ref().map(|last| last.first),
        revision: last.as_ref().map_or(base, |last| last.scan.revision),
    };
    let shared = Shared { disk: disk.clone(), dir: dir.clone(), table: Mutex::new(table), _lock: lock };
    let journal = resume(shared, options, last, names.prepared)?;
    let (revision, epoch) = (journal.revision, journal.epoch);
    let records = Records::new(disk, &dir, needed.iter().copied().collect(), base, revision);
    Ok(Opened {
        compactor: Compactor::new(Arc::clone(&journal.shared)),
        journal,
        recovered: Recovered { snapshot, records, revision, epoch, cut, passed_over },
    })
}

/// Lists the directory, making it if needed, and removes unfinished files.
fn tidy<D: Disk>(disk: &D, dir: &Path) -> Result<Names, FileError> {
    disk.create_dir(dir).map_err(failed("create", dir))?;
    let names = Names::sort(disk.list(dir).map_err(failed("list", dir))?);
    for name in &names.unfinished {
        let file = dir.join(name);
        disk.remove(&file).map_err(failed("remove", &file))?;
    }
    Ok(names)
}

/// Makes the end of what was read durable, and returns a journal that continues there.
fn resume<D: Disk>(
    shared: Shared<D>,
    options: Options,
    last: Option<Last>,
    prepared: bool,
) -> Result<LogJournal<D>, FileError> {
    let Shared { disk, dir, .. } = &shared;
    let revision = shared.table().revision;
    let epoch = last.as_ref().map_or(Epoch::default(), |last| last.scan.epoch);
    let current = last.map(|last| {
        let file = dir.join(names::segment(last.first));
        reopen(disk, &file, &last).map_err(failed("repair the end of", file))
    });
    let prepared = prepared.then(|| {
        let file = dir.join(names::PREPARED);
        reuse(disk, &file).map_err(failed("take over", file))
    });
    let (current, prepared) = (current.transpose()?, prepared.transpose()?);
    // The process before may have been killed before a name that it saw was durable.
    disk.sync_dir(dir).map_err(failed("sync", dir))?;
    let shared = Arc::new(shared);
    Ok(LogJournal { shared, options, revision, epoch, current, prepared, buffer: Vec::new(), poisoned: false })
}

/// Returns the segments from the one that has the record after `base`. Earlier ones may be missing: a crash may have
/// interrupted their removal.
fn needed_segments<'a>(dir: &Path, segments: &'a [Revision], base: Revision) -> Result<&'a [Revision], Damage> {
    let after = segments.partition_point(|first| *first <= base.next());
    match (after.checked_sub(1), segments.first()) {
        (Some(start), _) => Ok(&segments[start..]),
        (None, Some(first)) => Err(Damage {
            file: dir.join(names::segment(*first)),
            offset: 0,
            flaw: Flaw::Gap { after: base, next: before(*first) },
        }),
        // A snapshot is made of records, and the segment with the last record is never removed.
        (None, None) if base > Revision::default() => Err(Damage {
            file: dir.join(names::snapshot(base)),
            offset: 0,
            flaw: Flaw::Behind { end: Revision::default(), snapshot: base },
        }),
        (None, None) => Ok(&[]),
    }
}

/// The last segment and its content.
struct Last {
    first: Revision,
    bytes: Vec<u8>,
    scan: Scan,
}

impl Last {
    fn torn_tail(&self, dir: &Path) -> Option<TornTail> {
        let torn = self.scan.torn.as_ref()?;
        let file = dir.join(names::segment(self.first));
        Some(TornTail { file, offset: torn.start as u64, bytes: torn.len() as u64 })
    }
}

/// Reads all segments that are needed and checks that they follow each other and the snapshot.
fn read_segments<D: Disk>(
    disk: &D,
    dir: &Path,
    needed: &[Revision],
    base: Revision,
) -> Result<Option<Last>, ReadError> {
    let mut last: Option<Last> = None;
    for (at, first) in needed.iter().copied().enumerate() {
        let file = dir.join(names::segment(first));
        let damage = |flaw| Damage { file: file.clone(), offset: 0, flaw };
        let bytes = disk.open(&file).and_then(|open| disk::read_all(&open)).map_err(failed("read", &file))?;
        let role = if at + 1 == needed.len() { Role::Last } else { Role::Sealed };
        let scan = segment::scan(&file, &bytes, first, role)?;
        if let Some(previous) = &last
            && previous.scan.revision != before(first)
        {
            return Err(damage(Flaw::Gap { after: previous.scan.revision, next: before(first) }).into());
        }
        if at == 0 && role == Role::Last && scan.revision < base {
            return Err(damage(Flaw::Behind { end: scan.revision, snapshot: base }).into());
        }
        if at == 0 && !segment::has_boundary(&file, &bytes, first, base)? {
            return Err(damage(Flaw::Inside).into());
        }
        last = Some(Last { first, bytes, scan });
    }
    Ok(last)
}

/// Returns all segments but the last, for the compactor.
fn sealed_segments<D: Disk>(disk: &D, dir: &Path, segments: &[Revision]) -> Result<Vec<SealedSegment>, FileError> {
    let pairs = segments.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?)));
    pairs
        .map(|(first, next)| {
            let file = dir.join(names::segment(first));
            let bytes = disk.open(&file).and_then(|open| open.size()).map_err(failed("open", &file))?;
            Ok(SealedSegment { first, last: before(next), bytes })
        })
        .collect()
}

/// Makes the last segment ready for appending.
///
/// Torn bytes become zero again, so that they cannot be read as something else later. The last batch is written once
/// more: the process before may have been killed, or have failed, before the batch was durable, and a sync alone does
/// not write again what an earlier sync gave up on.
fn reopen<D: Disk>(disk: &D, path: &Path, last: &Last) -> io::Result<Segment<D::File>> {
    let Last { first, bytes, scan } = last;
    let file = disk.open(path)?;
    if let Some(torn) = &scan.torn {
        file.write(torn.start as u64, &vec![0; torn.len()])?;
    }
    file.write(scan.last_frame.start as u64, &bytes[scan.last_frame.clone()])?;
    file.sync()?;
    let end = scan.last_frame.end as u64;
    let size = allocated(&file, bytes.len() as u64)?.max(end);
    Ok(Segment { file, first: *first, end, size })
}

/// Takes over the segment that was allocated ahead. Bytes that a crash left in it were never acknowledged. They become
/// zero with the sync that the file gets before its name.
fn reuse<D: Disk>(disk: &D, path: &Path) -> io::Result<Prepared<D::File>> {
    let file = disk.open(path)?;
    let bytes = disk::read_all(&file)?;
    if let Some(range) = segment::written(&bytes, 0) {
        file.write(0, &vec![0; range.end])?;
    }
    let size = allocated(&file, bytes.len() as u64)?;
    Ok(Prepared { file, size })
}

/// Makes sure that a file's length is backed by disk space; a copy of a data directory may be sparse. A full disk is no
/// reason not to start: the file then counts as one without space.
fn allocated(file: &impl DiskFile, size: u64) -> io::Result<u64> {
    match file.allocate(size) {
        Ok(()) => Ok(size),
        Err(error) if disk::is_full(&error) => Ok(0),
        Err(error) => Err(error),
    }
}

fn before(revision: Revision) -> Revision {
    Revision::new(revision.get().saturating_sub(1))
}
