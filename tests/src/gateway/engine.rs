//! An engine that answers, or misbehaves, as a test says. It speaks bytes: no library keeps it from doing wrong.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it does with one request.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Answers as a whole, after a while.
    Whole(Duration),
    /// Streams so many events, with a pause before each.
    Stream(usize, Duration),
    /// Streams so many events, then breaks in the middle of the next.
    BreaksAfter(usize),
    /// Closes the connection without a word.
    Dies,
    /// Sends its head, then closes the connection before the first byte of the body.
    DiesAfterHead,
    /// Sends these bytes, then closes the connection.
    Says(Vec<u8>),
    /// Sends headers without an end.
    EndlessHeaders,
    /// Sends a whole answer byte by byte, with a pause before each.
    Dribbles(Duration),
}

/// One request as the engine saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Request line and headers.
    pub head: String,
    /// The body.
    pub body: String,
}

#[derive(Debug)]
struct Shared {
    usual: Mutex<Behaviour>,
    next: Mutex<VecDeque<Behaviour>>,
    seen: Mutex<Vec<Seen>>,
    open: AtomicUsize,
}

/// The engine.
#[derive(Debug)]
pub struct PlayedEngine {
    address: String,
    shared: Arc<Shared>,
}

const WHOLE: &str = r#"{"id":"x","object":"chat.completion","created":0,"model":"m","odd":1.50,"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}"#;

impl PlayedEngine {
    /// An engine that answers as a whole and at once, unless it is told otherwise.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            usual: Mutex::new(Behaviour::Whole(Duration::ZERO)),
            next: Mutex::default(),
            seen: Mutex::default(),
            open: AtomicUsize::new(0),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = serving.clone();
                shared.open.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    serve(stream, &shared);
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, shared }
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it does from now on.
    pub fn plays(&self, behaviour: Behaviour) {
        *self.shared.usual.lock().unwrap() = behaviour;
    }

    /// What it does with the next request, before it goes on as usual.
    pub fn plays_once(&self, behaviour: Behaviour) {
        self.shared.next.lock().unwrap().push_back(behaviour);
    }

    /// What it was asked.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How many connections it has.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The whole answer.
    #[must_use]
    pub fn whole() -> &'static str {
        WHOLE
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let Some(seen) = read_request(&mut stream) else { return };
    shared.seen.lock().unwrap().push(seen);
    let behaviour = shared.next.lock().unwrap().pop_front();
    let behaviour = behaviour.unwrap_or_else(|| shared.usual.lock().unwrap().clone());
    // Whoever goes away ends it: nothing more can be written.
    let _ = play(&mut stream, behaviour);
}

fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let length = length.unwrap_or_default();
        while bytes.len() < end + 4 + length {
            let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
            bytes.extend_from_slice(&buffer[..read]);
        }
        return Some(Seen { head, body: String::from_utf8_lossy(&bytes[end + 4..]).into_owned() });
    }
}

fn play(stream: &mut TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    const STREAM_HEAD: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let whole_head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nSet-Cookie: a=b\r\nConnection: close\r\n\r\n",
        WHOLE.len()
    );
    match behaviour {
        Behaviour::Whole(after) => {
            if !wait(stream, after) {
                return Ok(());
            }
            stream.write_all((whole_head + WHOLE).as_bytes())
        }
        Behaviour::Stream(count, pause) => {
            stream.write_all(STREAM_HEAD.as_bytes())?;
            for number in 0..count {
                if !wait(stream, pause) {
                    return Ok(());
                }
                write_chunk(stream, &event(number))?;
            }
            write_chunk(stream, "data: [DONE]\n\n")?;
            stream.write_all(b"0\r\n\r\n")
        }
        Behaviour::BreaksAfter(count) => {
            stream.write_all(STREAM_HEAD.as_bytes())?;
            (0..count).try_for_each(|number| write_chunk(stream, &event(number)))?;
            let next = event(count);
            write_chunk(stream, &next[..next.len() / 2])
        }
        Behaviour::Dies => Ok(()),
        Behaviour::DiesAfterHead => stream.write_all(STREAM_HEAD.as_bytes()),
        Behaviour::Says(bytes) => stream.write_all(&bytes),
        Behaviour::EndlessHeaders => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
            loop {
                stream.write_all(format!("X-More: {}\r\n", "a".repeat(1000)).as_bytes())?;
            }
        }
        Behaviour::Dribbles(pause) => {
            for byte in (whole_head + WHOLE).bytes() {
                if !wait(stream, pause) {
                    return Ok(());
                }
                stream.write_all(&[byte])?;
            }
            Ok(())
        }
    }
}

/// Waits, and says whether the other side is still there.
fn wait(stream: &mut TcpStream, pause: Duration) -> bool {
    if pause.is_zero() {
        return true;
    }
    let _ = stream.set_read_timeout(Some(pause));
    // A client says nothing more: what can be read is its end.
    match stream.read(&mut [0; 1]) {
        Ok(0 | 1..) => false,
        Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

fn event(number: usize) -> String {
    let choice = format!(r#"{{"index":0,"delta":{{"role":"assistant","content":"w{number} "}},"finish_reason":null}}"#);
    format!(
        "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"m\",\"choices\":[{choice}]}}\n\n"
    )
}

fn write_chunk(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
}
