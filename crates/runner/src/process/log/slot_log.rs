//! The log of one start of a slot.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};

use super::directory::LogLimits;
use super::follow::Follower;
use super::ring::{Chunk, Ring};

/// Files are cut at a multiple of this, which all block sizes divide.
const CUT_AT: u64 = 64 << 10;

/// The output of one start of a slot. A clone is the same log.
#[derive(Clone, Debug)]
pub struct SlotLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    limits: LogLimits,
    reader: Mutex<Reader>,
    /// No process writes to the log any more.
    is_over: AtomicBool,
    /// The log is of an ended slot: it is only read.
    is_past: bool,
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
        Self::of(path, file, limits, false)
    }

    /// Opens the log of an ended slot.
    pub(super) fn open_past(path: PathBuf, limits: LogLimits) -> io::Result<Self> {
        let file = File::open(&path)?;
        Self::of(path, file, limits, true)
    }

    fn of(path: PathBuf, file: File, limits: LogLimits, is_past: bool) -> io::Result<Self> {
        let ring = Ring::new(usize::try_from(limits.ring.get()).unwrap_or(usize::MAX));
        let reader = Mutex::new(Reader { file, offset: 0, ring });
        let shared = Shared { path, limits, reader, is_over: AtomicBool::new(is_past), is_past };
        let log = Self { shared: Arc::new(shared) };
        log.pump()?;
        Ok(log)
    }

    /// Notes that no process writes to the log any more: followers come to its end.
    pub fn close(&self) {
        self.shared.is_over.store(true, Ordering::Release);
    }

    /// Returns whether no process writes to the log any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Acquire)
    }

    /// Returns the file that the program writes to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Returns the path of the exit file, where a supervisor notes how the program ended.
    #[must_use]
    pub fn exit_file(&self) -> PathBuf {
        self.shared.path.with_extension("exit")
    }

    /// Returns the output and error streams of the program: the file itself, in the order of writing.
    pub(in crate::process) fn stdio(&self) -> io::Result<(Stdio, Stdio)> {
        let reader = self.shared.reader.lock();
        Ok((reader.file.try_clone()?.into(), reader.file.try_clone()?.into()))
    }

    /// Reads what was written since the last call, and cuts the file if it is too large. Called regularly for each
    /// slot; it costs one `fstat` if there is nothing new, and never reads more than the ring holds.
    pub fn pump(&self) -> io::Result<()> {
        let mut reader = self.shared.reader.lock();
        let length = reader.catch_up()?;
        if length <= self.shared.limits.file.get() || self.shared.is_past {
            return Ok(());
        }
        // A copy that fails (a full disk) must not keep the file from being cut.
        let end = length / CUT_AT * CUT_AT;
        let copy = self.copy(&reader.file, end);
        if end > 0 && fallocate(&reader.file, FallocateFlags::COLLAPSE_RANGE, 0, end).is_ok() {
            reader.offset -= end;
            return copy.map(drop);
        }
        reader.catch_up()?;
        let copied = copy.and_then(|copy| copy_part(&reader.file, copy, end, reader.offset));
        reader.file.set_len(0)?;
        reader.offset = 0;
        copied
    }

    /// Returns the last bytes, at most as many as the ring holds.
    pub fn tail(&self, bytes: usize) -> io::Result<Vec<u8>> {
        self.pump()?;
        Ok(self.shared.reader.lock().ring.tail(bytes))
    }

    /// Appends a line of the agent, for example why the slot was not started. It begins with `berth: `, to tell it from
    /// the program's output. A line that cannot be written is dropped.
    pub fn note(&self, text: &str) {
        let is_in_a_line = self.tail(1).is_ok_and(|last| !last.is_empty() && last != b"\n");
        let break_it = if is_in_a_line { "\n" } else { "" };
        let line = format!("{break_it}berth: {text}\n");
        let written = io::Write::write_all(&mut &self.shared.reader.lock().file, line.as_bytes());
        if let Err(error) = written {
            tracing::warn!(path = %self.path().display(), %error, "a log cannot be written");
        }
    }

    /// Returns how many bytes there have been, including those before this agent.
    pub fn end(&self) -> io::Result<u64> {
        self.pump()?;
        Ok(self.shared.reader.lock().ring.end())
    }

    /// Returns at most `most` bytes from a position on: from memory, or from the file, which has more.
    pub fn read(&self, position: u64, most: usize) -> io::Result<Chunk> {
        self.pump()?;
        self.shared.reader.lock().read(position, most)
    }

    /// Follows the log: first the last `tail` bytes, as far back as there are copies; then what is written.
    pub fn follow(&self, tail: u64) -> io::Result<Follower> {
        self.pump()?;
        let reader = self.shared.reader.lock();
        let end = reader.ring.end();
        let mut older = Vec::new();
        let mut wanted = tail.saturating_sub(reader.offset);
        for number in 1..=self.shared.limits.copies {
            let Some(copy) =
                Some(wanted).filter(|wanted| *wanted > 0).and_then(|_| File::open(self.copy_path(number)).ok())
            else {
                break;
            };
            let length = copy.metadata()?.len();
            let taken = length.min(wanted);
            wanted -= taken;
            older.push((copy, length - taken));
        }
        Ok(Follower::new(self.clone(), older, end - tail.min(reader.offset), end))
    }

    /// Copies what comes before `end`: `.1` is the newest copy. It copies at most twice the limit, so that bytes
    /// written between two reads are not missing.
    fn copy(&self, file: &File, end: u64) -> io::Result<Option<File>> {
        let copies = self.shared.limits.copies;
        if copies == 0 {
            return Ok(None);
        }
        for number in (1..copies).rev() {
            match fs::rename(self.copy_path(number), self.copy_path(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let copy = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.copy_path(1))?;
        let start = end.saturating_sub(self.shared.limits.file.get().saturating_mul(2));
        copy_part(file, Some(copy.try_clone()?), start, end)?;
        Ok(Some(copy))
    }

    fn copy_path(&self, number: u32) -> PathBuf {
        let mut path = self.shared.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }
}

/// Appends a part of a file to its copy, if there is one.
fn copy_part(file: &File, copy: Option<File>, mut position: u64, end: u64) -> io::Result<()> {
    let Some(mut copy) = copy else { return Ok(()) };
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

impl Reader {
    fn read(&self, position: u64, most: usize) -> io::Result<Chunk> {
        let (in_memory, in_file) = (self.ring.start(), self.ring.end() - self.offset);
        let mut from = position.max(in_memory.min(in_file));
        let mut bytes = Vec::new();
        if from < in_memory {
            let wanted = usize::try_from(in_memory - from).unwrap_or(usize::MAX).min(most);
            bytes.resize(wanted, 0);
            let count = self.file.read_at(&mut bytes, from - in_file)?;
            bytes.truncate(count);
            // Another process cut the file.
            if count == 0 {
                from = in_memory;
            }
        }
        if from >= in_memory {
            bytes = self.ring.since(from, most);
        }
        Ok(Chunk { lost: from.saturating_sub(position), next: from + bytes.len() as u64, bytes })
    }

    /// Reads to the end of the file and returns its length.
    fn catch_up(&mut self) -> io::Result<u64> {
        let length = self.file.metadata()?.len();
        if length < self.offset {
            // Another process cut the file.
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
