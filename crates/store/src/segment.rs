//! Reading a segment: which frames are good, and what the bytes after them mean.

use std::{ops::Range, path::Path};

use berth_domain::{Epoch, Revision};

use crate::{
    error::{Damage, Flaw, ReadError},
    frame::{ALIGN, FRAME_HEADER, Frame, FrameHeader, Place},
    header::{FORMAT, HEADER, Header, HeaderError, Kind, OLDEST},
};

/// The unit that a crash keeps or loses as a whole. Disks write sectors of 512 bytes or more; persistent memory writes
/// units of 64 bytes, and the smaller size covers both.
const ATOM: usize = 64;

/// Whether a segment may end with bytes that a crash left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A later segment follows, so everything in this one was acknowledged.
    Sealed,
    /// The segment that was being written.
    Last,
}

/// The result of reading one segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    /// The revision after its last record.
    pub(crate) revision: Revision,
    /// The epoch of its last batch.
    pub(crate) epoch: Epoch,
    /// The position of its last frame.
    pub(crate) last_frame: Range<usize>,
    /// Bytes after the last frame that a crash left, up to the last one that is not zero. They are cut.
    pub(crate) torn: Option<Range<usize>>,
}

/// Checks a segment's header against its name.
pub(crate) fn check_header(file: &Path, bytes: &[u8], first: Revision) -> Result<(), ReadError> {
    let damage = |flaw| Damage { file: file.to_owned(), offset: 0, flaw };
    match Header::decode(Kind::Segment, bytes) {
        Ok(header) if header.revision == first => Ok(()),
        Ok(header) => Err(damage(Flaw::Name { header: header.revision }).into()),
        Err(HeaderError::Damaged) => Err(damage(Flaw::Header).into()),
        Err(HeaderError::Newer(found)) => Err(ReadError::NewerFormat { file: file.to_owned(), found, known: FORMAT }),
        Err(HeaderError::Older(found)) => Err(ReadError::OlderFormat { file: file.to_owned(), found, oldest: OLDEST }),
    }
}

/// Returns the next frame, which must follow `revision`, or `None` if there is no good one.
pub(crate) fn next_frame<'a>(
    file: &Path,
    bytes: &'a [u8],
    place: Place,
    revision: Revision,
) -> Result<Option<Frame<'a>>, Damage> {
    match Frame::read(bytes, place) {
        Some(frame) if frame.header.before != revision => Err(Damage {
            file: file.to_owned(),
            offset: place.offset as u64,
            flaw: Flaw::Gap { after: revision, next: frame.header.before },
        }),
        frame => Ok(frame),
    }
}

/// Reads a whole segment whose name says that it begins with `first`.
pub(crate) fn scan(file: &Path, bytes: &[u8], first: Revision, role: Role) -> Result<Scan, ReadError> {
    check_header(file, bytes, first)?;
    let mut revision = Revision::new(first.get().saturating_sub(1));
    let mut epoch = Epoch::default();
    let mut place = Place { segment: first, offset: HEADER };
    let mut last_frame = HEADER..HEADER;
    while let Some(frame) = next_frame(file, bytes, place, revision)? {
        revision = frame.header.after;
        epoch = frame.header.epoch;
        last_frame = place.offset..place.offset + frame.header.len();
        place.offset = last_frame.end;
    }
    let damage = |flaw| Damage { file: file.to_owned(), offset: place.offset as u64, flaw };
    if last_frame.is_empty() {
        return Err(damage(Flaw::First).into());
    }
    let torn = match tail(bytes, place, revision) {
        Tail::Clean => None,
        Tail::Torn(range) if role == Role::Last => Some(range),
        Tail::Torn(_) | Tail::Followed => return Err(damage(Flaw::BeforeOthers).into()),
        Tail::Whole => return Err(damage(Flaw::Content).into()),
    };
    Ok(Scan { revision, epoch, last_frame, torn })
}

/// The kinds of bytes that can follow the last good frame.
#[derive(Debug, PartialEq, Eq)]
enum Tail {
    /// Zeros, or the end of the file.
    Clean,
    /// Bytes that a crash can leave of one batch that was being written.
    Torn(Range<usize>),
    /// A batch that was acknowledged: a later one follows it.
    Followed,
    /// A batch that may have been acknowledged: it is complete, but its content is not what was written.
    Whole,
}

fn tail(bytes: &[u8], place: Place, revision: Revision) -> Tail {
    let Some(range) = written(bytes, place.offset) else { return Tail::Clean };
    if later_batch_follows(bytes, place, range.end, revision) {
        Tail::Followed
    } else if something_is_missing(bytes, place, range.end) {
        Tail::Torn(range)
    } else {
        Tail::Whole
    }
}

/// Looks for the header of a batch that was written after the one at `place`. A batch is written only after the one
/// before it was synced, so even the header alone proves that. `written` is the end of everything that is not zero.
fn later_batch_follows(bytes: &[u8], place: Place, written: usize, revision: Revision) -> bool {
    (place.offset + ALIGN..written).step_by(ALIGN).any(|offset| {
        FrameHeader::read(bytes, Place { offset, ..place }).is_some_and(|header| header.before > revision)
    })
}

