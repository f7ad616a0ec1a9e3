//! A proxy between an agent and its server that keeps old answers and can send them again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{io, thread};

use super::Fleet;
use crate::service::eventually;

/// A proxy on a port of its own. It forwards everything, except that polls wait only a moment, that a test can have one
/// of them answered with an older answer, and that it can be cut.
#[derive(Clone, Debug)]
pub struct Relay {
    address: String,
    server: String,
    heard: Arc<Mutex<Heard>>,
    /// Polls wait only a moment.
    is_hasty: bool,
}

#[derive(Debug, Default)]
struct Heard {
    /// Every answer to a poll, in the order in which the agent got them.
    answers: Vec<String>,
    /// What the next poll is answered with.
    planted: Option<String>,
    /// How many polls wait for their answer.
    polls: usize,
    /// Nothing passes.
    is_cut: bool,
}

impl Relay {
    /// Starts a proxy to the server of a fleet.
    #[must_use]
    pub fn to(fleet: &Fleet) -> Self {
        Self::start(fleet, true)
    }

    /// Starts a proxy whose polls wait for as long as the agent asked.
    #[must_use]
    pub fn patient(fleet: &Fleet) -> Self {
        Self::start(fleet, false)
    }

    fn start(fleet: &Fleet, is_hasty: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let relay = Self { address, server: fleet.server.address(), heard: Arc::default(), is_hasty };
        let serving = relay.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let relay = serving.clone();
                // An agent whose connection breaks connects again.
                thread::spawn(move || drop(relay.pass_on(&connection)));
            }
        });
        relay
    }

    /// Where an agent finds it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The last answer to a poll that says this.
    #[must_use]
    pub fn last_with(&self, text: &str) -> Option<String> {
        self.heard().answers.iter().rfind(|answer| answer.contains(text)).cloned()
    }

    /// Hands out an old answer, and waits until the agent has it and has got the next one.
    pub fn hand_out(&self, answer: String) {
        let before = self.heard().answers.len();
        self.heard().planted = Some(answer);
        eventually("the agent has the old answer, and the next", || {
            let heard = self.heard();
            (heard.planted.is_none() && heard.answers.len() > before + 1).then_some(())
        });
    }

    /// Waits until a poll of the agent waits for its answer.
    pub fn until_polled(&self) {
        eventually("the agent polls", || (self.heard().polls > 0).then_some(()));
    }

    /// Whether a poll of the agent waits for its answer now.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.heard().polls > 0
    }

    /// Waits until the agent was handed an answer that says this, whether or not it has read it.
    pub fn until_handed(&self, text: &str) {
        eventually("the agent was handed the answer", || self.last_with(text).map(drop));
    }

    /// Lets nothing pass from now on.
    pub fn cut(&self) {
        self.heard().is_cut = true;
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }

    /// One request and its answer; then the connection ends.
    fn pass_on(&self, agent: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(agent);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let is_poll = head.starts_with("GET ") && head.contains("/desired?");
        if self.heard().is_cut {
            return Ok(());
        }
        let planted = if is_poll { self.heard().planted.take() } else { None };
        self.heard().polls += usize::from(is_poll);
        let answer = match planted {
            Some(planted) => Ok(planted),
            None => self.ask(&head, &body),
        };
        self.heard().polls -= usize::from(is_poll);
        let answer = answer?;
        (&mut &*agent).write_all(answer.as_bytes())?;
        if is_poll {
            self.heard().answers.push(answer);
        }
        Ok(())
    }

    fn ask(&self, head: &str, body: &[u8]) -> io::Result<String> {
        let head = if self.is_hasty { head.replace("wait=25s", "wait=50ms") } else { head.to_owned() };
        let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        let mut server = TcpStream::connect(&self.server)?;
        server.write_all(head.as_bytes())?;
        server.write_all(body)?;
        let mut answer = String::new();
        server.read_to_string(&mut answer)?;
        Ok(answer)
    }
}
