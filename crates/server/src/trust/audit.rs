//! Who did what: one line of JSON for each change by a person, in the data directory, and the last ones in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use berth_wire::AuditEntry;
use parking_lot::Mutex;

const FILE: &str = "audit.jsonl";
/// How many entries are shown.
const KEPT: usize = 1000;

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    last: VecDeque<AuditEntry>,
}

impl Audit {
    /// The audit log of a data directory.
    pub fn open(data_dir: &Path) -> std::io::Result<Self> {
        let path = data_dir.join(FILE);
        let file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        let mut last = VecDeque::with_capacity(KEPT);
        for line in BufReader::new(File::open(&path)?).lines() {
            // A line that was torn by a crash is nobody's; those before and after it are read.
            let Ok(entry) = serde_json::from_str(&line?) else { continue };
            push(&mut last, entry);
        }
        Ok(Self { inner: Mutex::new(Inner { file, last }) })
    }

    /// Puts an entry on record. If the disk refuses, the log has it.
    pub fn record(&self, entry: AuditEntry) {
        tracing::info!(
            target: "berth::audit",
            by = entry.by,
            action = entry.action,
            on = entry.target,
            outcome = entry.outcome,
            reason = entry.reason,
        );
        let mut inner = self.inner.lock();
        let mut line = serde_json::to_vec(&entry).unwrap_or_default();
        line.push(b'\n');
        if let Err(error) = inner.file.write_all(&line).and_then(|()| inner.file.sync_data()) {
            tracing::error!(target: "berth::audit", %error, "the audit log cannot be written; the line above is the record");
        }
        push(&mut inner.last, entry);
    }

    /// The last entries, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<AuditEntry> {
        self.inner.lock().last.iter().cloned().collect()
    }
}

fn push(last: &mut VecDeque<AuditEntry>, entry: AuditEntry) {
    if last.len() == KEPT {
        last.pop_front();
    }
    last.push_back(entry);
}
