//! Every rule of reconciling, as a table of small worlds; and that doing what is said leads to rest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_domain::{
    Bytes, ClusterId, DesiredAction, DesiredGpu, DesiredSlot, DeviceUuid, Epoch, Evidence, FailureReason, Generation,
    Millicores, ModelName, Revision, RunSpec, RuntimeName, SlotEnd, SlotId, Span, Timestamp, WorkloadKind,
};
use uuid::Uuid;

use super::{
    Action, DesiredState, DeviceObservation, Doubt, DriverView, Health, LocalState, ReconcileInput, SearchResult,
    SlotObservation, SlotRecord, Timeouts, TreeState, Version, reconcile,
};
use crate::process::{MarkedStart, ProcessId};

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

/// The input of a reconciliation, built step by step.
#[derive(Clone)]
struct Case {
    desired: Option<DesiredState>,
    records: BTreeMap<SlotId, SlotRecord>,
    seen: BTreeMap<SlotId, SlotObservation>,
    searched: BTreeMap<SlotId, SearchResult>,
    doubts: BTreeMap<SlotId, Doubt>,
    devices: Vec<DeviceObservation>,
    binding: Option<(ClusterId, Epoch)>,
    now: Timestamp,
    monotonic: Instant,
    can_record: bool,
}

impl Case {
    fn new(wanted: Vec<DesiredSlot>) -> Self {
        let device =
            |name: &str| DeviceObservation { uuid: DeviceUuid::new(name).unwrap(), free: Some(Bytes::gib(80)) };
        let monotonic = Instant::now();
        Self {
            desired: Some(DesiredState { version: version(1, 3, 7), code: None, sent: monotonic, slots: wanted }),
            records: BTreeMap::new(),
            seen: BTreeMap::new(),
            searched: BTreeMap::new(),
            doubts: BTreeMap::new(),
            devices: vec![device("GPU-a"), device("GPU-b")],
            binding: Some((cluster(1), Epoch::new(3))),
            now: NOW,
            monotonic,
            can_record: true,
        }
    }

    fn keep(self, slot: &DesiredSlot, state: LocalState) -> Self {
        self.keep_row(SlotRecord::of(slot, state))
    }

    fn keep_row(mut self, row: SlotRecord) -> Self {
        self.records.insert(row.id, row);
        self
    }

    fn see(mut self, number: u128, seen: SlotObservation) -> Self {
        self.seen.insert(id(number), seen);
        self
    }

    fn find(mut self, number: u128, trace: SearchResult) -> Self {
        self.searched.insert(id(number), trace);
        self
    }

    /// Returns the actions before any search was made.
    fn first_actions(&self) -> Vec<Action> {
        reconcile(&ReconcileInput {
            now: self.now,
            monotonic: self.monotonic,
            desired: self.desired.as_ref(),
            records: &self.records,
            seen: &self.seen,
            searched: &self.searched,
            doubts: &self.doubts,
            devices: &self.devices,
            binding: self.binding,
            can_record: self.can_record,
            timeouts: Timeouts::default(),
        })
    }

    /// Returns the actions after the searches. No process carries a mark unless the test says so.
    fn actions(&self) -> Vec<Action> {
        let mut looked = self.clone();
        for action in self.first_actions() {
            if let Action::Search(slot) = action {
                looked.searched.entry(slot.id).or_insert(SearchResult::NotFound { doubt: None });
            }
        }
        looked.first_actions()
    }

    /// Moves the monotonic clock on, with the same desired state.
    fn later(mut self, by: Duration) -> Self {
        self.monotonic += by;
        self
    }
}

fn started(ready: bool) -> LocalState {
    LocalState::Started { at: NOW, ready }
}

fn alive(health: Health) -> SlotObservation {
    SlotObservation { tree: TreeState::Alive(process()), health, ..SlotObservation::default() }
}

/// No process is left, and the driver agrees.
fn no_process() -> SlotObservation {
    SlotObservation { tree: TreeState::Empty, driver: DriverView::Clear, ..SlotObservation::default() }
}

/// A process carries the mark of a start of a slot.
fn found_start(generation: u32, kind: Option<WorkloadKind>) -> SearchResult {
    SearchResult::Found(MarkedStart { generation: Generation::new(generation), process: process(), kind })
}

fn gone(why: SlotEnd) -> LocalState {
    LocalState::Gone { why, evidence: Evidence::COMPLETE }
}

