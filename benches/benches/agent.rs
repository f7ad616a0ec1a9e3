//! The agent against its goals: `cargo bench -p berth-benches --bench agent [-- --quick]`.
//!
//! A real server, a real agent with simulated GPUs, and slots that are real processes which do nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use berth_benches::service::agent::{AgentProcess, run_if_agent, start_slot};
use berth_benches::service::child::{Process, Role, run_if_child};
use berth_benches::service::fleet::put_model;
use berth_benches::service::http::Connection;
use berth_benches::service::lines::{Lines, middle, ms};
use serde_json::{Value, json};

fn main() -> anyhow::Result<()> {
    run_if_agent()?;
    run_if_child()?;
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (samples, slots) = if quick { (10, 50) } else { (50, 200) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = Lines::default();
    runtime.block_on(async {
        let directory = tempfile::tempdir()?;
        let server = Process::start(Role::Berth, &directory.path().join("server"))?;
        let agent = AgentProcess::start(server.address, directory.path(), 8)?;
        let mut bench = Bench { connection: Connection::open(server.address).await?, server: server.address };
        bench.until("the agent has reported", "/api/v1/runners", |runners| runners[0]["reported"] == true).await?;
        submit_to_ready(&mut lines, &mut bench, samples).await?;
        stop_to_proof(&mut lines, &mut bench, samples).await?;
        many_slots(&mut lines, &mut bench, &agent, slots).await
    })?;
    lines.end();
    Ok(())
}

/// A client of the server.
struct Bench {
    connection: Connection,
    server: SocketAddr,
}

impl Bench {
    async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.connection.send("GET", path, None).await?.taken()
    }

    async fn until(&mut self, what: &str, path: &str, enough: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let begun = Instant::now();
        loop {
            let seen = self.get(path).await?;
            if enough(&seen) {
                return Ok(seen);
            }
            ensure!(begun.elapsed() < Duration::from_secs(120), "not yet: {what}: {seen:#}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// A model of its own, and a lease on its first slot; returns when that is ready.
    async fn run(&mut self, name: &str) -> anyhow::Result<Value> {
        let body = json!({ "model": name }).to_string();
        let workload = self.connection.send("POST", "/api/v1/workloads?wait=30s", Some(&body)).await?.taken()?;
        ensure!(workload["state"] == "running", "it does not run: {workload:#}");
        Ok(workload)
    }

    async fn model(&mut self, name: &str) -> anyhow::Result<()> {
        put_model(&mut self.connection, name, &json!({ "runtime": "bench", "memory": "1GiB", "keep_alive": "1h" }))
            .await
    }
}

/// How long the program itself takes from its start to its first answer.
async fn own_start(samples: usize) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for sample in 0..samples {
        let port = 30_000 + u16::try_from(sample)?;
        let begun = Instant::now();
        let mut child = start_slot(port)?;
        loop {
            let answer = match Connection::open(([127, 0, 0, 1], port).into()).await {
                Ok(mut connection) => connection.send("GET", "/health", None).await,
                Err(error) => Err(error),
            };
            if answer.is_ok_and(|reply| reply.status == 200) {
                break;
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        times.push(begun.elapsed());
        child.kill()?;
        child.wait()?;
    }
    Ok(middle(&mut times).0)
}

async fn submit_to_ready(lines: &mut Lines, bench: &mut Bench, samples: usize) -> anyhow::Result<()> {
    let own = own_start(samples).await?;
    let mut times = Vec::new();
    for sample in 0..samples {
        let name = format!("one-{sample}");
        bench.model(&name).await?;
        let begun = Instant::now();
        let workload = bench.run(&name).await?;
        times.push(begun.elapsed().saturating_sub(own));
        let id = workload["id"].as_str().context("no id")?;
        let done = json!({ "attempt": 1 }).to_string();
        bench.connection.send("POST", &format!("/api/v1/workloads/{id}/complete"), Some(&done)).await?.taken()?;
    }
    let (median, most) = middle(&mut times);
    let value = format!("{:.1} ms, median of {samples} (most {:.1} ms)", ms(median), ms(most));
    let what = format!("submit to ready, beyond the process's own start ({:.1} ms)", ms(own));
    lines.put(&what, &value, Some(("<= 50 ms", ms(median) <= 50.0)));
    Ok(())
}

/// From the moment that the process is dead, and with it its memory back, to the moment that the server has proof.
async fn stop_to_proof(lines: &mut Lines, bench: &mut Bench, samples: usize) -> anyhow::Result<()> {
    let status = bench.get("/api/v1/runners/bench/status").await?;
    let slots: Vec<Value> = status["slots"].as_array().context("no slots")?.clone();
    let mut watcher = Connection::open(bench.server).await?;
    let mut times = Vec::new();
    for slot in slots.iter().take(samples) {
        let (id, pid) = (slot["id"].as_str().context("no id")?, slot["pid"].as_u64().context("no pid")?);
        bench.connection.send("DELETE", &format!("/api/v1/scheduler/slots/{id}"), None).await?.taken()?;
        let is_dead = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
        };
        while !is_dead() {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let begun = Instant::now();
        while watcher.send("GET", &format!("/api/v1/scheduler/slots/{id}"), None).await?.status != 404 {
            ensure!(begun.elapsed() < Duration::from_secs(60), "slot {id} is never proven gone");
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        times.push(begun.elapsed());
    }
    let (median, most) = middle(&mut times);
    let value = format!("{:.1} ms, median of {} (most {:.1} ms)", ms(median), times.len(), ms(most));
    lines.put("a stop is proven after the memory is back", &value, Some(("<= 100 ms", ms(most) <= 100.0)));
    Ok(())
}

async fn many_slots(lines: &mut Lines, bench: &mut Bench, agent: &AgentProcess, slots: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    for slot in 0..slots {
        let name = format!("many-{slot}");
        bench.model(&name).await?;
        let body = json!({ "model": name, "ttl": "1h" }).to_string();
        bench.connection.send("POST", "/api/v1/workloads", Some(&body)).await?.taken()?;
    }
    let ready = |rows: &Value| {
        rows.as_array().is_some_and(|rows| rows.iter().filter(|row| row["state"] == "ready").count() >= slots)
    };
    bench.until("all slots are ready", "/api/v1/scheduler/slots", ready).await?;
    lines.put(
        &format!("{slots} slots on one agent: all ready after"),
        &format!("{:.1} s", begun.elapsed().as_secs_f64()),
        None,
    );
    let (before, begun) = (agent.cpu()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let share = (agent.cpu()? - before).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
    let mut passes = agent.passes(slots)?;
    let (median, most) = middle(&mut passes);
    let value = format!("{:.2} ms, median of {} (most {:.1} ms)", ms(median), passes.len(), ms(most));
    lines.put("  reconcile pass", &value, Some(("<= 20 ms", !passes.is_empty() && ms(median) <= 20.0)));
    lines.put("  idle CPU, over 30 s", &format!("{share:.2} % of a core"), Some(("< 1 %", share < 1.0)));
    let resident = agent.resident_mib()?;
    let value = format!("{resident} MiB resident");
    lines.put("  with 64 KiB of log from each slot in memory", &value, Some(("< 60 MiB", resident < 60)));
    Ok(())
}
