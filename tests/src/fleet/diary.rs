//! The diary of a machine: each engine writes down when it was started and when it first served.

use std::path::Path;

/// One line of the diary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `start` or `ready`.
    pub what: String,
    /// Milliseconds since the Unix epoch.
    pub at: u64,
    /// The pid of the engine.
    pub pid: u32,
    /// Its slot.
    pub slot: String,
    /// The generation of the slot.
    pub generation: u64,
    /// The GPUs that it was given.
    pub devices: Vec<String>,
}

/// Reads a diary. A missing file is an empty diary.
#[must_use]
pub fn read(path: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| parse(line).unwrap_or_else(|| panic!("no entry of a diary: {line}"))).collect()
}

fn parse(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    Some(Entry {
        what: next()?.to_owned(),
        at: next()?.parse().ok()?,
        pid: next()?.parse().ok()?,
        slot: next()?.to_owned(),
        generation: next()?.parse().ok()?,
        devices: next()?.split(',').filter(|uuid| !uuid.is_empty()).map(str::to_owned).collect(),
    })
}

/// Pairs of starts on one device of which the second began before the first was ready.
#[must_use]
pub fn overlaps(entries: &[Entry], uuid: &str) -> Vec<(Entry, Entry)> {
    let on_it: Vec<&Entry> = entries.iter().filter(|entry| entry.devices.iter().any(|device| device == uuid)).collect();
    let starts: Vec<&Entry> = on_it.iter().copied().filter(|entry| entry.what == "start").collect();
    let ready_at = |start: &Entry| {
        let ready = on_it.iter().find(|entry| entry.what == "ready" && entry.pid == start.pid && entry.at >= start.at);
        ready.map_or(u64::MAX, |entry| entry.at)
    };
    let together = starts.windows(2).filter(|pair| ready_at(pair[0]) > pair[1].at);
    together.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
