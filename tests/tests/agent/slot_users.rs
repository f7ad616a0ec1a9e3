//! Slots are not the agent: a slot whose runtime names a `user` runs as that user, and finds nothing of the agent.
//!
//! Only root can start processes as another user. Where the tests run as another user they hold the agent to what it
//! says then: slots share its user, and another `user` is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use berth_tests::fleet::{Agent, Fleet, Machine, Model, Plan};
use berth_tests::service::eventually;
use serde_json::json;

/// A user that every machine has and that owns nothing.
const NOBODY: &str = "nobody";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A runtime that runs a shell script. Braces are the template's, so those of the script are doubled.
fn script(plan: Plan, text: &str) -> Plan {
    plan.runtime("probe", &["sh", "-c", &text.replace('{', "{{").replace('}', "}}")])
}

/// Writes a token of the agent into a file. From now on the server asks every client for one, the test too.
fn write_token(fleet: &mut Fleet, agent: &str, path: &Path, mode: u32) {
    let admin = fleet.api.token("admin", "admin", None);
    fleet.api = fleet.api.with_token(&admin);
    fs::write(path, fleet.api.token("agent", "runner", Some(agent))).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// What the only slot of an agent wrote, once it has written `DONE`.
fn said(agent: &Agent, slot: &str) -> String {
    let log = agent.data_dir().join("logs").join(slot).join("1.log");
    eventually(&format!("{} is complete: {}", log.display(), agent.log()), || {
        let text = fs::read_to_string(&log).ok()?;
        text.contains("DONE").then_some(text)
    })
}

/// Tries everything that would be of use against the agent, and says what it could do.
fn probe(token: &Path, data_dir: &Path) -> String {
    let (token, data) = (token.display(), data_dir.display());
    format!(
        "try() {{ if \"$@\" >/dev/null 2>&1; then echo \"could $*\"; else echo \"could not $*\"; fi; }}\n\
         try cat {token}\n\
         try ls {data}\n\
         try cat {data}/obeys.json\n\
         try cat {data}/slots/$BERTH_SLOT_ID.json\n\
         try cat {data}/logs/$BERTH_SLOT_ID/1.log\n\
         try touch {data}/logs/$BERTH_SLOT_ID/1.exit\n\
         try cat /proc/$PPID/environ\n\
         try ls /proc/$PPID/fd\n\
         try cat /proc/$PPID/mem\n\
         try kill -0 $PPID\n\
         grep -E '^(Uid|Gid|Groups|NoNewPrivs|CapPrm|CapEff|CapAmb):' /proc/self/status | tr -s '\\t ' ' '\n\
         ls -l /proc/$$/fd\n\
         env | sed 's/^/env /'\n\
         echo DONE; exec sleep 1000\n"
    )
}

#[test]
fn a_slot_of_another_user_finds_nothing_of_the_agent() {
    let mut fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    // Only what the agent itself keeps private protects it: every user may enter the directories above.
    fs::set_permissions(machine.directory(), PermissionsExt::from_mode(0o755)).unwrap();
    let plan = machine.plan(&fleet);
    let token = machine.directory().join("token");
    write_token(&mut fleet, plan.name(), &token, 0o600);
    let data_dir = machine.directory().join(plan.name()).join("data");
    let secret = machine.directory().join("secret");
    fs::write(&secret, "secret").unwrap();
    // It begins with a descriptor that was left open, and with secrets in its environment.
    let wrapper = "exec 9<\"$0\"; export BERTH_TOKEN=secret AGENT_SECRET=secret; exec \"$@\"";
    let plan =
        plan.set(&format!("token_file = {token:?}")).through(&["sh", "-c", wrapper, &secret.display().to_string()]);
    let mut plan = script(plan, &probe(&token, &data_dir));
    if is_root() {
        plan = plan.runtime_line(&format!("user = {NOBODY:?}"));
    }
    let agent = plan.start(&fleet);
    fleet.model(&Model::new("probe", 1).with("runtime", json!("probe")));
    let slot = fleet.run("probe").slot;
    let said = said(&agent, &slot);

    let env: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("env ")).collect();
    assert!(env.iter().any(|pair| pair.starts_with("PATH=")), "{said}");
    assert!(!env.iter().any(|pair| pair.contains("secret") || pair.contains("TOKEN")), "{said}");
    // As `ls -l` shows them: `... 1 -> /the/log`.
    let number = |line: &str| line.split_once(" -> ")?.0.rsplit(' ').next().map(str::to_owned);
    let descriptors: Vec<String> = said.lines().filter_map(number).collect();
    assert_eq!(descriptors, ["0", "1", "2"], "{said}");
    assert!(said.contains("NoNewPrivs: 1"), "{said}");
    assert_eq!(mode(&agent.data_dir()), 0o700);
    if !is_root() {
        assert!(agent.log().contains("slots run as the agent's own user"), "{}", agent.log());
        return;
    }
    let could: Vec<&str> =
        said.lines().filter(|line| line.starts_with("could ") && !line.contains("could not")).collect();
    assert_eq!(could, Vec::<&str>::new(), "{said}");
    assert_eq!(said.matches("could not ").count(), 10, "{said}");
    assert!(said.contains("Uid: 65534 65534 65534 65534"), "{said}");
    for line in ["CapPrm: 0000000000000000", "CapEff: 0000000000000000", "CapAmb: 0000000000000000"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(env.contains(&"USER=nobody") && env.contains(&"LOGNAME=nobody"), "{said}");
    assert!(!env.contains(&"HOME=/root"), "{said}");
}

#[test]
fn an_agent_names_at_start_the_runtimes_whose_slots_can_read_its_files() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut plan = script(machine.plan(&fleet), "exec sleep 1000");
    if is_root() {
        plan = plan.runtime_line(&format!("user = {NOBODY:?}"));
    }
    let agent = plan.start(&fleet);
    let log = agent.log();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect::<Vec<_>>();
    if !is_root() {
        let shared = lines("slots run as the agent's own user");
        assert!(shared.len() == 1 && shared[0].contains("WARN"), "{log}");
        return;
    }
    let as_root = lines("slots of this runtime run as root");
    assert!(as_root.iter().all(|line| line.contains("WARN")), "{log}");
    for name in ["engine", "job"] {
        assert!(as_root.iter().any(|line| line.contains(&format!("runtime={name}"))), "{name}: {log}");
    }
    assert!(!as_root.iter().any(|line| line.contains("runtime=probe")), "{log}");
    assert!(!as_root.iter().any(|line| line.contains("runtime=vllm")), "it is not installed here: {log}");
    let as_nobody = lines("run as a user of their own");
    assert!(as_nobody.len() == 1 && as_nobody[0].contains("runtime=probe"), "{log}");
}

