//! Rows with goals and verdicts.

use std::fmt;
use std::time::Duration;

use crate::measure::Runs;

/// What a row should keep to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Goal {
    mean: Option<Duration>,
    p99: Option<Duration>,
}

impl Goal {
    /// Nothing is asked.
    pub const NONE: Self = Self { mean: None, p99: None };

    /// A mean of at most so many microseconds.
    #[must_use]
    pub const fn mean_us(micros: u64) -> Self {
        Self { mean: Some(Duration::from_micros(micros)), p99: None }
    }

    /// Also a 99th percentile of at most so many microseconds.
    #[must_use]
    pub const fn and_p99_us(self, micros: u64) -> Self {
        Self { p99: Some(Duration::from_micros(micros)), ..self }
    }

    fn is_met(self, mean: Duration, p99: Duration) -> bool {
        self.mean.is_none_or(|most| mean <= most) && self.p99.is_none_or(|most| p99 <= most)
    }

    fn text(self) -> String {
        let part = |name, limit: Option<Duration>| limit.map(|limit| format!("{name} <= {} us", limit.as_micros()));
        [part("mean", self.mean), part("p99", self.p99)].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// What was measured, row by row.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    what: String,
    cells: [String; 5],
    goal: String,
    met: Option<bool>,
}

impl Table {
    /// A row of steps: the least mean of all runs, and percentiles over all of them. Nothing to show is shown as such:
    /// a goal that was not put to the test was not met.
    pub fn runs(&mut self, what: impl Into<String>, runs: &Runs, goal: Goal) {
        let asked = !goal.text().is_empty();
        let (all, mean) = (runs.all(), runs.least_mean());
        let (cells, met) = if runs.is_empty() {
            (["-", "-", "-", "-", "0"].map(str::to_owned), asked.then_some(false))
        } else {
            let (p50, p99) = (all.percentile(50), all.percentile(99));
            let (examined, samples) = (all.most_examined().to_string(), all.len().to_string());
            ([micros(mean), micros(p50), micros(p99), examined, samples], asked.then(|| goal.is_met(mean, p99)))
        };
        self.rows.push(Row { what: what.into(), cells, goal: goal.text(), met });
    }

    /// A row with one value that is no time of a step.
    pub fn value(&mut self, what: impl Into<String>, value: impl Into<String>, goal: &str, met: bool) {
        let cells = [value.into(), String::new(), String::new(), String::new(), String::new()];
        self.rows.push(Row { what: what.into(), cells, goal: goal.to_owned(), met: Some(met) });
    }

    /// How many goals were missed.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.rows.iter().filter(|row| row.met == Some(false)).count()
    }
}

fn micros(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e6)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["mean us", "p50 us", "p99 us", "examined", "samples"];
        let wide = self.rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
        write!(f, "{:wide$}", "step")?;
        heads.iter().try_for_each(|head| write!(f, "  {head:>9}"))?;
        writeln!(f, "  verdict  goal")?;
        for row in &self.rows {
            write!(f, "{:wide$}", row.what)?;
            row.cells.iter().try_for_each(|cell| write!(f, "  {cell:>9}"))?;
            let verdict = row.met.map_or("", |met| if met { "ok" } else { "MISSED" });
            writeln!(f, "  {}", format!("{verdict:7}  {}", row.goal).trim_end())?;
        }
        Ok(())
    }
}
