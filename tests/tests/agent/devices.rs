//! Physical GPUs: replicas, MIG, shared and exclusive devices, through the driver that agents really ask.

use berth_tests::fleet::{Fleet, Gpu, LedgerWatch, Machine, Model, diary};
use berth_tests::service::{GIB, eventually};
use serde_json::json;

const MB: u64 = 1_000_000;

/// A GPU of 32600 MB that two agents of one machine were each given, as two containers are.
fn shared(fleet: &Fleet) -> (Machine, [berth_tests::fleet::Agent; 2]) {
    let machine = Machine::new(&[1]);
    machine.gpu(0, |gpu| gpu.total = 32_600 * MB);
    let agents = [machine.agent(fleet), machine.agent(fleet)];
    (machine, agents)
}

/// What one agent has just started is foreign to the other, until both have reported it.
fn leaves_600(fleet: &Fleet, machine: &Machine) {
    eventually("600 MB are left", || {
        let device = fleet.device(&machine.uuid(0));
        (device["free_bytes"] == 600 * MB && device["foreign_bytes"] == 0).then_some(())
    });
}

#[test]
fn g1_five_of_8000_on_one_gpu_of_32600_that_two_agents_see() {
    let fleet = Fleet::start();
    let (machine, _agents) = shared(&fleet);
    let watch = LedgerWatch::of(&machine, &fleet, 1);
    let leases: Vec<String> = (0..5)
        .map(|number| {
            let name = format!("m{number}");
            fleet.model(&Model::new(&name, 0).with("memory", json!(8_000 * MB)));
            fleet.lease(&name)
        })
        .collect();
    for lease in &leases[..4] {
        let _ = fleet.running(lease);
    }
    assert_eq!(fleet.api.state(&leases[4]), "queued");
    assert_eq!(fleet.api.workload(&leases[4])["reason"]["code"], "full_now");
    assert_eq!(machine.living().len(), 4);
    assert_eq!(fleet.device(&machine.uuid(0))["replicas"], 2);
    leaves_600(&fleet, &machine);
    watch.saw_nothing_wrong();
}

#[test]
fn g1_of_five_replicas_of_one_model_four_are_placed() {
    let fleet = Fleet::start();
    let (machine, _agents) = shared(&fleet);
    fleet.model(&Model::new("chat", 0).with("memory", json!(8_000 * MB)));
    let leases: Vec<String> = (0..5).map(|_| fleet.lease("chat")).collect();
    eventually("four run", || {
        (leases.iter().filter(|lease| fleet.api.state(lease) == "running").count() == 4).then_some(())
    });
    assert_eq!(machine.living().len(), 4);
    leaves_600(&fleet, &machine);
}

#[test]
fn g2_of_many_whole_gpus_on_one_gpu_one_is_placed() {
    let fleet = Fleet::start();
    let (machine, agents) = shared(&fleet);
    fleet.model(&Model::new("whole", 1).with("exclusive", json!(true)));
    let leases: Vec<String> = (0..10).map(|_| fleet.lease("whole")).collect();
    eventually("one runs", || leases.iter().find(|lease| fleet.api.state(lease) == "running"));
    fleet.until_heard_again(&agents[0]);
    fleet.until_heard_again(&agents[1]);
    assert_eq!(leases.iter().filter(|lease| fleet.api.state(lease) == "queued").count(), 9);
    assert_eq!((machine.living().len(), fleet.slots().len()), (1, 1));
    assert_eq!(fleet.device(&machine.uuid(0))["free_bytes"], 0);
}

#[test]
fn g4_eight_gpus_seen_twice_are_eight_ledgers_and_two_gpus_are_two() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80; 8]);
    let _agents = [machine.agent(&fleet), machine.agent(&fleet)];
    let ledger = fleet.api.get("/scheduler/ledger").is(200).body;
    let devices = ledger["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 8);
    assert!(devices.iter().all(|device| device["replicas"] == 2), "{devices:?}");
    fleet.model(&Model::new("pair", 100).with("gpu_counts", json!([2])));
    let pair = fleet.run("pair");
    let gpus = fleet.slot(&pair.slot).unwrap()["gpu_allocation"]["gpus"].as_array().unwrap().clone();
    assert_eq!(gpus.len(), 2);
    assert_ne!(gpus[0]["uuid"], gpus[1]["uuid"]);
    let given = &machine.diary()[0].devices;
    assert_eq!(given.len(), 2, "what the process may see");
    for uuid in given {
        assert_eq!(fleet.charge(uuid).held, 50);
        assert_eq!(machine.used(uuid).len(), 1);
    }
    fleet.stop(&pair);
    fleet.until_slot(&pair.slot, "released");
}

