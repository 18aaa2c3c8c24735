//! The report of a run as one document: what was asked, how it ended, what stands behind each task,
//! what it cost and what waited. Markdown and HTML are made from it; its JSON is a stable format.
//!
//! Pure: made from the folded state, the evidence and the story of the records. It is complete;
//! only the pages for people fold what is alike.

mod circles;
mod html;
mod markdown;
mod page;
mod story;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

pub use self::circles::Circling;
pub use self::story::{Retry, Story, Wait};
use super::evidence::{Evidence, TaskEvidence};
use super::for_others::ForOthers;
use super::inclusive::{Inclusive, of_fan_outs};
use super::{agents_in_order, cost_by_model, rows, run_word, unsettled};
use crate::event::RunCreated;
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::journal::stamp;
use crate::message::{Json, Usage};
use crate::output::Output;
use crate::run_state::{AgentStatus, RunState, TaskStatus};
use crate::show::names::Names;
use crate::spec::sandbox::SandboxProof;
use crate::spending::Spending;
use crate::turn::{Outcome, Shortfalls};

/// The most agents that are listed as the biggest spenders.
const SPENDERS: usize = 10;

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// Version of the format: fields are only added to it.
    pub v: u32,
    /// The run's id.
    pub run: String,
    /// The workflow's name.
    pub workflow: String,
    /// The state in one word, as `ps` prints it.
    pub state: String,
    /// The reason why the journal could not be read to its end, if so: the rest of the document
    /// covers the part before.
    pub damage: Option<String>,
    /// The exit code that the run ended or paused with; absent if it is at work or was killed.
    pub exit_code: Option<u8>,
    /// The reason of the pause, if the run is paused.
    pub paused: Option<String>,
    /// The commands that can follow.
    pub next: Vec<NextStep>,
    /// Why the commands of the run have no sandbox; absent if they have one.
    pub unprotected: Option<String>,
    /// The notices that were not delivered, in words; absent if all were.
    pub untold: Option<String>,
    /// What was asked.
    pub asked: Asked,
    /// Time of the first record.
    pub began: Option<String>,
    /// Time of the last record.
    pub last: Option<String>,
    /// The time for which a process worked on it, in seconds.
    pub worked_s: f64,
    /// Tokens of all agents.
    pub usage: Usage,
    /// Their cost in US dollars; absent if a model has no price.
    pub cost_usd: Option<f64>,
    /// The requests that are in neither, because nobody knows their end.
    pub unsettled: Option<String>,
    /// The most that those can have cost, in US dollars; absent if a model has no price.
    pub unsettled_usd: Option<f64>,
    /// Number of tasks by state.
    pub counts: BTreeMap<&'static str, usize>,
    /// What speaks against the tasks.
    pub warnings: Vec<TaskWarning>,
    /// The files that other programs run and that the run changed.
    pub run_by_others: Vec<ForOthers>,
    /// True if it may have changed more of them: the workspace held more than was looked at.
    pub run_by_others_incomplete: bool,
    /// The work that was asked for and not done.
    pub shortfalls: Shortfalls,
    /// The tasks in the order of the plan.
    pub tasks: Vec<TaskReport>,
    /// Spending by model.
    pub models: Vec<Spender>,
    /// The agents that spent most, by money or, without prices, by tokens.
    pub spenders: Vec<Spender>,
    /// The agents that went in circles, in the order in which it was noticed.
    pub circles: Vec<Circling>,
    /// Number of steps that are left out because too many agents went in circles.
    pub circles_left_out: u64,
    /// What waited for time, a provider or a person, in the order of its beginning.
    pub waits: Vec<Wait>,
    /// Number of waits that are left out because there are too many.
    pub waits_left_out: u64,
    /// The names as the pages for people have them.
    #[serde(skip)]
    names: Names,
}

/// A command that can follow.
#[derive(Clone, Debug, Serialize)]
pub struct NextStep {
    /// Its purpose.
    pub what: String,
    /// The command.
    pub command: String,
}

/// What was asked.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// The configuration file.
    pub file: String,
    /// The profile in force, if one was chosen.
    pub profile: Option<String>,
    /// The inputs.
    pub inputs: Option<Json>,
    /// The keys that were overridden for this run.
    pub overrides: BTreeMap<String, String>,
}

/// A fact that speaks against a task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskWarning {
    /// The task.
    pub task: Name,
    /// The code of the warning.
    pub code: &'static str,
    /// The same in words.
    pub text: String,
}

