//! A parser of server-sent events that arrive in pieces.

use std::time::Duration;

/// The largest size of one event in bytes. The server sends no larger one.
const MOST: usize = 1 << 20;

/// One event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The type of the event; empty for the default type.
    pub(crate) event: String,
    /// The data of the event.
    pub(crate) data: String,
}

/// Puts events together from the pieces in which they come.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    /// Whether the last byte was a carriage return: a line feed after it ends no further line.
    after_return: bool,
    frame: Frame,
    has_data: bool,
    /// How long the server asks to pause before coming back.
    pub(crate) pause: Option<Duration>,
}

/// The error for an event that is too large.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Parser {
    /// Prepares for a new connection, which begins with a new event. The requested pause stays.
    pub(crate) fn restart(&mut self) {
        *self = Self { pause: self.pause, ..Self::default() };
    }

    /// Takes the next piece and returns the events that it completes.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<Vec<Frame>, TooLarge> {
        let mut frames = Vec::new();
        for byte in piece {
            let follows_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    frames.extend(self.take_line(&String::from_utf8_lossy(&line)));
                }
                _ => self.line.push(*byte),
            }
            if self.line.len() + self.frame.data.len() > MOST {
                return Err(TooLarge);
            }
        }
        Ok(frames)
    }

    fn take_line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            return std::mem::take(&mut self.has_data).then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.frame.event),
            "retry" => self.pause = value.parse().ok().map(Duration::from_millis).or(self.pause),
            // A line that begins with a colon is a comment: a sign of life. The id is in the data as well.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_the_same_in_whatever_pieces_they_come() {
        let text = "retry: 250\r\n: alive\n\nid: 7\nevent: slot\ndata: {\"a\": \"ü\",\ndata: \"b\": 1}\n\ndata:x\r\rdata: \n\n: bye\n\n";
        let expected = [frame("slot", "{\"a\": \"ü\",\n\"b\": 1}"), frame("", "x"), frame("", "")];
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let frames: Vec<Frame> =
                text.as_bytes().chunks(size).flat_map(|piece| parser.feed(piece).unwrap_or_default()).collect();
            assert_eq!(frames, expected, "in pieces of {size}");
            assert_eq!(parser.pause, Some(Duration::from_millis(250)));
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = Parser::default();
        assert_eq!(parser.feed(b"data: "), Ok(vec![]));
        assert_eq!(parser.feed(&vec![b'x'; MOST + 1]), Err(TooLarge));
        let mut parser = Parser::default();
        let mut fed = (0..MOST).map(|_| parser.feed(b"data: xx\n"));
        assert!(fed.any(|taken| taken == Err(TooLarge)), "many short lines are one large event");
    }
}
