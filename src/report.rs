//! Formats a run's result and its rows of `ps` and `cost`, as text and as JSON, from its folded
//! state alone; and a record as JSON.

pub mod next_request;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::event::{Record, RunStatus};
use crate::id::{AgentId, Name};
use crate::journal::log_line::{cut, output_lines};
use crate::journal::stamp;
use crate::plan::TaskState;
use crate::run_state::{AgentStatus, AgentUse, RunPhase, RunState, TaskStatus};
use crate::spending::Spending;
use crate::turn::Shortfalls;

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

/// One row of `ps`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `run`, `task` or `agent`.
    pub kind: &'static str,
    /// The run's id.
    pub run: String,
    /// The name of the workflow, the task or the agent.
    pub name: String,
    /// The parent of the row: for an agent its parent agent or its task; `None` for a run or a
    /// task.
    pub parent: Option<String>,
    /// Its state in one word.
    pub state: String,
    /// The current turn of an agent.
    pub turn: Option<u32>,
    /// The spending: for a run and a task with all their agents, for an agent only its own.
    pub spending: Spending,
    /// Seconds since the last activity; absent if nothing is active.
    pub age_s: Option<f64>,
    /// The thing that it waits for.
    pub waiting_for: Option<String>,
    /// The work that its agents left undone.
    pub shortfalls: Shortfalls,
    /// Depth of the row in the tree, from 0 for the run.
    pub depth: usize,
}

impl Row {
    /// Returns the row as `ps --json` prints it.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "run": self.run,
            "name": self.name,
            "parent": self.parent,
            "state": self.state,
            "turn": self.turn,
            "usage": self.spending.usage,
            "cost_usd": self.spending.cost_usd(),
            "age_s": self.age_s,
            "waiting_for": self.waiting_for,
            "shortfalls": self.shortfalls,
        })
    }
}

/// Returns the state of a run in one word. `live` tells if a process holds it.
#[must_use]
pub fn run_word(state: &RunState, live: bool) -> &'static str {
    match (state.phase(), live) {
        (RunPhase::Completed(status), _) => status_word(status),
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

/// Returns the agents of a run in reading order: by task in the order of the plan, each followed by
/// its children, with `reader-2` before `reader-10`.
#[must_use]
pub fn agents_in_order(state: &RunState) -> Vec<(&AgentId, &AgentStatus)> {
    let mut below: HashMap<Option<&AgentId>, Vec<(&AgentId, &AgentStatus)>> = HashMap::new();
    for (id, agent) in state.agents() {
        below.entry(agent.parent.as_ref()).or_default().push((id, agent));
    }
    let places: HashMap<_, _> =
        state.tasks().enumerate().map(|(at, (name, _))| (name, at)).collect();
    for siblings in below.values_mut() {
        siblings.sort_by(|(a, of_a), (b, of_b)| {
            let place = |agent: &AgentStatus| places.get(&agent.task);
            place(of_a).cmp(&place(of_b)).then_with(|| natural(a.as_str(), b.as_str()))
        });
    }
    let mut ordered = Vec::with_capacity(state.agents().len());
    // The next agent is the last one in the list. No recursion, so that a tree of any depth fits.
    let mut open = below.remove(&None).unwrap_or_default();
    open.reverse();
    while let Some((id, agent)) = open.pop() {
        ordered.push((id, agent));
        open.extend(below.remove(&Some(id)).into_iter().flatten().rev());
    }
    ordered
}

/// Compares names so that numbers in them count as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let (Some(first), Some(second)) = (a.first(), b.first()) {
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let order = if first.is_ascii_digit() && second.is_ascii_digit() {
            let ((one, rest_a), (other, rest_b)) = (a.split_at(digits(a)), b.split_at(digits(b)));
            (a, b) = (rest_a, rest_b);
            let (one, other) = (without_zeros(one), without_zeros(other));
            one.len().cmp(&other.len()).then_with(|| one.cmp(other))
        } else {
            (a, b) = (&a[1..], &b[1..]);
            first.cmp(second)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|byte| **byte == b'0').count()..]
}

