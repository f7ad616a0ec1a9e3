//! The agent end to end: the real server, real `berth runner` processes, real slot processes, and the real wrapper of
//! NVML over a scripted driver. By the letters of the cases.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod crash;
mod ending;
mod files;
mod g;
mod jobs;
mod llama;
mod n;
mod n10;
mod n9;
mod partition;
mod r;
mod starts;
