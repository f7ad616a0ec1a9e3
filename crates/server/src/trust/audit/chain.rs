//! Lines of the audit log, each chained to the one before it.
//!
//! A line is a JSON object: a number `seq`, the hash of the line before as `prev`, the entry, and last the `hash` of all
//! of this. Whoever changes, removes, adds or moves a line breaks the chain. Beside the files, [`HEAD`] names the last
//! line, so that lines missing at the end are noticed, too.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use berth_wire::AuditEntry;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::trust::private_file::{from_hex, to_hex};

/// The file that is written.
pub(super) const CURRENT: &str = "audit.jsonl";
/// The file that names the last line.
pub(super) const HEAD: &str = "audit.head";
/// Lines of an older server, which are in no chain.
pub(super) const UNCHAINED: &str = "audit-unchained.jsonl";

/// The hash of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash([u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A place in the chain: the number of a line, and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The number of the line; the first one is 1.
    pub seq: u64,
    pub(super) hash: Hash,
}

impl Link {
    /// Stands before the first line.
    pub(super) const START: Self = Self { seq: 0, hash: Hash([0; 32]) };
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

impl FromStr for Link {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(':').and_then(|(seq, hash)| Some((seq.parse().ok()?, from_hex(hash)?)));
        let (seq, hash) = parts.ok_or("write NUMBER:HASH, as the server's log and `berth audit verify` print it")?;
        Ok(Self { seq, hash: Hash(hash) })
    }
}

/// What a line says, without its hash.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) seq: u64,
    prev: String,
    /// The server removed the lines up to this one, because so many files are kept and no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) removed_up_to: Option<u64>,
    #[serde(flatten)]
    pub(super) entry: AuditEntry,
}

/// Stands between what a line says and the hash of it.
const SEAM: &str = ",\"hash\":\"";

impl Record {
    pub(super) fn after(last: Link, entry: AuditEntry, removed_up_to: Option<u64>) -> Self {
        Self { seq: last.seq + 1, prev: last.hash.to_string(), removed_up_to, entry }
    }

    pub(super) fn follows(&self, last: Link) -> bool {
        self.prev == last.hash.to_string()
    }

    /// The line with its end, and its place in the chain.
    pub(super) fn to_line(&self) -> Result<(String, Link), serde_json::Error> {
        let mut line = serde_json::to_string(self)?;
        let hash = hash(line.as_bytes());
        // The closing brace makes way for the hash, and stands again behind it.
        line.pop();
        line.push_str(&format!("{SEAM}{hash}\"}}\n"));
        Ok((line, Link { seq: self.seq, hash }))
    }
}

fn hash(bytes: &[u8]) -> Hash {
    Hash(Sha256::digest(bytes).into())
}

/// What a line of a file is.
#[derive(Debug)]
pub(super) enum Line {
    /// As the server wrote it.
    Whole(Box<Record>, Link),
    /// Its hash is that of another text.
    Changed,
    /// It is none of the chain's lines.
    Foreign,
}

impl Line {
    pub(super) fn read(text: &str) -> Self {
        let parts = text.rsplit_once(SEAM).and_then(|(said, rest)| Some((said, from_hex(rest.strip_suffix("\"}")?)?)));
        let Some((said, written)) = parts else { return Self::Foreign };
        let said = format!("{said}}}");
        let hash = hash(said.as_bytes());
        if hash != Hash(written) {
            return Self::Changed;
        }
        match serde_json::from_str::<Record>(&said) {
            Ok(record) => {
                let link = Link { seq: record.seq, hash };
                Self::Whole(Box::new(record), link)
            }
            Err(_) => Self::Foreign,
        }
    }
}

/// The files of the log that are there, oldest first.
pub(super) fn files(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = rotated(data_dir)?.into_iter().map(|(_, path)| path).collect::<Vec<_>>();
    let current = data_dir.join(CURRENT);
    if current.try_exists()? {
        files.push(current);
    }
    Ok(files)
}

/// Files that are written no more, by the number of their first line.
pub(super) fn rotated(data_dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data_dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix("audit-").and_then(|rest| rest.strip_suffix(".jsonl"));
        if let Some(first) = number.and_then(|number| number.parse().ok()) {
            found.push((first, path));
        }
    }
    found.sort();
    Ok(found)
}

/// The name that a file gets when the next one is begun.
pub(super) fn rotated_name(first: u64) -> String {
    format!("audit-{first:020}.jsonl")
}

/// The file that names the last line. It is rewritten in place, always with the same length.
#[derive(Debug)]
pub(super) struct Head(File);

impl Head {
    pub(super) fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(HEAD);
        let options = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        options.map(Self)
    }

    pub(super) fn write(&self, last: Link) -> io::Result<()> {
        self.0.write_all_at(format!("{:020}:{}\n", last.seq, last.hash).as_bytes(), 0)
    }

    /// Reads what the file names; nothing if there is none, or if it names nothing.
    pub(super) fn read(data_dir: &Path) -> io::Result<Option<Link>> {
        match std::fs::read_to_string(data_dir.join(HEAD)) {
            Ok(text) => Ok(text.trim_end().parse().ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
