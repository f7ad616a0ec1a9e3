//! HTTP: a request becomes a command or a read of a view, and an answer becomes JSON.
//!
//! [`router`] has the whole API on one screen. A file for each resource holds its handlers; [`layers`] is what happens
//! around every handler; [`problem`] makes failures of errors.

mod admin;
mod agents;
mod backup;
pub mod body;
mod catalogue;
mod estimates;
mod events;
mod explain;
mod fleet;
pub mod gateway;
mod health;
mod history;
mod joining;
pub mod layers;
mod listing;
mod logs;
mod machines;
mod openapi;
mod origin;
pub mod problem;
mod refusals;
pub mod refused_reports;
mod requests;
mod revocation;
pub mod router;
mod scheduler;
mod slots;
mod workload_logs;
mod workloads;

use berth_wire::ProblemCode;
use std::sync::Arc;
use std::time::Duration;

use berth_core::{Answer, Command, Liveness};
use berth_domain::{RunnerId, Span};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::TokensConfig;
use crate::estimator::Estimator;
use crate::limits::Limits;
use crate::logging::LogLevel;
use crate::requests::Requests;
use crate::tls::Tls;
use crate::trust::audit::Audit;
use crate::trust::cluster_key::ClusterKey;
use crate::trust::rates::Rates;
use crate::trust::runner_certificate::ClientCertificate;
use crate::trust::tokens::Tokens;
use crate::views::Views;
use crate::writer::Writer;
use problem::Failure;
use refused_reports::RefusedReports;

/// What handlers work with, shared by all of them.
#[derive(Clone, Debug)]
pub struct App(Arc<Tools>);

impl std::ops::Deref for App {
    type Target = Tools;

    fn deref(&self) -> &Tools {
        &self.0
    }
}

impl From<Tools> for App {
    fn from(tools: Tools) -> Self {
        Self(Arc::new(tools))
    }
}

/// What handlers work with.
#[derive(Debug)]
pub struct Tools {
    /// The way to change anything.
    pub writer: Writer,
    /// What is published.
    pub views: Arc<Views>,
    /// What agents are asked for.
    pub requests: Arc<Requests>,
    /// Who may do what.
    pub tokens: Tokens,
    /// Signs what agents are told.
    pub key: ClusterKey,
    /// Who did what.
    pub audit: Audit,
    /// Who may send how much.
    pub rates: Arc<Rates>,
    /// How tokens are made.
    pub token_rules: TokensConfig,
    /// What a client may use up.
    pub limits: Limits,
    /// Who reads model files.
    pub estimator: Estimator,
    /// Which refused reports were told in the log.
    pub refused_reports: RefusedReports,
    /// Encryption, if connections are encrypted, and what is asked of runners' certificates.
    pub tls: Option<Tls>,
    /// What is logged.
    pub log_level: LogLevel,
    /// Becomes true when the server shuts down: nobody is kept waiting then.
    pub stopping: watch::Receiver<bool>,
}

impl App {
    /// Carries out a command; a refusal becomes a problem.
    async fn execute(&self, command: Command) -> Result<Answer, Failure> {
        Ok(self.writer.execute(command).await??)
    }

    /// Makes sure that what is read next about runners, devices, hosts and models is no older than this request. A
    /// writer that is stuck does not keep anybody from reading what there was.
    async fn see_fleet(&self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        drop(tokio::time::timeout(PATIENCE, self.writer.publish_fleet()).await);
    }

    /// How long a secret of a runner that joined is worth something.
    fn runner_token_lifetime(&self) -> Option<Span> {
        Some(self.token_rules.runner_lifetime).filter(|lifetime| lifetime.millis() > 0)
    }

    /// When a wait of this length ends, by the longest that is allowed.
    fn deadline(&self, wait: Option<berth_wire::TimeSpan>) -> Option<Instant> {
        let wait = wait?.0.min(self.limits.current().wait);
        Some(Instant::now() + Duration::from_millis(wait.millis()))
    }

    /// Waits for `waiting`, but not into a shutdown.
    async fn unless_stopping<T>(&self, waiting: impl Future<Output = Option<T>>) -> Option<T> {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            answer = waiting => answer,
            _ = stopping.wait_for(|stopping| *stopping) => None,
        }
    }

    /// Refuses a request for a runner on a connection that was not made with the key of that runner, where the server
    /// asks for that.
    fn expect_certificate_of(&self, runner: &RunnerId, shown: Option<&ClientCertificate>) -> Result<(), Failure> {
        match self.tls.as_ref().and_then(Tls::rule) {
            Some(rule) => Ok(rule.check(shown, runner)?),
            None => Ok(()),
        }
    }

    /// Whether there is an agent of this runner that could answer a request.
    fn expect_answers_of(&self, runner: &RunnerId) -> Result<(), Failure> {
        let view = self.views.runner(runner).ok_or_else(|| Failure::unknown(ProblemCode::UnknownRunner, runner))?;
        if view.liveness == Liveness::Lost {
            let detail = format!("runner {runner} is lost: what is on its disk can be read once its agent is back");
            return Err(Failure::new(ProblemCode::RunnerLost, detail));
        }
        Ok(())
    }
}
