//! A network namespace with one wire to this one, whose two directions can be cut.

use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// A namespace of this test alone. It is removed when this is dropped.
#[derive(Debug)]
pub struct Wire {
    name: String,
    /// The end of the wire on this side.
    near: String,
    /// The end of the wire in the namespace.
    far: String,
    /// The address of this side.
    pub here: String,
    /// The address of the other side.
    pub there: String,
}

impl Wire {
    /// Lays a wire. Needs root.
    #[must_use]
    pub fn lay() -> Self {
        static WIRES: AtomicU8 = AtomicU8::new(0);
        let number = WIRES.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let name = format!("berth-{pid}-{number}");
        // The name of an interface has at most 15 letters.
        let (near, far) = (format!("bn{pid}-{number}"), format!("bf{pid}-{number}"));
        // Addresses for tests of networks: nobody else has them. Each run takes a part of its own.
        let (run, block) = (pid % 256, number % 60 * 4);
        let (here, there) = (format!("198.18.{run}.{}", block + 1), format!("198.18.{run}.{}", block + 2));
        let wire = Self { name: name.clone(), near: near.clone(), far: far.clone(), here, there };
        ip(&["netns", "add", &name]);
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &name]);
        ip(&["addr", "add", &format!("{}/30", wire.here), "dev", &near]);
        ip(&["link", "set", &near, "up"]);
        wire.inside(&["ip", "addr", "add", &format!("{}/30", wire.there), "dev", &far]);
        wire.inside(&["ip", "link", "set", &far, "up"]);
        wire.inside(&["ip", "link", "set", "lo", "up"]);
        wire
    }

    /// What starts a program in the namespace.
    #[must_use]
    pub fn enter(&self) -> Vec<&str> {
        vec!["ip", "netns", "exec", &self.name]
    }

    /// Nothing passes, in either direction.
    pub fn cut(&self) {
        ip(&["link", "set", &self.near, "down"]);
    }

    /// Everything passes again.
    pub fn mend(&self) {
        ip(&["link", "set", &self.near, "up"]);
    }

    /// What is said in the namespace is not heard here; what is said here is heard there.
    pub fn mute(&self) {
        // A queue with room for nobody lets nothing out.
        self.inside(&["tc", "qdisc", "replace", "dev", &self.far, "root", "pfifo", "limit", "0"]);
    }

    /// It is heard again.
    pub fn unmute(&self) {
        self.inside(&["tc", "qdisc", "del", "dev", &self.far, "root"]);
    }

    /// What is said here is not heard in the namespace; what is said there is heard here.
    pub fn deafen(&self) {
        run("tc", &["qdisc", "replace", "dev", &self.near, "root", "pfifo", "limit", "0"]);
    }

    /// It hears again.
    pub fn undeafen(&self) {
        run("tc", &["qdisc", "del", "dev", &self.near, "root"]);
    }

    fn inside(&self, words: &[&str]) {
        let all: Vec<&str> = ["netns", "exec", &self.name].into_iter().chain(words.iter().copied()).collect();
        ip(&all);
    }
}

impl Drop for Wire {
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
