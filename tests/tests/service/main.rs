//! The service end to end: the real program, real HTTP, real files and signals. Each file is one subject; docs/CASES.md
//! says which case is where.

mod arguments;
mod audit;
mod auth;
mod backup;
mod bad_input;
mod cli_messages;
mod compromised_runner;
mod concurrency;
mod crash;
mod estimates;
mod event_subjects;
mod events;
mod explanations;
mod failures;
mod file_permissions;
mod first_token;
mod free_memory;
mod http_headers;
mod journal;
mod limits;
mod listings;
mod log_levels;
mod logs;
mod long_polls;
mod observed_memory;
mod operators;
mod ownership;
mod queue;
mod reload;
mod runners;
mod shutdown;
mod tls;
mod token_revocation;
mod unauthenticated_clients;
mod workload_logs;
