//! Server-sent events, read one by one.

use std::io::{BufRead, BufReader, Read};

use serde_json::Value;
use ureq::BodyReader;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamedEvent {
    /// Its id: a revision.
    pub id: u64,
    /// What kind of event.
    pub kind: String,
    /// What it says.
    pub data: Value,
}

/// A stream that is being read. Dropping it cuts the connection.
pub struct Events {
    lines: BufReader<Box<dyn Read + Send>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    pub(super) fn new(body: BodyReader<'static>) -> Self {
        Self { lines: BufReader::new(Box::new(body)) }
    }
}

impl Iterator for Events {
    type Item = StreamedEvent;

    /// The next event; none at the end of the stream.
    fn next(&mut self) -> Option<StreamedEvent> {
        let mut event = StreamedEvent { id: 0, kind: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            match line.trim_end().split_once(':') {
                // A blank line ends an event; a comment before it is only a sign of life.
                None if event.kind.is_empty() => {}
                None => return Some(event),
                Some(("id", id)) => event.id = id.trim().parse().expect("an id is a revision"),
                Some(("event", kind)) => event.kind = kind.trim().to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).expect("data is JSON"),
                Some(_) => {}
            }
        }
    }
}
