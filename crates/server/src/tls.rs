//! Encryption with rustls and ring: one provider for everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Makes an acceptor of a certificate chain and its key.
pub(crate) fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let file =
        |path: &Path, why: &dyn std::fmt::Display| TlsError::File { path: path.to_owned(), why: why.to_string() };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).map_err(|error| file(cert, &error))?;
    if chain.is_empty() {
        return Err(file(cert, &"no certificate in it"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
