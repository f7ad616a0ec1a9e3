//! The service against its goals: `cargo bench -p berth-benches --bench service [-- --quick | --null-only]`.
//!
//! Everything goes through real sockets to a server process of its own, with every write synced to the disk. The
//! limit is a null server: the same sockets, JSON and durable batches, without scheduling.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use berth_benches::service::child::{Process, Role, run_if_child};
use berth_benches::service::fleet::{Runner, put_model, register};
use berth_benches::service::http::Connection;
use berth_benches::service::lines::{Lines, ms};
use berth_benches::service::load::{Load, Request, Warm};
use berth_benches::service::past;
use serde_json::json;

fn main() -> anyhow::Result<()> {
    run_if_child()?;
    let quick = std::env::args().any(|argument| argument == "--quick");
    // One thread for the load: the machine has few cores, and the server should have the others.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = Lines::default();
    runtime.block_on(async {
        against_null(&mut lines, quick).await?;
        if std::env::args().any(|argument| argument == "--null-only") {
            return Ok(());
        }
        hundred_at_once(&mut lines, if quick { 5 } else { 20 }).await?;
        mixed(&mut lines, if quick { 2_000 } else { 10_000 }).await?;
        long_polls(&mut lines, if quick { 200 } else { 1_000 }).await?;
        long_past(&mut lines, quick).await
    })?;
    lines.end();
    Ok(())
}

fn told(load: &Load) -> String {
    format!("{:.0}/s, p50 {:.2} ms, p99 {:.2} ms", load.rate(), ms(load.percentile(50)), ms(load.percentile(99)))
}

fn submissions(count: usize) -> Vec<Request> {
    let body = json!({ "model": "small", "kind": "job" }).to_string();
    (0..count).map(|_| ("POST", "/api/v1/workloads".to_owned(), Some(body.clone()))).collect()
}

/// A server with a fleet of 1 213 runners and some models.
async fn with_fleet(data_dir: &Path) -> anyhow::Result<Process> {
    let server = Process::start(Role::Berth, data_dir)?;
    let gpus = [8, 8, 4, 8, 2, 1, 8, 4];
    let mut runners: Vec<Runner> = (0..1_213)
        .map(|n| Runner::new(format!("runner-{n:04}"), "default", gpus[n % gpus.len()], 128_000, 1 << 20))
        .collect();
    register(server.address, &mut runners).await?;
    let mut connection = Connection::open(server.address).await?;
    for (name, memory) in [("small", "1GiB"), ("medium", "14.685GiB"), ("large", "74.49GiB"), ("wide", "140GiB")] {
        put_model(&mut connection, name, &json!({ "runtime": "bench", "memory": memory })).await?;
    }
    Ok(server)
}

/// What one round at one server came to.
struct Round {
    cpu: Duration,
    load: Load,
}

impl Round {
    async fn run(server: &Process, connections: &mut Warm, count: usize) -> anyhow::Result<Self> {
        let before = server.cpu_of_threads()?;
        let load = connections.send(submissions(count)).await?;
        Ok(Self { cpu: server.cpu_of_threads()?.saturating_sub(before) / u32::try_from(count)?, load })
    }
}

