//! Leases over HTTP, for a gateway that is a process of its own.
//!
//! The gateway has no token: it asks the server with the key of whoever asks it, so that the server decides who may do
//! what, and whose work it is. It keeps nothing but a copy of the catalogue, for a moment.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header;
use axum::http::request::Parts;
use berth_client::{Client, ClientError};
use berth_domain::{Attempt, ModelName, Revision, Span, WorkloadId};
use berth_wire::{
    CompleteRequest, Explanation, Model, PageQuery, Problem, SlotQuery, SubmitRequest, TimeSpan, WaitQuery, Workload,
};
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::source::{Catalogue, LeaseSource, ServedModel, Ticket};

/// How long a copy of the catalogue is good.
const CATALOGUE_LIFETIME: Duration = Duration::from_secs(1);

/// The catalogue, and since when it is known.
type KnownModels = (Instant, Arc<Vec<Model>>);

/// A caller's key, if they sent one.
#[derive(Clone, Debug)]
pub struct Key(Option<SecretString>);

/// The lease API of a server elsewhere.
#[derive(Clone, Debug)]
pub struct RemoteLeases {
    client: Client,
    known: Arc<Mutex<Option<KnownModels>>>,
}

impl RemoteLeases {
    /// Leases of the server that `client` asks.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, known: Arc::default() }
    }

    #[expect(clippy::result_large_err, reason = "a problem is passed on as it is, once for each request that fails")]
    fn client_of(&self, caller: &Key) -> Result<Client, Problem> {
        self.client.with_token(caller.0.as_ref()).map_err(problem)
    }

    /// The catalogue, as this caller may see it. Whoever may read it sees the same, and who asks for a lease is asked
    /// for their key again.
    async fn models(&self, caller: &Key) -> Result<Arc<Vec<Model>>, Problem> {
        let fresh = |(since, models): &KnownModels| (since.elapsed() < CATALOGUE_LIFETIME).then(|| models.clone());
        if let Some(models) = self.known.lock().as_ref().and_then(fresh) {
            return Ok(models);
        }
        let (models, _) = self.client_of(caller)?.models(&PageQuery::default()).await.map_err(problem)?;
        let models = Arc::new(models);
        *self.known.lock() = Some((Instant::now(), models.clone()));
        Ok(models)
    }
}

impl LeaseSource for RemoteLeases {
    type Caller = Key;

    fn caller(&self, request: &Parts) -> Result<Key, Problem> {
        let Some(value) = request.headers.get(header::AUTHORIZATION) else { return Ok(Key(None)) };
        let refuse =
            || Problem::new(401, "unauthenticated", "Unauthorized", "send a key: Authorization: Bearer berth_...");
        let (scheme, key) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(refuse)?;
        match scheme.eq_ignore_ascii_case("bearer") {
            true => Ok(Key(Some(SecretString::from(key.trim().to_owned())))),
            false => Err(refuse()),
        }
    }

    async fn find_model(&self, caller: &Key, name: &ModelName) -> Result<Option<ServedModel>, Problem> {
        let models = self.models(caller).await?;
        let found = models.iter().find(|model| model.name == *name || model.aliases.contains(name));
        Ok(found.map(ServedModel::of))
    }

    async fn catalogue(&self, caller: &Key, only: Option<&ModelName>) -> Result<Catalogue, Problem> {
        let client = self.client_of(caller)?;
        let models = match only {
            Some(name) => vec![client.model(name).await.map_err(problem)?],
            None => client.models(&PageQuery::default()).await.map_err(problem)?.0,
        };
        let query = SlotQuery { model: only.cloned(), ..SlotQuery::default() };
        let (slots, _) = client.slots(&query).await.map_err(problem)?;
        Ok(Catalogue { models, slots })
    }

    async fn submit(&self, caller: &Key, ticket: Ticket, request: SubmitRequest) -> Result<Workload, Problem> {
        let client = self.client_of(caller)?;
        client.submit(&request, Some(&ticket.0.to_string()), None).await.map_err(problem)
    }

    async fn follow(
        &self,
        caller: &Key,
        workload: WorkloadId,
        after: Revision,
        wait: Duration,
    ) -> Result<Workload, Problem> {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let query = WaitQuery { wait: Some(TimeSpan(Span::from_millis(millis))), after: Some(after) };
        self.client_of(caller)?.workload(workload, query).await.map_err(problem)
    }

    async fn explain(&self, caller: &Key, workload: WorkloadId) -> Result<Explanation, Problem> {
        self.client_of(caller)?.explain(workload).await.map_err(problem)
    }

    async fn renew(&self, caller: &Key, workload: WorkloadId, attempt: Attempt) -> Result<(), Problem> {
        self.client_of(caller)?.heartbeat(workload, attempt).await.map(drop).map_err(problem)
    }

    async fn complete(
        &self,
        caller: &Key,
        workload: WorkloadId,
        attempt: Attempt,
        succeeded: bool,
    ) -> Result<(), Problem> {
        let request = CompleteRequest { attempt, succeeded };
        self.client_of(caller)?.complete(workload, &request).await.map(drop).map_err(problem)
    }

    async fn withdraw(
        &self,
        caller: &Key,
        ticket: Ticket,
        request: &SubmitRequest,
        workload: Option<WorkloadId>,
    ) -> Result<(), Problem> {
        let client = self.client_of(caller)?;
        let workload = match workload {
            Some(workload) => workload,
            // Nobody knows whether the submission arrived. The same key is the same workload, so this finds it.
            None => client.submit(request, Some(&ticket.0.to_string()), None).await.map_err(problem)?.id,
        };
        client.cancel(workload).await.map(drop).map_err(problem)
    }
}

fn problem(error: ClientError) -> Problem {
    match error {
        ClientError::Problem(problem) => *problem,
        other => {
            Problem::new(503, "server_unreachable", "Service Unavailable", other.to_string()).with_retry_after_ms(1000)
        }
    }
}