/// Returns whether the batch at `place` did not reach the disk as a whole: a part of it still reads as the zeros that
/// were there before. `written` is the end of everything that is not zero.
fn something_is_missing(bytes: &[u8], place: Place, written: usize) -> bool {
    let header = place.offset..place.offset + FRAME_HEADER;
    match FrameHeader::read(bytes, place) {
        Some(good) => {
            let frame = place.offset..place.offset + good.len();
            // The last byte of a frame is not zero.
            frame.end > written || has_hole(bytes, frame)
        }
        // Without a header the batch's length is unknown. If nothing follows the header, the rest is missing; if the
        // first byte is zero, the beginning is (or a crash interrupted the cutting).
        None => header.end >= written || bytes[place.offset] == 0 || has_hole(bytes, header),
    }
}

/// Returns the range from `from` to the last byte that is not zero, if there is one.
pub(crate) fn written(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut end = bytes.len();
    // Whole pages are compared first: most of a segment is often empty, and this runs at each start.
    for page in bytes.get(from..)?.rchunks(ZEROS.len()) {
        if page != &ZEROS[..page.len()] {
            let last = page.iter().rposition(|byte| *byte != 0)?;
            return Some(from..end - page.len() + last + 1);
        }
        end -= page.len();
    }
    None
}

/// Returns whether a record of this segment ends at a revision, or the segment begins right after it.
pub(crate) fn has_boundary(file: &Path, bytes: &[u8], first: Revision, revision: Revision) -> Result<bool, ReadError> {
    check_header(file, bytes, first)?;
    let mut before = Revision::new(first.get().saturating_sub(1));
    let mut place = Place { segment: first, offset: HEADER };
    while before < revision {
        let Some(frame) = next_frame(file, bytes, place, before)? else { return Ok(false) };
        if frame.records().any(|record| record.last == revision) {
            return Ok(true);
        }
        before = frame.header.after;
        place.offset += frame.header.len();
    }
    Ok(before == revision)
}

/// Returns whether one of the atoms that a range touches holds nothing but zeros.
fn has_hole(bytes: &[u8], range: Range<usize>) -> bool {
    let mut at = range.start;
    while at < range.end {
        let next = (at / ATOM * ATOM + ATOM).min(range.end);
        if bytes[at..next].iter().all(|byte| *byte == 0) {
            return true;
        }
        at = next;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{frame, journal::RecordRef};

    fn segment(batches: &[(u64, u64)]) -> Vec<u8> {
        let first = Revision::new(1);
        let mut bytes = Header { revision: first, number: 1, checksum: 0 }.encode(Kind::Segment).to_vec();
        for (before, last) in batches {
            let place = Place { segment: first, offset: bytes.len() };
            let records = [RecordRef { last: Revision::new(*last), payload: b"events" }];
            frame::encode(&mut bytes, place, Epoch::new(1), Revision::new(*before), &records).unwrap();
        }
        bytes.resize(bytes.len() + 100, 0);
        bytes
    }

    fn scan_last(bytes: &[u8]) -> Result<Scan, ReadError> {
        scan(Path::new("1.log"), bytes, Revision::new(1), Role::Last)
    }

    #[test]
    fn good_frames_that_do_not_follow_each_other_are_a_gap() {
        assert_eq!(scan_last(&segment(&[(0, 2), (2, 3)])).unwrap().revision, Revision::new(3));
        for next in [(1, 3), (3, 4)] {
            let Err(ReadError::Damaged(damage)) = scan_last(&segment(&[(0, 2), next])) else { panic!("{next:?}") };
            assert_eq!(damage.flaw, Flaw::Gap { after: Revision::new(2), next: Revision::new(next.0) });
        }
    }

    #[test]
    fn boundaries_are_the_ends_of_records_and_the_beginning() {
        let bytes = segment(&[(0, 2), (2, 5)]);
        let found: Vec<u64> = (0..=6)
            .filter(|at| has_boundary(Path::new("1.log"), &bytes, Revision::new(1), Revision::new(*at)).unwrap())
            .collect();
        assert_eq!(found, [0, 2, 5]);
    }

    #[test]
    fn the_header_of_a_later_batch_is_proof_even_if_that_batch_is_torn() {
        let mut bytes = segment(&[(0, 1), (1, 2), (2, 3)]);
        let frame = frame::frame_len(1, 6);
        let (second, third) = (HEADER + frame, HEADER + 2 * frame);
        bytes[third + FRAME_HEADER..].fill(0);
        assert_eq!(scan_last(&bytes).unwrap().torn.map(|torn| torn.start), Some(third));
        bytes[second..third].fill(0);
        let Err(ReadError::Damaged(damage)) = scan_last(&bytes) else { panic!("not refused") };
        assert_eq!((damage.offset, damage.flaw), (second as u64, Flaw::BeforeOthers));
    }

    #[test]
    fn written_ends_at_the_last_byte_that_is_not_zero() {
        let mut bytes = vec![0; 10_000];
        assert_eq!(written(&bytes, 0), None);
        for at in [0, 1, 4095, 4096, 5807, 5808, 9999] {
            bytes[at] = 1;
            assert_eq!(written(&bytes, 0), Some(0..at + 1));
            assert_eq!(written(&bytes, at), Some(at..at + 1));
            assert_eq!(written(&bytes, at + 1), None);
        }
    }
}
