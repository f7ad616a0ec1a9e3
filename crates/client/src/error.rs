//! Errors of requests to the server, with what to do about them.

use std::error::Error;

use berth_wire::{Problem, ProblemCode};

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server refused the request.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No server answers at the address.
    #[error("nothing answers at {url} ({why}): start it with `berth serve`, or give --server")]
    Unreachable {
        /// The address of the server.
        url: String,
        /// The error of the operating system.
        why: String,
    },
    /// A server answers, but the TLS connection failed.
    #[error("no safe connection to {url} ({why}): give the server's CA with --ca, or check the address")]
    Tls {
        /// The address of the server.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The answer did not come in time.
    #[error("{url} did not answer within {seconds} s: the server is overloaded, or the network drops packets")]
    Timeout {
        /// The address of the server.
        url: String,
        /// How long the client waited.
        seconds: u64,
    },
    /// The connection broke before the answer was complete. The request may or may not have been carried out.
    #[error("the connection to {url} broke ({why}): look whether it was done before trying again")]
    Interrupted {
        /// The address of the server.
        url: String,
        /// The error of the operating system.
        why: String,
    },
    /// The answer is not one of Berth.
    #[error("{url} is not Berth's API ({why}): check --server")]
    NotBerth {
        /// The address of the server.
        url: String,
        /// What the answer was instead.
        why: String,
    },
    /// The text is no address of a server.
    #[error("{url:?} is no address of a server: {why}; write http://HOST:PORT")]
    BadUrl {
        /// The text that was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file has no certificates.
    #[error("cannot use the CA file {file}: {why}")]
    BadCa {
        /// The path of the file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file is no certificate of a client, or not its key.
    #[error("cannot use the client certificate: {file}: {why} (it goes together with {other})")]
    BadCertificate {
        /// The path of the file.
        file: String,
        /// The other file of the pair.
        other: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server does not accept the certificate of this client.
    #[error(
        "{url} does not accept the client certificate ({why}): it must be of the authority that tls.client_ca of the \
         server names, and neither expired nor for servers only"
    )]
    CertificateRefused {
        /// The address of the server.
        url: String,
        /// The error of the TLS connection.
        why: String,
    },
    /// The token would be sent without encryption to another machine.
    #[error(
        "the token was not sent: {url} is plain http beyond this machine, where others can read it; use https (with --ca \
         for a CA of your own), or say --allow-token-over-http if the network in between encrypts by itself"
    )]
    TokenOverHttp {
        /// The address of the server.
        url: String,
    },
    /// The token has characters that no header can carry.
    #[error("the token has characters that no token has: give it as `berth token create` printed it")]
    BadToken,
}

impl ClientError {
    /// Returns the server's problem, if the server answered with one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }

    /// Returns whether the server refused with this status.
    #[must_use]
    pub fn is_status(&self, status: u16) -> bool {
        self.problem().is_some_and(|problem| problem.status == status)
    }

    /// Returns whether the server refused with this code.
    #[must_use]
    pub fn is_code(&self, code: ProblemCode) -> bool {
        self.problem().is_some_and(|problem| problem.code == code.as_str())
    }

    /// Returns whether the same request may succeed a little later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Interrupted { .. } => true,
            Self::Problem(problem) => matches!(problem.status, 429 | 502..=504),
            Self::Tls { .. }
            | Self::NotBerth { .. }
            | Self::BadUrl { .. }
            | Self::BadCa { .. }
            | Self::BadCertificate { .. }
            | Self::CertificateRefused { .. }
            | Self::TokenOverHttp { .. }
            | Self::BadToken => false,
        }
    }

    /// Makes the error of a request that got no answer.
    pub(crate) fn of_transport(url: &str, error: &reqwest::Error, seconds: u64) -> Self {
        let (url, why) = (url.to_owned(), innermost(error));
        if error.is_timeout() && error.is_connect() {
            return Self::Unreachable { url, why: "no connection in time".to_owned() };
        }
        if error.is_timeout() {
            return Self::Timeout { url, seconds };
        }
        let tls = tls_error(error);
        // The server looks at a client's certificate after the handshake is over for the client.
        if tls.is_some_and(is_about_client_certificate) {
            return Self::CertificateRefused { url, why };
        }
        match (error.is_connect(), tls) {
            (true, Some(_)) => Self::Tls { url, why },
            (true, None) => Self::Unreachable { url, why },
            (false, _) => Self::Interrupted { url, why },
        }
    }
}

/// Whether the server has ended a connection because of the certificate that this side showed. The alerts are about
/// certificates; a server's own certificate is judged here, and not told by an alert that comes from there.
const fn is_about_client_certificate(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        error,
        rustls::Error::AlertReceived(
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::DecryptError
                | Alert::CertificateRequired
        )
    )
}

/// Returns the text of the last error of a chain, which is the most precise one.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// An I/O error hides what it carries from the chain, sometimes in another one.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inside = || -> Option<&'a rustls::Error> {
        let inner = error.downcast_ref::<std::io::Error>()?.get_ref()?;
        tls_error(inner)
    };
    error.downcast_ref::<rustls::Error>().or_else(inside).or_else(|| tls_error(error.source()?))
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    })
}
