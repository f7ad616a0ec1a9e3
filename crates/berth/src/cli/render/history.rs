//! The server's history.

use berth_wire::{History, HistoryPoint};

use super::look::Look;
use super::table::Table;

/// Whether it is whole, what to do if it is not, and the starts that are known.
pub(crate) fn history(history: &History, look: Look) -> String {
    let point =
        |point: &HistoryPoint| format!("epoch {} ({}), revision {}", point.epoch, point.epoch_tag, point.revision);
    let mut text = format!("the server is at {}\n", point(&history.now));
    match &history.went_back {
        Some(shown) => text.push_str(&format!(
            "its history went back: a runner has obeyed its answer of {}, which its data does not know\n\
             nothing is placed, started or stopped. Either\n  \
             stop the server, give it its newest data, and start it again, or\n  \
             berth history continue --reason \"...\"     goes on without what was lost\n",
            point(shown)
        )),
        None => text.push_str("its history is whole, as far as its runners have shown\n"),
    }
    if !history.waits_for.is_empty() {
        let runners: Vec<String> = history.waits_for.iter().map(ToString::to_string).collect();
        text.push_str(&format!("not heard since it went back: {}\n", runners.join(", ")));
    }
    let mut table = Table::new(&[">EPOCH", "TAG", ">FROM REVISION"], "no epoch is known");
    for start in &history.epochs {
        table.row([(&start.epoch).into(), (&start.epoch_tag).into(), (&start.revision).into()]);
    }
    text + "\n" + &table.render(look)
}