#[test]
fn a_slot_that_should_run_is_started_once() {
    let case = Case::new(vec![slot(1, RUN, "GPU-a", 40)]);
    assert_eq!(case.actions(), vec![Action::Start(Box::new(slot(1, RUN, "GPU-a", 40)))]);
    let case = case.keep(&slot(1, RUN, "GPU-a", 40), started(false)).see(1, alive(Health::Pending));
    assert_eq!(case.actions(), vec![], "n8: the same desired state twice is one process");
}

#[test]
fn one_start_at_a_time_on_a_device_and_at_once_on_others() {
    let wanted = vec![slot(1, RUN, "GPU-a", 10), slot(2, RUN, "GPU-a", 10), slot(3, RUN, "GPU-b", 10)];
    let case = Case::new(wanted.clone());
    let starts = |actions: Vec<Action>| -> Vec<SlotId> {
        let id = |action| if let Action::Start(slot) = action { Some(slot.id) } else { None };
        actions.into_iter().filter_map(id).collect()
    };
    assert_eq!(starts(case.actions()), vec![id(1), id(3)]);
    let case = case.keep(&wanted[0], started(false)).see(1, alive(Health::Ready));
    assert_eq!(case.actions()[0], Action::Ready(id(1)));
    assert_eq!(starts(case.actions()), vec![id(2), id(3)], "the first is ready: the second may start");
}

#[test]
fn n15_too_little_free_memory_is_refused_and_a_silent_driver_is_waited_for() {
    let mut case = Case::new(vec![slot(1, RUN, "GPU-a", 40)]);
    case.devices[0].free = Some(Bytes::gib(39));
    assert_eq!(case.actions(), vec![Action::Refuse(Box::new(slot(1, RUN, "GPU-a", 40)))]);
    case.devices[0].free = None;
    assert_eq!(case.actions(), vec![]);
}

#[test]
fn a_stop_asks_then_forces_then_waits_for_the_driver() {
    let wanted = slot(1, STOP, "GPU-a", 40);
    let mut case = Case::new(vec![wanted.clone()]).keep(&wanted, started(true)).see(1, alive(Health::Ready));
    assert_eq!(case.actions(), vec![Action::Term(id(1), SlotEnd::Asked)]);

    case = case.keep(&wanted, LocalState::Ending { since: NOW, killed: false, why: SlotEnd::Asked, was_ready: true });
    assert_eq!(case.actions(), vec![], "its grace is not over");
    case.now = NOW.after(Span::from_secs(10));
    assert_eq!(case.actions(), vec![Action::Kill(id(1))]);

    case = case.keep(&wanted, LocalState::Ending { since: NOW, killed: true, why: SlotEnd::Asked, was_ready: true });
    assert_eq!(case.actions(), vec![Action::Kill(id(1))], "n10: a tree may grow while it is felled");
    case.now = NOW.after(Span::from_secs(69));
    assert_eq!(case.actions(), vec![Action::Kill(id(1))], "a minute of force");
    case.now = NOW.after(Span::from_secs(70));
    assert_eq!(case.actions(), vec![Action::GiveUp(id(1))], "n10: unkillable");

    case = case.see(1, no_process());
    assert_eq!(case.actions(), vec![Action::TreeGone(id(1), SlotEnd::Asked)]);
    let since = case.now;
    case = case.keep(&wanted, LocalState::TreeGone { since, why: SlotEnd::Asked });
    let on_driver = vec![DeviceUuid::new("GPU-a").unwrap()];
    case = case.see(1, SlotObservation { driver: DriverView::Busy(on_driver), ..no_process() });
    assert_eq!(case.actions(), vec![], "r6: the driver still lists a pid: not yet proof");
    case = case.see(1, no_process());
    assert_eq!(case.actions(), vec![Action::Gone(id(1), Evidence::COMPLETE)]);
}

#[test]
fn a_slot_that_ended_by_itself_is_ended_as_a_whole_with_its_reason() {
    let wanted = slot(1, RUN, "GPU-a", 40);
    let case = Case::new(vec![wanted.clone()]).keep(&wanted, started(true));
    let crash = SlotEnd::Failed(FailureReason::Crashed);
    let orphaned = SlotObservation { ended: Some(crash), ..alive(Health::Ready) };
    assert_eq!(case.clone().see(1, orphaned).actions(), vec![Action::Term(id(1), crash)], "its children live on");
    let gone = SlotObservation { ended: Some(SlotEnd::Exited(0)), ..no_process() };
    assert_eq!(case.clone().see(1, gone).actions(), vec![Action::TreeGone(id(1), SlotEnd::Exited(0))]);
    let hung = alive(Health::Failed(FailureReason::NeverReady));
    assert_eq!(case.see(1, hung).actions(), vec![Action::Term(id(1), SlotEnd::Failed(FailureReason::NeverReady))]);
}

