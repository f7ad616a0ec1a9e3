//! The limits that are in force.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::config::LimitsConfig;

/// The limits that are in force, shared by everything that keeps to them.
///
/// A reload replaces them as a whole. Whoever works with them takes them once for each request or connection.
#[derive(Clone, Debug)]
pub struct Limits(Arc<RwLock<Arc<LimitsConfig>>>);

impl Limits {
    /// Begins with these.
    #[must_use]
    pub fn new(limits: LimitsConfig) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(limits))))
    }

    /// Returns those that are in force now.
    #[must_use]
    pub fn current(&self) -> Arc<LimitsConfig> {
        self.0.read().clone()
    }

    /// Puts others in force.
    pub fn replace(&self, limits: LimitsConfig) {
        *self.0.write() = Arc::new(limits);
    }
}
