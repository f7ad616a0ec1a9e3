//! What a runner may be: an agent's report is held against what its token grants, before the core sees it.

use std::net::IpAddr;

use axum::http::Uri;
use berth_domain::{Endpoint, ReasonText, RunnerReport, SlotReport};
use berth_wire::{AddressGrant, Invalid, RunnerGrant};

/// What an agent says of its runner and its token does not grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutsideGrant {
    /// Another pool.
    #[error("its token grants pool {granted}, and its agent says pool {said}: {}", way_out("pool"))]
    Pool {
        /// By the agent.
        said: String,
        /// By the token.
        granted: String,
    },
    /// A label that the token does not have.
    #[error("its token does not grant the label {said}, which its agent says: {}", way_out("labels"))]
    Label {
        /// By the agent.
        said: String,
    },
    /// Another machine.
    #[error("its token grants machine {granted}, and its agent is on machine {said}: {}", way_out("machine_id"))]
    Machine {
        /// By the agent.
        said: String,
        /// By the token.
        granted: String,
    },
    /// Another address.
    #[error("its agent says that its slots answer at {said}, but its token grants {granted}: {}", way_out("address"))]
    Address {
        /// By the agent.
        said: String,
        /// By the token, or the address from which the agent connects.
        granted: String,
    },
}

fn way_out(field: &str) -> String {
    format!("leave `{field}` out of the agent's file, or make a token that grants it")
}

/// Why a report is not taken as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It says more than its token grants.
    #[error(transparent)]
    Outside(#[from] OutsideGrant),
    /// A field that cannot be meant.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Holds a report against the grant of its token, and completes it with what the grant says. `says_pool` is whether the
/// agent named a pool itself; `observed` is the address from which it connects.
///
/// Without a grant (on a server without tokens, where everybody may say anything) the agent's own words count. In any
/// case an endpoint is made here, of the granted or observed address and the port that the agent reports.
pub fn confine(
    report: &mut RunnerReport,
    grant: Option<&RunnerGrant>,
    says_pool: bool,
    observed: IpAddr,
) -> Result<(), NotTaken> {
    if let Some(grant) = grant {
        confine_traits(report, grant, says_pool)?;
    }
    report.shares_machine = grant.is_none_or(|grant| grant.machine_id.is_some());
    if !report.address.as_str().is_empty() {
        report.address.as_str().parse::<AddressGrant>().map_err(NotTaken::Invalid)?;
    }
    let host = host(report.address.as_str(), grant.map(|grant| grant.address.as_ref()), observed)?;
    let invalid = |field: String, why: String| NotTaken::Invalid(Invalid::new(field, why));
    report.address = ReasonText::new(&host).map_err(|error| invalid("address".into(), error.to_string()))?;
    for (at, slot) in report.slots.iter_mut().enumerate() {
        set_endpoint(slot, &host).map_err(|why| invalid(format!("slots[{at}].endpoint"), why))?;
    }
    Ok(())
}

fn confine_traits(report: &mut RunnerReport, grant: &RunnerGrant, says_pool: bool) -> Result<(), OutsideGrant> {
    if says_pool && report.pool != grant.pool {
        return Err(OutsideGrant::Pool { said: report.pool.to_string(), granted: grant.pool.to_string() });
    }
    report.pool = grant.pool.clone();
    let is_outside = |(key, value): &(&_, &_)| grant.labels.get(*key) != Some(*value);
    if let Some((key, value)) = report.labels.iter().find(is_outside) {
        return Err(OutsideGrant::Label { said: format!("{key}={value}") });
    }
    report.labels = grant.labels.clone();
    match &grant.machine_id {
        Some(granted) if *granted != report.machine => {
            Err(OutsideGrant::Machine { said: report.machine.to_string(), granted: granted.to_string() })
        }
        _ => Ok(()),
    }
}

/// Where gateways reach the slots of a runner. `granted` is what its token says of addresses, and none on a server
/// without tokens.
fn host(said: &str, granted: Option<Option<&AddressGrant>>, observed: IpAddr) -> Result<String, OutsideGrant> {
    let observed = observed.to_canonical().to_string();
    let outside = |granted: String| OutsideGrant::Address { said: said.to_owned(), granted };
    match granted {
        None if said.is_empty() => Ok(observed),
        None => Ok(said.to_owned()),
        Some(None) if said.is_empty() || said == observed => Ok(observed),
        Some(None) => Err(outside(format!("no address, and it connects from {observed}"))),
        Some(Some(grant)) if !said.is_empty() => match grant.admits(said) {
            true => Ok(said.to_owned()),
            false => Err(outside(grant.to_string())),
        },
        Some(Some(AddressGrant::Host(host))) => Ok(host.clone()),
        Some(Some(grant @ AddressGrant::Network(_))) if grant.admits(&observed) => Ok(observed),
        Some(Some(grant)) => {
            Err(OutsideGrant::Address { said: observed, granted: format!("{grant}, where it does not connect from") })
        }
    }
}

/// Replaces what an agent says of where a slot answers: of its words only the port counts.
fn set_endpoint(slot: &mut SlotReport, host: &str) -> Result<(), String> {
    let Some(said) = &slot.endpoint else { return Ok(()) };
    let port = said.as_str().parse::<Uri>().ok().and_then(|uri| uri.port_u16());
    let port = port.filter(|port| *port > 0).ok_or_else(|| format!("{said} names no port"))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    slot.endpoint = Some(Endpoint::new(format!("http://{host}:{port}")).map_err(|error| error.to_string())?);
    Ok(())
}
