//! The disk under the journal. It is a trait, so that tests can run the real code on a disk that tears and loses
//! writes.

mod real;

use std::{fmt, io, path::Path};

pub use real::RealDisk;

/// The operations of a file system that the journal needs.
///
/// Changes of a directory (a new file, a rename, a removal) are durable after [`Disk::sync_dir`]; changes of a file
/// after [`DiskFile::sync`]. Before that, a crash may keep any part of them, in any order.
///
/// Each method returns the error of the operating system.
pub trait Disk: Clone + fmt::Debug + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;

    /// Makes a directory and its parents durably, unless they exist.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Returns the names of the files in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes an empty file to read and write, replacing an older one.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file to read and write.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Renames a file within its directory, replacing the file that had the name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file. Each method returns the error of the operating system.
pub trait DiskFile: fmt::Debug + Send + Sync + 'static {
    /// Returns the length of the file.
    fn size(&self) -> io::Result<u64>;

    /// Reads at an offset until the buffer is full or the file ends; returns how many bytes it read.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all bytes at an offset. After an error, any part of them may have been written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reserves space for the first `size` bytes, so that writing them cannot fail for want of it. New bytes are zero.
    /// The file is at least this long afterwards. After an error, a part may have been reserved.
    fn allocate(&self, size: u64) -> io::Result<()>;

    /// Cuts the file to this length, or extends it with zeros that have no space of their own.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Makes the file's bytes and its length durable. After an error nothing is known about unsynced bytes, and syncing
    /// again may succeed without having written them.
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

/// Returns whether an error means that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
