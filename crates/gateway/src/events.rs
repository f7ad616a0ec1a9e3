//! Server-sent events that are passed on whole.

use bytes::{Bytes, BytesMut};

/// The largest part of one event that is kept back until the rest of it comes. A larger event is passed on in parts.
const LARGEST_KEPT: usize = 1024 * 1024;

/// Keeps back the event that is not complete yet, so that a stream that breaks does not end in the middle of one.
#[derive(Debug, Default)]
pub(crate) struct WholeEvents {
    kept: BytesMut,
}

impl WholeEvents {
    /// Takes a piece of the stream, and returns what may be passed on; that may be nothing.
    pub(crate) fn take(&mut self, piece: &Bytes) -> Bytes {
        if self.kept.is_empty() {
            // Engines send an event at a time, so this is nearly always all of it, and nothing is copied.
            let end = end_of_events(piece).unwrap_or(if piece.len() > LARGEST_KEPT { piece.len() } else { 0 });
            self.kept.extend_from_slice(&piece[end..]);
            return piece.slice(..end);
        }
        self.kept.extend_from_slice(piece);
        let end = end_of_events(&self.kept);
        let end = end.or_else(|| (self.kept.len() > LARGEST_KEPT).then_some(self.kept.len()));
        end.map(|end| self.kept.split_to(end).freeze()).unwrap_or_default()
    }

    /// What is left when the stream has come to its own end.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.kept.split().freeze()
    }
}

/// Where the last complete event ends: after an empty line.
fn end_of_events(text: &[u8]) -> Option<usize> {
    let is_break = |at: &usize| {
        let before = text[..*at].strip_suffix(b"\r").unwrap_or(&text[..*at]);
        text[*at] == b'\n' && before.ends_with(b"\n")
    };
    (1..text.len()).rev().find(is_break).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_what_came_in_however_it_was_cut() {
        let text = b"data: one\n\ndata: two\r\n\r\n: note\n\nevent: x\ndata: three\n\ndata: [DONE]\n\nrest";
        for size in 1..text.len() {
            let mut events = WholeEvents::default();
            let mut passed = Vec::new();
            for piece in text.chunks(size) {
                let out = events.take(&Bytes::copy_from_slice(piece));
                assert!(out.is_empty() || out.ends_with(b"\n\n") || out.ends_with(b"\r\n\r\n"), "{size}: {out:?}");
                passed.extend_from_slice(&out);
            }
            assert!(passed.ends_with(b"data: [DONE]\n\n"), "{size}");
            passed.extend_from_slice(&events.rest());
            assert_eq!(passed, text, "{size}");
        }
    }
}
