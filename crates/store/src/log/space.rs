//! Space for the next batch, allocated before anything is decided.
//!
//! A batch goes into the current segment if it fits, else into the prepared one. So a batch fits, with `kept` bytes
//! left for others, if one of the two segments still has that many bytes after it.

use std::io;

use super::{LogJournal, MOST_BYTES, Prepared};
use crate::{
    disk::{self, Disk, DiskFile},
    header::HEADER,
    journal::NoSpace,
    names,
};

impl<D: Disk> LogJournal<D> {
    /// Makes sure that a frame of `need` bytes has a place, and that `kept` contiguous bytes are left after it.
    pub(super) fn make_space(&mut self, need: usize, kept: u64) -> Result<(), NoSpace> {
        if need > MOST_BYTES {
            return Err(NoSpace::TooLarge { bytes: need as u64, most: MOST_BYTES as u64 });
        }
        let need = need as u64;
        let current = self.current.as_ref().map_or(0, |current| current.space());
        let prepared = self.prepared.as_ref().map_or(0, Prepared::space);
        let missing = if current >= need {
            if current - need >= kept || prepared >= kept {
                return Ok(());
            }
            kept
        } else {
            need.saturating_add(kept)
        };
        if prepared >= missing { Ok(()) } else { self.prepare(missing) }
    }

    /// Prepares the next segment with at least this much space: the configured size, or the least that will do if the
    /// disk has no more.
    fn prepare(&mut self, space: u64) -> Result<(), NoSpace> {
        let least = space.saturating_add(HEADER as u64);
        let most = self.within_limit(space, least)?;
        let shared = &self.shared;
        let prepared = match &mut self.prepared {
            Some(prepared) => prepared,
            none => {
                let file = shared.disk.create(&shared.path(names::PREPARED)).map_err(|error| no_space(space, error))?;
                none.insert(Prepared { file, size: 0 })
            }
        };
        let wanted = self.options.segment_bytes.clamp(least, most);
        for size in [wanted, least] {
            match prepared.file.allocate(size) {
                Ok(()) => {
                    prepared.size = size;
                    return Ok(());
                }
                // What was allocated in part is freed; if that fails too, the next attempt finds it allocated.
                Err(error) if disk::is_full(&error) => {
                    let _ = prepared.file.set_size(prepared.size);
                }
                Err(error) => return Err(NoSpace::Io(error)),
            }
        }
        Err(NoSpace::DiskFull { bytes: space })
    }

    /// Returns how large the prepared segment may become within the configured limit.
    fn within_limit(&self, space: u64, least: u64) -> Result<u64, NoSpace> {
        let Some(limit) = self.options.limit_bytes else { return Ok(u64::MAX) };
        let sealed: u64 = self.shared.table().sealed.iter().map(|segment| segment.bytes).sum();
        let used = sealed.saturating_add(self.current.as_ref().map_or(0, |current| current.size));
        let most = limit.saturating_sub(used);
        if most < least { Err(NoSpace::Limit { bytes: space, limit }) } else { Ok(most) }
    }
}

fn no_space(bytes: u64, error: io::Error) -> NoSpace {
    if disk::is_full(&error) { NoSpace::DiskFull { bytes } } else { NoSpace::Io(error) }
}
