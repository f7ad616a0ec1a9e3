//! Shortening the journal, while the writer goes on.
//!
//! The order of steps makes each crash harmless: a snapshot gets its name once it is durable, was read back and is
//! proven usable; only then is what it replaces removed, and what was removed in part is never needed again.

use std::{io, path::Path, sync::Arc};

use berth_domain::Revision;

use crate::{
    disk::{self, Disk, RealDisk},
    error::{FileError, ReadError, failed},
    log::Shared,
    names::{self, Names},
    segment,
    snapshot::{self, SnapshotWriter},
};

/// A complete segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// The segment's first revision.
    pub first: Revision,
    /// The revision after its last record.
    pub last: Revision,
    /// The disk space that it takes.
    pub bytes: u64,
}

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest snapshot, the one before it, and all records since that one: damage to one snapshot loses nothing.
    NewestTwo,
    /// The newest snapshot and all records since, for when space is short.
    Newest,
}

/// The files that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The number of segments.
    pub segments: usize,
    /// The number of snapshots.
    pub snapshots: usize,
    /// The disk space of the segments.
    pub bytes: u64,
}

/// Why the journal could not be shortened. The journal itself is not affected.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// No durable record ends at this revision.
    #[error("no durable record ends at revision {0}: a snapshot there could not be followed by records")]
    NotABoundary(Revision),
    /// The caller could not write the state.
    #[error("cannot write the snapshot of revision {revision}: {source}")]
    Payload {
        /// The snapshot's revision.
        revision: Revision,
        /// The error of the caller or of the disk.
        source: io::Error,
    },
    /// The caller refused what was read back.
    #[error("the snapshot of revision {revision} was written and cannot be used: {source}")]
    Unproven {
        /// The snapshot's revision.
        revision: Revision,
        /// The caller's reason.
        source: io::Error,
    },
    /// A file could not be read or trusted.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<FileError> for CompactError {
    fn from(error: FileError) -> Self {
        Self::Read(error.into())
    }
}

/// Makes snapshots and removes what they replace. Each journal has one; it may live in any thread.
#[derive(Debug)]
pub struct Compactor<D: Disk = RealDisk> {
    shared: Arc<Shared<D>>,
}

impl<D: Disk> Compactor<D> {
    pub(crate) const fn new(shared: Arc<Shared<D>>) -> Self {
        Self { shared }
    }

    /// Returns the complete segments, oldest first.
    #[must_use]
    pub fn sealed(&self) -> Vec<SealedSegment> {
        self.shared.table().sealed.clone()
    }

    /// Writes the state after a revision, which must be the end of a durable record; the ends of complete segments free
    /// the most space. `prove` gets what was read back from the disk: a snapshot that it refuses is removed again.
    ///
    /// # Errors
    ///
    /// There is no such record, or the snapshot could not be written, read back and proven. Then no snapshot was made.
    pub fn install(
        &mut self,
        revision: Revision,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
        prove: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> Result<(), CompactError> {
        if !self.is_boundary(revision)? {
            return Err(CompactError::NotABoundary(revision));
        }
        let Shared { disk, dir, .. } = &*self.shared;
        write_snapshot(disk, dir, revision, write, prove)
    }

    /// Removes what the newest snapshots replace, after reading the snapshots that stay once more. Damaged ones do not
    /// count.
    ///
    /// # Errors
    ///
    /// The snapshots cannot be read, or a file could not be removed. What is needed is still there.
    pub fn remove(&mut self, keep: Keep) -> Result<Removed, CompactError> {
        let snapshots = self.names()?.snapshots;
        let kept = self.whole(&snapshots, keep)?;
        let (Some(newest), Some(oldest)) = (kept.first().copied(), kept.last().copied()) else {
            return Ok(Removed::default());
        };
        let mut removed = Removed::default();
        for revision in snapshots.into_iter().filter(|revision| *revision < newest && !kept.contains(revision)) {
            self.remove_file(&names::snapshot(revision))?;
            removed.snapshots += 1;
        }
        for segment in self.sealed().into_iter().filter(|segment| segment.last <= oldest) {
            self.remove_file(&names::segment(segment.first))?;
            self.shared.table().sealed.retain(|other| other.first != segment.first);
            removed.segments += 1;
            removed.bytes += segment.bytes;
        }
        self.shared.disk.sync_dir(&self.shared.dir).map_err(failed("sync", &self.shared.dir))?;
        Ok(removed)
    }

    /// Returns the snapshots to keep, newest first, or none if there are not enough intact ones.
    fn whole(&self, snapshots: &[Revision], keep: Keep) -> Result<Vec<Revision>, ReadError> {
        let count = match keep {
            Keep::NewestTwo => 2,
            Keep::Newest => 1,
        };
        let mut kept = Vec::new();
        let mut older = snapshots;
        while kept.len() < count {
            let Some(snapshot) = snapshot::newest(&self.shared.disk, &self.shared.dir, older)?.0 else {
                return Ok(Vec::new());
            };
            kept.push(snapshot.revision);
            older = &snapshots[..snapshots.partition_point(|revision| *revision < snapshot.revision)];
        }
        Ok(kept)
    }

    fn names(&self) -> Result<Names, FileError> {
        let Shared { disk, dir, .. } = &*self.shared;
        Ok(Names::sort(disk.list(dir).map_err(failed("list", dir))?))
    }

    fn remove_file(&self, name: &str) -> Result<(), FileError> {
        let file = self.shared.path(name);
        self.shared.disk.remove(&file).map_err(failed("remove", &file))
    }

    /// Returns whether a durable record ends at a revision.
    fn is_boundary(&self, revision: Revision) -> Result<bool, ReadError> {
        let table = self.shared.table().clone();
        if revision == Revision::default() || revision > table.revision {
            return Ok(false);
        }
        if table.sealed.iter().any(|segment| segment.last == revision) {
            return Ok(true);
        }
        let sealed = table.sealed.iter().map(|segment| segment.first);
        let Some(first) = sealed.chain(table.open).rfind(|first| *first <= revision) else {
            return Ok(false);
        };
        let file = self.shared.path(names::segment(first));
        let bytes =
            self.shared.disk.open(&file).and_then(|open| disk::read_all(&open)).map_err(failed("read", &file))?;
        segment::has_boundary(&file, &bytes, first, revision)
    }
}

/// Writes a snapshot, reads it back, has it proven, and only then gives it its name.
pub(crate) fn write_snapshot<D: Disk>(
    disk: &D,
    dir: &Path,
    revision: Revision,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    prove: impl FnOnce(&[u8]) -> io::Result<()>,
) -> Result<(), CompactError> {
    let name = names::snapshot(revision);
    let unfinished = dir.join(format!("{name}{}", names::UNFINISHED));
    let file = disk.create(&unfinished).map_err(failed("create", &unfinished))?;
    let mut writer = SnapshotWriter::new(&file);
    let written = write(&mut writer)
        .and_then(|()| writer.finish(revision))
        .map_err(|source| CompactError::Payload { revision, source })
        .and_then(|()| Ok(snapshot::read_file(disk, &unfinished, revision)?))
        .and_then(|read| prove(&read.payload).map_err(|source| CompactError::Unproven { revision, source }));
    if let Err(error) = written {
        // The rest is removed at the next start, or overwritten before.
        let _ = disk.remove(&unfinished);
        return Err(error);
    }
    let file = dir.join(name);
    disk.rename(&unfinished, &file).map_err(failed("name", &file))?;
    disk.sync_dir(dir).map_err(failed("sync", dir))?;
    Ok(())
}
