//! Release: memory is free when it is proven free, and not before.

use berth_tests::fleet::{Charge, Fleet, LedgerWatch, Machine, Model};
use berth_tests::service::{GIB, eventually};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn r1_a_promise_does_not_start_before_the_memory_is_proven_back() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let _agent = machine.plan(&fleet).set("stop_grace = \"1s\"").start(&fleet);
    let watch = LedgerWatch::of(&machine, &fleet, 1);
    fleet.model(&Model::new("sixty", 60).args(&["--ignore-term"]));
    fleet.model(&Model::new("forty", 40));
    let sixty = fleet.run("sixty");
    fleet.complete(&sixty.workload);
    let forty = fleet.lease("forty");
    let charge = fleet.charge(&machine.uuid(0));
    assert_eq!((charge.releasing, charge.promised, charge.held), (60, 40, 0));
    let mut waited = 0;
    eventually("it runs", || {
        let (state, living) = (fleet.api.state(&forty), machine.living());
        let (old, new) = (living.iter().any(|p| p.slot == sixty.slot), living.iter().any(|p| p.slot != sixty.slot));
        assert!(!(old && new), "it started beside the one that it waits for");
        waited += usize::from(old);
        (state == "running").then_some(())
    });
    assert!(waited > 0, "there was something to wait for");
    assert_eq!(fleet.charge(&machine.uuid(0)), Charge { held: 40, free: 40, ..Charge::default() });
    watch.saw_nothing_wrong();
}

#[test]
fn r2_a_stop_that_never_ends_is_charged_for_as_long_and_others_go_on() {
    let fleet = Fleet::with(&["scheduler.stall_after=1s"]);
    let machine = Machine::new(&[80, 80]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let stuck = fleet.slot(&chat.slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"].as_str().unwrap().to_owned();
    machine.change(|scene| scene.lists_the_dead = true);
    fleet.stop(&chat);
    eventually("its tree is gone", || machine.living().is_empty().then_some(()));
    eventually("it counts as stuck", || (fleet.slot(&chat.slot)?["stalled"] == true).then_some(()));
    let slot = fleet.slot(&chat.slot).unwrap();
    assert_eq!(slot["state"], "stopping");
    assert!(slot["since"].is_string() || slot["since"].is_number(), "its age can be told: {slot}");
    assert_eq!(slot["reason"]["code"].as_str().map(str::is_empty), Some(false), "and its reason: {slot}");
    // The other device goes on.
    fleet.model(&Model::new("other", 70));
    let other = fleet.run("other");
    assert_ne!(fleet.slot(&other.slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"], stuck.as_str());
    fleet.model(&Model::new("third", 30));
    let third = fleet.lease("third");
    for _ in 0..3 {
        fleet.until_heard_again(&agent);
        assert_eq!(fleet.charge(&stuck).used(), 60, "no timer frees it");
    }
    assert_eq!(fleet.api.state(&third), "queued", "nobody counts on it");
    machine.change(|scene| scene.lists_the_dead = false);
    fleet.until_slot(&chat.slot, "released");
    let _ = fleet.running(&third);
}

#[test]
fn r5_proof_that_comes_twice_frees_once() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.plan(&fleet).set("stop_grace = \"700ms\"").start(&fleet);
    fleet.model(&Model::new("chat", 60).args(&["--ignore-term"]));
    fleet.model(&Model::new("next", 60));
    let chat = fleet.run("chat");
    fleet.stop(&chat);
    // The server hears nothing while the agent comes to its proof.
    eventually("it is being ended", || agent.life_of(&chat.slot).filter(|life| life == "ending"));
    fleet.server.signal(Signal::STOP);
    eventually("it is gone", || agent.life_of(&chat.slot).filter(|life| life == "gone"));
    let file = agent.data_dir().join("slots").join(format!("{}.json", chat.slot));
    let proof = std::fs::read(&file).unwrap();
    fleet.server.signal(Signal::CONT);
    fleet.until_slot(&chat.slot, "released");
    let next = fleet.run("next");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60);
    eventually("the agent forgets it", || (!file.exists()).then_some(()));

    // Everything is as it was before the proof was heard, and it is said again.
    agent.kill();
    std::fs::write(&file, proof).unwrap();
    agent.restart();
    agent.is_heard(&fleet);
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "nothing is freed twice");
    assert_eq!(fleet.slot_state(&next.slot), "ready");
    assert_eq!(machine.living_of(&next.slot).len(), 1);
    eventually("the agent forgets it again", || (!file.exists()).then_some(()));
}

#[test]
fn r5_proof_of_an_older_generation_frees_nothing() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.agent(&fleet);
    fleet.model(&Model::new("pinned", 60).with("pinned", json!(true)).with("min_replicas", json!(1)));
    let slot = eventually("it is ready", || fleet.slots().into_iter().find(|slot| slot["state"] == "ready"));
    let id = slot["id"].as_str().unwrap().to_owned();
    let file = agent.data_dir().join("slots").join(format!("{id}.json"));
    // Its first start comes to its end, and its end is kept.
    machine.change(|scene| scene.lists_the_dead = true);
    machine.end_all();
    eventually("its tree is gone", || agent.life_of(&id).filter(|life| life == "tree_gone"));
    fleet.server.signal(Signal::STOP);
    machine.change(|scene| scene.lists_the_dead = false);
    eventually("it is gone", || agent.life_of(&id).filter(|life| life == "gone"));
    let proof = std::fs::read(&file).unwrap();
    fleet.server.signal(Signal::CONT);
    let next = eventually("it is started again in its place", || {
        fleet.slot(&id).filter(|slot| slot["state"] == "ready" && slot["generation"] != 1)
    });
    let alive = machine.living_of(&id);
    assert_eq!((alive.len(), alive[0].generation), (1, next["generation"].as_u64().unwrap()));

    agent.kill();
    std::fs::write(&file, proof).unwrap();
    agent.restart();
    agent.is_heard(&fleet);
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "words of an older generation free nothing");
    assert_eq!(machine.living_of(&id), alive, "nobody was ended or started");
}

