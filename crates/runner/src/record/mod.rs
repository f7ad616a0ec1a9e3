//! The agent's record on its own disk: what it started, written before it is done, so that a later agent knows of it.
//!
//! No other user can read any of it: slots that run as another user must not read it.
//!
//! Each slot has one small file, which is replaced as a whole; a crash leaves the old one or the new one. Another file
//! says which cluster the agent is bound to.
//!
//! On a full disk nothing new can be put on record, so nothing is started. Changes of slots that are on record are kept
//! in memory and written as soon as there is space: if the agent dies meanwhile, the next one sees the same again in
//! processes, in the driver and in the exit files of jobs.

mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use berth_domain::{ClusterId, Epoch, Revision, SlotId};
use serde::{Deserialize, Serialize};

use crate::reconcile::SlotRecord;

const SLOTS: &str = "slots";
const BINDING: &str = "obeys.json";
const LOCK: &str = "LOCK";

/// Why the record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file has invalid content.
    #[error("{}: {source}: move it away if you know what became of its slot", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The parse error.
        source: serde_json::Error,
    },
    /// A later version of the agent wrote the file.
    #[error("{}: written by a later version of the agent (format {format}): upgrade this one", path.display())]
    Newer {
        /// The path of the file.
        path: PathBuf,
        /// The format of the file.
        format: u64,
    },
    /// Another agent uses the directory.
    #[error("the data directory {} is in use by another agent: give each agent a directory of its own", path.display())]
    InUse {
        /// The path of the directory.
        path: PathBuf,
    },
}

impl RecordError {
    /// Returns whether the disk is full: the operation may succeed once there is space.
    #[must_use]
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::File { source, .. } if is_full_disk(source))
    }
}

/// Returns whether an error means that the disk is full.
pub(crate) fn is_full_disk(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The cluster that this agent acts for, and the newest answer of its server that the agent acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterBinding {
    /// The cluster's id, which is that of the server's data directory.
    pub cluster: ClusterId,
    /// The newest start of the server that answered.
    pub epoch: Epoch,
    /// The revision of the newest answer of that start.
    #[serde(default)]
    pub revision: Revision,
    /// The code of that answer. The agent sends it to the server, which may have lost its memory of the answer.
    #[serde(default)]
    pub code: Option<String>,
}

impl ClusterBinding {
    /// Returns a binding to a server that gave no answer yet.
    #[must_use]
    pub fn without_answer(cluster: ClusterId, epoch: Epoch) -> Self {
        Self { cluster, epoch, revision: Revision::default(), code: None }
    }

    /// Returns whether this is an older answer of the same server.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        self.cluster == other.cluster && (self.epoch, self.revision) < (other.epoch, other.revision)
    }
}

/// The records of all slots and the cluster binding, on disk and in memory.
#[derive(Debug)]
pub struct RecordStore {
    directory: PathBuf,
    records: BTreeMap<SlotId, SlotRecord>,
    binding: Option<ClusterBinding>,
    /// What is newer in memory than on disk.
    unwritten: Unwritten,
    _lock: File,
}

#[derive(Debug, Default)]
struct Unwritten {
    slots: BTreeSet<SlotId>,
    binding: bool,
}

impl RecordStore {
    /// Opens the record in a directory. The directory is made if needed, closed to other users, and locked for this
    /// agent.
    pub fn open(directory: &Path) -> Result<Self, RecordError> {
        make_data_directory(directory)?;
        let slots = directory.join(SLOTS);
        make_data_directory(&slots)?;
        let path = directory.join(LOCK);
        let lock = berth_files::create(&path).map_err(file(&path))?;
        lock.try_lock().map_err(|_| RecordError::InUse { path: directory.to_owned() })?;
        let mut records = BTreeMap::new();
        for entry in fs::read_dir(&slots).map_err(file(&slots))? {
            let path = entry.map_err(file(&slots))?.path();
            if path.extension().is_some_and(|kind| kind == "json") {
                let row = stored::parse(&path, &read(&path)?)?;
                records.insert(row.id, row);
            }
        }
        let path = directory.join(BINDING);
        let damaged = |source| RecordError::Damaged { path: path.clone(), source };
        let binding = if path.exists() { Some(serde_json::from_slice(&read(&path)?).map_err(damaged)?) } else { None };
        Ok(Self { directory: directory.to_owned(), records, binding, unwritten: Unwritten::default(), _lock: lock })
    }

