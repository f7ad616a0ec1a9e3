//! The environment of a slot: the variables that the operator lists, and those that Berth sets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use berth_domain::{RunnerId, RuntimeName, WorkloadKind};

use super::config::{ConfigError, Runtime};
use super::render::StartRequest;

/// Holds the slot's id in the environment of its processes. The agent finds processes by it that left their parent,
/// group and session.
pub(crate) const SLOT_ID: &str = "BERTH_SLOT_ID";
/// Holds the slot's generation.
pub(crate) const SLOT_GENERATION: &str = "BERTH_SLOT_GENERATION";
/// Holds the runner's id, since two agents may share a machine.
pub(crate) const SLOT_RUNNER: &str = "BERTH_RUNNER_ID";
/// Holds the slot's kind: `job` or `lease`. An agent that lost its record needs it to know what the end of the process
/// means.
pub(crate) const SLOT_KIND: &str = "BERTH_SLOT_KIND";

/// Holds a random text that only this start of the slot was given. It tells the slot's processes from others that
/// copied its mark.
pub(crate) const SLOT_SECRET: &str = "BERTH_SLOT_SECRET";

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const ORDER: &str = "CUDA_DEVICE_ORDER";

/// Variables that Berth sets for each slot, and that no configuration may set.
const OURS: [&str; 7] = [SLOT_ID, SLOT_GENERATION, SLOT_RUNNER, SLOT_KIND, SLOT_SECRET, VISIBLE, ORDER];

/// The prefix of the agent's own variables, such as `BERTH_TOKEN`: none of them is passed on.
const OF_THE_AGENT: &str = "BERTH_";

pub(super) fn check_name(runtime: &RuntimeName, name: &str) -> Result<(), ConfigError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(ConfigError::VariableName { runtime: runtime.clone(), name: name.to_owned() });
    }
    if OURS.contains(&name) {
        return Err(ConfigError::ReservedVariable { runtime: runtime.clone(), name: name.to_owned() });
    }
    Ok(())
}

/// Checks that a variable which is passed on is not one of the agent's own.
pub(super) fn check_passed(runtime: &RuntimeName, name: &str) -> Result<(), ConfigError> {
    check_name(runtime, name)?;
    if name.starts_with(OF_THE_AGENT) {
        return Err(ConfigError::AgentVariable { runtime: runtime.clone(), name: name.to_owned() });
    }
    Ok(())
}

/// Returns the variables that are passed on. For another user, the home directory and the name are that user's.
pub(super) fn passed(runtime: &Runtime, own: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
    let listed = runtime.env_pass.iter().map(OsStr::new);
    let found = listed.filter_map(|name| own.get_key_value(name));
    let mut passed: BTreeMap<OsString, OsString> = found.map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some(user) = &runtime.user {
        passed.insert("HOME".into(), user.home.clone().into());
        for name in ["USER", "LOGNAME"] {
            match &user.name {
                Some(value) => passed.insert(name.into(), value.into()),
                None => passed.remove(OsStr::new(name)),
            };
        }
    }
    passed
}

/// Returns the variables that Berth sets. Without a device the list of devices is empty, and an engine sees no GPU at
/// all.
pub(super) fn ours(
    request: &StartRequest<'_>,
    kind: WorkloadKind,
    runner: &RunnerId,
) -> impl Iterator<Item = (OsString, OsString)> {
    let devices: Vec<&str> = request.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    let always: [(OsString, OsString); 6] = [
        (SLOT_ID.into(), request.slot.to_string().into()),
        (SLOT_GENERATION.into(), request.generation.to_string().into()),
        (SLOT_RUNNER.into(), runner.as_str().into()),
        (SLOT_KIND.into(), word(kind).into()),
        (VISIBLE.into(), devices.join(",").into()),
        (ORDER.into(), "PCI_BUS_ID".into()),
    ];
    let secret = request.secret.map(|secret| (SLOT_SECRET.into(), secret.as_str().into()));
    always.into_iter().chain(secret)
}

/// Returns the text for a kind in the environment of a slot.
fn word(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::Lease => "lease",
        WorkloadKind::Job => "job",
    }
}

/// Returns the kind that a text in the environment of a slot stands for.
pub(crate) fn kind_named(text: &str) -> Option<WorkloadKind> {
    [WorkloadKind::Lease, WorkloadKind::Job].into_iter().find(|kind| word(*kind) == text)
}

pub(super) fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
