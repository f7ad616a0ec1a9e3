//! An agent on a thread of its own that follows its desired state at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::FakeAgent;

/// An agent that obeys until it is told to stop. It outlives the server: while there is no answer it asks again.
#[derive(Debug)]
pub struct AgentThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<FakeAgent>>,
}

impl AgentThread {
    /// Puts a registered agent to work.
    #[must_use]
    pub fn start(mut agent: FakeAgent) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut unheard = false;
            while !stopped.load(Ordering::Relaxed) {
                unheard = work(&mut agent, unheard);
            }
            agent
        });
        Self { stop, thread: Some(thread) }
    }

    /// Puts each of them to work.
    #[must_use]
    pub fn all(agents: impl IntoIterator<Item = FakeAgent>) -> Vec<Self> {
        agents.into_iter().map(Self::start).collect()
    }

    /// Ends its work and gives the agent back.
    #[must_use]
    pub fn stop(mut self) -> FakeAgent {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it works").join().expect("an agent's thread failed")
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One round. Whether it has something to say that the server did not hear: that is said again in the next.
fn work(agent: &mut FakeAgent, unheard: bool) -> bool {
    let epoch = agent.epoch();
    match agent.try_desired("200ms") {
        Ok(reply) if reply.status == 200 => {
            // A server that was started anew takes nothing for granted before the first report.
            let started_anew = agent.epoch() != epoch;
            let changed = agent.follow(&reply.body);
            (changed || unheard || started_anew) && !is_heard(agent)
        }
        Ok(reply) if reply.status < 500 => panic!("{}: {}", agent.id, reply.text),
        // The server is down, or too busy.
        _ => {
            std::thread::sleep(Duration::from_millis(20));
            true
        }
    }
}

fn is_heard(agent: &mut FakeAgent) -> bool {
    match agent.try_report() {
        Ok(reply) if reply.status < 300 => true,
        Ok(reply) if reply.status < 500 => panic!("{}: {}", agent.id, reply.text),
        _ => {
            agent.forget_what_was_desired();
            false
        }
    }
}
