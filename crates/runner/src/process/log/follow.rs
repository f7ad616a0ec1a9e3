//! Reading along.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::ring::Chunk;
use super::slot_log::SlotLog;

/// Somebody who reads along. It holds no part of the log: one who is slow loses bytes, and is told how many.
#[derive(Debug)]
pub struct Follower {
    log: SlotLog,
    /// Copies that come first, the newest first, each with where to begin in it.
    older: Vec<(File, u64)>,
    position: u64,
    /// Where the log ended when this began.
    end: u64,
}

impl Follower {
    /// How often it looks.
    const LOOK: Duration = Duration::from_millis(100);
    /// The most that it takes at once.
    const PIECE: usize = 64 << 10;

    pub(super) fn new(log: SlotLog, older: Vec<(File, u64)>, position: u64, end: u64) -> Self {
        Self { log, older, position, end }
    }

    /// The next part, as soon as there is one. None once everything was read and nobody writes any more.
    pub async fn next(&mut self) -> io::Result<Option<Chunk>> {
        loop {
            // Asked before it is looked: what was written before the end is not missed.
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

    /// The next part of what there was when this began; none at its end, however much was written since.
    pub fn next_before_end(&mut self) -> io::Result<Option<Chunk>> {
        if self.older.is_empty() && self.position >= self.end { Ok(None) } else { self.poll() }
    }

    /// The next part, if there is one now.
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
