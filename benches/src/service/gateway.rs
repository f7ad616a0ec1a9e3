//! Around a gateway: an engine that streams words at a steady pace, a bare reverse proxy to compare with, an agent whose
//! slots are that engine, and clients that read streams.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use futures_util::stream;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::child::announce;
use super::http::Connection;

/// The words of one stream.
pub const WORDS: u32 = 200;
/// The time between two of them.
pub const PACE: Duration = Duration::from_millis(20);
/// Where the proxy passes requests on to.
pub const UPSTREAM: &str = "BERTH_BENCH_UPSTREAM";

/// Streams words until the process ends.
pub async fn engine() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, Router::new().route("/v1/chat/completions", post(words))).await?)
}

async fn words() -> Response {
    let begun = tokio::time::Instant::now();
    let word = move |number: u32| async move {
        if number > WORDS {
            return None;
        }
        // By the clock, so that a stream is as long as it should be.
        tokio::time::sleep_until(begun + PACE * number.min(WORDS - 1)).await;
        let text = match number {
            WORDS => "data: [DONE]\n\n".to_owned(),
            _ => format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"word {number}\"}}}}]}}\n\n"),
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), number + 1))
    };
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream::unfold(0, word))).into_response()
}

/// Passes requests on and does nothing else, until the process ends.
pub async fn proxy() -> anyhow::Result<()> {
    let upstream: SocketAddr = std::env::var(UPSTREAM)?.parse()?;
    let client: Client<HttpConnector, Incoming> = Client::builder(TokioExecutor::new()).build_http();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let client = client.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            let uri: Result<Uri, _> = format!("http://{upstream}{path}").parse();
            *request.uri_mut() = uri.unwrap_or_default();
            client.request(request)
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// An agent with one GPU whose slots are ready at once, at `endpoint`; those of models in `never` never are.
pub async fn run_agent(server: SocketAddr, endpoint: SocketAddr, never: &'static str) -> anyhow::Result<()> {
    let mut connection = Connection::open(server).await?;
    let gpus = json!([{ "uuid": "GPU-0", "index": 0, "name": "H100", "memory_total_bytes": 80u64 << 30 }]);
    let mut body = json!({
        "machine_id": "m", "boot_id": "b", "version": "bench", "runtimes": ["bench"], "gpus": gpus, "slots": [],
        "host": { "cpu_millicores": 64_000, "ram_bytes": 64u64 << 30 }, "sequence": 0,
    });
    for sequence in 1_u64.. {
        body["sequence"] = json!(sequence);
        let told = connection.send("PUT", "/api/v1/runners/r/report", Some(&body.to_string())).await?.taken()?;
        body["incarnation"] = told["incarnation"].clone();
        let path = format!("/api/v1/runners/r/desired?incarnation={}&wait=0s", told["incarnation"]);
        let desired = connection.send("GET", &path, None).await?.taken()?;
        let run = desired["slots"].as_array().into_iter().flatten().filter(|slot| slot["action"] == "run");
        body["slots"] = run.map(|slot| report(slot, endpoint, never)).collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn report(slot: &Value, endpoint: SocketAddr, never: &str) -> Value {
    let claims: Vec<Value> = slot["gpus"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|gpu| json!({ "uuid": gpu["uuid"], "bytes": gpu["memory_bytes"] }))
        .collect();
    let mut told = json!({ "id": slot["id"], "generation": slot["generation"], "claims": claims, "state": "starting" });
    if !slot.to_string().contains(never) {
        told["state"] = json!("ready");
        told["endpoint"] = json!(format!("http://{endpoint}"));
    }
    told
}

/// Sends one request for a stream.
pub async fn ask(address: SocketAddr, model: &str, streams: bool, padding: usize) -> anyhow::Result<TcpStream> {
    let body = json!({ "model": model, "stream": streams, "messages": [], "padding": "x".repeat(padding) }).to_string();
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    Ok(stream)
}

/// Reads one stream to its end and returns how long its first word took.
pub async fn read_stream(address: SocketAddr, model: &str) -> anyhow::Result<Duration> {
    let mut stream = ask(address, model, true, 0).await?;
    let (begun, mut first) = (Instant::now(), None);
    let mut text = Vec::new();
    loop {
        ensure!(stream.read_buf(&mut text).await? > 0, "it broke off: {}", String::from_utf8_lossy(&text));
        if first.is_none() && text.windows(6).any(|window| window == b"data: ") {
            first = Some(begun.elapsed());
        }
        if text.ends_with(b"0\r\n\r\n") {
            break;
        }
        if first.is_none() && text.len() > 64 * 1024 {
            bail!("no stream: {}", String::from_utf8_lossy(&text));
        }
    }
    let words = text.windows(6).filter(|window| *window == b"data: ").count();
    ensure!(words == WORDS as usize + 1, "{words} events: {}", String::from_utf8_lossy(&text[..text.len().min(500)]));
    first.context("no word")
}
