//! How things look: colours, times and sizes as people read them.

use berth_domain::{Span, Timestamp, is_misleading};
use berth_wire::Time;

/// What rendering may depend on, besides what is rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Whether colours are wanted.
    pub(crate) colour: bool,
    /// The time at which ages are measured.
    pub(crate) now: Timestamp,
}

/// A colour that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// In order.
    Green,
    /// On its way.
    Yellow,
    /// Somebody should look.
    Red,
    /// Ours, but not for long.
    Blue,
    /// Not ours.
    Magenta,
    /// Less important.
    Dim,
    /// A heading.
    Bold,
}

impl Colour {
    const fn code(self) -> &'static str {
        match self {
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
            Self::Blue => "34",
            Self::Magenta => "35",
            Self::Dim => "2",
            Self::Bold => "1",
        }
    }

    /// What a state's word should make its reader feel.
    pub(crate) fn of_state(word: &str) -> Option<Self> {
        Some(match word {
            "ready" | "running" | "open" | "succeeded" | "placed" | "reused" | "chosen" | "done" => Self::Green,
            "promised" | "pending" | "starting" | "draining" | "stopping" | "queued" | "assigned" | "waiting"
            | "suspect" | "cordoned" | "drained" | "stale" | "reserved" | "backing_off" | "releasing" => Self::Yellow,
            "failed" | "unknown" | "lost" | "refused" | "expired" | "missing" | "quarantined" | "overcommitted"
            | "disputed" | "forgotten" => Self::Red,
            "runner_closed" => Self::Yellow,
            _ => return None,
        })
    }
}

impl Look {
    /// The text in a colour, where colours are wanted.
    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{}m{text}\x1b[0m", colour.code()) } else { text.to_owned() }
    }

    /// How long ago that was, in short.
    pub(crate) fn age(self, time: Time) -> String {
        short(self.now.since(time.0))
    }
}

/// A length of time in its two largest units: `2h3m`, `45s`.
pub(crate) fn short(span: Span) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let millis = span.millis();
    let Some(first) = UNITS.iter().position(|(_, size)| millis >= *size) else { return format!("{millis}ms") };
    let (unit, size) = UNITS[first];
    let (whole, rest) = (millis / size, millis % size);
    match UNITS.get(first + 1) {
        Some((next, next_size)) if rest / next_size > 0 => format!("{whole}{unit}{}{next}", rest / next_size),
        _ => format!("{whole}{unit}"),
    }
}

/// Writes text of others so that a terminal shows it and does not obey it.
pub(crate) fn clean(text: &str) -> String {
    escape(text, |_| false)
}

/// The same for text of several lines.
pub(crate) fn clean_lines(text: &str) -> String {
    escape(text, |character| character == '\n')
}

/// Escapes control characters, and those that make a text look like another one.
fn escape(text: &str, passes: impl Fn(char) -> bool) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if is_obeyed(character) && !passes(character) {
            clean.extend(character.escape_default());
        } else {
            clean.push(character);
        }
    }
    clean
}

/// Whether a terminal does something else with a character than show it.
fn is_obeyed(character: char) -> bool {
    character.is_control() || is_misleading(character)
}

/// The same in JSON, where such characters stand in strings only: as escapes of JSON, so that it says the same.
pub(crate) fn clean_json(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if is_obeyed(character) && !matches!(character, '\n' | '\r' | '\t') {
            clean.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            clean.push(character);
        }
    }
    clean
}

/// Makes bytes of a program fit for a terminal, piece by piece: a character may be cut between two pieces.
#[derive(Debug, Default)]
pub(crate) struct TerminalText {
    /// The beginning of a character whose end has not come yet.
    begun: Vec<u8>,
}

impl TerminalText {
    /// Takes the next piece, and returns what can be shown. A carriage return becomes a line feed: it would let the next
    /// text stand in place of the one before it.
    pub(crate) fn push(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(piece);
        let mut text = String::new();
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(&show_lines(chunk.valid()));
            let invalid = chunk.invalid();
            // Only a cut character at the very end can go on in the next piece.
            let is_begun =
                chunks.peek().is_none() && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if is_begun {
                self.begun = invalid.to_vec();
            } else {
                text.extend(invalid.iter().map(|byte| format!("\\x{byte:02x}")));
            }
        }
        text
    }
}

fn show_lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    escape(&text, |character| matches!(character, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        let cases =
            [(0, "0ms"), (999, "999ms"), (45_000, "45s"), (60_000, "1m"), (7_380_000, "2h3m"), (90_061_000, "1d1h")];
        for (millis, text) in cases {
            assert_eq!(short(Span::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_terminal_obeys_nobody_else() {
        assert_eq!(clean("a\x1b[31mb\nc\u{9b}d"), "a\\u{1b}[31mb\\nc\\u{9b}d");
        assert_eq!(clean_lines("a\nb\r\x07\u{202e}c"), "a\nb\\r\\u{7}\\u{202e}c");
        assert_eq!(clean_json("{\n\"a\": \"\u{9b}31m\u{2028}\"}"), "{\n\"a\": \"\\u009b31m\\u2028\"}");
    }

    #[test]
    fn a_log_on_a_terminal_is_text_and_nothing_else() {
        let mut text = TerminalText::default();
        assert_eq!(text.push(b"ok\ttab\nred \x1b[31m\x07"), "ok\ttab\nred \\u{1b}[31m\\u{7}");
        assert_eq!(text.push("\u{e4}".as_bytes().split_at(1).0), "", "the rest of the letter comes later");
        assert_eq!(text.push("\u{e4}".as_bytes().split_at(1).1), "\u{e4}");
        assert_eq!(text.push(b"10%\r20%\r\n\xff\xc2\x9b!"), "10%\n20%\n\\xff\\u{9b}!");
        assert_eq!(text.push(b"\xc2"), "");
        assert_eq!(text.push(b"x"), "\\xc2x", "no letter came of it");
    }
}
