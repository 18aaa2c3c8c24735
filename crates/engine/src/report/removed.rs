//! What is kept of a run that was removed: a line of `pruned.jsonl` with its name, its times, how it ended and what it
//! cost.
//!
//! Owns the form of the line. Money in it is in picodollars, as in the sums of a run, so that totals stay exact.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::costs::RunCost;
use crate::event::RunStatus;
use crate::id::{Name, RunId};
use crate::journal::stamp;
use crate::run_state::{RunPhase, RunState};
use crate::spending::Spending;

/// The version of the line.
const VERSION: u32 = 1;

/// A run that was removed, or is about to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemovedRun {
    v: u32,
    /// The run.
    pub run: RunId,
    /// The name of its workflow.
    pub name: String,
    /// The path of its configuration file.
    pub file: PathBuf,
    /// When it was created.
    pub started: String,
    /// When its last record was written.
    pub ended: String,
    /// How it ended.
    pub state: RunStatus,
    /// What it spent itself: a fork without what it shares with its parent.
    spent: Spending,
    by_model: BTreeMap<Name, Spending>,
}

impl RemovedRun {
    /// Describes a run by its folded state and its cost; `None` if it has not ended.
    #[must_use]
    pub fn of(state: &RunState, cost: &RunCost, started_ms: i64) -> Option<Self> {
        let RunPhase::Completed(status) = state.phase() else { return None };
        let created = state.created()?;
        Some(Self {
            v: VERSION,
            run: created.run,
            name: created.workflow.clone(),
            file: created.file.clone(),
            started: stamp::text(started_ms),
            ended: stamp::text(state.last_ms()),
            state: status,
            spent: cost.own,
            by_model: cost.by_model.clone(),
        })
    }

    /// Returns the line.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("plain data with string keys always encodes")
    }

    /// Returns what it cost.
    #[must_use]
    pub fn cost(&self) -> RunCost {
        RunCost { own: self.spent, by_model: self.by_model.clone() }
    }

    /// Returns the time at which it was created, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn started_ms(&self) -> i64 {
        stamp::parse(&self.started).unwrap_or(i64::MIN)
    }

    /// Returns the run as `prune --json` prints it.
    #[must_use]
    pub fn json(&self, is_removed: bool) -> Value {
        json!({
            "run": self.run,
            "name": self.name,
            "file": self.file,
            "started": self.started,
            "ended": self.ended,
            "state": self.state,
            "cost_usd": self.spent.cost_usd(),
            "unsettled_usd": self.spent.unsettled.most_usd(),
            "usage": self.spent.usage,
            "removed": is_removed,
        })
    }
}

/// Reads the lines about removed runs, the oldest first. Of several about one run the last one counts: the others
/// are of removals that were cut short, after which the run may have gone on. What is no such line is left out.
#[must_use]
pub fn removed_runs(lines: &[String]) -> Vec<RemovedRun> {
    let mut last: HashMap<(RunId, String), usize> = HashMap::new();
    let mut runs: Vec<Option<RemovedRun>> = Vec::new();
    for run in lines.iter().filter_map(|line| serde_json::from_str::<RemovedRun>(line).ok()) {
        if let Some(before) = last.insert((run.run, run.started.clone()), runs.len()) {
            runs[before] = None;
        }
        runs.push(Some(run));
    }
    runs.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spending::Usd;

    fn run(started: &str, dollars: f64) -> RemovedRun {
        let spent = Spending { cost: Some(Usd::from_dollars(dollars)), ..Spending::default() };
        let model = Name::new("m").unwrap();
        RemovedRun {
            v: VERSION,
            run: RunId::parse("01a20364-6522-7695-a2bf-6563ec9bbe45").unwrap(),
            name: "desk".to_owned(),
            file: "/w/agents.toml".into(),
            started: started.to_owned(),
            ended: "2026-11-22T13:06:49.199Z".to_owned(),
            state: RunStatus::Partial,
            spent,
            by_model: [(model, spent)].into(),
        }
    }

    #[test]
    fn of_several_lines_about_a_run_the_last_one_counts() {
        let (first, again) = ("2026-11-22T13:06:00.000Z", "2026-11-23T13:06:00.000Z");
        let lines = [run(first, 0.1), run(again, 0.7), run(first, 0.3)].map(|run| run.line());
        let torn = lines[0][..lines[0].len() / 2].to_owned();
        let lines: Vec<_> = [torn, String::new()].into_iter().chain(lines).collect();
        // Another run with the same id, as `run --run-id` makes one, is a run of its own.
        assert_eq!(removed_runs(&lines), [run(again, 0.7), run(first, 0.3)]);
    }

    #[test]
    fn a_line_keeps_every_picodollar() {
        let kept = run("2026-11-22T13:06:00.000Z", 0.100_000_000_001);
        let line = kept.line();
        assert!(line.contains("\"cost\":100000000001"), "{line}");
        let read = removed_runs(&[line]);
        assert_eq!(read, [kept]);
        assert_eq!(read[0].cost().own.cost, Some(Usd::from_dollars(0.100_000_000_001)));
        assert_eq!(stamp::text(read[0].started_ms()), "2026-11-22T13:06:00.000Z");
    }
}
