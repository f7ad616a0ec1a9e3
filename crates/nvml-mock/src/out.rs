//! Arguments of C calls: pointers to write to, text buffers, texts to read, opaque handles.
//!
//! All unsafe code of the crate is here, except for the attributes that export functions by name. None of these types
//! has a constructor: a value can only have come in as an argument of a C call, and NVML's contract says of each that
//! it is null or points to what its type says, for as long as the call lasts. Null is refused; otherwise the caller is
//! trusted.

use std::ffi::{CStr, c_char, c_uint};
use std::ptr;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventSet_t, nvmlMemory_v2_t};

use crate::error_code::{ErrorCode, NvmlResult};

/// A pointer to memory for one `T`, or for several in a row.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

// The pointer itself is copied, whatever `T` is.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes one value.
    pub(crate) fn put(self, value: T) -> NvmlResult {
        if self.0.is_null() {
            return Err(ErrorCode::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML it points to memory for a `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes a list as NVML does: `count` says how many fit and is set to how many there are. If they do not fit, the
    /// call returns `INSUFFICIENT_SIZE` and writes the count alone.
    pub(crate) fn fill(self, count: Out<c_uint>, items: &[T]) -> NvmlResult
    where
        T: Copy,
    {
        let room = usize::try_from(count.get()?).unwrap_or(usize::MAX);
        count.put(c_uint::try_from(items.len()).unwrap_or(c_uint::MAX))?;
        if items.len() > room {
            return Err(ErrorCode::InsufficientSize);
        }
        if items.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(ErrorCode::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML there is memory for as many as `count` said, which is enough.
        unsafe { ptr::copy_nonoverlapping(items.as_ptr(), self.0, items.len()) };
        Ok(())
    }

    /// Writes all values to an array whose length the caller passed beside the pointer.
    pub(crate) fn put_all(self, values: &[T]) -> NvmlResult
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(ErrorCode::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML there is memory for as many as the caller said.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }

    /// Returns whether the pointer is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl Out<c_uint> {
    /// Reads the number that the caller wrote.
    pub(crate) fn get(self) -> NvmlResult<c_uint> {
        if self.0.is_null() {
            return Err(ErrorCode::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML it points to a number; counts are set by the caller.
        Ok(unsafe { self.0.read() })
    }
}

impl Out<nvmlMemory_v2_t> {
    /// Reads the version that the caller wrote into the structure; the rest of it need not be set.
    pub(crate) fn version(self) -> NvmlResult<c_uint> {
        if self.0.is_null() {
            return Err(ErrorCode::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML it points to the structure, whose version the caller set.
        Ok(unsafe { (&raw const (*self.0).version).read() })
    }
}

/// A pointer to a text buffer.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextOut(*mut c_char);

impl TextOut {
    /// Writes a text and its closing zero, if both fit into `length` bytes.
    pub(crate) fn put(self, length: c_uint, text: &str) -> NvmlResult {
        if self.0.is_null() {
            return Err(ErrorCode::InvalidArgument);
        }
        let room = usize::try_from(length).unwrap_or(usize::MAX);
        if text.len() >= room {
            return Err(ErrorCode::InsufficientSize);
        }
        let bytes = self.0.cast::<u8>();
        // SAFETY: not null, so by the contract of NVML it points to `length` bytes; text and zero are no more than that.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), bytes, text.len());
            bytes.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// A pointer to a text of the caller.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextIn(*const c_char);

impl TextIn {
    /// Reads the text, if it is valid.
    pub(crate) fn read(self) -> NvmlResult<String> {
        if self.0.is_null() {
            return Err(ErrorCode::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML it points to a text that ends with a zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| ErrorCode::InvalidArgument)
    }
}

/// A device handle. It is a number in the form of a pointer, and is never dereferenced.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct DeviceIn(nvmlDevice_t);

/// An event set handle; also a number.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct EventSetIn(nvmlEventSet_t);

/// Handles begin here and are this far apart, so that a stray pointer or a zero is unlikely to be a handle.
const STEP: usize = 0x40;
const FIRST: usize = 0xBE47_0000;

impl DeviceIn {
    /// Returns the number of the device, counted from 0.
    pub(crate) fn number(self) -> NvmlResult<usize> {
        number(self.0.addr())
    }
}

impl EventSetIn {
    /// Returns the number of the event set, counted from 0.
    pub(crate) fn number(self) -> NvmlResult<usize> {
        number(self.0.addr())
    }
}

/// Returns the handle of the `number`-th device.
pub(crate) fn device_handle(number: usize) -> nvmlDevice_t {
    ptr::without_provenance_mut(FIRST.saturating_add(number.saturating_mul(STEP)))
}

/// Returns the handle of the `number`-th event set.
pub(crate) fn event_set_handle(number: usize) -> nvmlEventSet_t {
    ptr::without_provenance_mut(FIRST.saturating_add(number.saturating_mul(STEP)))
}

fn number(address: usize) -> NvmlResult<usize> {
    let offset = address.checked_sub(FIRST).ok_or(ErrorCode::InvalidArgument)?;
    if offset.is_multiple_of(STEP) { Ok(offset / STEP) } else { Err(ErrorCode::InvalidArgument) }
}
