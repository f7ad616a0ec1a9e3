//! From a request to the first byte of an answer: a lease, a wait, a slot, and one more slot if the first one breaks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use berth_domain::{Endpoint, WorkloadId};
use berth_wire::{SubmitRequest, TimeSpan, Workload, WorkloadState};
use tokio::time::Instant;

use crate::config::duration;
use crate::held::Held;
use crate::lease::{Lease, LeaseEnd};
use crate::models;
use crate::router::Shared;
use crate::slot::{Question, SlotAnswer, SlotError};
use crate::source::{LeaseSource, ServedModel};
use crate::trouble::Trouble;

/// The longest time that the lease API is asked to wait for a change.
const LONGEST_FOLLOW: Duration = Duration::from_secs(30);
/// How long the gateway waits for an explanation before it answers without one.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(1);
/// A workload that nobody follows any more leaves the queue so long after its request was given up.
const QUEUE_MARGIN_MS: u64 = 10_000;

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Call<C> {
    pub(crate) caller: C,
    pub(crate) model: ServedModel,
    pub(crate) question: Question,
    /// Where the workload's id is left for whoever answers before this has come to its end.
    pub(crate) workload: Arc<OnceLock<WorkloadId>>,
}

/// An answer that has begun, and the lease that lasts as long as the answer does.
#[derive(Debug)]
pub(crate) struct Obtained<C: Clone> {
    pub(crate) answer: SlotAnswer,
    pub(crate) lease: Lease<C>,
    pub(crate) workload: WorkloadId,
}

/// Obtains the beginning of an answer. Dropping this future at any point ends the lease.
pub(crate) async fn obtain<S: LeaseSource>(
    shared: Arc<Shared<S>>,
    call: Call<S::Caller>,
) -> Result<Obtained<S::Caller>, Trouble> {
    let deadline = Instant::now() + duration(shared.config.hold);
    let mut attempt = Obtaining { shared: &shared, call: &call, deadline, held: None };
    let told = |trouble: Trouble| trouble.of_workload(call.workload.get().copied());
    attempt.run().await.map_err(told)
}

struct Obtaining<'a, S: LeaseSource> {
    shared: &'a Arc<Shared<S>>,
    call: &'a Call<S::Caller>,
    deadline: Instant,
    /// While the request waits.
    held: Option<Held>,
}

