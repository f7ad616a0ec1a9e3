//! Machines and work: read from published traces, or generated in the same shapes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::random::SplitMix;

/// The memory of every GPU, in MiB.
pub const GPU_MIB: u64 = 80_000;
/// The parts of a GPU that work asks for, in MiB: a thousandth.
pub const MILLI_MIB: u64 = GPU_MIB / 1000;

/// One machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// CPU in millicores.
    pub cpu: u64,
    /// RAM in MiB.
    pub ram_mib: u64,
    /// How many GPUs it has.
    pub gpus: u16,
    /// What they are called.
    pub gpu_name: String,
}

/// What one piece of work asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Its name in the trace, which orders the list.
    pub name: String,
    /// What it asks for.
    pub need: Need,
}

/// What work asks for, apart from its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// CPU in millicores.
    pub cpu: u64,
    /// RAM in MiB.
    pub ram_mib: u64,
    /// How many GPUs; none for work on the CPU only.
    pub gpus: u16,
    /// Thousandths of each of them.
    pub milli: u64,
    /// The names of GPUs that it may use; all if empty.
    pub gpu_names: BTreeSet<String>,
}

impl Need {
    /// Thousandths of GPUs in all.
    #[must_use]
    pub fn total_milli(&self) -> u64 {
        u64::from(self.gpus) * self.milli
    }
}

/// A fleet and the work that comes to it.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What it is called.
    pub name: String,
    /// The machines.
    pub nodes: Arc<[Node]>,
    /// The work, by name.
    pub pods: Vec<Pod>,
}

impl Trace {
    /// All traces in a directory, by name.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>> {
        let nodes: Arc<[Node]> = read_nodes(&directory.join("openb/openb_node_list_gpu_node.csv"))?.into();
        let mut traces = Vec::new();
        for entry in std::fs::read_dir(directory.join("openb"))? {
            let path = entry?.path();
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let name = file.strip_prefix("openb_pod_list_").and_then(|name| name.strip_suffix(".csv"));
            if let Some(name) = name {
                traces.push(Self { name: name.to_owned(), nodes: nodes.clone(), pods: read_pods(&path)? });
            }
        }
        traces.sort_by(|a, b| a.name.cmp(&b.name));
        ensure!(!traces.is_empty(), "no openb_pod_list_*.csv in {}/openb", directory.display());
        Ok(traces)
    }

    /// The same without work on the CPU only, and without any need of CPU and RAM.
    #[must_use]
    pub fn gpu_only(&self) -> Self {
        let without_host = |pod: &Pod| Pod { need: Need { cpu: 0, ram_mib: 0, ..pod.need.clone() }, ..pod.clone() };
        let pods = self.pods.iter().filter(|pod| pod.need.gpus > 0).map(without_host).collect();
        Self { name: self.name.clone(), nodes: self.nodes.clone(), pods }
    }

    /// Thousandths of GPUs that the fleet has.
    #[must_use]
    pub fn capacity_milli(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.gpus) * 1000).sum()
    }

    /// Work in the order of its arrival, until it asks for so many percent of the GPUs. Each is drawn from the whole
    /// list.
    #[must_use]
    pub fn arrivals(&self, seed: u64, percent: u64) -> Vec<&Need> {
        let mut random = SplitMix::new(seed);
        let mut list: Vec<&Need> = self.pods.iter().map(|pod| &pod.need).collect();
        random.shuffle(&mut list);
        let (mut arrived, mut drawn) = (0, Vec::new());
        while arrived * 100 < self.capacity_milli() * percent {
            let need = list[random.below(list.len())];
            arrived += need.total_milli();
            drawn.push(need);
        }
        drawn
    }
}

/// The columns of a file by name, line by line.
fn rows(text: &str) -> impl Iterator<Item = BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines.map(move |line| heads.iter().copied().zip(line.split(',')).collect())
}

fn number(row: &BTreeMap<&str, &str>, column: &str) -> Result<u64> {
    match row.get(column).copied() {
        None | Some("") => Ok(0),
        Some(text) => text.parse().with_context(|| format!("{column}: {text:?} is not a number")),
    }
}

fn small(row: &BTreeMap<&str, &str>, column: &str) -> Result<u16> {
    Ok(u16::try_from(number(row, column)?)?)
}