#[test]
fn g8_mig_instances_are_devices_and_their_parent_takes_nothing() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[40]);
    let name = machine.name().to_owned();
    let instance = |number: usize| format!("MIG-{name}-{number}");
    machine.gpu(0, |gpu| {
        let small = (0..2).map(|number| (instance(number), 5 * GIB));
        let large = (2..5).map(|number| (instance(number), 10 * GIB));
        gpu.instances = small.chain(large).collect();
    });
    let _agent = machine.agent(&fleet);
    let ledger = fleet.api.get("/scheduler/ledger").is(200).body;
    let state = |uuid: &str| {
        let devices = ledger["devices"].as_array().unwrap();
        devices.iter().find(|device| device["uuid"] == uuid).unwrap()["state"].clone()
    };
    assert_eq!(ledger["devices"].as_array().unwrap().len(), 6, "five instances and their parent");
    assert_eq!(state(&machine.uuid(0)), "mig_parent");
    fleet.model(&Model::new("nine", 9));
    let leases: Vec<String> = (0..4).map(|_| fleet.lease("nine")).collect();
    eventually("three run", || {
        (leases.iter().filter(|lease| fleet.api.state(lease) == "running").count() == 3).then_some(())
    });
    let mut given: Vec<String> =
        machine.diary().into_iter().filter(|e| e.what == "start").flat_map(|e| e.devices).collect();
    given.sort();
    assert_eq!(given, [instance(2), instance(3), instance(4)], "by the instance's own UUID, each once");
    for uuid in &given {
        assert_eq!((fleet.charge(uuid).held, fleet.charge(uuid).foreign), (9, 0));
    }
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 0);
    let running = leases.iter().find(|lease| fleet.api.state(lease) == "running").unwrap();
    let running = fleet.running(running);
    fleet.stop(&running);
    fleet.until_slot(&running.slot, "released");
    eventually("the fourth runs", || {
        (leases.iter().filter(|lease| fleet.api.state(lease) == "running").count() == 3).then_some(())
    });
}

#[test]
fn g9_reordered_gpus_are_the_same_gpus() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 40]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let _chat = fleet.run("chat");
    let alive = machine.living();
    let uuids = [machine.uuid(0), machine.uuid(1)];
    machine.change(|scene| {
        scene.gpus[0].index = 1;
        scene.gpus[1].index = 0;
    });
    eventually("the new order is known", || (fleet.reported_gpu(&agent, &uuids[0])?["index"] == 1).then_some(()));
    assert_eq!((fleet.charge(&uuids[0]).held, fleet.charge(&uuids[1]).held), (60, 0));
    assert_eq!(machine.living(), alive);
    fleet.model(&Model::new("small", 30));
    let _small = fleet.run("small");
    assert_eq!(fleet.charge(&uuids[1]).held, 30);
}

#[test]
fn g9_a_uuid_that_changed_is_a_new_gpu_and_the_old_one_keeps_its_claims() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let _agent = machine.plan(&fleet).set("stop_grace = \"2s\"").start(&fleet);
    fleet.model(&Model::new("chat", 60).args(&["--ignore-term"]));
    let chat = fleet.run("chat");
    let (old, new) = (machine.uuid(0), format!("{}-new", machine.uuid(0)));
    machine.change(|scene| scene.gpus[0] = Gpu::new(&new, 0, 80 * GIB));
    fleet.until_device(&old, "lost");
    assert_eq!(fleet.charge(&old).used(), 60, "its process lives");
    assert_eq!(machine.living_of(&chat.slot).len(), 1);
    eventually("there is a new one", || {
        let ledger = fleet.api.get("/scheduler/ledger").body;
        ledger["devices"].as_array()?.iter().any(|device| device["uuid"] == new.as_str()).then_some(())
    });
    fleet.until_slot(&chat.slot, "released");
    assert!(machine.living_of(&chat.slot).is_empty());
    // Its lease goes on on the new one.
    let again = fleet.running(&chat.workload);
    assert_eq!(fleet.slot(&again.slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"], new.as_str());
}

#[test]
fn g11_two_agents_of_one_machine_share_one_ledger() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agents =
        ["a", "b"].map(|side| machine.plan(&fleet).set(&format!("labels = {{ side = \"{side}\" }}")).start(&fleet));
    let uuid = machine.uuid(0);
    let model =
        |name: &str, gib, side: &str| fleet.model(&Model::new(name, gib).with("labels", json!({ "side": side })));
    model("fifty", 50, "a");
    model("forty-a", 40, "a");
    model("forty-b", 40, "b");
    model("thirty", 30, "b");
    let fifty = fleet.run("fifty");
    assert_eq!(fleet.slot(&fifty.slot).unwrap()["runner_id"], agents[0].id());
    let (a, b) = (fleet.lease("forty-a"), fleet.lease("forty-b"));
    fleet.until_heard_again(&agents[1]);
    assert_eq!((fleet.api.state(&a).as_str(), fleet.api.state(&b).as_str()), ("queued", "queued"));
    // What one of them runs is not foreign to the other.
    fleet.until_charge(&uuid, "30 are left", |charge| charge.foreign == 0 && charge.free == 30);
    for lease in [&a, &b] {
        let _ = fleet.api.cancel(lease);
    }
    let thirty = fleet.run("thirty");
    assert_eq!(fleet.slot(&thirty.slot).unwrap()["runner_id"], agents[1].id());
    fleet.until_charge(&uuid, "it is full", |charge| charge.held == 80 && charge.foreign == 0);

    // Forgetting one of them frees nothing of the other's.
    fleet.stop(&thirty);
    fleet.until_slot(&thirty.slot, "released");
    assert!(agents[1].terminate().success());
    let path = format!("/api/v1/runners/{}", agents[1].id());
    let reply = fleet.api.ask("DELETE", &path).json(&json!({ "reason": "moved" })).send();
    assert!(reply.status < 300, "{}", reply.text);
    assert_eq!(fleet.charge(&uuid).held, 50);
    assert_eq!(machine.living_of(&fifty.slot).len(), 1);
}

