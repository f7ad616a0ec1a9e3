//! The script of a machine's driver, as data that a test changes.

use std::fmt::Write;

use crate::service::GIB;

/// One physical GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its identity.
    pub uuid: String,
    /// Its index, which may change.
    pub index: usize,
    /// All its memory.
    pub total: u64,
    /// Memory in use by foreign processes.
    pub foreign: u64,
    /// It fell off the bus.
    pub lost: bool,
    /// Calls about its memory do not come back.
    pub hangs: bool,
    /// Its MIG instances: UUID and memory.
    pub instances: Vec<(String, u64)>,
    /// Further pids that the driver lists, with what they use.
    pub listed: Vec<(u32, u64)>,
}

impl Gpu {
    /// A GPU with this much memory, at this place.
    #[must_use]
    pub fn new(uuid: &str, index: usize, total: u64) -> Self {
        Self {
            uuid: uuid.to_owned(),
            index,
            total,
            foreign: 0,
            lost: false,
            hangs: false,
            instances: Vec::new(),
            listed: Vec::new(),
        }
    }

    /// Its GiB.
    #[must_use]
    pub fn gib(&self) -> u64 {
        self.total / GIB
    }
}

/// What the driver of a machine shows.
#[derive(Clone, Debug, Default)]
pub struct DriverScript {
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// Memory stays in use after its process is gone, and the driver goes on listing the pid.
    pub lists_the_dead: bool,
    /// Memory stays in use after its process is gone, and the driver lists no pid for it.
    pub leaks: bool,
    /// The driver does not attribute memory to processes.
    pub anonymous: bool,
}

impl DriverScript {
    /// Returns the script for the mock of NVML.
    #[must_use]
    pub fn script(&self) -> String {
        let mut text = String::new();
        let delay = if self.lists_the_dead || self.leaks { 3_600_000 } else { 0 };
        let listed = !self.leaks;
        let _ = writeln!(text, "release_delay_ms = {delay}\nrelease_listed = {listed}");
        for gpu in &self.gpus {
            let Gpu { uuid, index, total, foreign, lost, .. } = gpu;
            let _ = writeln!(
                text,
                "[[gpu]]\nuuid = \"{uuid}\"\nindex = {index}\nmemory_total = {total}\nmemory_used = {foreign}\nlost = {lost}"
            );
            if self.anonymous {
                text.push_str("attribution = \"none\"\n");
            }
            for (pid, used) in &gpu.listed {
                let _ = writeln!(text, "[[gpu.process]]\npid = {pid}\nused = {used}");
            }
            for (uuid, total) in &gpu.instances {
                let _ = writeln!(text, "[[gpu.mig.instance]]\nuuid = \"{uuid}\"\nmemory_total = {total}");
            }
        }
        for gpu in self.gpus.iter().filter(|gpu| gpu.hangs) {
            let _ = writeln!(
                text,
                "[[fault]]\nfunction = \"nvmlDeviceGetMemoryInfo_v2\"\ngpu = \"{}\"\nhang = \"until_change\"",
                gpu.uuid
            );
        }
        text
    }
}
