//! Where leases come from.

use std::time::Duration;

use axum::http::request::Parts;
use berth_domain::{Attempt, EngineRoute, ModelName, Revision, WorkloadId};
use berth_wire::{Explanation, Model, Problem, Slot, SubmitRequest, Workload};
use uuid::Uuid;

use crate::served_routes;

/// The number that a gateway gives to a submission before it is made, so that it can be withdrawn whether or not its
/// answer ever came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub Uuid);

/// A model as callers reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// Its name in the catalogue, which is what its engine is asked for.
    pub name: ModelName,
    /// The routes that it serves.
    pub routes: Vec<EngineRoute>,
    /// How long its last loads took: their median, once one was seen.
    pub load_median: Option<Duration>,
}

impl ServedModel {
    /// The model of a catalogue entry.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        Self::new(model.name.clone(), model.runtime.as_str(), model.routes.iter().copied(), model.load_median_ms)
    }

    /// A model that serves `routes`, or what its runtime is known for if there are none.
    #[must_use]
    pub fn new(
        name: ModelName,
        runtime: &str,
        routes: impl Iterator<Item = EngineRoute>,
        load_median_ms: Option<u64>,
    ) -> Self {
        let routes: Vec<EngineRoute> = routes.collect();
        let routes = if routes.is_empty() { served_routes::of_runtime(runtime).to_vec() } else { routes };
        Self { name, routes, load_median: load_median_ms.map(Duration::from_millis) }
    }
}

/// Models and their slots, at about one instant.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// The models.
    pub models: Vec<Model>,
    /// Their slots.
    pub slots: Vec<Slot>,
}

/// The lease API, with the rules of the public one: who may see and submit what is decided behind it.
pub trait LeaseSource: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Who asks.
    type Caller: Clone + std::fmt::Debug + Send + Sync + Unpin + 'static;

    /// Who sends this request.
    #[expect(clippy::result_large_err, reason = "a problem is passed on as it is, once for each request that fails")]
    fn caller(&self, request: &Parts) -> Result<Self::Caller, Problem>;

    /// The model that is called so, by its name or an alias.
    fn find_model(
        &self,
        caller: &Self::Caller,
        name: &ModelName,
    ) -> impl Future<Output = Result<Option<ServedModel>, Problem>> + Send;

    /// All models and slots, or those of one model.
    fn catalogue(
        &self,
        caller: &Self::Caller,
        only: Option<&ModelName>,
    ) -> impl Future<Output = Result<Catalogue, Problem>> + Send;

    /// Submits a lease under `ticket`. Does not wait for it to run.
    fn submit(
        &self,
        caller: &Self::Caller,
        ticket: Ticket,
        request: SubmitRequest,
    ) -> impl Future<Output = Result<Workload, Problem>> + Send;

    /// The workload once it has changed after this revision, or as it is when the wait is over.
    fn follow(
        &self,
        caller: &Self::Caller,
        workload: WorkloadId,
        after: Revision,
        wait: Duration,
    ) -> impl Future<Output = Result<Workload, Problem>> + Send;

    /// Why a workload is where it is.
    fn explain(
        &self,
        caller: &Self::Caller,
        workload: WorkloadId,
    ) -> impl Future<Output = Result<Explanation, Problem>> + Send;

    /// Says that a lease is still needed.
    fn renew(
        &self,
        caller: &Self::Caller,
        workload: WorkloadId,
        attempt: Attempt,
    ) -> impl Future<Output = Result<(), Problem>> + Send;

    /// Says that a running lease is done.
    fn complete(
        &self,
        caller: &Self::Caller,
        workload: WorkloadId,
        attempt: Attempt,
        succeeded: bool,
    ) -> impl Future<Output = Result<(), Problem>> + Send;

    /// Takes back what was submitted under `ticket`, if it ever was. `request` and `workload` are what is known of it.
    fn withdraw(
        &self,
        caller: &Self::Caller,
        ticket: Ticket,
        request: &SubmitRequest,
        workload: Option<WorkloadId>,
    ) -> impl Future<Output = Result<(), Problem>> + Send;
}
