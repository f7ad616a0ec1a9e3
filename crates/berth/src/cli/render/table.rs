//! Plain columns.

use super::look::{Colour, Look, clean};

/// A cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl<T: ToString + ?Sized> From<&T> for Cell {
    fn from(text: &T) -> Self {
        Self { text: clean(&text.to_string()), colour: None }
    }
}

/// A state's word, in its colour.
pub(crate) fn state(word: &str) -> Cell {
    Cell { text: clean(word), colour: Colour::of_state(word) }
}

/// Something, or a dash.
pub(crate) fn or_dash<T: ToString>(value: Option<&T>) -> Cell {
    value.map_or_else(|| Cell { text: "-".to_owned(), colour: Some(Colour::Dim) }, Cell::from)
}

/// Rows below a heading, in columns that are as wide as they must be.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    nothing: &'static str,
}

impl Table {
    /// A table with these headings, and what is said when it has no rows. Columns whose heading begins with `>` are
    /// aligned to the right.
    pub(crate) fn new(head: &[&'static str], nothing: &'static str) -> Self {
        Self { head: head.to_vec(), rows: Vec::new(), nothing }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn render(&self, look: Look) -> String {
        if self.rows.is_empty() {
            return format!("{}\n", self.nothing);
        }
        let right: Vec<bool> = self.head.iter().map(|head| head.starts_with('>')).collect();
        let head: Vec<Cell> = self
            .head
            .iter()
            .map(|head| Cell { text: head.trim_start_matches('>').to_owned(), colour: Some(Colour::Bold) })
            .collect();
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&head]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let mut text = String::new();
        for row in [&head].into_iter().chain(&self.rows) {
            text.push_str(&line(row, &widths, &right, look));
            text.push('\n');
        }
        text
    }
}

fn line(row: &[Cell], widths: &[usize], right: &[bool], look: Look) -> String {
    let mut text = String::new();
    for (at, cell) in row.iter().enumerate() {
        let width = widths.get(at).copied().unwrap_or_default();
        let padding = " ".repeat(width.saturating_sub(cell.text.chars().count()));
        let painted = cell.colour.map_or_else(|| cell.text.clone(), |colour| look.paint(colour, &cell.text));
        let is_last = at + 1 == row.len();
        match (right.get(at), is_last) {
            (Some(true), _) => text.push_str(&format!("{padding}{painted}")),
            (_, true) => text.push_str(&painted),
            (_, false) => text.push_str(&format!("{painted}{padding}")),
        }
        if !is_last {
            text.push_str("  ");
        }
    }
    text.trim_end().to_owned()
}

/// Names and values below each other, for one thing.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(&'static str, Cell)>);

impl Fields {
    pub(crate) fn add(&mut self, name: &'static str, value: impl Into<Cell>) {
        self.0.push((name, value.into()));
    }

    /// Only if there is something.
    pub(crate) fn maybe<T: ToString>(&mut self, name: &'static str, value: Option<T>) {
        if let Some(value) = value {
            self.add(name, &value);
        }
    }

    /// Only if there are some.
    pub(crate) fn list<T: ToString>(&mut self, name: &'static str, values: impl IntoIterator<Item = T>) {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        if !values.is_empty() {
            self.add(name, &values.join(", "));
        }
    }

    pub(crate) fn render(&self, look: Look) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let one = |(name, cell): &(&str, Cell)| {
            let padding = " ".repeat(width - name.len());
            let value = cell.colour.map_or_else(|| cell.text.clone(), |colour| look.paint(colour, &cell.text));
            format!("{}{padding}  {value}\n", look.paint(Colour::Bold, name))
        };
        self.0.iter().map(one).collect()
    }
}
