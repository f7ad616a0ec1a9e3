//! Who may do what, and what they did.
//!
//! Tokens are random, kept as hashes and compared in constant time; nobody logs them. The first start makes an admin's
//! token. A server without any token is open to whoever can reach it, which only a loopback address may be, and only if
//! the operator asked for it by name.

pub mod audit;
pub mod cluster_key;
pub mod first_token;
pub mod grant;
mod ownership;
pub(crate) mod private_file;
pub mod rates;
pub(crate) mod runner_certificate;
pub mod tokens;

use std::sync::Arc;

pub use ownership::NotAllowed;

use berth_domain::{RunnerId, TenantName};
use berth_wire::{Role, RunnerGrant, SubmitterLimits, TokenId};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of their token, or `local` on a server without tokens.
    pub name: std::borrow::Cow<'static, str>,
    /// Their token.
    pub token: Option<TokenId>,
    /// What they may do.
    pub role: Role,
    /// For which runner, if they are one.
    pub runner: Option<RunnerId>,
    /// What that runner may be; the default grant if the token says nothing.
    pub grant: Option<Arc<RunnerGrant>>,
    /// The tenant whose work they submit.
    pub tenant: Option<TenantName>,
    /// How much they may have at once, where that differs from what is configured.
    pub limits: SubmitterLimits,
}

impl Caller {
    /// Whoever reaches a server without tokens.
    #[must_use]
    pub fn local() -> Self {
        Self {
            name: "local".into(),
            token: None,
            role: Role::Admin,
            runner: None,
            grant: None,
            tenant: None,
            limits: SubmitterLimits::default(),
        }
    }
}

/// What a route asks of its caller. Everything that is not allowed here is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Anybody.
    Public,
    /// Whoever may read.
    Read,
    /// Whoever may submit.
    Submit,
    /// Whoever may change the fleet and the catalogue.
    Operate,
    /// The runner that the path names, and nobody else.
    OwnRunner,
    /// Whoever has a join token.
    Join,
}

impl Access {
    /// Whether a role may pass; the runner's own id is looked at apart.
    #[must_use]
    pub const fn allows(self, role: Role) -> bool {
        matches!(
            (self, role),
            (Self::Public, _)
                | (Self::Read | Self::Submit | Self::Operate, Role::Admin)
                | (Self::Read, Role::Viewer)
                | (Self::Read | Self::Submit, Role::Submitter)
                | (Self::OwnRunner, Role::Runner)
                | (Self::Join, Role::Join)
        )
    }
}
