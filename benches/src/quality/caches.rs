//! What known policies and a bound make of the same requests.

use std::collections::HashMap;

use super::eviction::{GPU_GIB, Served, Sizing};

/// A policy that keeps some models and drops others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// The least recently used goes.
    Lru,
    /// The least often used goes.
    Lfu,
    /// The one that is used again last goes: nobody can know that, and nobody is better where all models are equal.
    Belady,
}

/// A model that is there, and what it is worth to keep.
#[derive(Clone, Copy, Debug)]
struct Resident {
    model: usize,
    first_gpu: usize,
}

struct Cache {
    sizing: Sizing,
    gpus: usize,
    residents: Vec<Resident>,
}

/// Serves the requests by a policy.
#[must_use]
pub fn serve_by(policy: CachePolicy, requests: &[usize], gpus: u16, sizing: Sizing) -> Served {
    let mut cache = Cache { sizing, gpus: usize::from(gpus), residents: Vec::new() };
    let next = next_uses(requests);
    let (mut served, mut worth): (Served, HashMap<usize, u64>) = (Served::default(), HashMap::new());
    for (now, model) in requests.iter().enumerate() {
        let hit = cache.residents.iter().any(|resident| resident.model == *model);
        served.count(hit, sizing.gib(*model));
        if !hit {
            cache.admit(*model, |resident| worth.get(&resident).copied().unwrap_or(0), policy);
        }
        let value = worth.entry(*model).or_default();
        *value = match policy {
            CachePolicy::Lru => now as u64,
            CachePolicy::Lfu => *value + 1,
            CachePolicy::Belady => u64::MAX - next[now] as u64,
        };
    }
    served
}

/// For each request, when its model is asked for again.
fn next_uses(requests: &[usize]) -> Vec<usize> {
    let mut last: HashMap<usize, usize> = HashMap::new();
    let mut next = vec![usize::MAX; requests.len()];
    for (now, model) in requests.iter().enumerate().rev() {
        next[now] = last.insert(*model, now).unwrap_or(usize::MAX);
    }
    next
}

impl Cache {
    fn free(&self, gpu: usize) -> u64 {
        let used = self.residents.iter().filter(|resident| self.is_on(resident, gpu));
        GPU_GIB.saturating_sub(used.map(|resident| self.sizing.of(resident.model).0).sum())
    }

    fn is_on(&self, resident: &Resident, gpu: usize) -> bool {
        let (_, gpus) = self.sizing.of(resident.model);
        (resident.first_gpu..resident.first_gpu + usize::from(gpus)).contains(&gpu)
    }

    /// Puts a model where the victims are worth the least: on one GPU, or on an aligned pair.
    fn admit(&mut self, model: usize, worth: impl Fn(usize) -> u64, policy: CachePolicy) {
        let (gib, width) = self.sizing.of(model);
        let width = usize::from(width);
        let places = (0..self.gpus).step_by(width).filter(|first| first + width <= self.gpus);
        let options = places.map(|first| {
            let victims = self.victims(gib, first..first + width, &worth);
            let values = victims.iter().map(|victim| worth(*victim));
            let cost = if policy == CachePolicy::Lfu { values.sum() } else { values.max().unwrap_or(0) };
            let left: u64 = (first..first + width).map(|gpu| self.free(gpu)).sum();
            (victims.is_empty().then_some(left).map_or((1, cost), |left| (0, left)), first, victims)
        });
        let Some((_, first_gpu, victims)) = options.min() else { return };
        self.residents.retain(|resident| !victims.contains(&resident.model));
        self.residents.push(Resident { model, first_gpu });
    }

    /// The models of least worth that must go for so much on each of these GPUs.
    fn victims(&self, gib: u64, gpus: std::ops::Range<usize>, worth: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut free: HashMap<usize, u64> = gpus.clone().map(|gpu| (gpu, self.free(gpu))).collect();
        let mut there: Vec<&Resident> =
            self.residents.iter().filter(|resident| gpus.clone().any(|gpu| self.is_on(resident, gpu))).collect();
        there.sort_by_key(|resident| worth(resident.model));
        let mut victims = Vec::new();
        for resident in there {
            let helps = free.iter().any(|(gpu, free)| *free < gib && self.is_on(resident, *gpu));
            if helps {
                let back = self.sizing.of(resident.model).0;
                free.iter_mut().filter(|(gpu, _)| self.is_on(resident, **gpu)).for_each(|(_, free)| *free += back);
                victims.push(resident.model);
            }
        }
        victims
    }
}

/// The most hits that memory and time allow: keeping a model until its next use takes its memory for that long, and the
/// cheapest of these are taken until all memory is in use all the time. No policy can do better.
#[must_use]
pub fn bound(requests: &[usize], gpus: u16, sizing: Sizing) -> f64 {
    let next = next_uses(requests);
    let again = next.iter().enumerate().filter(|(_, next)| **next < usize::MAX);
    let mut costs: Vec<u64> = again.map(|(now, next)| (next - now) as u64 * sizing.gib(requests[now])).collect();
    costs.sort_unstable();
    let mut left = requests.len() as u64 * u64::from(gpus) * GPU_GIB;
    let kept = costs.into_iter().take_while(|cost| {
        let fits = *cost <= left;
        left = left.saturating_sub(*cost);
        fits
    });
    kept.count() as f64 / requests.len().max(1) as f64
}
