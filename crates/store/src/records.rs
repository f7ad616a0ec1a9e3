//! Reading records back.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use berth_domain::Revision;

use crate::{
    disk::{self, Disk},
    error::{Damage, Flaw, ReadError, failed},
    frame::Place,
    header::HEADER,
    journal::Record,
    names, segment,
};

/// Iterates over the records after a revision, in order.
///
/// It reads one segment at a time and ends where the journal ended when it was made: records that are appended
/// meanwhile are not returned. After an error it yields nothing more.
#[derive(Debug)]
pub struct Records<D> {
    disk: D,
    dir: PathBuf,
    segments: VecDeque<Revision>,
    after: Revision,
    until: Revision,
    read: Revision,
    current: Option<Loaded>,
    batch: VecDeque<Record>,
}

#[derive(Debug)]
struct Loaded {
    file: PathBuf,
    bytes: Vec<u8>,
    place: Place,
}

impl<D: Disk> Records<D> {
    /// Returns the records after `after`, up to `until`, in these segments, which begin at or before `after`.
    pub(crate) fn new(disk: D, dir: &Path, segments: VecDeque<Revision>, after: Revision, until: Revision) -> Self {
        let read = segments.front().map_or(until, |first| Revision::new(first.get().saturating_sub(1)));
        Self { disk, dir: dir.to_owned(), segments, after, until, read, current: None, batch: VecDeque::new() }
    }

    /// Reads on until there are records to return, or the end.
    fn advance(&mut self) -> Result<(), ReadError> {
        while self.read < self.until {
            let mut loaded = match self.current.take() {
                Some(loaded) => loaded,
                None => self.load()?,
            };
            let Some(frame) = segment::next_frame(&loaded.file, &loaded.bytes, loaded.place, self.read)? else {
                // The segment is at its end. It was complete when it was first read; if it is not any more, the next
                // segment, or the lack of one, shows it.
                if self.segments.is_empty() {
                    return Err(loaded.damage(Flaw::BeforeOthers).into());
                }
                continue;
            };
            loaded.place.offset += frame.header.len();
            self.read = frame.header.after;
            let wanted = frame.records().filter(|record| record.last > self.after && record.last <= self.until);
            self.batch.extend(wanted.map(|record| Record { last: record.last, payload: record.payload.to_vec() }));
            self.current = Some(loaded);
            if !self.batch.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn load(&mut self) -> Result<Loaded, ReadError> {
        let first = self.segments.pop_front().unwrap_or(self.until);
        let file = self.dir.join(names::segment(first));
        let bytes = self.disk.open(&file).and_then(|open| disk::read_all(&open)).map_err(failed("read", &file))?;
        segment::check_header(&file, &bytes, first)?;
        Ok(Loaded { file, bytes, place: Place { segment: first, offset: HEADER } })
    }

    fn stop(&mut self) {
        self.segments.clear();
        self.current = None;
        self.read = self.until;
    }
}

impl Loaded {
    fn damage(&self, flaw: Flaw) -> Damage {
        Damage { file: self.file.clone(), offset: self.place.offset as u64, flaw }
    }
}

impl<D: Disk> Iterator for Records<D> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty()
            && let Err(error) = self.advance()
        {
            self.stop();
            return Some(Err(error));
        }
        self.batch.pop_front().map(Ok)
    }
}
