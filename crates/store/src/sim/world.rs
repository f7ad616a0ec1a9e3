//! The content of a simulated disk: durable, visible, and pending.

use std::{
    collections::BTreeMap,
    io, mem,
    path::{Path, PathBuf},
};

use super::survival::{Survival, Surviving};

/// A fault that is planned for one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine stops at a change: with [`Effect::Nothing`] before it, else in or after it. Later calls all fail.
    Stop {
        /// The number of the change, from 1.
        at: u64,
        /// How much of the change takes effect.
        effect: Effect,
    },
    /// A change fails.
    Fail {
        /// The number of the change, from 1.
        at: u64,
        /// The error that it returns.
        kind: io::ErrorKind,
        /// How much of the change takes effect.
        effect: Effect,
        /// Whether all changes after it fail too.
        lasting: bool,
    },
}

/// How much of a failed change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None of it. Syncing a file gives up on what it should have written: it is visible, and no later sync writes it.
    /// Names stay pending: file systems that cannot write their own records stop rather than forget them.
    Nothing,
    /// The first half. The rest is as with `Nothing`.
    Half,
    /// All of it, though the call returns an error.
    Everything,
}

/// A change that a crash could lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingChange {
    /// The offset and the length of a write; `None` for names and lengths.
    pub write: Option<(u64, usize)>,
}

/// A change that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { inode: usize, offset: usize, bytes: Vec<u8> },
    Size { inode: usize, size: usize },
    Name { name: PathBuf, inode: usize },
    Rename { from: PathBuf, to: PathBuf, inode: usize },
    Remove { name: PathBuf },
}

impl Change {
    pub(super) fn describe(&self) -> PendingChange {
        let write = match self {
            Self::Write { offset, bytes, .. } => Some((*offset as u64, bytes.len())),
            _ => None,
        };
        PendingChange { write }
    }

    const fn is_of_content(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Size { .. })
    }

    fn is_of_file(&self, file: usize) -> bool {
        matches!(self, Self::Write { inode, .. } | Self::Size { inode, .. } if *inode == file)
    }

    fn is_of_directory(&self, dir: &Path) -> bool {
        match self {
            Self::Name { name, .. } | Self::Remove { name } => name.parent() == Some(dir),
            Self::Rename { to, .. } => to.parent() == Some(dir),
            _ => false,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) durable: Vec<u8>,
    pub(super) cached: Vec<u8>,
    /// The end of the space that is allocated to the file.
    allocated: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) inodes: Vec<Inode>,
    pub(super) names: BTreeMap<PathBuf, usize>,
    pub(super) durable_names: BTreeMap<PathBuf, usize>,
    pub(super) pending: Vec<Change>,
    pub(super) operations: u64,
    pub(super) reads: u64,
    pub(super) fault: Option<Fault>,
    pub(super) free: Option<u64>,
    off: bool,
}

impl World {
    /// Fails once the machine has stopped.
    pub(super) fn alive(&self) -> io::Result<()> {
        if self.off { Err(io::Error::other("the machine is off")) } else { Ok(()) }
    }

