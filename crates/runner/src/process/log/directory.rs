//! The logs of all slots, below the agent's data directory: `SLOT/GENERATION.log`, then `.log.1` and older.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use berth_domain::{Bytes, Generation, SlotId};
use serde::{Deserialize, Serialize};

use super::slot_log::SlotLog;

/// How much of each slot's output is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogLimits {
    /// The bytes kept in memory.
    pub ring: Bytes,
    /// The largest file; a larger one is copied and cut.
    pub file: Bytes,
    /// The number of copies.
    pub copies: u32,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { ring: Bytes::new(64 << 10), file: Bytes::mib(16), copies: 2 }
    }
}

/// The directory of all logs.
#[derive(Clone, Debug)]
pub struct LogDir {
    path: PathBuf,
    limits: LogLimits,
}

impl LogDir {
    /// How many starts of a slot are kept, so that the previous one can be read after a failure.
    const GENERATIONS: u32 = 3;

    /// Opens or makes the directory. Other users may not read it: programs log their requests.
    pub fn open(path: &Path, limits: LogLimits) -> io::Result<Self> {
        make_private(path)?;
        Ok(Self { path: path.to_owned(), limits })
    }

    /// Opens the log of one start of a slot: a new one, or the existing one (an adopted slot goes on writing to it).
    pub fn slot(&self, slot: SlotId, generation: Generation) -> io::Result<SlotLog> {
        let dir = self.path.join(slot.to_string());
        make_private(&dir)?;
        self.drop_old_generations(&dir, generation)?;
        SlotLog::open(dir.join(format!("{generation}.log")), self.limits)
    }

    /// Opens the log of an ended slot to read it: of this start, or of the newest one. Returns `None` if there is none.
    pub fn past(&self, slot: SlotId, generation: Option<Generation>) -> io::Result<Option<SlotLog>> {
        let dir = self.path.join(slot.to_string());
        let generation = match generation {
            Some(generation) => Some(generation.get()),
            None => generations(&dir)?.into_iter().max(),
        };
        let Some(generation) = generation else { return Ok(None) };
        match SlotLog::open_past(dir.join(format!("{generation}.log")), self.limits) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Removes the logs of ended slots, except the newest `ended` of them.
    pub fn prune(&self, living: &BTreeSet<SlotId>, ended: usize) -> io::Result<()> {
        let living: BTreeSet<String> = living.iter().map(ToString::to_string).collect();
        let mut past = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| living.contains(name)) {
                past.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        past.sort();
        past.truncate(past.len().saturating_sub(ended));
        past.into_iter().try_for_each(|(_, path)| fs::remove_dir_all(path))
    }

    fn drop_old_generations(&self, dir: &Path, newest: Generation) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let generation = name.to_str().and_then(|name| name.split('.').next()?.parse::<u32>().ok());
            let is_old = |generation: u32| generation.saturating_add(Self::GENERATIONS) <= newest.get();
            if generation.is_some_and(is_old) {
                fs::remove_file(dir.join(name))?;
            }
        }
        Ok(())
    }
}

/// Returns which starts of a slot have a log.
fn generations(dir: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.strip_suffix(".log")?.parse().ok();
    Ok(entries.filter_map(number).collect())
}

fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
