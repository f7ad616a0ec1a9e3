//! The last bytes of a stream.

use std::collections::VecDeque;

/// A part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// How many bytes before it were written and are lost.
    pub lost: u64,
    /// The bytes of this part.
    pub bytes: Vec<u8>,
    /// The position after it: where to continue.
    pub next: u64,
}

/// A ring buffer with a maximum size. It allocates memory only for its content.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    limit: usize,
    end: u64,
}

impl Ring {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit, end: 0 }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns how many bytes there have been.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        let kept = &bytes[bytes.len().saturating_sub(self.limit)..];
        let over = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.bytes.drain(..over.min(self.bytes.len()));
        self.bytes.extend(kept);
    }

    /// Skips bytes that will never be read. Earlier bytes are dropped too, so that the ring has no gap.
    pub(super) fn skip(&mut self, count: u64) {
        self.end += count;
        self.bytes.clear();
    }

    pub(super) fn tail(&self, count: usize) -> Vec<u8> {
        self.bytes.range(self.bytes.len().saturating_sub(count)..).copied().collect()
    }

    /// Returns the position of the first byte in the ring.
    pub(super) fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// Returns at most `most` bytes from a position on, which is not before the start.
    pub(super) fn since(&self, position: u64, most: usize) -> Vec<u8> {
        let skipped = usize::try_from(position.saturating_sub(self.start())).unwrap_or(usize::MAX);
        self.bytes.iter().skip(skipped).take(most).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_the_end_and_knows_where_it_begins() {
        let mut ring = Ring::new(4);
        ring.push(b"ab");
        assert_eq!((ring.start(), ring.since(0, 9)), (0, b"ab".into()));
        ring.push(b"cdef");
        assert_eq!((ring.start(), ring.since(2, 9)), (2, b"cdef".into()));
        assert_eq!(ring.since(3, 2), b"de");
        ring.push(b"0123456789");
        assert_eq!(ring.tail(99), b"6789");
        assert_eq!(ring.tail(1), b"9");
        ring.skip(100);
        ring.push(b"z");
        assert_eq!((ring.start(), ring.end()), (116, 117));
        assert_eq!(ring.since(116, 9), b"z");
        assert_eq!(ring.since(117, 9), b"");
    }
}
