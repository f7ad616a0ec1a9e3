//! Whose work is whose: a submitter sees and ends its own work, and has no more of it than it may.

use berth_domain::{Arg, Owner, OwnerLimits, Priority, Submission};
use berth_wire::Role;

use super::Caller;
use crate::config::TokensConfig;

/// Why a submission is not taken from this caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// A priority that the token does not grant.
    #[error("this token may ask for priority {limit} at most, not {asked}: an admin makes tokens with a higher one")]
    Priority {
        /// What was asked for.
        asked: Priority,
        /// The most it may.
        limit: Priority,
    },
    /// More arguments than the token grants.
    #[error("the arguments of this job have {bytes} bytes, and those of this token may have {limit}")]
    JobArgs {
        /// What was sent.
        bytes: u64,
        /// The most it may.
        limit: u64,
    },
    /// Another tenant than the token's.
    #[error("this token may not submit for tenant {0}: leave `tenant` out, or use a token of that tenant")]
    Tenant(String),
}

impl Caller {
    /// Whose work this caller submits; nobody's in particular on a server without tokens.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        let name = match (&self.tenant, self.token) {
            (Some(tenant), _) => format!("tenant:{tenant}"),
            (None, Some(token)) => format!("token:{token}"),
            (None, None) => return None,
        };
        Owner::new(name).ok()
    }

    /// Whether this caller may know of somebody's workload, its arguments and its logs. Submitters know of their own;
    /// admins and viewers are there to look at everything.
    #[must_use]
    pub fn may_see(&self, owner: Option<&Owner>) -> bool {
        match self.role {
            Role::Admin | Role::Viewer => true,
            Role::Submitter => owner.is_some() && self.owner().as_ref() == owner,
            Role::Runner | Role::Join => false,
        }
    }

    /// Makes a submission this caller's, within its limits. Returns what the core has to count for it.
    pub fn sign(&self, submission: &mut Submission, rules: &TokensConfig) -> Result<Option<OwnerLimits>, NotAllowed> {
        submission.owner = self.owner();
        if self.role != Role::Submitter {
            return Ok(None);
        }
        match (&submission.tenant, &self.tenant) {
            (Some(asked), own) if Some(asked) != own.as_ref() => return Err(NotAllowed::Tenant(asked.to_string())),
            (_, own) => submission.tenant.clone_from(own),
        }
        let limit = self.limits.priority.unwrap_or(rules.priority);
        if submission.priority > limit {
            return Err(NotAllowed::Priority { asked: submission.priority, limit });
        }
        let bytes = submission.job.args.iter().map(Arg::as_str).map(|arg| arg.len() as u64).sum();
        let limit = self.limits.job_args_bytes.unwrap_or(rules.job_args).get();
        if bytes > limit {
            return Err(NotAllowed::JobArgs { bytes, limit });
        }
        Ok(Some(OwnerLimits {
            queued: self.limits.queued.unwrap_or(rules.queued),
            running: self.limits.running.unwrap_or(rules.running),
        }))
    }
}

impl NotAllowed {
    /// The field of the request that is not allowed.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Priority { .. } => "priority",
            Self::JobArgs { .. } => "job.args",
            Self::Tenant(_) => "tenant",
        }
    }
}
