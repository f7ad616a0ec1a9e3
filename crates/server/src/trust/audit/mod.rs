//! Who did what: one line of JSON for each change by a person, in the data directory, and the last ones in memory.
//!
//! The lines form a chain over all files ([`chain`]) that [`verify`] checks. A file that has grown large enough is
//! followed by a new one; the oldest ones are removed, and the log says so.

mod chain;
pub(crate) mod refusals;
mod verify;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use berth_wire::{AuditEntry, Time};
use parking_lot::Mutex;

use crate::clock;
use crate::config::AuditConfig;
pub use chain::Link;
use chain::{CURRENT, Head, Line, Record, UNCHAINED, files, rotated, rotated_name};
pub use verify::{Findings, Flaw, verify};

/// How many entries are shown.
const KEPT: usize = 1000;

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    inner: Mutex<Inner>,
    pub(crate) refusals: refusals::Refusals,
}

#[derive(Debug)]
struct Inner {
    data_dir: PathBuf,
    config: AuditConfig,
    file: File,
    length: u64,
    /// The number of the first line of the file.
    first: u64,
    /// The last line.
    reached: Link,
    head: Head,
    last: VecDeque<AuditEntry>,
}

impl Audit {
    /// The audit log of a data directory.
    pub fn open(data_dir: &Path, config: &AuditConfig) -> io::Result<Self> {
        set_unchained_aside(data_dir)?;
        let found = Found::read(data_dir)?;
        let known = Head::read(data_dir)?;
        let (damage, reached) = match (known, found.reached) {
            // A line that nobody was told of may be the last one: the head is written after it.
            (Some(known), reached) if known.seq <= reached.seq => (None, reached),
            (Some(known), reached) => {
                (Some(format!("lines {} to {} are missing at the end", reached.seq + 1, known.seq)), known)
            }
            (None, reached) if reached.seq == 0 => (None, reached),
            (None, reached) => {
                (Some(format!("audit.head was missing: lines after {} may be missing", reached.seq)), reached)
            }
        };
        let file = append_to(&data_dir.join(CURRENT))?;
        if damage.is_none() {
            // A line that was torn by a crash is nobody's.
            file.set_len(found.complete)?;
        } else if found.complete < file.metadata()?.len() {
            (&file).write_all(b"\n")?;
        }
        let length = file.metadata()?.len();
        let first = found.first.unwrap_or(reached.seq + 1);
        let (data_dir, config, head) = (data_dir.to_owned(), config.clone(), Head::open(data_dir)?);
        let inner = Inner { data_dir, config, file, length, first, reached, head, last: found.entries };
        let audit = Self { inner: Mutex::new(inner), refusals: refusals::Refusals::default() };
        if let Some(damage) = damage {
            tracing::error!(damage, "the audit log is damaged: run `berth audit verify`");
            audit.record(AuditEntry { outcome: "damaged".into(), ..own_entry("audit_damage", damage) }, false);
        }
        Ok(audit)
    }

    /// Keeps files by these rules from now on.
    pub fn set_config(&self, config: &AuditConfig) {
        self.inner.lock().config = config.clone();
    }

    /// How many refused requests go on record in a minute.
    pub(crate) fn refused_per_minute(&self) -> u32 {
        self.inner.lock().config.refused_per_minute
    }

    /// Puts an entry on record. The log has it too, at `info`, or at `debug` if it is about one workload of many. If the
    /// disk refuses, the log has it in any case.
    pub fn record(&self, entry: AuditEntry, is_about_workload: bool) {
        let mut inner = self.inner.lock();
        let written = inner.append(&entry, None).and_then(|()| inner.rotate_if_large());
        let AuditEntry { by, action, target: on, outcome, reason, .. } = &entry;
        let line = inner.reached;
        match written {
            Ok(()) if is_about_workload => {
                tracing::debug!(target: "berth::audit", by, action, on, outcome, reason, %line);
            }
            Ok(()) => tracing::info!(target: "berth::audit", by, action, on, outcome, reason, %line),
            Err(error) => tracing::error!(
                target: "berth::audit",
                by,
                action,
                on,
                outcome,
                reason,
                %error,
                "the audit log cannot be written; this line is the record"
            ),
        }
        push(&mut inner.last, entry);
    }

    /// The last entries, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<AuditEntry> {
        self.inner.lock().last.iter().cloned().collect()
    }
}

