//! Frames: a batch of records as bytes.
//!
//! ```text
//!  0  4  magic                           40  ..  records: revision (8), length (4), payload
//!  4  4  checksum of the header              ..  zeros, so that every frame begins at a multiple of 8
//!  8  8  revision before the batch            4  checksum of everything after the header
//! 16  8  revision after it                    4  end mark
//! 24  8  epoch
//! 32  4  number of records
//! 36  4  bytes of records
//! ```
//!
//! The header has a checksum of its own, so that its length can be trusted when the rest is torn. Both checksums
//! include the frame's place: bytes of a frame that was copied elsewhere are not accepted. The first and the last byte
//! of a frame are never zero, so that missing bytes at either end are noticed.

use berth_domain::{Epoch, Revision};
use crc32fast::Hasher;

use crate::{
    header::{u32_at, u64_at},
    journal::RecordRef,
};

/// The length of what precedes the records.
pub(crate) const FRAME_HEADER: usize = 40;
/// Frames begin at multiples of this.
pub(crate) const ALIGN: usize = 8;

const TRAILER: usize = 8;
const RECORD_HEADER: usize = 12;
const MAGIC: u32 = u32::from_le_bytes(*b"BTCH");
const END: u32 = u32::from_le_bytes(*b"DONE");

/// The position of a frame: part of what its checksums cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first revision of its segment.
    pub(crate) segment: Revision,
    /// The offset of its first byte in the segment.
    pub(crate) offset: usize,
}

/// The decoded header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) before: Revision,
    pub(crate) after: Revision,
    pub(crate) epoch: Epoch,
    records: u32,
    bytes: u32,
}

/// A complete frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) header: FrameHeader,
    records: &'a [u8],
}

/// Returns the length of a frame with this many records and payload bytes.
pub(crate) const fn frame_len(records: usize, payload: usize) -> usize {
    let bytes = records.saturating_mul(RECORD_HEADER).saturating_add(payload);
    bytes.saturating_add(FRAME_HEADER + TRAILER + ALIGN - 1) / ALIGN * ALIGN
}

