//! Starts on one device are one at a time, since engines measure free memory as they start.

use berth_tests::fleet::{Fleet, LedgerWatch, Machine, Model, diary};
use serde_json::json;

#[test]
fn starts_on_one_gpu_are_one_at_a_time_and_on_two_at_once() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 80]);
    let _agent = machine.agent(&fleet);
    let watch = LedgerWatch::of(&machine, &fleet, 2);
    let leases: Vec<String> = (0..6)
        .map(|number| {
            let name = format!("m{number}");
            fleet.model(&Model::new(&name, 20).args(&["--ready-after", "200"]));
            fleet.lease(&name)
        })
        .collect();
    for lease in &leases {
        let _ = fleet.running(lease);
    }
    let diary = machine.diary();
    for index in 0..2 {
        assert_eq!(diary::overlaps(&diary, &machine.uuid(index)), [], "two starts at once");
    }
    let starts: Vec<u64> = diary.iter().filter(|entry| entry.what == "start").map(|entry| entry.at).collect();
    assert_eq!(starts.len(), 6);
    assert!(starts.windows(2).any(|pair| pair[1] - pair[0] < 200), "GPUs do not wait for each other: {starts:?}");
    watch.saw_nothing_wrong();
}

#[test]
fn starts_of_one_and_of_two_gpus_keep_out_of_each_others_way() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 80]);
    let _agent = machine.agent(&fleet);
    let args = ["--ready-after", "150"];
    fleet.model(&Model::new("pair", 40).with("gpu_counts", json!([2])).args(&args));
    fleet.model(&Model::new("left", 20).args(&args));
    fleet.model(&Model::new("right", 20).args(&args));
    let leases = ["left", "pair", "right"].map(|name| fleet.lease(name));
    for lease in &leases {
        let _ = fleet.running(lease);
    }
    let diary = machine.diary();
    for index in 0..2 {
        assert_eq!(diary::overlaps(&diary, &machine.uuid(index)), []);
    }
}
