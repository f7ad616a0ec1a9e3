//! The server as a process.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Api, PATIENCE, berth, within};

/// How a server is to be started.
#[derive(Clone, Debug)]
pub struct Options {
    listen: String,
    data_dir: PathBuf,
    config: Option<PathBuf>,
    set: Vec<String>,
    wrapper: Vec<OsString>,
    certificate: Option<String>,
    makes_token: bool,
    /// Kept for as long as a server may start on it.
    _own: Option<Arc<TempDir>>,
}

impl Default for Options {
    fn default() -> Self {
        let own = tempfile::tempdir().expect("a temporary directory");
        let data_dir = own.path().join("data");
        let listen = "127.0.0.1:0".to_owned();
        let (set, wrapper, _own) = (Vec::new(), Vec::new(), Some(Arc::new(own)));
        Self { listen, data_dir, config: None, set, wrapper, certificate: None, makes_token: false, _own }
    }
}

impl Options {
    /// On this data directory.
    #[must_use]
    pub fn data_dir(self, path: &Path) -> Self {
        Self { data_dir: path.to_owned(), ..self }
    }

    /// On this address.
    #[must_use]
    pub fn listen(self, address: &str) -> Self {
        Self { listen: address.to_owned(), ..self }
    }

    /// With these settings, as in `--set`: the last one of a name counts.
    #[must_use]
    pub fn set(mut self, settings: &[&str]) -> Self {
        self.set.extend(settings.iter().map(|&setting| setting.to_owned()));
        self
    }

    /// With this configuration file. The server may be told to read it again.
    #[must_use]
    pub fn config(self, file: &Path) -> Self {
        Self { config: Some(file.to_owned()), ..self }
    }

    /// As it comes: the first start makes an admin's token. Other servers of tests are open, for most tests are about
    /// something else.
    #[must_use]
    pub fn making_a_token(self) -> Self {
        Self { makes_token: true, ..self }
    }

    /// Through a program that ends by becoming the server (`exec`), so that the pid stays.
    #[must_use]
    pub fn through(self, wrapper: &[&str]) -> Self {
        Self { wrapper: wrapper.iter().map(OsString::from).collect(), ..self }
    }

    /// Clients trust this certificate, given as PEM.
    #[must_use]
    pub fn trusting(self, certificate: &str) -> Self {
        Self { certificate: Some(certificate.to_owned()), ..self }
    }

    /// Starts, or tells how it refused to.
    pub fn try_start(self) -> Result<Server, Refused> {
        let process = Process::start(&self)?;
        let base = Arc::new(RwLock::new(process.url.clone()));
        let api = match &self.certificate {
            Some(certificate) => Api::trusting(base.clone(), certificate),
            None => Api::new(base.clone()),
        };
        Ok(Server { options: self, process, base, api })
    }

    /// Starts. The test fails if it does not.
    #[must_use]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|refused| panic!("the server did not start: {refused:?}"))
    }

    fn command(&self) -> Command {
        let mut words = self.wrapper.iter().cloned().chain([berth().into()]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).args(["serve", "--listen", &self.listen, "--data-dir"]).arg(&self.data_dir);
        if let Some(file) = &self.config {
            command.arg("--config").arg(file);
        }
        if !self.makes_token {
            command.arg("--anyone-on-this-machine-is-admin");
        }
        for setting in &self.set {
            command.args(["--set", setting]);
        }
        // The environment of the user who runs the tests changes nothing.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
            command.env_remove(name);
        }
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

/// A server that did not start.
#[derive(Debug)]
pub struct Refused {
    /// How it ended.
    pub status: ExitStatus,
    /// What it said.
    pub log: String,
}

/// A server that runs, or ran. It is killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    options: Options,
    process: Process,
    base: Arc<RwLock<String>>,
    api: Api,
}

impl Server {
    /// A server with its defaults, on a directory of its own.
    #[must_use]
    pub fn start() -> Self {
        Options::default().start()
    }

