//! Every rule of reconciling, as a table of small worlds; and that doing what is said leads to rest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_domain::{
    Bytes, ClusterId, DesiredAction, DesiredGpu, DesiredSlot, DeviceUuid, Epoch, Evidence, FailureReason, Generation,
    Millicores, ModelName, Revision, RunSpec, RuntimeName, SlotEnd, SlotId, Span, Timestamp, WorkloadKind,
};
use uuid::Uuid;

use super::{
    Action, DeviceSeen, Doubt, DriverSeen, Health, Kept, Life, Patience, Seen, Trace, TreeSeen, Version, Wish, World,
    reconcile,
};
use crate::process::{Carrier, ProcessId};

mod unrecorded;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn id(number: u128) -> SlotId {
    SlotId::new(Uuid::from_u128(number))
}

fn cluster(number: u128) -> ClusterId {
    ClusterId::new(Uuid::from_u128(number))
}

fn version(number: u128, epoch: u64, revision: u64) -> Version {
    Version { cluster: cluster(number), epoch: Epoch::new(epoch), revision: Revision::new(revision) }
}

/// What is asked of a slot, without how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Run,
    Stop,
    Account,
}
use Asked::{Account as ACCOUNT, Run as RUN, Stop as STOP};

fn slot(number: u128, asked: Asked, gpu: &str, gib: u64) -> DesiredSlot {
    let spec = || RunSpec {
        model: ModelName::new("m").unwrap(),
        runtime: RuntimeName::new("r").unwrap(),
        kind: WorkloadKind::Lease,
        model_args: 0,
        args: Vec::new(),
        cpu_millicores: Millicores::ZERO,
        ram_bytes: Bytes::ZERO,
        concurrency: 1,
    };
    DesiredSlot {
        id: id(number),
        generation: Generation::new(1),
        gpus: vec![DesiredGpu { uuid: DeviceUuid::new(gpu).unwrap(), memory_bytes: Bytes::gib(gib) }],
        action: match asked {
            RUN => DesiredAction::Run(Box::new(spec())),
            STOP => DesiredAction::Stop,
            ACCOUNT => DesiredAction::Account,
        },
    }
}

/// A later start of a slot.
fn newer(slot: DesiredSlot) -> DesiredSlot {
    DesiredSlot { generation: slot.generation.next(), ..slot }
}

fn process() -> ProcessId {
    ProcessId::of(std::process::id()).unwrap().unwrap()
}

/// A machine to reconcile in.
#[derive(Clone)]
struct Bench {
    wish: Option<Wish>,
    kept: BTreeMap<SlotId, Kept>,
    seen: BTreeMap<SlotId, Seen>,
    traces: BTreeMap<SlotId, Trace>,
    doubts: BTreeMap<SlotId, Doubt>,
    devices: Vec<DeviceSeen>,
    obeys: Option<(ClusterId, Epoch)>,
    now: Timestamp,
    monotonic: Instant,
    can_record: bool,
}

impl Bench {
    fn new(wanted: Vec<DesiredSlot>) -> Self {
        let device = |name: &str| DeviceSeen { uuid: DeviceUuid::new(name).unwrap(), free: Some(Bytes::gib(80)) };
        let monotonic = Instant::now();
        Self {
            wish: Some(Wish { version: version(1, 3, 7), code: None, sent: monotonic, slots: wanted }),
            kept: BTreeMap::new(),
            seen: BTreeMap::new(),
            traces: BTreeMap::new(),
            doubts: BTreeMap::new(),
            devices: vec![device("GPU-a"), device("GPU-b")],
            obeys: Some((cluster(1), Epoch::new(3))),
            now: NOW,
            monotonic,
            can_record: true,
        }
    }

    fn keep(self, slot: &DesiredSlot, life: Life) -> Self {
        self.keep_row(Kept::of(slot, life))
    }

    fn keep_row(mut self, row: Kept) -> Self {
        self.kept.insert(row.id, row);
        self
    }

    fn see(mut self, number: u128, seen: Seen) -> Self {
        self.seen.insert(id(number), seen);
        self
    }

