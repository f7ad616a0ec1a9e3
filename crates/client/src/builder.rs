//! The builder of a client.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use reqwest::header::HeaderValue;
use reqwest::{Certificate, Identity, Url, redirect};
use secrecy::{ExposeSecret, SecretString};

use crate::{Client, ClientError};

/// Makes `ring` the one crypto provider of this process. Safe to call any number of times.
pub fn install_crypto_provider() {
    // It fails only if there is one already, and then there is nothing to do.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The files of a client's certificate (PEM, with its chain) and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificateFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl ClientCertificateFiles {
    fn refuse(&self, file: &Path, why: String) -> ClientError {
        let other = if file == self.cert { &self.key } else { &self.cert };
        ClientError::BadCertificate { file: file.display().to_string(), other: other.display().to_string(), why }
    }
}

/// The settings of a client.
#[derive(Debug)]
pub struct ClientBuilder {
    base: String,
    token: Option<SecretString>,
    ca: Option<PathBuf>,
    certificate: Option<ClientCertificateFiles>,
    allow_token_over_http: bool,
    timeout: Duration,
    retries: u32,
    apart: bool,
}

impl ClientBuilder {
    /// The longest time for opening a connection.
    const CONNECT: Duration = Duration::from_secs(10);

    pub(crate) fn new(base: &str) -> Self {
        Self {
            base: base.to_owned(),
            token: None,
            ca: None,
            certificate: None,
            allow_token_over_http: false,
            timeout: Duration::from_secs(30),
            retries: 2,
            apart: false,
        }
    }

    /// Sets the token that authenticates the client.
    #[must_use]
    pub fn token(self, token: impl Into<Option<SecretString>>) -> Self {
        Self { token: token.into(), ..self }
    }

    /// Sets a file of certificates (PEM) to trust. With it, the certificates of the system are not trusted.
    #[must_use]
    pub fn ca(self, file: impl Into<Option<PathBuf>>) -> Self {
        Self { ca: file.into(), ..self }
    }

    /// Sets the certificate that authenticates the client beside its token. Only the client's user should be able to
    /// read the key.
    #[must_use]
    pub fn certificate(self, files: impl Into<Option<ClientCertificateFiles>>) -> Self {
        Self { certificate: files.into(), ..self }
    }

    /// Allows the client to send the token without encryption to a server on another machine. Every machine on the way
    /// can then read it: this is for networks that encrypt by themselves.
    #[must_use]
    pub fn allow_token_over_http(self, allow: bool) -> Self {
        Self { allow_token_over_http: allow, ..self }
    }

    /// Sets how long an answer may take, beyond the time that a request asks to wait.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets how often a request that may be repeated is sent again when the connection fails.
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Gives each request a connection of its own, so that a request that is held up holds up no other.
    #[must_use]
    pub fn apart(self) -> Self {
        Self { apart: true, ..self }
    }

    /// Makes the client. Nothing is sent yet.
    pub fn build(self) -> Result<Client, ClientError> {
        install_crypto_provider();
        let base = base_url(&self.base)?;
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("berth/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Self::CONNECT.min(self.timeout))
            .redirect(redirect::Policy::none())
            .no_proxy();
        if self.apart {
            http = http.http1_only();
        }
        http = match &self.ca {
            // Whoever names a CA does not want a certificate of any other to be accepted for the server.
            Some(file) => http.tls_certs_only(certificates(file)?),
            // The system's certificates are looked for only if they are needed: there may be none.
            None if base.scheme() == "http" => http.tls_certs_only([]),
            None => http,
        };
        if let Some(files) = &self.certificate {
            http = http.identity(identity(files)?);
        }
        let http = http.build().map_err(|error| match &self.certificate {
            // Nothing else was read that could be wrong by now.
            Some(files) => files.refuse(&files.cert, crate::error::innermost(&error)),
            None => ClientError::Tls { url: base.to_string(), why: crate::error::innermost(&error) },
        })?;
        let client = Client {
            http,
            may_carry_token: self.allow_token_over_http || is_private_way(&base),
            base,
            has_certificate: self.certificate.is_some(),
            timeout: self.timeout,
            retries: self.retries,
            authorization: Arc::new(RwLock::new(None)),
            went_back: Arc::default(),
        };
        self.token.as_ref().map_or(Ok(()), |token| client.set_token(token))?;
        Ok(client)
    }
}

/// Returns whether no other machine can read what is sent to this address: it is encrypted, or stays on this machine.
/// Names below `localhost` may be resolved elsewhere, so only `localhost` itself counts.
fn is_private_way(base: &Url) -> bool {
    let host = base.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    base.scheme() == "https" || host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

fn base_url(text: &str) -> Result<Url, ClientError> {
    let refuse = |why: String| ClientError::BadUrl { url: text.to_owned(), why };
    let mut url: Url = text.parse().map_err(|error| refuse(format!("{error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("it must begin with http:// or https://".to_owned()));
    }
    if url.host_str().is_none_or(str::is_empty) || !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("it must name a host, without a user or a password".to_owned()));
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// Returns the header that authenticates the client. It is marked as sensitive, so that it stays out of logs.
pub(crate) fn authorization(token: &SecretString) -> Result<HeaderValue, ClientError> {
    let text = format!("Bearer {}", token.expose_secret().trim());
    let mut value = HeaderValue::from_str(&text).map_err(|_| ClientError::BadToken)?;
    value.set_sensitive(true);
    Ok(value)
}

fn certificates(file: &Path) -> Result<Vec<Certificate>, ClientError> {
    let refuse = |why: String| ClientError::BadCa { file: file.display().to_string(), why };
    let text = std::fs::read(file).map_err(|error| refuse(error.to_string()))?;
    let certificates = Certificate::from_pem_bundle(&text).map_err(|error| refuse(crate::error::innermost(&error)))?;
    if certificates.is_empty() { Err(refuse("there is no certificate in it".to_owned())) } else { Ok(certificates) }
}

fn identity(files: &ClientCertificateFiles) -> Result<Identity, ClientError> {
    let mut text = Vec::new();
    for (file, kind) in [(&files.cert, "CERTIFICATE-----"), (&files.key, "PRIVATE KEY-----")] {
        let read = std::fs::read(file).map_err(|error| files.refuse(file, error.to_string()))?;
        if !String::from_utf8_lossy(&read).contains(kind) {
            let what = kind.trim_end_matches('-').to_lowercase();
            return Err(files.refuse(file, format!("there is no {what} in it")));
        }
        text.extend(read);
        text.push(b'\n');
    }
    Identity::from_pem(&text).map_err(|error| files.refuse(&files.cert, crate::error::innermost(&error)))
}
