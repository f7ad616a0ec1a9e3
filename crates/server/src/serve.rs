//! Sockets: accepting connections, encrypting them, limiting them, and letting them go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt};

use crate::config::LimitsConfig;
use crate::http::access::Peer;

/// The most bytes of headers that are read.
const LARGEST_HEADERS: usize = 64 * 1024;

/// Serves until `stopping` becomes true, then lets requests in flight finish, for as long as the limits allow.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: &LimitsConfig,
    mut stopping: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let house = House { tls, router, builder: builder(limits), patience: millis(limits.header_timeout) };
    loop {
        // Whoever comes when all places are taken waits in the kernel's line, and is refused there when that is full.
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                tokio::spawn(house.clone().receive(stream, peer, place, graceful.watcher()));
            }
            Err(error) => {
                // Too many open files, most likely: others must leave before anybody can come in.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(millis(limits.shutdown), graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time; their connections are closed");
    }
}

fn millis(span: berth_domain::Span) -> Duration {
    Duration::from_millis(span.millis())
}

fn builder(limits: &LimitsConfig) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(millis(limits.header_timeout))
        .max_buf_size(LARGEST_HEADERS)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(256)
        .max_header_list_size(64 * 1024);
    builder
}

/// What a connection is served with.
#[derive(Clone)]
struct House {
    tls: Option<TlsAcceptor>,
    router: Router,
    builder: Builder<TokioExecutor>,
    patience: Duration,
}

/// The beginning of HTTP/2. A connection that begins otherwise is HTTP/1 or TLS, and those have deadlines of their own.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Waits until it can be told whether a connection speaks HTTP/2.
async fn begins_with_preface(stream: &TcpStream) -> bool {
    let mut words = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut words).await {
            Ok(heard) if heard > 0 && PREFACE.starts_with(&words[..heard]) => {
                if heard == PREFACE.len() {
                    return true;
                }
                // More must come, and the socket is readable already: look again in a moment.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            _ => return false,
        }
    }
}

impl House {
    async fn receive(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
        watcher: hyper_util::server::graceful::Watcher,
    ) {
        // Answers are small and should leave at once.
        drop(stream.set_nodelay(true));
        // Which HTTP it speaks is told by its first bytes; whoever does not say keeps a place for nothing.
        let Ok(speaks_two) = tokio::time::timeout(self.patience, begins_with_preface(&stream)).await else {
            tracing::debug!(%peer, "it did not say anything in time");
            return;
        };
        match self.tls.clone() {
            None => self.entertain(stream, speaks_two, peer, watcher).await,
            Some(tls) => match tokio::time::timeout(self.patience, tls.accept(stream)).await {
                Ok(Ok(encrypted)) => {
                    let agreed_on_two = encrypted.get_ref().1.alpn_protocol() == Some(b"h2");
                    self.entertain(encrypted, agreed_on_two, peer, watcher).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                Err(_) => tracing::debug!(%peer, "no TLS in time"),
            },
        }
        drop(place);
    }

    async fn entertain<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        stream: S,
        speaks_two: bool,
        peer: SocketAddr,
        watcher: hyper_util::server::graceful::Watcher,
    ) {
        let Self { router, builder, .. } = self;
        let builder = if speaks_two { builder.http2_only() } else { builder.http1_only() };
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            let mut router = router.clone();
            async move {
                let request = request.map(axum::body::Body::new);
                let ready = ServiceExt::<Request>::ready(&mut router).await;
                match ready {
                    Ok(router) => router.call(request).await,
                    Err(never) => match never {},
                }
            }
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%peer, %error, "a connection ended badly");
        }
    }
}
