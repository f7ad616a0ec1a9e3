//! The names of files in the journal's directory.

use berth_domain::Revision;

/// The next segment, allocated ahead.
pub(crate) const PREPARED: &str = "next.prepared";
/// The suffix of an unfinished file.
pub(crate) const UNFINISHED: &str = ".tmp";

const SEGMENT: &str = ".log";
const SNAPSHOT: &str = ".snapshot";
/// Enough digits for any revision, so that names sort as numbers.
const DIGITS: usize = 20;

/// Returns the name of the segment that begins with a revision.
pub(crate) fn segment(first: Revision) -> String {
    format!("{:020}{SEGMENT}", first.get())
}

/// Returns the name of the snapshot of a revision.
pub(crate) fn snapshot(revision: Revision) -> String {
    format!("{:020}{SNAPSHOT}", revision.get())
}

/// The files of a journal, sorted by kind.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The first revisions of segments, ascending.
    pub(crate) segments: Vec<Revision>,
    /// The revisions of snapshots, ascending.
    pub(crate) snapshots: Vec<Revision>,
    /// Unfinished files.
    pub(crate) unfinished: Vec<String>,
    /// Whether a segment was allocated ahead.
    pub(crate) prepared: bool,
}

impl Names {
    /// Sorts names by kind. Other files do not belong to the journal and are left alone.
    pub(crate) fn sort(list: Vec<String>) -> Self {
        let mut names = Self::default();
        for name in list {
            if let Some(first) = number(&name, SEGMENT) {
                names.segments.push(first);
            } else if let Some(revision) = number(&name, SNAPSHOT) {
                names.snapshots.push(revision);
            } else if name == PREPARED {
                names.prepared = true;
            } else if name.strip_suffix(UNFINISHED).is_some_and(|rest| number(rest, SNAPSHOT).is_some()) {
                names.unfinished.push(name);
            }
        }
        names.segments.sort_unstable();
        names.snapshots.sort_unstable();
        names
    }
}

fn number(name: &str, suffix: &str) -> Option<Revision> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Revision::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_left_alone() {
        let list = [
            segment(Revision::new(7)),
            segment(Revision::new(u64::MAX)),
            snapshot(Revision::new(6)),
            snapshot(Revision::new(9)) + UNFINISHED,
            PREPARED.to_owned(),
            "lost+found".to_owned(),
            "7.log".to_owned(),
            "+0000000000000000007.log".to_owned(),
            "99999999999999999999.log".to_owned(),
            "notes.tmp".to_owned(),
        ];
        let names = Names::sort(list.to_vec());
        assert_eq!(names.segments, [Revision::new(7), Revision::new(u64::MAX)]);
        assert_eq!(names.snapshots, [Revision::new(6)]);
        assert_eq!(names.unfinished, ["00000000000000000009.snapshot.tmp"]);
        assert!(names.prepared);
    }
}