    /// Returns the records of all slots.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<SlotId, SlotRecord> {
        &self.records
    }

    /// Returns the cluster binding, once there is one.
    #[must_use]
    pub fn binding(&self) -> Option<&ClusterBinding> {
        self.binding.as_ref()
    }

    /// Writes a slot's record. It is on disk when this returns; after an error it is not on record.
    pub fn put(&mut self, row: SlotRecord) -> Result<(), RecordError> {
        write(&self.path_of(row.id), &stored::to_json(&row))?;
        self.unwritten.slots.remove(&row.id);
        self.records.insert(row.id, row);
        Ok(())
    }

    /// Writes a slot's record, or keeps it in memory if the disk is full: see [`RecordStore::write_pending`]. For what
    /// is observed of a slot, which a later agent would observe again.
    pub fn update(&mut self, row: SlotRecord) -> Result<(), RecordError> {
        match self.put(row.clone()) {
            Err(error) if error.is_full_disk() => {
                self.warn_of_full_disk(&error);
                self.unwritten.slots.insert(row.id);
                self.records.insert(row.id, row);
                Ok(())
            }
            done => done,
        }
    }

    /// Returns whether something is newer in memory than on disk.
    #[must_use]
    pub fn has_unwritten(&self) -> bool {
        self.unwritten.binding || !self.unwritten.slots.is_empty()
    }

    /// Writes what could not be written before, as far as the disk has space by now.
    pub fn write_pending(&mut self) -> Result<(), RecordError> {
        if !self.has_unwritten() {
            return Ok(());
        }
        match self.write_all() {
            Err(error) if error.is_full_disk() => Ok(()),
            Ok(()) => {
                tracing::info!("there is room on the disk again: the record is written");
                Ok(())
            }
            failed => failed,
        }
    }

    fn write_all(&mut self) -> Result<(), RecordError> {
        while let Some(id) = self.unwritten.slots.first().copied() {
            if let Some(row) = self.records.get(&id) {
                write(&self.path_of(id), &stored::to_json(row))?;
            }
            self.unwritten.slots.remove(&id);
        }
        if let Some(binding) = self.binding.as_ref().filter(|_| self.unwritten.binding) {
            write(&self.directory.join(BINDING), binding)?;
            self.unwritten.binding = false;
        }
        Ok(())
    }

    fn warn_of_full_disk(&self, error: &RecordError) {
        if !self.has_unwritten() {
            tracing::error!(
                %error,
                "the record cannot be written: nothing is started until there is room. What runs goes on and is reported"
            );
        }
    }

    /// Removes a slot's record.
    pub fn forget(&mut self, slot: SlotId) -> Result<(), RecordError> {
        let path = self.path_of(slot);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file(&path)(error)),
            _ => {}
        }
        self.unwritten.slots.remove(&slot);
        self.records.remove(&slot);
        Ok(())
    }

    /// Writes the cluster binding. The cluster must be on disk before the agent acts for it; a later start of the same
    /// server may be written later, if the disk is full.
    pub fn bind(&mut self, binding: ClusterBinding) -> Result<(), RecordError> {
        if self.binding.as_ref() == Some(&binding) {
            return Ok(());
        }
        match write(&self.directory.join(BINDING), &binding) {
            Err(error) if error.is_full_disk() && self.is_bound_to(binding.cluster) => {
                self.warn_of_full_disk(&error);
                self.unwritten.binding = true;
            }
            Err(error) => return Err(error),
            Ok(()) => self.unwritten.binding = false,
        }
        self.binding = Some(binding);
        Ok(())
    }

    fn is_bound_to(&self, cluster: ClusterId) -> bool {
        self.binding.as_ref().is_some_and(|known| known.cluster == cluster)
    }

    fn path_of(&self, slot: SlotId) -> PathBuf {
        self.directory.join(SLOTS).join(format!("{slot}.json"))
    }
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::File { path, source }
}

fn read(path: &Path) -> Result<Vec<u8>, RecordError> {
    fs::read(path).map_err(file(path))
}

/// Makes the data directory of an agent. No other user may enter it.
pub(crate) fn make_data_directory(path: &Path) -> Result<(), RecordError> {
    berth_files::make_directory(path).map_err(file(path))
}

/// Replaces a file as a whole, once the new one is on disk. No other user may read it.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), RecordError> {
    let beside = path.with_extension("tmp");
    let put = || -> io::Result<()> {
        let mut file = berth_files::create(&beside)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    put().map_err(|error| {
        // An unfinished file would only take space.
        let _ = fs::remove_file(&beside);
        file(path)(error)
    })
}
