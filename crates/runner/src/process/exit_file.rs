//! The exit file of a job: how it ended, in a file that outlives the agent.
//!
//! The file is made before the program of a job is started, with space for the note at its end: the note overwrites
//! bytes that are allocated already, so a disk that is full by then does not lose it. (A copy-on-write file system such
//! as btrfs does not guarantee that.) So the file also says whether a job was ever started:
//!
//! | file | meaning |
//! | --- | --- |
//! | none | the program was not started |
//! | anything that is not a note | it was started, and how it ended is unknown |
//! | a note | it ended like this, or it could not be run at all |
//!
//! A job is not started where there is a file of it: see [`reserve`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use berth_domain::{Generation, SlotId};

use super::handle::Exit;
use super::id::ProcessId;

/// The size of an exit file. A note fits into it, and it fits into any sector.
const SIZE: usize = 64;
/// The content of the file until the end is noted.
const PLACEHOLDER: &str = "started, and its end was not noted";
/// The last word of a note. Without it, a part of the note is missing.
const COMPLETE: &str = "end";
const CODE: &str = "code";
const SIGNAL: &str = "signal";
const NOT_RUN: &str = "not-run";

/// The content of an exit file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitNote {
    /// The program was started, and how it ended is not noted.
    Started,
    /// The program ended like this.
    Ended(Exit),
}

/// Makes the exit file of a job that is about to be started, with space for its note. Fails if there is a file already:
/// then the job was started before, and must not be started again.
pub(super) fn reserve(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all_at(&padded(PLACEHOLDER), 0).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Nothing was started, so the file must not remain.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Notes how the program ended, in the reserved space.
pub(super) fn note(file: &File, exit: Exit) -> io::Result<()> {
    let text = match exit {
        Exit::Code(code) => format!("{CODE} {code} {COMPLETE}"),
        Exit::Signal(signal) => format!("{SIGNAL} {signal} {COMPLETE}"),
        Exit::NotRun => format!("{NOT_RUN} 0 {COMPLETE}"),
        Exit::Unknown => return Ok(()),
    };
    file.write_all_at(&padded(&text), 0)?;
    file.sync_data()
}

fn padded(text: &str) -> [u8; SIZE] {
    let mut bytes = [b'\n'; SIZE];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// The exit file of one start of a slot.
#[derive(Debug)]
pub struct ExitFile {
    path: PathBuf,
    /// The open file, where a process had it open: its path may have been removed since.
    open: Option<File>,
}

impl ExitFile {
    /// Returns the file at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path, open: None }
    }

    /// Returns the file that a living supervisor has open. Its directory may have been removed, or belong to another agent:
    /// the supervisor's own descriptor still leads to it.
    #[must_use]
    pub(super) fn of_supervisor(self, supervisor: &ProcessId) -> Self {
        let open = find_open(supervisor.pid, |path| path_of(path) == path_of(&self.path));
        Self { open: open.or(self.open), ..self }
    }

    /// Reads the file; `None` if there is none.
    #[must_use]
    pub fn read(&self) -> Option<ExitNote> {
        let bytes = match &self.open {
            Some(file) => read_open(file),
            None => fs::read(&self.path),
        };
        match bytes {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // A file that cannot be read exists, so the job was started.
            Err(_) => Some(ExitNote::Started),
            Ok(bytes) => Some(parse(&bytes)),
        }
    }
}

/// Returns whether a process has the exit file of this slot open: then it is the supervisor of the job.
pub(super) fn is_supervisor(pid: u32, slot: SlotId, generation: Generation) -> bool {
    let ending = format!("{slot}/{generation}.exit");
    find_open(pid, |path| path_of(path).is_some_and(|path| path.ends_with(&ending))).is_some()
}

/// Returns a file that a process has open, by its path. Returns `None` if there is none, or if the agent may not look.
fn find_open(pid: u32, is_it: impl Fn(&Path) -> bool) -> Option<File> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let mut links = entries.flatten().map(|entry| entry.path());
    let link = links.find(|link| fs::read_link(link).is_ok_and(|target| is_it(&target)))?;
    File::open(link).ok()
}

/// Returns the last two parts of a path, `SLOT/GENERATION.exit`: they name the start of a slot, in whatever directory.
/// The kernel appends a word to the path of a file that was removed.
fn path_of(path: &Path) -> Option<PathBuf> {
    let text = path.to_str()?;
    let path = Path::new(text.strip_suffix(" (deleted)").unwrap_or(text));
    Some(Path::new(path.parent()?.file_name()?).join(path.file_name()?))
}

