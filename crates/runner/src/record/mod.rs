//! What the agent started, on its own disk: written before it is done, so that whoever comes after it knows.
//!
//! No other user has access to any of it: slots that run as another user must not read it.
//!
//! One small file for each slot, replaced as a whole; a crash leaves the old one or the new one. Beside them, which
//! server this agent obeys.
//!
//! On a full disk nothing new can be put on record, so nothing is started. What changes of slots that are on record is
//! kept in memory and written as soon as there is room: if the agent dies meanwhile, the next one sees the same again in
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
    /// A file of a later version of the agent.
    #[error("{}: written by a later version of the agent (format {format}): upgrade this one", path.display())]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
    /// Another agent has the directory.
    #[error("the data directory {} is in use by another agent: give each agent a directory of its own", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

impl RecordError {
    /// Whether there is no room on the disk: it may go well once somebody made some.
    #[must_use]
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::File { source, .. } if is_full_disk(source))
    }
}

/// Whether there is no room on the disk.
pub(crate) fn is_full_disk(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Which server this agent obeys, and the newest of its answers that was obeyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterBinding {
    /// Its data directory's identity.
    pub cluster: ClusterId,
    /// The newest start of it that was heard.
    pub epoch: Epoch,
    /// The revision of the newest answer of that start.
    #[serde(default)]
    pub revision: Revision,
    /// The code of that answer. It is shown to the server, which may have forgotten that it gave the answer.
    #[serde(default)]
    pub code: Option<String>,
}

impl ClusterBinding {
    /// A server that was heard of and gave no answer yet.
    #[must_use]
    pub fn without_answer(cluster: ClusterId, epoch: Epoch) -> Self {
        Self { cluster, epoch, revision: Revision::default(), code: None }
    }

    /// Whether this is an older answer of the same server.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        self.cluster == other.cluster && (self.epoch, self.revision) < (other.epoch, other.revision)
    }
}

/// The agent's own record.
#[derive(Debug)]
pub struct RecordStore {
    directory: PathBuf,
    records: BTreeMap<SlotId, SlotRecord>,
    binding: Option<ClusterBinding>,
    /// What is newer in memory than on the disk.
    unwritten: Unwritten,
    _lock: File,
}

#[derive(Debug, Default)]
struct Unwritten {
    slots: BTreeSet<SlotId>,
    binding: bool,
}

impl RecordStore {
    /// Opens the record in a directory, which is made if need be, is closed to other users, and belongs to one agent at
    /// a time.
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

    /// Everything on record.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<SlotId, SlotRecord> {
        &self.records
    }

    /// Which server is obeyed, once one was.
    #[must_use]
    pub fn binding(&self) -> Option<&ClusterBinding> {
        self.binding.as_ref()
    }

    /// Puts a slot on record. It is on the disk when this returns; after an error it is not on record.
    pub fn put(&mut self, row: SlotRecord) -> Result<(), RecordError> {
        write(&self.path_of(row.id), &stored::to_json(&row))?;
        self.unwritten.slots.remove(&row.id);
        self.records.insert(row.id, row);
        Ok(())
    }

    /// Notes what is seen of a slot: where it is in its life, or that it is there at all. On a full disk it is kept in
    /// memory: see [`Record::catch_up`].
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

    /// Whether something is newer in memory than on the disk.
    #[must_use]
    pub fn has_unwritten(&self) -> bool {
        self.unwritten.binding || !self.unwritten.slots.is_empty()
    }

    /// Writes what could not be written before, as far as there is room by now.
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

    /// Takes a slot off the record.
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

    /// Notes which server is obeyed. Which cluster that is must be on the disk before anything is done for it; a later
    /// start of the same server may be written later, if the disk is full.
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

/// Writes beside the old file, and puts it in its place once it is on the disk. No other user may read it.
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
        // What was begun would only take room.
        let _ = fs::remove_file(&beside);
        file(path)(error)
    })
}
