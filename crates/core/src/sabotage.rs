//! Deliberate breaks, for tests of the tests.
//!
//! With the feature `sabotage` (tests only) a thread may break one rule of the core and see whether the suite
//! notices. Without the feature every question here is a constant `false`.

/// A rule that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Memory of a slot that is being stopped counts as free.
    ReleasingIsFree,
    /// A multi-GPU fit is checked against the runner's total.
    CheckTotal,
    /// The loop over runners goes on after it has created a slot.
    LostBreak,
    /// Each time-sliced replica counts as a device's worth of memory.
    CountReplicas,
}

#[cfg(feature = "sabotage")]
mod active {
    use super::Mutation;
    use std::cell::Cell;

    thread_local! {
        static BROKEN: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Runs `test` with one rule broken on this thread.
    pub fn with<T>(mutation: Mutation, test: impl FnOnce() -> T) -> T {
        struct Mend;
        impl Drop for Mend {
            fn drop(&mut self) {
                BROKEN.set(None);
            }
        }
        BROKEN.set(Some(mutation));
        let _mend = Mend;
        test()
    }

    pub(crate) fn is(mutation: Mutation) -> bool {
        BROKEN.get() == Some(mutation)
    }

    pub(crate) fn any() -> bool {
        BROKEN.get().is_some()
    }
}

#[cfg(feature = "sabotage")]
pub use active::with;
#[cfg(feature = "sabotage")]
pub(crate) use active::{any, is};

#[cfg(not(feature = "sabotage"))]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}

#[cfg(not(feature = "sabotage"))]
pub(crate) const fn any() -> bool {
    false
}
