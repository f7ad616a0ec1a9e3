//! Commands that no correct client sends: impossible sizes, unknown ids, stale numbers, contradictions.

use std::collections::{BTreeMap, BTreeSet};

use berth_core::Command;
use berth_domain::{
    Attempt, Bytes, DeviceUuid, Epoch, EpochTag, Evidence, ExitStatus, FailureReason, Fraction, Generation, GpuCount,
    GpuHealth, GpuReport, HistoryPoint, HostReport, Incarnation, JobSpec, Memory, MemorySource, Millicores, ModelSpec,
    ObeyedAnswer, OwnerLimits, Priority, RankMemory, Replicas, ReportedClaim, ReportedMemory, ReportedState, Revision,
    RunnerReport, RuntimeKind, Sequence, SlotEnd, SlotId, SlotReport, Span, Submission, WorkloadKind,
};
use proptest::prelude::*;

use crate::names::{self, name};

/// A command, and how far the clock jumps before it (back, if negative).
#[derive(Clone, Debug)]
pub struct HostileCommand {
    /// The command.
    pub command: Command,
    /// How far the clock jumps before the command, in milliseconds.
    pub jump: i64,
}

/// Generates hostile commands.
pub fn hostile_commands() -> impl Strategy<Value = HostileCommand> {
    let jump = prop_oneof![6 => 0i64..2000, 2 => -100_000i64..0, 1 => 0i64..100_000, 1 => Just(i64::MIN)];
    (command(), jump).prop_map(|(command, jump)| HostileCommand { command, jump })
}

fn size() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => (0u64..90).prop_map(Bytes::gib),
        1 => Just(Bytes::ZERO),
        1 => Just(Bytes::new(1)),
        1 => Just(Bytes::MAX),
        1 => Just(Bytes::gib(1 << 20)),
        1 => Just(Bytes::new((1 << 50) + 1)),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0u64..6, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..5, 1 => Just(u32::MAX)]
}

fn span() -> impl Strategy<Value = Option<Span>> {
    prop::option::of(number().prop_map(Span::from_millis))
}

fn uuid() -> impl Strategy<Value = DeviceUuid> {
    (0usize..4, 0usize..5).prop_map(|(machine, n)| names::gpu(machine, n))
}

/// A slot of the server, a stray, or nothing that exists.
fn slot() -> impl Strategy<Value = SlotId> {
    prop_oneof![4 => (0u64..8).prop_map(|n| SlotId::numbered(names::cluster(), n)), 1 => (0u64..4).prop_map(names::stray)]
}

fn command() -> impl Strategy<Value = Command> {
    let runner = || (0usize..6).prop_map(names::runner);
    let workload = || (0u64..12).prop_map(names::workload);
    let attempt = || small().prop_map(Attempt::new);
    let reason = || prop_oneof![Just(name("")), Just(name("   ")), Just(name("gone"))];
    let model = || (0usize..10).prop_map(names::model);
    let operator = prop_oneof![
        runner().prop_map(|runner| Command::CordonRunner { runner }),
        runner().prop_map(|runner| Command::UncordonRunner { runner }),
        (runner(), span()).prop_map(|(runner, deadline)| Command::DrainRunner { runner, deadline }),
        (runner(), reason()).prop_map(|(runner, reason)| Command::ForgetRunner { runner, reason }),
        uuid().prop_map(|uuid| Command::CordonDevice { uuid }),
        uuid().prop_map(|uuid| Command::UncordonDevice { uuid }),
        slot().prop_map(|slot| Command::StopSlot { slot }),
        (slot(), reason()).prop_map(|(slot, reason)| Command::ForceRelease { slot, reason }),
        any::<bool>().prop_map(|other| Command::Start {
            cluster: if other { names::other_cluster() } else { names::cluster() },
            tag: EpochTag::default(),
        }),
        Just(Command::Restore),
        reason().prop_map(|reason| Command::ContinueHistory { reason }),
    ];
    prop_oneof![
        1 => Just(Command::Tick),
        4 => (workload(), submission(), limits())
            .prop_map(|(workload, submission, limits)| Command::Submit { workload, submission, limits }),
        1 => workload().prop_map(|workload| Command::Cancel { workload }),
        1 => (workload(), attempt()).prop_map(|(workload, attempt)| Command::Heartbeat { workload, attempt }),
        1 => (workload(), attempt(), any::<bool>())
            .prop_map(|(workload, attempt, succeeded)| Command::Complete { workload, attempt, succeeded }),
        3 => spec().prop_map(|spec| Command::PutModel { spec: Box::new(spec) }),
        1 => model().prop_map(|model| Command::DeleteModel { model }),
        6 => report().prop_map(|report| Command::Report(Box::new(report))),
        1 => (runner(), number(), obeyed())
            .prop_map(|(runner, n, obeyed)| Command::Poll { runner, incarnation: Incarnation::new(n), obeyed }),
        3 => operator,
    ]
}

