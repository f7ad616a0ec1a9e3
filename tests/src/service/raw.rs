//! A connection without a client: bytes as a test likes them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// A bare connection.
#[derive(Debug)]
pub struct Raw(TcpStream);

impl Raw {
    /// Connects and says nothing.
    #[must_use]
    pub fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(stream)
    }

    /// Sends bytes. Whether they could be sent: a connection that was closed takes none.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    /// Everything until the other side closes, or falls silent for longer than patience.
    pub fn read_to_end(&mut self) -> String {
        let mut all = Vec::new();
        let _ = self.0.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// The head and the first bytes of one answer, on a connection that stays open.
    pub fn read_some(&mut self) -> String {
        let mut buffer = [0; 4096];
        let read = self.0.read(&mut buffer).expect("an answer");
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    }

    /// How long it takes until the other side closes, while `between` is done every 50 ms. None if it stays open for
    /// longer than patience.
    pub fn closed_after(&mut self, mut between: impl FnMut(&mut Self)) -> Option<Duration> {
        let begun = Instant::now();
        self.0.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let mut buffer = [0; 4096];
        while begun.elapsed() < PATIENCE {
            match self.0.read(&mut buffer) {
                Ok(0) => return Some(begun.elapsed()),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => between(self),
                Err(_) => return Some(begun.elapsed()),
            }
        }
        None
    }
}