fn read_open(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; SIZE];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> ExitNote {
    let ended = std::str::from_utf8(bytes).ok().and_then(|text| {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (what, number) = match words.as_slice() {
            [what, number, COMPLETE] => (*what, *number),
            // Supervisors of the first version wrote the note in one piece.
            [what, number] if bytes.len() < SIZE && text.ends_with('\n') => (*what, *number),
            _ => return None,
        };
        let number = number.parse().ok()?;
        match what {
            CODE => Some(Exit::Code(number)),
            SIGNAL => Some(Exit::Signal(number)),
            NOT_RUN => Some(Exit::NotRun),
            _ => None,
        }
    });
    ended.map_or(ExitNote::Started, ExitNote::Ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ExitNote {
        parse(text.as_bytes())
    }

    #[test]
    fn a_note_reads_back_and_fits_the_reserved_space() {
        let dir = tempfile::tempdir().unwrap();
        for (number, exit) in
            [Exit::Code(0), Exit::Code(i32::MIN), Exit::Signal(9), Exit::NotRun].into_iter().enumerate()
        {
            let path = dir.path().join(number.to_string());
            assert_eq!(ExitFile::at(path.clone()).read(), None, "nothing was started");
            let file = reserve(&path).unwrap();
            assert_eq!(ExitFile::at(path.clone()).read(), Some(ExitNote::Started));
            assert_eq!(fs::metadata(&path).unwrap().len(), SIZE as u64);
            note(&file, exit).unwrap();
            assert_eq!(ExitFile::at(path.clone()).read(), Some(ExitNote::Ended(exit)));
            assert_eq!(fs::metadata(&path).unwrap().len(), SIZE as u64, "it took no new room");
            assert!(reserve(&path).is_err(), "a job that was started is not started again");
        }
    }

    #[test]
    fn a_torn_or_strange_note_is_an_unknown_end() {
        let whole = String::from_utf8(padded("code 12 end").to_vec()).unwrap();
        let placeholder = String::from_utf8(padded(PLACEHOLDER).to_vec()).unwrap();
        for written in 0.."code 12 end".len() {
            let torn = format!("{}{}", &whole[..written], &placeholder[written..]);
            assert_eq!(parsed(&torn), ExitNote::Started, "{torn:?}");
            assert_eq!(parsed(&whole[..written]), ExitNote::Started, "{:?}", &whole[..written]);
        }
        for strange in ["", "\n", "code", "code x end\n", "fate 7 end\n", "code 99999999999 end\n", "code 1 2 end\n"] {
            assert_eq!(parsed(strange), ExitNote::Started, "{strange:?}");
        }
        assert_eq!(parse(&[0xff; SIZE]), ExitNote::Started);
        assert_eq!(parsed(&whole), ExitNote::Ended(Exit::Code(12)));
    }

    #[test]
    fn a_note_of_the_first_version_is_read() {
        assert_eq!(parsed("code 5\n"), ExitNote::Ended(Exit::Code(5)));
        assert_eq!(parsed("signal 9\n"), ExitNote::Ended(Exit::Signal(9)));
        assert_eq!(parsed("code 5"), ExitNote::Started, "it has no end");
    }

    #[test]
    fn the_supervisors_open_file_is_found_after_it_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let slot = SlotId::new("01234567-89ab-cdef-0123-456789abcdef".parse().unwrap());
        let path = dir.path().join(slot.to_string()).join("3.exit");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = reserve(&path).unwrap();
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        let own = ProcessId::of(std::process::id()).unwrap().unwrap();
        // Another agent, with another directory.
        let elsewhere = PathBuf::from("/nowhere").join(slot.to_string()).join("3.exit");
        let found = ExitFile::at(elsewhere.clone()).of_supervisor(&own);
        assert_eq!(found.read(), Some(ExitNote::Started));
        note(&file, Exit::Code(0)).unwrap();
        assert_eq!(found.read(), Some(ExitNote::Ended(Exit::Code(0))));
        assert_eq!(ExitFile::at(elsewhere).read(), None);
        assert!(is_supervisor(own.pid, slot, Generation::new(3)));
        assert!(!is_supervisor(own.pid, slot, Generation::new(4)));
    }
}
