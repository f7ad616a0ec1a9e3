//! The log of one start of a slot.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};

use super::directory::LogLimits;
use super::follow::Follower;
use super::ring::{Chunk, Ring};

/// A file is cut at a multiple of this, which every block size divides.
const CUT_AT: u64 = 64 << 10;

/// What one start of a slot wrote. A clone is the same log.
#[derive(Clone, Debug)]
pub struct SlotLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    limits: LogLimits,
    reader: Mutex<Reader>,
}

#[derive(Debug)]
struct Reader {
    file: File,
    offset: u64,
    ring: Ring,
}

impl SlotLog {
    pub(super) fn open(path: PathBuf, limits: LogLimits) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path)?;
        let ring = Ring::new(usize::try_from(limits.ring.get()).unwrap_or(usize::MAX));
        let log =
            Self { shared: Arc::new(Shared { path, limits, reader: Mutex::new(Reader { file, offset: 0, ring }) }) };
        log.pump()?;
        Ok(log)
    }

    /// The file that the program writes to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Where a keeper notes how the program ended.
    #[must_use]
    pub fn exit_file(&self) -> PathBuf {
        self.shared.path.with_extension("exit")
    }

    /// What the program gets as its output and its errors: the file itself, in the order of writing.
    pub(in crate::process) fn stdio(&self) -> io::Result<(Stdio, Stdio)> {
        let reader = self.shared.reader.lock();
        Ok((reader.file.try_clone()?.into(), reader.file.try_clone()?.into()))
    }

    /// Reads what was written since, and cuts the file if it is too large. To be called now and then for every slot;
    /// costs one `fstat` if there is nothing new, and never reads more than the ring holds.
    pub fn pump(&self) -> io::Result<()> {
        let mut reader = self.shared.reader.lock();
        let length = reader.catch_up()?;
        if length <= self.shared.limits.file.get() {
            return Ok(());
        }
        let end = length / CUT_AT * CUT_AT;
        // A copy that fails (a full disk) must not keep the file from being cut.
        let copied = self.copy(&reader.file, end);
        reader.cut(end)?;
        copied
    }

    /// The last bytes, at most as many as the ring holds.
    pub fn tail(&self, bytes: usize) -> io::Result<Vec<u8>> {
        self.pump()?;
        Ok(self.shared.reader.lock().ring.tail(bytes))
    }

    /// What was written from a position on. 0 is where this agent began to read.
    pub fn since(&self, position: u64) -> io::Result<Chunk> {
        self.pump()?;
        Ok(self.shared.reader.lock().ring.since(position))
    }

    /// Follows it: first the last `tail` bytes, then what comes.
    pub fn follow(&self, tail: usize) -> io::Result<Follower> {
        self.pump()?;
        let reader = self.shared.reader.lock();
        let behind = reader.ring.tail(tail).len() as u64;
        Ok(Follower::new(self.clone(), reader.ring.end() - behind))
    }

    /// Copies what comes before `end` away: `.1` is the newest copy. It takes twice the limit, so that what comes between
    /// two looks is not missing, and no more, however much that is.
    fn copy(&self, file: &File, end: u64) -> io::Result<()> {
        let copies = self.shared.limits.copies;
        if copies == 0 {
            return Ok(());
        }
        for number in (1..copies).rev() {
            match fs::rename(self.copy_path(number), self.copy_path(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut copy =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.copy_path(1))?;
        let mut position = end.saturating_sub(self.shared.limits.file.get().saturating_mul(2));
        let mut buffer = vec![0; 64 << 10];
        while position < end {
            let wanted = usize::try_from(end - position).unwrap_or(usize::MAX).min(buffer.len());
            let count = file.read_at(&mut buffer[..wanted], position)?;
            if count == 0 {
                break;
            }
            io::Write::write_all(&mut copy, &buffer[..count])?;
            position += count as u64;
        }
        Ok(())
    }

    fn copy_path(&self, number: u32) -> PathBuf {
        let mut path = self.shared.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }
}

impl Reader {
    /// Takes the first `end` bytes out of the file. Some file systems can do just that, and nothing is lost; on others
    /// the file is cut to nothing, with what was written since it was last read.
    fn cut(&mut self, end: u64) -> io::Result<()> {
        if end > 0 && fallocate(&self.file, FallocateFlags::COLLAPSE_RANGE, 0, end).is_ok() {
            self.offset -= end;
            return Ok(());
        }
        self.catch_up()?;
        self.file.set_len(0)?;
        self.offset = 0;
        Ok(())
    }

    /// Reads to the end of the file and says how long it is.
    fn catch_up(&mut self) -> io::Result<u64> {
        let length = self.file.metadata()?.len();
        if length < self.offset {
            // Somebody else cut it.
            self.offset = 0;
        }
        let behind = length - self.offset;
        let limit = self.ring.limit() as u64;
        if behind > limit {
            self.ring.skip(behind - limit);
            self.offset = length - limit;
        }
        let mut buffer = vec![0; usize::try_from(length - self.offset).unwrap_or(0).min(16 << 10)];
        while self.offset < length {
            let count = self.file.read_at(&mut buffer, self.offset)?;
            if count == 0 {
                break;
            }
            self.ring.push(&buffer[..count]);
            self.offset += count as u64;
        }
        Ok(length)
    }
}