#[test]
fn a_slot_that_is_not_mentioned_is_kept() {
    let case = Case::new(Vec::new()).keep(&slot(1, RUN, "GPU-a", 40), started(true)).see(1, alive(Health::Ready));
    assert_eq!(case.actions(), vec![]);
}

#[test]
fn a_gone_slot_is_kept_until_the_server_no_longer_mentions_it() {
    for asked in [STOP, RUN, ACCOUNT] {
        let row = slot(1, asked, "GPU-a", 40);
        let mentioned = Case::new(vec![row.clone()]).keep(&row, gone(SlotEnd::Asked));
        assert_eq!(mentioned.actions(), vec![], "the server still asks");
        let heard = Case::new(Vec::new()).keep(&row, gone(SlotEnd::Asked));
        assert_eq!(heard.actions(), vec![Action::Forget(id(1))]);
    }
}

#[test]
fn n8_an_older_version_of_the_same_server_is_before_a_newer_one() {
    let now = version(1, 3, 7);
    for (other, is_before) in [
        (version(1, 3, 6), true),
        (version(1, 3, 7), false),
        (version(1, 3, 8), false),
        (version(1, 2, 9), true),
        (version(1, 4, 1), false),
        // The order of two servers is unknown.
        (version(2, 1, 1), false),
    ] {
        assert_eq!(other.is_before(&now), is_before, "{other:?}");
    }
}

#[test]
fn n17_another_cluster_and_an_older_epoch_change_nothing() {
    let wanted = vec![slot(1, STOP, "GPU-a", 40), slot(2, RUN, "GPU-b", 10)];
    let case = Case::new(wanted).keep(&slot(1, RUN, "GPU-a", 40), started(true)).see(1, alive(Health::Ready));
    let mut other = case.clone();
    other.binding = Some((cluster(2), Epoch::new(1)));
    assert_eq!(other.actions(), vec![]);
    let mut older = case.clone();
    older.binding = Some((cluster(1), Epoch::new(4)));
    assert_eq!(older.actions(), vec![]);
    assert_eq!(case.actions().len(), 2, "and otherwise it would");
}

#[test]
fn a_newer_generation_waits_for_the_end_of_the_older_and_an_older_one_is_ignored() {
    let newer = DesiredSlot { generation: Generation::new(2), ..slot(1, RUN, "GPU-a", 40) };
    let case =
        Case::new(vec![newer.clone()]).keep(&slot(1, RUN, "GPU-a", 40), started(true)).see(1, alive(Health::Ready));
    assert_eq!(case.actions(), vec![Action::Term(id(1), SlotEnd::Asked)]);
    let over = gone(SlotEnd::Asked);
    let case = case.keep(&slot(1, RUN, "GPU-a", 40), over);
    assert_eq!(case.actions(), vec![Action::Start(Box::new(newer.clone()))]);
    let late = Case::new(vec![slot(1, STOP, "GPU-a", 40)]).keep(&newer, started(true)).see(1, alive(Health::Ready));
    assert_eq!(late.actions(), vec![], "r5: words about an older generation change nothing");
}

#[test]
fn n3_a_planned_slot_without_a_noted_process_is_found_or_was_never_started() {
    let wanted = slot(1, RUN, "GPU-a", 40);
    let case = Case::new(vec![wanted.clone()]).keep(&wanted, LocalState::Planned);
    let found = case.clone().see(1, alive(Health::Pending));
    assert_eq!(found.actions(), vec![Action::NoteProcess(id(1), process())]);
    assert_eq!(case.see(1, no_process()).actions(), vec![Action::Forget(id(1))], "and the next round starts it");
    let stopped = Case::new(vec![slot(1, STOP, "GPU-a", 40)]).keep(&wanted, LocalState::Planned).see(1, no_process());
    assert_eq!(stopped.actions(), vec![Action::TreeGone(id(1), SlotEnd::Asked)]);
}

#[test]
fn n3_a_job_that_an_agent_started_and_did_not_live_to_note_is_not_started_again() {
    for (asked, ended) in [
        (RUN, SlotEnd::Exited(0)),
        (RUN, SlotEnd::Failed(FailureReason::Crashed)),
        // It was over before the server asked for its end.
        (STOP, SlotEnd::Exited(0)),
        (ACCOUNT, SlotEnd::Exited(3)),
    ] {
        let job = slot(1, asked, "GPU-a", 40);
        let over = SlotObservation { ended: Some(ended), ..no_process() };
        let case = Case::new(vec![job]).keep(&slot(1, RUN, "GPU-a", 40), LocalState::Planned).see(1, over);
        assert_eq!(case.actions(), vec![Action::TreeGone(id(1), ended)]);
    }
}

