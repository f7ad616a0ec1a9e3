//! Certificates of runners: with `tls.client_ca`, a runner's token counts only on a connection that was made with the key
//! of that runner. A token that was stolen without the key is of no use.
//!
//! A certificate names its runners by URIs among its subject alternative names: `urn:berth:runner:gpu-box-1`. What is no
//! letter, digit, `-`, `.`, `_` or `~` in an id is percent-encoded, so that every id has exactly one URI.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::RunnerId;
use parking_lot::Mutex;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::config::RunnerCertificates;

/// How long a certificate that was verified is not verified again on the same connection. It may expire in the meantime.
const VERIFIED_FOR: Duration = Duration::from_secs(60);

/// Why a runner's token does not count on this connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateRefusal {
    /// There is none.
    #[error(
        "runner {runner} needs a client certificate that names {}: give its agent one (client_cert and client_key of \
         [agent]), of the authority that tls.client_ca of the server names",
        uri_of(runner)
    )]
    Missing {
        /// Whose token it is.
        runner: RunnerId,
    },
    /// There is one, of somebody else.
    #[error("runner {runner} needs a client certificate that names {}, and this one names {named}", uri_of(runner))]
    OtherRunner {
        /// Whose token it is.
        runner: RunnerId,
        /// What it names instead.
        named: String,
    },
    /// It was good when the connection was made, and is not any more.
    #[error("the client certificate of runner {runner} does not count any more ({why}): its agent needs another one")]
    Outdated {
        /// Whose token it is.
        runner: RunnerId,
        /// What is wrong with it.
        why: String,
    },
}

/// What is asked of runners' certificates, from one reload to the next.
#[derive(Debug)]
pub(crate) struct CertificateRule {
    verifier: Arc<dyn ClientCertVerifier>,
    asked: RunnerCertificates,
}

/// The certificate with which a connection was made.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    /// The URIs that it names.
    uris: Vec<String>,
    verified: Mutex<Option<Verified>>,
}

/// By which verifier a certificate was found good, and when.
#[derive(Debug)]
struct Verified {
    by: Arc<dyn ClientCertVerifier>,
    at: Instant,
}

impl ClientCertificate {
    /// What a handshake has proved.
    pub(crate) fn new(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let chain: Vec<_> = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let uris = webpki::EndEntityCert::try_from(chain.first()?).ok()?.valid_uri_names().map(str::to_owned).collect();
        Some(Self { chain, uris, verified: Mutex::new(None) })
    }

    /// Verifies the certificate again if the authority was replaced since, or if some time has passed: connections live
    /// longer than certificates.
    fn verify(&self, verifier: &Arc<dyn ClientCertVerifier>) -> Result<(), rustls::Error> {
        let mut verified = self.verified.lock();
        let is_fresh = |last: &Verified| Arc::ptr_eq(&last.by, verifier) && last.at.elapsed() < VERIFIED_FOR;
        if verified.as_ref().is_some_and(is_fresh) {
            return Ok(());
        }
        let (own, others) = self.chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        verifier.verify_client_cert(own, others, UnixTime::now())?;
        *verified = Some(Verified { by: verifier.clone(), at: Instant::now() });
        Ok(())
    }
}

impl CertificateRule {
    pub(crate) fn new(verifier: Arc<dyn ClientCertVerifier>, asked: RunnerCertificates) -> Self {
        Self { verifier, asked }
    }

    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    /// Whether a request for this runner may be made on a connection with this certificate.
    pub(crate) fn check(
        &self,
        certificate: Option<&ClientCertificate>,
        runner: &RunnerId,
    ) -> Result<(), CertificateRefusal> {
        let runner = runner.clone();
        let Some(certificate) = certificate else {
            return match self.asked {
                RunnerCertificates::Required => Err(CertificateRefusal::Missing { runner }),
                RunnerCertificates::Optional => Ok(()),
            };
        };
        if let Err(error) = certificate.verify(&self.verifier) {
            return Err(CertificateRefusal::Outdated { runner, why: error.to_string() });
        }
        if !certificate.uris.contains(&uri_of(&runner)) {
            let named = match certificate.uris.is_empty() {
                true => "no runner".to_owned(),
                false => certificate.uris.join(", "),
            };
            return Err(CertificateRefusal::OtherRunner { runner, named });
        }
        Ok(())
    }
}

/// What the certificate of a runner has to name.
fn uri_of(runner: &RunnerId) -> String {
    let mut uri = "urn:berth:runner:".to_owned();
    for byte in runner.as_str().bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(uri, "%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_a_uri_of_its_own() {
        let uri = |id: &str| uri_of(&id.parse().unwrap());
        assert_eq!(uri("gpu-box_1.eu~a"), "urn:berth:runner:gpu-box_1.eu~a");
        assert_eq!(uri("rack 7/b%ü"), "urn:berth:runner:rack%207%2Fb%25%C3%BC");
        assert_ne!(uri("a%20b"), uri("a b"));
        assert_ne!(uri("box"), uri("BOX"));
    }
}
