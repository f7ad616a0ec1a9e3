//! The account of one resource: the memory of a device, or the CPU or RAM of a machine.
//!
//! A claim enters a ledger, changes its phase and leaves it only through the methods of this file. How much of a device
//! is foreign is computed elsewhere (`decide/report/foreign.rs`) and set here. Two inequalities hold at every instant:
//!
//! ```text
//! now:     held + releasing + foreign           <= capacity
//! future:  held            + foreign + promised <= capacity
//! ```
//!
//! [`Ledger::check`] answers "does it fit", and [`Ledger::claim`] takes the memory by asking it. Reality may break
//! one (capacity shrinks, foreign use grows, a process takes more than its claim): then the ledger is overcommitted,
//! offers nothing, and takes no claim until both hold again. The fields are private: there is no way around this.

use berth_domain::{Bytes, Fraction, Millicores};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::sabotage::{self, Mutation};
use crate::table::SlotKey;

/// Something that is counted in whole units.
pub trait Quantity: Copy + Ord + Default + std::fmt::Debug {
    /// The units.
    fn units(self) -> u64;
    /// So many units.
    fn of_units(units: u64) -> Self;
}

impl Quantity for Bytes {
    fn units(self) -> u64 {
        self.get()
    }
    fn of_units(units: u64) -> Self {
        Self::new(units)
    }
}

impl Quantity for Millicores {
    fn units(self) -> u64 {
        self.get()
    }
    fn of_units(units: u64) -> Self {
        Self::new(units)
    }
}

/// What a claim is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Belongs to a slot that runs or may run.
    Held,
    /// Belongs to a slot that is being stopped: not free until proof.
    Releasing,
    /// Will belong to a slot once what is releasing is proven free.
    Promised,
}

/// What is asked of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask<Q> {
    /// So much.
    Amount(Q),
    /// Everything that is not foreign, with nobody beside it; foreign use up to this is tolerated.
    Whole {
        /// The foreign use that is still "nobody".
        tolerance: Q,
        /// There must be at least this much.
        least: Q,
    },
}

/// Why an ask does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortfall<Q> {
    /// Nothing was asked for. Nothing is never an amount.
    Nothing,
    /// Less is free than needed.
    Short {
        /// What was asked for.
        needed: Q,
        /// What could be given.
        free: Q,
    },
    /// Somebody has it to themselves.
    Exclusive,
    /// It was asked for whole, and somebody is there.
    NotWhole,
    /// A line is false.
    Overcommitted,
}

/// One slot's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim<Q> {
    /// Whose it is.
    pub slot: SlotKey,
    /// What it is.
    pub phase: Phase,
    /// How much.
    pub amount: Q,
    /// Whether it shuts everybody else out.
    pub exclusive: bool,
    /// Its release takes too long: nobody new may count on it.
    pub stuck: bool,
}

/// The numbers of a ledger at one instant, to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Balance<Q> {
    /// All there is.
    pub capacity: Q,
    /// Claimed by slots that run or may run.
    pub held: Q,
    /// Claimed by slots that are being stopped.
    pub releasing: Q,
    /// Spoken for, once it is free.
    pub promised: Q,
    /// In use by others.
    pub foreign: Q,
    /// What a new claim could have now.
    pub free: Q,
}

/// The account of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger<Q> {
    capacity: Q,
    foreign: Q,
    held: Q,
    releasing: Q,
    promised: Q,
    /// Of what is releasing: what nobody new may count on.
    stuck: Q,
    /// How many claims shut others out.
    exclusive: u32,
    claims: SmallVec<[Claim<Q>; 2]>,
}

impl<Q: Quantity> Ledger<Q> {
    /// An account of `capacity`, all of it free.
    #[must_use]
    pub fn new(capacity: Q) -> Self {
        let zero = Q::default();
        let claims = SmallVec::new();
        Self { capacity, foreign: zero, held: zero, releasing: zero, promised: zero, stuck: zero, exclusive: 0, claims }
    }

    /// Does it fit? A claim to hold must keep both lines; a promise only needs the future one.
    pub fn check(&self, ask: Ask<Q>, phase: Phase) -> Result<Q, Shortfall<Q>> {
        self.check_without(ask, phase, &[])
    }

