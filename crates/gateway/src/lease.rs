//! One lease, and who owns it.

use berth_domain::{Attempt, WorkloadId};
use berth_wire::SubmitRequest;
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::source::Ticket;

/// How a lease came to its end, as far as the gateway knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The whole answer was passed on.
    Succeeded,
    /// The slot broke.
    Failed,
    /// The caller went away, or was not served.
    Withdrawn,
}

/// Everything that the keeper has to know of a lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTerms<C> {
    pub(crate) ticket: Ticket,
    pub(crate) caller: C,
    pub(crate) request: SubmitRequest,
    pub(crate) workload: Option<WorkloadId>,
    /// The attempt that runs, once one does.
    pub(crate) attempt: Option<Attempt>,
}

/// What is asked of the keeper.
#[derive(Debug)]
pub(crate) enum KeeperMessage<C> {
    /// The lease runs, and is renewed from now on.
    Runs(LeaseTerms<C>),
    /// The lease ends.
    Ends(LeaseTerms<C>, LeaseEnd),
    /// Answer once everything before this is done.
    Flush(tokio::sync::oneshot::Sender<()>),
}

/// A lease that somebody owns. Dropping it ends the lease.
#[derive(Debug)]
pub(crate) struct Lease<C: Clone> {
    /// Nothing once the end is queued.
    terms: Option<LeaseTerms<C>>,
    end: LeaseEnd,
    keeper: UnboundedSender<KeeperMessage<C>>,
}

impl<C: Clone> Lease<C> {
    /// A lease that is about to be submitted. It is owned before it exists, so that whoever goes away in between leaves
    /// nothing behind.
    pub(crate) fn new(keeper: UnboundedSender<KeeperMessage<C>>, caller: C, request: SubmitRequest) -> Self {
        let ticket = Ticket(Uuid::now_v7());
        let terms = LeaseTerms { ticket, caller, request, workload: None, attempt: None };
        Self { terms: Some(terms), end: LeaseEnd::Withdrawn, keeper }
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.terms.as_ref().map(|terms| terms.ticket)
    }

    /// Notes the workload that came of the submission.
    pub(crate) fn is_workload(&mut self, workload: WorkloadId) {
        if let Some(terms) = &mut self.terms {
            terms.workload = Some(workload);
        }
    }

    /// Notes that an attempt runs: the lease has to be renewed.
    pub(crate) fn runs(&mut self, attempt: Attempt) {
        if let Some(terms) = self.terms.as_mut().filter(|terms| terms.attempt != Some(attempt)) {
            terms.attempt = Some(attempt);
            // A keeper that is gone belongs to a server that stops: the lease expires by itself.
            drop(self.keeper.send(KeeperMessage::Runs(terms.clone())));
        }
    }

    /// Ends the lease.
    pub(crate) fn end(mut self, end: LeaseEnd) {
        self.end = end;
    }

    /// Forgets the lease: the server has ended it already.
    pub(crate) fn has_ended(mut self) {
        self.terms = None;
    }
}

impl<C: Clone> Drop for Lease<C> {
    fn drop(&mut self) {
        if let Some(terms) = self.terms.take() {
            drop(self.keeper.send(KeeperMessage::Ends(terms, self.end)));
        }
    }
}
