//! Files that are private from their first byte.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

const PRIVATE: u32 = 0o600;

/// Makes an empty file that no other user may read. An existing file is emptied and made private.
pub fn create(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(true).mode(PRIVATE).open(path)?;
    // `mode` applies only to a file that did not exist.
    file.set_permissions(Permissions::from_mode(PRIVATE))?;
    Ok(file)
}

/// A file that gets its name once its bytes are on disk. Until then, and if this is dropped, no file has that name.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    beside: PathBuf,
    file: File,
    replace: bool,
}

impl NewFile {
    /// Makes sure that the file can be written, before there is anything to write. An existing file is an error unless
    /// `replace` is set; anything but a regular file is never replaced.
    pub fn prepare(path: &Path, replace: bool) -> io::Result<Self> {
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is there and is no regular file"));
            }
            if !replace {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let beside = path.with_file_name(hidden);
        let file = File::options().write(true).create_new(true).mode(PRIVATE).open(&beside)?;
        Ok(Self { path: path.to_owned(), beside, file, replace })
    }

    /// Writes and syncs the bytes, then gives the file its name.
    pub fn keep(mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_all()?;
        if self.replace {
            fs::rename(&self.beside, &self.path)?;
        } else {
            match renameat_with(CWD, &self.beside, CWD, &self.path, RenameFlags::NOREPLACE) {
                // The file system cannot; it was looked for when this was prepared.
                Err(Errno::INVAL | Errno::NOSYS) => fs::rename(&self.beside, &self.path)?,
                renamed => renamed?,
            }
        }
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Once the file has its name, the temporary one no longer exists.
        let _ = fs::remove_file(&self.beside);
    }
}
