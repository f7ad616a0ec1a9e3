//! The last lines of a log, in a form that is safe to show.

use std::fmt::Write;

/// The last lines of what a slot wrote: few, short, and without control characters that a terminal would obey.
///
/// An agent makes a tail of the end of a log, and the server cleans what the agent sent once more: neither the program
/// nor the agent is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail(Vec<String>);

impl LogTail {
    /// The largest number of lines.
    pub const LINES: usize = 20;
    /// The largest number of bytes of all lines together.
    pub const BYTES: usize = 4096;
    /// The largest number of bytes of one line. A longer line is cut at its end, since the cause stands at the
    /// beginning of a line.
    pub const LINE_BYTES: usize = 1024;

    /// How many bytes of the end of a log a tail is made of, at most.
    pub const LOOKED_AT: usize = 16 << 10;

    /// Makes a tail of arbitrary bytes. The first line may have begun before them.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let end = &bytes[bytes.len().saturating_sub(Self::LOOKED_AT)..];
        Self::of_lines(String::from_utf8_lossy(end).lines())
    }

    /// Makes a tail of the last of these lines, each cleaned and cut.
    #[must_use]
    pub fn of_lines<'a>(lines: impl DoubleEndedIterator<Item = &'a str>) -> Self {
        let mut kept = Vec::new();
        let mut left = Self::BYTES;
        for line in lines.rev().map(shown).filter(|line| !line.is_empty()).take(Self::LINES) {
            let Some(rest) = left.checked_sub(line.len()) else { break };
            left = rest;
            kept.push(line);
        }
        kept.reverse();
        Self(kept)
    }

    /// Returns the lines, oldest first.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.0
    }

    /// Returns whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns a line as a terminal would show it in the end, since a progress bar writes over itself. Control characters
/// are spelt out.
fn shown(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line).trim_end();
    let mut text = String::with_capacity(line.len().min(LogTail::LINE_BYTES));
    for c in line.chars() {
        let before = text.len();
        match c {
            '\t' => text.push(' '),
            c if c.is_control() => drop(write!(text, "{}", c.escape_default())),
            c => text.push(c),
        }
        if text.len() > LogTail::LINE_BYTES - '…'.len_utf8() {
            text.truncate(before);
            text.push('…');
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        LogTail::of_bytes(bytes).0
    }

    #[test]
    fn only_the_last_lines_are_kept_and_empty_ones_are_not() {
        let log: String = (0..100).map(|number| format!("line {number}\n\n")).collect();
        let kept = lines(log.as_bytes());
        assert_eq!((kept.len(), kept[0].as_str(), kept[19].as_str()), (20, "line 80", "line 99"));
        assert_eq!(lines(b""), Vec::<String>::new());
        assert_eq!(lines(b"no end of line"), ["no end of line"]);
    }

    #[test]
    fn a_line_is_cut_and_all_of_them_are_bounded() {
        let long = "é".repeat(5000);
        let kept = lines(format!("{long}\n").repeat(10).as_bytes());
        assert!(kept.iter().all(|line| line.len() <= LogTail::LINE_BYTES && line.ends_with('…')), "{kept:?}");
        assert!(kept.iter().map(String::len).sum::<usize>() <= LogTail::BYTES);
        assert!(!kept.is_empty());
    }

    #[test]
    fn nothing_is_kept_that_a_terminal_obeys() {
        let kept = lines(b"a\x1b[31mb\x07\x00\xff\tc\r\n10%\r20%\r30%\n\xc2\x9b2J\n");
        assert_eq!(kept, ["a\\u{1b}[31mb\\u{7}\\u{0}\u{fffd} c", "30%", "\\u{9b}2J"]);
        // What was made once is not changed by making it again.
        let again = LogTail::of_lines(kept.iter().map(String::as_str));
        assert_eq!(again.0, kept);
    }
}