/// One task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskReport {
    /// Its name.
    pub task: Name,
    /// The key of an instance of a fan-out; absent for other tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its state.
    pub state: &'static str,
    /// The agent definition that does it; absent for a command.
    pub definition: Option<Name>,
    /// The beginning of the first prompt or command of it, at most 2,000 characters.
    pub asked: Option<String>,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the beginning of the first one.
    pub started: Option<String>,
    /// Time of its end.
    pub ended: Option<String>,
    /// The time it took, in seconds.
    pub took_s: Option<f64>,
    /// The thing that it waits for, in a live run.
    pub waiting_for: Option<String>,
    /// Tokens of its agents, over all attempts.
    pub usage: Usage,
    /// Their cost in US dollars; absent if a model has no price.
    pub cost_usd: Option<f64>,
    /// What it used with its instances, if it fans out; absent for other tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive: Option<Inclusive>,
    /// Its output.
    pub output: Option<Output>,
    /// Text that the last attempt had written when it failed.
    pub partial: Option<Output>,
    /// Its failure.
    pub error: Option<Failure>,
    /// The reason why it was skipped or cancelled.
    pub reason: Option<String>,
    /// The attempts that failed and were followed by another one.
    pub retries: Vec<Retry>,
    /// What stands behind it.
    pub evidence: Option<TaskEvidence>,
    /// What its last attempt left undone.
    pub shortfalls: Shortfalls,
    /// Its agents, each followed by its children.
    pub agents: Vec<AgentReport>,
}

/// One agent.
#[derive(Clone, Debug, Serialize)]
pub struct AgentReport {
    /// Its id.
    pub agent: AgentId,
    /// Its definition; absent for a command.
    pub definition: Option<Name>,
    /// The agent that delegated to it.
    pub parent: Option<AgentId>,
    /// Its state in one word.
    pub state: String,
    /// Its end in one word, once it has ended: `ok`, `partial` (a limit ended it), `failed`,
    /// `cancelled`, `crashed` or `denied`.
    pub result: Option<&'static str>,
    /// Its last turn.
    pub turns: u32,
    /// Number of restarts after crashes.
    pub restarts: u32,
    /// Tokens of its own calls.
    pub usage: Usage,
    /// Their cost in US dollars; absent if a model has no price.
    pub cost_usd: Option<f64>,
    /// Its failure.
    pub error: Option<Failure>,
}

/// A model or an agent with what it spent.
#[derive(Clone, Debug, Serialize)]
pub struct Spender {
    /// The name.
    pub name: String,
    /// Tokens of its own calls.
    pub usage: Usage,
    /// Their cost in US dollars; absent if a model has no price.
    pub cost_usd: Option<f64>,
}

impl Document {
    /// Makes the report of a run. `live` tells if a process holds it, and `now_ms` is the time.
    #[must_use]
    pub fn new(
        state: &RunState,
        evidence: &Evidence,
        mut story: Story,
        live: bool,
        now_ms: i64,
    ) -> Self {
        let created = state.created();
        let names = Names::of(state);
        let mut tasks = tasks((state, &names), evidence, &story, live, now_ms);
        let warnings = tasks.iter().flat_map(|task| {
            let warnings = task.evidence.iter().flat_map(|evidence| &evidence.warnings);
            warnings.map(|warning| {
                let (code, text) = (warning.code, warning.text.clone());
                TaskWarning { task: task.task.clone(), code, text }
            })
        });
        let warnings = warnings.collect();
        let mut counts = BTreeMap::new();
        for task in &mut tasks {
            *counts.entry(task.state).or_default() += 1;
        }
        let has_records = state.last_seq() > 0;
        let (circles, circles_left_out) = story.take_circles();
        let (waits, waits_left_out, began_ms) = story.into_waits(state.last_ms());
        Self {
            v: 1,
            run: created.map(|created| created.run.to_string()).unwrap_or_default(),
            workflow: created.map(|created| created.workflow.clone()).unwrap_or_default(),
            state: run_word(state, live).to_owned(),
            damage: None,
            exit_code: None,
            paused: state.paused_reason().map(str::to_owned),
            next: Vec::new(),
            unprotected: state.sandbox().and_then(SandboxProof::warning),
            untold: super::untold_in_short(state),
            asked: asked(created),
            began: began_ms.map(stamp::text),
            last: has_records.then(|| stamp::text(state.last_ms())),
            worked_s: state.reading().since(Default::default()).as_secs_f64(),
            usage: state.spending().usage,
            cost_usd: state.spending().cost_usd(),
            unsettled: unsettled(&state.spending()),
            unsettled_usd: state.spending().unsettled.most_usd(),
            counts,
            warnings,
            run_by_others: evidence.for_others().to_vec(),
            run_by_others_incomplete: evidence.is_for_others_incomplete(),
            shortfalls: state.shortfalls(),
            tasks,
            models: cost_by_model(state)
                .into_iter()
                .map(|row| spender(row.name, &row.own))
                .collect(),
            spenders: spenders(state),
            circles,
            circles_left_out,
            waits,
            waits_left_out,
            names,
        }
    }

    /// Returns the report as Markdown that is readable as plain text.
    #[must_use]
    pub fn markdown(&self) -> String {
        markdown::text(&page::of(self))
    }

    /// Returns the report as one HTML page without scripts, that loads nothing.
    #[must_use]
    pub fn html(&self) -> String {
        html::text(&format!("{}: {}", self.workflow, self.state), &page::of(self))
    }

