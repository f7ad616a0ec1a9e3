//! A network namespace whose link to the host can be cut, in both directions or in one.

use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// A namespace of this test alone. It is removed when this is dropped.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
    /// The name of the interface on the side of the host.
    near: String,
    /// The name of the interface inside the namespace.
    far: String,
    /// The address of the host.
    pub here: String,
    /// The address inside the namespace.
    pub there: String,
}

impl NetworkNamespace {
    /// Creates the namespace and its link to the host. Needs root.
    #[must_use]
    pub fn create() -> Self {
        static WIRES: AtomicU8 = AtomicU8::new(0);
        let number = WIRES.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let name = format!("berth-{pid}-{number}");
        // The name of an interface has at most 15 letters.
        let (near, far) = (format!("bn{pid}-{number}"), format!("bf{pid}-{number}"));
        // Addresses that are reserved for tests of networks. Each run takes a part of its own.
        let (run, block) = (pid % 256, number % 60 * 4);
        let (here, there) = (format!("198.18.{run}.{}", block + 1), format!("198.18.{run}.{}", block + 2));
        let namespace = Self { name: name.clone(), near: near.clone(), far: far.clone(), here, there };
        ip(&["netns", "add", &name]);
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &name]);
        ip(&["addr", "add", &format!("{}/30", namespace.here), "dev", &near]);
        ip(&["link", "set", &near, "up"]);
        namespace.inside(&["ip", "addr", "add", &format!("{}/30", namespace.there), "dev", &far]);
        namespace.inside(&["ip", "link", "set", &far, "up"]);
        namespace.inside(&["ip", "link", "set", "lo", "up"]);
        namespace
    }

    /// Returns the words that start a program in the namespace.
    #[must_use]
    pub fn enter(&self) -> Vec<&str> {
        vec!["ip", "netns", "exec", &self.name]
    }

    /// Cuts the link in both directions.
    pub fn cut(&self) {
        ip(&["link", "set", &self.near, "down"]);
    }

    /// Restores the link.
    pub fn mend(&self) {
        ip(&["link", "set", &self.near, "up"]);
    }

    /// Drops what the namespace sends; what the host sends arrives.
    pub fn drop_outgoing(&self) {
        // A queue of length zero drops every packet.
        self.inside(&["tc", "qdisc", "replace", "dev", &self.far, "root", "pfifo", "limit", "0"]);
    }

    /// Lets what the namespace sends arrive again.
    pub fn restore_outgoing(&self) {
        self.inside(&["tc", "qdisc", "del", "dev", &self.far, "root"]);
    }

    /// Drops what the host sends; what the namespace sends arrives.
    pub fn drop_incoming(&self) {
        run("tc", &["qdisc", "replace", "dev", &self.near, "root", "pfifo", "limit", "0"]);
    }

    /// Lets what the host sends arrive again.
    pub fn restore_incoming(&self) {
        run("tc", &["qdisc", "del", "dev", &self.near, "root"]);
    }

    fn inside(&self, words: &[&str]) {
        let all: Vec<&str> = ["netns", "exec", &self.name].into_iter().chain(words.iter().copied()).collect();
        ip(&all);
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // The other end goes with its namespace, and so does this one, but not at once.
        let _ = Command::new("ip").args(["link", "del", &self.near]).output();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

fn ip(words: &[&str]) {
    run("ip", words);
}

fn run(program: &str, words: &[&str]) {
    let done = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program} {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr));
}