    fn find(mut self, number: u128, trace: Trace) -> Self {
        self.traces.insert(id(number), trace);
        self
    }

    /// What to do as long as nobody was looked for.
    fn first_actions(&self) -> Vec<Action> {
        reconcile(&World {
            now: self.now,
            monotonic: self.monotonic,
            wish: self.wish.as_ref(),
            kept: &self.kept,
            seen: &self.seen,
            traces: &self.traces,
            doubts: &self.doubts,
            devices: &self.devices,
            obeys: self.obeys,
            can_record: self.can_record,
            patience: Patience::default(),
        })
    }

    /// What to do once everybody was looked for who is to be. Nobody carries a mark unless the test says so.
    fn actions(&self) -> Vec<Action> {
        let mut looked = self.clone();
        for action in self.first_actions() {
            if let Action::LookFor(slot) = action {
                looked.traces.entry(slot.id).or_insert(Trace::Nobody { doubt: None });
            }
        }
        looked.first_actions()
    }

    /// A little later, with the same wish.
    fn later(mut self, by: Duration) -> Self {
        self.monotonic += by;
        self
    }
}

fn started(ready: bool) -> Life {
    Life::Started { at: NOW, ready }
}

fn alive(health: Health) -> Seen {
    Seen { tree: TreeSeen::Alive(process()), health, ..Seen::default() }
}

/// Nobody is left, and the driver agrees.
fn nobody() -> Seen {
    Seen { tree: TreeSeen::Empty, driver: DriverSeen::Clear, ..Seen::default() }
}

/// Somebody carries the mark of a start of a slot.
fn carried(generation: u32, kind: Option<WorkloadKind>) -> Trace {
    Trace::Carried(Carrier { generation: Generation::new(generation), process: process(), kind })
}

fn gone(why: SlotEnd) -> Life {
    Life::Gone { why, evidence: Evidence::COMPLETE }
}

#[test]
fn what_should_run_is_started_once() {
    let bench = Bench::new(vec![slot(1, RUN, "GPU-a", 40)]);
    assert_eq!(bench.actions(), vec![Action::Start(Box::new(slot(1, RUN, "GPU-a", 40)))]);
    let bench = bench.keep(&slot(1, RUN, "GPU-a", 40), started(false)).see(1, alive(Health::Pending));
    assert_eq!(bench.actions(), vec![], "n8: the same desired state twice is one process");
}

#[test]
fn one_start_at_a_time_on_a_device_and_at_once_on_others() {
    let wanted = vec![slot(1, RUN, "GPU-a", 10), slot(2, RUN, "GPU-a", 10), slot(3, RUN, "GPU-b", 10)];
    let bench = Bench::new(wanted.clone());
    let starts = |actions: Vec<Action>| -> Vec<SlotId> {
        let id = |action| if let Action::Start(slot) = action { Some(slot.id) } else { None };
        actions.into_iter().filter_map(id).collect()
    };
    assert_eq!(starts(bench.actions()), vec![id(1), id(3)]);
    let bench = bench.keep(&wanted[0], started(false)).see(1, alive(Health::Ready));
    assert_eq!(bench.actions()[0], Action::Ready(id(1)));
    assert_eq!(starts(bench.actions()), vec![id(2), id(3)], "the first is ready: the second may start");
}

#[test]
fn n15_too_little_free_memory_is_refused_and_a_silent_driver_is_waited_for() {
    let mut bench = Bench::new(vec![slot(1, RUN, "GPU-a", 40)]);
    bench.devices[0].free = Some(Bytes::gib(39));
    assert_eq!(bench.actions(), vec![Action::Refuse(Box::new(slot(1, RUN, "GPU-a", 40)))]);
    bench.devices[0].free = None;
    assert_eq!(bench.actions(), vec![]);
}

