//! Errors of a driver or a GPU, as text for an operator.

use nvml_wrapper::error::NvmlError;

/// Why a GPU could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The GPU is gone until an operator acts.
    Lost(String),
    /// The GPU may be there, but its numbers could not be read.
    Unreadable(String),
}

impl Trouble {
    /// Returns what an error means for the GPU that the call was about.
    pub(super) fn of(error: &NvmlError, doing: &str) -> Self {
        match error {
            NvmlError::GpuLost => Self::Lost("the driver says that the GPU is lost".to_owned()),
            NvmlError::ResetRequired => Self::Lost("the driver says that the GPU needs a reset".to_owned()),
            other => Self::Unreadable(format!("{doing}: {other}")),
        }
    }
}

/// Takes a result that a driver need not support. Only a lost GPU is an error.
pub(super) fn optional<T>(answer: Result<T, NvmlError>, doing: &str) -> Result<Option<T>, Trouble> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) => match Trouble::of(&error, doing) {
            lost @ Trouble::Lost(_) => Err(lost),
            Trouble::Unreadable(_) => Ok(None),
        },
    }
}

/// Takes a result without which the GPU counts as unreadable.
pub(super) fn needed<T>(answer: Result<T, NvmlError>, doing: &str) -> Result<T, Trouble> {
    answer.map_err(|error| Trouble::of(&error, doing))
}

/// Returns whether an older call should be tried instead.
pub(super) fn is_too_new(error: &NvmlError) -> bool {
    matches!(error, NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_))
}

/// The driver's errors (Xids) after which a GPU is gone until it is reset or the machine is restarted: it fell off the
/// bus (79), an uncontained memory error (95), its own processor does not answer or failed (119, 120), a memory error
/// that could not be recovered (140). All others concern single processes, or are counted.
const GONE: [u64; 5] = [79, 95, 119, 120, 140];

/// Returns why an Xid means that the GPU is gone, if it does.
pub(super) fn gone(xid: u64) -> Option<String> {
    GONE.contains(&xid).then(|| match xid {
        79 => "the GPU fell off the bus (Xid 79)".to_owned(),
        other => format!("the GPU needs a reset (Xid {other})"),
    })
}

/// Returns why there is no driver, and what can be done.
pub(super) fn no_driver(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(error) => format!(
            "the NVIDIA driver's library could not be loaded ({error}): is the driver installed? \
             `inventory.library` says where it is, `inventory.simulated` does without"
        ),
        NvmlError::DriverNotLoaded => "the NVIDIA kernel driver is not loaded".to_owned(),
        NvmlError::LibRmVersionMismatch => "the NVIDIA driver's library and its kernel module are of different \
             versions: the driver was updated; restart the machine, or reload the module"
            .to_owned(),
        NvmlError::NoPermission => "the agent may not talk to the NVIDIA driver".to_owned(),
        other => format!("the NVIDIA driver could not be started: {other}"),
    }
}
