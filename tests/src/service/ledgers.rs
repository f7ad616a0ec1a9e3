//! What must be true of every ledger that the server shows.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Api;

/// The ledgers as the server shows them. Every device is checked on the way.
#[track_caller]
#[must_use]
pub fn checked(api: &Api) -> Value {
    let ledger = api.get("/scheduler/ledger").is(200).body;
    check(&ledger);
    ledger
}

/// For every device: its sums are the sums of its claims, and both lines hold. For every host: both lines hold.
#[track_caller]
pub fn check(ledger: &Value) {
    for device in ledger["devices"].as_array().expect("devices") {
        let mut sums = BTreeMap::from([("held", 0), ("releasing", 0), ("promised", 0)]);
        for claim in device["claims"].as_array().expect("claims") {
            let phase = claim["phase"].as_str().expect("a phase");
            *sums.get_mut(phase).unwrap_or_else(|| panic!("a claim is {phase}")) += number(&claim["bytes"]);
        }
        for (phase, sum) in sums {
            assert_eq!(number(&device[format!("{phase}_bytes")]), sum, "{phase} is the sum of its claims: {device}");
        }
        check_lines(device, "bytes");
    }
    for host in ledger["hosts"].as_array().expect("hosts") {
        check_lines(&host["cpu"], "millicores");
        check_lines(&host["ram"], "bytes");
    }
}

/// Both lines of a ledger, and that what is free is what they leave.
#[track_caller]
fn check_lines(row: &Value, unit: &str) {
    let of = |name: &str| number(&row[format!("{name}_{unit}")]);
    let now = of("held") + of("releasing") + of("foreign");
    let future = of("held") + of("foreign") + of("promised");
    assert!(now <= of("capacity"), "more is in use than there is: {row}");
    assert!(future <= of("capacity"), "more is promised than there is: {row}");
    assert!(of("free") <= of("capacity") - now.max(future), "more is offered than is left: {row}");
}

/// The ledger of one device.
#[track_caller]
#[must_use]
pub fn device<'a>(ledger: &'a Value, uuid: &str) -> &'a Value {
    let devices = ledger["devices"].as_array().expect("devices");
    devices.iter().find(|device| device["uuid"] == uuid).unwrap_or_else(|| panic!("no device {uuid} in {ledger}"))
}

/// A whole number.
#[track_caller]
#[must_use]
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no whole number: {value}"))
}