    /// Would it fit if the slots in `leaving` were being stopped? Their memory is then releasing, so only a promise
    /// gains by it.
    pub fn check_without(&self, ask: Ask<Q>, phase: Phase, leaving: &[SlotKey]) -> Result<Q, Shortfall<Q>> {
        if self.is_overcommitted() {
            return Err(Shortfall::Overcommitted);
        }
        let leaves =
            |claim: &Claim<Q>| (claim.phase == Phase::Releasing && !claim.stuck) || leaving.contains(&claim.slot);
        let concerns = |claim: &&Claim<Q>| phase == Phase::Held || !leaves(claim);
        if self.exclusive > 0 && self.claims.iter().filter(concerns).any(|claim| claim.exclusive) {
            return Err(Shortfall::Exclusive);
        }
        let free = match phase {
            Phase::Held => self.headroom(),
            _ => self.future_headroom_without(leaving),
        };
        match ask {
            Ask::Amount(needed) if needed.units() == 0 => Err(Shortfall::Nothing),
            Ask::Amount(needed) if needed <= free => Ok(needed),
            Ask::Amount(needed) => Err(Shortfall::Short { needed, free }),
            Ask::Whole { tolerance, least } => {
                if self.capacity < least {
                    return Err(Shortfall::Short { needed: least, free: self.capacity });
                }
                if self.foreign > tolerance || self.claims.iter().any(|claim| concerns(&claim)) {
                    return Err(Shortfall::NotWhole);
                }
                if free.units() == 0 { Err(Shortfall::Nothing) } else { Ok(free) }
            }
        }
    }

    /// Takes what [`Ledger::check`] allows.
    pub fn claim(&mut self, slot: SlotKey, ask: Ask<Q>, phase: Phase) -> Result<Q, Shortfall<Q>> {
        let amount = self.check(ask, phase)?;
        self.put(Claim { slot, phase, amount, exclusive: matches!(ask, Ask::Whole { .. }), stuck: false });
        Ok(amount)
    }

    /// Charges what is already there, whether the lines like it or not: reality needs no permission.
    pub(crate) fn charge(&mut self, claim: Claim<Q>) {
        self.take_out(claim.slot);
        self.put(claim);
    }

    /// Held becomes releasing. It stays charged.
    pub(crate) fn begin_release(&mut self, slot: SlotKey) {
        if let Some(claim) = self.take_out(slot) {
            self.put(Claim { phase: Phase::Releasing, ..claim });
        }
    }

    /// The release takes too long. It stays releasing, and nobody new counts on it.
    pub(crate) fn get_stuck(&mut self, slot: SlotKey) {
        if let Some(claim) = self.take_out(slot) {
            self.put(Claim { stuck: true, ..claim });
        }
    }

    /// Releasing becomes held again (a slot that turned out to be alive).
    pub(crate) fn resume(&mut self, slot: SlotKey) {
        if let Some(claim) = self.take_out(slot) {
            self.put(Claim { phase: Phase::Held, stuck: false, ..claim });
        }
    }

    /// Whether the promise to `slot` can become a hold: everything it waited for is proven free.
    #[must_use]
    pub fn can_keep(&self, slot: SlotKey) -> bool {
        let Some(promise) = self.claim_of(slot).filter(|claim| claim.phase == Phase::Promised) else { return false };
        let is_other = |claim: &&Claim<Q>| claim.slot != slot && claim.phase != Phase::Promised;
        let mut others = self.claims.iter().filter(is_other);
        let shut = others.any(|other| promise.exclusive || other.exclusive);
        let now = self.sum([self.held, self.releasing, self.foreign, promise.amount]);
        now <= self.capacity.units() && !shut
    }

    /// The promise becomes a hold. Callers ask [`Ledger::can_keep`] on all devices of the slot first.
    pub(crate) fn keep(&mut self, slot: SlotKey) {
        if let Some(claim) = self.take_out(slot) {
            self.put(Claim { phase: Phase::Held, ..claim });
        }
    }

