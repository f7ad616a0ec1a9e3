//! The functions that NVML exports, by what they are about.
//!
//! Each is one look at the script. What they have in common (the library is started, the script is read, faults, lost
//! GPUs) happens in [`crate::library`]; what is done with pointers, in [`crate::out`]. The names are NVML's; nobody
//! else defines them in a process that loads this library.

mod events;
mod health;
mod list;
mod memory;
mod mig;
mod start;
mod topology;