impl<S: LeaseSource> Obtaining<'_, S> {
    async fn run(&mut self) -> Result<Obtained<S::Caller>, Trouble> {
        if !self.shared.held.has_room_for(&self.call.model.name) {
            return Err(self.full());
        }
        let (mut lease, mut workload) = self.submit().await?;
        let mut is_second_slot = false;
        loop {
            let endpoint;
            (lease, workload, endpoint) = self.wait_until_running(lease, workload).await?;
            self.held = None;
            lease.runs(workload.attempt);
            let error = match self.shared.slots.ask(&endpoint, &self.call.question).await {
                Ok(answer) => return Ok(Obtained { answer, lease, workload: workload.id }),
                Err(error) => error,
            };
            match error {
                SlotError::Redirects => {
                    lease.end(LeaseEnd::Failed);
                    return Err(Trouble::slot_redirects());
                }
                SlotError::Broke(why) if is_second_slot => {
                    lease.end(LeaseEnd::Failed);
                    return Err(Trouble::slot_failed(&why));
                }
                SlotError::Broke(why) => {
                    tracing::debug!(workload = %workload.id, why, "a slot broke before its first byte: trying another");
                    is_second_slot = true;
                    (lease, workload) = self.replace_slot(lease, workload).await?;
                }
            }
        }
    }

    async fn submit(&self) -> Result<(Lease<S::Caller>, Workload), Trouble> {
        let config = &self.shared.config;
        let mut request = SubmitRequest::lease(self.call.model.name.clone());
        request.ttl = Some(TimeSpan(config.lease_ttl));
        let waits = config.hold.millis().saturating_add(QUEUE_MARGIN_MS);
        request.queue_timeout = Some(TimeSpan(berth_domain::Span::from_millis(waits)));
        let caller = self.call.caller.clone();
        let mut lease = Lease::new(self.shared.keeper.clone(), caller, request.clone());
        let Some(ticket) = lease.ticket() else { return Err(Trouble::slot_failed("its lease has ended")) };
        let workload = self.shared.source.submit(&self.call.caller, ticket, request).await?;
        lease.is_workload(workload.id);
        // A second workload replaces one that ended: the first one is what the caller was told of.
        let _ = self.call.workload.set(workload.id);
        Ok((lease, workload))
    }

    async fn wait_until_running(
        &mut self,
        lease: Lease<S::Caller>,
        mut workload: Workload,
    ) -> Result<(Lease<S::Caller>, Workload, Endpoint), Trouble> {
        loop {
            match workload.state {
                WorkloadState::Running => {
                    let endpoint = workload.slot.as_ref().and_then(|slot| slot.endpoint.clone());
                    let endpoint = endpoint.ok_or_else(|| Trouble::slot_failed("its runtime has no endpoint"))?;
                    return Ok((lease, workload, endpoint));
                }
                WorkloadState::Queued | WorkloadState::Assigned => {}
                WorkloadState::Failed => {
                    let why = self.explanation(&workload).await;
                    lease.has_ended();
                    return Err(Trouble::load_failed(why));
                }
                WorkloadState::Expired | WorkloadState::Cancelled | WorkloadState::Succeeded => {
                    let trouble = self.loading(&workload).await;
                    lease.has_ended();
                    return Err(trouble);
                }
            }
            if self.held.is_none() {
                self.held = self.shared.held.enter(&self.call.model.name);
                if self.held.is_none() {
                    return Err(self.full());
                }
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.loading(&workload).await);
            }
            workload = self.follow(&workload, left).await?;
        }
    }

    async fn follow(&self, workload: &Workload, wait: Duration) -> Result<Workload, Trouble> {
        let wait = wait.min(LONGEST_FOLLOW);
        Ok(self.shared.source.follow(&self.call.caller, workload.id, workload.revision, wait).await?)
    }

    /// A slot that dies takes its leases back to the queue, where they keep their age. If the server sees nothing wrong
    /// with the slot, another lease is taken.
    async fn replace_slot(
        &self,
        lease: Lease<S::Caller>,
        mut workload: Workload,
    ) -> Result<(Lease<S::Caller>, Workload), Trouble> {
        let broken = workload.attempt;
        let until = self.deadline.min(Instant::now() + duration(self.shared.config.failover));
        loop {
            if workload.state != WorkloadState::Running || workload.attempt != broken {
                return Ok((lease, workload));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                lease.end(LeaseEnd::Failed);
                return self.submit().await;
            }
            workload = self.follow(&workload, left).await?;
        }
    }

    fn full(&self) -> Trouble {
        let retry = self.measured_load();
        Trouble::full(self.call.model.name.as_str(), retry.as_secs())
    }

    /// The model still loads, as far as is known of it.
    async fn loading(&self, workload: &Workload) -> Trouble {
        let load = self.measured_load();
        let explained = tokio::time::timeout(EXPLAINED_WITHIN, self.explain(workload)).await.ok().flatten();
        let Some(explanation) = explained else {
            return Trouble::loading("the model is not loaded yet".into(), load.as_secs());
        };
        // What starts already needs the rest of a load; what waits needs one for itself and each before it.
        let retry = match explanation.position {
            Some(position) => load.saturating_mul(u32::try_from(position).unwrap_or(u32::MAX)),
            None => load.saturating_sub(models::since(explanation.now.since)),
        };
        Trouble::loading(models::first_line(&explanation), retry.as_secs())
    }

    async fn explanation(&self, workload: &Workload) -> String {
        let explained = tokio::time::timeout(EXPLAINED_WITHIN, self.explain(workload)).await.ok().flatten();
        let reason = workload.reason.as_ref().map(|reason| reason.text.clone());
        explained
            .map(|explanation| models::first_line(&explanation))
            .or(reason)
            .unwrap_or_else(|| "the model could not be loaded".to_owned())
    }

    async fn explain(&self, workload: &Workload) -> Option<berth_wire::Explanation> {
        self.shared.source.explain(&self.call.caller, workload.id).await.ok()
    }

    /// How long the model took to load before; a guess where nobody has seen it load.
    fn measured_load(&self) -> Duration {
        const GUESS: Duration = Duration::from_secs(30);
        self.call.model.load_median.unwrap_or(GUESS)
    }
}
