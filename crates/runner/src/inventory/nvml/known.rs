//! What is known of one GPU, and what to say of it when the driver says nothing.

use berth_domain::GpuHealth;

use crate::inventory::seen::GpuSeen;

use super::trouble::{Trouble, gone};
use super::watcher::Reading;

/// A GPU that was seen at least once.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// It and its MIG instances, as they were when they were last read.
    devices: Vec<GpuSeen>,
    trouble: Option<Trouble>,
    /// An error after which it is gone, although the driver may still answer for it.
    gone: Option<Gone>,
}

#[derive(Debug)]
struct Gone {
    why: String,
    /// Whether the driver stopped answering for it since. If it then answers again, it is back.
    was_silent: bool,
}

impl Known {
    /// Takes the errors that the driver told of it.
    pub(super) fn hear(&mut self, xids: &[u64]) {
        if let Some(why) = xids.iter().copied().find_map(gone) {
            self.gone = Some(Gone { why, was_silent: false });
        }
    }

    /// Takes what its watcher read.
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

    /// Its watcher did not answer in time, or there is none.
    pub(super) fn is_silent(&mut self, why: String) {
        // A GPU that is lost stays so until it is read again.
        if !self.is_lost() {
            self.trouble = Some(Trouble::Unreadable(why));
        }
    }

    /// Whether it could not be read the last time.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// The driver no longer has it.
    pub(super) fn is_missing(&mut self) {
        if let Some(gone) = &mut self.gone {
            gone.was_silent = true;
        }
        // What the driver said itself is the better reason.
        if matches!(self.trouble, Some(Trouble::Lost(_))) {
            return;
        }
        self.trouble = Some(Trouble::Lost("the driver no longer lists the GPU".to_owned()));
    }

    /// Whether it is gone until somebody does something about it.
    pub(super) fn is_lost(&self) -> bool {
        self.gone.is_some() || matches!(self.trouble, Some(Trouble::Lost(_)))
    }

    /// Whether anything can be said of it.
    pub(super) fn was_read(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Why it cannot be read.
    pub(super) fn why(&self) -> Option<&str> {
        match (&self.trouble, &self.gone) {
            (Some(Trouble::Lost(why) | Trouble::Unreadable(why)), _) => Some(why),
            (None, Some(gone)) => Some(&gone.why),
            (None, None) => None,
        }
    }

    /// It and its instances, with what they are worth.
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
