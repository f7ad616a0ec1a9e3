//! The audit log: every change and every refusal with its caller, and a change of the log itself is noticed.
#![expect(clippy::unwrap_used, reason = "what these read on the way to a test is there, or the test has failed")]

use std::path::{Path, PathBuf};

use berth_tests::service::{Api, Printed, Server, at_once, cli, eventually};
use serde_json::{Value, json};

fn verify(server: &Server) -> Printed {
    verify_in(&server.api(), server.data_dir(), &[])
}

fn verify_in(api: &Api, data_dir: &Path, more: &[&str]) -> Printed {
    let mut args = vec!["audit", "verify", "--data-dir", data_dir.to_str().unwrap()];
    args.extend(more);
    cli(api, &args)
}

/// A server that stopped, with some lines on record.
fn recorded(lines: usize) -> (Server, PathBuf) {
    let mut server = Server::start();
    let admin = server.api().with_token(&server.api().token("ops", "admin", None));
    (1..lines).for_each(|number| admin.model(&format!("model-{number}"), json!({ "memory": "1GiB" })));
    assert!(server.terminate().success());
    let file = server.data_dir().join("audit.jsonl");
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), lines);
    (server, file)
}

#[test]
fn a_whole_log_is_whole_while_the_server_runs_and_after_it() {
    let mut server = Server::start();
    let secret = server.api().token("ops", "admin", None);
    let admin = server.api().with_token(&secret);
    admin.model("chat", json!({ "memory": "1GiB" }));
    let printed = verify(&server).ok();
    assert!(printed.contains("whole: 2 lines from 1 to 2 in 1 files"), "{printed}");
    server.kill();
    server.restart();
    admin.model("chat", json!({ "memory": "2GiB" }));
    let printed = verify(&server).ok();
    assert!(printed.contains("3 lines from 1 to 3"), "{printed}");
    let listed = cli(&admin, &["--token", &secret, "audit"]);
    assert!(listed.ok().contains("create_token"), "the list still works");
}

#[test]
fn lines_that_were_changed_removed_added_or_moved_are_found() {
    type Tamper = fn(&mut Vec<String>);
    let tampers: [(&str, Tamper, &str); 8] = [
        ("a changed word", |lines| lines[2] = lines[2].replace("model-2", "model-X"), "line 3: the line was changed"),
        ("a removed line", |lines| drop(lines.remove(2)), "lines 3 to 3 of the log are missing"),
        ("the first line removed", |lines| drop(lines.remove(0)), "older lines are missing"),
        ("two lines swapped", |lines| lines.swap(2, 3), "missing before this one"),
        ("the last line removed", |lines| drop(lines.pop()), "ends with line 5, but line 6 was written"),
        ("all lines removed", |lines| lines.clear(), "ends with line 0, but line 6 was written"),
        ("a line twice", |lines| lines.insert(3, lines[2].clone()), "line 3 of the log stands where line 4 belongs"),
        ("a line of somebody else's", |lines| lines.insert(3, "{\"by\":\"me\"}".into()), "no line of the audit log"),
    ];
    for (what, tamper, said) in tampers {
        let (server, file) = recorded(6);
        let mut lines: Vec<String> = std::fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
        tamper(&mut lines);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, text).unwrap();
        let printed = verify(&server);
        assert_eq!(printed.status, 1, "{what}: {}", printed.out);
        assert!(printed.out.contains(said) && printed.out.contains("NOT whole"), "{what}: {}", printed.out);
    }
}

#[test]
fn a_log_cut_in_the_middle_of_a_line_and_a_missing_head_are_found() {
    let (server, file) = recorded(5);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 10]).unwrap();
    let printed = verify(&server);
    assert!(printed.status == 1 && printed.out.contains("line 5 was written"), "{}", printed.out);
    std::fs::write(&file, &bytes).unwrap();
    let _ = verify(&server).ok();
    std::fs::remove_file(server.data_dir().join("audit.head")).unwrap();
    let printed = verify(&server);
    assert!(printed.status == 1 && printed.out.contains("audit.head"), "{}", printed.out);
}

#[test]
fn a_line_that_a_witness_saw_must_be_there() {
    let (server, file) = recorded(5);
    // The log of the server is a witness on another machine, perhaps.
    let log = server.log();
    let seen: Vec<&str> = log.lines().filter_map(|line| line.split(" line=").nth(1)).collect();
    let fifth = seen.iter().find(|line| line.starts_with("5:")).unwrap().trim();
    let _ = verify_in(&server.api(), server.data_dir(), &["--known", fifth]).ok();
    // A process that may write the files cuts the log and makes the head fit.
    let text = std::fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = text.lines().take(4).collect();
    std::fs::write(&file, format!("{}\n", kept.join("\n"))).unwrap();
    let fourth: Value = serde_json::from_str(kept[3]).unwrap();
    let head = format!("{:020}:{}\n", 4, fourth["hash"].as_str().unwrap());
    std::fs::write(server.data_dir().join("audit.head"), head).unwrap();
    let _ = verify(&server).ok();
    let printed = verify_in(&server.api(), server.data_dir(), &["--known", fifth]);
    assert!(printed.status == 1 && printed.out.contains("line 5 was written"), "{}", printed.out);
}

