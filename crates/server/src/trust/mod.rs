//! Who may do what, and what they did.
//!
//! Tokens are random, kept as hashes and compared in constant time; nobody logs them. Without any token the server is
//! open to whoever can reach it, which only a loopback address may be.

pub mod audit;
pub mod rates;
pub mod tokens;

use berth_domain::RunnerId;
use berth_wire::{Role, TokenId};

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
}

impl Caller {
    /// Whoever reaches a server without tokens.
    #[must_use]
    pub fn local() -> Self {
        Self { name: "local".into(), token: None, role: Role::Admin, runner: None }
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
        )
    }
}
