//! What was measured, beside what it should be: a table to read, and JSON for programs.

use std::fmt;

use serde_json::{Value, json};

/// How a value is held against its goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Nothing is asked.
    None,
    /// At most so much.
    AtMost(f64),
    /// At least so much.
    AtLeast(f64),
}

impl Limit {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtMost(most) => Some(value <= most),
            Self::AtLeast(least) => Some(value >= least),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::AtMost(most) => write!(f, "<= {most:.3}"),
            Self::AtLeast(least) => write!(f, ">= {least:.3}"),
        }
    }
}

/// One measured value.
#[derive(Clone, Debug)]
pub struct Score {
    what: String,
    value: f64,
    limit: Limit,
    /// The same by others.
    beside: Vec<(&'static str, f64)>,
}

/// All that was measured.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    rows: Vec<Score>,
}

impl Scores {
    /// Adds a value.
    pub fn add(&mut self, what: impl Into<String>, value: f64, limit: Limit, beside: &[(&'static str, f64)]) {
        self.rows.push(Score { what: what.into(), value, limit, beside: beside.to_vec() });
    }

    /// How many goals were missed.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.rows.iter().filter(|row| row.limit.is_met(row.value) == Some(false)).count()
    }

    /// The same for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let row = |row: &Score| {
            let beside: serde_json::Map<String, Value> =
                row.beside.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            json!({
                "what": row.what,
                "value": row.value,
                "goal": row.limit.to_string(),
                "met": row.limit.is_met(row.value),
                "beside": beside,
            })
        };
        self.rows.iter().map(row).collect()
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wide = self.rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
        writeln!(f, "{:wide$}  {:>10}  verdict  {:10}  beside", "measured", "value", "goal")?;
        for row in &self.rows {
            let verdict = row.limit.is_met(row.value).map_or("", |met| if met { "ok" } else { "MISSED" });
            let beside: Vec<String> = row.beside.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
            let line = format!(
                "{:wide$}  {:>10.3}  {verdict:7}  {:10}  {}",
                row.what,
                row.value,
                row.limit.to_string(),
                beside.join(", ")
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
