//! The rows of `ps`: runs, tasks and agents.

use std::time::Duration;

use serde_json::{Value, json};

use super::inclusive::{Inclusive, of_fan_outs};
use super::{agents_in_order, run_word, untold_in_short};
use crate::id::{AgentId, Name};
use crate::plan::{Standing, TaskState};
use crate::printable;
use crate::run_state::{AgentStatus, AgentUse, RunPhase, RunState, TaskStatus};
use crate::show::names::Names;
use crate::show::why::column;
use crate::spec::sandbox::SandboxProof;
use crate::spending::Spending;
use crate::turn::Shortfalls;
use crate::why::{Subject, Why};

/// One row of `ps`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `run`, `task` or `agent`.
    pub kind: &'static str,
    /// The run's id.
    pub run: String,
    /// The name of the workflow, the task or the agent.
    pub name: String,
    /// The key of an instance of a fan-out.
    pub key: Option<String>,
    /// The name as people read it, safe to show in one line: an instance of a fan-out by its key.
    pub shown: String,
    /// The parent of the row: for an agent its parent agent or its task; `None` for a run or a
    /// task.
    pub parent: Option<String>,
    /// Its state in one word.
    pub state: String,
    /// The current turn of an agent.
    pub turn: Option<u32>,
    /// The spending: for a run and a task with all their agents, for an agent only its own.
    pub spending: Spending,
    /// What a task that fans out used with its instances.
    pub inclusive: Option<Inclusive>,
    /// Seconds since the last activity; absent if nothing is active.
    pub age_s: Option<f64>,
    /// The thing that it waits for.
    pub waiting_for: Option<String>,
    /// The work that its agents left undone.
    pub shortfalls: Shortfalls,
    /// Time at which it began, in milliseconds since the Unix epoch; for a run or a task.
    pub started_ms: Option<i64>,
    /// The time that it has taken; for a run or a task.
    pub took: Option<Duration>,
    /// Number of tasks of a run that have an output or were skipped by their own `when`, and of
    /// all its tasks.
    pub tasks: Option<(usize, usize)>,
    /// Why the commands of a run have no sandbox; absent if they have one.
    pub unprotected: Option<String>,
    /// The notices of a run that were not delivered, in words; absent if all were.
    pub untold: Option<String>,
    /// Depth of the row in the tree, from 0 for the run.
    pub depth: usize,
}

impl Row {
    /// Returns the row as `ps --json` prints it. Only an instance of a fan-out has a `key`, and only a
    /// task that fans out what it used with its instances, `inclusive`.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut value = json!({
            "kind": self.kind,
            "run": self.run,
            "name": self.name,
            "parent": self.parent,
            "state": self.state,
            "turn": self.turn,
            "usage": self.spending.usage,
            "cost_usd": self.spending.cost_usd(),
            "unsettled_usd": self.spending.unsettled.most_usd(),
            "age_s": self.age_s,
            "waiting_for": self.waiting_for,
            "shortfalls": self.shortfalls,
            "unprotected": self.unprotected,
            "untold": self.untold,
        });
        if let Some(key) = &self.key {
            value["key"] = json!(key);
        }
        if let Some(inclusive) = &self.inclusive {
            value["inclusive"] = inclusive.json();
        }
        value
    }
}

/// Returns the open time of a live run since its last record, which the records do not have yet.
fn since_last(state: &RunState, live: bool, now_ms: i64) -> Duration {
    let is_open = live && state.phase() == RunPhase::Open;
    let passed = u64::try_from(now_ms.saturating_sub(state.last_ms())).unwrap_or(0);
    if is_open { Duration::from_millis(passed) } else { Duration::ZERO }
}

/// Returns the rows of one run: the run, its tasks, and under each task its agents as a tree.
#[must_use]
pub fn rows(state: &RunState, live: bool, now_ms: i64) -> Vec<Row> {
    let run = state.created().map(|created| created.run.to_string()).unwrap_or_default();
    let workflow = state.created().map(|created| created.workflow.clone()).unwrap_or_default();
    let (names, fan_outs) = (Names::of(state), of_fan_outs(state));
    let why = Why::of(state, live, now_ms);
    let waits = |subject: &Subject| column(&why, subject, &names, now_ms);
    let is_done = |task: &TaskStatus| task.standing() == Standing::Done;
    let done = state.tasks().filter(|(_, task)| is_done(task)).count();
    let mut rows = vec![Row {
        kind: "run",
        run: run.clone(),
        shown: printable::line(&workflow).into_owned(),
        name: workflow,
        key: None,
        parent: None,
        state: run_word(state, live).to_owned(),
        turn: None,
        spending: state.spending(),
        inclusive: None,
        age_s: live.then(|| age(now_ms, state.last_ms())),
        waiting_for: waits(&Subject::Run).filter(|_| live),
        shortfalls: state.shortfalls(),
        started_ms: state.tasks().filter_map(|(_, task)| task.started_ms).min(),
        took: Some(state.spent() + since_last(state, live, now_ms)),
        tasks: Some((done, state.tasks().count())),
        unprotected: state.sandbox().and_then(SandboxProof::warning),
        untold: untold_in_short(state),
        depth: 0,
    }];
    let mut agents = agents_in_order(state);
    // Agents of a task that the changed configuration no longer has belong to no row.
    agents.retain(|(_, agent)| state.task(&agent.task).is_some());
    let mut left = agents.as_slice();
    for (name, task) in state.tasks() {
        let (own, rest) =
            left.split_at(left.iter().take_while(|(_, agent)| agent.task == *name).count());
        left = rest;
        let waiting = waits(&Subject::Task(name.clone()));
        let row = task_row((state, &names), &run, (name, task), own, waiting, live, now_ms);
        rows.push(Row { inclusive: fan_outs.get(name.as_str()).copied(), ..row });
        let row = |(id, agent): &(&AgentId, &AgentStatus)| {
            let waiting = waits(&Subject::Agent((*id).clone()));
            agent_row((state, &names), &run, (id, agent), waiting, live, now_ms)
        };
        rows.extend(own.iter().map(row));
    }
    rows
}

