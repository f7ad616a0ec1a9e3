//! Refused requests on record: who was not let in.

use std::net::IpAddr;
use std::time::Instant;

use axum::http::Method;
use berth_wire::{AuditEntry, Time};

use super::App;
use crate::clock;
use crate::serve::admission::Source;
use crate::trust::Caller;
use crate::trust::audit::own_entry;
use crate::trust::audit::refusals::Sampled;

/// How much of a path goes on record.
const LONGEST_PATH: usize = 200;

impl App {
    /// Puts on record that a request was refused for who sent it, or counts it if there are many.
    pub(super) fn record_refusal(
        &self,
        caller: Option<&Caller>,
        address: IpAddr,
        method: &Method,
        path: &str,
        code: &str,
    ) {
        let token = caller.and_then(|caller| caller.token);
        let client = token.map_or_else(|| Source::from(address).to_bits(), |token| token.0.as_u128());
        let judged = self.audit.refusals.judge(client, self.audit.refused_per_minute(), Instant::now());
        let Sampled::Record { counted_before } = judged else { return };
        let more = match counted_before {
            0 => String::new(),
            more => format!("; {more} more refusals before it were counted only"),
        };
        let path: String = path.chars().take(LONGEST_PATH).collect();
        self.audit.record(
            AuditEntry {
                time: Time(clock::now()),
                by: caller.map_or_else(|| address.to_string(), |caller| caller.name.to_string()),
                role: caller.map(|caller| caller.role),
                action: "refused".into(),
                target: format!("{method} {path}"),
                outcome: code.into(),
                revision: None,
                reason: Some(format!("from {address}{more}")),
            },
            false,
        );
    }

    /// Puts on record how many refusals were only counted, so that the number is there even if no other one follows.
    pub(crate) fn record_counted_refusals(&self) {
        let counted = self.audit.refusals.take_counted();
        if counted > 0 {
            let target = format!("{counted} more requests were refused with 401 or 403");
            self.audit.record(own_entry("refused", target), false);
        }
    }
}
