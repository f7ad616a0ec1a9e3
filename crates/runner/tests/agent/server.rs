//! A server that a test speaks through.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{io, thread};

use berth_wire::PROTOCOL;
use serde_json::{Value, json};

use crate::machine::until;

/// What the server says and what it was told.
#[derive(Debug)]
pub(crate) struct Words {
    /// What it says of its protocol: in its version, in answers to reports, and in answers to polls.
    pub(crate) protocols: [u32; 3],
    /// Reports are refused with this status and code.
    pub(crate) refuses: Option<(u16, &'static str)>,
    /// It does not answer polls, and takes no connection for anything else.
    pub(crate) is_silent: bool,
    /// What is desired.
    slots: Vec<Value>,
    revision: u64,
    /// Every report that was taken in.
    reports: Vec<Value>,
    /// How many polls were answered, and how many wait.
    polls: u64,
    waiting: u64,
}

impl Words {
    /// How many polls were answered.
    pub(crate) fn polls(&self) -> u64 {
        self.polls
    }
}

/// A server on a port of its own.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    address: String,
    cluster: u64,
    words: Arc<Mutex<Words>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let words = Words {
            protocols: [PROTOCOL; 3],
            refuses: None,
            is_silent: false,
            slots: Vec::new(),
            revision: 1,
            reports: Vec::new(),
            polls: 0,
            waiting: 0,
        };
        let address = listener.local_addr().unwrap().to_string();
        // No other test has slots of this cluster.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let cluster = u64::try_from(since.as_nanos() & u128::from(u64::MAX)).unwrap();
        let server = Self { address, cluster, words: Arc::new(Mutex::new(words)) };
        let serving = server.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let server = serving.clone();
                thread::spawn(move || drop(server.answer(&connection)));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The id of a slot of its cluster.
    pub(crate) fn slot(&self, number: u64) -> String {
        uuid::Uuid::from_u64_pair(self.cluster, number).to_string()
    }

    pub(crate) fn words(&self) -> MutexGuard<'_, Words> {
        self.words.lock().unwrap()
    }

    /// Wants this from now on.
    pub(crate) fn wants(&self, slots: &[Value]) {
        let mut words = self.words();
        words.slots = slots.to_vec();
        words.revision += 1;
    }

    /// What the last report says of a slot.
    pub(crate) fn heard_of(&self, slot: &str) -> Option<Value> {
        self.words().reports.last()?["slots"].as_array()?.iter().find(|row| row["id"] == slot).cloned()
    }

    /// Everything that reports said of a slot, in order.
    pub(crate) fn all_of(&self, slot: &str) -> Vec<Value> {
        let words = self.words();
        let rows = words.reports.iter().flat_map(|report| report["slots"].as_array().unwrap());
        rows.filter(|row| row["id"] == slot).cloned().collect()
    }

    pub(crate) fn last_report(&self) -> Option<Value> {
        self.words().reports.last().cloned()
    }

    pub(crate) fn reports(&self) -> usize {
        self.words().reports.len()
    }

    /// Waits until the last report says this of a slot.
    #[track_caller]
    pub(crate) fn until_told(&self, slot: &str, state: &str) -> Value {
        until(&format!("{slot} is {state}"), || self.heard_of(slot).is_some_and(|row| row["state"] == state));
        self.heard_of(slot).unwrap()
    }

    /// Waits until the agent has heard everything that is wanted, has acted on it and has reported since.
    #[track_caller]
    pub(crate) fn until_heard(&self) {
        for _ in 0..2 {
            let count = || {
                let words = self.words();
                (words.polls, words.reports.len())
            };
            let (polls, reports) = count();
            until("two more polls and reports", || {
                let now = count();
                now.0 > polls + 1 && now.1 > reports + 1
            });
        }
    }

    /// Waits until a poll waits for its answer.
    #[track_caller]
    pub(crate) fn until_asked(&self) {
        until("a poll", || self.words().waiting > 0);
    }

    fn answer(&self, connection: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(connection);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (status, answer) = if path.ends_with("/version") {
            (200, self.version())
        } else if path.ends_with("/report") {
            self.report(&body)
        } else {
            (200, self.desired())
        };
        let kind = if status == 200 { "application/json" } else { "application/problem+json" };
        let text = answer.to_string();
        write!(
            &mut &*connection,
            "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len()
        )
    }

    fn identity(&self) -> Value {
        json!({ "cluster_id": uuid::Uuid::from_u64_pair(self.cluster, 0), "epoch": 1 })
    }

    fn version(&self) -> Value {
        let mut answer = self.identity();
        answer["version"] = json!("0.0.0");
        answer["protocol"] = json!(self.words().protocols[0]);
        answer
    }

    fn report(&self, body: &[u8]) -> (u16, Value) {
        let mut words = self.words();
        if let Some((status, code)) = words.refuses {
            return (status, json!({ "status": status, "code": code, "detail": "the server speaks protocol 9" }));
        }
        words.reports.push(serde_json::from_slice(body).unwrap());
        let mut answer = self.identity();
        answer["revision"] = json!(words.revision);
        answer["incarnation"] = json!(1);
        answer["protocol"] = json!(words.protocols[1]);
        (200, answer)
    }

    /// Polls wait a moment, and for as long as the server is silent.
    fn desired(&self) -> Value {
        self.words().waiting += 1;
        thread::sleep(Duration::from_millis(20));
        while self.words().is_silent {
            thread::sleep(Duration::from_millis(5));
        }
        let mut words = self.words();
        words.waiting -= 1;
        words.polls += 1;
        let mut answer = self.identity();
        answer["revision"] = json!(words.revision);
        answer["protocol"] = json!(words.protocols[2]);
        answer["slots"] = json!(words.slots);
        answer
    }
}

/// A slot that is mentioned, of the first generation, on `GPU-a`.
pub(crate) fn asked(slot: &str, action: &str) -> Value {
    json!({ "id": slot, "generation": 1, "action": action, "gpus": [{ "uuid": "GPU-a", "memory_bytes": 1 << 30 }] })
}

/// A slot that should run.
pub(crate) fn run(slot: &str, runtime: &str, kind: &str, args: &[&str]) -> Value {
    let mut row = asked(slot, "run");
    let spec = json!({ "model": "some-model", "runtime": runtime, "kind": kind, "args": args, "model_args": args.len(), "concurrency": 1 });
    row.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    row
}

/// The same slot, another start of it.
pub(crate) fn generation(mut slot: Value, generation: u64) -> Value {
    slot["generation"] = json!(generation);
    slot
}