/// Returns the row of a run whose journal cannot be read to its end, from the part that was read.
#[must_use]
pub fn unread_row(run: String, state: &RunState, word: &str, why: String) -> Row {
    let name = state.created().map(|created| created.workflow.clone()).unwrap_or_default();
    Row {
        kind: "run",
        run,
        shown: printable::line(&name).into_owned(),
        name,
        key: None,
        parent: None,
        state: word.to_owned(),
        turn: None,
        spending: state.spending(),
        inclusive: None,
        age_s: None,
        waiting_for: Some(why),
        shortfalls: Shortfalls::default(),
        started_ms: None,
        took: None,
        tasks: None,
        unprotected: None,
        untold: None,
        depth: 0,
    }
}

/// Returns the seconds since `then_ms`.
fn age(now_ms: i64, then_ms: i64) -> f64 {
    (now_ms - then_ms).max(0) as f64 / 1e3
}

fn task_row(
    (state, names): (&RunState, &Names),
    run: &str,
    (name, task): (&Name, &TaskStatus),
    agents: &[(&AgentId, &AgentStatus)],
    waiting_for: Option<String>,
    live: bool,
    now_ms: i64,
) -> Row {
    let last = agents.iter().map(|(_, agent)| agent.last_ms).max().or(task.started_ms);
    let is_latest = |id: &AgentId| task.agent.as_ref().is_some_and(|main| id.is_within(main));
    let latest = agents.iter().filter(|(id, _)| is_latest(id)).map(|(_, agent)| *agent);
    let mut shortfalls = RunState::shortfalls_of(latest);
    shortfalls.add(&state.undone_items(task));
    Row {
        kind: "task",
        run: run.to_owned(),
        name: name.to_string(),
        key: names.key(name.as_str()).map(str::to_owned),
        shown: names.shown(name.as_str()).into_owned(),
        parent: None,
        state: task.state.as_str().to_owned(),
        turn: None,
        spending: agents.iter().map(|(_, agent)| agent.own).sum(),
        inclusive: None,
        age_s: last.filter(|_| live && !task.state.is_end()).map(|last| age(now_ms, last)),
        waiting_for,
        shortfalls,
        started_ms: task.started_ms,
        took: task.started_ms.map(|_| {
            let runs_on = live && task.state == TaskState::Running;
            task.whole.taken(state.reading()) + since_last(state, runs_on, now_ms)
        }),
        tasks: None,
        unprotected: None,
        untold: None,
        depth: 1,
    }
}

fn agent_row(
    (state, names): (&RunState, &Names),
    run: &str,
    (id, agent): (&AgentId, &AgentStatus),
    waiting_for: Option<String>,
    live: bool,
    now_ms: i64,
) -> Row {
    let is_open = agent.outcome.is_none();
    let parent = agent.parent.as_ref().map_or(agent.task.as_str(), AgentId::as_str);
    let word = match (is_open, live, state.agent_use(id)) {
        (true, false, _) => "stopped",
        (true, true, AgentUse::Held) => "waiting",
        _ => agent.state(),
    };
    Row {
        kind: "agent",
        run: run.to_owned(),
        name: id.to_string(),
        key: names.key(agent.task.as_str()).map(str::to_owned),
        shown: names.shown(id.as_str()).into_owned(),
        parent: Some(parent.to_owned()),
        state: word.to_owned(),
        turn: Some(agent.turn),
        spending: agent.own,
        inclusive: None,
        age_s: (live && is_open).then(|| age(now_ms, agent.last_ms)),
        waiting_for,
        shortfalls: agent.shortfalls.clone(),
        started_ms: None,
        took: None,
        tasks: None,
        unprotected: None,
        untold: None,
        depth: 2 + agent.depth as usize,
    }
}