/// Returns the rows of one run: the run, its tasks, and under each task its agents as a tree.
#[must_use]
pub fn rows(state: &RunState, live: bool, now_ms: i64) -> Vec<Row> {
    let run = state.created().map(|created| created.run.to_string()).unwrap_or_default();
    let workflow = state.created().map(|created| created.workflow.clone()).unwrap_or_default();
    let mut rows = vec![Row {
        kind: "run",
        run: run.clone(),
        name: workflow,
        parent: None,
        state: run_word(state, live).to_owned(),
        turn: None,
        spending: state.spending(),
        age_s: live.then(|| age(now_ms, state.last_ms())),
        waiting_for: state.paused_reason().filter(|_| live).map(str::to_owned),
        shortfalls: state.shortfalls(),
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
        rows.push(task_row(state, &run, name, task, own, live, now_ms));
        rows.extend(own.iter().map(|(id, agent)| agent_row(state, &run, id, agent, live, now_ms)));
    }
    rows
}

/// Returns the row of a run whose journal cannot be read to its end, from the part that was read.
#[must_use]
pub fn unread_row(run: String, state: &RunState, word: &str, why: String) -> Row {
    Row {
        kind: "run",
        run,
        name: state.created().map(|created| created.workflow.clone()).unwrap_or_default(),
        parent: None,
        state: word.to_owned(),
        turn: None,
        spending: state.spending(),
        age_s: None,
        waiting_for: Some(why),
        shortfalls: Shortfalls::default(),
        depth: 0,
    }
}

/// Returns the seconds since `then_ms`.
fn age(now_ms: i64, then_ms: i64) -> f64 {
    (now_ms - then_ms).max(0) as f64 / 1e3
}

fn task_row(
    state: &RunState,
    run: &str,
    name: &Name,
    task: &TaskStatus,
    agents: &[(&AgentId, &AgentStatus)],
    live: bool,
    now_ms: i64,
) -> Row {
    let last = agents.iter().map(|(_, agent)| agent.last_ms).max().or(task.started_ms);
    Row {
        kind: "task",
        run: run.to_owned(),
        name: name.to_string(),
        parent: None,
        state: task.state.as_str().to_owned(),
        turn: None,
        spending: agents.iter().map(|(_, agent)| agent.own).sum(),
        age_s: last.filter(|_| live && !task.state.is_end()).map(|last| age(now_ms, last)),
        waiting_for: waiting_task(state, name, task).filter(|_| live),
        shortfalls: RunState::shortfalls_of(agents.iter().map(|(_, agent)| *agent)),
        depth: 1,
    }
}

/// Returns the thing that a task waits for, if it has no attempt under way.
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
        TaskState::Running
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Skipped
        | TaskState::Cancelled
        | TaskState::Reused => None,
    }
}

fn agent_row(
    state: &RunState,
    run: &str,
    id: &AgentId,
    agent: &AgentStatus,
    live: bool,
    now_ms: i64,
) -> Row {
    let is_open = agent.outcome.is_none();
    let parent = agent.parent.as_ref().map_or(agent.task.as_str(), AgentId::as_str);
    let (word, waits) = match (is_open, live, state.agent_use(id)) {
        (true, false, _) => ("stopped", None),
        (true, true, AgentUse::Held) => ("waiting", Some("what its task rests on".to_owned())),
        _ => (agent.state(), agent.waiting_for()),
    };
    Row {
        kind: "agent",
        run: run.to_owned(),
        name: id.to_string(),
        parent: Some(parent.to_owned()),
        state: word.to_owned(),
        turn: Some(agent.turn),
        spending: agent.own,
        age_s: (live && is_open).then(|| age(now_ms, agent.last_ms)),
        waiting_for: waits.filter(|_| live),
        shortfalls: agent.shortfalls.clone(),
        depth: 2 + agent.depth as usize,
    }
}

/// One row of `cost`.
#[derive(Clone, Debug, PartialEq)]
pub struct CostRow {
    /// `agent`, `task` or `model`.
    pub by: &'static str,
    /// The name of the agent, the task or the model.
    pub name: String,
    /// The spending of its own calls.
    pub own: Spending,
    /// The spending of all agents below it, its own calls included.
    pub inclusive: Spending,
}

