//! Encryption with rustls and ring: one provider for everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

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

/// The certificate and the key that are in force. A reload replaces them; connections that are open keep theirs.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<TlsAcceptor>>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads a certificate chain and its key.
    pub fn open(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(RwLock::new(acceptor(cert, key)?))))
    }

    /// Reads them again, perhaps from other files. Keeps what it has if that fails.
    pub(crate) fn reload(&self, cert: &Path, key: &Path) -> Result<(), TlsError> {
        let acceptor = acceptor(cert, key)?;
        *self.0.write() = acceptor;
        Ok(())
    }

    pub(crate) fn current(&self) -> TlsAcceptor {
        self.0.read().clone()
    }
}

/// Makes an acceptor of a certificate chain and its key.
fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let file =
        |path: &Path, why: &dyn std::fmt::Display| TlsError::File { path: path.to_owned(), why: why.to_string() };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).map_err(|error| file(cert, &error))?;
    if chain.is_empty() {
        return Err(file(cert, &"no certificate in it"));
    }
    berth_files::warn_if_loose(key, "the key of the TLS certificate");
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
