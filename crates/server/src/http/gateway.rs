//! The gateway in the server's own process: the lease API without the detour over HTTP, with the same rules.

use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use berth_core::{Answer, Command, Refusal};
use berth_domain::{Attempt, ModelName, Revision, WorkloadId};
use berth_gateway::{Catalogue, Gateway, GatewayConfig, Groups, LeaseSource, ServedModel, Ticket};
use berth_wire::{Explanation, Problem, ProblemCode, SubmitRequest, Workload};
use tokio::time::Instant;

use super::layers::around_handler;
use super::layers::authentication::RouteAccess;
use super::problem::Failure;
use super::workloads::{refuse_submission, shown, wait_until};
use super::{App, explain};
use crate::present;
use crate::trust::{Access, Caller};
use crate::writer::{Committed, Unavailable};

/// The gateway that a server has.
pub type OwnGateway = Gateway<App>;

/// The routes of the gateway, below `/v1`.
pub(super) fn routes(app: &App, gateway: &OwnGateway, config: &GatewayConfig) -> Router<App> {
    let layers = |access| from_fn_with_state(RouteAccess { app: app.clone(), access }, around_handler);
    let Groups { read, submit } = gateway.routes::<App>();
    let inner = read.route_layer(layers(Access::Read)).merge(submit.route_layer(layers(Access::Submit)));
    berth_gateway::finish(inner, config, refusal_in)
}

/// The gate's own refusals, which know nothing of the shapes that callers of a gateway expect.
fn refusal_in(response: &Response) -> Option<Problem> {
    response.extensions().get::<Failure>().map(|failure| (*failure.0).clone())
}

fn problem(failure: impl Into<Failure>) -> Problem {
    *failure.into().0
}

impl App {
    async fn change_lease(&self, caller: &Caller, id: WorkloadId, command: Command) -> Result<(), Problem> {
        self.visible_workload(caller, id).map_err(problem)?;
        self.execute(command).await.map(drop).map_err(problem)
    }
}

impl LeaseSource for App {
    type Caller = Caller;

    fn caller(&self, request: &Parts) -> Result<Caller, Problem> {
        // The gate has put it there, or has not let the request pass.
        request.extensions.get::<Caller>().cloned().ok_or_else(|| problem(Failure::unauthenticated()))
    }

    async fn find_model(&self, _: &Caller, name: &ModelName) -> Result<Option<ServedModel>, Problem> {
        let look = || {
            let named = self.views.model(name);
            let called = || self.views.models().into_iter().find(|view| view.spec.is_called(name));
            named.or_else(called)
        };
        let mut found = look();
        if found.is_none() {
            // Models are published when somebody asks for them: this one may be new.
            self.see_fleet().await;
            found = look();
        }
        Ok(found.map(|view| {
            let runtime = view.spec.constraints.runtime.as_str();
            let median = self.views.load_times.median(&view.name).map(berth_domain::Span::millis);
            ServedModel::new(view.name.clone(), runtime, view.spec.routes.iter().copied(), median)
        }))
    }

    async fn catalogue(&self, _: &Caller, only: Option<&ModelName>) -> Result<Catalogue, Problem> {
        self.see_fleet().await;
        let is_wanted = |name: &ModelName| only.is_none_or(|only| only == name);
        let models = self.views.models().into_iter().filter(|view| is_wanted(&view.name));
        let slots = self.views.slots().into_iter().filter(|view| view.model.as_ref().is_some_and(is_wanted));
        Ok(Catalogue {
            models: models.map(|view| self.model_as_shown(&view)).collect(),
            slots: slots.map(|view| present::slot(&view, |uuid| self.views.device(uuid))).collect(),
        })
    }

    async fn submit(&self, caller: &Caller, ticket: Ticket, request: SubmitRequest) -> Result<Workload, Problem> {
        let mut submission = request.into_submission(None).map_err(problem)?;
        let limits = caller.sign(&mut submission, &self.token_rules).map_err(problem)?;
        let workload = WorkloadId::new(ticket.0);
        let command = Command::Submit { workload, submission, limits };
        let look = move |Committed { views, .. }: Committed<'_>, answer: Result<Answer, Refusal>| {
            answer.map(|_| views.workload(workload))
        };
        let answer = self.writer.execute_and_read(command, look).await.map_err(problem)?;
        let row = answer.map_err(|refusal| problem(refuse_submission(refusal)))?;
        row.map(|row| shown(self, &row))
            .ok_or_else(|| problem(Failure::unknown(ProblemCode::UnknownWorkload, workload)))
    }

    async fn follow(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        after: Revision,
        wait: Duration,
    ) -> Result<Workload, Problem> {
        self.visible_workload(caller, workload).map_err(problem)?;
        let row = wait_until(self, workload, Instant::now() + wait, |row| row.revision > after).await;
        let row = row.ok_or_else(|| problem(Failure::unknown(ProblemCode::UnknownWorkload, workload)))?;
        if *self.stopping.borrow() && row.revision <= after {
            // Nobody is held into a shutdown.
            return Err(problem(Unavailable::Stopping));
        }
        Ok(shown(self, &row))
    }

    async fn explain(&self, caller: &Caller, workload: WorkloadId) -> Result<Explanation, Problem> {
        explain::explanation(self, caller, workload).await.map_err(problem)
    }

    async fn renew(&self, caller: &Caller, workload: WorkloadId, attempt: Attempt) -> Result<(), Problem> {
        self.change_lease(caller, workload, Command::Heartbeat { workload, attempt }).await
    }

    async fn complete(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        attempt: Attempt,
        succeeded: bool,
    ) -> Result<(), Problem> {
        self.change_lease(caller, workload, Command::Complete { workload, attempt, succeeded }).await
    }

    async fn withdraw(
        &self,
        _: &Caller,
        ticket: Ticket,
        _: &SubmitRequest,
        _: Option<WorkloadId>,
    ) -> Result<(), Problem> {
        // The submission stood in line before this does, so whether it came to anything is known by then.
        let command = Command::Cancel { workload: WorkloadId::new(ticket.0) };
        self.execute(command).await.map(drop).map_err(problem)
    }
}
