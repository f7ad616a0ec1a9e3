//! Sockets: accepting connections, encrypting them, limiting them, and letting them go.
//!
//! | file | what it limits |
//! | --- | --- |
//! | [`admission`] | how many connections there are, and how many of them have not authenticated |
//! | [`connection`] | how long a connection may be idle |
//! | [`stall`] | how long a client may take nothing of what is written to its socket |
//! | [`streams`] | how long a client may take nothing of one HTTP/2 stream |

pub mod admission;
pub mod connection;
mod stall;
mod streams;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tower::{Service, ServiceExt};

use crate::config::LimitsConfig;
use crate::http::layers::authentication::Peer;
use crate::http::problem::Failure;
use crate::limits::Limits;
use crate::tls::Tls;
use crate::trust::runner_certificate::ClientCertificate;
use admission::{Admission, Place};
use connection::{Connection, Exchange, GRACE};
use stall::WriteDeadline;
use streams::{Answer, StreamExecutor};

/// The most bytes of headers that are read.
const LARGEST_HEADERS: usize = 64 * 1024;
/// The same in HTTP/2, where a client sends the headers of many requests at once.
const LARGEST_HEADER_LIST: u32 = 16 * 1024;
/// How much of an answer HTTP/2 buffers for each stream.
const SEND_BUFFER: usize = 64 * 1024;
/// How much a client of HTTP/2 may send of one body, and of all bodies, before somebody reads it.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;

/// Serves until `stopping` becomes true, then lets requests in flight finish, for as long as the limits allow.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) {
    let admission = Admission::new(limits.clone());
    let (alive, mut all_gone) = mpsc::channel(1);
    let acceptor = Acceptor { tls, router, limits: limits.clone(), stopping: stopping.clone(), _alive: alive };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files, most likely: others must leave before anybody can come in.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // While this one waits for a place, the next ones wait in the kernel's line, and are refused there when it is full.
        let place = tokio::select! {
            place = admission.enter(peer.ip()) => place,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        tokio::spawn(acceptor.clone().receive(stream, peer, place));
    }
    drop((listener, acceptor));
    // Nothing is ever sent: the channel closes when the last connection has let go of its end.
    let shutdown = millis(limits.current().shutdown);
    if tokio::time::timeout(shutdown, all_gone.recv()).await.is_err() {
        tracing::warn!("some requests did not finish in time; their connections are closed");
    }
}

fn millis(span: berth_domain::Span) -> Duration {
    Duration::from_millis(span.millis())
}

fn builder(limits: &LimitsConfig) -> Builder<StreamExecutor> {
    let mut builder = Builder::new(StreamExecutor { patience: millis(limits.write_timeout) });
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(millis(limits.header_timeout))
        .max_buf_size(LARGEST_HEADERS)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(millis(limits.keep_alive))
        .keep_alive_timeout(millis(limits.keep_alive))
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(LARGEST_HEADER_LIST)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
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

/// What connections are served with.
#[derive(Clone)]
struct Acceptor {
    tls: Option<Tls>,
    router: Router,
    limits: Limits,
    stopping: watch::Receiver<bool>,
    /// Held by every connection: a shutdown waits until all are dropped.
    _alive: mpsc::Sender<()>,
}

impl Acceptor {
    /// Serves a connection until it ends or its place is needed.
    async fn receive(self, stream: TcpStream, peer: SocketAddr, place: Place) {
        // Answers are small and should leave at once.
        drop(stream.set_nodelay(true));
        tokio::select! {
            () = self.serve_stream(stream, peer, &place) => {}
            () = place.evicted() => tracing::debug!(%peer, "closed in favour of a newer connection"),
        }
    }

    async fn serve_stream(&self, stream: TcpStream, peer: SocketAddr, place: &Place) {
        let limits = self.limits.current();
        let patience = millis(limits.header_timeout);
        // Which HTTP it speaks is told by its first bytes.
        let Ok(speaks_two) = tokio::time::timeout(patience, begins_with_preface(&stream)).await else {
            tracing::debug!(%peer, "a connection said nothing in time");
            return;
        };
        let stream = WriteDeadline::new(stream, millis(limits.write_timeout));
        let Some(tls) = &self.tls else {
            return self.serve_http(stream, speaks_two, (peer, None), place, &limits).await;
        };
        match tokio::time::timeout(patience, tls.current().accept(stream)).await {
            Ok(Ok(encrypted)) => {
                let agreed_on_two = encrypted.get_ref().1.alpn_protocol() == Some(b"h2");
                let shown = encrypted.get_ref().1.peer_certificates().and_then(ClientCertificate::new).map(Arc::new);
                self.serve_http(encrypted, agreed_on_two, (peer, shown), place, &limits).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
            Err(_) => tracing::debug!(%peer, "no TLS in time"),
        }
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        speaks_two: bool,
        (peer, shown): (SocketAddr, Option<Arc<ClientCertificate>>),
        place: &Place,
        limits: &LimitsConfig,
    ) {
        let connection = Connection::new(place.seat());
        let (router, requests) = (self.router.clone(), connection.clone());
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let exchange = Exchange::begin(&requests);
            if let Some(shown) = &shown {
                request.extensions_mut().insert(shown.clone());
            }
            answer(router.clone(), request, peer, exchange)
        });
        let builder = builder(limits);
        let builder = if speaks_two { builder.http2_only() } else { builder.http1_only() };
        let mut http = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut stopping = self.stopping.clone();
        // When the connection is cut, once it was told to end.
        let mut cut_at: Option<tokio::time::Instant> = None;
        loop {
            let look_at = cut_at.unwrap_or_else(|| connection.overdue_at(limits).into());
            let is_told = cut_at.is_some();
            let is_stopping = tokio::select! {
                ended = http.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%peer, %error, "a connection ended badly");
                    }
                    return;
                }
                _ = stopping.wait_for(|stopping| *stopping), if !is_told => true,
                () = tokio::time::sleep_until(look_at) => false,
            };
            if is_stopping {
                http.as_mut().graceful_shutdown();
                // The server waits for it as long as it may, and cuts it then.
                drop((&mut http).await);
                return;
            }
            if is_told {
                tracing::debug!(%peer, "a connection was of no use for too long and is cut");
                return;
            }
            if connection.overdue_at(limits) <= std::time::Instant::now() {
                http.as_mut().graceful_shutdown();
                cut_at = Some(tokio::time::Instant::now() + GRACE);
            }
        }
    }
}

/// Answers one request.
async fn answer(
    mut router: Router,
    mut request: Request<Incoming>,
    peer: SocketAddr,
    exchange: Arc<Exchange>,
) -> Result<Response<Answer>, h2::Error> {
    request.extensions_mut().insert(Peer(peer));
    request.extensions_mut().insert(exchange.clone());
    let request = request.map(axum::body::Body::new);
    let response = match ServiceExt::<Request>::ready(&mut router).await {
        Ok(router) => router.call(request).await,
        Err(never) => match never {},
    };
    let response = match response {
        Ok(response) => response,
        Err(never) => match never {},
    };
    // A stream that is refused this way was not looked at, and the client may send it again later.
    if response.extensions().get::<Failure>().is_some_and(Failure::is_too_many_streams) {
        return Err(h2::Reason::REFUSED_STREAM.into());
    }
    Ok(response.map(|body| Answer::new(body, exchange)))
}