#[test]
fn a_stop_asks_then_forces_then_waits_for_the_driver() {
    let wanted = slot(1, STOP, "GPU-a", 40);
    let mut bench = Bench::new(vec![wanted.clone()]).keep(&wanted, started(true)).see(1, alive(Health::Ready));
    assert_eq!(bench.actions(), vec![Action::Term(id(1), SlotEnd::Asked)]);

    bench = bench.keep(&wanted, Life::Ending { since: NOW, killed: false, why: SlotEnd::Asked, was_ready: true });
    assert_eq!(bench.actions(), vec![], "its grace is not over");
    bench.now = NOW.after(Span::from_secs(10));
    assert_eq!(bench.actions(), vec![Action::Kill(id(1))]);

    bench = bench.keep(&wanted, Life::Ending { since: NOW, killed: true, why: SlotEnd::Asked, was_ready: true });
    assert_eq!(bench.actions(), vec![Action::Kill(id(1))], "n10: a tree may grow while it is felled");
    bench.now = NOW.after(Span::from_secs(69));
    assert_eq!(bench.actions(), vec![Action::Kill(id(1))], "a minute of force");
    bench.now = NOW.after(Span::from_secs(70));
    assert_eq!(bench.actions(), vec![Action::GiveUp(id(1))], "n10: unkillable");

    bench = bench.see(1, nobody());
    assert_eq!(bench.actions(), vec![Action::TreeGone(id(1), SlotEnd::Asked)]);
    let since = bench.now;
    bench = bench.keep(&wanted, Life::TreeGone { since, why: SlotEnd::Asked });
    let on_driver = vec![DeviceUuid::new("GPU-a").unwrap()];
    bench = bench.see(1, Seen { driver: DriverSeen::Busy(on_driver), ..nobody() });
    assert_eq!(bench.actions(), vec![], "r6: the driver still lists a pid: not yet proof");
    bench = bench.see(1, nobody());
    assert_eq!(bench.actions(), vec![Action::Gone(id(1), Evidence::COMPLETE)]);
}

#[test]
fn what_ended_by_itself_is_felled_whole_and_told() {
    let wanted = slot(1, RUN, "GPU-a", 40);
    let bench = Bench::new(vec![wanted.clone()]).keep(&wanted, started(true));
    let crash = SlotEnd::Failed(FailureReason::Crashed);
    let orphaned = Seen { ended: Some(crash), ..alive(Health::Ready) };
    assert_eq!(bench.clone().see(1, orphaned).actions(), vec![Action::Term(id(1), crash)], "its children live on");
    let gone = Seen { ended: Some(SlotEnd::Exited(0)), ..nobody() };
    assert_eq!(bench.clone().see(1, gone).actions(), vec![Action::TreeGone(id(1), SlotEnd::Exited(0))]);
    let hung = alive(Health::Failed(FailureReason::NeverReady));
    assert_eq!(bench.see(1, hung).actions(), vec![Action::Term(id(1), SlotEnd::Failed(FailureReason::NeverReady))]);
}

#[test]
fn a_slot_that_is_not_mentioned_is_kept() {
    let bench = Bench::new(Vec::new()).keep(&slot(1, RUN, "GPU-a", 40), started(true)).see(1, alive(Health::Ready));
    assert_eq!(bench.actions(), vec![]);
}

#[test]
fn what_is_gone_is_said_until_the_server_has_heard_it() {
    for asked in [STOP, RUN, ACCOUNT] {
        let row = slot(1, asked, "GPU-a", 40);
        let mentioned = Bench::new(vec![row.clone()]).keep(&row, gone(SlotEnd::Asked));
        assert_eq!(mentioned.actions(), vec![], "the server still asks");
        let heard = Bench::new(Vec::new()).keep(&row, gone(SlotEnd::Asked));
        assert_eq!(heard.actions(), vec![Action::Forget(id(1))]);
    }
}

#[test]
fn n8_what_was_said_before_is_told_from_what_was_said_later() {
    let now = version(1, 3, 7);
    for (other, is_before) in [
        (version(1, 3, 6), true),
        (version(1, 3, 7), false),
        (version(1, 3, 8), false),
        (version(1, 2, 9), true),
        (version(1, 4, 1), false),
        // Of two servers nobody can say who spoke first.
        (version(2, 1, 1), false),
    ] {
        assert_eq!(other.is_before(&now), is_before, "{other:?}");
    }
}

