//! Who is there: one look at `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use rustix::io::Errno;

/// One process, as `/proc/PID/stat` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// What it does: `R`, `S`, `D` (cannot be interrupted), `T`, `Z`.
    pub state: char,
    /// How many threads it has.
    pub threads: u32,
    /// When it started, in clock ticks since the boot.
    pub start_ticks: u64,
    /// It is a thread of the kernel.
    pub is_kernel: bool,
}

impl Row {
    /// The process of this number. An error means that one could not look; it does not mean that nobody is there.
    pub fn read(pid: u32) -> io::Result<Option<Self>> {
        let Some(text) = read_of(pid, "stat")? else { return Ok(None) };
        Self::parse(&text).map(Some).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be read")))
    }

    /// `pid (name) state parent group session ...`. The name may contain anything, so what follows its last `)` counts.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let (head, tail) = text.rsplit_once(')')?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // Numbers as in proc(5), where the state is the third.
        let field = |number: usize| fields.get(number - 3).copied();
        const KERNEL_THREAD: u64 = 0x0020_0000;
        Some(Self {
            pid,
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            // Both are negative or 0 for what has none.
            group: field(5)?.parse().unwrap_or(0),
            session: field(6)?.parse().unwrap_or(0),
            is_kernel: field(9)?.parse::<u64>().ok()? & KERNEL_THREAD != 0,
            threads: field(20)?.parse().unwrap_or(1),
            start_ticks: field(22)?.parse().ok()?,
        })
    }

    /// Dead, and only waiting to be waited for. A process whose first thread has ended looks like that too, while its
    /// other threads run on.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }
}

/// Everybody that was there, at about the same time.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    rows: BTreeMap<u32, Row>,
}

impl ProcessTable {
    /// Looks at everybody. Who cannot be looked at for want of a resource is an error, never an absence.
    pub fn read() -> io::Result<Self> {
        let mut rows = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(row) = Row::read(pid)? {
                rows.insert(pid, row);
            }
        }
        Ok(Self { rows })
    }

    /// Everybody.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// The process of this number.
    #[must_use]
    pub fn get(&self, pid: u32) -> Option<&Row> {
        self.rows.get(&pid)
    }

    /// A process and all that it descends from.
    pub(super) fn lineage(&self, pid: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::from([pid]);
        let mut next = pid;
        while let Some(row) = self.rows.get(&next) {
            next = row.parent;
            if !found.insert(next) {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
impl FromIterator<Row> for ProcessTable {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Self {
        Self { rows: rows.into_iter().map(|row| (row.pid, row)).collect() }
    }
}

/// A file of a process; nothing if the process has gone.
pub(super) fn read_of(pid: u32, file: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(format!("/proc/{pid}/{file}")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let text = b"4711 (a) (b) R 9 8) S 1 4711 4710 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654 1 2";
        let row = Row::parse(text).unwrap();
        assert_eq!((row.pid, row.state, row.parent, row.group, row.session), (4711, 'S', 1, 4711, 4710));
        assert_eq!((row.threads, row.start_ticks, row.is_kernel), (3, 987_654, false));
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_not_dead() {
        let text = b"7 (x) Z 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 5 1 2";
        assert!(!Row::parse(text).unwrap().is_dead());
        let text = b"7 (x) Z 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 5 1 2";
        assert!(Row::parse(text).unwrap().is_dead());
    }

    #[test]
    fn the_table_has_this_process_and_its_parents() {
        let table = ProcessTable::read().unwrap();
        let own = table.get(std::process::id()).unwrap();
        assert!(!own.is_dead() && own.threads >= 1);
        assert!(table.lineage(own.pid).contains(&own.parent));
    }
}