    /// The claim is gone, and its amount is free.
    pub(crate) fn free(&mut self, slot: SlotKey) -> Option<Claim<Q>> {
        self.take_out(slot)
    }

    pub(crate) fn set_capacity(&mut self, capacity: Q) {
        self.capacity = capacity;
    }

    pub(crate) fn set_foreign(&mut self, foreign: Q) {
        self.foreign = foreign;
    }

    /// Whether a line is false.
    #[must_use]
    pub fn is_overcommitted(&self) -> bool {
        let capacity = self.capacity.units();
        self.sum([self.held, self.releasing, self.foreign]) > capacity
            || self.sum([self.held, self.promised, self.foreign]) > capacity
    }

    /// What a hold could have now: what both lines leave.
    #[must_use]
    pub fn headroom(&self) -> Q {
        let releasing = if sabotage::is(Mutation::ReleasingIsFree) { Q::default() } else { self.releasing };
        let beside = releasing.max(self.promised);
        self.left_after([self.held, self.foreign, beside])
    }

    /// What a promise could have: what the future line leaves.
    #[must_use]
    pub fn future_headroom(&self) -> Q {
        self.left_after([self.held, self.foreign, self.promised, self.stuck])
    }

    fn future_headroom_without(&self, leaving: &[SlotKey]) -> Q {
        if leaving.is_empty() {
            return self.future_headroom();
        }
        let stays = |claim: &&Claim<Q>| claim.phase == Phase::Held && !leaving.contains(&claim.slot);
        let held = self.claims.iter().filter(stays).map(|claim| u128::from(claim.amount.units())).sum::<u128>();
        self.left_after([Q::of_units(u64::try_from(held).unwrap_or(u64::MAX)), self.foreign, self.promised, self.stuck])
    }

    /// Everything claimed or in use, as millionths of the capacity.
    #[must_use]
    pub fn claimed_share(&self) -> u32 {
        let claimed = self.sum([self.held, self.releasing, self.promised, self.foreign]);
        share(claimed, self.capacity.units())
    }

    /// `amount` as millionths of the capacity, rounded down.
    #[must_use]
    pub fn share_of(&self, amount: Q) -> u32 {
        share(amount.units(), self.capacity.units())
    }

    /// The claims, in the order they were made.
    #[must_use]
    pub fn claims(&self) -> &[Claim<Q>] {
        &self.claims
    }

    /// The claim of one slot.
    #[must_use]
    pub fn claim_of(&self, slot: SlotKey) -> Option<&Claim<Q>> {
        self.claims.iter().find(|claim| claim.slot == slot)
    }

    /// All there is.
    #[must_use]
    pub fn capacity(&self) -> Q {
        self.capacity
    }

    /// In use by others.
    #[must_use]
    pub fn foreign(&self) -> Q {
        self.foreign
    }

    /// The numbers, to show.
    #[must_use]
    pub fn balance(&self) -> Balance<Q> {
        Balance {
            capacity: self.capacity,
            held: self.held,
            releasing: self.releasing,
            promised: self.promised,
            foreign: self.foreign,
            free: if self.is_overcommitted() { Q::default() } else { self.headroom() },
        }
    }

    /// The numbers as they would be with one more claim, and with the slots in `leaving` being stopped.
    #[must_use]
    pub fn balance_with(&self, amount: Q, phase: Phase, leaving: &[SlotKey]) -> Balance<Q> {
        let goes = |claim: &&Claim<Q>| claim.phase == Phase::Held && leaving.contains(&claim.slot);
        let going = if leaving.is_empty() {
            0
        } else {
            self.claims.iter().filter(goes).fold(0u64, |sum, claim| sum.saturating_add(claim.amount.units()))
        };
        let more = |wanted| if phase == wanted { amount.units() } else { 0 };
        let after = Self {
            held: Q::of_units(self.held.units().saturating_sub(going).saturating_add(more(Phase::Held))),
            releasing: Q::of_units(self.releasing.units().saturating_add(going)),
            promised: Q::of_units(self.promised.units().saturating_add(more(Phase::Promised))),
            claims: SmallVec::new(),
            ..*self
        };
        after.balance()
    }