fn submission() -> impl Strategy<Value = Submission> {
    let key = prop::option::of((0u8..3).prop_map(|key| name(&format!("key-{key}"))));
    let priority = prop_oneof![Just(0), Just(i32::MIN), Just(i32::MAX)];
    (0usize..10, any::<bool>(), priority, span(), span(), key, any::<bool>()).prop_map(
        |(model, job, priority, ttl, queue_timeout, idempotency_key, restart_on_lost)| Submission {
            model: names::model(model),
            kind: if job { WorkloadKind::Job } else { WorkloadKind::Lease },
            priority: Priority::new(priority),
            tenant: None,
            // One of three, so that owners have several workloads and some workloads have no owner.
            owner: [None, Some(name("owner-1")), Some(name("owner-2"))][model % 3].clone(),
            ttl,
            queue_timeout,
            job: JobSpec { args: Vec::new(), restart_on_lost, max_run: ttl },
            idempotency_key,
        },
    )
}

fn limits() -> impl Strategy<Value = Option<OwnerLimits>> {
    prop::option::of((0u32..4, 0u32..4).prop_map(|(queued, running)| OwnerLimits { queued, running }))
}

fn memory() -> impl Strategy<Value = Memory> {
    let ranks =
        prop_oneof![size().prop_map(RankMemory::Even), prop::collection::vec(size(), 0..4).prop_map(RankMemory::Ranks)];
    let count = prop_oneof![0u16..5, Just(64), Just(u16::MAX)].prop_map(GpuCount::new);
    let per_gpu = prop::collection::vec((count, ranks), 0..3)
        .prop_map(|list| Memory::PerGpu(list.into_iter().collect::<BTreeMap<_, _>>()));
    let fraction = prop_oneof![Just(1u32), Just(Fraction::WHOLE), 1u32..Fraction::WHOLE];
    prop_oneof![
        size().prop_map(Memory::Total),
        per_gpu,
        fraction.prop_filter_map("a fraction", Fraction::from_millionths).prop_map(Memory::Fraction),
    ]
}

fn spec() -> impl Strategy<Value = ModelSpec> {
    let counts = prop::collection::btree_set(prop_oneof![4 => 0u16..5, 1 => Just(64), 1 => Just(u16::MAX)], 0..3);
    // More than a few slots at least are either refused or a fleet of their own.
    let replicas = (prop_oneof![6 => 0u32..3, 1 => Just(u32::MAX)], prop::option::of(small()), any::<bool>());
    let host = (prop_oneof![number(), Just(0)], size());
    (0usize..10, prop::option::of(memory()), counts, any::<bool>(), small(), replicas, host, span(), span()).prop_map(
        |(n, stated, counts, exclusive, concurrency, (min, max, pinned), (cpu, ram), keep_alive, min_run)| {
            let memory = MemorySource { stated, prefer_estimate: true, ..MemorySource::default() };
            ModelSpec {
                gpu_counts: counts.into_iter().map(GpuCount::new).collect::<BTreeSet<_>>(),
                exclusive,
                concurrency,
                replicas: Replicas { min, max, pinned },
                cpu: Millicores::new(cpu),
                ram,
                keep_alive,
                min_run,
                ..ModelSpec::new(names::model(n), name("vllm"), memory)
            }
        },
    )
}

