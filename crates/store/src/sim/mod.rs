//! A disk in memory that loses, tears, fills up and fails: the real journal runs on it in tests and simulations.
//!
//! Each change is first *pending*: readers see it, and a crash may lose it. Syncing a file makes its changes durable,
//! syncing a directory its names. [`SimDisk::crash`] returns the disk that a machine finds after its power was cut,
//! with a part of the pending changes on it, as a [`Survival`] says; [`survivals`] lists parts worth trying.
//! [`SimDisk::fork`] is the disk after only the process was killed: nothing is lost yet, and nothing more is durable.
//!
//! Changes are counted from 1, and [`SimDisk::plan`] makes one of them fail or stops the machine at it. Reading and
//! listing are not counted.

mod survival;
mod world;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use survival::{Survival, Surviving, survivals};
pub use world::{Effect, Fault, PendingChange};

use crate::disk::{Disk, DiskFile};
use world::{Change, World};

/// A simulated disk. A clone is another handle on the same one.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

/// An open file of a simulated disk.
#[derive(Clone, Debug)]
pub struct SimFile {
    world: Arc<Mutex<World>>,
    inode: usize,
}

impl SimDisk {
    /// Returns an empty disk without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many changes were tried so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.world().operations
    }

    /// Returns how often a file was read from so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.world().reads
    }

    /// Plans a fault, in place of the one that was planned before.
    pub fn plan(&self, fault: Option<Fault>) {
        self.world().fault = fault;
    }

    /// Cancels a planned failure. A planned stop stays.
    pub fn end_failures(&self) {
        let mut world = self.world();
        world.fault = world.fault.filter(|fault| matches!(fault, Fault::Stop { .. }));
    }

    /// Limits how many more bytes can be allocated; `None` removes the limit.
    pub fn set_capacity(&self, free: Option<u64>) {
        self.world().free = free;
    }

    /// Returns how many more bytes can be allocated.
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        self.world().free
    }

    /// Returns the changes that a crash could lose now, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<PendingChange> {
        self.world().pending.iter().map(Change::describe).collect()
    }

    /// Returns the disk after the power was cut, with this part of the pending changes on it.
    #[must_use]
    pub fn crash(&self, survival: &Survival) -> Self {
        Self { world: Arc::new(Mutex::new(self.world().crashed(survival))) }
    }

    /// Returns the disk after the process was killed: as it looks now, with the same changes pending, and no more
    /// faults.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { world: Arc::new(Mutex::new(self.world().forked())) }
    }

    /// Returns the files and their content.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let world = self.world();
        world.names.iter().map(|(path, inode)| (path.clone(), world.inodes[*inode].cached.clone())).collect()
    }

    /// Changes the content of a file durably, outside the interface of the disk.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.world();
        if let Some(inode) = world.names.get(path).copied() {
            let inode = &mut world.inodes[inode];
            change(&mut inode.cached);
            inode.durable.clone_from(&inode.cached);
        }
    }

    /// Removes a file durably, outside the interface of the disk.
    pub fn lose(&self, path: &Path) {
        let mut world = self.world();
        world.names.remove(path);
        world.durable_names.remove(path);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    fn file(&self, inode: usize) -> SimFile {
        SimFile { world: Arc::clone(&self.world), inode }
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk for SimDisk {
    type File = SimFile;

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        self.world().alive()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.world();
        world.alive()?;
        let inside = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let inode = self.world().create(path)?;
        Ok(self.file(inode))
    }

    fn open(&self, path: &Path) -> io::Result<SimFile> {
        let world = self.world();
        world.alive()?;
        let inode = world.names.get(path).copied().ok_or(io::ErrorKind::NotFound)?;
        drop(world);
        Ok(self.file(inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.world().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.world().remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.world().sync_dir(dir)
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        let world = lock(&self.world);
        world.alive()?;
        Ok(world.inodes[self.inode].cached.len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut world = lock(&self.world);
        world.alive()?;
        world.reads += 1;
        let bytes = usize::try_from(offset).ok().and_then(|offset| world.inodes[self.inode].cached.get(offset..));
        let bytes = bytes.unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        lock(&self.world).write(self.inode, offset, bytes)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        lock(&self.world).allocate(self.inode, size)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        lock(&self.world).set_size(self.inode, size)
    }

    fn sync(&self) -> io::Result<()> {
        lock(&self.world).sync(self.inode)
    }
}
