//! Encrypted connections without a client, and certificates for them.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A bare connection after its handshake. It speaks HTTP/2 if `protocol` says `h2`.
///
/// # Errors
/// If there is no connection, or no handshake in time.
pub fn connect_tls(
    address: &str,
    certificate: &str,
    protocol: &str,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
    roots.add(certificate).expect("a certificate to trust");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// Where the files of a certificate are.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// In this directory.
    #[must_use]
    pub fn below(directory: &Path) -> Self {
        Self { cert: directory.join("cert.pem"), key: directory.join("key.pem") }
    }

    /// As settings of a server.
    #[must_use]
    pub fn settings(&self) -> [String; 2] {
        [format!("tls.cert={}", self.cert.display()), format!("tls.key={}", self.key.display())]
    }
}