#[test]
fn a_server_that_starts_on_a_damaged_log_says_so_and_does_not_hide_it() {
    let (mut server, file) = recorded(6);
    let text = std::fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = text.lines().take(4).collect();
    std::fs::write(&file, format!("{}\n", kept.join("\n"))).unwrap();
    server.restart();
    assert!(server.log().contains("lines 5 to 6 are missing"), "{}", server.log());
    let printed = verify(&server);
    assert!(printed.status == 1 && printed.out.contains("lines 5 to 6 of the log are missing"), "{}", printed.out);
}

#[test]
fn a_line_that_a_crash_tore_does_not_break_the_chain() {
    let (mut server, file) = recorded(3);
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("{\"seq\":4,\"prev\":\"00");
    std::fs::write(&file, text).unwrap();
    let printed = verify(&server).ok();
    assert!(printed.contains("not complete"), "{printed}");
    server.restart();
    let _ = server.api().get("/api/v1/tokens").is(401);
    eventually("the refusal is on record", || verify(&server).ok().contains("4 lines").then_some(()));
}

#[test]
fn the_chain_goes_on_over_files_and_the_oldest_are_removed_by_rule() {
    let server = Server::with(&["audit.file_size=64KiB", "audit.files=3"]);
    let admin = server.api().with_token(&server.api().token("ops", "admin", None));
    let files = || {
        let names = std::fs::read_dir(server.data_dir()).unwrap();
        let mut names: Vec<PathBuf> = names.map(|entry| entry.unwrap().path()).collect();
        names.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
        names.sort();
        names
    };
    let reason = "x".repeat(1000);
    let cordon = || {
        // Refused, and on record all the same.
        let path = "/api/v1/scheduler/slots/018f3b1c-7c2e-7d41-8000-000000000007/force-release";
        let _ = admin.post(path, &json!({ "reason": reason })).is(404);
    };
    (0..150).for_each(|_| cordon());
    assert_eq!(files().len(), 3);
    let printed = verify(&server).ok();
    assert!(printed.contains("in 3 files"), "{printed}");
    // More, so that some were removed by the server itself.
    (0..150).for_each(|_| cordon());
    assert_eq!(files().len(), 3);
    let printed = verify(&server).ok();
    assert!(!printed.contains("from 1 to"), "the oldest are gone: {printed}");
    let audit = admin.get("/api/v1/audit").is(200);
    assert!(audit.rows().iter().any(|row| row["action"] == "audit_remove"), "the log says so");

    let kept = files();
    let oldest = std::fs::read(&kept[0]).unwrap();
    std::fs::remove_file(&kept[0]).unwrap();
    let printed = verify(&server);
    assert!(printed.status == 1 && printed.out.contains("older lines are missing"), "{}", printed.out);
    std::fs::write(&kept[0], &oldest).unwrap();
    let second = std::fs::read(&kept[1]).unwrap();
    std::fs::remove_file(&kept[1]).unwrap();
    let printed = verify(&server);
    assert!(printed.status == 1 && printed.out.contains("of the log are missing"), "{}", printed.out);
    // Two whole files in each other's place.
    std::fs::write(&kept[0], &second).unwrap();
    std::fs::write(&kept[1], &oldest).unwrap();
    let printed = verify(&server);
    assert_eq!(printed.status, 1, "{}", printed.out);
}

#[test]
fn refused_requests_are_on_record_but_cannot_fill_the_disk() {
    let server = Server::with(&["audit.refused_per_minute=12"]);
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let viewer = open.with_token(&admin.token("nosy", "viewer", None));
    let _ = open.get("/api/v1/workloads?secret=query").is(401);
    let _ = viewer.delete("/api/v1/tokens/018f3b1c-7c2e-7d41-8000-000000000007").is(403);
    let refused = |rows: &[Value]| rows.iter().filter(|row| row["action"] == "refused").cloned().collect::<Vec<_>>();
    let rows = refused(admin.get("/api/v1/audit").is(200).rows());
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!((&rows[0]["by"], &rows[0]["outcome"]), (&json!("127.0.0.1"), &json!("unauthenticated")));
    assert_eq!(rows[0]["target"], "GET /api/v1/workloads", "a query may have secrets");
    assert_eq!((&rows[1]["by"], &rows[1]["role"]), (&json!("nosy"), &json!("viewer")));
    assert_eq!(
        (&rows[1]["outcome"], &rows[1]["target"]),
        (&json!("forbidden"), &json!("DELETE /api/v1/tokens/018f3b1c-7c2e-7d41-8000-000000000007"))
    );
    // Another method than the path has is a refusal, too.
    assert_eq!(open.ask("PATCH", "/api/v1/workloads").send().status, 401);
    let _ = at_once(0..40, |_| (0..10).map(|_| open.get("/api/v1/workloads").status).collect::<Vec<_>>());
    let rows = refused(admin.get("/api/v1/audit").is(200).rows());
    assert!((3..=12).contains(&rows.len()), "{} lines", rows.len());
    let _ = verify(&server).ok();
}
