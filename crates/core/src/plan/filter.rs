//! Which runners match a model at all.

use berth_domain::{Constraints, WorkloadKind};

use crate::index::ClassTraits;
use crate::reason::Exclusion;

/// The first constraint that excludes a class of runners, in the order in which people think of them.
pub(crate) fn excluded_by(constraints: &Constraints, kind: WorkloadKind, class: &ClassTraits) -> Option<Exclusion> {
    let has_label = |(key, value)| class.labels.get(key) == Some(value);
    if class.pool != constraints.pool {
        return Some(Exclusion::Pool);
    }
    if !constraints.labels.iter().all(has_label) {
        return Some(Exclusion::Labels);
    }
    match class.runtimes.get(&constraints.runtime) {
        None => return Some(Exclusion::Runtime),
        Some(offered) if !offered.takes(kind) => return Some(Exclusion::RuntimeKind),
        Some(_) => {}
    }
    (!has_gpu_name(constraints, class)).then_some(Exclusion::GpuName)
}

/// Whether a class of runners matches in everything but the runtime.
pub(super) fn lacks_only_runtime(constraints: &Constraints, kind: WorkloadKind, class: &ClassTraits) -> bool {
    excluded_by(constraints, kind, class) == Some(Exclusion::Runtime) && has_gpu_name(constraints, class)
}

fn has_gpu_name(constraints: &Constraints, class: &ClassTraits) -> bool {
    constraints.gpu_names.is_empty() || !class.gpu_names.is_disjoint(&constraints.gpu_names)
}
