//! Removing secrets from the output of slots.
//!
//! Engines print their settings, tokens included. The file on this machine is closed to other users; what leaves the
//! machine is redacted. A log is read in pieces that begin and end anywhere, so a piece that may end within a secret is
//! held back until the next one shows whether it did.

use std::collections::BTreeSet;

/// The replacement for a secret.
const REDACTED: &[u8] = berth_domain::REDACTED.as_bytes();
/// Shorter values are not redacted: they are part of ordinary words.
const SHORTEST_VALUE: usize = 8;
/// A part of a secret that is shorter than this reveals little, and would be found by chance.
const SHORTEST_PART: usize = 4;

/// The values that must not be shown, the longest first.
#[derive(Clone, Default)]
pub struct Redactor {
    values: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor of {} values", self.values.len())
    }
}

impl Redactor {
    /// Returns a redactor of these values. Values shorter than 8 bytes are not redacted.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let values: BTreeSet<Vec<u8>> = values.into_iter().filter(|value| value.len() >= SHORTEST_VALUE).collect();
        let mut values: Vec<Vec<u8>> = values.into_iter().collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { values }
    }

    /// Redacts a whole text, which may begin or end within a value.
    #[must_use]
    pub fn redact(&self, bytes: Vec<u8>) -> Vec<u8> {
        let mut pieces = self.clone().pieces();
        let mut shown = pieces.push(bytes);
        shown.extend(pieces.finish());
        shown
    }

    /// Returns a redactor for a text that comes in pieces.
    #[must_use]
    pub fn pieces(self) -> RedactedPieces {
        RedactedPieces { redactor: self, held: Vec::new(), is_begin: true }
    }

    /// Returns the value that begins here.
    fn value_at(&self, bytes: &[u8]) -> Option<&[u8]> {
        self.values.iter().map(Vec::as_slice).find(|value| bytes.starts_with(value))
    }

    /// Returns how much of the end of a value is at the beginning of these bytes.
    fn end_of_value(&self, bytes: &[u8]) -> usize {
        let ends =
            |value: &Vec<u8>| (SHORTEST_PART..value.len()).rev().find(|n| bytes.starts_with(&value[value.len() - n..]));
        self.values.iter().filter_map(ends).max().unwrap_or(0)
    }

    /// Returns how much of the beginning of a value is at the end of these bytes.
    fn begin_of_value(&self, bytes: &[u8]) -> usize {
        let begins = |value: &Vec<u8>| (1..value.len()).rev().find(|n| bytes.ends_with(&value[..*n]));
        self.values.iter().filter_map(begins).max().unwrap_or(0)
    }
}

/// Redacts a text that comes in pieces.
#[derive(Debug)]
pub struct RedactedPieces {
    redactor: Redactor,
    held: Vec<u8>,
    is_begin: bool,
}

impl RedactedPieces {
    /// Adds a piece and returns what can be shown of the text so far.
    pub fn push(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        if self.redactor.values.is_empty() {
            return bytes;
        }
        let text = [std::mem::take(&mut self.held), bytes].concat();
        let mut shown = Vec::with_capacity(text.len());
        let mut at = 0;
        if std::mem::take(&mut self.is_begin) {
            at = self.redactor.end_of_value(&text);
            shown.extend_from_slice(if at > 0 { REDACTED } else { &[] });
        }
        // Bytes that may begin a value wait for the next piece.
        let keep = self.redactor.begin_of_value(&text[at..]);
        while at < text.len() - keep {
            match self.redactor.value_at(&text[at..]) {
                Some(value) => {
                    shown.extend_from_slice(REDACTED);
                    at += value.len();
                }
                None => {
                    shown.push(text[at]);
                    at += 1;
                }
            }
        }
        self.held = text.get(at..).unwrap_or_default().to_vec();
        shown
    }

    /// Returns the end of the text, or of what is known of it before a gap.
    pub fn finish(&mut self) -> Vec<u8> {
        self.is_begin = true;
        let held = std::mem::take(&mut self.held);
        if held.len() < SHORTEST_PART { held } else { REDACTED.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"hf_0123456789abcdef";

    fn redactor() -> Redactor {
        Redactor::new([SECRET.to_vec(), b"hf_0123456789abcdef-longer".to_vec(), b"short".to_vec()])
    }

    fn shown(bytes: &[u8]) -> String {
        String::from_utf8(redactor().redact(bytes.to_vec())).unwrap()
    }

    #[test]
    fn a_value_is_taken_out_wherever_it_is() {
        assert_eq!(shown(b"a hf_0123456789abcdef b"), "a [redacted] b");
        assert_eq!(shown(b"hf_0123456789abcdefhf_0123456789abcdef"), "[redacted][redacted]");
        assert_eq!(shown(b"hf_0123456789abcdef-longer"), "[redacted]");
        assert_eq!(shown(b"short hf_ and 0123"), "short hf_ and 0123");
        assert_eq!(shown(b""), "");
    }

    #[test]
    fn a_text_that_begins_or_ends_within_a_value_shows_nothing_of_it() {
        assert_eq!(shown(b"9abcdef rest"), "[redacted] rest");
        assert_eq!(shown(b"the rest hf_01234567"), "the rest [redacted]");
    }

    #[test]
    fn pieces_of_every_size_show_the_same() {
        let text = b"one hf_0123456789abcdef two hf_0123 three hf_0123456789abcdef-longer four\n";
        let whole = shown(text);
        assert!(!whole.contains("456789"), "{whole}");
        for size in 1..text.len() {
            let mut pieces = redactor().pieces();
            let mut all: Vec<u8> = text.chunks(size).flat_map(|piece| pieces.push(piece.to_vec())).collect();
            all.extend(pieces.finish());
            assert_eq!(String::from_utf8(all).unwrap(), whole, "pieces of {size}");
        }
    }

    #[test]
    fn text_without_a_secret_is_not_held_back() {
        let mut pieces = redactor().pieces();
        assert_eq!(pieces.push(b"ready\n".to_vec()), b"ready\n");
    }
}
