//! So many connections, each sending one request after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::http::Connection;

/// How a load went.
#[derive(Debug)]
pub struct Load {
    /// From the first request to the last answer.
    pub time: Duration,
    /// How long each took, sorted.
    pub latencies: Vec<Duration>,
}

impl Load {
    /// Requests a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from(u32::try_from(self.latencies.len()).unwrap_or(u32::MAX)) / self.time.as_secs_f64()
    }

    /// The latency that so many percent did not exceed.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let place = (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(place).copied().unwrap_or_default()
    }
}

/// One request: method, path and body.
pub type Request = (&'static str, String, Option<String>);

/// Connections to one server that were used before.
#[derive(Debug)]
pub struct Warm(Vec<Connection>);

impl Warm {
    /// Opens so many and uses each once.
    pub async fn open(address: SocketAddr, connections: usize) -> anyhow::Result<Self> {
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            let mut connection = Connection::open(address).await?;
            connection.send("GET", "/healthz", None).await?;
            open.push(connection);
        }
        Ok(Self(open))
    }

    /// Sends `requests`, in order, over all of them. Every answer must be below 400, or it is an error.
    pub async fn send(&mut self, requests: Vec<Request>) -> anyhow::Result<Load> {
        let requests = Arc::new(requests);
        let next = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        let open = std::mem::take(&mut self.0).into_iter();
        let workers: Vec<_> =
            open.map(|connection| tokio::spawn(send_in_turn(connection, requests.clone(), next.clone()))).collect();
        let mut latencies = Vec::new();
        for worker in workers {
            let (connection, took) = worker.await??;
            latencies.extend(took);
            self.0.push(connection);
        }
        let time = begun.elapsed();
        latencies.sort_unstable();
        Ok(Load { time, latencies })
    }
}

async fn send_in_turn(
    mut connection: Connection,
    requests: Arc<Vec<Request>>,
    next: Arc<AtomicUsize>,
) -> anyhow::Result<(Connection, Vec<Duration>)> {
    let mut latencies = Vec::new();
    while let Some((method, path, body)) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
        let sent = Instant::now();
        let reply = connection.send(method, path, body.as_deref()).await?;
        latencies.push(sent.elapsed());
        anyhow::ensure!(reply.status < 400, "{} {}", reply.status, String::from_utf8_lossy(&reply.body));
    }
    Ok((connection, latencies))
}
