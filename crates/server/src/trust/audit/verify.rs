//! Checking the chain of an audit log, from its files alone.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::chain::{Head, Line, Link, Record, files};

/// How many flaws are listed.
const LISTED: usize = 20;
/// How often the files are read anew when the server writes at the same time.
const AGAIN: usize = 3;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// How many lines there are.
    pub lines: u64,
    /// In how many files.
    pub files: usize,
    /// The number of the first line; the ones before it were removed by the server, by its own rule.
    pub first: u64,
    /// The last line.
    pub last: Option<Link>,
    /// The last line is not complete: it is being written, or a crash tore it. Nobody was told that it is on record.
    pub is_torn: bool,
    /// What is wrong, at most twenty of it.
    pub flaws: Vec<Flaw>,
    /// How much is wrong.
    pub flaw_count: usize,
}

/// One thing that is wrong with an audit log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A line whose hash is that of another text.
    #[error("{file}, line {line}: the line was changed: its hash does not fit its text")]
    Changed {
        /// The file's name.
        file: String,
        /// The number of the line in it.
        line: u64,
    },
    /// A line that the server did not write.
    #[error("{file}, line {line}: this is no line of the audit log, or only a part of one")]
    Foreign {
        /// The file's name.
        file: String,
        /// The number of the line in it.
        line: u64,
    },
    /// Lines that should be before this one.
    #[error("{file}, line {line}: lines {from} to {to} of the log are missing before this one")]
    Missing {
        /// The file's name.
        file: String,
        /// The number of the line in it.
        line: u64,
        /// The first that is missing.
        from: u64,
        /// The last that is missing.
        to: u64,
    },
    /// A line that belongs elsewhere.
    #[error("{file}, line {line}: line {found} of the log stands where line {expected} belongs")]
    OutOfOrder {
        /// The file's name.
        file: String,
        /// The number of the line in it.
        line: u64,
        /// Which it is.
        found: u64,
        /// Which should be there.
        expected: u64,
    },
    /// A line that was written after another one than that which is before it now.
    #[error("{file}, line {line}: the line before it was replaced by another one")]
    Replaced {
        /// The file's name.
        file: String,
        /// The number of the line in it.
        line: u64,
    },
    /// Lines at the beginning.
    #[error(
        "the log begins with line {first}, but the server removed lines up to {removed} only: older lines are missing"
    )]
    BeginningMissing {
        /// The first that is there.
        first: u64,
        /// Up to which line the server says that it removed them.
        removed: u64,
    },
    /// Lines at the end.
    #[error("the log ends with line {last}, but line {known} was written: the end is missing")]
    EndMissing {
        /// The last that is there.
        last: u64,
        /// The last that is known to have been written.
        known: u64,
    },
    /// The line is not the one that is known.
    #[error("line {0} of the log is not the one that was written")]
    NotAsKnown(u64),
    /// Nothing says which line was the last.
    #[error("audit.head is missing or damaged: nothing says whether lines are missing at the end")]
    HeadMissing,
}

/// Checks the audit log of a data directory, which a server may be writing. `known` is a line that somebody else has
/// seen: it must be there, too.
pub fn verify(data_dir: &Path, known: Option<Link>) -> io::Result<Findings> {
    let mut findings = verify_once(data_dir, known)?;
    for _ in 0..AGAIN {
        // A server that begins a new file at this moment looks like one that lost lines.
        if findings.flaws.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        findings = verify_once(data_dir, known)?;
    }
    Ok(findings)
}

fn verify_once(data_dir: &Path, known: Option<Link>) -> io::Result<Findings> {
    // The head is read first: lines that are written from now on come after it.
    let head = Head::read(data_dir)?;
    let mut check = Check { known: [head, known], ..Check::default() };
    for path in files(data_dir)? {
        check.read_file(&path)?;
    }
    Ok(check.finish(head.is_none()))
}

#[derive(Default)]
struct Check {
    findings: Findings,
    /// Lines that must be there.
    known: [Option<Link>; 2],
    /// Up to which line the log says that lines were removed.
    removed: u64,
    /// The place in the chain that was reached.
    reached: Option<Link>,
    /// Whether a line could not be read since then, so that nobody knows what stood there.
    is_blind: bool,
}

impl Check {
    fn read_file(&mut self, path: &Path) -> io::Result<()> {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.findings.files += 1;
        let mut reader = BufReader::new(File::open(path)?);
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            if reader.read_until(b'\n', &mut text)? == 0 {
                break;
            }
            let is_complete = text.pop_if(|last| *last == b'\n').is_some();
            let read = std::str::from_utf8(&text).map_or(Line::Foreign, Line::read);
            self.take(&file, line, read, is_complete);
        }
        Ok(())
    }

    fn take(&mut self, file: &str, line: u64, read: Line, is_complete: bool) {
        let file = || file.to_owned();
        match read {
            // Without its end a line is not written yet.
            _ if !is_complete => self.findings.is_torn = true,
            Line::Whole(record, link) => self.take_record(&record, link, file(), line),
            Line::Changed => {
                self.is_blind = true;
                self.flaw(Flaw::Changed { file: file(), line });
            }
            Line::Foreign => {
                self.is_blind = true;
                self.flaw(Flaw::Foreign { file: file(), line });
            }
        }
    }

    fn take_record(&mut self, record: &Record, link: Link, file: String, line: u64) {
        self.findings.lines += 1;
        let Some(before) = self.reached else {
            self.findings.first = link.seq;
            if link.seq == 1 && !record.follows(Link::START) {
                self.flaw(Flaw::Replaced { file, line });
            }
            return self.reach(record, link);
        };
        // A line that cannot be read has one number of its own.
        let expected = before.seq + 1 + u64::from(self.is_blind);
        if link.seq > expected {
            self.flaw(Flaw::Missing { file, line, from: expected, to: link.seq - 1 });
        } else if link.seq < expected && !self.is_blind {
            self.flaw(Flaw::OutOfOrder { file, line, found: link.seq, expected });
        } else if !self.is_blind && !record.follows(before) {
            self.flaw(Flaw::Replaced { file, line });
        }
        self.reach(record, link);
    }

    fn reach(&mut self, record: &Record, link: Link) {
        self.is_blind = false;
        self.reached = Some(link);
        self.removed = self.removed.max(record.removed_up_to.unwrap_or_default());
        for known in self.known.into_iter().flatten() {
            if known.seq == link.seq && known != link {
                self.flaw(Flaw::NotAsKnown(link.seq));
            }
        }
    }

    fn flaw(&mut self, flaw: Flaw) {
        self.findings.flaw_count += 1;
        if self.findings.flaws.len() < LISTED {
            self.findings.flaws.push(flaw);
        }
    }

    fn finish(mut self, is_headless: bool) -> Findings {
        let last = self.reached.map_or(0, |last| last.seq);
        let known = self.known.into_iter().flatten().map(|known| known.seq).max().unwrap_or_default();
        if known > last {
            self.flaw(Flaw::EndMissing { last, known });
        }
        if is_headless && last > 0 {
            self.flaw(Flaw::HeadMissing);
        }
        if self.findings.first > self.removed + 1 {
            self.flaw(Flaw::BeginningMissing { first: self.findings.first, removed: self.removed });
        }
        self.findings.last = self.reached;
        self.findings
    }
}
