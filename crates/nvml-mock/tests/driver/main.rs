//! The library through the real nvml-wrapper. Every test loads a copy of its own.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod events;
mod faults;
mod list;
mod memory;
mod mig;
mod protocol;
mod topology;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use berth_nvml_mock::ScriptedDriver;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use tempfile::TempDir;

pub(crate) const A: &str = "GPU-a";
pub(crate) const GIB: u64 = 1 << 30;

/// A driver in a directory that goes away with it.
pub(crate) struct Rig {
    pub(crate) driver: ScriptedDriver,
    directory: TempDir,
}

impl Rig {
    pub(crate) fn new(script: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let driver = ScriptedDriver::in_directory(directory.path()).unwrap();
        driver.rewrite(script).unwrap();
        Self { driver, directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn try_load(&self) -> Result<Nvml, NvmlError> {
        load(&self.driver.library())
    }

    pub(crate) fn load(&self) -> Nvml {
        self.try_load().unwrap()
    }
}

pub(crate) fn load(library: &Path) -> Result<Nvml, NvmlError> {
    let path: &OsStr = library.as_ref();
    Nvml::builder().lib_path(path).init()
}

/// One GPU of 80 GiB, with more lines for it.
pub(crate) fn one_gpu(lines: &str) -> String {
    format!("[[gpu]]\nuuid = \"{A}\"\nmemory_total = \"80GiB\"\n{lines}\n")
}

/// Waits until something is so, and says what it waited for if it never is.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A process that lives until it is ended.
pub(crate) struct Sleeper(pub(crate) Child);

impl Sleeper {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it, and leaves its body unburied: a zombie.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