    /// Whether the kept sums equal the fold of the claims.
    #[must_use]
    pub fn equals_fold(&self) -> bool {
        let of = |phase| {
            let amounts =
                self.claims.iter().filter(|claim| claim.phase == phase).map(|claim| u128::from(claim.amount.units()));
            amounts.sum::<u128>()
        };
        of(Phase::Held) == u128::from(self.held.units())
            && of(Phase::Releasing) == u128::from(self.releasing.units())
            && of(Phase::Promised) == u128::from(self.promised.units())
            && self.exclusive as usize == self.claims.iter().filter(|claim| claim.exclusive).count()
            && self.stuck.units()
                == self.claims.iter().filter(|claim| claim.stuck).map(|claim| claim.amount.units()).sum::<u64>()
    }

    // Saturating is safe: a sum that does not fit is more than any capacity.
    fn sum<const N: usize>(&self, parts: [Q; N]) -> u64 {
        parts.iter().fold(0, |sum, part| sum.saturating_add(part.units()))
    }

    fn left_after<const N: usize>(&self, parts: [Q; N]) -> Q {
        Q::of_units(self.capacity.units().saturating_sub(self.sum(parts)))
    }

    fn total_of(&mut self, phase: Phase) -> &mut Q {
        match phase {
            Phase::Held => &mut self.held,
            Phase::Releasing => &mut self.releasing,
            Phase::Promised => &mut self.promised,
        }
    }

    // Amounts of hostile reports are bounded as they come in, so sums of claims stay far from 2^64.
    fn put(&mut self, claim: Claim<Q>) {
        let total = self.total_of(claim.phase);
        *total = Q::of_units(total.units().saturating_add(claim.amount.units()));
        if claim.stuck {
            self.stuck = Q::of_units(self.stuck.units().saturating_add(claim.amount.units()));
        }
        self.exclusive += u32::from(claim.exclusive);
        self.claims.push(claim);
    }

    fn take_out(&mut self, slot: SlotKey) -> Option<Claim<Q>> {
        let position = self.claims.iter().position(|claim| claim.slot == slot)?;
        let claim = self.claims.remove(position);
        let total = self.total_of(claim.phase);
        *total = Q::of_units(total.units().saturating_sub(claim.amount.units()));
        if claim.stuck {
            self.stuck = Q::of_units(self.stuck.units().saturating_sub(claim.amount.units()));
        }
        self.exclusive -= u32::from(claim.exclusive);
        Some(claim)
    }
}

