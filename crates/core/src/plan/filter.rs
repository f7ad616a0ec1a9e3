//! Which runners match a model at all.

use berth_domain::Constraints;

use crate::index::ClassTraits;
use crate::reason::Exclusion;

/// The first constraint that excludes a class of runners, in the order in which people think of them.
pub(crate) fn excluded_by(constraints: &Constraints, class: &ClassTraits) -> Option<Exclusion> {
    let has_label = |(key, value)| class.labels.get(key) == Some(value);
    if class.pool != constraints.pool {
        return Some(Exclusion::Pool);
    }
    if !constraints.labels.iter().all(has_label) {
        return Some(Exclusion::Labels);
    }
    if !class.runtimes.contains(&constraints.runtime) {
        return Some(Exclusion::Runtime);
    }
    let names = &constraints.gpu_names;
    if !names.is_empty() && class.gpu_names.is_disjoint(names) {
        return Some(Exclusion::GpuName);
    }
    None
}
