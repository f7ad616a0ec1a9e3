//! Safe by default on a machine that several people use: the first start makes an admin's token, the command line of the
//! same user finds it, and no other user does.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use berth_tests::service::{Options, Server, berth, cli};

/// A user that nothing on the machine belongs to.
const STRANGER: u32 = 3_000_000_019;

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn secret(server: &Server) -> String {
    std::fs::read_to_string(server.data_dir().join("admin.token")).unwrap().trim().to_owned()
}

#[test]
fn the_first_start_makes_an_admin_token_and_every_request_needs_one() {
    let mut server = Options::default().making_a_token().start();
    let open = server.api();
    for (method, path) in
        [("GET", "/api/v1/workloads"), ("PUT", "/api/v1/runners/box/report"), ("POST", "/api/v1/tokens")]
    {
        assert_eq!(open.ask(method, path).send().status, 401, "{method} {path}");
    }
    let file = server.data_dir().join("admin.token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let made = secret(&server);
    let listed = open.with_token(&made).get("/api/v1/tokens").is(200);
    assert_eq!(listed.rows().len(), 1);
    assert_eq!((&listed.rows()[0]["name"], &listed.rows()[0]["role"]), (&"admin".into(), &"admin".into()));
    assert!(!server.log().contains(&made), "the log names the file and not the secret");
    assert!(server.log().contains("admin.token"), "{}", server.log());
    // The next start makes no other one, and a revoked one is not made anew.
    server.kill();
    server.restart();
    assert_eq!(secret(&server), made);
    let _ = open.with_token(&made).get("/api/v1/workloads").is(200);
}

#[test]
fn the_command_line_of_the_same_user_needs_no_token_for_its_own_server() {
    let mut server = Options::default().making_a_token().start();
    let _ = cli(&server.api(), &["runners"]).ok();
    let made = secret(&server);
    // A token that is given goes before the one that is found.
    let refused = cli(&server.api(), &["--token", "berth_wrong", "runners"]);
    assert!(refused.status != 0 && refused.err.contains("token"), "{}", refused.err);
    // Once the admin's token is gone from the data directory, the command line does not find it.
    std::fs::remove_file(server.data_dir().join("admin.token")).unwrap();
    assert!(server.terminate().success());
    server.restart();
    let refused = cli(&server.api(), &["runners"]);
    assert!(refused.status != 0 && refused.err.contains("token"), "{}", refused.err);
    let _ = server.api().with_token(&made).get("/api/v1/workloads").is(200);
}

#[test]
fn another_user_of_the_machine_is_not_authenticated() {
    if !is_root() {
        return;
    }
    let server = Options::default().making_a_token().start();
    let here = tempfile::tempdir().unwrap();
    std::fs::set_permissions(here.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = here.path().join("berth");
    std::fs::copy(berth(), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["--server", &server.api().base(), "runners"]).env_remove("XDG_RUNTIME_DIR").current_dir("/");
    let output = command.uid(STRANGER).gid(STRANGER).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("token"), "{said}");
    for path in ["admin.token", "tokens.json"] {
        let read = Command::new("cat").arg(server.data_dir().join(path)).uid(STRANGER).gid(STRANGER).output().unwrap();
        assert!(!read.status.success(), "{path}");
    }
}

#[test]
fn a_token_does_not_go_to_another_user_who_took_the_port_of_a_dead_server() {
    if !is_root() {
        return;
    }
    let mut server = Options::default().making_a_token().start();
    let (api, port) = (server.api(), server.address().rsplit(':').next().unwrap().to_owned());
    let made = secret(&server);
    let _ = cli(&api, &["runners"]).ok();
    // Killed, so that what it announced is still there.
    server.kill();
    let script = "import socket,sys\n\
        s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
        s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print('listens', flush=True)\n\
        c,_=s.accept(); print(c.recv(65536).decode().replace('\\r\\n', ' | '), flush=True)\n";
    let mut squatter = Command::new("python3");
    let mut squatter = squatter
        .args(["-c", script, &port])
        .uid(STRANGER)
        .gid(STRANGER)
        .current_dir("/")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(squatter.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "listens");
    let refused = cli(&api, &["runners"]);
    assert_ne!(refused.status, 0);
    let heard = lines.next().unwrap();
    squatter.wait().unwrap();
    assert!(heard.contains("GET /api/v1/runners"), "{heard}");
    assert!(!heard.contains(&made) && !heard.to_lowercase().contains("authorization"), "{heard}");
}

#[test]
fn an_open_server_is_one_that_was_asked_for_by_name() {
    let server = Server::start();
    let _ = server.api().get("/api/v1/workloads").is(200);
    assert!(!server.data_dir().join("admin.token").exists());
    let refused = Options::default().listen("0.0.0.0:0").try_start().unwrap_err();
    assert!(refused.log.contains("anyone_on_this_machine_is_admin"), "{}", refused.log);
}
