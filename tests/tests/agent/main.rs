//! The agent end to end: the real server, real `berth runner` processes, real slot processes, and the real wrapper of
//! NVML over a scripted driver. Each file is one subject; docs/CASES.md says which case is where.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod agent_exit;
mod arguments;
mod crash;
mod devices;
mod driver;
mod engines;
mod failing_starts;
mod failure_messages;
mod jobs;
mod join_tokens;
mod llama_cpp;
mod model_files;
mod operators;
mod partition;
mod process_tree;
mod release;
mod restart;
mod restored_server;
mod runners;
mod secrets;
mod slot_users;
mod start_order;
mod startup_log;
