//! The agent end to end: the real server, real `berth runner` processes, real slot processes, and the real wrapper of
//! NVML over a scripted driver. By the letters of the cases.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod arguments;
mod crash;
mod ending;
mod engines;
mod files;
mod first_day;
mod g;
mod greeting;
mod history;
mod jobs;
mod joining;
mod llama;
mod n;
mod n10;
mod n9;
mod partition;
mod r;
mod secrets;
mod starts;
mod users;
