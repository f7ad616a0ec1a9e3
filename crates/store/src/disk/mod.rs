//! The disk under the journal, replaceable, so that the real code can run on one that tears and loses writes.

mod real;

use std::{fmt, io, path::Path};

pub use real::RealDisk;

/// A file system, as far as the journal needs one.
///
/// Changes of a directory (a new file, a rename, a removal) are durable after [`Disk::sync_dir`]; changes of a file
/// after [`DiskFile::sync`]. Before that, a crash may keep any part of them, in any order.
pub trait Disk: Clone + fmt::Debug + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;

    /// Makes a directory and its parents durably, unless they exist.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names of the files in a directory, in no order.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes an empty file, in the place of an older one if there is any, to read and write.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file to read and write.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Gives a file another name in the same directory, in the place of what had it.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync + 'static {
    /// How long it is.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn size(&self) -> io::Result<u64>;

    /// Reads at a place until the buffer is full or the file ends; returns how much it read.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all bytes at a place.
    ///
    /// # Errors
    ///
    /// What the operating system says; any part of the bytes may have been written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reserves space for the first `size` bytes, so that writing them cannot fail for want of it. New bytes are zero.
    /// The file is at least this long afterwards.
    ///
    /// # Errors
    ///
    /// What the operating system says; a part may have been reserved.
    fn allocate(&self, size: u64) -> io::Result<()>;

    /// Cuts the file to this length, or extends it with zeros that have no space of their own.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Makes the file's bytes and its length durable.
    ///
    /// # Errors
    ///
    /// What the operating system says. After an error nothing is known about unsynced bytes, and syncing again may
    /// succeed without having written them.
    fn sync(&self) -> io::Result<()>;
}

/// Reads a whole file.
pub(crate) fn read_all(file: &impl DiskFile) -> io::Result<Vec<u8>> {
    let size = usize::try_from(file.size()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; size];
    let read = file.read(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Whether an error means that space has run out.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