/// CPU for each request and placements a second at 64 connections, beside the null server in the same run. The two are
/// asked in turn, for a short round each, so that whatever disturbs the machine disturbs both. CPU is compared over all
/// rounds, with what only some of them have, such as a snapshot of the journal; the rest by the median of the rounds.
async fn against_null(lines: &mut Lines, quick: bool) -> anyhow::Result<()> {
    let (rounds, count) = if quick { (9, 1_000) } else { (41, 2_500) };
    let (null_dir, berth_dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let null = Process::start(Role::Null, null_dir.path())?;
    let berth = with_fleet(berth_dir.path()).await?;
    let (mut to_null, mut to_berth) = (Warm::open(null.address, 64).await?, Warm::open(berth.address, 64).await?);
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let limit = Round::run(&null, &mut to_null, count).await?;
        pairs.push((limit, Round::run(&berth, &mut to_berth, count).await?));
    }
    let cpu = |round: &Round| round.cpu.as_secs_f64();
    let rate = |round: &Round| round.load.rate();
    let p99 = |round: &Round| round.load.percentile(99).as_secs_f64();
    let ratio = |of: &dyn Fn(&Round) -> f64| median(pairs.iter().map(|(null, berth)| of(berth) / of(null)));
    let told = |rounds: &mut dyn Iterator<Item = &Round>| {
        let rounds: Vec<&Round> = rounds.collect();
        let median = |of: &dyn Fn(&Round) -> f64| median(rounds.iter().map(|round| of(round)));
        let p50 = median(&|round| ms(round.load.percentile(50)));
        format!(
            "{:.0}/s, p50 {p50:.2} ms, p99 {:.2} ms, CPU {:.0} us",
            median(&rate),
            median(&p99) * 1e3,
            median(&cpu) * 1e6
        )
    };
    lines.put("null server, 64 connections", &told(&mut pairs.iter().map(|(null, _)| null)), None);
    let what = "berth, 64 connections, 1 213 runners, every one a placement";
    lines.put(what, &told(&mut pairs.iter().map(|(_, berth)| berth)), None);
    let (by_rate, by_p99, by_cpu) = (ratio(&rate), ratio(&p99), ratio(&cpu));
    lines.put("  placements/s against null", &format!("{:.0} %", by_rate * 100.0), Some((">= 60 %", by_rate >= 0.6)));
    lines.put("  p99 against null", &format!("{by_p99:.2} x"), Some(("<= 2 x", by_p99 <= 2.0)));
    let total = |of: fn(&(Round, Round)) -> &Round| pairs.iter().map(|pair| cpu(of(pair))).sum::<f64>();
    let by_total = total(|(_, berth)| berth) / total(|(null, _)| null);
    let what = "  server CPU for each request against null, over all rounds";
    lines.put(what, &format!("{by_total:.2} x"), Some(("<= 1.5 x", by_total <= 1.5)));
    lines.put("  the same, by the median of the rounds", &format!("{by_cpu:.2} x"), None);
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// C2: 100 CPU-only jobs at once on 20 runners, over warm connections.
async fn hundred_at_once(lines: &mut Lines, rounds: usize) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let server = Process::start(Role::Berth, dir.path())?;
    let mut control = Connection::open(server.address).await?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let pool = format!("pool-{round}");
        let mut runners: Vec<Runner> =
            (0..20).map(|n| Runner::new(format!("r{round}-{n}"), &pool, 0, 10_000, 20_480)).collect();
        register(server.address, &mut runners).await?;
        let model =
            json!({ "runtime": "bench", "gpu_counts": [0], "cpu_millicores": 100, "ram": "256MiB", "pool": pool });
        put_model(&mut control, &format!("job-{round}"), &model).await?;
        let mut open = Vec::new();
        for _ in 0..100 {
            let mut connection = Connection::open(server.address).await?;
            connection.send("GET", "/healthz", None).await?;
            open.push(connection);
        }
        let body = json!({ "model": format!("job-{round}"), "kind": "job" }).to_string();
        let begun = Instant::now();
        let jobs: Vec<_> = open
            .into_iter()
            .map(|mut connection| {
                let body = body.clone();
                tokio::spawn(async move { connection.send("POST", "/api/v1/workloads", Some(&body)).await?.taken() })
            })
            .collect();
        let mut on = std::collections::BTreeMap::<String, usize>::new();
        for job in jobs {
            let workload = job.await??;
            let runner = workload["slot"]["runner_id"].as_str().context("not placed")?;
            *on.entry(runner.to_owned()).or_default() += 1;
        }
        times.push(begun.elapsed());
        ensure!(on.len() == 20 && on.values().all(|many| *many == 5), "C2 placed {on:?}");
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    let value = format!("{:.1} ms, median of {}", ms(median), times.len());
    lines.put("C2 over HTTP: 100 of 100 placed, 5 on each of 20 runners", &value, Some(("< 30 ms", ms(median) < 30.0)));
    Ok(())
}

/// A mix of what gateways do, at three numbers of connections.
async fn mixed(lines: &mut Lines, count: usize) -> anyhow::Result<()> {
    for connections in [1, 16, 64] {
        let dir = tempfile::tempdir()?;
        let server = with_fleet(dir.path()).await?;
        let models = ["small", "small", "small", "medium", "small", "large", "small", "wide"];
        let request = |n: usize| -> Request {
            match n % 5 {
                0 => ("GET", "/api/v1/workloads?limit=10".to_owned(), None),
                1 => ("GET", "/api/v1/scheduler/decisions?limit=5".to_owned(), None),
                _ => {
                    let kind = if n.is_multiple_of(2) { "job" } else { "lease" };
                    let body = json!({ "model": models[n % models.len()], "kind": kind }).to_string();
                    ("POST", "/api/v1/workloads".to_owned(), Some(body))
                }
            }
        };
        // Listings walk everything there is: fewer of them, as in life.
        let requests = (0..count).map(|n| if n % 50 < 2 { request(n % 5) } else { request(2 + n % 3) }).collect();
        let load = Warm::open(server.address, connections).await?.send(requests).await?;
        lines.put(&format!("{count} mixed requests, 1 213 runners, {connections} connections"), &told(&load), None);
    }
    Ok(())
}

