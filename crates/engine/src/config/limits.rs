//! Turns `[limits]` into the limits of a run.

use super::raw;
use crate::spec::Limits;

/// Returns the limits of the run.
pub(super) fn limits(raw: &raw::Limits) -> Limits {
    Limits {
        max_concurrency: *raw.max_concurrency,
        max_depth: *raw.max_depth,
        max_children: *raw.max_children,
        max_descendants: *raw.max_descendants,
        max_instances: *raw.max_instances,
        timeout: *raw.timeout,
        fail_fast: *raw.fail_fast,
        cancel_running: *raw.cancel_running,
        strict: *raw.strict,
        grace_period: *raw.grace_period,
        orphan_grace: *raw.orphan_grace,
    }
}