#[test]
fn n17_another_cluster_and_an_older_epoch_change_nothing() {
    let wanted = vec![slot(1, STOP, "GPU-a", 40), slot(2, RUN, "GPU-b", 10)];
    let bench = Bench::new(wanted).keep(&slot(1, RUN, "GPU-a", 40), started(true)).see(1, alive(Health::Ready));
    let mut other = bench.clone();
    other.obeys = Some((cluster(2), Epoch::new(1)));
    assert_eq!(other.actions(), vec![]);
    let mut older = bench.clone();
    older.obeys = Some((cluster(1), Epoch::new(4)));
    assert_eq!(older.actions(), vec![]);
    assert_eq!(bench.actions().len(), 2, "and otherwise it would");
}

#[test]
fn a_newer_generation_waits_for_the_end_of_the_older_and_an_older_one_is_ignored() {
    let newer = DesiredSlot { generation: Generation::new(2), ..slot(1, RUN, "GPU-a", 40) };
    let bench =
        Bench::new(vec![newer.clone()]).keep(&slot(1, RUN, "GPU-a", 40), started(true)).see(1, alive(Health::Ready));
    assert_eq!(bench.actions(), vec![Action::Term(id(1), SlotEnd::Asked)]);
    let over = gone(SlotEnd::Asked);
    let bench = bench.keep(&slot(1, RUN, "GPU-a", 40), over);
    assert_eq!(bench.actions(), vec![Action::Start(Box::new(newer.clone()))]);
    let late = Bench::new(vec![slot(1, STOP, "GPU-a", 40)]).keep(&newer, started(true)).see(1, alive(Health::Ready));
    assert_eq!(late.actions(), vec![], "r5: words about an older generation change nothing");
}

#[test]
fn n3_what_an_agent_planned_and_did_not_live_to_note_is_found_or_was_never_started() {
    let wanted = slot(1, RUN, "GPU-a", 40);
    let bench = Bench::new(vec![wanted.clone()]).keep(&wanted, Life::Planned);
    let found = bench.clone().see(1, alive(Health::Pending));
    assert_eq!(found.actions(), vec![Action::Found(id(1), process())]);
    assert_eq!(bench.see(1, nobody()).actions(), vec![Action::Forget(id(1))], "and the next round starts it");
    let stopped = Bench::new(vec![slot(1, STOP, "GPU-a", 40)]).keep(&wanted, Life::Planned).see(1, nobody());
    assert_eq!(stopped.actions(), vec![Action::TreeGone(id(1), SlotEnd::Asked)]);
}

#[test]
fn n3_a_job_that_an_agent_started_and_did_not_live_to_note_is_not_started_again() {
    for (asked, ended) in [
        (RUN, SlotEnd::Exited(0)),
        (RUN, SlotEnd::Failed(FailureReason::Crashed)),
        // It was over before anybody asked for its end.
        (STOP, SlotEnd::Exited(0)),
        (ACCOUNT, SlotEnd::Exited(3)),
    ] {
        let job = slot(1, asked, "GPU-a", 40);
        let over = Seen { ended: Some(ended), ..nobody() };
        let bench = Bench::new(vec![job]).keep(&slot(1, RUN, "GPU-a", 40), Life::Planned).see(1, over);
        assert_eq!(bench.actions(), vec![Action::TreeGone(id(1), ended)]);
    }
}