#[test]
fn r6_a_pid_that_the_driver_lists_is_not_gone_and_the_agent_says_so() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    machine.change(|scene| scene.lists_the_dead = true);
    fleet.stop(&chat);
    eventually("its tree is gone", || agent.life_of(&chat.slot).filter(|life| life == "tree_gone"));
    assert!(machine.living().is_empty());
    for _ in 0..3 {
        fleet.until_heard_again(&agent);
        assert_eq!(fleet.reported(&agent, &chat.slot).unwrap()["state"], "stopping");
        assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60);
    }
    machine.change(|scene| scene.lists_the_dead = false);
    fleet.until_slot(&chat.slot, "released");
    fleet.until_charge(&machine.uuid(0), "all is free", |charge| charge.free == 80);
}

#[test]
fn r6_memory_that_stays_behind_becomes_foreign_and_never_free() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    let uuid = machine.uuid(0);
    fleet.model(&Model::new("chat", 60));
    fleet.model(&Model::new("forty", 40));
    let chat = fleet.run("chat");
    machine.change(|scene| scene.leaks = true);
    fleet.stop(&chat);
    let forty = fleet.lease("forty");
    fleet.until_slot(&chat.slot, "released");
    let charge = fleet.charge(&uuid);
    assert_eq!((charge.used(), charge.foreign, charge.free), (0, 60, 20));
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.api.state(&forty), "queued");
    assert_eq!(machine.diary().iter().filter(|entry| entry.what == "start").count(), 1, "nothing was started on it");
    machine.change(|scene| scene.leaks = false);
    let _ = fleet.running(&forty);
    assert_eq!(fleet.charge(&uuid).foreign, 0);
}

#[test]
fn r7_ram_that_is_being_released_is_not_free() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).set("stop_grace = \"1s\"").start(&fleet);
    let host = || {
        let ledger = fleet.api.get("/scheduler/ledger").is(200).body;
        ledger["hosts"].as_array().unwrap().iter().find(|host| host["machine_id"] == machine.name()).unwrap().clone()
    };
    let ram = host()["ram"]["capacity_bytes"].as_u64().unwrap();
    let share = |percent: u64| ram / 100 * percent;
    let on_the_host = |name: &str, percent, args: &[&str]| {
        let model = Model::new(name, 0).without("memory").with("gpu_counts", json!([0]));
        fleet.model(&model.with("ram", json!(share(percent))).args(args));
    };
    on_the_host("half", 50, &["--ignore-term"]);
    on_the_host("most", 75, &[]);
    let half = fleet.run("half");
    fleet.complete(&half.workload);
    let most = fleet.lease("most");
    assert_eq!(host()["ram"]["releasing_bytes"], share(50));
    assert_eq!(host()["ram"]["promised_bytes"], share(75));
    eventually("it runs", || {
        let living = machine.living();
        assert!(living.iter().all(|p| p.slot == half.slot) || living.iter().all(|p| p.slot != half.slot), "both run");
        (fleet.api.state(&most) == "running").then_some(())
    });
    assert_eq!(host()["ram"]["held_bytes"], share(75));
    drop(agent);
}

