//! A method for each route, which returns the answer as a type. [`Client::ask`] returns the text of the answer too.

use berth_domain::{Attempt, DeviceUuid, ModelName, Revision, RunnerId, SlotId, WorkloadId};
use berth_wire::{
    AuditEntry, CompleteRequest, Decision, DecisionQuery, Demand, Desired, DesiredQuery, DeviceLedger, DrainQuery,
    Estimate, EstimateRequest, EventQuery, Explanation, Fit, FitQuery, ForceReleaseRequest, ForgetRequest, Health,
    JoinRequest, Ledger, LogLevel, LogQuery, Model, ModelRequest, NewToken, PageQuery, QueueEntry, Ready, ReportAnswer,
    ReportRequest, Runner, RunnerStatus, Slot, SlotQuery, SubmitRequest, TimeSpan, Token, TokenId, TokenRequest,
    Version, WaitQuery, Workload, WorkloadFilter, WorkloadLogQuery,
};
use reqwest::StatusCode;
use serde::de::DeserializeOwned;

use crate::client::problem_in;
use crate::{Client, ClientError, EventStream, Route, TextStream, routes};

type Listing<T> = Result<(Vec<T>, Revision), ClientError>;

impl Client {
    async fn body<T: DeserializeOwned>(&self, route: Route<T>) -> Result<T, ClientError> {
        self.ask(&route).await.map(|answer| answer.body)
    }

    async fn done<T: DeserializeOwned>(&self, route: Route<T>) -> Result<(), ClientError> {
        self.ask(&route).await.map(|_| ())
    }

    async fn list<T: DeserializeOwned>(&self, route: Route<Vec<T>>) -> Listing<T> {
        self.ask(&route).await.map(|answer| (answer.body, answer.revision))
    }
}

/// Methods for workloads.
impl Client {
    /// Submits a workload, and waits until it runs if `wait` is given.
    pub async fn submit(
        &self,
        request: &SubmitRequest,
        key: Option<&str>,
        wait: Option<TimeSpan>,
    ) -> Result<Workload, ClientError> {
        self.body(routes::submit(request, key, wait)).await
    }

    /// Lists workloads.
    pub async fn workloads(&self, filter: &WorkloadFilter) -> Listing<Workload> {
        self.list(routes::workloads(filter)).await
    }

    /// Returns one workload, after its next change if `wait` asks for that.
    pub async fn workload(&self, id: WorkloadId, wait: WaitQuery) -> Result<Workload, ClientError> {
        self.body(routes::workload(id, wait)).await
    }

    /// Cancels a workload.
    pub async fn cancel(&self, id: WorkloadId) -> Result<Workload, ClientError> {
        self.body(routes::cancel(id)).await
    }

    /// Renews a lease.
    pub async fn heartbeat(&self, id: WorkloadId, attempt: Attempt) -> Result<Workload, ClientError> {
        self.body(routes::heartbeat(id, attempt)).await
    }

    /// Completes a workload.
    pub async fn complete(&self, id: WorkloadId, request: &CompleteRequest) -> Result<Workload, ClientError> {
        self.body(routes::complete(id, request)).await
    }

    /// Returns the explanation of a workload.
    pub async fn explain(&self, id: WorkloadId) -> Result<Explanation, ClientError> {
        self.body(routes::explain(id)).await
    }
}

/// Methods for models.
impl Client {
    /// Estimates a model's memory, from files that the server may read.
    pub async fn estimate(&self, request: &EstimateRequest) -> Result<Estimate, ClientError> {
        self.body(routes::estimate(request)).await
    }

    /// Lists models.
    pub async fn models(&self, page: &PageQuery) -> Listing<Model> {
        self.list(routes::models(page)).await
    }

    /// Returns one model.
    pub async fn model(&self, name: &ModelName) -> Result<Model, ClientError> {
        self.body(routes::model(name)).await
    }

