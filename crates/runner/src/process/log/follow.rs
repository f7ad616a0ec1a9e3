//! Reading along.

use std::io;
use std::time::Duration;

use super::ring::Chunk;
use super::slot_log::SlotLog;

/// Somebody who reads along. It holds no part of the log: one who is slow loses bytes, and is told how many.
#[derive(Debug)]
pub struct Follower {
    log: SlotLog,
    position: u64,
}

impl Follower {
    /// How often it looks.
    const LOOK: Duration = Duration::from_millis(100);

    pub(super) fn new(log: SlotLog, position: u64) -> Self {
        Self { log, position }
    }

    /// The next part, as soon as there is one. Whoever knows that the slot is gone stops asking.
    pub async fn next(&mut self) -> io::Result<Chunk> {
        loop {
            if let Some(chunk) = self.poll()? {
                return Ok(chunk);
            }
            tokio::time::sleep(Self::LOOK).await;
        }
    }

    /// The next part, if there is one now.
    pub fn poll(&mut self) -> io::Result<Option<Chunk>> {
        let chunk = self.log.since(self.position)?;
        self.position = chunk.next;
        Ok((chunk.lost > 0 || !chunk.bytes.is_empty()).then_some(chunk))
    }
}