fn gpu() -> impl Strategy<Value = GpuReport> {
    let health = prop_oneof![4 => Just(GpuHealth::Ok), 1 => Just(GpuHealth::Lost), 1 => Just(GpuHealth::Failed)];
    let reserved = prop_oneof![3 => Just(Bytes::ZERO), 1 => size()];
    (uuid(), any::<u16>(), size(), size(), reserved, prop::option::weighted(0.2, uuid()), health).prop_map(
        |(uuid, index, memory_total, memory_used, memory_reserved, parent, health)| GpuReport {
            uuid,
            index,
            name: name("A100"),
            memory_total,
            memory_used,
            memory_reserved,
            parent,
            health,
        },
    )
}

fn reported() -> impl Strategy<Value = ReportedState> {
    let evidence = (any::<bool>(), any::<bool>())
        .prop_map(|(tree_gone, driver_clear)| (SlotEnd::Exited(0), Evidence { tree_gone, driver_clear }))
        .prop_map(|(why, evidence)| ReportedState::Gone { why, evidence });
    prop_oneof![
        Just(ReportedState::Starting),
        Just(ReportedState::Ready),
        Just(ReportedState::Stopping),
        Just(ReportedState::Failed(FailureReason::Unkillable)),
        Just(ReportedState::Failed(FailureReason::OutOfMemory)),
        any::<i32>().prop_map(|code| ReportedState::Exited { code }),
        Just(ReportedState::Refused),
        Just(ReportedState::Unknown { why: name("lost") }),
        evidence,
    ]
}

fn exit() -> impl Strategy<Value = Option<ExitStatus>> {
    let any = any::<i32>()
        .prop_flat_map(|number| prop_oneof![Just(ExitStatus::Code(number)), Just(ExitStatus::Signal(number))]);
    prop::option::of(any)
}

fn slot_report() -> impl Strategy<Value = SlotReport> {
    let claims = prop::collection::vec((uuid(), size()).prop_map(|(uuid, bytes)| ReportedClaim { uuid, bytes }), 0..3);
    let seen = (uuid(), size(), size()).prop_map(|(uuid, used, peak)| ReportedMemory { uuid, used, peak });
    (slot(), small(), reported(), claims, prop::collection::vec(seen, 0..3), exit()).prop_map(
        |(id, generation, state, claims, memory, exit)| SlotReport {
            id,
            generation: Generation::new(generation),
            model: None,
            state,
            exit,
            endpoint: None,
            claims,
            memory,
        },
    )
}

/// Answers that an agent may say it obeyed: of this server, of another copy of it, or forged.
fn obeyed() -> impl Strategy<Value = Option<ObeyedAnswer>> {
    let point = (0u64..6, 0u32..2, 0u64..200).prop_map(|(epoch, tag, revision)| {
        let (epoch, tag) = (Epoch::new(epoch), EpochTag::new(tag));
        Some(ObeyedAnswer::Verified(HistoryPoint { epoch, tag, revision: Revision::new(revision) }))
    });
    prop_oneof![8 => Just(None), 1 => Just(Some(ObeyedAnswer::Invalid)), 2 => point]
}

fn report() -> impl Strategy<Value = RunnerReport> {
    let who = (0usize..6, prop::option::of(number()), number(), 0usize..4, 0u8..4);
    let what = (number(), size(), prop::collection::vec(gpu(), 0..5), prop::collection::vec(slot_report(), 0..4));
    (who, what, any::<bool>(), obeyed()).prop_map(
        |((runner, incarnation, sequence, machine, boot), (cpu, ram, gpus, slots), other, obeyed)| RunnerReport {
            runner: names::runner(runner),
            incarnation: incarnation.map(Incarnation::new),
            cluster: other.then(names::other_cluster),
            obeyed,
            shares_machine: runner % 2 == 0,
            sequence: Sequence::new(sequence),
            machine: names::machine(machine),
            boot: name(&format!("boot-{boot}")),
            version: name(""),
            address: name(""),
            pool: name("default"),
            labels: BTreeMap::new(),
            allowed: BTreeMap::new(),
            engines: BTreeMap::new(),
            runtimes: BTreeMap::from([(name("vllm"), RuntimeKind::Both)]),
            host: HostReport { cpu: Millicores::new(cpu), ram },
            gpus,
            slots,
        },
    )
}