#[test]
fn r6_evidence_holds_only_what_was_observed() {
    let on_driver = || DriverView::Busy(vec![DeviceUuid::new("GPU-a").unwrap()]);
    for (tree, driver, tree_gone, driver_clear) in [
        (TreeState::Unknown, DriverView::Unknown, false, false),
        (TreeState::Unknown, DriverView::Clear, false, true),
        (TreeState::Alive(process()), DriverView::Clear, false, true),
        (TreeState::Empty, DriverView::Unknown, true, false),
        (TreeState::Empty, on_driver(), true, false),
        (TreeState::Empty, DriverView::Clear, true, true),
    ] {
        let seen = SlotObservation { tree, driver, ..SlotObservation::default() };
        assert_eq!(seen.evidence(), Evidence { tree_gone, driver_clear }, "{seen:?}");
        // And a slot is called gone on both, or not at all.
        for state in [LocalState::TreeGone { since: NOW, why: SlotEnd::Asked }, LocalState::GivenUp] {
            let wanted = slot(1, STOP, "GPU-a", 40);
            let case = Case::new(vec![wanted.clone()]).keep(&wanted, state.clone()).see(1, seen.clone());
            let gone = case.actions().into_iter().find(|action| matches!(action, Action::Gone(..)));
            let expected = (tree_gone && driver_clear).then_some(Action::Gone(id(1), Evidence::COMPLETE));
            assert_eq!(gone, expected, "{state:?}, {seen:?}");
        }
    }
}

#[test]
fn r8_an_unknown_tree_leads_to_no_action() {
    let wanted = slot(1, STOP, "GPU-a", 40);
    let unknown = || SlotObservation {
        tree: TreeState::Unknown,
        health: Health::Failed(FailureReason::Crashed),
        ..SlotObservation::default()
    };
    let long_ago = Timestamp::from_millis(1);
    for state in [
        LocalState::Planned,
        started(true),
        LocalState::Ending { since: long_ago, killed: true, why: SlotEnd::Asked, was_ready: true },
        LocalState::TreeGone { since: long_ago, why: SlotEnd::Asked },
        LocalState::GivenUp,
    ] {
        let case = Case::new(vec![wanted.clone()]).keep(&wanted, state.clone()).see(1, unknown());
        assert_eq!(case.actions(), vec![], "{state:?}");
    }
}

#[test]
fn n10_a_runtime_with_a_grace_of_its_own_is_given_it() {
    let wanted = slot(1, STOP, "GPU-a", 40);
    let seen = SlotObservation { grace: Some(Span::from_secs(30)), ..alive(Health::Ready) };
    let mut case = Case::new(vec![wanted.clone()])
        .keep(&wanted, LocalState::Ending { since: NOW, killed: false, why: SlotEnd::Asked, was_ready: true })
        .see(1, seen);
    case.now = NOW.after(Span::from_secs(29));
    assert_eq!(case.actions(), vec![]);
    case.now = NOW.after(Span::from_secs(30));
    assert_eq!(case.actions(), vec![Action::Kill(id(1))]);
}

#[test]
fn a_slot_that_is_stopped_while_it_loads_gets_the_shorter_grace() {
    let wanted = slot(1, STOP, "GPU-a", 40);
    let vllm = SlotObservation { grace: Some(Span::from_secs(30)), ..alive(Health::Pending) };
    let loading = started(false).asked_to_end(NOW, SlotEnd::Asked);
    let mut case = Case::new(vec![wanted.clone()]).keep(&wanted, loading).see(1, vllm.clone());
    case.now = NOW.after(Span::from_secs(1));
    assert_eq!(case.actions(), vec![], "two seconds are the default");
    case.now = NOW.after(Span::from_secs(2));
    assert_eq!(case.actions(), vec![Action::Kill(id(1))]);

    case = case.see(1, SlotObservation { loading_grace: Some(Span::from_secs(5)), ..vllm.clone() });
    assert_eq!(case.actions(), vec![], "the runtime has its own");
    case = case
        .see(1, SlotObservation { grace: Some(Span::from_secs(1)), loading_grace: Some(Span::from_secs(5)), ..vllm });
    assert_eq!(case.actions(), vec![Action::Kill(id(1))], "a shorter grace of any slot is the shorter one here too");

    let forced = started(false).asked_to_end(NOW, SlotEnd::Asked).ended_by_force();
    let again = forced.asked_to_end(NOW, SlotEnd::Asked);
    assert_eq!(again, LocalState::Ending { since: NOW, killed: false, why: SlotEnd::Asked, was_ready: false });
}
