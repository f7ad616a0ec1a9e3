//! Faults of calls, and events that the driver reports by itself.

use std::time::Duration;

use nvml_wrapper_sys::bindings as nvml;
use serde::Deserialize;

use crate::error_code::ErrorCode;

/// A fault of one function.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    function: String,
    pub(crate) gpu: Option<String>,
    pub(crate) times: Option<u32>,
    error: Option<ErrorCode>,
    hang: Option<Hang>,
    delay_ms: Option<u64>,
}

/// How long a call hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hang {
    /// Until the script no longer says so.
    UntilChange,
    /// For ever.
    Forever,
}

/// The effect of a fault on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultEffect {
    Error(ErrorCode),
    Hang(Hang),
    Delay(Duration),
}

impl Fault {
    pub(super) fn check(&self) -> Result<(), String> {
        let said = [self.error.is_some(), self.hang.is_some(), self.delay_ms.is_some()];
        if said.into_iter().filter(|said| *said).count() == 1 {
            Ok(())
        } else {
            Err(format!("the fault of {} needs one of error, hang and delay_ms", self.function))
        }
    }

    /// Returns whether the fault applies to this function. One `*` stands for any text.
    pub(crate) fn concerns(&self, function: &str) -> bool {
        match self.function.split_once('*') {
            None => self.function == function,
            Some((start, end)) => {
                function.len() >= start.len() + end.len() && function.starts_with(start) && function.ends_with(end)
            }
        }
    }

    /// Returns the effect.
    pub(crate) fn effect(&self) -> FaultEffect {
        match (self.error, self.hang) {
            (Some(error_code), _) => FaultEffect::Error(error_code),
            (None, Some(hang)) => FaultEffect::Hang(hang),
            (None, None) => FaultEffect::Delay(Duration::from_millis(self.delay_ms.unwrap_or_default())),
        }
    }
}

/// An event that the driver reports by itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) gpu: String,
    #[serde(default)]
    kind: EventKind,
    #[serde(default)]
    pub(crate) xid: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EventKind {
    #[default]
    Xid,
    SingleBitEcc,
    DoubleBitEcc,
    MigConfigChange,
}

impl Event {
    /// Returns the bit of the event's type.
    pub(crate) fn bit(&self) -> u64 {
        u64::from(match self.kind {
            EventKind::Xid => nvml::nvmlEventTypeXidCriticalError,
            EventKind::SingleBitEcc => nvml::nvmlEventTypeSingleBitEccError,
            EventKind::DoubleBitEcc => nvml::nvmlEventTypeDoubleBitEccError,
            EventKind::MigConfigChange => nvml::nvmlEventMigConfigChange,
        })
    }
}
