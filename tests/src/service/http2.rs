//! HTTP/2 frame by frame, for clients that no library would let a test be.

use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

use super::PATIENCE;

/// What a peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type: 0 data, 1 headers, 3 reset, 4 settings, 6 ping, 7 go away, 8 window update.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Its type, when it is a part of an answer.
    pub const DATA: u8 = 0;
    /// Its type, when it begins an answer.
    pub const HEADERS: u8 = 1;
    /// Its type, when it ends a stream.
    pub const RESET: u8 = 3;
    /// The reason of a reset: the request was not looked at.
    pub const REFUSED: [u8; 4] = [0, 0, 0, 7];
}

/// A client that does what a test tells it, over any stream.
#[derive(Debug)]
pub struct Http2<S> {
    stream: S,
    next: u32,
}

impl<S: Read + Write> Http2<S> {
    /// Says the preface, and that it takes `window` bytes of each answer.
    pub fn begin(stream: S, window: u32) -> Self {
        let mut client = Self { stream, next: 1 };
        let _ = client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut settings = vec![0, 4];
        settings.extend(window.to_be_bytes());
        client.send(4, 0, 0, &settings);
        client
    }

    /// Sends a frame. Whether it could be sent.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame).and_then(|()| self.stream.flush()).is_ok()
    }

    /// Asks for a path on a stream of its own, and returns the stream.
    pub fn get(&mut self, path: &str, token: Option<&str>) -> u32 {
        let stream = self.next;
        self.next += 2;
        // Indexed fields of the static table (GET, http), then literals without indexing.
        let mut block = vec![0x82, 0x86];
        for (name, value) in [(4, path), (1, "localhost")] {
            block.push(name);
            literal(&mut block, value);
        }
        if let Some(token) = token {
            block.push(0x0f);
            block.push(23 - 15);
            literal(&mut block, &format!("Bearer {token}"));
        }
        self.send(Frame::HEADERS, 0x05, stream, &block);
        stream
    }

    /// The next frame; none once the connection is closed, or has nothing to say for longer than a test waits. Pings are
    /// answered.
    pub fn frame(&mut self) -> Option<Frame> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let mut head = [0; 9];
            self.fill(&mut head)?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut payload = vec![0; length as usize];
            self.fill(&mut payload)?;
            let frame = Frame { kind: head[3], flags: head[4], stream, payload };
            match (frame.kind, frame.flags & 1) {
                (6, 0) => drop(self.send(6, 1, 0, &frame.payload)),
                (4, 0) => drop(self.send(4, 1, 0, &[])),
                (4 | 6, _) => {}
                _ => return Some(frame),
            }
        }
        None
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        let mut read = 0;
        while read < bytes.len() {
            match self.stream.read(&mut bytes[read..]) {
                Ok(0) => return None,
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(())
    }
}

/// A text with its length before it, as HPACK writes it without compression.
fn literal(block: &mut Vec<u8>, text: &str) {
    let length = text.len();
    if length < 127 {
        block.push(u8::try_from(length).expect("it is small"));
    } else {
        block.push(127);
        let mut rest = length - 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).expect("it is small") | 128);
            rest /= 128;
        }
        block.push(u8::try_from(rest).expect("it is small"));
    }
    block.extend(text.as_bytes());
}