    /// Adds or changes a model.
    pub async fn put_model(&self, name: &ModelName, request: &ModelRequest) -> Result<Model, ClientError> {
        self.body(routes::put_model(name, request)).await
    }

    /// Removes a model.
    pub async fn delete_model(&self, name: &ModelName) -> Result<(), ClientError> {
        self.done(routes::delete_model(name)).await
    }

    /// Returns whether a slot of the model would fit, where, and which slots would be evicted.
    pub async fn fit(&self, name: &ModelName, query: FitQuery) -> Result<Fit, ClientError> {
        self.body(routes::fit(name, query)).await
    }
}

/// Methods for runners and devices.
impl Client {
    /// Lists runners.
    pub async fn runners(&self, page: &PageQuery) -> Listing<Runner> {
        self.list(routes::runners(page)).await
    }

    /// Returns one runner, as the server holds it.
    pub async fn runner(&self, id: &RunnerId) -> Result<Runner, ClientError> {
        self.body(routes::runner(id)).await
    }

    /// Returns what a runner last reported.
    pub async fn runner_status(&self, id: &RunnerId) -> Result<RunnerStatus, ClientError> {
        self.body(routes::runner_status(id)).await
    }

    /// Cordons a runner, so that it takes nothing new.
    pub async fn cordon(&self, id: &RunnerId) -> Result<Runner, ClientError> {
        self.body(routes::cordon(id)).await
    }

    /// Lets a runner take work again.
    pub async fn uncordon(&self, id: &RunnerId) -> Result<Runner, ClientError> {
        self.body(routes::uncordon(id)).await
    }

    /// Drains a runner: it finishes the work that it has and takes nothing new.
    pub async fn drain(&self, id: &RunnerId, query: DrainQuery) -> Result<Runner, ClientError> {
        self.body(routes::drain(id, query)).await
    }

    /// Forgets a runner whose machine does not come back.
    pub async fn forget(&self, id: &RunnerId, request: &ForgetRequest) -> Result<(), ClientError> {
        self.done(routes::forget(id, request)).await
    }

    /// Cordons a device, so that it takes nothing new.
    pub async fn cordon_device(&self, uuid: &DeviceUuid) -> Result<DeviceLedger, ClientError> {
        self.body(routes::cordon_device(uuid)).await
    }

    /// Lets a device take work again.
    pub async fn uncordon_device(&self, uuid: &DeviceUuid) -> Result<DeviceLedger, ClientError> {
        self.body(routes::uncordon_device(uuid)).await
    }

    /// Sends an agent's report, or registers the agent.
    pub async fn report(&self, id: &RunnerId, request: &ReportRequest) -> Result<ReportAnswer, ClientError> {
        self.body(routes::report(id, request)).await
    }

    /// Returns what an agent should make true.
    pub async fn desired(&self, id: &RunnerId, query: &DesiredQuery) -> Result<Desired, ClientError> {
        self.body(routes::desired(id, query)).await
    }
}

/// Methods for slots, decisions and events.
impl Client {
    /// Lists slots.
    pub async fn slots(&self, query: &SlotQuery) -> Listing<Slot> {
        self.list(routes::slots(query)).await
    }

    /// Returns one slot.
    pub async fn slot(&self, id: SlotId) -> Result<Slot, ClientError> {
        self.body(routes::slot(id)).await
    }

    /// Stops a slot.
    pub async fn stop_slot(&self, id: SlotId) -> Result<(), ClientError> {
        self.done(routes::stop_slot(id)).await
    }

    /// Frees a slot's memory without proof, for a stated reason.
    pub async fn force_release(&self, id: SlotId, request: &ForceReleaseRequest) -> Result<(), ClientError> {
        self.done(routes::force_release(id, request)).await
    }

    /// Returns what a slot wrote.
    pub async fn slot_logs(&self, id: SlotId, query: &LogQuery) -> Result<TextStream, ClientError> {
        let response = self.open(&routes::slot_logs(id, query), |request| request).await?;
        Ok(TextStream { response, url: self.base().to_owned() })
    }