fn read_nodes(path: &Path) -> Result<Vec<Node>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let node = |row: BTreeMap<&str, &str>| {
        let gpu_name = row.get("model").copied().unwrap_or_default().to_owned();
        let (cpu, ram_mib) = (number(&row, "cpu_milli")?, number(&row, "memory_mib")?);
        Ok(Node { cpu, ram_mib, gpus: small(&row, "gpu")?, gpu_name })
    };
    rows(&text).map(node).collect()
}

fn read_pods(path: &Path) -> Result<Vec<Pod>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let pod = |row: BTreeMap<&str, &str>| {
        let names = row.get("gpu_spec").copied().unwrap_or_default();
        let need = Need {
            cpu: number(&row, "cpu_milli")?,
            ram_mib: number(&row, "memory_mib")?,
            gpus: small(&row, "num_gpu")?,
            milli: number(&row, "gpu_milli")?,
            gpu_names: names.split('|').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        };
        Ok(Pod { name: row.get("name").copied().unwrap_or_default().to_owned(), need })
    };
    let mut pods: Vec<Pod> = rows(&text).map(pod).collect::<Result<_>>()?;
    pods.sort();
    Ok(pods)
}

/// How often generated work of one kind comes: weight, GPUs, thousandths of each, CPU, RAM.
type Kind = (u32, u16, u64, u64, u64);

/// Most work asks for one GPU, whole or a part of it, and some for none.
const ONE_GPU: [Kind; 9] = [
    (36, 1, 1000, 12_000, 32_768),
    (12, 1, 1000, 8_000, 30_720),
    (13, 1, 810, 7_000, 30_720),
    (9, 1, 470, 6_000, 16_384),
    (4, 1, 320, 4_000, 16_384),
    (3, 1, 650, 8_000, 12_288),
    (3, 1, 230, 2_000, 8_192),
    (2, 1, 160, 2_000, 8_192),
    (13, 0, 0, 10_000, 32_768),
];

/// Work on several whole GPUs.
const SEVERAL_GPUS: [Kind; 3] =
    [(4, 2, 1000, 24_000, 131_072), (3, 4, 1000, 48_000, 131_072), (3, 8, 1000, 88_000, 262_144)];

/// A small fleet and work for it, in the shapes of the published traces: `default`, `multigpu` (a third of the demand is
/// for several GPUs) and `gpuspec` (a third of the work names a GPU).
#[must_use]
pub fn generated() -> Vec<Trace> {
    let nodes: Arc<[Node]> = generated_nodes().into();
    let shapes = [("default", 1, 0), ("multigpu", 12, 0), ("gpuspec", 1, 33)];
    let trace = |(name, several, named): (&str, u32, usize)| Trace {
        name: format!("generated-{name}"),
        nodes: nodes.clone(),
        pods: generated_pods(several, named),
    };
    shapes.into_iter().map(trace).collect()
}

fn generated_nodes() -> Vec<Node> {
    let kinds = [
        (14, 96_000, 393_216, 8, "G2"),
        (10, 104_000, 524_288, 2, "T4"),
        (3, 16_000, 122_880, 2, "P100"),
        (1, 128_000, 786_432, 8, "G3"),
        (1, 32_000, 131_072, 4, "V100"),
        (1, 8_000, 32_768, 1, "V100"),
    ];
    let node = |(many, cpu, ram_mib, gpus, name): (usize, u64, u64, u16, &str)| {
        vec![Node { cpu, ram_mib, gpus, gpu_name: name.to_owned() }; many]
    };
    kinds.into_iter().flat_map(node).collect()
}

fn generated_pods(several: u32, named_percent: usize) -> Vec<Pod> {
    let mut random = SplitMix::new(17);
    let weighted = ONE_GPU.into_iter().chain(SEVERAL_GPUS.map(|(weight, gpus, milli, cpu, ram)| {
        let weight = if several == 1 { 1 } else { weight * several / 4 };
        (weight, gpus, milli, cpu, ram)
    }));
    let kinds: Vec<Kind> = weighted.flat_map(|kind| vec![kind; kind.0 as usize]).collect();
    let names = ["T4", "T4", "T4", "P100", "G2", "V100"];
    let pod = |number: usize| {
        let (_, gpus, milli, cpu, ram_mib) = kinds[random.below(kinds.len())];
        let named = random.below(100) < named_percent && gpus == 1;
        let gpu_names = named.then(|| names[random.below(names.len())].to_owned()).into_iter().collect();
        Pod { name: format!("pod-{number:04}"), need: Need { cpu, ram_mib, gpus, milli, gpu_names } }
    };
    (0..600).map(pod).collect()
}
