//! The gateway as a process of its own, behind the same door as the server: connections are limited, encrypted and let
//! go in the same way.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use berth_client::Client;
use berth_gateway::{Gateway, Groups, RemoteLeases};
use berth_wire::{PageQuery, ProblemCode};
use foldhash::HashMap;
use parking_lot::Mutex;
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use crate::config::Config;
use crate::http::problem::Failure;
use crate::limits::Limits;
use crate::run::RunError;
use crate::serve::{self, connection::Exchange};
use crate::tls::Tls;

/// How long a key that the server has taken is taken here without asking again.
const KEY_LIFETIME: Duration = Duration::from_secs(10);
/// How many keys are remembered.
const KEYS: usize = 10_000;

/// A gateway that runs.
#[derive(Debug)]
pub struct StandaloneGateway {
    address: SocketAddr,
    is_encrypted: bool,
    gateway: Gateway<RemoteLeases>,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

impl StandaloneGateway {
    /// Starts a gateway to the server that `client` asks.
    pub async fn start(config: &Config, client: Client) -> Result<Self, RunError> {
        let tls = Tls::open(&config.tls)?;
        let listen = config.server.listen;
        if tls.is_none() && !listen.ip().is_loopback() {
            return Err(RunError::OpenBind { listen, missing: "it needs TLS (tls.cert and tls.key)" });
        }
        let gateway = Gateway::start(RemoteLeases::new(client.clone()), config.gateway.clone());
        let gateway = gateway.map_err(|error| RunError::Gateway(error.to_string()))?;
        let Groups { read, submit } = gateway.routes::<()>();
        let door = Door { client, taken: Arc::default() };
        let inner: Router = read.merge(submit).route_layer(from_fn_with_state(door, check_key));
        let health = axum::routing::get(async || StatusCode::OK);
        let problem_of = |response: &Response| response.extensions().get::<Failure>().map(|told| (*told.0).clone());
        let router = berth_gateway::finish(inner, &config.gateway, problem_of).route("/healthz", health);
        let listener = TcpListener::bind(listen).await.map_err(|error| RunError::Listen(listen, error))?;
        let address = listener.local_addr().map_err(|error| RunError::Listen(listen, error))?;
        let (stop, stopping) = watch::channel(false);
        let is_encrypted = tls.is_some();
        let limits = Limits::new(config.limits.clone());
        let serving = tokio::spawn(serve::serve(listener, tls, router, limits, stopping));
        Ok(Self { address, is_encrypted, gateway, stop, serving })
    }

    /// Where it serves.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Stops: no new requests, streams finish within `limits.shutdown`, and every lease ends.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        drop(self.serving.await);
        drop(tokio::time::timeout(Duration::from_secs(2), self.gateway.flush()).await);
    }
}

/// Who may come in: whoever the server would let in. A connection whose key is taken may stay for as long as it likes.
#[derive(Clone)]
struct Door {
    client: Client,
    /// Hashes of keys that the server has taken, and until when that is believed.
    taken: Arc<Mutex<HashMap<[u8; 32], Instant>>>,
}

impl Door {
    async fn takes(&self, key: Option<&str>) -> Result<(), Failure> {
        let hash: [u8; 32] = Sha256::digest(key.unwrap_or_default()).into();
        let now = Instant::now();
        if self.taken.lock().get(&hash).is_some_and(|until| *until > now) {
            return Ok(());
        }
        let secret = key.map(|key| SecretString::from(key.to_owned()));
        let unavailable = |why: String| Failure::new(ProblemCode::ServerUnreachable, why).retry_after(1000);
        let client = self.client.with_token(secret.as_ref()).map_err(|error| unavailable(error.to_string()))?;
        let one = PageQuery { limit: std::num::NonZeroU32::new(1), ..PageQuery::default() };
        match client.models(&one).await {
            Ok(_) => {
                let mut taken = self.taken.lock();
                if taken.len() >= KEYS {
                    taken.retain(|_, until| *until > now);
                }
                taken.insert(hash, now + KEY_LIFETIME);
                Ok(())
            }
            Err(error) => Err(match error.problem() {
                Some(problem) => Failure(Box::new(problem.clone())),
                None => unavailable(error.to_string()),
            }),
        }
    }
}

async fn check_key(State(door): State<Door>, request: Request, next: Next) -> Response {
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = sent.and_then(|value| value.split_once(' ')).map(|(_, key)| key.trim().to_owned());
    if let Err(failure) = door.takes(key.as_deref()).await {
        return failure.into_response();
    }
    if let Some(exchange) = request.extensions().get::<Arc<Exchange>>() {
        exchange.authenticate();
    }
    next.run(request).await
}
