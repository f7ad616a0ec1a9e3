//! The one task that renews and ends leases.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use berth_wire::Problem;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};

use crate::lease::{KeeperMessage, LeaseEnd, LeaseTerms};
use crate::source::{LeaseSource, Ticket};

/// How many calls of the lease API the keeper has under way at once.
const MOST_AT_ONCE: usize = 256;
/// How often an end is tried before the lease is left to its time to live.
const TRIES: u32 = 6;
/// The pause after the first try; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
/// A lease is renewed after this part of its time to live.
const RENEWALS: u32 = 3;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the keeper has. It outlives a panic of the keeper's loop.
struct Keeping<S: LeaseSource> {
    source: S,
    inbox: UnboundedReceiver<KeeperMessage<S::Caller>>,
    running: HashMap<Ticket, (LeaseTerms<S::Caller>, Instant)>,
    every: Duration,
}

/// Starts the keeper of the leases of one gateway. It ends when the last sender is gone.
pub(crate) fn start<S: LeaseSource>(source: S, lease_ttl: Duration) -> UnboundedSender<KeeperMessage<S::Caller>> {
    let (sender, inbox) = unbounded_channel();
    let every = (lease_ttl / RENEWALS).max(Duration::from_millis(10));
    let mut keeping = Keeping { source, inbox, running: HashMap::new(), every };
    tokio::spawn(async move {
        // A bug in one call must not leave all other leases without a keeper.
        while AssertUnwindSafe(keeping.keep()).catch_unwind().await.is_err() {
            tracing::error!("a bug in the keeper of leases: it goes on, and what was under way expires by itself");
        }
    });
    sender
}

impl<S: LeaseSource> Keeping<S> {
    async fn keep(&mut self) {
        let mut calls = FuturesUnordered::<Call>::new();
        let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
        let mut tick = tokio::time::interval((self.every / 4).max(Duration::from_millis(5)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = self.inbox.recv(), if calls.len() < MOST_AT_ONCE => match message {
                    None => break,
                    Some(KeeperMessage::Runs(terms)) => {
                        self.running.insert(terms.ticket, (terms, Instant::now() + self.every));
                    }
                    Some(KeeperMessage::Ends(terms, end)) => {
                        self.running.remove(&terms.ticket);
                        calls.push(Box::pin(end_lease(self.source.clone(), terms, end)));
                    }
                    Some(KeeperMessage::Flush(done)) => flushes.push(done),
                },
                Some(()) = calls.next(), if !calls.is_empty() => {}
                now = tick.tick() => self.renew_due(now, &calls),
            }
            if calls.is_empty() {
                for done in flushes.drain(..) {
                    let _ = done.send(());
                }
            }
        }
        while calls.next().await.is_some() {}
    }

    fn renew_due(&mut self, now: Instant, calls: &FuturesUnordered<Call>) {
        for (terms, due) in self.running.values_mut().filter(|(_, due)| *due <= now) {
            *due = now + self.every;
            let (Some(workload), Some(attempt)) = (terms.workload, terms.attempt) else { continue };
            let (source, caller) = (self.source.clone(), terms.caller.clone());
            calls.push(Box::pin(async move {
                if let Err(problem) = source.renew(&caller, workload, attempt).await {
                    // Its slot may have failed since: whoever waits for it hears of that elsewhere.
                    tracing::debug!(%workload, %problem, "a lease was not renewed");
                }
            }));
        }
    }
}

/// Ends one lease, and tries again while the server cannot be asked.
async fn end_lease<S: LeaseSource>(source: S, terms: LeaseTerms<S::Caller>, end: LeaseEnd) {
    let mut pause = PAUSE;
    for _ in 0..TRIES {
        match end_once(&source, &terms, end).await {
            // It has ended already, or never came to be.
            Err(problem) if matches!(problem.status, 404 | 409) => return,
            Err(problem) if matches!(problem.status, 429 | 500..) => {
                tracing::debug!(workload = ?terms.workload, %problem, "a lease could not be ended yet");
            }
            Err(problem) => {
                tracing::warn!(workload = ?terms.workload, %problem, "a lease is left to its time to live");
                return;
            }
            Ok(()) => return,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    tracing::warn!(workload = ?terms.workload, "a lease is left to its time to live: the server does not answer");
}

async fn end_once<S: LeaseSource>(source: &S, terms: &LeaseTerms<S::Caller>, end: LeaseEnd) -> Result<(), Problem> {
    if let (Some(workload), Some(attempt), LeaseEnd::Succeeded | LeaseEnd::Failed) =
        (terms.workload, terms.attempt, end)
    {
        match source.complete(&terms.caller, workload, attempt, end == LeaseEnd::Succeeded).await {
            // The attempt is over and the workload may wait for another one, which nobody needs.
            Err(problem) if problem.status == 409 => {}
            done => return done,
        }
    }
    source.withdraw(&terms.caller, terms.ticket, &terms.request, terms.workload).await
}
