//! The server's history goes back, and goes on.

use berth_domain::{Epoch, HistoryPoint, Revision, RunnerId, Timestamp};

use crate::state::State;

impl State {
    /// Every runner has to report before anything is placed on it: what is known of it is as old as the backup.
    pub(super) fn on_history_restored(&mut self, at: Timestamp) {
        self.continue_from_here(at);
        self.doubt_all_runners(|_, _| true);
        self.on_timers_restarted(at);
        self.link_all_bars();
        self.note_everything();
    }

    pub(super) fn on_history_went_back(&mut self, shown: HistoryPoint) {
        let is_known = self.history.has_gone_back();
        self.note_beyond(shown);
        if !is_known {
            self.doubt_all_runners(|history, slot| history.is_old_slot(slot.number));
        }
        self.link_all_bars();
        self.call_everybody();
    }

    /// Agents obey an answer of a later epoch. Each is called, so that it hears of the new one at once.
    pub(super) fn on_history_continued(&mut self, epoch: Epoch, revision: Revision, at: Timestamp) {
        self.epoch = epoch;
        self.revision = self.revision.max(revision);
        self.begin_epoch(self.history.tag(), at);
        self.continue_from_here(at);
        self.link_all_bars();
        self.call_everybody();
    }

    fn call_everybody(&mut self) {
        let revision = self.revision;
        for key in self.runners.keys() {
            let Some(row) = self.runners.get_mut(key) else { continue };
            row.desired = revision;
            let id = row.id.clone();
            self.call(&id);
        }
    }

    pub(super) fn on_caught_up(&mut self, id: &RunnerId) {
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        row.caught_up = true;
        let machine = row.machine;
        self.link_bars(machine);
    }

    pub(super) fn on_obeyed_code(&mut self, id: &RunnerId, is_invalid: bool) {
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        row.sent_invalid_code = is_invalid;
        let machine = row.machine;
        self.link_bars(machine);
    }
}
