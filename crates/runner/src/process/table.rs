//! The processes of the machine: one reading of `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::sync::OnceLock;

use rustix::io::Errno;

use super::mark::{self, MarkedProcess, SlotMark};

/// One process, as `/proc/PID/stat` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The process id.
    pub pid: u32,
    /// The parent's pid.
    pub parent: u32,
    /// The process group.
    pub group: u32,
    /// The session.
    pub session: u32,
    /// The state: `R`, `S`, `D` (cannot be interrupted), `T`, `Z`.
    pub state: char,
    /// The number of threads.
    pub threads: u32,
    /// When the process started, in clock ticks since the boot.
    pub start_ticks: u64,
    /// Whether it is a kernel thread.
    pub is_kernel: bool,
}

impl Row {
    /// Reads one process. An error means that it could not be read; it does not mean that there is none.
    pub fn read(pid: u32) -> io::Result<Option<Self>> {
        let Some(text) = read_of(pid, "stat")? else { return Ok(None) };
        Self::parse(&text).map(Some).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be read")))
    }

    /// Parses `pid (name) state parent group session ...`. The name may contain any character, so the text after the
    /// last `)` counts.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let (head, tail) = text.rsplit_once(')')?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // Field numbers as in proc(5), where the state is the third.
        let field = |number: usize| fields.get(number - 3).copied();
        const KERNEL_THREAD: u64 = 0x0020_0000;
        Some(Self {
            pid,
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            // Both are negative or 0 for a process that has none.
            group: field(5)?.parse().unwrap_or(0),
            session: field(6)?.parse().unwrap_or(0),
            is_kernel: field(9)?.parse::<u64>().ok()? & KERNEL_THREAD != 0,
            threads: field(20)?.parse().unwrap_or(1),
            start_ticks: field(22)?.parse().ok()?,
        })
    }

    /// Returns whether the process is a zombie. A process whose first thread has ended looks like one too, while its
    /// other threads run on.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }
}

/// All processes of the machine, at about the same time. One table serves the trees of all slots.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    rows: BTreeMap<u32, Row>,
    by_parent: BTreeMap<u32, Vec<u32>>,
    by_group: BTreeMap<u32, Vec<u32>>,
    by_session: BTreeMap<u32, Vec<u32>>,
    spared: BTreeSet<u32>,
    marks: OnceLock<BTreeMap<SlotMark, Vec<MarkedProcess>>>,
    again: OnceLock<Box<ProcessTable>>,
}

impl ProcessTable {
    /// Reads all processes. A process that cannot be read for want of a resource is an error, never an absence.
    pub fn read() -> io::Result<Self> {
        let mut rows = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            rows.extend(Row::read(pid)?);
        }
        Ok(rows.into_iter().collect())
    }

    /// Returns all processes.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Returns the process with this pid.
    #[must_use]
    pub fn get(&self, pid: u32) -> Option<&Row> {
        self.rows.get(&pid)
    }

    /// Returns the processes by the mark that they carry, accepted or not. They are read at the first call and cached.
    pub(super) fn marks(&self) -> io::Result<&BTreeMap<SlotMark, Vec<MarkedProcess>>> {
        if let Some(marks) = self.marks.get() {
            return Ok(marks);
        }
        let mut marks: BTreeMap<SlotMark, Vec<MarkedProcess>> = BTreeMap::new();
        for row in self.rows().filter(|row| !row.is_kernel && !row.is_dead() && !self.is_agent_or_ancestor(row.pid)) {
            if let Some((mark, process)) = mark::read_mark(row.pid)? {
                marks.entry(mark).or_default().push(process);
            }
        }
        Ok(self.marks.get_or_init(|| marks))
    }

    /// Returns a second table that is read after this one; cached in the same way.
    pub fn again(&self) -> io::Result<&Self> {
        if let Some(again) = self.again.get() {
            return Ok(again);
        }
        let again = Box::new(Self::read()?);
        Ok(self.again.get_or_init(|| again))
    }

    /// Returns whether this is the agent itself, or one of its ancestors.
    pub(super) fn is_agent_or_ancestor(&self, pid: u32) -> bool {
        self.spared.contains(&pid)
    }

    /// Returns the children of a process.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = &Row> {
        self.named(&self.by_parent, parent)
    }

    /// Returns the members of a group.
    pub(super) fn group(&self, group: u32) -> impl Iterator<Item = &Row> {
        self.named(&self.by_group, group)
    }

    /// Returns the members of a session.
    pub(super) fn session(&self, session: u32) -> impl Iterator<Item = &Row> {
        self.named(&self.by_session, session)
    }

    fn named<'a>(&'a self, index: &'a BTreeMap<u32, Vec<u32>>, key: u32) -> impl Iterator<Item = &'a Row> {
        index.get(&key).into_iter().flatten().filter_map(|pid| self.rows.get(pid))
    }
}

impl FromIterator<Row> for ProcessTable {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Self {
        let mut table = Self::default();
        for row in rows {
            table.by_parent.entry(row.parent).or_default().push(row.pid);
            table.by_group.entry(row.group).or_default().push(row.pid);
            table.by_session.entry(row.session).or_default().push(row.pid);
            table.rows.insert(row.pid, row);
        }
        let mut next = Some(std::process::id());
        while let Some(pid) = next.filter(|pid| table.spared.insert(*pid)) {
            next = table.rows.get(&pid).map(|row| row.parent);
        }
        table
    }
}

/// Reads a file of a process; `None` if the process has gone.
pub(super) fn read_of(pid: u32, file: &str) -> io::Result<Option<Vec<u8>>> {
    match read_at_once(&format!("/proc/{pid}/{file}")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a file at once. Files of `/proc` report size 0, so a reader that trusts the size takes many small steps.
/// Nearly all fit into this buffer.
fn read_at_once(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(4096);
    let mut file = fs::File::open(path)?;
    let mut piece = [0; 4096];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
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
        assert!(table.is_agent_or_ancestor(own.pid) && table.is_agent_or_ancestor(own.parent));
    }
}
