//! A machine: GPUs with a scripted driver, an identity, and the processes of its slots.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use berth_nvml_mock::ScriptedDriver;
use tempfile::TempDir;

use super::{Agent, DriverScript, Entry, Fleet, Gpu, Living, Plan, diary, processes};
use crate::service::GIB;

/// A machine. What its agents started is ended when the last of it is dropped.
#[derive(Clone, Debug)]
pub struct Machine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Its machine id. No other test has it.
    name: String,
    directory: TempDir,
    driver: ScriptedDriver,
    scene: Mutex<DriverScript>,
    agents: AtomicU32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        processes::end_all(self.directory.path());
    }
}

impl Machine {
    /// A machine with GPUs of so many GiB.
    #[must_use]
    pub fn new(gibs: &[u64]) -> Self {
        static MACHINES: AtomicU32 = AtomicU32::new(0);
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let name = format!("m{}-{number}", std::process::id());
        let directory = tempfile::tempdir().expect("a temporary directory");
        let driver = ScriptedDriver::in_directory(directory.path()).expect("the mock of NVML is built");
        let gpu = |(index, gib): (usize, &u64)| Gpu::new(&format!("GPU-{name}-{index}"), index, gib * GIB);
        let scene = DriverScript { gpus: gibs.iter().enumerate().map(gpu).collect(), ..DriverScript::default() };
        driver.rewrite(&scene.script()).expect("a script");
        Self(Arc::new(Inner { name, directory, driver, scene: Mutex::new(scene), agents: AtomicU32::new(0) }))
    }

    /// Its machine id.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The UUID of a GPU.
    #[must_use]
    pub fn uuid(&self, index: usize) -> String {
        self.0.scene.lock().unwrap().gpus[index].uuid.clone()
    }

    /// Where everything of it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.0.directory.path()
    }

    /// The library that agents load.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.0.driver.library()
    }

    /// Where engines say what they use.
    #[must_use]
    pub fn claims(&self) -> PathBuf {
        self.0.driver.claims()
    }

    /// Changes what the driver shows, while agents look.
    pub fn change(&self, change: impl FnOnce(&mut DriverScript)) {
        let mut scene = self.0.scene.lock().unwrap();
        change(&mut scene);
        self.0.driver.rewrite(&scene.script()).expect("a script");
    }

    /// Changes one GPU.
    pub fn gpu(&self, index: usize, change: impl FnOnce(&mut Gpu)) {
        self.change(|scene| change(&mut scene.gpus[index]));
    }

    /// An agent that is not started yet.
    #[must_use]
    pub fn plan(&self, fleet: &Fleet) -> Plan {
        let number = self.0.agents.fetch_add(1, Ordering::Relaxed);
        Plan::new(self.clone(), fleet, &format!("{}-{number}", self.0.name))
    }

    /// An agent with short patience, which has registered.
    #[must_use]
    pub fn agent(&self, fleet: &Fleet) -> Agent {
        self.plan(fleet).start(fleet)
    }

    /// Ends every process of its slots, by force and unasked.
    pub fn end_all(&self) {
        processes::end_all(self.directory());
    }

    /// One process of its slots does nothing more, and is not gone.
    pub fn pause(&self, pid: u32) {
        processes::send(pid, rustix::process::Signal::STOP);
    }

    /// Every living process of its slots.
    #[must_use]
    pub fn living(&self) -> Vec<Living> {
        processes::living(self.directory())
    }

    /// The living processes of one slot.
    #[must_use]
    pub fn living_of(&self, slot: &str) -> Vec<Living> {
        self.living().into_iter().filter(|process| process.slot == slot).collect()
    }

    /// What the living processes say that they use of a GPU, by pid.
    #[must_use]
    pub fn used(&self, uuid: &str) -> Vec<(u32, u64)> {
        processes::used(self.directory(), &self.claims(), uuid)
    }

    /// What engines noted, in order.
    #[must_use]
    pub fn diary(&self) -> Vec<Entry> {
        diary::read(&self.diary_file())
    }

    /// How often a slot was started.
    #[must_use]
    pub fn starts_of(&self, slot: &str) -> usize {
        self.diary().iter().filter(|entry| entry.what == "start" && entry.slot == slot).count()
    }

    /// The file of the diary.
    #[must_use]
    pub fn diary_file(&self) -> PathBuf {
        self.directory().join("diary")
    }
}
