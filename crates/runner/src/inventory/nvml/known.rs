//! The last known state of one GPU, for when the driver does not answer.

use berth_domain::GpuHealth;

use crate::inventory::seen::GpuSeen;

use super::trouble::{Trouble, gone};
use super::watcher::Reading;

/// A GPU that was seen at least once.
#[derive(Debug, Default)]
pub(super) struct KnownGpu {
    /// The GPU and its MIG instances, as they were last read.
    devices: Vec<GpuSeen>,
    trouble: Option<Trouble>,
    /// An error after which the GPU is gone, although the driver may still answer for it.
    gone: Option<Gone>,
}

#[derive(Debug)]
struct Gone {
    why: String,
    /// Whether the driver stopped answering for the GPU since. If it then answers again, the GPU is back.
    was_silent: bool,
}

impl KnownGpu {
    /// Takes in the errors that the driver reported.
    pub(super) fn hear(&mut self, xids: &[u64]) {
        if let Some(why) = xids.iter().copied().find_map(gone) {
            self.gone = Some(Gone { why, was_silent: false });
        }
    }

    /// Takes in what the watcher read.
    pub(super) fn take(&mut self, reading: Reading) {
        self.hear(&reading.xids);
        match reading.devices {
            Ok(devices) => {
                (self.devices, self.trouble) = (devices, None);
                self.gone.take_if(|gone| gone.was_silent);
            }
            Err(trouble) => {
                if let (Some(gone), Trouble::Lost(_)) = (&mut self.gone, &trouble) {
                    gone.was_silent = true;
                }
                self.trouble = Some(trouble);
            }
        }
    }

    /// Notes that the watcher did not answer in time, or that there is none.
    pub(super) fn is_silent(&mut self, why: String) {
        // A GPU that is lost stays lost until it is read again.
        if !self.is_lost() {
            self.trouble = Some(Trouble::Unreadable(why));
        }
    }

    /// Returns whether the last reading failed.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// Notes that the driver no longer lists the GPU.
    pub(super) fn is_missing(&mut self) {
        if let Some(gone) = &mut self.gone {
            gone.was_silent = true;
        }
        // A reason that the driver gave is more precise.
        if matches!(self.trouble, Some(Trouble::Lost(_))) {
            return;
        }
        self.trouble = Some(Trouble::Lost("the driver no longer lists the GPU".to_owned()));
    }

    /// Returns whether the GPU is gone until an operator acts.
    pub(super) fn is_lost(&self) -> bool {
        self.gone.is_some() || matches!(self.trouble, Some(Trouble::Lost(_)))
    }

    /// Returns whether the GPU was read at least once.
    pub(super) fn was_read(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Returns why the GPU cannot be read.
    pub(super) fn why(&self) -> Option<&str> {
        match (&self.trouble, &self.gone) {
            (Some(Trouble::Lost(why) | Trouble::Unreadable(why)), _) => Some(why),
            (None, Some(gone)) => Some(&gone.why),
            (None, None) => None,
        }
    }

    /// Returns the GPU and its instances, with their health.
    pub(super) fn seen(&self) -> impl Iterator<Item = GpuSeen> {
        let health = match (&self.trouble, &self.gone) {
            (Some(Trouble::Lost(_)), _) | (_, Some(_)) => GpuHealth::Lost,
            (Some(Trouble::Unreadable(_)), None) => GpuHealth::Stale,
            (None, None) => GpuHealth::Ok,
        };
        let trouble = self.why().map(str::to_owned);
        self.devices.iter().map(move |device| GpuSeen { health, trouble: trouble.clone(), ..device.clone() })
    }
}
