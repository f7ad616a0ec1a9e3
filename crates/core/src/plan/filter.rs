//! Which runners match a model at all.

use berth_domain::{Constraints, LabelKey, LabelValue, WorkloadKind};

use crate::index::ClassTraits;
use crate::reason::Exclusion;

/// The first constraint that excludes a class of runners, in the order in which people think of them.
pub(crate) fn excluded_by(constraints: &Constraints, kind: WorkloadKind, class: &ClassTraits) -> Option<Exclusion> {
    if !has_pool(constraints, class) {
        return Some(Exclusion::Pool);
    }
    if !constraints.labels.iter().all(|(key, value)| has_label(key, value, class)) {
        return Some(Exclusion::Labels);
    }
    if !has_runtime(constraints, class) {
        return Some(Exclusion::Runtime);
    }
    if !has_runtime_for(constraints, kind, class) {
        return Some(Exclusion::RuntimeKind);
    }
    (!has_gpu_name(constraints, class)).then_some(Exclusion::GpuName)
}

/// Whether a class of runners matches in everything but the runtime.
pub(super) fn lacks_only_runtime(constraints: &Constraints, kind: WorkloadKind, class: &ClassTraits) -> bool {
    excluded_by(constraints, kind, class) == Some(Exclusion::Runtime) && has_gpu_name(constraints, class)
}

pub(super) fn has_pool(constraints: &Constraints, class: &ClassTraits) -> bool {
    class.pool == constraints.pool
}

pub(super) fn has_label(key: &LabelKey, value: &LabelValue, class: &ClassTraits) -> bool {
    class.labels.get(key) == Some(value)
}

pub(super) fn has_runtime(constraints: &Constraints, class: &ClassTraits) -> bool {
    class.runtimes.contains_key(&constraints.runtime)
}

pub(super) fn has_runtime_for(constraints: &Constraints, kind: WorkloadKind, class: &ClassTraits) -> bool {
    class.runtimes.get(&constraints.runtime).is_some_and(|offered| offered.takes(kind))
}

pub(super) fn has_gpu_name(constraints: &Constraints, class: &ClassTraits) -> bool {
    constraints.gpu_names.is_empty() || !class.gpu_names.is_disjoint(&constraints.gpu_names)
}
