//! What can happen in a world, as data: small numbers choose among whatever there is at that moment.

use berth_domain::ModelSpec;
use proptest::prelude::*;

use crate::world::any_model;

/// One thing that happens.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the variants say what happens, the fields choose among what there is")]
pub enum Act {
    /// Time passes.
    Pass {
        millis: u64,
    },
    /// Time passes while every agent polls.
    Beat {
        seconds: u64,
    },
    /// Every agent works and reports.
    Round,
    /// Time passes while every agent but one polls.
    Silence {
        runner: u8,
        beats: u8,
    },
    /// A workload that runs is done.
    Finish {
        workload: u8,
    },
    /// A gateway submits.
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
    Put {
        model: u8,
        spec: Option<Box<ModelSpec>>,
    },
    Delete {
        model: u8,
    },
    /// One agent does something and reports.
    Agent {
        runner: u8,
        deed: Deed,
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
    Stop {
        slot: u8,
    },
    Force {
        slot: u8,
    },
    /// The server starts again.
    Start,
}

/// What an agent does before it reports.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the variants say what happens, the fields choose among what there is")]
pub enum Deed {
    /// What it is asked to.
    Work,
    /// Nothing.
    Rest,
    /// A slot comes to a bad end.
    Fail {
        slot: u8,
    },
    /// It refuses everything that it should start.
    Refuse,
    /// A process is gone, but the driver still lists it.
    HalfGone {
        slot: u8,
    },
    /// A process ends by itself.
    Exit {
        slot: u8,
        code: i32,
    },
    /// A process is proven gone though nobody asked.
    Vanish {
        slot: u8,
    },
    /// It loses the record of a slot that runs on.
    Lose {
        slot: u8,
    },
    /// It finds it again.
    Find,
    /// It starts again and adopts what runs.
    Restart,
    /// Its machine starts again.
    Reboot,
    /// Somebody else uses memory.
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
    /// A slot is reported under an old generation.
    Stale {
        slot: u8,
    },
    /// It has a slot that the server never made.
    Stray {
        gpu: u8,
        gib: u64,
        foreign_cluster: bool,
    },
    /// A slot uses more than its claim.
    Overuse {
        slot: u8,
        mib: u64,
    },
    /// The driver stops (or begins again) to tell whose memory it is.
    Blind,
    /// A report that was sent before comes again.
    Repeat,
    /// An older start of the agent reports.
    Ghost,
}

/// Any number of things that happen one after the other: quiet days with much work, or days when all goes wrong.
pub fn acts(most: usize) -> impl Strategy<Value = Vec<Act>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![14 => busy(), 1 => act()], 1..=most),
        prop::collection::vec(prop_oneof![1 => busy(), 3 => act()], 1..=most),
    ]
}

/// A day on which work comes, is done, and goes.
fn busy() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => submit(),
        6 => Just(Act::Round),
        4 => any::<u8>().prop_map(|workload| Act::Finish { workload }),
        2 => (1u64..9).prop_map(|seconds| Act::Beat { seconds }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let runner = || any::<u8>();
    let time = prop_oneof![
        3 => (0u64..12_000).prop_map(|millis| Act::Pass { millis }),
        1 => (0u64..60_000).prop_map(|millis| Act::Pass { millis }),
        6 => (1u64..12).prop_map(|seconds| Act::Beat { seconds }),
        1 => (any::<u8>(), 1u8..5).prop_map(|(runner, beats)| Act::Silence { runner, beats }),
        16 => Just(Act::Round),
    ];
    let work = prop_oneof![
        14 => submit(),
        2 => any::<u8>().prop_map(|workload| Act::Cancel { workload }),
        2 => (any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(workload, wrong)| Act::Heartbeat { workload, wrong }),
        6 => (any::<u8>(), prop::bool::weighted(0.2), any::<bool>())
            .prop_map(|(workload, wrong, succeeded)| Act::Complete { workload, wrong, succeeded }),
        2 => (any::<u8>(), prop::option::weighted(0.6, any_model().prop_map(Box::new)))
            .prop_map(|(model, spec)| Act::Put { model, spec }),
        1 => any::<u8>().prop_map(|model| Act::Delete { model }),
    ];
    let agents = prop_oneof![
        12 => (runner(), deed()).prop_map(|(runner, deed)| Act::Agent { runner, deed }),
        1 => (runner(), any::<bool>()).prop_map(|(runner, wrong)| Act::Poll { runner, wrong }),
    ];
    let operator = prop_oneof![
        2 => runner().prop_map(|runner| Act::Cordon { runner }),
        3 => runner().prop_map(|runner| Act::Uncordon { runner }),
        2 => (runner(), prop::option::of(0u8..30)).prop_map(|(runner, deadline)| Act::Drain { runner, deadline }),
        1 => runner().prop_map(|runner| Act::Forget { runner }),
        1 => any::<u8>().prop_map(|device| Act::CordonDevice { device }),
        2 => any::<u8>().prop_map(|device| Act::UncordonDevice { device }),
        2 => any::<u8>().prop_map(|slot| Act::Stop { slot }),
        1 => any::<u8>().prop_map(|slot| Act::Force { slot }),
        1 => Just(Act::Start),
    ];
    prop_oneof![6 => time, 7 => work, 5 => agents, 1 => operator]
}

fn submit() -> impl Strategy<Value = Act> {
    let yes = prop::bool::weighted;
    let priority = prop_oneof![3 => Just(0), 1 => -2i32..3];
    (any::<u8>(), yes(0.25), priority, prop::option::weighted(0.2, 0u8..6), yes(0.15), yes(0.15), any::<bool>())
        .prop_map(|(model, job, priority, key, ttl, timeout, restart)| Act::Submit {
            model,
            job,
            priority,
            key,
            ttl,
            timeout,
            restart,
        })
}

fn deed() -> impl Strategy<Value = Deed> {
    let n = any::<u8>;
    prop_oneof![
        20 => Just(Deed::Work),
        3 => Just(Deed::Rest),
        3 => n().prop_map(|slot| Deed::Fail { slot }),
        2 => Just(Deed::Refuse),
        2 => n().prop_map(|slot| Deed::HalfGone { slot }),
        2 => (n(), 0i32..2).prop_map(|(slot, code)| Deed::Exit { slot, code }),
        2 => n().prop_map(|slot| Deed::Vanish { slot }),
        2 => n().prop_map(|slot| Deed::Lose { slot }),
        2 => Just(Deed::Find),
        2 => Just(Deed::Restart),
        1 => Just(Deed::Reboot),
        4 => (n(), 0u64..30).prop_map(|(gpu, gib)| Deed::Foreign { gpu, gib }),
        3 => (n(), 0u8..8).prop_map(|(gpu, health)| Deed::Health { gpu, health }),
        1 => n().prop_map(|gpu| Deed::Unplug { gpu }),
        1 => (n(), 8u64..80).prop_map(|(gpu, gib)| Deed::Resize { gpu, gib }),
        1 => n().prop_map(|slot| Deed::Stale { slot }),
        2 => (n(), 1u64..30, prop::bool::weighted(0.2))
            .prop_map(|(gpu, gib, foreign_cluster)| Deed::Stray { gpu, gib, foreign_cluster }),
        2 => (n(), 1u64..4000).prop_map(|(slot, mib)| Deed::Overuse { slot, mib }),
        1 => Just(Deed::Blind),
        1 => Just(Deed::Repeat),
        1 => Just(Deed::Ghost),
    ]
}
