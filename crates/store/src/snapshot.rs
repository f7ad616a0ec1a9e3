//! Snapshots: the state after a revision, so that the records before it can be removed.

use std::{
    io::{self, Write},
    path::Path,
};

use berth_domain::Revision;
use crc32fast::Hasher;

use crate::{
    disk::{self, Disk, DiskFile},
    error::{Damage, Flaw, ReadError, failed},
    header::{FORMAT, HEADER, Header, HeaderError, Kind, OLDEST},
    names,
};

/// How many bytes are written at once.
const CHUNK: usize = 1024 * 1024;

/// The state after a revision, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision that this is the state after.
    pub revision: Revision,
    /// The state, encoded by the caller.
    pub payload: Vec<u8>,
}

/// Returns the newest snapshot that is intact, and the damaged ones that are newer.
pub(crate) fn newest<D: Disk>(
    disk: &D,
    dir: &Path,
    revisions: &[Revision],
) -> Result<(Option<Snapshot>, Vec<Damage>), ReadError> {
    let mut passed_over = Vec::new();
    for revision in revisions.iter().rev() {
        match read(disk, dir, *revision) {
            Ok(snapshot) => return Ok((Some(snapshot), passed_over)),
            Err(ReadError::Damaged(damage)) => passed_over.push(damage),
            Err(error) => return Err(error),
        }
    }
    Ok((None, passed_over))
}

/// Reads the snapshot of a revision and checks all of its bytes.
fn read<D: Disk>(disk: &D, dir: &Path, revision: Revision) -> Result<Snapshot, ReadError> {
    let file = dir.join(names::snapshot(revision));
    read_file(disk, &file, revision)
}

/// Reads a snapshot that may not have its name yet.
pub(crate) fn read_file<D: Disk>(disk: &D, file: &Path, revision: Revision) -> Result<Snapshot, ReadError> {
    let mut bytes = disk.open(file).and_then(|open| disk::read_all(&open)).map_err(failed("read", file))?;
    let damage = |offset, flaw| ReadError::from(Damage { file: file.to_owned(), offset, flaw });
    let header = match Header::decode(Kind::Snapshot, &bytes) {
        Ok(header) => header,
        Err(HeaderError::Damaged) => return Err(damage(0, Flaw::Header)),
        Err(HeaderError::Newer(found)) => {
            return Err(ReadError::NewerFormat { file: file.to_owned(), found, known: FORMAT });
        }
        Err(HeaderError::Older(found)) => {
            return Err(ReadError::OlderFormat { file: file.to_owned(), found, oldest: OLDEST });
        }
    };
    if header.revision != revision {
        return Err(damage(0, Flaw::Name { header: header.revision }));
    }
    let payload = &bytes[HEADER..];
    if payload.len() as u64 != header.number || crc32fast::hash(payload) != header.checksum {
        return Err(damage(HEADER as u64, Flaw::Snapshot));
    }
    bytes.drain(..HEADER);
    Ok(Snapshot { revision, payload: bytes })
}

/// Writes a snapshot's bytes to a file that has no name yet.
pub(crate) struct SnapshotWriter<'a, F> {
    file: &'a F,
    buffer: Vec<u8>,
    written: u64,
    hasher: Hasher,
}

impl<'a, F: DiskFile> SnapshotWriter<'a, F> {
    pub(crate) fn new(file: &'a F) -> Self {
        Self { file, buffer: Vec::with_capacity(CHUNK), written: 0, hasher: Hasher::new() }
    }

    /// Writes the remaining bytes, then the header in front of them, and makes all of it durable.
    pub(crate) fn finish(mut self, revision: Revision) -> io::Result<()> {
        self.flush()?;
        let header = Header { revision, number: self.written, checksum: self.hasher.finalize() };
        self.file.write(0, &header.encode(Kind::Snapshot))?;
        self.file.sync()
    }
}

impl<F: DiskFile> Write for SnapshotWriter<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        let taken = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file.write(HEADER as u64 + self.written, &self.buffer)?;
        self.hasher.update(&self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
