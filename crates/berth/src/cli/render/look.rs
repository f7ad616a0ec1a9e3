//! How things look: colours, times and sizes as people read them.

use berth_domain::{Span, Timestamp};
use berth_wire::Time;

/// What rendering may depend on, besides what is rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Whether colours are wanted.
    pub(crate) colour: bool,
    /// The time at which ages are measured.
    pub(crate) now: Timestamp,
}

/// A colour that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// In order.
    Green,
    /// On its way.
    Yellow,
    /// Somebody should look.
    Red,
    /// Ours, but not for long.
    Blue,
    /// Not ours.
    Magenta,
    /// Less important.
    Dim,
    /// A heading.
    Bold,
}

impl Colour {
    const fn code(self) -> &'static str {
        match self {
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
            Self::Blue => "34",
            Self::Magenta => "35",
            Self::Dim => "2",
            Self::Bold => "1",
        }
    }

    /// What a state's word should make its reader feel.
    pub(crate) fn of_state(word: &str) -> Option<Self> {
        Some(match word {
            "ready" | "running" | "open" | "succeeded" | "placed" | "reused" | "chosen" | "done" => Self::Green,
            "promised" | "pending" | "starting" | "draining" | "stopping" | "queued" | "assigned" | "waiting"
            | "suspect" | "cordoned" | "drained" | "stale" | "reserved" | "backing_off" | "releasing" => Self::Yellow,
            "failed" | "unknown" | "lost" | "refused" | "expired" | "missing" | "quarantined" | "overcommitted"
            | "disputed" | "forgotten" => Self::Red,
            _ => return None,
        })
    }
}

impl Look {
    /// The text in a colour, where colours are wanted.
    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{}m{text}\x1b[0m", colour.code()) } else { text.to_owned() }
    }

    /// How long ago that was, in short.
    pub(crate) fn age(self, time: Time) -> String {
        short(self.now.since(time.0))
    }
}

/// A length of time in its two largest units: `2h3m`, `45s`.
pub(crate) fn short(span: Span) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let millis = span.millis();
    let Some(first) = UNITS.iter().position(|(_, size)| millis >= *size) else { return format!("{millis}ms") };
    let (unit, size) = UNITS[first];
    let (whole, rest) = (millis / size, millis % size);
    match UNITS.get(first + 1) {
        Some((next, next_size)) if rest / next_size > 0 => format!("{whole}{unit}{}{next}", rest / next_size),
        _ => format!("{whole}{unit}"),
    }
}

/// Text of others without what a terminal would obey.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The same for text of several lines.
pub(crate) fn clean_lines(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        let cases =
            [(0, "0ms"), (999, "999ms"), (45_000, "45s"), (60_000, "1m"), (7_380_000, "2h3m"), (90_061_000, "1d1h")];
        for (millis, text) in cases {
            assert_eq!(short(Span::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_terminal_obeys_nobody_else() {
        assert_eq!(clean("a\x1b[31mb\nc\u{9b}d"), "a?[31mb?c?d");
        assert_eq!(clean_lines("a\nb\r\x07"), "a\nb??");
    }
}
