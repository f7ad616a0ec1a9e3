//! Transitions of the system under test, as data.
//!
//! A transition is generated before the state that it meets is known. So it names no id: its small numbers choose among
//! the runners, slots and workloads that exist when it is applied.

use berth_domain::ModelSpec;
use proptest::prelude::*;

use crate::world::any_model;

/// One step of a random history.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the variants say what happens, the fields choose among what exists")]
pub enum Transition {
    /// Time passes, and the server looks at its timers.
    AdvanceTime {
        millis: u64,
    },
    /// Time passes, then every agent polls.
    PollAll {
        seconds: u64,
    },
    /// Every agent follows its desired state and reports.
    ReportAll,
    /// Time passes while all agents but one poll.
    SilenceRunner {
        runner: u8,
        beats: u8,
    },
    /// A gateway completes a workload that runs.
    Finish {
        workload: u8,
    },
    /// A gateway submits a workload.
    Submit {
        model: u8,
        job: bool,
        priority: i32,
        key: Option<u8>,
        ttl: bool,
        timeout: bool,
        restart: bool,
    },
    Cancel {
        workload: u8,
    },
    Heartbeat {
        workload: u8,
        wrong: bool,
    },
    Complete {
        workload: u8,
        wrong: bool,
        succeeded: bool,
    },
    PutModel {
        model: u8,
        spec: Option<Box<ModelSpec>>,
    },
    DeleteModel {
        model: u8,
    },
    /// One agent or its machine changes, and the agent reports.
    Agent {
        runner: u8,
        transition: AgentTransition,
    },
    Poll {
        runner: u8,
        wrong: bool,
    },
    Cordon {
        runner: u8,
    },
    Uncordon {
        runner: u8,
    },
    Drain {
        runner: u8,
        deadline: Option<u8>,
    },
    Forget {
        runner: u8,
    },
    CordonDevice {
        device: u8,
    },
    UncordonDevice {
        device: u8,
    },
    StopSlot {
        slot: u8,
    },
    ForceRelease {
        slot: u8,
    },
    /// The server restarts.
    RestartServer,
}

/// What happens to one agent, or to its machine, before the agent reports.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the variants say what happens, the fields choose among what exists")]
pub enum AgentTransition {
    /// The agent follows its desired state.
    FollowDesired,
    /// Nothing happens.
    ReportOnly,
    /// A slot fails.
    Fail {
        slot: u8,
    },
    /// The agent refuses every start that it is asked for.
    RefuseStarts,
    /// A process tree is gone, but the driver still lists one of its pids.
    EndTreeOnly {
        slot: u8,
    },
    /// A process ends by itself.
    Exit {
        slot: u8,
        code: i32,
    },
    /// A process is proven gone although no stop was asked for.
    ProveGone {
        slot: u8,
    },
    /// The agent loses the record of a slot that runs on.
    LoseRecord {
        slot: u8,
    },
    /// The agent finds all lost records again.
    FindRecords,
    /// The agent restarts and adopts the processes that run.
    Restart,
    /// The machine reboots.
    Reboot,
    /// Foreign processes use this much memory.
    Foreign {
        gpu: u8,
        gib: u64,
    },
    Health {
        gpu: u8,
        health: u8,
    },
    Unplug {
        gpu: u8,
    },
    Resize {
        gpu: u8,
        gib: u64,
    },
    /// The agent reports a slot under an older generation.
    ReportOlderGeneration {
        slot: u8,
    },
    /// The agent has a slot that the server never made.
    Stray {
        gpu: u8,
        gib: u64,
        foreign_cluster: bool,
    },
    /// A slot uses more memory than its claim.
    Overuse {
        slot: u8,
        mib: u64,
    },
    /// The driver stops, or begins again, to attribute memory to processes.
    ToggleAttribution,
    /// The agent sends its last report again.
    RepeatReport,
    /// An older incarnation of the agent reports.
    ReportAsOlderIncarnation,
}

/// Generates histories of at most `most` transitions: mostly ordinary work, or mostly faults.
pub fn transitions(most: usize) -> impl Strategy<Value = Vec<Transition>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![14 => busy_transition(), 1 => any_transition()], 1..=most),
        prop::collection::vec(prop_oneof![1 => busy_transition(), 3 => any_transition()], 1..=most),
    ]
}

/// Generates a transition of ordinary work.
fn busy_transition() -> impl Strategy<Value = Transition> {
    prop_oneof![
        6 => submit(),
        6 => Just(Transition::ReportAll),
        4 => any::<u8>().prop_map(|workload| Transition::Finish { workload }),
        2 => (1u64..9).prop_map(|seconds| Transition::PollAll { seconds }),
    ]
}