impl Inner {
    /// Writes one line. A line that could not be written as a whole is taken back.
    fn append(&mut self, entry: &AuditEntry, removed_up_to: Option<u64>) -> io::Result<()> {
        let record = Record::after(self.reached, entry.clone(), removed_up_to);
        let (line, link) = record.to_line().map_err(io::Error::other)?;
        if let Err(error) = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()) {
            drop(self.file.set_len(self.length));
            return Err(error);
        }
        self.length += line.len() as u64;
        self.reached = link;
        self.head.write(link)
    }

    /// Begins a new file where this one is large enough, and removes the oldest ones where there are too many.
    fn rotate_if_large(&mut self) -> io::Result<()> {
        if self.length < self.config.file_size.get() {
            return Ok(());
        }
        let current = self.data_dir.join(CURRENT);
        std::fs::rename(&current, self.data_dir.join(rotated_name(self.first)))?;
        self.file = append_to(&current)?;
        File::open(&self.data_dir)?.sync_all()?;
        self.length = 0;
        self.first = self.reached.seq + 1;
        let old = rotated(&self.data_dir)?;
        let surplus = (old.len() + 1).saturating_sub(self.config.files);
        if surplus == 0 {
            return Ok(());
        }
        let kept_from = old.get(surplus).map_or(self.first, |(first, _)| *first);
        // The log says it before it is done: a crash in between leaves a file too many, and no gap.
        let entry = own_entry("audit_remove", format!("lines up to {}", kept_from - 1));
        self.append(&entry, Some(kept_from - 1))?;
        push(&mut self.last, entry);
        old.into_iter().take(surplus).try_for_each(|(_, path)| std::fs::remove_file(path))
    }
}

/// What the server itself puts on record.
pub(crate) fn own_entry(action: &str, target: String) -> AuditEntry {
    AuditEntry {
        time: Time(clock::now()),
        by: "berth".into(),
        role: None,
        action: action.into(),
        target,
        outcome: "done".into(),
        revision: None,
        reason: None,
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// What the files hold.
struct Found {
    /// The last line that is whole.
    reached: Link,
    /// The number of the first line of the file that is written.
    first: Option<u64>,
    /// The bytes of that file up to its last end of a line.
    complete: u64,
    entries: VecDeque<AuditEntry>,
}

impl Found {
    fn read(data_dir: &Path) -> io::Result<Self> {
        let mut found = Self { reached: Link::START, first: None, complete: 0, entries: VecDeque::with_capacity(KEPT) };
        let files = files(data_dir)?;
        // Two files have the last thousand entries unless these are very long; no more of the past is read at each start.
        for path in files.iter().skip(files.len().saturating_sub(2)) {
            found.read_file(path)?;
        }
        if files.last().is_none_or(|last| !last.ends_with(CURRENT)) {
            (found.first, found.complete) = (None, 0);
        }
        Ok(found)
    }

    fn read_file(&mut self, path: &Path) -> io::Result<()> {
        (self.first, self.complete) = (None, 0);
        let mut reader = BufReader::new(File::open(path)?);
        let mut text = Vec::new();
        while reader.read_until(b'\n', &mut text)? > 0 && text.ends_with(b"\n") {
            self.complete += text.len() as u64;
            let line = std::str::from_utf8(&text).map_or(Line::Foreign, |text| Line::read(text.trim_end()));
            if let Line::Whole(record, link) = line {
                self.first.get_or_insert(link.seq);
                self.reached = link;
                push(&mut self.entries, record.entry);
            }
            text.clear();
        }
        Ok(())
    }
}

/// Puts a file of an older server, whose lines are in no chain, beside those of the chain.
fn set_unchained_aside(data_dir: &Path) -> io::Result<()> {
    let current = data_dir.join(CURRENT);
    let file = match File::open(&current) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut first = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut first)?;
    let is_entry = serde_json::from_slice::<AuditEntry>(&first).is_ok();
    if is_entry && !String::from_utf8_lossy(&first).contains("\"prev\":") && Head::read(data_dir)?.is_none() {
        std::fs::rename(current, data_dir.join(UNCHAINED))?;
        tracing::info!("the audit log of an older server is kept as {UNCHAINED}; a new one begins");
    }
    Ok(())
}

fn push(last: &mut VecDeque<AuditEntry>, entry: AuditEntry) {
    if last.len() == KEPT {
        last.pop_front();
    }
    last.push_back(entry);
}