fn share(part: u64, whole: u64) -> u32 {
    if whole == 0 {
        return Fraction::WHOLE;
    }
    // Up to 18 TB the product fits in 64 bits, where dividing is several times cheaper.
    match part.checked_mul(u64::from(Fraction::WHOLE)) {
        Some(product) => u32::try_from(product / whole).unwrap_or(u32::MAX),
        None => u32::try_from(u128::from(part) * u128::from(Fraction::WHOLE) / u128::from(whole)).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Key;
    use proptest::prelude::*;

    fn slot(n: usize) -> SlotKey {
        SlotKey::at(n)
    }

    fn gib(n: u64) -> Ask<Bytes> {
        Ask::Amount(Bytes::gib(n))
    }

    #[test]
    fn r1_releasing_memory_is_not_free() {
        let mut ledger = Ledger::new(Bytes::gib(80));
        ledger.claim(slot(1), gib(60), Phase::Held).unwrap();
        ledger.begin_release(slot(1));
        assert_eq!(ledger.headroom(), Bytes::gib(20));
        assert!(ledger.check(gib(40), Phase::Held).is_err());
        ledger.claim(slot(2), gib(40), Phase::Promised).unwrap();
        assert!(!ledger.can_keep(slot(2)), "the 60 are still there");
        ledger.free(slot(1));
        assert!(ledger.can_keep(slot(2)));
    }

    #[test]
    fn r3_a_promise_counts() {
        let mut ledger = Ledger::new(Bytes::gib(80));
        ledger.claim(slot(1), gib(60), Phase::Held).unwrap();
        ledger.begin_release(slot(1));
        ledger.claim(slot(2), gib(40), Phase::Promised).unwrap();
        let refused = Err(Shortfall::Short { needed: Bytes::gib(50), free: Bytes::gib(40) });
        assert_eq!(ledger.check(gib(50), Phase::Promised), refused);
    }

    #[test]
    fn p16_a_shrunk_capacity_offers_nothing_and_does_not_wrap() {
        let mut ledger = Ledger::new(Bytes::gib(90));
        ledger.claim(slot(1), gib(90), Phase::Held).unwrap();
        ledger.set_capacity(Bytes::gib(80));
        assert!(ledger.is_overcommitted());
        assert_eq!(ledger.balance().free, Bytes::ZERO);
        assert_eq!(ledger.check(gib(1), Phase::Held), Err(Shortfall::Overcommitted));
    }

    #[test]
    fn g6_g13_whole_means_alone_but_for_a_tolerated_desktop() {
        let whole = Ask::Whole { tolerance: Bytes::gib(1), least: Bytes::ZERO };
        let mut ledger = Ledger::new(Bytes::gib(80));
        ledger.set_foreign(Bytes::mib(300));
        assert_eq!(ledger.claim(slot(1), whole, Phase::Held), Ok(Bytes::gib(80).saturating_sub(Bytes::mib(300))));
        ledger.set_foreign(Bytes::ZERO);
        assert_eq!(ledger.check(Ask::Amount(Bytes::mib(1)), Phase::Held), Err(Shortfall::Exclusive));
        let mut shared = Ledger::new(Bytes::gib(80));
        shared.claim(slot(1), gib(1), Phase::Held).unwrap();
        assert_eq!(shared.check(whole, Phase::Held), Err(Shortfall::NotWhole));
    }

    #[derive(Debug, Clone)]
    enum Act {
        Claim(usize, u64, bool, bool),
        Release(usize),
        Keep(usize),
        Free(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0usize..8, 0u64..60, any::<bool>(), any::<bool>()).prop_map(|(s, n, p, w)| Act::Claim(s, n, p, w)),
            2 => (0usize..8).prop_map(Act::Release),
            2 => (0usize..8).prop_map(Act::Keep),
            2 => (0usize..8).prop_map(Act::Free),
        ]
    }

    proptest! {
        #[test]
        fn no_sequence_crosses_a_line(acts in prop::collection::vec(act(), 0..60), foreign in 0u64..20) {
            let mut ledger = Ledger::new(Bytes::new(100));
            ledger.set_foreign(Bytes::new(foreign));
            for act in acts {
                match act {
                    Act::Claim(s, n, promised, whole) if ledger.claim_of(slot(s)).is_none() => {
                        let phase = if promised { Phase::Promised } else { Phase::Held };
                        let ask = if whole { Ask::Whole { tolerance: Bytes::new(10), least: Bytes::ZERO } } else { Ask::Amount(Bytes::new(n)) };
                        let before = ledger.clone();
                        match (ledger.check(ask, phase), ledger.claim(slot(s), ask, phase)) {
                            (Ok(checked), Ok(taken)) => prop_assert_eq!(checked, taken),
                            (Err(_), Err(_)) => prop_assert_eq!(&before, &ledger, "a refusal changes nothing"),
                            other => prop_assert!(false, "check and claim disagree: {:?}", other),
                        }
                    }
                    Act::Release(s) if ledger.claim_of(slot(s)).is_some_and(|c| c.phase == Phase::Held) => ledger.begin_release(slot(s)),
                    Act::Keep(s) if ledger.can_keep(slot(s)) => ledger.keep(slot(s)),
                    Act::Free(s) => { ledger.free(slot(s)); }
                    _ => {}
                }
                prop_assert!(!ledger.is_overcommitted());
                prop_assert!(ledger.equals_fold());
                let alone = ledger.claims().iter().filter(|c| c.phase == Phase::Held).count();
                let shut = ledger.claims().iter().any(|c| c.exclusive && c.phase == Phase::Held);
                prop_assert!(!shut || alone == 1, "an exclusive hold has company");
            }
        }
    }
}
