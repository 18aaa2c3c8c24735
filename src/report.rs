//! A run's result and rows, as text and as JSON, from its folded state alone.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::event::{Record, RunStatus};
use crate::id::{AgentId, Name};
use crate::journal::stamp;
use crate::message::Usage;
use crate::plan::TaskState;
use crate::run_state::{AgentStatus, RunPhase, RunState, TaskStatus};

/// A record as `run --json` and `tail --json` print it: the envelope without its checksums.
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

/// One row of `ps`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `run`, `task` or `agent`.
    pub kind: &'static str,
    /// The run's id.
    pub run: String,
    /// The workflow, the task or the agent.
    pub name: String,
    /// What it belongs to: a task to nothing, an agent to its task or its parent.
    pub parent: Option<String>,
    /// Its state in one word.
    pub state: String,
    /// The current turn of an agent.
    pub turn: Option<u32>,
    /// Tokens: a run's and a task's with all that belongs to them, an agent's own.
    pub usage: Usage,
    /// What they cost; absent when a model has no price.
    pub cost_usd: Option<f64>,
    /// Seconds since the last activity; absent once it has ended.
    pub age_s: Option<f64>,
    /// What it waits for.
    pub waiting_for: Option<String>,
    /// How deep it stands in the tree.
    pub depth: usize,
}

impl Row {
    /// The row as `ps --json` prints it.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "run": self.run,
            "name": self.name,
            "parent": self.parent,
            "state": self.state,
            "turn": self.turn,
            "usage": self.usage,
            "cost_usd": self.cost_usd,
            "age_s": self.age_s,
            "waiting_for": self.waiting_for,
        })
    }
}

/// The state of a run in one word. `live` says whether a process holds it.
#[must_use]
pub fn run_word(state: &RunState, live: bool) -> &'static str {
    match (state.phase(), live) {
        (RunPhase::Completed(status), _) => status_word(status),
        (RunPhase::Paused, false) => "paused",
        (_, true) => "running",
        (RunPhase::Open, false) => "stopped",
    }
}

/// A run's status as it is written.
#[must_use]
pub fn status_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Completed => "completed",
        RunStatus::Partial => "partial",
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}

/// The rows of one run: the run, its tasks, and under each its agents as a tree.
#[must_use]
pub fn rows(state: &RunState, live: bool, now_ms: i64) -> Vec<Row> {
    let run = state.created().map(|created| created.run.to_string()).unwrap_or_default();
    let workflow = state.created().map(|created| created.workflow.clone()).unwrap_or_default();
    let age = |last_ms: i64| Some((now_ms - last_ms).max(0) as f64 / 1e3);
    let mut rows = vec![Row {
        kind: "run",
        run: run.clone(),
        name: workflow,
        parent: None,
        state: run_word(state, live).to_owned(),
        turn: None,
        usage: state.usage(),
        cost_usd: state.cost_usd(),
        age_s: age(state.last_ms()).filter(|_| live),
        waiting_for: None,
        depth: 0,
    }];
    for (name, task) in state.tasks() {
        rows.push(task_row(state, &run, name, task, live, now_ms));
        let mains = state.agents().iter().filter(|(_, a)| a.task == *name && a.parent.is_none());
        for (id, agent) in mains {
            add_tree(state, &run, id, agent, live, now_ms, &mut rows);
        }
    }
    rows
}

fn task_row(
    state: &RunState,
    run: &str,
    name: &Name,
    task: &TaskStatus,
    live: bool,
    now_ms: i64,
) -> Row {
    let of_task = || state.agents().values().filter(|agent| agent.task == *name);
    let last = of_task().map(|agent| agent.last_ms).max().or(task.started_ms);
    Row {
        kind: "task",
        run: run.to_owned(),
        name: name.to_string(),
        parent: None,
        state: task.state.as_str().to_owned(),
        turn: None,
        usage: of_task().map(|agent| agent.usage).sum(),
        cost_usd: of_task().map(|agent| agent.cost_usd).sum(),
        age_s: last
            .filter(|_| live && !task.state.is_end())
            .map(|last| (now_ms - last).max(0) as f64 / 1e3),
        waiting_for: waiting_task(state, name, task),
        depth: 1,
    }
}

/// What a task that has not begun waits for.
fn waiting_task(state: &RunState, name: &Name, task: &TaskStatus) -> Option<String> {
    match task.state {
        TaskState::Pending => {
            let planned = state.created()?.tasks.iter().find(|planned| planned.name == *name)?;
            let open = planned
                .depends_on
                .iter()
                .filter(|before| state.task(before).is_some_and(|task| !task.state.is_end()));
            let open: Vec<_> = open.map(Name::as_str).collect();
            (!open.is_empty()).then(|| open.join(", "))
        }
        TaskState::Ready => Some("a slot".to_owned()),
        TaskState::Waiting => Some("the next attempt".to_owned()),
        _ => None,
    }
}