    /// Returns the report as one JSON document.
    #[must_use]
    pub fn json(&self) -> String {
        Json::encode(self).as_str().to_owned()
    }
}

fn asked(created: Option<&RunCreated>) -> Asked {
    Asked {
        file: created.map(|created| created.file.display().to_string()).unwrap_or_default(),
        profile: created.and_then(|created| created.profile.clone()),
        inputs: created.map(|created| created.inputs.clone()),
        overrides: created.map(|created| created.overrides.clone()).unwrap_or_default(),
    }
}

fn spender(name: String, spending: &Spending) -> Spender {
    Spender { name, usage: spending.usage, cost_usd: spending.cost_usd() }
}

fn spenders(state: &RunState) -> Vec<Spender> {
    let mut agents: Vec<_> =
        state.agents().iter().filter(|(_, agent)| agent.definition.is_some()).collect();
    let spent = |agent: &AgentStatus| {
        let usage = agent.own.usage;
        (agent.own.cost_usd().unwrap_or(0.0), usage.context().saturating_add(usage.output))
    };
    agents.sort_by(|(_, a), (_, b)| {
        let ((money_a, tokens_a), (money_b, tokens_b)) = (spent(a), spent(b));
        money_b.total_cmp(&money_a).then(tokens_b.cmp(&tokens_a))
    });
    agents.truncate(SPENDERS);
    agents.into_iter().map(|(id, agent)| spender(id.to_string(), &agent.own)).collect()
}

fn tasks(
    (state, names): (&RunState, &Names),
    evidence: &Evidence,
    story: &Story,
    live: bool,
    now_ms: i64,
) -> Vec<TaskReport> {
    let mut agents: HashMap<&Name, Vec<(&AgentId, &AgentStatus)>> = HashMap::new();
    for (id, agent) in agents_in_order(state) {
        agents.entry(&agent.task).or_default().push((id, agent));
    }
    let (rows, fan_outs) = (rows(state, live, now_ms), of_fan_outs(state));
    let mut waits: HashMap<_, _> = rows
        .into_iter()
        .filter(|row| row.kind == "task")
        .map(|row| (row.name, row.waiting_for))
        .collect();
    let report = |(name, task): (&Name, &TaskStatus)| {
        let own = agents.remove(name).unwrap_or_default();
        let spending: Spending = own.iter().map(|(_, agent)| agent.own).sum();
        let latest = |id: &AgentId| task.agent.as_ref().is_some_and(|main| id.is_within(main));
        let of_latest = own.iter().filter(|(id, _)| latest(id)).map(|(_, agent)| *agent);
        let main = own.iter().rfind(|(id, _)| task.agent.as_ref() == Some(id));
        let partial = main.and_then(|(_, agent)| match agent.outcome.as_ref()? {
            Outcome::Failed { partial, .. } => partial.clone(),
            Outcome::Completed { .. } | Outcome::Cancelled { .. } => None,
        });
        let (retries, prompt) = story.of(name);
        TaskReport {
            task: name.clone(),
            key: names.key(name.as_str()).map(str::to_owned),
            state: task.state.as_str(),
            definition: own.first().and_then(|(_, agent)| agent.definition.clone()),
            asked: prompt,
            attempts: task.attempt,
            started: task.started_ms.map(stamp::text),
            ended: task.ended_ms.map(stamp::text),
            took_s: task.started_ms.map(|_| task.whole.taken(state.reading()).as_secs_f64()),
            waiting_for: waits.remove(name.as_str()).flatten(),
            usage: spending.usage,
            cost_usd: spending.cost_usd(),
            inclusive: fan_outs.get(name.as_str()).copied(),
            output: task.output.clone(),
            partial: partial.filter(|_| task.output.is_none()),
            error: task.failure.clone(),
            reason: task.reason.clone(),
            retries,
            evidence: evidence.of(name).cloned(),
            shortfalls: {
                let mut all = RunState::shortfalls_of(of_latest);
                all.add(&state.undone_items(task));
                all
            },
            agents: own.into_iter().map(|(id, agent)| agent_report(id, agent, live)).collect(),
        }
    };
    state.tasks().map(report).collect()
}

fn agent_report(id: &AgentId, agent: &AgentStatus, live: bool) -> AgentReport {
    let is_open = agent.outcome.is_none();
    AgentReport {
        agent: id.clone(),
        definition: agent.definition.clone(),
        parent: agent.parent.clone(),
        state: if is_open && !live { "stopped" } else { agent.state() }.to_owned(),
        result: agent.outcome.as_ref().map(Outcome::word),
        turns: agent.turn,
        restarts: agent.restarts,
        usage: agent.own.usage,
        cost_usd: agent.own.cost_usd(),
        error: match &agent.outcome {
            Some(Outcome::Failed { failure, .. }) => Some(failure.clone()),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests;
