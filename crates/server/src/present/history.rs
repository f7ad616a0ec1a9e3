//! The server's history in the words of the API.

use berth_core::view::HistoryView;
use berth_domain::HistoryPoint;
use berth_wire as wire;

/// The starts of the server that are known, and whether anything is missing.
#[must_use]
pub fn history(view: &HistoryView) -> wire::History {
    wire::History {
        now: view.now.into(),
        epochs: view.epochs.iter().map(|start| (*start).into()).collect(),
        went_back: view.went_back.map(Into::into),
        waits_for: view.waits_for.clone(),
    }
}

/// That the history went back, and what to do about it.
#[must_use]
pub fn went_back(shown: HistoryPoint) -> String {
    format!(
        "the history of this server went back: a runner has obeyed its answer of {shown}, which its data does not know. \
         Nothing is placed, started or stopped until you stop this server and give it its newest data, or say that it \
         goes on without it: `berth history continue --reason ...`"
    )
}
