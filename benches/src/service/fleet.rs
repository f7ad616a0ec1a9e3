//! Fleets and catalogues, put together over HTTP.

use std::net::SocketAddr;

use anyhow::Context;
use serde_json::{Value, json};

use super::http::Connection;

/// One runner as its agent reports it.
#[derive(Clone, Debug)]
pub struct Runner {
    /// Its id.
    pub id: String,
    body: Value,
    sequence: u64,
    incarnation: Option<u64>,
}

impl Runner {
    /// A runner of its own machine with so many GPUs of 80 GiB.
    #[must_use]
    pub fn new(id: String, pool: &str, gpus: usize, cpu_millicores: u64, ram_mib: u64) -> Self {
        let gpu = |index: usize| {
            json!({ "uuid": format!("GPU-{id}-{index}"), "index": index, "name": "H100",
                    "memory_total_bytes": 80u64 << 30 })
        };
        let body = json!({
            "machine_id": format!("machine-{id}"), "boot_id": format!("boot-{id}"), "version": "bench", "pool": pool,
            "runtimes": ["bench"], "host": { "cpu_millicores": cpu_millicores, "ram_bytes": ram_mib << 20 },
            "gpus": (0..gpus).map(gpu).collect::<Vec<_>>(),
        });
        Self { id, body, sequence: 0, incarnation: None }
    }

    /// Registers, or reports that nothing changed.
    pub async fn report(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        self.sequence += 1;
        self.body["sequence"] = json!(self.sequence);
        if let Some(incarnation) = self.incarnation {
            self.body["incarnation"] = json!(incarnation);
        }
        let path = format!("/api/v1/runners/{}/report", self.id);
        let answer = connection.send("PUT", &path, Some(&self.body.to_string())).await?.taken()?;
        self.incarnation = answer["incarnation"].as_u64();
        Ok(())
    }

    /// Asks what it should run, after a revision, for at most so many seconds.
    pub async fn poll(&self, connection: &mut Connection, after: u64, seconds: u64) -> anyhow::Result<Value> {
        let incarnation = self.incarnation.context("not registered")?;
        let path =
            format!("/api/v1/runners/{}/desired?incarnation={incarnation}&after={after}&wait={seconds}s", self.id);
        connection.send("GET", &path, None).await?.taken()
    }
}

/// Registers all of them, over a few connections.
pub async fn register(address: SocketAddr, runners: &mut [Runner]) -> anyhow::Result<()> {
    let mut connection = Connection::open(address).await?;
    for runner in runners {
        runner.report(&mut connection).await?;
    }
    Ok(())
}

/// Puts a model into the catalogue.
pub async fn put_model(connection: &mut Connection, name: &str, model: &Value) -> anyhow::Result<()> {
    connection.send("PUT", &format!("/api/v1/models/{name}"), Some(&model.to_string())).await?.taken()?;
    Ok(())
}