    /// Returns what a workload's slot wrote.
    pub async fn workload_logs(&self, id: WorkloadId, query: &WorkloadLogQuery) -> Result<TextStream, ClientError> {
        let response = self.open(&routes::workload_logs(id, query), |request| request).await?;
        Ok(TextStream { response, url: self.base().to_owned() })
    }

    /// Lists decisions.
    pub async fn decisions(&self, query: &DecisionQuery) -> Listing<Decision> {
        self.list(routes::decisions(query)).await
    }

    /// Lists the workloads that wait, in the order of the queue.
    pub async fn queue(&self, page: &PageQuery) -> Listing<QueueEntry> {
        self.list(routes::queue(page)).await
    }

    /// Returns the ledgers of all devices and machines.
    pub async fn ledger(&self) -> Result<Ledger, ClientError> {
        self.body(routes::ledger()).await
    }

    /// Lists the unmet demand.
    pub async fn demand(&self) -> Listing<Demand> {
        self.list(routes::demand()).await
    }

    /// Returns the stream of events after `after`, or of new events without it.
    pub async fn events(&self, query: EventQuery) -> Result<EventStream, ClientError> {
        EventStream::open(self.clone(), query).await
    }
}

/// Methods for tokens, records and health.
impl Client {
    /// Makes a token. Only this answer contains its secret.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<NewToken, ClientError> {
        self.body(routes::create_token(request)).await
    }

    /// Lists tokens.
    pub async fn tokens(&self) -> Listing<Token> {
        self.list(routes::tokens()).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: TokenId) -> Result<(), ClientError> {
        self.done(routes::revoke_token(id)).await
    }

    /// Exchanges a join token for a token of a runner.
    pub async fn join(&self, request: &JoinRequest) -> Result<NewToken, ClientError> {
        self.body(routes::join(request)).await
    }

    /// Makes another secret for the token of this runner.
    pub async fn rotate_own_token(&self, id: &RunnerId) -> Result<NewToken, ClientError> {
        self.body(routes::rotate_own_token(id)).await
    }

    /// Lists the audit log.
    pub async fn audit(&self, page: &PageQuery) -> Listing<AuditEntry> {
        self.list(routes::audit(page)).await
    }

    /// Returns a backup of the server, as a stream.
    pub async fn backup(&self) -> Result<TextStream, ClientError> {
        let response = self.open(&routes::backup(), |request| request).await?;
        Ok(TextStream { response, url: self.base().to_owned() })
    }

    /// Returns the log filter of the server.
    pub async fn log_level(&self) -> Result<LogLevel, ClientError> {
        self.body(routes::log_level()).await
    }

    /// Changes the log filter of the server.
    pub async fn set_log_level(&self, level: &LogLevel) -> Result<LogLevel, ClientError> {
        self.body(routes::set_log_level(level)).await
    }

    /// Returns the identity and version of the server.
    pub async fn version(&self) -> Result<Version, ClientError> {
        self.body(routes::version()).await
    }

    /// Returns whether the server is alive.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.body(routes::health()).await
    }

    /// Returns whether the server is ready. "Not ready" is an answer, not an error.
    pub async fn ready(&self) -> Result<Ready, ClientError> {
        let (_, text) = self.ask_text(&routes::ready(), &[StatusCode::SERVICE_UNAVAILABLE]).await?;
        serde_json::from_str(&text).map_err(|error| {
            problem_in(&text).unwrap_or_else(|| ClientError::NotBerth {
                url: self.base().to_owned(),
                why: format!("its answer cannot be read: {error}"),
            })
        })
    }

    /// Returns the server's metrics.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.ask_text(&routes::metrics(), &[]).await.map(|(_, text)| text)
    }

    /// Returns the OpenAPI description.
    pub async fn openapi(&self) -> Result<serde_json::Value, ClientError> {
        self.body(routes::openapi()).await
    }
}