#[test]
fn g11_starts_on_one_gpu_are_one_at_a_time_over_two_agents() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let _agents =
        ["a", "b"].map(|side| machine.plan(&fleet).set(&format!("labels = {{ side = \"{side}\" }}")).start(&fleet));
    let watch = LedgerWatch::of(&machine, &fleet, 1);
    let leases: Vec<String> = (0..6)
        .map(|number| {
            let (name, side) = (format!("m{number}"), if number % 2 == 0 { "a" } else { "b" });
            let model = Model::new(&name, 10).args(&["--ready-after", "150"]).with("labels", json!({ "side": side }));
            fleet.model(&model);
            fleet.lease(&name)
        })
        .collect();
    for lease in &leases {
        let _ = fleet.running(lease);
    }
    let diary = machine.diary();
    assert_eq!(diary.iter().filter(|entry| entry.what == "start").count(), 6);
    assert_eq!(diary::overlaps(&diary, &machine.uuid(0)), [], "two starts at once");
    watch.saw_nothing_wrong();
}

#[test]
fn g12_the_same_uuid_from_another_machine_is_quarantined() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.plan(&fleet).booted("boot-1").start(&fleet);
    let uuid = machine.uuid(0);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let alive = machine.living();
    let stranger = machine.plan(&fleet).machine_id("elsewhere").start(&fleet);
    let runner = fleet.api.get(&format!("/api/v1/runners/{}", stranger.id())).body;
    assert_eq!(runner["disputed"], json!([uuid]));
    assert_eq!(fleet.device(&uuid)["runner_ids"], json!([agent.id()]), "the first ledger is untouched");
    assert_eq!(fleet.charge(&uuid).held, 60);
    assert_eq!(fleet.reported_gpu(&stranger, &uuid).unwrap()["state"], "disputed");
    assert_eq!(machine.living(), alive);

    // A reboot of the first machine is no conflict.
    agent.kill();
    machine.end_all();
    agent.restart_as(agent.plan().booted("boot-2"));
    fleet.until_slot(&chat.slot, "released");
    let _ = fleet.running(&chat.workload);
    assert_eq!(fleet.device(&uuid)["runner_ids"], json!([agent.id()]));
    assert_eq!(fleet.charge(&uuid).used(), 60);
}

#[test]
fn g13_a_whole_gpu_beside_a_desktop_is_charged_the_rest() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let desktop = 300 * 1024 * 1024;
    machine.gpu(0, |gpu| gpu.foreign = desktop);
    let agent = machine.agent(&fleet);
    let uuid = machine.uuid(0);
    fleet.model(&Model::new("whole", 40).with("exclusive", json!(true)));
    fleet.model(&Model::new("tiny", 1));
    let whole = fleet.run("whole");
    assert_eq!(fleet.device(&uuid)["held_bytes"], 80 * GIB - desktop);
    assert_eq!(machine.used(&uuid)[0].1, 80 * GIB - desktop, "that is what its process is told");
    let tiny = fleet.lease("tiny");
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.api.state(&tiny), "queued", "nothing joins it");
    fleet.stop(&whole);
    let _ = fleet.running(&tiny);
}
