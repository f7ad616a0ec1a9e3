//! Samples of one kind of step.

use std::time::Duration;

use berth_core::Step;

/// How long steps of one kind took, and how many devices they looked at.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    times: Vec<Duration>,
    most_examined: u32,
}

impl Samples {
    /// Takes in one step.
    pub fn add(&mut self, time: Duration, step: &Step) {
        self.times.push(time);
        let examined = step.reports.iter().map(|report| report.examined).max().unwrap_or(0);
        self.most_examined = self.most_examined.max(examined);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Their mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let count = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        self.times.iter().sum::<Duration>().checked_div(count).unwrap_or_default()
    }

    /// The time that so many percent of them did not exceed.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(place).copied().unwrap_or_default()
    }

    /// The most devices that a decision among them looked at.
    #[must_use]
    pub fn most_examined(&self) -> u32 {
        self.most_examined
    }
}

/// Several runs of the same thing. Noise only ever adds, so the least mean says what the code costs; percentiles are
/// those of all samples, because a slow step that comes once in a while must show.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<Samples>);

impl Runs {
    /// Takes in one run, unless it is empty.
    pub fn add(&mut self, run: Samples) {
        if !run.is_empty() {
            self.0.push(run);
        }
    }

    /// All samples of all runs.
    #[must_use]
    pub fn all(&self) -> Samples {
        Samples {
            times: self.0.iter().flat_map(|run| run.times.iter().copied()).collect(),
            most_examined: self.0.iter().map(|run| run.most_examined).max().unwrap_or(0),
        }
    }

    /// The mean of the run with the least.
    #[must_use]
    pub fn least_mean(&self) -> Duration {
        self.0.iter().map(Samples::mean).min().unwrap_or_default()
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Samples> for Runs {
    fn from(run: Samples) -> Self {
        let mut runs = Self::default();
        runs.add(run);
        runs
    }
}
