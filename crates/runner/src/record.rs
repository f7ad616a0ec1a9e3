//! What the agent started, on its own disk: written before it is done, so that whoever comes after it knows.
//!
//! One small file for each slot, replaced as a whole; a crash leaves the old one or the new one. Beside them, which
//! server this agent obeys.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use berth_domain::{ClusterId, Epoch, SlotId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::reconcile::Kept;

const SLOTS: &str = "slots";
const OBEYS: &str = "obeys.json";
const LOCK: &str = "LOCK";

/// Why the record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is no record.
    #[error("{}: {source}: move it away if you know what became of its slot", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Another agent has the directory.
    #[error("the data directory {} is in use by another agent: give each agent a directory of its own", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// Which server this agent obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obeys {
    /// Its data directory's identity.
    pub cluster: ClusterId,
    /// The newest start of it that was heard.
    pub epoch: Epoch,
}

/// The agent's own record.
#[derive(Debug)]
pub struct Record {
    directory: PathBuf,
    kept: BTreeMap<SlotId, Kept>,
    obeys: Option<Obeys>,
    _lock: File,
}

impl Record {
    /// Opens the record in a directory, which is made if need be, and belongs to one agent at a time.
    pub fn open(directory: &Path) -> Result<Self, RecordError> {
        let slots = directory.join(SLOTS);
        fs::create_dir_all(&slots).map_err(file(&slots))?;
        let path = directory.join(LOCK);
        let lock = File::create(&path).map_err(file(&path))?;
        lock.try_lock().map_err(|_| RecordError::InUse { path: directory.to_owned() })?;
        let mut kept = BTreeMap::new();
        for entry in fs::read_dir(&slots).map_err(file(&slots))? {
            let path = entry.map_err(file(&slots))?.path();
            if path.extension().is_some_and(|kind| kind == "json") {
                let row: Kept = read(&path)?;
                kept.insert(row.slot.id, row);
            }
        }
        let path = directory.join(OBEYS);
        let obeys = if path.exists() { Some(read(&path)?) } else { None };
        Ok(Self { directory: directory.to_owned(), kept, obeys, _lock: lock })
    }

    /// Everything on record.
    #[must_use]
    pub fn kept(&self) -> &BTreeMap<SlotId, Kept> {
        &self.kept
    }

    /// Which server is obeyed, once one was.
    #[must_use]
    pub fn obeys(&self) -> Option<Obeys> {
        self.obeys
    }

    /// Puts a slot on record. It is on the disk when this returns.
    pub fn put(&mut self, row: Kept) -> Result<(), RecordError> {
        write(&self.path_of(row.slot.id), &row)?;
        self.kept.insert(row.slot.id, row);
        Ok(())
    }

    /// Takes a slot off the record.
    pub fn forget(&mut self, slot: SlotId) -> Result<(), RecordError> {
        let path = self.path_of(slot);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file(&path)(error)),
            _ => {}
        }
        self.kept.remove(&slot);
        Ok(())
    }

    /// Notes which server is obeyed.
    pub fn obey(&mut self, obeys: Obeys) -> Result<(), RecordError> {
        if self.obeys != Some(obeys) {
            write(&self.directory.join(OBEYS), &obeys)?;
            self.obeys = Some(obeys);
        }
        Ok(())
    }

    fn path_of(&self, slot: SlotId) -> PathBuf {
        self.directory.join(SLOTS).join(format!("{slot}.json"))
    }
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::File { path, source }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, RecordError> {
    let bytes = fs::read(path).map_err(file(path))?;
    serde_json::from_slice(&bytes).map_err(|source| RecordError::Damaged { path: path.to_owned(), source })
}

/// Writes beside the old file, and puts it in its place once it is on the disk.
fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), RecordError> {
    let beside = path.with_extension("tmp");
    let put = || -> io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    put().map_err(file(path))
}