/// Returns the length of the frame of these records.
pub(crate) fn encoded_len(records: &[RecordRef<'_>]) -> usize {
    frame_len(records.len(), records.iter().map(|record| record.payload.len()).sum())
}

/// Appends the frame of a batch to a buffer. Returns `None` if the batch is too large to be encoded.
pub(crate) fn encode(
    buffer: &mut Vec<u8>,
    place: Place,
    epoch: Epoch,
    before: Revision,
    records: &[RecordRef<'_>],
) -> Option<()> {
    let start = buffer.len();
    let after = records.last().map_or(before, |record| record.last);
    buffer.resize(start + FRAME_HEADER, 0);
    for record in records {
        buffer.extend_from_slice(&record.last.get().to_le_bytes());
        buffer.extend_from_slice(&u32::try_from(record.payload.len()).ok()?.to_le_bytes());
        buffer.extend_from_slice(record.payload);
    }
    let bytes = u32::try_from(buffer.len() - start - FRAME_HEADER).ok()?;
    buffer.resize(start + encoded_len(records) - TRAILER, 0);

    let header = &mut buffer[start..start + FRAME_HEADER];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[8..16].copy_from_slice(&before.get().to_le_bytes());
    header[16..24].copy_from_slice(&after.get().to_le_bytes());
    header[24..32].copy_from_slice(&epoch.get().to_le_bytes());
    header[32..36].copy_from_slice(&u32::try_from(records.len()).ok()?.to_le_bytes());
    header[36..40].copy_from_slice(&bytes.to_le_bytes());
    let header_checksum = place.checksum(&header[8..]);
    header[4..8].copy_from_slice(&header_checksum.to_le_bytes());

    let body_checksum = body_checksum(header_checksum, &buffer[start + FRAME_HEADER..]);
    buffer.extend_from_slice(&body_checksum.to_le_bytes());
    buffer.extend_from_slice(&END.to_le_bytes());
    Some(())
}

impl Place {
    fn checksum(self, bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&self.segment.get().to_le_bytes());
        hasher.update(&(self.offset as u64).to_le_bytes());
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// Computes the checksum of a body. It includes the header's checksum, so that a body belongs to one header.
fn body_checksum(header_checksum: u32, body: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header_checksum.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

impl FrameHeader {
    /// Reads the header at a place, if there is a good one.
    pub(crate) fn read(segment: &[u8], place: Place) -> Option<Self> {
        let bytes = segment.get(place.offset..)?.get(..FRAME_HEADER)?;
        if u32_at(bytes, 0) != MAGIC || u32_at(bytes, 4) != place.checksum(&bytes[8..]) {
            return None;
        }
        Some(Self {
            before: Revision::new(u64_at(bytes, 8)),
            after: Revision::new(u64_at(bytes, 16)),
            epoch: Epoch::new(u64_at(bytes, 24)),
            records: u32_at(bytes, 32),
            bytes: u32_at(bytes, 36),
        })
    }

    /// Returns the length of the whole frame.
    pub(crate) const fn len(&self) -> usize {
        frame_len(0, self.bytes as usize)
    }
}

impl<'a> Frame<'a> {
    /// Reads the frame at a place, if it is complete and unchanged.
    pub(crate) fn read(segment: &'a [u8], place: Place) -> Option<Self> {
        let header = FrameHeader::read(segment, place)?;
        let bytes = segment.get(place.offset..)?.get(..header.len())?;
        let (front, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER)?)?;
        let body = front.get(FRAME_HEADER..)?;
        if u32_at(trailer, 4) != END || u32_at(trailer, 0) != body_checksum(u32_at(bytes, 4), body) {
            return None;
        }
        let frame = Self { header, records: body.get(..header.bytes as usize)? };
        frame.is_consistent().then_some(frame)
    }

    /// Returns the records, in order.
    pub(crate) const fn records(&self) -> FrameRecords<'a> {
        FrameRecords { rest: self.records }
    }

    /// Returns whether the records match the header. With a good checksum they do, unless the writer made a mistake.
    fn is_consistent(&self) -> bool {
        let mut records = self.records();
        let mut previous = self.header.before;
        let mut count = 0;
        for record in records.by_ref() {
            if record.last <= previous {
                return false;
            }
            previous = record.last;
            count += 1;
        }
        records.rest.is_empty() && previous == self.header.after && count == self.header.records
    }
}

/// Iterates over the records of a frame.
#[derive(Clone, Debug)]
pub(crate) struct FrameRecords<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for FrameRecords<'a> {
    type Item = RecordRef<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = self.rest.split_at_checked(RECORD_HEADER)?;
        let (payload, rest) = rest.split_at_checked(u32_at(header, 8) as usize)?;
        self.rest = rest;
        Some(RecordRef { last: Revision::new(u64_at(header, 0)), payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { segment: Revision::new(5), offset: 64 };

    fn segment() -> Vec<u8> {
        let mut bytes = vec![0; PLACE.offset];
        let records = [
            RecordRef { last: Revision::new(7), payload: b"two events" },
            RecordRef { last: Revision::new(8), payload: b"" },
        ];
        encode(&mut bytes, PLACE, Epoch::new(3), Revision::new(4), &records).unwrap();
        assert_eq!(bytes.len(), PLACE.offset + encoded_len(&records));
        bytes
    }

    #[test]
    fn a_frame_reads_back_where_it_was_written() {
        let bytes = segment();
        let frame = Frame::read(&bytes, PLACE).unwrap();
        assert_eq!(frame.header.before, Revision::new(4));
        assert_eq!(frame.header.after, Revision::new(8));
        assert_eq!(frame.header.epoch, Epoch::new(3));
        assert_eq!(frame.header.len(), bytes.len() - PLACE.offset);
        let payloads: Vec<_> = frame.records().map(|record| (record.last.get(), record.payload)).collect();
        assert_eq!(payloads, [(7, &b"two events"[..]), (8, b"")]);
    }

    #[test]
    fn a_frame_is_none_elsewhere_or_in_another_segment() {
        let mut bytes = segment();
        assert!(FrameHeader::read(&bytes, Place { segment: Revision::new(6), ..PLACE }).is_none());
        bytes.splice(0..0, [0; ALIGN]);
        assert!(FrameHeader::read(&bytes, Place { offset: PLACE.offset + ALIGN, ..PLACE }).is_none());
    }

    #[test]
    fn no_changed_byte_passes_and_neither_end_is_zero() {
        let bytes = segment();
        assert!(bytes[PLACE.offset] != 0 && *bytes.last().unwrap() != 0);
        for at in PLACE.offset..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= mask;
                assert!(Frame::read(&changed, PLACE).is_none(), "byte {at}");
            }
            assert!(Frame::read(&bytes[..at], PLACE).is_none(), "cut at {at}");
        }
    }
}
