//! Reading memory, with the older call for older drivers.

use std::ffi::{OsStr, OsString};

use berth_domain::Bytes;
use nvml_wrapper::Device;
use nvml_wrapper_older::Nvml as OlderNvml;

use crate::inventory::seen::MemorySeen;

use super::trouble::{Trouble, is_too_new, needed};

/// Reads memory. The wrapper has only the newer call; its older version, which is as safe, has the older one.
pub(super) struct MemoryReader {
    library: OsString,
    older: Option<OlderNvml>,
}

impl MemoryReader {
    pub(super) fn new(library: &OsStr) -> Self {
        Self { library: library.to_owned(), older: None }
    }

    /// Reads total, reserved and used memory.
    pub(super) fn read(&mut self, device: &Device<'_>) -> Result<MemorySeen, Trouble> {
        const DOING: &str = "reading memory";
        if self.older.is_none() {
            match device.memory_info() {
                Ok(memory) => {
                    let [total, reserved, used] = [memory.total, memory.reserved, memory.used].map(Bytes::new);
                    return Ok(MemorySeen { total, reserved, used });
                }
                Err(error) if is_too_new(&error) => {}
                Err(error) => return Err(Trouble::of(&error, DOING)),
            }
        }
        let uuid = needed(device.uuid(), DOING)?;
        self.read_older(&uuid).map_err(|error| Trouble::Unreadable(format!("{DOING}: {error}")))
    }

    /// Reads with the older call, in which reserved memory is part of used memory.
    fn read_older(&mut self, uuid: &str) -> Result<MemorySeen, nvml_wrapper_older::error::NvmlError> {
        let nvml = match self.older.take() {
            Some(nvml) => nvml,
            None => OlderNvml::builder().lib_path(&self.library).init()?,
        };
        let memory = self.older.insert(nvml).device_by_uuid(uuid)?.memory_info()?;
        Ok(MemorySeen { total: Bytes::new(memory.total), reserved: Bytes::ZERO, used: Bytes::new(memory.used) })
    }
}
