//! Who is there: one look at `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::sync::OnceLock;

use rustix::io::Errno;

use super::mark::{self, CarriedMark, SlotMark};

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

/// Everybody that was there, at about the same time. One table serves the trees of all slots.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    rows: BTreeMap<u32, Row>,
    by_parent: BTreeMap<u32, Vec<u32>>,
    by_group: BTreeMap<u32, Vec<u32>>,
    by_session: BTreeMap<u32, Vec<u32>>,
    spared: BTreeSet<u32>,
    marks: OnceLock<BTreeMap<SlotMark, Vec<CarriedMark>>>,
    again: OnceLock<Box<ProcessTable>>,
}

impl ProcessTable {
    /// Looks at everybody. Who cannot be looked at for want of a resource is an error, never an absence.
    pub fn read() -> io::Result<Self> {
        let mut rows = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            rows.extend(Row::read(pid)?);
        }
        Ok(rows.into_iter().collect())
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

    /// Who carries which mark, believed or not. Asked for by the first who wants to know, then kept for all others.
    pub(super) fn marks(&self) -> io::Result<&BTreeMap<SlotMark, Vec<CarriedMark>>> {
        if let Some(marks) = self.marks.get() {
            return Ok(marks);
        }
        let mut marks: BTreeMap<SlotMark, Vec<CarriedMark>> = BTreeMap::new();
        for row in self.rows().filter(|row| !row.is_kernel && !row.is_dead() && !self.is_spared(row.pid)) {
            if let Some((mark, carried)) = mark::carried(row.pid)? {
                marks.entry(mark).or_default().push(carried);
            }
        }
        Ok(self.marks.get_or_init(|| marks))
    }

    /// A second look at everybody, after this one; kept in the same way.
    pub fn again(&self) -> io::Result<&Self> {
        if let Some(again) = self.again.get() {
            return Ok(again);
        }
        let again = Box::new(Self::read()?);
        Ok(self.again.get_or_init(|| again))
    }

    /// Whether this is the agent itself, or somebody that it descends from.
    pub(super) fn is_spared(&self, pid: u32) -> bool {
        self.spared.contains(&pid)
    }

    /// Who has this parent.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = &Row> {
        self.named(&self.by_parent, parent)
    }

    /// Who is in this group.
    pub(super) fn group(&self, group: u32) -> impl Iterator<Item = &Row> {
        self.named(&self.by_group, group)
    }

    /// Who is in this session.
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

/// A file of a process; nothing if the process has gone.
pub(super) fn read_of(pid: u32, file: &str) -> io::Result<Option<Vec<u8>>> {
    match read_at_once(&format!("/proc/{pid}/{file}")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file of `/proc` says that it is empty, so whoever goes by its size begins with small steps. Nearly all fit here.
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
        assert!(table.is_spared(own.pid) && table.is_spared(own.parent));
    }
}
