//! What an operator may choose.

use std::time::Duration;

use berth_domain::{Bytes, Span};
use serde::{Deserialize, Serialize};

/// The section `[gateway]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Whether `berth serve` answers below `/v1`.
    pub enabled: bool,
    /// The largest body of a request.
    pub body: Bytes,
    /// How long a client may take to send it.
    pub body_timeout: Span,
    /// How long a request is held while its model loads.
    pub hold: Span,
    /// How long a streaming request waits for its first byte before it gets a comment line, and the time between two.
    pub keep_alive: Span,
    /// How many requests for one model may be held.
    pub held_per_model: usize,
    /// How many requests may be held in all.
    pub held: usize,
    /// How long a lease outlives a gateway that does not renew it.
    pub lease_ttl: Span,
    /// A slot that sends nothing for so long is given up.
    pub silence: Span,
    /// How long the gateway waits for the server to replace a slot that broke before the first byte.
    pub failover: Span,
    /// Web pages of these origins may ask; `*` stands for all.
    pub cors_origins: Vec<String>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            body: Bytes::mib(64),
            body_timeout: Span::from_secs(60),
            hold: Span::from_secs(120),
            keep_alive: Span::from_secs(5),
            held_per_model: 256,
            held: 4096,
            lease_ttl: Span::from_secs(60),
            silence: Span::from_secs(300),
            failover: Span::from_secs(5),
            cors_origins: Vec::new(),
        }
    }
}

/// A length of time as the runtime has it.
pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_millis(span.millis())
}
