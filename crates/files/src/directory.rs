//! Data directories: made private, and made private again where they were not.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::OTHERS;

/// The sticky bit. A directory that has it is meant for several users, as `/tmp` is.
const STICKY: u32 = 0o1000;

/// Makes a directory that no other user may enter. If the directory exists, closes it and everything below it.
///
/// Fails where the directory cannot be made or entered, where it is meant to be shared, and where its mode cannot be
/// changed though other users may enter. Entries below it that cannot be closed are logged: other users cannot reach
/// them, because the directory above is closed.
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

/// Closes everything below a directory, and logs how many entries were open.
fn close_below(path: &Path) {
    let mut closed: Vec<PathBuf> = Vec::new();
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            // Links are not followed: what they lead to does not belong to the data directory.
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
