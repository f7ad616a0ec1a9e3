//! The form of a backup's file: a few lines of text around the parts, and a checksum at the end.
//!
//! ```text
//! berth backup 1
//! {"cluster_id": ..., "point": ..., "created": ..., "version": ..., "format": ...}
//! part NAME          then pieces, each with its length in front (4 bytes); an empty piece ends the part
//! end SHA256         of everything before this line
//! ```
//!
//! It is written from front to back and needs no room to gather anything. A file that was cut off has no last line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Header;
use crate::trust::private_file::to_hex;

const FIRST_LINE: &str = "berth backup 1";
/// How much is gathered before a piece is written.
const PIECE: usize = 256 * 1024;
/// No line of a backup is longer.
const LONGEST_LINE: u64 = 64 * 1024;

/// Why a file is no backup that can be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is no backup: {why}", path.display())]
    NotABackup {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file was a backup once.
    #[error("{} is damaged: {why}. Use another backup", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another version made it.
    #[error(
        "{} holds a state of format {found}, and this berth reads format {known}: restore it with berth {version}",
        path.display()
    )]
    OtherFormat {
        /// Which file.
        path: PathBuf,
        /// The format in it.
        found: u32,
        /// The format that this program reads.
        known: u32,
        /// The version that made it.
        version: String,
    },
}

/// Writes the parts of a backup one after the other.
pub(super) struct BackupWriter<W> {
    to: Hashing<W>,
}

impl<W: Write> BackupWriter<W> {
    pub(super) fn begin(to: W, header: &Header) -> io::Result<Self> {
        let mut to = Hashing { to, hash: Sha256::new() };
        writeln!(to, "{FIRST_LINE}")?;
        serde_json::to_writer(&mut to, header)?;
        writeln!(to)?;
        Ok(Self { to })
    }

    pub(super) fn part(&mut self, name: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        writeln!(self.to, "part {name}")?;
        let mut pieces = Pieces { to: &mut self.to, gathered: Vec::with_capacity(PIECE) };
        write(&mut pieces)?;
        pieces.flush()?;
        self.to.write_all(&0u32.to_le_bytes())
    }

    pub(super) fn finish(self) -> io::Result<()> {
        let Hashing { mut to, hash } = self.to;
        writeln!(to, "end {}", to_hex(&hash.finalize()))?;
        to.flush()
    }
}

struct Hashing<W> {
    to: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Gathers what is written into pieces, each with its length in front.
struct Pieces<'a, W> {
    to: &'a mut W,
    gathered: Vec<u8>,
}

impl<W: Write> Write for Pieces<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let length = u32::try_from(self.gathered.len()).map_err(io::Error::other)?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }
}

/// A backup of which every byte was read and found right.
#[derive(Debug)]
pub struct Checked {
    path: PathBuf,
    /// What it is of.
    pub header: Header,
    /// The size of the file.
    pub bytes: u64,
}

/// Reads a whole backup and compares it with its checksum.
pub fn check(path: &Path) -> Result<Checked, BackupError> {
    let mut read = Reading::open(path)?;
    let header = read.header()?;
    while read.next_part()?.is_some() {
        read.pieces(|_| ())?;
    }
    Ok(Checked { path: path.to_owned(), header, bytes: read.bytes })
}

impl Checked {
    /// Reads one part of it, which must be there.
    pub(super) fn part(&self, wanted: &str) -> Result<Vec<u8>, BackupError> {
        let mut read = Reading::open(&self.path)?;
        read.header()?;
        let mut part = None;
        while let Some(name) = read.next_part()? {
            let mut bytes = Vec::new();
            read.pieces(|piece| {
                if name == wanted {
                    bytes.extend_from_slice(piece);
                }
            })?;
            if name == wanted {
                part = Some(bytes);
            }
        }
        part.ok_or_else(|| read.damaged(format!("it has no part {wanted}")))
    }

    /// What is wrong with it that only its reader can see.
    pub(super) fn damaged(&self, why: impl Into<String>) -> BackupError {
        BackupError::Damaged { path: self.path.clone(), why: why.into() }
    }
}

/// A backup that is being read.
struct Reading {
    path: PathBuf,
    file: BufReader<File>,
    hash: Sha256,
    bytes: u64,
}

impl Reading {
    fn open(path: &Path) -> Result<Self, BackupError> {
        let file = File::open(path).map_err(|source| BackupError::File { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: BufReader::with_capacity(PIECE, file), hash: Sha256::new(), bytes: 0 })
    }

    fn damaged(&self, why: impl Into<String>) -> BackupError {
        BackupError::Damaged { path: self.path.clone(), why: why.into() }
    }

