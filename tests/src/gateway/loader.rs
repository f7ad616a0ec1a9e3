//! An agent on a thread of its own whose slots take a while to load.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::service::FakeAgent;

#[derive(Debug, Default)]
struct Orders {
    load: Duration,
    fails: bool,
    kills: bool,
    stops: bool,
    started: Vec<String>,
}

/// Loads slots until it is dropped.
#[derive(Debug)]
pub struct Loader {
    orders: Arc<Mutex<Orders>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Puts a registered agent to work. Slots load at once, unless it is told otherwise.
    #[must_use]
    pub fn start(mut agent: FakeAgent) -> Self {
        agent.starts_at_once = false;
        let orders = Arc::new(Mutex::new(Orders::default()));
        let given = orders.clone();
        let thread = std::thread::spawn(move || work(&mut agent, &given));
        Self { orders, thread: Some(thread) }
    }

    /// Slots take so long to load from now on.
    pub fn loads_in(&self, load: Duration) {
        self.orders.lock().unwrap().load = load;
    }

    /// Slots end with an error instead of becoming ready.
    pub fn fails(&self) {
        self.orders.lock().unwrap().fails = true;
    }

    /// The process of every ready slot is killed, once.
    pub fn kill_all(&self) {
        self.orders.lock().unwrap().kills = true;
    }

    /// Every start so far.
    #[must_use]
    pub fn started(&self) -> Vec<String> {
        self.orders.lock().unwrap().started.clone()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.orders.lock().unwrap().stops = true;
        if let Some(thread) = self.thread.take().filter(|_| !std::thread::panicking()) {
            drop(thread.join());
        }
    }
}

fn work(agent: &mut FakeAgent, orders: &Mutex<Orders>) {
    let mut begun: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        if orders.lock().unwrap().stops {
            return;
        }
        let mut changed = match agent.try_desired("20ms") {
            Ok(reply) if reply.status == 200 => agent.follow(&reply.body),
            _ => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        // What it is told counts for every slot that it hears of afterwards.
        let (load, fails, kills) = {
            let mut orders = orders.lock().unwrap();
            orders.started = agent.started.iter().map(|(slot, _)| slot.clone()).collect();
            (orders.load, orders.fails, std::mem::take(&mut orders.kills))
        };
        for slot in agent.slots.keys().cloned().collect::<Vec<_>>() {
            let state = agent.slots[&slot].state.clone();
            let since = *begun.entry(slot.clone()).or_insert_with(Instant::now);
            match state.as_str() {
                "starting" if fails => agent.exits(&slot, 1),
                "starting" if since.elapsed() >= load => agent.say(&slot, "ready"),
                "ready" if kills => agent.exits(&slot, 137),
                _ => continue,
            }
            changed = true;
        }
        if changed {
            let _ = agent.try_report();
        }
    }
}
