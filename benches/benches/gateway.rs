//! The gateway against its goals: `cargo bench -p berth-benches --bench gateway [-- --quick]`.
//!
//! Streams of 200 words at 50 words a second, 200 of them at any time, read directly from an engine, through a bare
//! reverse proxy and through the gateway, each a process of its own. And 10 000 requests that are held.

use std::net::SocketAddr;
use std::time::Duration;

use berth_benches::service::child::{Process, Role, run_if_child};
use berth_benches::service::fleet::put_model;
use berth_benches::service::gateway::{PACE, UPSTREAM, WORDS, ask, read_stream, run_agent};
use berth_benches::service::http::Connection;
use berth_benches::service::lines::{Lines, ms};
use serde_json::json;

const AT_ONCE: u32 = 200;

fn main() -> anyhow::Result<()> {
    run_if_child()?;
    let quick = std::env::args().any(|argument| argument == "--quick");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = Lines::default();
    runtime.block_on(async {
        let directory = tempfile::tempdir()?;
        let engine = Process::start(Role::Engine, directory.path())?;
        let upstream = engine.address.to_string();
        let proxy = Process::start_with(Role::Proxy, directory.path(), &[(UPSTREAM, &upstream)])?;
        let raised = [
            ("BERTH_GATEWAY__HELD", "20000"),
            ("BERTH_GATEWAY__HELD_PER_MODEL", "20000"),
            ("BERTH_GATEWAY__HOLD", "10m"),
            ("BERTH_SCHEDULER__QUEUE_LIMIT", "20000"),
            ("BERTH_LIMITS__CONNECTIONS", "20000"),
        ];
        let berth = Process::start_with(Role::Berth, directory.path(), &raised)?;
        tokio::spawn(run_agent(berth.address, engine.address, "never-ready"));
        let mut connection = Connection::open(berth.address).await?;
        let model =
            |memory: &str| json!({ "runtime": "bench", "memory": memory, "gpu_counts": [1], "concurrency": 65536 });
        put_model(&mut connection, "warm", &model("10GiB")).await?;
        put_model(&mut connection, "never-ready", &model("20GiB")).await?;
        read_stream(berth.address, "warm").await?;
        streams(&mut lines, &engine, &proxy, &berth, if quick { 200 } else { 800 }).await?;
        held(&mut lines, &berth, if quick { 2_000 } else { 10_000 }).await
    })?;
    lines.end();
    Ok(())
}

/// How long the first words took, sorted: one stream begins as another ends.
async fn first_words(address: SocketAddr, count: u32) -> anyhow::Result<Vec<Duration>> {
    let every = PACE * WORDS / AT_ONCE;
    let begun = tokio::time::Instant::now();
    let mut reading = Vec::new();
    for number in 0..count {
        tokio::time::sleep_until(begun + every * number).await;
        reading.push(tokio::spawn(read_stream(address, "warm")));
    }
    let mut times = Vec::new();
    for stream in reading {
        times.push(stream.await??);
    }
    times.sort_unstable();
    Ok(times)
}

async fn streams(
    lines: &mut Lines,
    engine: &Process,
    proxy: &Process,
    berth: &Process,
    count: u32,
) -> anyhow::Result<()> {
    let direct = first_words(engine.address, count).await?;
    let (before, words) = (proxy.cpu_of_threads()?, f64::from(count * WORDS));
    let proxied = first_words(proxy.address, count).await?;
    let proxy_cpu = (proxy.cpu_of_threads()? - before).as_secs_f64() * 1e6 / words;
    let before = berth.cpu_of_threads()?;
    let gateway = first_words(berth.address, count).await?;
    let gateway_cpu = (berth.cpu_of_threads()? - before).as_secs_f64() * 1e6 / words;
    let at = |times: &[Duration], percent: usize| ms(times[times.len() * percent / 100]);
    for (what, times) in [("direct", &direct), ("bare proxy", &proxied), ("gateway", &gateway)] {
        let value = format!("p50 {:.2} ms, p99 {:.2} ms", at(times, 50), at(times, 99));
        lines.put(&format!("first word, {AT_ONCE} streams at a time, {what}"), &value, None);
    }
    let (p50, p99) = (at(&gateway, 50) - at(&direct, 50), at(&gateway, 99) - at(&direct, 99));
    lines.put("  added by the gateway, p50", &format!("{p50:.2} ms"), Some(("<= 1 ms", p50 <= 1.0)));
    lines.put("  added by the gateway, p99", &format!("{p99:.2} ms"), Some(("<= 5 ms", p99 <= 5.0)));
    let (ratio, value) = (gateway_cpu / proxy_cpu, format!("{gateway_cpu:.1} us, proxy {proxy_cpu:.1} us"));
    lines.put("CPU for each word, gateway", &value, None);
    lines.put("  against the bare proxy", &format!("{ratio:.2} x"), Some(("<= 1.5 x", ratio <= 1.5)));
    Ok(())
}

async fn held(lines: &mut Lines, berth: &Process, count: usize) -> anyhow::Result<()> {
    let before = berth.resident_mib()?;
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(ask(berth.address, "never-ready", false, 1024).await?);
    }
    let mut looking = Connection::open(berth.address).await?;
    loop {
        let rows = looking.send("GET", "/api/v1/workloads?model=never-ready&limit=20000", None).await?.taken()?;
        if rows.as_array().is_some_and(|rows| rows.len() == count) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let grown = berth.resident_mib()?.saturating_sub(before);
    let goal = count < 10_000 || grown <= 150;
    lines.put(
        &format!("memory for {count} held requests of 1 KiB"),
        &format!("{grown} MiB"),
        Some(("<= 150 MiB for 10 000", goal)),
    );
    drop(connections);
    Ok(())
}