fn any_transition() -> impl Strategy<Value = Transition> {
    let runner = || any::<u8>();
    let time = prop_oneof![
        3 => (0u64..12_000).prop_map(|millis| Transition::AdvanceTime { millis }),
        1 => (0u64..60_000).prop_map(|millis| Transition::AdvanceTime { millis }),
        6 => (1u64..12).prop_map(|seconds| Transition::PollAll { seconds }),
        1 => (any::<u8>(), 1u8..5).prop_map(|(runner, beats)| Transition::SilenceRunner { runner, beats }),
        16 => Just(Transition::ReportAll),
    ];
    let work = prop_oneof![
        14 => submit(),
        2 => any::<u8>().prop_map(|workload| Transition::Cancel { workload }),
        2 => (any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(workload, wrong)| Transition::Heartbeat { workload, wrong }),
        6 => (any::<u8>(), prop::bool::weighted(0.2), any::<bool>())
            .prop_map(|(workload, wrong, succeeded)| Transition::Complete { workload, wrong, succeeded }),
        2 => (any::<u8>(), prop::option::weighted(0.6, any_model().prop_map(Box::new)))
            .prop_map(|(model, spec)| Transition::PutModel { model, spec }),
        1 => any::<u8>().prop_map(|model| Transition::DeleteModel { model }),
    ];
    let agents = prop_oneof![
        12 => (runner(), agent_transition()).prop_map(|(runner, transition)| Transition::Agent { runner, transition }),
        1 => (runner(), any::<bool>()).prop_map(|(runner, wrong)| Transition::Poll { runner, wrong }),
    ];
    let operator = prop_oneof![
        2 => runner().prop_map(|runner| Transition::Cordon { runner }),
        3 => runner().prop_map(|runner| Transition::Uncordon { runner }),
        2 => (runner(), prop::option::of(0u8..30)).prop_map(|(runner, deadline)| Transition::Drain { runner, deadline }),
        1 => runner().prop_map(|runner| Transition::Forget { runner }),
        1 => any::<u8>().prop_map(|device| Transition::CordonDevice { device }),
        2 => any::<u8>().prop_map(|device| Transition::UncordonDevice { device }),
        2 => any::<u8>().prop_map(|slot| Transition::StopSlot { slot }),
        1 => any::<u8>().prop_map(|slot| Transition::ForceRelease { slot }),
        1 => Just(Transition::RestartServer),
    ];
    prop_oneof![6 => time, 7 => work, 5 => agents, 1 => operator]
}

fn submit() -> impl Strategy<Value = Transition> {
    let yes = prop::bool::weighted;
    let priority = prop_oneof![3 => Just(0), 1 => -2i32..3];
    (any::<u8>(), yes(0.25), priority, prop::option::weighted(0.2, 0u8..6), yes(0.15), yes(0.15), any::<bool>())
        .prop_map(|(model, job, priority, key, ttl, timeout, restart)| Transition::Submit {
            model,
            job,
            priority,
            key,
            ttl,
            timeout,
            restart,
        })
}

fn agent_transition() -> impl Strategy<Value = AgentTransition> {
    let n = any::<u8>;
    prop_oneof![
        20 => Just(AgentTransition::FollowDesired),
        3 => Just(AgentTransition::ReportOnly),
        3 => n().prop_map(|slot| AgentTransition::Fail { slot }),
        2 => Just(AgentTransition::RefuseStarts),
        2 => n().prop_map(|slot| AgentTransition::EndTreeOnly { slot }),
        2 => (n(), 0i32..2).prop_map(|(slot, code)| AgentTransition::Exit { slot, code }),
        2 => n().prop_map(|slot| AgentTransition::ProveGone { slot }),
        2 => n().prop_map(|slot| AgentTransition::LoseRecord { slot }),
        2 => Just(AgentTransition::FindRecords),
        2 => Just(AgentTransition::Restart),
        1 => Just(AgentTransition::Reboot),
        4 => (n(), 0u64..30).prop_map(|(gpu, gib)| AgentTransition::Foreign { gpu, gib }),
        3 => (n(), 0u8..8).prop_map(|(gpu, health)| AgentTransition::Health { gpu, health }),
        1 => n().prop_map(|gpu| AgentTransition::Unplug { gpu }),
        1 => (n(), 8u64..80).prop_map(|(gpu, gib)| AgentTransition::Resize { gpu, gib }),
        1 => n().prop_map(|slot| AgentTransition::ReportOlderGeneration { slot }),
        2 => (n(), 1u64..30, prop::bool::weighted(0.2))
            .prop_map(|(gpu, gib, foreign_cluster)| AgentTransition::Stray { gpu, gib, foreign_cluster }),
        2 => (n(), 1u64..4000).prop_map(|(slot, mib)| AgentTransition::Overuse { slot, mib }),
        1 => Just(AgentTransition::ToggleAttribution),
        1 => Just(AgentTransition::RepeatReport),
        1 => Just(AgentTransition::ReportAsOlderIncarnation),
    ]
}
