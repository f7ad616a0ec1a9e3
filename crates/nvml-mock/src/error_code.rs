//! The error codes of NVML.

use nvml_wrapper_sys::bindings as nvml;
use serde::Deserialize;

/// An error code of NVML. Scripts name them in small letters, without `NVML_ERROR_` in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    Uninitialized,
    InvalidArgument,
    NotSupported,
    NoPermission,
    NotFound,
    InsufficientSize,
    DriverNotLoaded,
    Timeout,
    IrqIssue,
    FunctionNotFound,
    GpuIsLost,
    ResetRequired,
    OperatingSystem,
    LibRmVersionMismatch,
    InUse,
    Memory,
    NoData,
    ArgumentVersionMismatch,
    Unknown,
}

impl ErrorCode {
    /// Returns the code of the C interface.
    pub(crate) const fn code(self) -> nvml::nvmlReturn_t {
        match self {
            Self::Uninitialized => nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
            Self::InvalidArgument => nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
            Self::NotSupported => nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
            Self::NoPermission => nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION,
            Self::NotFound => nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND,
            Self::InsufficientSize => nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE,
            Self::DriverNotLoaded => nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
            Self::Timeout => nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT,
            Self::IrqIssue => nvml::nvmlReturn_enum_NVML_ERROR_IRQ_ISSUE,
            Self::FunctionNotFound => nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND,
            Self::GpuIsLost => nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST,
            Self::ResetRequired => nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED,
            Self::OperatingSystem => nvml::nvmlReturn_enum_NVML_ERROR_OPERATING_SYSTEM,
            Self::LibRmVersionMismatch => nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            Self::InUse => nvml::nvmlReturn_enum_NVML_ERROR_IN_USE,
            Self::Memory => nvml::nvmlReturn_enum_NVML_ERROR_MEMORY,
            Self::NoData => nvml::nvmlReturn_enum_NVML_ERROR_NO_DATA,
            Self::ArgumentVersionMismatch => nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            Self::Unknown => nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN,
        }
    }
}

/// The result of a call.
pub(crate) type NvmlResult<T = ()> = Result<T, ErrorCode>;
