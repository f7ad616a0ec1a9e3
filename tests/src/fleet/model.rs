//! A model in the catalogue, as a test says it.

use serde_json::{Value, json};

use crate::service::{Api, GIB};

/// What a slot of it needs, and how its engine behaves.
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    about: Value,
}

impl Model {
    /// An engine that behaves, on one GPU, with so many GiB.
    #[must_use]
    pub fn new(name: &str, gib: u64) -> Self {
        let about = json!({ "runtime": "engine", "memory": gib * GIB, "gpu_counts": [1] });
        Self { name: name.to_owned(), about }
    }

    /// With these arguments to its engine.
    #[must_use]
    pub fn args(self, args: &[&str]) -> Self {
        self.with("args", json!(args))
    }

    /// With a field of its own.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.about[field] = value;
        self
    }

    /// Without this field.
    #[must_use]
    pub fn without(mut self, field: &str) -> Self {
        if let Some(about) = self.about.as_object_mut() {
            about.remove(field);
        }
        self
    }

    pub(super) fn put(&self, api: &Api) {
        api.model(&self.name, self.about.clone());
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}
