//! From a backup to a data directory that a server can go on from.
//!
//! The directory is marked as unfinished until everything in it is durable, and no server starts on it before. The first
//! record of its journal says that the state was restored, so that the server expects agents to know more than it does.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use berth_core::{Command, Settings, Snapshot, State};
use berth_store::{AppendError, Journal, Options, RecordRef, SeedError};

use super::{BackupError, Header, STATE, check};
use crate::clock;
use crate::engine::{Engine, Record};
use crate::trust::cluster_key::{self, ClusterKey};
use crate::trust::{private_file, tokens};

/// The file that marks a data directory whose restore was not finished.
pub const UNFINISHED: &str = "RESTORE-UNFINISHED";
/// What a restore makes, and may make again.
const MADE: [&str; 4] = ["LOCK", "journal", tokens::FILE, cluster_key::FILE];

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// There is something in the directory.
    #[error("{} is not empty: move it away, or restore into another directory", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The journal cannot be made.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The first record cannot be written.
    #[error("the journal cannot be written: {0}")]
    Append(#[from] AppendError),
}

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// What the backup is of.
    pub header: Header,
    /// How many runners it knows: each of them has to report before anything is placed on it.
    pub runners: usize,
    /// How many models it knows.
    pub models: usize,
    /// How many slots it knows: the agents are asked what became of them.
    pub slots: usize,
    /// Jobs that may have run since the backup was made, and were ended.
    pub ended_jobs: usize,
}

/// Makes a data directory of a backup. `options` say how its journal uses the disk.
pub fn restore(backup: &Path, data_dir: &Path, options: Options) -> Result<Restored, RestoreError> {
    let checked = check(backup)?;
    let key = checked.part(cluster_key::FILE)?;
    if std::str::from_utf8(&key).ok().and_then(ClusterKey::parse).is_none() {
        return Err(checked.damaged("its key is no key").into());
    }
    let tokens = checked.part(tokens::FILE)?;
    let payload = checked.part(STATE)?;
    let snapshot = || serde_json::from_slice::<Snapshot>(&payload);
    let state = snapshot().map_err(|error| checked.damaged(error.to_string()))?;
    let state = State::restore(Settings::default(), state).map_err(|error| checked.damaged(error.to_string()))?;

    prepare(data_dir)?;
    let base = state.revision();
    let mut journal = berth_store::seed(
        data_dir,
        options,
        base,
        |to: &mut dyn Write| to.write_all(&payload),
        |bytes| if bytes == payload { Ok(()) } else { Err(io::Error::other("it reads back as something else")) },
    )?;
    let restored = first_record(&mut journal, state, checked.header)?;
    put(data_dir, tokens::FILE, &tokens)?;
    put(data_dir, cluster_key::FILE, &key)?;
    let mark = data_dir.join(UNFINISHED);
    std::fs::remove_file(&mark).and_then(|()| sync(data_dir)).map_err(failed(&mark))?;
    Ok(restored)
}

/// Says in the journal that the state was restored, with all that follows from it.
fn first_record(journal: &mut impl Journal, state: State, header: Header) -> Result<Restored, RestoreError> {
    let waiting = |state: &State| state.workloads().iter().filter(|row| row.cause.is_none()).count();
    let before = waiting(&state);
    let mut engine = Engine::new(state);
    let (done, _) = engine.execute(&Command::Restore, clock::now());
    let payload =
        Record::new(done.at, &done.kept).encode().map_err(|error| AppendError::Io(io::Error::other(error)))?;
    journal.reserve(payload.len(), true).map_err(AppendError::from)?;
    let record = RecordRef { last: done.revision, payload: &payload };
    let state = engine.state();
    journal.append(state.epoch(), journal.revision(), &[record])?;
    Ok(Restored {
        header,
        runners: state.runners().len(),
        models: state.models().iter().filter(|model| !model.deleted).count(),
        slots: state.slots().len(),
        ended_jobs: before.saturating_sub(waiting(state)),
    })
}

/// Makes the directory, or empties one whose restore was not finished, and marks it.
fn prepare(data_dir: &Path) -> Result<(), RestoreError> {
    berth_files::make_directory(data_dir).map_err(failed(data_dir))?;
    let mark = data_dir.join(UNFINISHED);
    if mark.exists() {
        for name in MADE {
            let path = data_dir.join(name);
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&path)(error)),
                _ => {}
            }
        }
    } else if std::fs::read_dir(data_dir).map_err(failed(data_dir))?.next().is_some() {
        return Err(RestoreError::NotEmpty { path: data_dir.to_owned() });
    }
    put(data_dir, UNFINISHED, b"a backup is being restored into this directory\n")
}

fn put(data_dir: &Path, name: &str, bytes: &[u8]) -> Result<(), RestoreError> {
    let path = data_dir.join(name);
    private_file::replace(&path, bytes).map_err(failed(&path))
}

fn sync(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |source| RestoreError::File { path, source }
}
