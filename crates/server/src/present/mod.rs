//! What the core shows, as what the API says. Text for people is made here and nowhere else.

mod attempt;
mod decision;
mod event;
mod event_fleet;
mod event_kind;
mod fleet;
mod history;
mod lack;
mod now;
mod reason;
mod work;

pub use decision::{decision, ended, explanation, fit, judgement, verdict_code};
pub use event::event;
pub use fleet::{device, host, offer, runner, slot, status};
pub use history::{history, went_back};
pub use now::{Judged, no_longer_fits, now};
pub use reason::{cause, stop_reason, wait_reason};
pub use work::{demand, model, queue_entry, workload};

use berth_core::{Balance, Phase};
use berth_domain::{Bytes, Millicores};
use berth_wire::{ClaimPhase, CpuBalance, MemoryBalance};

fn memory(balance: Balance<Bytes>) -> MemoryBalance {
    MemoryBalance {
        capacity_bytes: balance.capacity,
        held_bytes: balance.held,
        releasing_bytes: balance.releasing,
        promised_bytes: balance.promised,
        foreign_bytes: balance.foreign,
        free_bytes: balance.free,
    }
}

fn cpu(balance: Balance<Millicores>) -> CpuBalance {
    CpuBalance {
        capacity_millicores: balance.capacity,
        held_millicores: balance.held,
        releasing_millicores: balance.releasing,
        promised_millicores: balance.promised,
        foreign_millicores: balance.foreign,
        free_millicores: balance.free,
    }
}

fn phase(phase: Phase) -> ClaimPhase {
    match phase {
        Phase::Held => ClaimPhase::Held,
        Phase::Releasing => ClaimPhase::Releasing,
        Phase::Promised => ClaimPhase::Promised,
    }
}
