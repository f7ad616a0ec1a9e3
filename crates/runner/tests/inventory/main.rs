//! The inventory over the mock of NVML: the real wrapper, a scripted driver.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod driver_failures;
mod host;
mod nvml;
mod simulated;

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use berth_domain::{DeviceUuid, Span, Timestamp};
use berth_nvml_mock::ScriptedDriver;
use berth_runner::inventory::{Detail, GpuSeen, GpusSeen, InventorySettings, NvmlGpus};
use tempfile::TempDir;

/// A scripted driver, and the GPUs that are read through it.
pub(crate) struct Rig {
    pub(crate) driver: ScriptedDriver,
    pub(crate) gpus: NvmlGpus,
    looks: u64,
    _directory: TempDir,
}

impl Rig {
    pub(crate) fn new(script: &str) -> Self {
        // Long enough for a machine that is busy with other tests.
        Self::with(script, Span::from_secs(10), Span::from_secs(3600))
    }

    pub(crate) fn with(script: &str, deadline: Span, reopen: Span) -> Self {
        let directory = TempDir::new().unwrap();
        let driver = ScriptedDriver::in_directory(directory.path()).unwrap();
        driver.rewrite(script).unwrap();
        let library = Some(driver.library());
        let settings = InventorySettings { library, deadline, reopen, ..InventorySettings::default() };
        Self { driver, gpus: NvmlGpus::new(settings), looks: 0, _directory: directory }
    }

    /// Looks; each look is a second later than the one before.
    pub(crate) fn look(&mut self, detail: Detail) -> GpusSeen {
        self.looks += 1;
        self.gpus.look(at(self.looks), detail)
    }

    pub(crate) fn full(&mut self) -> GpusSeen {
        self.look(Detail::Full)
    }
}

/// So many seconds after the beginning.
pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

pub(crate) fn uuid(text: &str) -> DeviceUuid {
    DeviceUuid::new(text).unwrap()
}

/// The GPU with this UUID.
pub(crate) fn gpu<'a>(seen: &'a GpusSeen, uuid: &str) -> &'a GpuSeen {
    seen.gpus.iter().find(|gpu| gpu.uuid.as_str() == uuid).unwrap_or_else(|| panic!("no {uuid} in {seen:?}"))
}

/// GPU-a and GPU-b of 80 GiB, with more lines for each, and more after them.
pub(crate) fn two(a: &str, b: &str, rest: &str) -> String {
    let gpu = |uuid: &str, lines: &str| format!("[[gpu]]\nuuid = \"{uuid}\"\nmemory_total = \"80GiB\"\n{lines}\n");
    format!("{}{}{rest}\n", gpu("GPU-a", a), gpu("GPU-b", b))
}

/// Waits until something is so, and says what it waited for if it never is.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A process that lives until it is ended.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

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