impl CostRow {
    /// Returns the row as `cost --json` prints it.
    #[must_use]
    pub fn json(&self) -> Value {
        let part = |spending: &Spending| {
            let mut value = json!(spending.usage);
            value["cost_usd"] = json!(spending.cost_usd());
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

/// Returns the cost of each agent that calls a model.
#[must_use]
pub fn cost_by_agent(state: &RunState) -> Vec<CostRow> {
    let agents = agents_in_order(state);
    let rows = agents.into_iter().filter(|(_, agent)| agent.definition.is_some());
    let rows = rows.map(|(id, agent)| CostRow {
        by: "agent",
        name: id.to_string(),
        own: agent.own,
        inclusive: agent.inclusive,
    });
    rows.collect()
}

/// Returns the cost of each task. Its own calls are those of its main agents.
#[must_use]
pub fn cost_by_task(state: &RunState) -> Vec<CostRow> {
    let mut sums: HashMap<&Name, (Spending, Spending)> = HashMap::new();
    for agent in state.agents().values().filter(|agent| agent.parent.is_none()) {
        let (own, inclusive) = sums.entry(&agent.task).or_default();
        *own += agent.own;
        *inclusive += agent.inclusive;
    }
    let rows = state.tasks().map(|(name, _)| {
        let (own, inclusive) = sums.get(name).copied().unwrap_or_default();
        CostRow { by: "task", name: name.to_string(), own, inclusive }
    });
    rows.collect()
}

/// Returns the cost of each model.
#[must_use]
pub fn cost_by_model(state: &RunState) -> Vec<CostRow> {
    let mut sums: BTreeMap<&Name, Spending> = BTreeMap::new();
    for (model, spending) in state.agents().values().flat_map(|agent| &agent.by_model) {
        *sums.entry(model).or_default() += *spending;
    }
    let row = |(name, sum): (&Name, Spending)| CostRow {
        by: "model",
        name: name.to_string(),
        own: sum,
        inclusive: sum,
    };
    sums.into_iter().map(row).collect()
}

/// Formats a number of tokens for people: `812`, `12.3k`, `4.1M`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub fn short(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..1_000_000 => format!("{:.1}k", tokens as f64 / 1e3),
        _ => format!("{:.1}M", tokens as f64 / 1e6),
    }
}

/// The most characters of a task's result or failure in a summary: the rest of a line in a wide
/// terminal.
const NOTE: usize = 100;

/// The most failed tasks whose output a summary shows; `show` gives the others.
const OUTPUTS: usize = 5;

/// The most characters of a tool's name: a model may have written it.
const TOOL_NAME: usize = 64;

/// Returns the summary of a run that has ended, for people: every task with its state and its
/// result.
#[must_use]
pub fn summary(state: &RunState) -> String {
    let mut text = String::new();
    let Some(completed) = state.completed() else { return text };
    let widest = state.tasks().map(|(name, _)| name.as_str().len()).max().unwrap_or(0);
    let mut shown = 0;
    for (name, task) in state.tasks() {
        let took = task.started_ms.map(|_| seconds(task.whole.taken(state.reading())));
        let (name, word) = (name.as_str(), task.state.as_str());
        let line = format!(
            "{name:widest$}  {word:9}  {:>8}  {}",
            took.unwrap_or_default(),
            note(task).unwrap_or_default()
        );
        text.push_str(line.trim_end());
        text.push('\n');
        let failure = task.failure.as_ref().filter(|_| task.state == TaskState::Failed);
        if let Some(lines) = failure.and_then(output_lines).filter(|_| shown < OUTPUTS) {
            text.push_str(&lines);
            text.push('\n');
            shown += 1;
        }
    }
    let began = state.tasks().any(|(_, task)| task.started_ms.is_some());
    let took = began.then(|| format!(" after {}", seconds(state.spent())));
    let children = match state.agents().values().filter(|agent| agent.parent.is_some()).count() {
        0 => String::new(),
        1 => "1 child agent, ".to_owned(),
        many => format!("{many} child agents, "),
    };
    let cost = completed.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\nrun {}{}: {children}{} tokens in, {} out{cost}",
        status_word(completed.status),
        took.unwrap_or_default(),
        short(completed.usage.context()),
        short(completed.usage.output),
    );
    if let Some(undone) = undone(&completed.shortfalls) {
        let _ = writeln!(text, "left undone:  {undone}");
    }
    text
}

/// Returns what was left undone, in words; `None` if nothing was.
#[must_use]
pub fn undone(shortfalls: &Shortfalls) -> Option<String> {
    let calls = |counts: &BTreeMap<String, u32>, what: &str| {
        let count: u32 = counts.values().sum();
        let tools: Vec<_> = counts.keys().map(|tool| cut(tool, TOOL_NAME)).collect();
        let noun = if count == 1 { "call" } else { "calls" };
        (count > 0).then(|| format!("{count} {noun} {what}: {}", tools.join(", ")))
    };
    let Shortfalls { denied, unknown, failed_children, children } = shortfalls;
    let failed =
        (*failed_children > 0).then(|| format!("{failed_children} of {children} children failed"));
    let parts = [calls(denied, "denied"), calls(unknown, "of unknown outcome"), failed];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Returns a task's result in one line: the last line of its output, or the reason why there is
/// none.
fn note(task: &TaskStatus) -> Option<String> {
    let note = match task.state {
        TaskState::Completed | TaskState::Reused => {
            let text = &task.output.as_ref()?.text;
            text.lines().rev().find(|line| !line.trim().is_empty())?.to_owned()
        }
        TaskState::Failed => task.failure.as_ref()?.to_string(),
        TaskState::Skipped | TaskState::Cancelled => task.reason.clone()?,
        TaskState::Pending | TaskState::Ready | TaskState::Running | TaskState::Waiting => {
            task.failure.as_ref()?.to_string()
        }
    };
    let line = note.lines().find(|line| !line.trim().is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(NOTE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names =
            ["r-10", "r-2", "r", "r-2/x-11", "r-2/x-9", "r-02b", "s~2", "r[10]", "r[9]"];
        names.sort_by(|a, b| natural(a, b));
        let wanted = ["r", "r-2", "r-2/x-9", "r-2/x-11", "r-02b", "r-10", "r[9]", "r[10]", "s~2"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn tokens_are_short() {
        let shown = [0, 999, 1_000, 399_466, 4_100_000].map(short);
        assert_eq!(shown, ["0", "999", "1.0k", "399.5k", "4.1M"]);
    }
}
