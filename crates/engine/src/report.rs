//! Formats a run's result and its rows of `ps` and `cost`, as text and as JSON, from its folded
//! state alone; and a record as JSON.

pub mod bill;
mod costs;
pub mod document;
pub mod evidence;
pub mod fold;
mod folded_rows;
pub mod for_others;
pub mod forecast;
mod inclusive;
pub mod next_request;
mod removed;
mod rows;
mod summary;
pub mod why;

use serde_json::Value;

pub use self::costs::{
    CostRow, RunCost, cost_by_agent, cost_by_model, cost_by_task, cost_of_runs_by_model, unsettled,
};
pub use self::folded_rows::folded_rows;
pub use self::inclusive::Inclusive;
pub use self::removed::{RemovedRun, removed_runs};
pub use self::rows::{Row, rows, unread_row};
pub use self::summary::{summary, untold, untold_in_short};
use crate::event::{PauseCause, Record, RunStatus};
use crate::id::{AgentId, Name};
use crate::journal::stamp;
use crate::run_state::{RunPhase, RunState};
pub use crate::show::{agents_in_order, short, undone};

/// Returns a record as `run --json` and `tail --json` print it: without its checksum and batch
/// fields.
#[must_use]
pub fn event_json(record: &Record) -> String {
    let data = record.event.data();
    let text = |value: Option<&str>| value.map_or(Value::Null, Value::from).to_string();
    format!(
        "{{\"v\":1,\"seq\":{},\"ep\":{},\"ts\":\"{}\",\"task\":{},\"agent\":{},\"type\":\"{}\",\"data\":{}}}",
        record.seq,
        record.epoch,
        stamp::text(record.ts_ms),
        text(record.task.as_ref().map(Name::as_str)),
        text(record.agent.as_ref().map(AgentId::as_str)),
        record.event.kind(),
        data.as_str(),
    )
}

/// Returns the state of a run in one word. `live` tells if a process holds it.
#[must_use]
pub fn run_word(state: &RunState, live: bool) -> &'static str {
    match (state.phase(), live) {
        (RunPhase::Completed(status), _) => status_word(status),
        (RunPhase::Paused, _) if state.paused_cause() == Some(PauseCause::Person) => "waiting",
        (RunPhase::Paused, _) => "paused",
        (RunPhase::Open, true) => "running",
        (RunPhase::Open, false) => "stopped",
    }
}

/// Returns true if a run was stopped before its end: no process drives it, and it can be resumed.
#[must_use]
pub fn is_resumable(state: &RunState, live: bool) -> bool {
    !live && state.completed().is_none()
}

/// Returns a run's status as it is written in output.
#[must_use]
pub fn status_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Completed => "completed",
        RunStatus::Partial => "partial",
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_short() {
        let shown = [0, 999, 1_000, 399_466, 4_100_000].map(short);
        assert_eq!(shown, ["0", "999", "1.0k", "399.5k", "4.1M"]);
    }
}
