//! Where in a file something stands: its line, and the step, runner or model that it belongs to.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where the lines of a text begin.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(offset, _)| offset + 1)).collect();
        Self { text, starts }
    }

    /// The number of the line, from 1.
    pub(crate) fn number(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).max(1)
    }

    /// A line without its end.
    fn line(&self, number: usize) -> &'a str {
        let start = self.starts.get(number.saturating_sub(1)).copied().unwrap_or_default();
        self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default()
    }

    /// What a file that cannot be read is told: the line, what it belongs to, the problem, and the line itself.
    pub(crate) fn unreadable(&self, error: &toml::de::Error) -> String {
        let Some(span) = error.span() else { return error.message().to_owned() };
        let number = self.number(span.start);
        let place = match Part::at(self.text, span.start) {
            None => format!("line {number}"),
            Some(part) => match self.number(part.start) {
                first if first == number => format!("line {number}: {}", part.title),
                first => format!("line {number}: {} of line {first}", part.title),
            },
        };
        format!("{place}: {}\n  {number} | {}", error.message(), self.line(number))
    }
}

/// One of the things that a file is made of.
struct Part {
    start: usize,
    title: String,
}

impl Part {
    /// The part that an offset belongs to. The text need not be right: it is read as far as it can be.
    fn at(text: &str, offset: usize) -> Option<Self> {
        let (file, _) = DeTable::parse_recoverable(text);
        let parts = file.get_ref().iter().flat_map(|(key, value)| {
            let list = value.get_ref().as_array().map_or_else(|| vec![value], |list| list.iter().collect());
            let begun = move |(number, value)| Self::begun(text, offset, value, || title(key.get_ref(), number, value));
            (1..).zip(list).filter_map(begun)
        });
        parts.max_by_key(|part| part.start)
    }

    /// This part, if it begins before the offset. A table with a header goes on until the next header.
    fn begun(text: &str, offset: usize, value: &Spanned<DeValue<'_>>, title: impl FnOnce() -> String) -> Option<Self> {
        let Range { start, end } = value.span();
        let has_header = text.get(start..).is_some_and(|rest| rest.starts_with('['));
        (start <= offset && (has_header || offset < end)).then(|| Self { start, title: title() })
    }
}

/// `runner r1`, `model m`, `step 2 (expect)`; anything else by its key.
fn title(kind: &str, number: usize, value: &Spanned<DeValue<'_>>) -> String {
    let by_name = |key: &str| match value.get_ref().get(key).and_then(|name| name.get_ref().as_str()) {
        Some(name) => format!("{kind} {name}"),
        None => kind.to_owned(),
    };
    match kind {
        "step" => title_of_step(number, value),
        "runner" => by_name("id"),
        "model" => by_name("name"),
        other => other.to_owned(),
    }
}

fn title_of_step(number: usize, value: &Spanned<DeValue<'_>>) -> String {
    let keys = value.get_ref().as_table().into_iter().flatten();
    let mut verbs: Vec<(usize, String)> =
        keys.map(|(key, _)| (key.span().start, key.get_ref().to_string())).filter(|(_, key)| is_verb(key)).collect();
    // An unknown key may stand beside the verb: the first one is meant.
    verbs.sort();
    step_title(number, verbs.first().map(|(_, verb)| verb.as_str()).into_iter())
}

fn is_verb(key: &str) -> bool {
    !matches!(key, "note" | "refused")
}

/// `step 2 (expect)`.
pub(crate) fn step_title<'a>(number: usize, verbs: impl Iterator<Item = &'a str>) -> String {
    match verbs.collect::<Vec<_>>().as_slice() {
        [] => format!("step {number}"),
        verbs => format!("step {number} ({})", verbs.join(" and ")),
    }
}
