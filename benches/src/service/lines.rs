//! What is printed, row by row, with a goal and a verdict.

use std::time::Duration;

/// The rows so far.
#[derive(Debug, Default)]
pub struct Lines {
    missed: usize,
}

impl Lines {
    /// Prints a row. A goal is its words, and whether it was met.
    #[expect(clippy::print_stdout, reason = "a benchmark prints")]
    pub fn put(&mut self, what: &str, value: &str, goal: Option<(&str, bool)>) {
        let verdict = match goal {
            Some((goal, true)) => format!("ok      {goal}"),
            Some((goal, false)) => {
                self.missed += 1;
                format!("MISSED  {goal}")
            }
            None => String::new(),
        };
        println!("{what:64}  {value:>44}  {verdict}");
    }

    /// Prints how many goals were missed.
    #[expect(clippy::print_stdout, reason = "a benchmark prints")]
    pub fn end(&self) {
        println!("{} goals missed", self.missed);
    }
}

/// Milliseconds.
#[must_use]
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The middle and the largest of some times.
#[must_use]
pub fn middle(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    (times.get(times.len() / 2).copied().unwrap_or_default(), times.last().copied().unwrap_or_default())
}
