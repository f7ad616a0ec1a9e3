//! The header at the beginning of each file.
//!
//! Later formats keep these 64 bytes as they are, so that each version of berth can tell which format a file has.
//!
//! ```text
//!  0  8  magic                    24  8  epoch (segments), payload length (snapshots)
//!  8  4  format                   32  4  checksum of the payload (snapshots)
//! 12  4  zero                     36 24  zero
//! 16  8  revision                 60  4  checksum of the bytes before
//! ```

use berth_domain::Revision;

/// The length of a header in bytes.
pub(crate) const HEADER: usize = 64;
/// The format that this code writes, and the newest that it reads.
pub const FORMAT: u32 = 4;
/// The oldest format that this code reads. Records of older formats have another meaning.
pub(crate) const OLDEST: u32 = 4;

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Segment,
    Snapshot,
}

impl Kind {
    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Segment => b"BERTHLOG",
            Self::Snapshot => b"BERTHSNP",
        }
    }
}

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// A segment's first revision, or a snapshot's own.
    pub(crate) revision: Revision,
    /// A segment's epoch as it began, or the length of a snapshot's payload.
    pub(crate) number: u64,
    /// The checksum of a snapshot's payload.
    pub(crate) checksum: u32,
}

/// Why a header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The bytes are not a header of berth, or were changed.
    Damaged,
    /// A newer version of berth wrote the file.
    Newer(u32),
    /// A version of berth wrote the file whose records this one cannot read.
    Older(u32),
}

impl Header {
    /// Encodes the header.
    pub(crate) fn encode(self, kind: Kind) -> [u8; HEADER] {
        self.encode_format(kind, FORMAT)
    }

    fn encode_format(self, kind: Kind, format: u32) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(kind.magic());
        bytes[8..12].copy_from_slice(&format.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.revision.get().to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header at the beginning of these bytes.
    pub(crate) fn decode(kind: Kind, bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes: &[u8; HEADER] = bytes.first_chunk().ok_or(HeaderError::Damaged)?;
        if bytes[..8] != *kind.magic() || u32_at(bytes, 60) != crc32fast::hash(&bytes[..60]) {
            return Err(HeaderError::Damaged);
        }
        match u32_at(bytes, 8) {
            0 => return Err(HeaderError::Damaged),
            OLDEST..=FORMAT => {}
            older if older < OLDEST => return Err(HeaderError::Older(older)),
            newer => return Err(HeaderError::Newer(newer)),
        }
        Ok(Self { revision: Revision::new(u64_at(bytes, 16)), number: u64_at(bytes, 24), checksum: u32_at(bytes, 32) })
    }
}

/// Returns the number at an offset. Missing bytes count as zero, and no checksum matches them.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// Returns the number at an offset. Missing bytes count as zero, and no checksum matches them.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_no_changed_byte_passes() {
        let header = Header { revision: Revision::new(7), number: 9, checksum: 11 };
        let bytes = header.encode(Kind::Segment);
        assert_eq!(Header::decode(Kind::Segment, &bytes), Ok(header));
        assert_eq!(Header::decode(Kind::Snapshot, &bytes), Err(HeaderError::Damaged));
        assert_eq!(Header::decode(Kind::Segment, &bytes[..63]), Err(HeaderError::Damaged));
        for at in 0..HEADER {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            assert_eq!(Header::decode(Kind::Segment, &changed), Err(HeaderError::Damaged), "byte {at}");
        }
    }

    #[test]
    fn s3_a_newer_format_is_not_reported_as_damage() {
        let header = Header { revision: Revision::new(7), number: 0, checksum: 0 };
        let bytes = header.encode_format(Kind::Snapshot, FORMAT + 1);
        assert_eq!(Header::decode(Kind::Snapshot, &bytes), Err(HeaderError::Newer(FORMAT + 1)));
        let bytes = header.encode_format(Kind::Segment, OLDEST - 1);
        assert_eq!(Header::decode(Kind::Segment, &bytes), Err(HeaderError::Older(OLDEST - 1)));
    }
}