    /// Counts a change and returns how much of it takes effect, and the error that it returns.
    fn begin(&mut self) -> io::Result<(Effect, io::Result<()>)> {
        self.alive()?;
        self.operations += 1;
        let now = self.operations;
        Ok(match self.fault {
            Some(Fault::Stop { at, effect }) if now == at => {
                self.off = true;
                (effect, self.alive())
            }
            Some(Fault::Fail { at, kind, effect, lasting }) if now == at || (lasting && now > at) => {
                (effect, Err(kind.into()))
            }
            _ => (Effect::Everything, Ok(())),
        })
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<usize> {
        let (effect, result) = self.begin()?;
        let inode = self.inodes.len();
        self.inodes.push(Inode::default());
        if effect == Effect::Everything {
            self.change(Change::Name { name: path.to_owned(), inode });
        }
        result.map(|()| inode)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (effect, result) = self.begin()?;
        let inode = self.names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        if effect == Effect::Everything {
            self.change(Change::Rename { from: from.to_owned(), to: to.to_owned(), inode });
        }
        result
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (effect, result) = self.begin()?;
        let inode = self.names.get(path).copied().ok_or(io::ErrorKind::NotFound)?;
        if effect == Effect::Everything {
            self.give_back(inode, 0);
            self.change(Change::Remove { name: path.to_owned() });
        }
        result
    }

    pub(super) fn write(&mut self, inode: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (effect, result) = self.begin()?;
        self.take(inode, offset + bytes.len() as u64)?;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let bytes = match effect {
            Effect::Nothing => &[],
            Effect::Half => &bytes[..bytes.len() / 2],
            Effect::Everything => bytes,
        };
        if !bytes.is_empty() {
            self.change(Change::Write { inode, offset, bytes: bytes.to_vec() });
        }
        result
    }

    pub(super) fn allocate(&mut self, inode: usize, size: u64) -> io::Result<()> {
        let (effect, mut result) = self.begin()?;
        let had = self.inodes[inode].allocated;
        let size = match effect {
            Effect::Nothing => return result,
            Effect::Half => had + size.saturating_sub(had) / 2,
            Effect::Everything => size,
        };
        if let Err(full) = self.take(inode, size) {
            // As on real disks, the space that was left is taken.
            let _ = self.take(inode, had + self.free.unwrap_or(0));
            result = Err(full);
        }
        let size = usize::try_from(size.min(self.inodes[inode].allocated)).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if size > self.inodes[inode].cached.len() {
            self.change(Change::Size { inode, size });
        }
        result
    }

    pub(super) fn set_size(&mut self, inode: usize, size: u64) -> io::Result<()> {
        let (effect, result) = self.begin()?;
        if effect == Effect::Everything {
            self.give_back(inode, size);
            let size = usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
            self.change(Change::Size { inode, size });
        }
        result
    }

    pub(super) fn sync(&mut self, inode: usize) -> io::Result<()> {
        self.settle(|change| change.is_of_file(inode))
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.settle(|change| change.is_of_directory(dir))
    }

    /// Makes changes durable, or gives up on them.
    fn settle(&mut self, belongs: impl Fn(&Change) -> bool) -> io::Result<()> {
        let (effect, result) = self.begin()?;
        if self.off && effect != Effect::Everything {
            // The survival decides about changes that were under way when the power was cut.
            return result;
        }
        let (settled, others): (Vec<_>, Vec<_>) = mem::take(&mut self.pending).into_iter().partition(belongs);
        self.pending = others;
        let count = match effect {
            Effect::Nothing => 0,
            Effect::Half => settled.len() / 2,
            Effect::Everything => settled.len(),
        };
        for change in &settled[..count] {
            self.make_durable(change, &Surviving::All);
        }
        let names = settled.into_iter().skip(count).filter(|change| !change.is_of_content());
        self.pending.extend(names);
        result
    }

    /// Makes a change visible and notes that it is not durable.
    fn change(&mut self, change: Change) {
        match &change {
            Change::Write { inode, offset, bytes } => overwrite(&mut self.inodes[*inode].cached, *offset, bytes),
            Change::Size { inode, size } => self.inodes[*inode].cached.resize(*size, 0),
            names => rename(&mut self.names, names),
        }
        self.pending.push(change);
    }

    fn make_durable(&mut self, change: &Change, kept: &Surviving) {
        match (change, kept) {
            (_, Surviving::Nothing) => {}
            (Change::Write { inode, offset, bytes }, Surviving::Parts(parts)) => {
                for part in parts {
                    overwrite(&mut self.inodes[*inode].durable, *offset + part.start, &bytes[part.clone()]);
                }
            }
            (Change::Write { inode, offset, bytes }, Surviving::All) => {
                overwrite(&mut self.inodes[*inode].durable, *offset, bytes);
            }
            (Change::Size { inode, size }, _) => self.inodes[*inode].durable.resize(*size, 0),
            (names, _) => rename(&mut self.durable_names, names),
        }
    }

    pub(super) fn crashed(&self, survival: &Survival) -> Self {
        let mut world = self.clone();
        for (change, kept) in mem::take(&mut world.pending).iter().zip(&survival.0) {
            world.make_durable(change, kept);
        }
        for inode in &mut world.inodes {
            inode.cached.clone_from(&inode.durable);
            inode.allocated = inode.cached.len() as u64;
        }
        world.names.clone_from(&world.durable_names);
        world.forked()
    }

    pub(super) fn forked(&self) -> Self {
        Self { operations: 0, fault: None, off: false, ..self.clone() }
    }

    fn take(&mut self, inode: usize, size: u64) -> io::Result<()> {
        let inode = &mut self.inodes[inode];
        let more = size.saturating_sub(inode.allocated);
        if let Some(free) = &mut self.free {
            *free = free.checked_sub(more).ok_or(io::ErrorKind::StorageFull)?;
        }
        inode.allocated += more;
        Ok(())
    }

    fn give_back(&mut self, inode: usize, size: u64) {
        let inode = &mut self.inodes[inode];
        let less = inode.allocated.saturating_sub(size);
        inode.allocated -= less;
        if let Some(free) = &mut self.free {
            *free += less;
        }
    }
}

fn overwrite(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

fn rename(names: &mut BTreeMap<PathBuf, usize>, change: &Change) {
    match change {
        Change::Name { name, inode } => {
            names.insert(name.clone(), *inode);
        }
        Change::Rename { from, to, inode } => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
        Change::Remove { name } => {
            names.remove(name);
        }
        Change::Write { .. } | Change::Size { .. } => {}
    }
}
