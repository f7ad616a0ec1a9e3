//! What slots run in the tests of the agent: a small engine that behaves, or misbehaves as its arguments say.
//!
//! It uses GPU memory as a real one does: for as long as it lives the scripted driver lists its pid on each GPU that it
//! was given (`CUDA_VISIBLE_DEVICES`), with its share of `--memory`. It notes its starts and when it first served in
//! the file `--diary`, so that tests can tell what was started, when, and how often.
//!
//! | argument | what it does |
//! | --- | --- |
//! | `--ready-after MS` | answers 503 at first |
//! | `--never-ready` | answers 503 for ever |
//! | `--hang` | does not listen |
//! | `--say TEXT`, `--exit CODE` | says its last words on stderr, ends at once |
//! | `--wait-for FILE` | before that: uses its memory until the file is there |
//! | `--flap MS` | ends by itself after a while |
//! | `--ignore-term` | does not hear SIGTERM |
//! | `--child` | has a child with the memory, which does not hear SIGTERM and survives its parent |
//! | `--daemonise` | leaves parent, group and session behind, twice, and lives on |
//! | `--forks` | replaces itself by a child every few milliseconds |
//! | `--use BYTES` | uses so much of each GPU, whatever it was given |
//! | anything else | says that it does not know it, ends with code 2 |
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::zombie_processes,
    reason = "a program of tests, and it leaves others behind"
)]

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The arguments of the engine.
#[derive(Debug, Default)]
struct Options {
    port: u16,
    memory: u64,
    claims: PathBuf,
    diary: PathBuf,
    ready_after: Option<Duration>,
    hang: bool,
    say: Option<String>,
    exit: Option<i32>,
    wait_for: Option<PathBuf>,
    flap: Option<Duration>,
    used: Option<u64>,
    ignore_term: bool,
    child: bool,
    daemonise: bool,
    forks: bool,
    /// Which of its lives this is: some of them begin it more than once.
    life: u32,
}

fn main() {
    let options = options();
    if options.ignore_term && options.life == 0 {
        become_deaf();
    }
    if options.life <= 1 {
        note(&options.diary, "start");
    }
    if let Some(text) = &options.say {
        eprintln!("{text}");
    }
    if let Some(file) = &options.wait_for {
        allocate(&options);
        while !file.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    if let Some(code) = options.exit {
        exit(code);
    }
    if options.daemonise {
        daemonise(options.life);
    }
    if options.forks {
        return move_on(&options);
    }
    if options.child && options.life <= 1 {
        let _child = again(10).spawn().unwrap();
        return serve(&options);
    }
    allocate(&options);
    if options.child || options.hang {
        std::thread::sleep(Duration::from_secs(600));
    }
    serve(&options);
}

fn options() -> Options {
    let mut options =
        Options { life: std::env::var("LIFE").map_or(0, |life| life.parse().unwrap()), ..Options::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} wants a value"));
        let millis = |text: String| Some(Duration::from_millis(text.parse().unwrap()));
        match word.as_str() {
            "--port" => options.port = value().parse().unwrap(),
            "--memory" => options.memory = value().parse().unwrap(),
            "--claims" => options.claims = value().into(),
            "--diary" => options.diary = value().into(),
            "--ready-after" => options.ready_after = millis(value()),
            "--never-ready" => options.ready_after = Some(Duration::MAX),
            "--hang" => options.hang = true,
            "--say" => options.say = Some(value()),
            "--exit" => options.exit = Some(value().parse().unwrap()),
            "--wait-for" => options.wait_for = Some(value().into()),
            "--flap" => options.flap = millis(value()),
            "--use" => options.used = Some(value().parse().unwrap()),
            "--ignore-term" => options.ignore_term = true,
            "--child" => options.child = true,
            "--daemonise" => options.daemonise = true,
            "--forks" => options.forks = true,
            other => {
                eprintln!("error: unexpected argument '{other}' found");
                exit(2);
            }
        }
    }
    options
}

/// This program with the same arguments, in another of its lives.
fn again(life: u32) -> Command {
    let mut command = Command::new("sh");
    // A shell can make a signal be ignored, and the program that it becomes inherits that.
    let deaf = if life >= 10 { "trap '' TERM; exec \"$0\" \"$@\"" } else { "exec \"$0\" \"$@\"" };
    command.args(["-c", deaf]).arg(std::env::current_exe().unwrap()).args(std::env::args().skip(1));
    command.env("LIFE", life.to_string()).stdin(Stdio::null());
    command
}

fn become_deaf() {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' TERM; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).args(std::env::args().skip(1)).env("LIFE", "1");
    panic!("{}", command.exec());
}

/// The first makes a second, which makes a third in a session of its own; only the third lives on.
fn daemonise(life: u32) {
    if life < 3 {
        let _ = again(life + 2).spawn().unwrap();
        exit(0);
    }
    let _ = rustix::process::setsid();
    if life < 5 {
        let _ = again(life + 2).spawn().unwrap();
        exit(0);
    }
}

/// Uses memory for a moment and leaves the rest to a child, which does the same.
fn move_on(options: &Options) {
    allocate(options);
    std::thread::sleep(Duration::from_millis(15));
    let _ = again(options.life.max(10) + 1).spawn().unwrap();
}

/// Uses memory on every GPU that it was given: the driver lists it while it lives.
fn allocate(options: &Options) {
    let devices = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let devices: Vec<&str> = devices.split(',').filter(|uuid| !uuid.is_empty()).collect();
    for uuid in &devices {
        let bytes = options.used.unwrap_or(options.memory / devices.len() as u64);
        let path = options.claims.join(format!("{}.{uuid}", std::process::id()));
        let new = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, bytes.to_string()).unwrap();
        fs::rename(&new, &path).unwrap();
    }
}

/// One line: what, when, and whose.
fn note(diary: &Path, what: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let (slot, generation, devices) = (of("BERTH_SLOT_ID"), of("BERTH_SLOT_GENERATION"), of("CUDA_VISIBLE_DEVICES"));
    let line = format!("{what} {now} {} {slot} {generation} {devices}\n", std::process::id());
    let mut file = OpenOptions::new().append(true).create(true).open(diary).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

fn serve(options: &Options) {
    let begun = Instant::now();
    if let Some(after) = options.flap {
        std::thread::spawn(move || {
            std::thread::sleep(after);
            exit(1);
        });
    }
    let listener = TcpListener::bind(("127.0.0.1", options.port)).unwrap_or_else(|error| {
        eprintln!("cannot listen on {}: {error}", options.port);
        exit(1);
    });
    let mut served = false;
    for connection in listener.incoming() {
        let Ok(mut connection) = connection else { continue };
        let _ = connection.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = connection.read(&mut [0; 4096]);
        let ready = options.ready_after.is_none_or(|after| begun.elapsed() >= after);
        if ready && !served {
            served = true;
            note(&options.diary, "ready");
        }
        let status = if ready { "200 OK" } else { "503 Service Unavailable" };
        let _ = write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    }
}
