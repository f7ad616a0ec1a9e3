//! Encryption with rustls and ring: one provider for everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::{RunnerCertificates, TlsConfig};
use crate::trust::runner_certificate::CertificateRule;

/// Why there is no encryption.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that is no PEM file of its kind.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Certificate and key do not go together.
    #[error("the certificate and the key do not go together: {0}")]
    Pair(#[from] rustls::Error),
}

/// The certificate and the key that are in force, and what is asked of runners' certificates. A reload replaces all of
/// it or nothing. Connections that are open keep the server's certificate; the rule for runners' certificates counts from
/// the next request on.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<InForce>>);

#[derive(Clone)]
struct InForce {
    acceptor: TlsAcceptor,
    rule: Option<Arc<CertificateRule>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files that the configuration names; none if it names no certificate.
    pub fn open(config: &TlsConfig) -> Result<Option<Self>, TlsError> {
        Ok(read(config)?.map(|in_force| Self(Arc::new(RwLock::new(in_force)))))
    }

    /// Reads the files again, perhaps others than before. Keeps what it has if that fails.
    pub(crate) fn reload(&self, config: &TlsConfig) -> Result<(), TlsError> {
        if let Some(in_force) = read(config)? {
            *self.0.write() = in_force;
        }
        Ok(())
    }

    pub(crate) fn current(&self) -> TlsAcceptor {
        self.0.read().acceptor.clone()
    }

    /// What is asked of runners' certificates; nothing if none are.
    pub(crate) fn rule(&self) -> Option<Arc<CertificateRule>> {
        self.0.read().rule.clone()
    }
}

fn refuse(path: &Path, why: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
}

/// Reads at least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| refuse(path, &error))?;
    if read.is_empty() { Err(refuse(path, &"no certificate in it")) } else { Ok(read) }
}

/// Reads the authority of runners' certificates.
fn rule(authority: &Path, asked: RunnerCertificates) -> Result<CertificateRule, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        roots.add(certificate).map_err(|error| refuse(authority, &error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // People and gateways have no certificates, and share the port with the agents.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated();
    let verifier = verifier.build().map_err(|error| refuse(authority, &error))?;
    Ok(CertificateRule::new(verifier, asked))
}

/// Reads everything that the configuration names.
fn read(config: &TlsConfig) -> Result<Option<InForce>, TlsError> {
    let (Some(cert), Some(key)) = (&config.cert, &config.key) else { return Ok(None) };
    let chain = certificates(cert)?;
    berth_files::warn_if_loose(key, "the key of the TLS certificate");
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse(key, &error))?;
    let asked = config.runner_certificates.unwrap_or_default();
    let rule = config.client_ca.as_deref().map(|authority| rule(authority, asked)).transpose()?.map(Arc::new);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match &rule {
        Some(rule) => builder.with_client_cert_verifier(rule.verifier()),
        None => builder.with_no_client_auth(),
    };
    let mut server = builder.with_single_cert(chain, secret)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(InForce { acceptor: TlsAcceptor::from(Arc::new(server)), rule }))
}
