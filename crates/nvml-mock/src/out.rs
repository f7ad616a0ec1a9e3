//! What C hands over: pointers to write to, buffers for text, texts to read, opaque handles.
//!
//! All unsafe code of the crate that is not a name on a function is here. None of these types has a constructor: a
//! value of one can only have come in as an argument of a C call, and NVML's contract says of each that it is null or
//! points to what its type says, for as long as the call lasts. Null is refused; the rest is the caller's word.

use std::ffi::{CStr, c_char, c_uint};
use std::ptr;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventSet_t, nvmlMemory_v2_t};

use crate::refusal::{Answer, Refusal};

/// A place for one `T`, or for several in a row.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

// The pointer itself is copied, whatever it points to.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes one value.
    pub(crate) fn put(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Refusal::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML it points to room for a `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// NVML's way to hand out a list: `count` says how many fit and is set to how many there are; if they do not fit
    /// (no room was given, or too little), the answer is that, and nothing but the count is written.
    pub(crate) fn fill(self, count: Out<c_uint>, items: &[T]) -> Answer
    where
        T: Copy,
    {
        let room = usize::try_from(count.get()?).unwrap_or(usize::MAX);
        count.put(c_uint::try_from(items.len()).unwrap_or(c_uint::MAX))?;
        if items.len() > room {
            return Err(Refusal::InsufficientSize);
        }
        if items.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(Refusal::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML there is room for as many as `count` said, which is enough.
        unsafe { ptr::copy_nonoverlapping(items.as_ptr(), self.0, items.len()) };
        Ok(())
    }

    /// Writes all values to a place for exactly as many, as the caller said beside the pointer.
    pub(crate) fn put_all(self, values: &[T]) -> Answer
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(Refusal::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML there is room for as many as the caller said.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }

    /// Whether there is no place.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl Out<c_uint> {
    /// Reads what the caller put there.
    pub(crate) fn get(self) -> Answer<c_uint> {
        if self.0.is_null() {
            return Err(Refusal::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML it points to a number; counts are set by the caller.
        Ok(unsafe { self.0.read() })
    }
}

impl Out<nvmlMemory_v2_t> {
    /// The version that the caller wrote into the structure; the rest of it need not be set.
    pub(crate) fn version(self) -> Answer<c_uint> {
        if self.0.is_null() {
            return Err(Refusal::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML it points to the structure, whose version the caller set.
        Ok(unsafe { (&raw const (*self.0).version).read() })
    }
}

/// A buffer for text.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextOut(*mut c_char);

impl TextOut {
    /// Writes a text and its closing zero, if both fit into `length` bytes.
    pub(crate) fn put(self, length: c_uint, text: &str) -> Answer {
        if self.0.is_null() {
            return Err(Refusal::InvalidArgument);
        }
        let room = usize::try_from(length).unwrap_or(usize::MAX);
        if text.len() >= room {
            return Err(Refusal::InsufficientSize);
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

/// A text that the caller gives.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextIn(*const c_char);

impl TextIn {
    /// The text, if it is one.
    pub(crate) fn read(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Refusal::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of NVML it points to a text that ends with a zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Refusal::InvalidArgument)
    }
}

/// What NVML calls a device. It is a number in the coat of a pointer, and is never followed.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct DeviceIn(nvmlDevice_t);

/// What NVML calls an event set; a number, too.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct EventSetIn(nvmlEventSet_t);

/// Handles are this far apart and begin here, so that a stray pointer or a zero is hardly ever taken for one.
const STEP: usize = 0x40;
const FIRST: usize = 0xBE47_0000;

impl DeviceIn {
    /// Which device it is, counted from 0.
    pub(crate) fn number(self) -> Answer<usize> {
        number(self.0.addr())
    }
}

impl EventSetIn {
    /// Which event set it is, counted from 0.
    pub(crate) fn number(self) -> Answer<usize> {
        number(self.0.addr())
    }
}

/// The handle of the `number`-th device.
pub(crate) fn device_handle(number: usize) -> nvmlDevice_t {
    ptr::without_provenance_mut(FIRST.saturating_add(number.saturating_mul(STEP)))
}

/// The handle of the `number`-th event set.
pub(crate) fn event_set_handle(number: usize) -> nvmlEventSet_t {
    ptr::without_provenance_mut(FIRST.saturating_add(number.saturating_mul(STEP)))
}

fn number(address: usize) -> Answer<usize> {
    let offset = address.checked_sub(FIRST).ok_or(Refusal::InvalidArgument)?;
    if offset.is_multiple_of(STEP) { Ok(offset / STEP) } else { Err(Refusal::InvalidArgument) }
}
