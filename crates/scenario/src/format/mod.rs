//! What a file may say. Every table refuses keys, and every closed list refuses words, that it does not know.

mod duration;
pub(crate) mod expect;
mod model;
mod runner;
mod shorthand;
mod step;
pub(crate) mod values;
pub(crate) mod wanted;

use berth_core::Settings;
use berth_domain::Bytes;
use serde::Deserialize;
use toml::Spanned;

pub(crate) use duration::SpanText;
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
    pub(crate) runners: Vec<Spanned<RunnerText>>,
    #[serde(default, rename = "model")]
    pub(crate) models: Vec<Spanned<ModelText>>,
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
                Settings { $($field: self.$field.map_or(usual.$field, Into::into),)+ }
            }
        }
    };
}

settings! {
    device_reserve: Bytes,
    exclusive_tolerance: Bytes,
    foreign_step: Bytes,
    keep_alive: SpanText,
    min_run: SpanText,
    lease_ttl: SpanText,
    suspect_after: SpanText,
    lost_after: SpanText,
    age_limit: SpanText,
    backfill_after: SpanText,
    queue_limit: usize,
    start_deadline: SpanText,
    stall_after: SpanText,
    attempts: u32,
    forgive_after: SpanText,
    backoff: SpanText,
    backoff_limit: SpanText,
    pause_after: SpanText,
    keep_ended_for: SpanText,
    keep_ended: usize,
    self_suspicion_from: usize,
    devices_per_runner: usize,
    unknown_slots_per_runner: usize,
    oom_step: u32,
    oom_limit: u32,
    judge_after: SpanText,
    explained_devices: usize,
}