#[test]
fn r6_what_was_not_seen_of_an_end_is_not_said() {
    let on_driver = || DriverSeen::Busy(vec![DeviceUuid::new("GPU-a").unwrap()]);
    for (tree, driver, tree_gone, driver_clear) in [
        (TreeSeen::Unknown, DriverSeen::Unknown, false, false),
        (TreeSeen::Unknown, DriverSeen::Clear, false, true),
        (TreeSeen::Alive(process()), DriverSeen::Clear, false, true),
        (TreeSeen::Empty, DriverSeen::Unknown, true, false),
        (TreeSeen::Empty, on_driver(), true, false),
        (TreeSeen::Empty, DriverSeen::Clear, true, true),
    ] {
        let seen = Seen { tree, driver, ..Seen::default() };
        assert_eq!(seen.evidence(), Evidence { tree_gone, driver_clear }, "{seen:?}");
        // And a slot is called gone on both, or not at all.
        for life in [Life::TreeGone { since: NOW, why: SlotEnd::Asked }, Life::GivenUp] {
            let wanted = slot(1, STOP, "GPU-a", 40);
            let bench = Bench::new(vec![wanted.clone()]).keep(&wanted, life.clone()).see(1, seen.clone());
            let gone = bench.actions().into_iter().find(|action| matches!(action, Action::Gone(..)));
            let expected = (tree_gone && driver_clear).then_some(Action::Gone(id(1), Evidence::COMPLETE));
            assert_eq!(gone, expected, "{life:?}, {seen:?}");
        }
    }
}

#[test]
fn r8_of_a_tree_that_nobody_can_look_into_nothing_is_concluded() {
    let wanted = slot(1, STOP, "GPU-a", 40);
    let unknown =
        || Seen { tree: TreeSeen::Unknown, health: Health::Failed(FailureReason::Crashed), ..Seen::default() };
    let long_ago = Timestamp::from_millis(1);
    for life in [
        Life::Planned,
        started(true),
        Life::Ending { since: long_ago, killed: true, why: SlotEnd::Asked, was_ready: true },
        Life::TreeGone { since: long_ago, why: SlotEnd::Asked },
        Life::GivenUp,
    ] {
        let bench = Bench::new(vec![wanted.clone()]).keep(&wanted, life.clone()).see(1, unknown());
        assert_eq!(bench.actions(), vec![], "{life:?}");
    }
}

#[test]
fn n10_a_runtime_with_a_grace_of_its_own_is_given_it() {
    let wanted = slot(1, STOP, "GPU-a", 40);
    let seen = Seen { grace: Some(Span::from_secs(30)), ..alive(Health::Ready) };
    let mut bench = Bench::new(vec![wanted.clone()])
        .keep(&wanted, Life::Ending { since: NOW, killed: false, why: SlotEnd::Asked, was_ready: true })
        .see(1, seen);
    bench.now = NOW.after(Span::from_secs(29));
    assert_eq!(bench.actions(), vec![]);
    bench.now = NOW.after(Span::from_secs(30));
    assert_eq!(bench.actions(), vec![Action::Kill(id(1))]);
}

#[test]
fn a_slot_that_is_stopped_while_it_loads_gets_the_shorter_grace() {
    let wanted = slot(1, STOP, "GPU-a", 40);
    let vllm = Seen { grace: Some(Span::from_secs(30)), ..alive(Health::Pending) };
    let loading = started(false).asked_to_end(NOW, SlotEnd::Asked);
    let mut bench = Bench::new(vec![wanted.clone()]).keep(&wanted, loading).see(1, vllm.clone());
    bench.now = NOW.after(Span::from_secs(1));
    assert_eq!(bench.actions(), vec![], "two seconds are the default");
    bench.now = NOW.after(Span::from_secs(2));
    assert_eq!(bench.actions(), vec![Action::Kill(id(1))]);

    bench = bench.see(1, Seen { loading_grace: Some(Span::from_secs(5)), ..vllm.clone() });
    assert_eq!(bench.actions(), vec![], "the runtime has its own");
    bench = bench.see(1, Seen { grace: Some(Span::from_secs(1)), loading_grace: Some(Span::from_secs(5)), ..vllm });
    assert_eq!(bench.actions(), vec![Action::Kill(id(1))], "a shorter grace of any slot is the shorter one here too");

    let forced = started(false).asked_to_end(NOW, SlotEnd::Asked).ended_by_force();
    let again = forced.asked_to_end(NOW, SlotEnd::Asked);
    assert_eq!(again, Life::Ending { since: NOW, killed: false, why: SlotEnd::Asked, was_ready: false });
}