    fn not_a_backup(&self, why: impl Into<String>) -> BackupError {
        BackupError::NotABackup { path: self.path.clone(), why: why.into() }
    }

    /// Reads a line without its end. It is not hashed yet: the last line holds the hash of those before it.
    fn line(&mut self) -> Result<String, BackupError> {
        let mut line = Vec::new();
        let read = (&mut self.file).take(LONGEST_LINE).read_until(b'\n', &mut line);
        read.map_err(|source| BackupError::File { path: self.path.clone(), source })?;
        self.bytes += line.len() as u64;
        match line.pop() {
            Some(b'\n') => String::from_utf8(line).map_err(|_| self.damaged("a line is no text")),
            Some(_) => Err(self.damaged("a line does not end")),
            None => Err(self.damaged("it was cut off")),
        }
    }

    fn take_in(&mut self, line: &str) {
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
    }

    fn header(&mut self) -> Result<Header, BackupError> {
        match self.line() {
            Ok(line) if line == FIRST_LINE => self.take_in(&line),
            _ => return Err(self.not_a_backup("it does not begin as one (`berth backup FILE` makes one)")),
        }
        let line = self.line()?;
        self.take_in(&line);
        let header: Header = serde_json::from_str(&line).map_err(|error| self.damaged(error.to_string()))?;
        if header.format != berth_store::FORMAT {
            let (found, known, version) = (header.format, berth_store::FORMAT, header.version);
            return Err(BackupError::OtherFormat { path: self.path.clone(), found, known, version });
        }
        Ok(header)
    }

    /// The name of the next part; none after the last one, when the checksum is right and nothing follows.
    fn next_part(&mut self) -> Result<Option<String>, BackupError> {
        let line = self.line()?;
        if let Some(name) = line.strip_prefix("part ") {
            self.take_in(&line);
            return Ok(Some(name.to_owned()));
        }
        let found = to_hex(&self.hash.clone().finalize());
        if line.strip_prefix("end ") != Some(&found) {
            return Err(self.damaged("its checksum is wrong"));
        }
        match self.file.fill_buf().map(<[u8]>::is_empty) {
            Ok(true) => Ok(None),
            _ => Err(self.damaged("something follows its end")),
        }
    }

    fn pieces(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), BackupError> {
        let mut piece = Vec::new();
        loop {
            let mut length = [0; 4];
            self.exactly(&mut length)?;
            let length = u32::from_le_bytes(length) as usize;
            if length == 0 {
                return Ok(());
            }
            // A writer's piece is at most one write longer than what it gathers.
            if length > (1 << 30) {
                return Err(self.damaged("a piece is too long"));
            }
            piece.resize(length, 0);
            self.exactly(&mut piece)?;
            each(&piece);
        }
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        self.file.read_exact(bytes).map_err(|_| self.damaged("it was cut off"))?;
        self.hash.update(&*bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::{ClusterId, HistoryPoint, Timestamp};
    use berth_wire::Time;

    use super::*;

    fn example() -> Vec<u8> {
        let header = Header {
            cluster_id: ClusterId::new(uuid::Uuid::from_u128(1)),
            point: HistoryPoint::default(),
            created: Time(Timestamp::from_millis(7)),
            version: "0".into(),
            format: berth_store::FORMAT,
        };
        let mut bytes = Vec::new();
        let mut backup = BackupWriter::begin(&mut bytes, &header).unwrap();
        backup.part("small", |to| to.write_all(b"abc")).unwrap();
        backup.part("large", |to| to.write_all(&vec![7; 3 * PIECE])).unwrap();
        backup.part("empty", |_| Ok(())).unwrap();
        backup.finish().unwrap();
        bytes
    }

    #[test]
    fn a_backup_reads_back_and_no_changed_or_missing_byte_passes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        let bytes = example();
        std::fs::write(&path, &bytes).unwrap();
        let whole = check(&path).unwrap();
        assert_eq!(whole.bytes, bytes.len() as u64);
        assert_eq!(whole.part("small").unwrap(), b"abc");
        assert_eq!(whole.part("large").unwrap(), vec![7; 3 * PIECE]);
        assert_eq!(whole.part("empty").unwrap(), b"");
        assert!(matches!(whole.part("other"), Err(BackupError::Damaged { .. })));

        let step = bytes.len() / 97;
        for at in (0..bytes.len()).step_by(step).chain([bytes.len() - 2]) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x20;
            std::fs::write(&path, &changed).unwrap();
            assert!(check(&path).is_err(), "byte {at} was changed");
            std::fs::write(&path, &bytes[..at]).unwrap();
            assert!(check(&path).is_err(), "it ends after {at} bytes");
        }
        std::fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
        assert!(check(&path).is_err(), "something follows its end");
    }
}
