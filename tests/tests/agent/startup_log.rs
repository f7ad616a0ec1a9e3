//! What an agent says of its machine when it starts: the driver, each GPU, each runtime; or that there is none.

use berth_tests::fleet::{Agent, Fleet, Machine};
use berth_tests::service::eventually;

/// The lines of an agent's log with this level that contain all of these.
fn lines(agent: &Agent, level: &str, words: &[&str]) -> Vec<String> {
    let log = agent.log();
    let is_one = |line: &&str| line.contains(&format!(" {level} ")) && words.iter().all(|word| line.contains(word));
    log.lines().filter(is_one).map(str::to_owned).collect()
}

#[track_caller]
fn says(agent: &Agent, level: &str, words: &[&str]) {
    eventually(&format!("a line at {level} with {words:?} in {}", agent.log()), || {
        (!lines(agent, level, words).is_empty()).then_some(())
    });
}

#[test]
fn the_startup_log_names_the_driver_each_gpu_and_each_runtime() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 24]);
    let agent = machine.agent(&fleet);
    says(&agent, "INFO", &["driver", "version"]);
    says(&agent, "INFO", &["GPU 0", &machine.uuid(0), "80 GiB"]);
    says(&agent, "INFO", &["GPU 1", &machine.uuid(1), "24 GiB"]);
    says(&agent, "INFO", &["runtime engine", "berth-test-engine"]);
    says(&agent, "INFO", &["runtime job", "berth-test-engine", "job"]);
    // Built in, and not on this machine: not found is no fault, but it is said.
    says(&agent, "INFO", &["runtime vllm", "not found"]);
    assert_eq!(lines(&agent, "WARN", &["GPU"]), Vec::<String>::new());
    // Once: what it said at its start is not said at every look.
    assert_eq!(lines(&agent, "INFO", &[&machine.uuid(0), "80 GiB"]).len(), 1);
}

#[test]
fn the_startup_log_warns_that_there_is_no_driver_and_why() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).see("library = \"/no/such/libnvidia-ml.so\"").start(&fleet);
    says(&agent, "WARN", &["no GPU", "driver", "/no/such/libnvidia-ml.so"]);
}

#[test]
fn the_startup_log_warns_that_the_driver_lists_no_gpu() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[]);
    let agent = machine.agent(&fleet);
    says(&agent, "WARN", &["no GPU", "lists none"]);
}

#[test]
fn the_log_warns_when_a_gpu_is_lost_and_says_when_it_is_back() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 80]);
    let agent = machine.agent(&fleet);
    says(&agent, "INFO", &["GPU 1", &machine.uuid(1)]);
    machine.gpu(1, |gpu| gpu.lost = true);
    says(&agent, "WARN", &["GPU 1", &machine.uuid(1), "lost"]);
    machine.gpu(1, |gpu| gpu.lost = false);
    eventually("it is well again", || (lines(&agent, "INFO", &["GPU 1", &machine.uuid(1)]).len() > 1).then_some(()));
}
