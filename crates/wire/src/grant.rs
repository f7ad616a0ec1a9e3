//! What a runner's token grants: what the runner may be, whatever its agent says of itself.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use berth_domain::{LabelKey, LabelValue, MachineId, PoolName};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Invalid, schema};

/// What a runner may be. An agent's own words count inside this grant and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunnerGrant {
    /// The pool that the runner is in.
    #[schema(value_type = schema::PoolName)]
    pub pool: PoolName,
    /// The labels that the runner carries.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, schema::LabelValue>)]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// The machine that the runner is on. It may share that machine, its GPUs, its CPU and its RAM with other runners.
    /// Without it the runner may be on any machine that no other runner has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::MachineId>)]
    pub machine_id: Option<MachineId>,
    /// Where gateways reach the runner's slots: a host name, an IP address, or a network that the address is in.
    /// Without it slots are reached at the address from which the agent connects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 253, example = "10.0.0.0/16")]
    pub address: Option<AddressGrant>,
}

impl Default for RunnerGrant {
    fn default() -> Self {
        Self { pool: PoolName::default_pool(), labels: BTreeMap::new(), machine_id: None, address: None }
    }
}

/// An address that a runner may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AddressGrant {
    /// Exactly this host name or IP address.
    Host(String),
    /// Any IP address of this network.
    Network(IpNet),
}

impl AddressGrant {
    /// Tells whether an address that an agent names is granted. Host names are compared as text: the server looks
    /// nothing up, because whoever answers for a name could change the answer.
    #[must_use]
    pub fn admits(&self, address: &str) -> bool {
        match self {
            Self::Host(host) => host.eq_ignore_ascii_case(address),
            Self::Network(network) => address.parse().is_ok_and(|ip: IpAddr| network.contains(&ip.to_canonical())),
        }
    }
}

impl FromStr for AddressGrant {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || {
            let why = format!("{text:?} is no address: name a host, an IP address or a network such as 10.0.0.0/16");
            Err(Invalid::new("address", why))
        };
        if text.contains('/') {
            return text.parse().map(|network: IpNet| Self::Network(network.trunc())).or_else(|_| refuse());
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Host(ip.to_canonical().to_string()));
        }
        if is_host_name(text) { Ok(Self::Host(text.to_owned())) } else { refuse() }
    }
}

/// Whether a text is a host name: labels of letters, digits, hyphens and, as container engines make them, underscores.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name of digits only would be read as an IP address by many programs.
    text.len() <= 253 && text.split('.').all(is_label) && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

impl TryFrom<String> for AddressGrant {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<AddressGrant> for String {
    fn from(grant: AddressGrant) -> Self {
        grant.to_string()
    }
}

impl fmt::Display for AddressGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Network(network) => fmt::Display::fmt(network, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_admits_its_own_addresses_and_no_others() {
        let grant = |text: &str| text.parse::<AddressGrant>().unwrap();
        let network = grant("10.1.2.3/16");
        assert_eq!(network.to_string(), "10.1.0.0/16");
        for (grant, address, admits) in [
            (&network, "10.1.255.255", true),
            (&network, "::ffff:10.1.0.9", true),
            (&network, "10.2.0.1", false),
            (&network, "169.254.169.254", false),
            (&network, "gpu-7.internal", false),
            (&grant("gpu-7.internal"), "GPU-7.internal", true),
            (&grant("gpu-7.internal"), "gpu-7.internal.evil.org", false),
            (&grant("10.0.0.7"), "10.0.0.7", true),
            (&grant("10.0.0.7"), "10.0.0.77", false),
            (&grant("fd00::/8"), "fd00::1", true),
        ] {
            assert_eq!(grant.admits(address), admits, "{grant}: {address}");
        }
        for bad in ["", "http://10.0.0.7", "10.0.0.7:80", "a b", "-a", "user@host", "10.0.0.0/33", "1.2.3", "a..b"] {
            assert!(bad.parse::<AddressGrant>().is_err(), "{bad:?} was taken");
        }
    }
}