#[test]
fn an_agent_does_not_start_with_a_user_that_it_cannot_use() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let another = if is_root() { "no-such-user" } else { "root" };
    let words = if is_root() { "there is no user \"no-such-user\"" } else { "only root can start slots" };
    let plan = script(machine.plan(&fleet), "exec sleep 1000").runtime_line(&format!("user = {another:?}"));
    let mut agent = plan.launch();
    assert!(!agent.ended().success());
    assert!(agent.log().contains("runtime.probe.user: ") && agent.log().contains(words), "{}", agent.log());
}

#[test]
fn an_agent_does_not_start_with_a_token_that_its_slots_can_read() {
    if !is_root() {
        return;
    }
    let mut fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let token = machine.directory().join("token");
    let plan = script(machine.plan(&fleet), "exec sleep 1000");
    let plan = plan.runtime_line(&format!("user = {NOBODY:?}")).set(&format!("token_file = {token:?}"));
    write_token(&mut fleet, plan.name(), &token, 0o644);
    let mut agent = plan.launch();
    assert!(!agent.ended().success());
    assert!(agent.log().contains("agent.token_file: "), "{}", agent.log());
    assert!(agent.log().contains("can be read by slots of runtime probe"), "{}", agent.log());
    fs::set_permissions(&token, PermissionsExt::from_mode(0o640)).unwrap();
    agent.restart();
    agent.is_heard(&fleet);
}

#[test]
fn a_data_directory_that_others_could_enter_is_closed() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let plan = machine.plan(&fleet);
    let data_dir = machine.directory().join(plan.name()).join("data");
    fs::create_dir_all(data_dir.join("slots")).unwrap();
    for directory in [data_dir.clone(), data_dir.join("slots")] {
        fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let agent = plan.start(&fleet);
    assert_eq!((mode(&data_dir), mode(&data_dir.join("slots"))), (0o700, 0o700));
    assert!(agent.log().contains("closed to other users"), "{}", agent.log());
    fleet.model(&Model::new("chat", 1));
    let slot = fleet.run("chat").slot;
    assert_eq!(mode(&data_dir.join("slots").join(format!("{slot}.json"))), 0o600);
    assert_eq!(mode(&data_dir.join("obeys.json")), 0o600);
}

#[test]
fn a_slot_of_another_user_is_adopted_with_and_without_a_record() {
    if !is_root() {
        return;
    }
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let plan = script(machine.plan(&fleet), "exec sleep 1000").runtime_line(&format!("user = {NOBODY:?}"));
    let mut agent = plan.start(&fleet);
    fleet.model(&Model::new("chat", 1).with("runtime", json!("probe")));
    let chat = fleet.run("chat");
    let pid = machine.living_of(&chat.slot)[0].pid;
    for loses_its_record in [false, true] {
        agent.kill();
        if loses_its_record {
            fs::remove_dir_all(agent.data_dir()).unwrap();
        }
        agent.restart();
        agent.is_heard(&fleet);
        fleet.until_heard_again(&agent);
        let row = eventually("it is reported", || fleet.reported(&agent, &chat.slot));
        assert_eq!(row["pid"].as_u64(), Some(pid.into()), "{row}");
        assert_eq!(machine.living_of(&chat.slot).len(), 1, "it was neither ended nor started again");
    }
    fleet.stop(&chat);
    fleet.until_slot(&chat.slot, "released");
    assert!(machine.living().is_empty());
}
