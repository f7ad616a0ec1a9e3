//! The journal (S2 to S4): torn and damaged files, one server for one directory, full disks, snapshots.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::service::{Api, FakeAgent, GIB, Options, Reply, Server, at_once, eventually, ledgers};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The segments of a journal, oldest first.
fn segments(data_dir: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(data_dir.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> = list.filter(|path| path.extension().is_some_and(|ext| ext == "log")).collect();
    segments.sort();
    segments
}

/// Up to where a segment was written.
fn written(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// All workloads, by id.
fn ids(api: &Api) -> BTreeSet<String> {
    api.get("/api/v1/workloads").is(200).rows().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// A server that was killed after a few submissions, and their ids.
fn killed() -> (Server, Vec<String>) {
    let mut server = Server::start();
    let api = server.api();
    api.model("chat", json!({ "memory": "20GiB" }));
    let ids = (0..5).map(|_| api.lease("chat").is(201).id()).collect();
    server.kill();
    (server, ids)
}

#[test]
fn s2_a_torn_last_record_is_cut_and_the_rest_is_there() {
    let (mut server, submitted) = killed();
    let last = segments(server.data_dir()).pop().unwrap();
    let whole = std::fs::read(&last).unwrap();
    // What a crash leaves: the last batch lacks its end, or something was begun after it.
    std::fs::write(&last, &whole[..written(&whole) - 5]).unwrap();
    server.restart();
    let api = server.api();
    assert!(server.log().contains("torn"), "the operator is told: {}", server.log());
    assert_eq!(ids(&api), submitted[..4].iter().cloned().collect(), "only the torn one is missing");
    let next = api.lease("chat").is(201).id();
    server.kill();

    let last = segments(server.data_dir()).pop().unwrap();
    let mut bytes = std::fs::read(&last).unwrap();
    let end = written(&bytes).next_multiple_of(8);
    bytes.resize(bytes.len().max(end + 4096), 0);
    bytes[end..end + 21].copy_from_slice(b"BTCHnever acknowledge");
    std::fs::write(&last, &bytes).unwrap();
    server.restart();
    assert!(server.log().contains("torn"), "{}", server.log());
    assert_eq!(ids(&api), submitted[..4].iter().chain([&next]).cloned().collect());
}

#[test]
fn s2_damage_in_the_middle_is_refused_and_nothing_is_touched() {
    let (mut server, submitted) = killed();
    let file = segments(server.data_dir()).pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let middle = whole.windows(36).position(|bytes| bytes == submitted[1].as_bytes()).unwrap();
    let mut damaged = whole.clone();
    damaged[middle] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let refused = server.try_restart().unwrap_err();
    assert!(!refused.status.success());
    for word in ["damaged", file.to_str().unwrap(), "backup"] {
        assert!(refused.log.contains(word), "{word} is not in: {}", refused.log);
    }
    assert_eq!(std::fs::read(&file).unwrap(), damaged, "it is left for whoever looks into it");
    std::fs::write(&file, &whole).unwrap();
    server.restart();
    assert_eq!(ids(&server.api()), submitted.into_iter().collect(), "the backup is as good as ever");
}

#[test]
fn s3_a_second_server_on_one_directory_is_refused() {
    let server = Server::start();
    let refused = server.options().try_start().unwrap_err();
    assert!(!refused.status.success());
    let (directory, pid) = (server.data_dir().to_str().unwrap(), server.pid().to_string());
    assert!(refused.log.contains(directory) && refused.log.contains(&pid), "{}", refused.log);
    let _ = server.api().get("/healthz").is(200);
}

#[test]
fn s3_a_newer_format_is_refused() {
    let (mut server, submitted) = killed();
    let file = segments(server.data_dir()).pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let mut newer = whole.clone();
    newer[8] += 1;
    let checksum = crc32fast::hash(&newer[..60]).to_le_bytes();
    newer[60..64].copy_from_slice(&checksum);
    std::fs::write(&file, &newer).unwrap();
    let refused = server.try_restart().unwrap_err();
    assert!(!refused.status.success());
    assert!(
        refused.log.contains(&format!("format {}", berth_store::FORMAT + 1)) && refused.log.contains("upgrade"),
        "{}",
        refused.log
    );
    assert_eq!(std::fs::read(&file).unwrap(), newer);
    std::fs::write(&file, &whole).unwrap();
    server.restart();
    assert_eq!(ids(&server.api()).len(), submitted.len());
}

/// So many kilobytes of arguments that any job may pass.
fn large_arguments(count: usize) -> Vec<String> {
    let text = "x".repeat(1000);
    (0..count).map(|number| if number % 2 == 0 { "--response-role".to_owned() } else { text.repeat(2) }).collect()
}

/// Submits jobs until there is no room left for even the smallest. Returns those that were acknowledged, and the last
/// refusal.
fn submit_until_full(api: &Api) -> (Vec<String>, Reply) {
    let mut taken = Vec::new();
    let mut refused = None;
    // Large ones first, so that it does not take long.
    for arguments in [100, 10, 0] {
        let args = large_arguments(arguments);
        let body = json!({ "model": "chat", "kind": "job", "job": { "args": args } });
        loop {
            let reply = api.post("/api/v1/workloads", &body);
            if reply.status != 201 {
                refused = Some(reply);
                break;
            }
            taken.push(reply.id());
            assert!(taken.len() < 5000, "it never gets full");
        }
    }
    (taken, refused.unwrap())
}

/// A full disk, whatever filled it: `make_room` makes room again.
fn full_disk(mut server: Server, make_room: impl FnOnce(&mut Server)) {
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    agent.proves_at_once = false;
    api.model("held", json!({ "memory": "80GiB" }));
    api.model("chat", json!({ "memory": "80GiB" }));
    let running = api.lease("held").is(201).id();
    let job = api.job("chat").is(201).id();
    agent.obey_all();
    let _ = api.complete(&running, 1).is(200);

    let (taken, refused) = submit_until_full(&api);
    assert_eq!((refused.status, refused.code()), (503, "no_space"), "{}", refused.text);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(api.put("/api/v1/models/new", &json!({ "runtime": "vllm" })).is(503).code(), "no_space");
    // Reads go on.
    let expected: BTreeSet<String> = taken.iter().chain([&running, &job]).cloned().collect();
    assert_eq!(ids(&api), expected);
    let ready = api.get("/readyz").is(503);
    assert!(ready.body["reasons"][0].as_str().unwrap().contains("no room"));
    let _ = api.get("/healthz").is(200);
    // So does what gives memory back: the slot that was evicted for the job is proven gone, and the job gets it.
    let slot = api.workload(&job)["slot"]["id"].as_str().unwrap().to_owned();
    agent.obey_all();
    agent.prove();
    agent.obey_all();
    assert_eq!(api.state(&job), "running");
    assert_eq!(agent.slots.keys().collect::<Vec<_>>(), [&slot]);
    assert_eq!(api.cancel(&taken[0]).is(200).body["state"], "cancelled");
    let _ = ledgers::checked(&api);

    // Nothing that was acknowledged is lost.
    server.kill();
    server.restart();
    assert_eq!(ids(&api), expected);
    assert_eq!((api.state(&job), api.state(&taken[0])), ("running".to_owned(), "cancelled".to_owned()));

    make_room(&mut server);
    eventually("writes are taken again", || (api.lease("chat").status == 201).then_some(()));
    assert_eq!(api.get("/readyz").is(200).body["ready"], true);
    assert!(ids(&api).is_superset(&expected));
}

#[test]
fn s2_at_the_size_limit_of_the_journal_writes_are_refused_and_reads_go_on() {
    let set = ["journal.segment=1MiB", "journal.spare=1MiB", "scheduler.min_run=0s"];
    let server = Options::default().set(&set).set(&["journal.limit=5MiB"]).start();
    full_disk(server, |server| {
        assert!(server.terminate().success());
        server.restart_with(server.options().set(&["journal.limit=50MiB"]));
    });
}

/// A small disk of its own. It is gone with this.
struct SmallDisk {
    at: TempDir,
}

impl SmallDisk {
    /// None where mounting is not allowed.
    fn mount(size: &str) -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at.path()).output();
        output.is_ok_and(|output| output.status.success()).then_some(Self { at })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(self.at.path()).status();
    }
}

#[test]
fn s2_on_a_full_disk_writes_are_refused_and_reads_go_on() {
    // Only root may mount; the test above proves the same on a limit.
    let Some(disk) = SmallDisk::mount("8m") else {
        eprintln!("not run: no disk can be mounted here");
        return;
    };
    // A foreign file fills a part of the disk, and is removed later.
    let ballast = disk.at.path().join("ballast");
    std::fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let set = ["journal.segment=1MiB", "journal.spare=1MiB", "scheduler.min_run=0s"];
    let server = Options::default().data_dir(&disk.at.path().join("data")).set(&set).start();
    full_disk(server, |_| std::fs::remove_file(&ballast).unwrap());
}

/// A server that starts on a full disk says so before any other request.
#[test]
fn s2_a_restart_on_a_full_disk_is_not_ready() {
    let Some(disk) = SmallDisk::mount("8m") else {
        eprintln!("not run: no disk can be mounted here");
        return;
    };
    let set = ["journal.segment=1MiB", "journal.spare=1MiB"];
    let mut server = Options::default().data_dir(&disk.at.path().join("data")).set(&set).start();
    let api = server.api();
    api.model("chat", json!({ "memory": "80GiB" }));
    // A foreign file takes all that is left on the disk, and submissions what the journal has already.
    let ballast = disk.at.path().join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    drop(file);
    let body = json!({ "model": "chat", "kind": "job", "job": { "args": large_arguments(100) } });
    let submit = || api.ask("POST", "/api/v1/workloads").json(&body).send().status;
    assert!((0..100).any(|_| submit() == 503), "100 x 100 KB fit into 8 MiB");
    while api.lease("chat").status == 201 {}
    let _ = api.get("/readyz").is(503);
    server.kill();
    server.restart();
    let said = api.get("/readyz").is(503);
    assert!(said.body["reasons"][0].as_str().unwrap().contains("no room"), "{:?}", said.body);
    std::fs::remove_file(&ballast).unwrap();
    eventually("it is ready again", || {
        let _ = api.get("/scheduler/queue");
        (api.get("/readyz").status == 200).then_some(())
    });
}

/// The room that is reserved before a batch is decided is a guess. A batch that is larger must not be the end.
#[test]
fn s2_more_than_was_reserved_is_refused_too_and_does_not_end_the_server() {
    let set = ["journal.segment=1MiB", "journal.spare=1MiB", "journal.limit=6MiB"];
    let mut server = Server::with(&set);
    let api = server.api();
    api.model("chat", json!({ "memory": "80GiB" }));
    let body = json!({ "model": "chat", "kind": "job", "job": { "args": large_arguments(900) } });
    let replies: Vec<Option<Reply>> =
        at_once(0..24, |_| api.ask("POST", "/api/v1/workloads").json(&body).try_send().ok());
    let statuses: Vec<u16> = replies.iter().map(|reply| reply.as_ref().map_or(0, |reply| reply.status)).collect();
    assert!(statuses.iter().all(|status| [201, 503].contains(status)), "{statuses:?}: {}", server.log());
    assert!(statuses.contains(&503), "24 MB do not fit into 6: {statuses:?}");
    let taken: BTreeSet<String> = replies.iter().flatten().filter(|reply| reply.status == 201).map(Reply::id).collect();
    assert_eq!(ids(&api), taken);
    server.kill();
    server.restart();
    assert_eq!(ids(&api), taken);
}

#[test]
fn s4_a_snapshot_and_what_comes_after_it_are_the_same_listing() {
    let set = [
        "journal.segment=1MiB",
        "journal.snapshot_after=100KiB",
        "log.filter=warn,berth::serve=info,berth_server=info",
    ];
    let mut server = Server::with(&set);
    let api = server.api();
    let agents: Vec<FakeAgent> =
        (0..4).map(|number| FakeAgent::new(&api, &format!("box-{number}"), &[80 * GIB; 2]).registered()).collect();
    api.model("chat", json!({ "memory": "20GiB", "concurrency": 4 }));
    api.model("small", json!({ "gpu_counts": [0], "cpu_millicores": 1 }));
    let _ = at_once(0..16, |number| {
        for turn in 0..200 {
            let model = if turn % 10 == 0 { "chat" } else { "small" };
            let kind = if model == "chat" { "lease" } else { "job" };
            let id =
                api.post("/api/v1/workloads", &json!({ "model": model, "kind": kind, "tenant": "acme" })).is(201).id();
            if (turn + number) % 3 == 0 {
                let _ = api.cancel(&id).is(200);
            }
        }
    });
    eventually("a snapshot", || server.log().contains("a snapshot was made").then_some(()));
    (0..10).for_each(|_| drop(api.lease("chat").is(201)));
    let listing = |path: &str| {
        let mut rows = api.get(path).is(200).body;
        for row in rows.as_array_mut().unwrap().iter_mut().map(|row| row.as_object_mut().unwrap()) {
            // Judged anew: nothing can be placed before the first report.
            if row.get("state") == Some(&json!("queued")) {
                row.remove("reason");
                row.remove("revision");
            }
        }
        rows
    };
    let all = || -> [Value; 4] {
        ["/api/v1/workloads", "/scheduler/slots", "/api/v1/models", "/api/v1/runners"].map(&listing)
    };
    let (before, queue) = (all(), api.get("/scheduler/queue").is(200).rows().len());
    assert_eq!(before[0].as_array().unwrap().len(), 3210);
    server.kill();
    server.restart();
    let after = all();
    assert!(before[0] == after[0], "workloads differ after a restart");
    assert!(before[1] == after[1], "slots differ after a restart");
    assert_eq!(before[2], after[2]);
    assert_eq!(after[3].as_array().unwrap().len(), agents.len());
    assert_eq!(api.get("/scheduler/queue").is(200).rows().len(), queue);
    let read = server.log().lines().find(|line| line.contains("the journal is read")).unwrap_or_default().to_owned();
    assert!(!read.contains(" snapshot=0 "), "it began with a snapshot: {read}");
    let _ = ledgers::checked(&api);
}
