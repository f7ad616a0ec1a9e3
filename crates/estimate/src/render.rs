//! Estimates as text: a table of parts by GPU, and a bar.

use std::fmt::Write as _;

use berth_domain::{Bytes, GpuCount};

use crate::estimate::{DeviceEstimate, Estimate, Parts};

/// The width of a bar in characters.
const BAR_WIDTH: u64 = 60;
/// One letter for each part, in the order of [`crate::Parts::named`].
const LETTERS: [char; 6] = ['W', 'K', 'C', 'O', 'P', '.'];

/// Renders the model, the inputs, and a row for each GPU of each count.
#[must_use]
pub fn table(estimate: &Estimate) -> String {
    let mut rows = vec![heading()];
    for (count, devices) in &estimate.counts {
        rows.extend(devices.iter().enumerate().map(|(rank, device)| row(*count, rank, device)));
    }
    let mut text = summary(estimate);
    text.push_str(&aligned(&rows));
    for note in &estimate.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// Renders one bar for each GPU of a count: the shares of its parts in its estimate, or in `total` if that is known.
#[must_use]
pub fn bar(devices: &[DeviceEstimate], total: Option<Bytes>) -> String {
    let most = devices.iter().map(|device| device.parts.total()).max().unwrap_or(Bytes::ZERO);
    let whole = total.unwrap_or(most).max(Bytes::new(1));
    let mut text = String::new();
    for (rank, device) in devices.iter().enumerate() {
        let needed = device.parts.total();
        let verdict = match total {
            Some(total) if needed > total => format!(" does not fit in {total}"),
            Some(total) => format!(" of {total}"),
            None => String::new(),
        };
        let _ = writeln!(text, "GPU {rank} |{}| {needed}{verdict}", filled(device, whole));
    }
    let _ = writeln!(text, "      {}", legend(devices).join(", "));
    text
}

/// Returns the letters of those parts that any GPU has.
fn legend(devices: &[DeviceEstimate]) -> Vec<String> {
    let has = |part: usize| devices.iter().any(|device| !device.parts.named()[part].1.is_zero());
    let names = Parts::default().named();
    let parts = LETTERS.iter().enumerate().filter(|(part, _)| has(*part));
    parts.map(|(part, letter)| format!("{letter} {}", names[part].0)).collect()
}

fn amount(bytes: Bytes) -> String {
    if bytes.is_zero() { "-".to_owned() } else { bytes.to_string() }
}

/// Renders the letters of a bar. Ends of parts are rounded from the sum so far, so that errors do not add up.
fn filled(device: &DeviceEstimate, whole: Bytes) -> String {
    let place = |bytes: u64| {
        let scaled = u128::from(bytes) * u128::from(BAR_WIDTH) / u128::from(whole.get());
        usize::try_from(scaled.min(u128::from(BAR_WIDTH))).unwrap_or(0)
    };
    let mut letters = String::new();
    let mut sum = 0u64;
    for ((_, bytes), letter) in device.parts.named().into_iter().zip(LETTERS) {
        sum = sum.saturating_add(bytes.get());
        let missing = place(sum).saturating_sub(letters.len());
        letters.extend(std::iter::repeat_n(letter, missing));
    }
    let width = usize::try_from(BAR_WIDTH).unwrap_or(0);
    format!("{letters:width$}")
}

fn summary(estimate: &Estimate) -> String {
    let (model, inputs) = (&estimate.model, &estimate.inputs);
    let name = model.name.as_deref().unwrap_or("a model");
    let cache = match inputs.cache_type_k == inputs.cache_type_v {
        true => inputs.cache_type_k.to_string(),
        false => format!("{}/{}", inputs.cache_type_k, inputs.cache_type_v),
    };
    let sequences =
        if inputs.parallel == 1 { "1 sequence".to_owned() } else { format!("{} sequences", inputs.parallel) };
    let flash = if inputs.flash_attention { "with" } else { "without" };
    let files = if model.files == 1 { "1 file".to_owned() } else { format!("{} files", model.files) };
    format!(
        "{name} ({}, {} layers, {} in {files})\n{}: context {} x {sequences}, cache {cache}, batch {}, {flash} flash \
         attention; {} stay in RAM\n\n",
        model.architecture, model.layers, model.weights, inputs.profile, inputs.context, inputs.batch, estimate.host,
    )
}

fn heading() -> Vec<String> {
    ["GPUs", "rank", "layers", "weights", "kv cache", "compute", "output", "projector", "overhead", "total"]
        .map(str::to_owned)
        .to_vec()
}

fn row(count: GpuCount, rank: usize, device: &DeviceEstimate) -> Vec<String> {
    let span = device.layers;
    let layers = match (span.count, span.output) {
        (0, true) => "output".to_owned(),
        (0, false) => "none".to_owned(),
        (count, output) => {
            format!("{}-{}{}", span.first, span.first + count - 1, if output { "+out" } else { "" })
        }
    };
    let parts = device.parts.named().into_iter().map(|(_, bytes)| amount(bytes));
    let mut cells = vec![if rank == 0 { count.to_string() } else { String::new() }, rank.to_string(), layers];
    cells.extend(parts);
    cells.push(device.parts.total().to_string());
    cells
}

/// Renders columns of equal width, numbers to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  "));
    }
    text
}