#[test]
fn r8_an_agent_that_lost_its_record_frees_nothing() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.agent(&fleet);
    let uuid = machine.uuid(0);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let alive = machine.living();
    agent.kill();
    std::fs::remove_dir_all(agent.data_dir()).unwrap();
    let watch = LedgerWatch::of(&machine, &fleet, 1);
    agent.restart();
    fleet.until_heard_again(&agent);
    fleet.until_heard_again(&agent);
    assert_eq!(machine.living(), alive);
    let charge = fleet.charge(&uuid);
    assert_eq!((charge.used(), charge.foreign), (60, 0), "charged, and once");
    // Its process carries its mark: it is found, and is what it was.
    fleet.until_slot(&chat.slot, "ready");

    // It can be ended, and is gone when the driver agrees, though no record said on which GPU it was.
    machine.change(|scene| scene.lists_the_dead = true);
    fleet.stop(&chat);
    eventually("its tree is gone", || machine.living().is_empty().then_some(()));
    fleet.until_heard_again(&agent);
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.charge(&uuid).used(), 60, "the driver still lists it");
    machine.change(|scene| scene.lists_the_dead = false);
    fleet.until_slot(&chat.slot, "released");
    assert_eq!(fleet.charge(&uuid).used(), 0);
    watch.saw_nothing_wrong();
}

#[test]
fn r8_a_slot_that_its_agent_cannot_find_is_gone_without_a_trace() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    agent.kill();
    machine.end_all();
    std::fs::remove_dir_all(agent.data_dir()).unwrap();
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "absence is no proof");
    // The server asks about it: the agent looks for its mark and at the driver, finds no process, and that is proof.
    agent.restart();
    fleet.until_slot(&chat.slot, "released");
    let again = fleet.running(&chat.workload);
    assert_ne!(again.slot, chat.slot);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60);
    eventually("the agent has forgotten it", || agent.record_of(&chat.slot).is_none().then_some(()));
}

#[test]
fn r8_a_slot_that_the_driver_may_still_list_is_unknown_and_stays_charged() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let pid = machine.living_of(&chat.slot)[0].pid;
    machine.gpu(0, |gpu| gpu.listed.push((pid, 0)));
    agent.kill();
    machine.end_all();
    std::fs::remove_dir_all(agent.data_dir()).unwrap();
    agent.restart();
    // The driver lists a process that the agent cannot see: it may be of this slot.
    let said = eventually("it says that it cannot tell", || {
        fleet.reported(&agent, &chat.slot).filter(|row| row["state"] == "unknown")
    });
    assert!(said["detail"].as_str().is_some_and(|why| why.contains(&pid.to_string())), "{said}");
    fleet.until_slot(&chat.slot, "unknown");
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "nothing is concluded");
    // To be told to stop it changes nothing about that.
    let _ = fleet.api.cancel(&chat.workload);
    fleet.stop_slot(&chat.slot);
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60);
    machine.gpu(0, |gpu| gpu.listed.clear());
    fleet.until_slot(&chat.slot, "released");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 0);
}

#[test]
fn r9_a_promise_on_a_device_that_stalls_goes_back_and_another_takes_it() {
    let fleet = Fleet::with(&["scheduler.stall_after=700ms"]);
    let machine = Machine::new(&[80, 80]);
    let _agent = machine.agent(&fleet);
    fleet.model(&Model::new("a", 60));
    fleet.model(&Model::new("b", 60));
    fleet.model(&Model::new("c", 40));
    let (a, b) = (fleet.run("a"), fleet.run("b"));
    let on = |slot: &str| fleet.slot(slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"].as_str().unwrap().to_owned();
    let (stalls, other) = (on(&a.slot), on(&b.slot));
    let index = if stalls == machine.uuid(0) { 0 } else { 1 };
    // The driver will not let go of the first.
    let pid = machine.living_of(&a.slot)[0].pid;
    machine.gpu(index, |gpu| gpu.listed.push((pid, 0)));
    fleet.complete(&a.workload);
    let c = fleet.lease("c");
    assert_eq!(fleet.charge(&stalls).promised, 40);
    fleet.until_charge(&stalls, "the promise is withdrawn", |charge| charge.promised == 0);
    assert_eq!(fleet.charge(&stalls).used(), 60, "its memory is not free");
    assert_ne!(fleet.api.state(&c), "running");
    fleet.complete(&b.workload);
    let c = fleet.running(&c);
    assert_eq!(on(&c.slot), other);
    assert_eq!(fleet.charge(&stalls).used(), 60);
    machine.gpu(index, |gpu| gpu.listed.clear());
    fleet.until_slot(&a.slot, "released");
}

#[test]
fn a_slot_above_its_claim_is_charged_what_is_seen() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    let more = (50 * GIB).to_string();
    fleet.model(&Model::new("greedy", 30).args(&["--use", &more]));
    let _greedy = fleet.run("greedy");
    fleet.until_charge(&machine.uuid(0), "it is charged", |charge| charge.held == 50 && charge.free == 30);
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.charge(&machine.uuid(0)).foreign, 0);
    assert_eq!(machine.living().len(), 1, "nobody is killed for it");
}
