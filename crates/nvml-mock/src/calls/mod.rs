//! The functions that NVML exports, by subject.
//!
//! Each function reads the script once. What they have in common (the library is started, the script is read, faults,
//! lost GPUs) happens in [`crate::library`]; pointers are handled in [`crate::out`]. The names are NVML's, so a process
//! must not load the real library as well.

mod events;
mod health;
mod list;
mod memory;
mod mig;
mod start;
mod topology;
