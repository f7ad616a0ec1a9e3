//! Following a log while it is written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::ring::Chunk;
use super::slot_log::SlotLog;

/// A reader that follows a log. It holds no part of the log: a slow reader loses bytes, and is told how many.
#[derive(Debug)]
pub struct Follower {
    log: SlotLog,
    /// Older copies to read first, each with the offset to begin at.
    older: Vec<(File, u64)>,
    position: u64,
    /// The end of the log when the follower began.
    end: u64,
}

impl Follower {
    /// How often the log is read.
    const LOOK: Duration = Duration::from_millis(100);
    /// The most bytes that are read at once.
    const PIECE: usize = 64 << 10;

    pub(super) fn new(log: SlotLog, older: Vec<(File, u64)>, position: u64, end: u64) -> Self {
        Self { log, older, position, end }
    }

    /// Returns the next part, as soon as there is one. Returns `None` once everything was read and the log is closed.
    pub async fn next(&mut self) -> io::Result<Option<Chunk>> {
        loop {
            // The end is checked before the log is read, so that bytes written before the end are not missed.
            let is_over = self.log.is_over();
            if let Some(chunk) = self.poll()? {
                return Ok(Some(chunk));
            }
            if is_over {
                return Ok(None);
            }
            tokio::time::sleep(Self::LOOK).await;
        }
    }

    /// Returns the next part of what there was when the follower began; `None` at its end, however much was written
    /// since.
    pub fn next_before_end(&mut self) -> io::Result<Option<Chunk>> {
        if self.older.is_empty() && self.position >= self.end { Ok(None) } else { self.poll() }
    }

    /// Returns the next part, if there is one now.
    pub fn poll(&mut self) -> io::Result<Option<Chunk>> {
        if let Some(bytes) = self.read_older()? {
            return Ok(Some(Chunk { lost: 0, bytes, next: self.position }));
        }
        let chunk = self.log.read(self.position, Self::PIECE)?;
        self.position = chunk.next;
        Ok((chunk.lost > 0 || !chunk.bytes.is_empty()).then_some(chunk))
    }

    fn read_older(&mut self) -> io::Result<Option<Vec<u8>>> {
        while let Some((copy, position)) = self.older.last_mut() {
            let mut bytes = vec![0; Self::PIECE];
            let count = copy.read_at(&mut bytes, *position)?;
            if count > 0 {
                bytes.truncate(count);
                *position += count as u64;
                return Ok(Some(bytes));
            }
            self.older.pop();
        }
        Ok(None)
    }
}
