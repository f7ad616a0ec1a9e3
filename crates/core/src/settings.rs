//! What an operator may choose. Every default is the design's.

use berth_domain::{Bytes, Span};

/// The core's settings. They steer decisions and arm timers; what an event means never depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Kept back on each device.
    pub device_reserve: Bytes,
    /// Foreign use that an exclusive slot tolerates.
    pub exclusive_tolerance: Bytes,
    /// Foreign use may fall by less than this without being believed: it keeps noise out of the journal.
    pub foreign_step: Bytes,
    /// How long an idle slot stays.
    pub keep_alive: Span,
    /// How long a slot is safe from eviction after it became ready.
    pub min_run: Span,
    /// How long a running lease lives without a heartbeat.
    pub lease_ttl: Span,
    /// Silence after which a runner gets nothing new.
    pub suspect_after: Span,
    /// Silence after which a runner's leases move on.
    pub lost_after: Span,
    /// Age after which the first in order that can gets a place kept free.
    pub age_limit: Span,
    /// How long a place is kept free while nobody knows when it can be used; after that, work that can leave in time
    /// may use it.
    pub backfill_after: Span,
    /// How many may wait.
    pub queue_limit: usize,
    /// How long a start may take.
    pub start_deadline: Span,
    /// How long a stop may take before promises stop counting on it.
    pub stall_after: Span,
    /// How often a workload is tried.
    pub attempts: u32,
    /// Failures before a quiet time of this length are forgiven.
    pub forgive_after: Span,
    /// The first pause between attempts.
    pub backoff: Span,
    /// The longest pause between attempts.
    pub backoff_limit: Span,
    /// A step in time larger than this is a pause of the server, and timers start anew.
    pub pause_after: Span,
    /// How long an ended workload and its key are kept.
    pub keep_ended_for: Span,
    /// How many ended workloads are kept.
    pub keep_ended: usize,
    /// From this many runners on, most of them silent at once means that the server is at fault.
    pub self_suspicion_from: usize,
    /// How many devices one runner may have.
    pub devices_per_runner: usize,
    /// How many slots one runner may have that the server did not make.
    pub unknown_slots_per_runner: usize,
    /// How much more the next claim is after a slot ran out of memory, in percent of what its model's entry says.
    pub oom_step: u32,
    /// How far above (in percent of that) a claim may get in this way, or by what was seen.
    pub oom_limit: u32,
    /// How long a slot must have been ready before using less than its claim means anything.
    pub judge_after: Span,
    /// Rows for devices in an explanation.
    pub explained_devices: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device_reserve: Bytes::ZERO,
            exclusive_tolerance: Bytes::gib(1),
            foreign_step: Bytes::mib(64),
            keep_alive: Span::from_secs(600),
            min_run: Span::from_secs(30),
            lease_ttl: Span::from_secs(600),
            suspect_after: Span::from_secs(30),
            lost_after: Span::from_secs(300),
            age_limit: Span::from_secs(60),
            backfill_after: Span::from_secs(600),
            queue_limit: 10_000,
            start_deadline: Span::from_secs(600),
            stall_after: Span::from_secs(60),
            attempts: 3,
            forgive_after: Span::from_secs(600),
            backoff: Span::from_secs(1),
            backoff_limit: Span::from_secs(60),
            pause_after: Span::from_secs(15),
            keep_ended_for: Span::from_secs(3600),
            keep_ended: 100_000,
            self_suspicion_from: 3,
            devices_per_runner: 128,
            unknown_slots_per_runner: 512,
            oom_step: 10,
            oom_limit: 50,
            judge_after: Span::from_secs(600),
            explained_devices: 8,
        }
    }
}
