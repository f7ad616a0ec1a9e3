//! Reading forward through a header, within the bounds of the file.

use std::io::{BufReader, Read, Seek};

use super::error::HeaderError;

/// The most bytes of one file that are read. The largest vocabularies need about 30 MiB.
pub(super) const HEADER_LIMIT: u64 = 128 << 20;

/// How many bytes are read at a time. Parts of a model have small headers, and a model may have a hundred parts.
const BUFFER: usize = 32 << 10;

/// A position in a file.
pub(super) struct Cursor<R> {
    inner: BufReader<R>,
    at: u64,
    length: u64,
}

impl<R: Read + Seek> Cursor<R> {
    pub(super) fn new(reader: R, length: u64) -> Self {
        Self { inner: BufReader::with_capacity(BUFFER, reader), at: 0, length }
    }

    /// Returns the current position.
    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    /// Returns how many bytes follow the position.
    pub(super) const fn remaining(&self) -> u64 {
        self.length.saturating_sub(self.at)
    }

    /// Checks that the file has `count` more bytes and that they are within the limit.
    fn require(&self, count: u64, what: &'static str) -> Result<(), HeaderError> {
        let wanted = self.at.saturating_add(count);
        if wanted > self.length {
            return Err(HeaderError::BeyondFile { what, wanted, length: self.length });
        }
        if wanted > HEADER_LIMIT {
            return Err(HeaderError::HeaderTooLong { limit: HEADER_LIMIT });
        }
        Ok(())
    }

    /// Reads the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], HeaderError> {
        self.require(N as u64, what)?;
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, HeaderError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, HeaderError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads the next `count` bytes, which the caller has checked to be few.
    pub(super) fn bytes(&mut self, count: u64, what: &'static str) -> Result<Vec<u8>, HeaderError> {
        self.require(count, what)?;
        let size = usize::try_from(count).map_err(|_| HeaderError::HeaderTooLong { limit: HEADER_LIMIT })?;
        let mut bytes = vec![0; size];
        self.inner.read_exact(&mut bytes)?;
        self.at += count;
        Ok(bytes)
    }

    /// Skips `count` bytes without reading those that are not in the buffer yet.
    pub(super) fn skip(&mut self, count: u64, what: &'static str) -> Result<(), HeaderError> {
        self.require(count, what)?;
        let step = i64::try_from(count).map_err(|_| HeaderError::HeaderTooLong { limit: HEADER_LIMIT })?;
        self.inner.seek_relative(step)?;
        self.at += count;
        Ok(())
    }
}
