//! The last bytes of something that has no end.

use std::collections::VecDeque;

/// A part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// How many bytes before it were written and are nowhere any more.
    pub lost: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The position behind it: where to go on.
    pub next: u64,
}

/// A ring of a fixed size. It takes room only for what is in it.
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

    /// How many bytes there have been.
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

    /// Bytes that nobody will see: what is before them goes too, so that no two parts stand side by side that were apart.
    pub(super) fn skip(&mut self, count: u64) {
        self.end += count;
        self.bytes.clear();
    }

    pub(super) fn tail(&self, count: usize) -> Vec<u8> {
        self.bytes.range(self.bytes.len().saturating_sub(count)..).copied().collect()
    }

    /// The position of the first byte that is in it.
    pub(super) fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// At most so many bytes from a position on, which is not before its start.
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