    /// A server with these settings.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Options::default().set(settings).start()
    }

    /// A client without a token. It stays good over restarts.
    #[must_use]
    pub fn api(&self) -> Api {
        self.api.clone()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Its address: `127.0.0.1:41234`.
    #[must_use]
    pub fn address(&self) -> String {
        self.api.base().split_once("://").expect("a URL").1.to_owned()
    }

    /// Its data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.options.data_dir
    }

    /// How it was started, to start it again in another way.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options.clone()
    }

    /// Everything that it said since it was last started.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log.lock().unwrap().clone()
    }

    /// `kill -9`: no warning, no last words.
    pub fn kill(&mut self) {
        self.process.child.kill().expect("it can be killed");
        let _ = self.process.child.wait().expect("it ends");
        self.process.read_to_the_end();
    }

    /// SIGTERM, without waiting for what comes of it.
    pub fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("a signal can be sent");
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(&mut self) -> ExitStatus {
        self.ask_to_stop();
        self.ended()
    }

    /// How it ended; waits for the end.
    pub fn ended(&mut self) -> ExitStatus {
        self.process.ended(PATIENCE)
    }

    /// Starts again on the same data directory. Clients find it.
    pub fn restart(&mut self) {
        let options = self.options.clone();
        self.restart_with(options);
    }

    /// Starts again in another way. Clients find it.
    pub fn restart_with(&mut self, options: Options) {
        self.try_restart_with(options).unwrap_or_else(|refused| panic!("it did not start again: {refused:?}"));
    }

    /// Starts again on the same data directory, or tells how it refused to.
    pub fn try_restart(&mut self) -> Result<(), Refused> {
        let options = self.options.clone();
        self.try_restart_with(options)
    }

    fn try_restart_with(&mut self, options: Options) -> Result<(), Refused> {
        assert!(self.process.child.try_wait().unwrap().is_some(), "it still runs");
        self.process = Process::start(&options)?;
        self.options = options;
        self.base.write().unwrap().clone_from(&self.process.url);
        Ok(())
    }
}

/// One process and what it says.
#[derive(Debug)]
struct Process {
    child: Child,
    url: String,
    log: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start(options: &Options) -> Result<Self, Refused> {
        let mut child = options.command().spawn().expect("berth can be run");
        let log = Arc::new(Mutex::new(String::new()));
        let (found, url) = channel();
        let stderr = child.stderr.take().expect("its stderr is ours");
        let reader = std::thread::spawn({
            let log = log.clone();
            move || collect(stderr, &log, &found)
        });
        let mut process = Self { child, url: String::new(), log, reader: Some(reader) };
        match process.first_url(&url) {
            Some(url) => {
                process.url = url;
                Ok(process)
            }
            None => {
                let status = process.ended(PATIENCE);
                Err(Refused { status, log: process.log.lock().unwrap().clone() })
            }
        }
    }

    /// Where it serves, once it says so; none if it ends instead.
    fn first_url(&mut self, url: &Receiver<String>) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match url.recv_timeout(Duration::from_millis(20)) {
                Ok(url) => return Some(url),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(_) => assert!(Instant::now() < deadline, "it says nothing: {}", self.log.lock().unwrap()),
            }
        }
    }

    fn ended(&mut self, patience: Duration) -> ExitStatus {
        let ended = within(patience, || self.child.try_wait().expect("a child of ours"));
        let status = ended.unwrap_or_else(|| panic!("it runs on: {}", self.log.lock().unwrap()));
        self.read_to_the_end();
        status
    }

    fn read_to_the_end(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("its log can be read");
        }
    }
}

/// Reads the log, and finds in it where the server serves.
fn collect(stderr: ChildStderr, log: &Mutex<String>, found: &Sender<String>) {
    for line in BufReader::new(stderr).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("berth serves")
            && let Some(url) = url_in(&line)
        {
            let _ = found.send(url);
        }
        let mut log = log.lock().unwrap();
        log.push_str(&line);
        log.push('\n');
    }
}

/// The value of `url=` in a line of text, or of `"url":` in a line of JSON.
fn url_in(line: &str) -> Option<String> {
    let rest = line.split_once(" url=").map(|(_, rest)| rest).or_else(|| Some(line.split_once("\"url\":\"")?.1))?;
    Some(rest.split([' ', '"']).next()?.to_owned())
}
