//! What a file may say. Every table refuses keys that it does not know.

pub(crate) mod expect;
mod model;
mod runner;
mod shorthand;
mod step;

use berth_core::Settings;
use berth_domain::{Bytes, Span};
use serde::Deserialize;
use toml::Spanned;

pub(crate) use model::ModelText;
pub(crate) use runner::{GpuText, Mode, RunnerText, RuntimesText};
pub(crate) use step::{
    Exit, Fail, Gone, GpuChange, Register, Report, SlotChange, SlotWord, StepText, StrayText, Submit, Verb,
};

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) id: String,
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) settings: SettingsText,
    #[serde(default, rename = "runner")]
    pub(crate) runners: Vec<RunnerText>,
    #[serde(default, rename = "model")]
    pub(crate) models: Vec<ModelText>,
    #[serde(default, rename = "step")]
    pub(crate) steps: Vec<Spanned<StepText>>,
}

macro_rules! settings {
    ($($field:ident: $kind:ty),+ $(,)?) => {
        /// The core's settings; what is not named keeps its default.
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct SettingsText {
            $($field: Option<$kind>,)+
        }

        impl SettingsText {
            pub(crate) fn settings(self) -> Settings {
                let usual = Settings::default();
                Settings { $($field: self.$field.unwrap_or(usual.$field),)+ }
            }
        }
    };
}

settings! {
    device_reserve: Bytes,
    exclusive_tolerance: Bytes,
    foreign_step: Bytes,
    keep_alive: Span,
    min_run: Span,
    lease_ttl: Span,
    suspect_after: Span,
    lost_after: Span,
    age_limit: Span,
    backfill_after: Span,
    queue_limit: usize,
    start_deadline: Span,
    stall_after: Span,
    attempts: u32,
    forgive_after: Span,
    backoff: Span,
    backoff_limit: Span,
    pause_after: Span,
    keep_ended_for: Span,
    keep_ended: usize,
    self_suspicion_from: usize,
    oom_step: u32,
    oom_limit: u32,
    judge_after: Span,
    explained_devices: usize,
}
