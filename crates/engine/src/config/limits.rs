//! Turns `[limits]` into the limits of a run.

use super::Setting;
use crate::spec::{Limits, OnFailure};

/// Returns the limits of the run.
pub(super) fn limits(setting: Setting<'_>) -> Limits {
    let raw = &setting.raw.limits;
    let stops = |on_failure: &OnFailure| *on_failure == OnFailure::Fail;
    let mut tasks = setting.raw.tasks.values();
    if let Some(at) = raw.cancel_running.at()
        && *raw.cancel_running
        && !*raw.fail_fast
        && !tasks.any(|(_, task)| task.on_failure.as_ref().is_some_and(stops))
    {
        let message = "`cancel_running` has no effect, because no failure stops the run";
        let help = "set `fail_fast = true`, or `on_failure = \"fail\"` of a task";
        setting.problems.warning("unused_key", &at.key, message, help);
    }
    Limits {
        max_concurrency: *raw.max_concurrency,
        max_depth: *raw.max_depth,
        max_children: *raw.max_children,
        max_descendants: *raw.max_descendants,
        max_spawn_rate: *raw.max_spawn_rate,
        max_instances: *raw.max_instances,
        timeout: *raw.timeout,
        fail_fast: *raw.fail_fast,
        cancel_running: *raw.cancel_running,
        strict: *raw.strict,
        one_at_a_time: *raw.one_at_a_time,
        grace_period: *raw.grace_period,
        orphan_grace: *raw.orphan_grace,
    }
}