/// Many agents in long poll: one change wakes one of them; and what they cost while nothing happens.
async fn long_polls(lines: &mut Lines, agents: usize) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let server = Process::start(Role::Berth, dir.path())?;
    let mut control = Connection::open(server.address).await?;
    let mut runners: Vec<Runner> =
        (0..agents).map(|n| Runner::new(format!("agent-{n:04}"), &format!("pool-{n}"), 1, 8_000, 8_192)).collect();
    register(server.address, &mut runners).await?;
    for n in 0..20 {
        let model = json!({ "runtime": "bench", "memory": "1GiB", "pool": format!("pool-{}", n * agents / 20) });
        put_model(&mut control, &format!("model-{n}"), &model).await?;
    }
    let (woken, mut heard) = tokio::sync::mpsc::unbounded_channel();
    for mut runner in runners {
        let woken = woken.clone();
        let address = server.address;
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut reports = Connection::open(address).await?;
            let mut reported = Instant::now();
            let mut after = runner.poll(&mut connection, 0, 0).await?["revision"].as_u64().unwrap_or(0);
            loop {
                let desired = runner.poll(&mut connection, after, 10).await?;
                let revision = desired["revision"].as_u64().unwrap_or(0);
                if revision != after {
                    let _ = woken.send((runner.id.clone(), Instant::now()));
                    after = revision;
                }
                if reported.elapsed() >= Duration::from_secs(10) {
                    runner.report(&mut reports).await?;
                    reported = Instant::now();
                }
            }
            #[expect(unreachable_code, reason = "it ends with an error or not at all")]
            anyhow::Ok(())
        });
    }
    let waiting =
        |text: &str| text.lines().find_map(|line| line.strip_prefix("berth_long_polls ")?.parse::<usize>().ok());
    while waiting(&String::from_utf8_lossy(&control.send("GET", "/metrics", None).await?.body)) != Some(agents) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut times = Vec::new();
    for n in 0..20 {
        let body = json!({ "model": format!("model-{n}"), "kind": "job" }).to_string();
        let sent = Instant::now();
        control.send("POST", "/api/v1/workloads", Some(&body)).await?.taken()?;
        let (who, when) = heard.recv().await.context("nobody was woken")?;
        ensure!(who == format!("agent-{:04}", n * agents / 20), "{who} was woken instead");
        times.push(when.saturating_duration_since(sent));
        // Whoever else is woken would be heard of by now.
        tokio::time::sleep(Duration::from_millis(20)).await;
        ensure!(heard.try_recv().is_err(), "more than one agent was woken");
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    let value = format!("{:.2} ms, median of 20 (most {:.2} ms)", ms(median), ms(times[times.len() - 1]));
    lines.put(
        &format!("{agents} agents in long poll: submit to one agent awake"),
        &value,
        Some(("<= 10 ms", ms(median) <= 10.0)),
    );
    let (before, begun) = (server.cpu()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let share = (server.cpu()? - before).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
    let value = format!("{share:.1} % of a core, {} MiB resident", server.resident_mib()?);
    lines.put("  idle: polls of 10 s, a report every 10 s from each", &value, Some(("< 3 %", share < 3.0)));
    Ok(())
}

/// S4: a server with a long past is ready again soon.
async fn long_past(lines: &mut Lines, quick: bool) -> anyhow::Result<()> {
    let (workloads, slots) = if quick { (20_000, 2_000) } else { (100_000, 10_000) };
    let dir = tempfile::tempdir()?;
    let bytes = past::write(dir.path(), workloads, slots)?;
    for what in ["from its journal alone", "from its last snapshot"] {
        let server = Process::start(Role::Berth, dir.path())?;
        let mut connection = Connection::open(server.address).await?;
        connection.send("GET", "/readyz", None).await?.taken()?;
        let ready = server.start;
        let listed = connection.send("GET", "/api/v1/scheduler/slots", None).await?.taken()?;
        ensure!(listed.as_array().is_some_and(|list| list.len() == slots), "not all slots are there");
        let value = format!("{:.2} s, {} MiB resident", ready.as_secs_f64(), server.resident_mib()?);
        let what = format!("S4: {workloads} workloads, {slots} slots, {} MiB of journal, {what}", bytes >> 20);
        lines.put(&what, &value, Some(("<= 2 s", ready.as_secs_f64() <= 2.0)));
        // The snapshot is made beside the server, a few seconds after its start.
        let made = || {
            std::fs::read_dir(dir.path().join("journal")).is_ok_and(|mut entries| {
                entries.any(|entry| {
                    entry.is_ok_and(|entry| entry.path().extension().is_some_and(|kind| kind == "snapshot"))
                })
            })
        };
        let begun = Instant::now();
        while !made() && begun.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        ensure!(made(), "no snapshot was made");
    }
    Ok(())
}