fn add_tree(
    state: &RunState,
    run: &str,
    id: &AgentId,
    agent: &AgentStatus,
    live: bool,
    now_ms: i64,
    rows: &mut Vec<Row>,
) {
    let is_open = agent.outcome.is_none();
    rows.push(Row {
        kind: "agent",
        run: run.to_owned(),
        name: id.to_string(),
        parent: Some(
            agent.parent.as_ref().map_or_else(|| agent.task.to_string(), AgentId::to_string),
        ),
        state: if is_open && !live { "stopped" } else { agent.state() }.to_owned(),
        turn: Some(agent.turn),
        usage: agent.usage,
        cost_usd: agent.cost_usd,
        age_s: (live && is_open).then(|| (now_ms - agent.last_ms).max(0) as f64 / 1e3),
        waiting_for: agent.waiting_for().filter(|_| live),
        depth: 2 + agent.depth as usize,
    });
    let children = state.agents().iter().filter(|(_, child)| child.parent.as_ref() == Some(id));
    for (child, status) in children {
        add_tree(state, run, child, status, live, now_ms, rows);
    }
}

/// One row of `cost`.
#[derive(Clone, Debug, PartialEq)]
pub struct CostRow {
    /// `agent`, `task` or `model`.
    pub by: &'static str,
    /// Which.
    pub name: String,
    /// Its own tokens and money.
    pub own: (Usage, Option<f64>),
    /// The same with all that belongs to it.
    pub inclusive: (Usage, Option<f64>),
}

impl CostRow {
    /// The row as `cost --json` prints it.
    #[must_use]
    pub fn json(&self) -> Value {
        let part = |(usage, cost_usd): &(Usage, Option<f64>)| {
            let mut value = json!(usage);
            value["cost_usd"] = json!(cost_usd);
            value
        };
        json!({
            "by": self.by,
            "name": self.name,
            "own": part(&self.own),
            "inclusive": part(&self.inclusive),
        })
    }
}

fn add(sum: &mut (Usage, Option<f64>), part: (Usage, Option<f64>)) {
    sum.0 += part.0;
    sum.1 = sum.1.zip(part.1).map(|(a, b)| a + b);
}

/// What each agent cost: its own calls, and with those of its children.
#[must_use]
pub fn cost_by_agent(state: &RunState) -> Vec<CostRow> {
    let rows = state.agents().iter().filter(|(_, agent)| agent.definition.is_some());
    let rows = rows.map(|(id, agent)| CostRow {
        by: "agent",
        name: id.to_string(),
        own: (agent.usage, agent.cost_usd),
        inclusive: state.inclusive(id),
    });
    rows.collect()
}

/// What each task cost: its main agents' calls, and with those of their children.
#[must_use]
pub fn cost_by_task(state: &RunState) -> Vec<CostRow> {
    let rows = state.tasks().map(|(name, _)| {
        let (mut own, mut inclusive) =
            ((Usage::default(), Some(0.0)), (Usage::default(), Some(0.0)));
        for agent in state.agents().values().filter(|agent| agent.task == *name) {
            add(&mut inclusive, (agent.usage, agent.cost_usd));
            if agent.parent.is_none() {
                add(&mut own, (agent.usage, agent.cost_usd));
            }
        }
        CostRow { by: "task", name: name.to_string(), own, inclusive }
    });
    rows.collect()
}

/// What each model cost.
#[must_use]
pub fn cost_by_model(state: &RunState) -> Vec<CostRow> {
    let mut sums = std::collections::BTreeMap::new();
    for agent in state.agents().values() {
        for (model, part) in &agent.by_model {
            add(sums.entry(model.to_string()).or_insert((Usage::default(), Some(0.0))), *part);
        }
    }
    let row = |(name, sum)| CostRow { by: "model", name, own: sum, inclusive: sum };
    sums.into_iter().map(row).collect()
}

/// A number of tokens for people: `812`, `12.3k`, `4.1M`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub fn short(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..1_000_000 => format!("{:.1}k", tokens as f64 / 1e3),
        _ => format!("{:.1}M", tokens as f64 / 1e6),
    }
}

/// The end of a run for people: every task with its state, and what the last ones gave.
#[must_use]
pub fn summary(state: &RunState) -> String {
    let mut text = String::new();
    let Some(completed) = state.completed() else { return text };
    let widest = state.tasks().map(|(name, _)| name.as_str().len()).max().unwrap_or(0);
    for (name, task) in state.tasks() {
        let took = task.started_ms.zip(task.ended_ms).map(|(from, to)| (to - from) as f64 / 1e3);
        let took = took.map(|seconds| format!("{seconds:.1} s")).unwrap_or_default();
        let note = match task.state {
            TaskState::Failed => task.failure.as_ref().map(ToString::to_string),
            TaskState::Completed => task.output.as_ref().and_then(|output| {
                output.text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
            }),
            _ => task.reason.clone(),
        };
        let note: String =
            note.unwrap_or_default().chars().filter(|c| !c.is_control()).take(100).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:widest$}  {:9}  {took:>8}  {note}", task.state.as_str());
    }
    let children = state.agents().values().filter(|agent| agent.parent.is_some()).count();
    let cost = completed.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "run {}: {} agents ({children} of them children), {} tokens in, {} out{cost}",
        status_word(completed.status),
        state.agents().len(),
        short(completed.usage.context()),
        short(completed.usage.output),
    );
    text
}
