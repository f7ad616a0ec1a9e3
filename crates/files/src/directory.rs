//! Data directories.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::OTHERS;

/// On a directory it means that it is made for several users, as `/tmp` is.
const STICKY: u32 = 0o1000;

/// Makes a directory that no other user may enter, and closes one that others could, with all that is below it.
///
/// It fails where the directory cannot be made or entered, where it is meant to be shared, and where its mode cannot be
/// changed though others may enter. Entries below that cannot be closed are logged: nobody can reach them from outside.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = fs::metadata(path)?;
    if found.mode() & STICKY != 0 || path.canonicalize()?.parent().is_none() {
        let text = format!("it is shared with other users (mode {:o}): name a directory of its own", bits(&found));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if found.mode() & OTHERS != 0 {
        close(path, &found)?;
        tracing::warn!(path = %path.display(), mode = format!("{:o}", bits(&found)), "closed to other users: now 700");
    }
    close_below(path);
    Ok(())
}

/// Closes everything below a directory, and says how much of it was open.
fn close_below(path: &Path) {
    let mut closed: Vec<PathBuf> = Vec::new();
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            // This does not follow links: what they lead to is not the data directory's.
            let Ok(found) = entry.metadata() else { continue };
            let path = entry.path();
            if found.is_dir() {
                directories.push(path.clone());
            }
            if !(found.is_dir() || found.is_file()) || found.mode() & OTHERS == 0 {
                continue;
            }
            match close(&path, &found) {
                Ok(()) => closed.push(path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "open to other users, and cannot be closed");
                }
            }
        }
    }
    if let Some(first) = closed.iter().min() {
        tracing::warn!(
            first = %first.display(),
            count = closed.len(),
            "files and directories that other users could have read are closed to them now"
        );
    }
}

fn close(path: &Path, found: &Metadata) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(bits(found) & !OTHERS))
}

fn bits(found: &Metadata) -> u32 {
    found.mode() & 0o7777
}
