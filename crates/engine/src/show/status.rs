//! The status of a run in a few lines, for the area below the log lines on a terminal and for the
//! totals where there is no terminal.
//!
//! Pure: folds records, and gets the time and the width from the caller.

mod area;
mod milestones;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

pub use self::area::space;
pub use self::milestones::Milestone;
use self::milestones::Milestones;
use super::cut;
use crate::event::{Event, Record};
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::printable;
use crate::run_state::{AgentStatus, Doing, RunState, TaskStatus};
use crate::show::names::Names;
use crate::show::short;
use crate::show::why::retrying;
use crate::tool::printing::Printed;
use crate::turn::ApprovalKind;
use crate::why::{Link, Relation, Subject, Why};

/// The gaps between an agent's events from which its median is taken: enough for a stable one, few
/// enough to follow a change of pace.
const GAPS: usize = 31;

/// The least gaps for a median to mean something.
const LEAST_GAPS: usize = 5;

/// The time without activity below which nothing is called slow, in milliseconds: a model that
/// thinks needs as long.
const SLOW_MS: i64 = 30_000;

/// The characters of the bar of tasks.
const BAR: usize = 20;

/// The most agents that one line names before it is cut to the width of the terminal.
const NAMED: usize = 20;

/// The status of a run, folded from its records.
#[derive(Clone, Debug, Default)]
pub struct Status {
    state: RunState,
    names: Names,
    /// Time of the first record of this process, in milliseconds since the Unix epoch.
    began_ms: Option<i64>,
    /// Spending at that time, in US dollars.
    spent_before: f64,
    gaps: HashMap<AgentId, VecDeque<i64>>,
    /// The providers that asked all callers to wait, with the end of the wait.
    parked: BTreeMap<Name, i64>,
    /// The agents that wait for the answer of a person, the oldest question first.
    asking: Vec<AgentId>,
    /// The last line that the command of an agent printed.
    printed: HashMap<AgentId, String>,
    milestones: Milestones,
}

impl Status {
    /// Starts with the state of a run that is resumed, or with an empty one.
    #[must_use]
    pub fn new(state: RunState) -> Self {
        let spent_before = state.spending().cost_usd().unwrap_or(0.0);
        Self { names: Names::of(&state), state, spent_before, ..Self::default() }
    }

    /// Folds a record. Records that the state holds already are skipped.
    pub fn apply(&mut self, record: &Record) {
        if record.seq <= self.state.last_seq() {
            return;
        }
        self.began_ms.get_or_insert(record.ts_ms);
        self.names.apply(record);
        if let Some(id) = &record.agent {
            self.note_gap(id, record.ts_ms);
        }
        match &record.event {
            Event::GatewayParked(parked) => {
                let pause = i64::try_from(parked.for_ms).unwrap_or(i64::MAX);
                self.parked.insert(parked.provider.clone(), record.ts_ms.saturating_add(pause));
            }
            Event::GatewayResumed(resumed) => drop(self.parked.remove(&resumed.provider)),
            Event::AgentEnded(_) => {
                record.agent.iter().for_each(|id| drop(self.gaps.remove(id)));
                record.agent.iter().for_each(|id| drop(self.printed.remove(id)));
            }
            Event::ToolFinished(_) => {
                record.agent.iter().for_each(|id| drop(self.printed.remove(id)));
            }
            _ => {}
        }
        // The journal's reader has refused illegal records before.
        let _ = self.state.apply(record);
        self.note_milestones(record);
    }

    fn note_gap(&mut self, id: &AgentId, now_ms: i64) {
        let Some(last) = self.state.agents().get(id).map(|agent| agent.last_ms) else { return };
        let gaps = self.gaps.entry(id.clone()).or_default();
        if gaps.len() == GAPS {
            gaps.pop_front();
        }
        gaps.push_back(now_ms - last);
    }

    /// Takes what the command of an agent printed.
    pub fn note_printed(&mut self, agent: &AgentId, printed: &Printed) {
        let last = printed.lines.iter().rev().find(|line| !line.text.is_empty());
        if let Some(last) = last {
            self.printed.insert(agent.clone(), last.text.clone());
        }
    }

    /// Replaces the agents that wait for the answer of a person.
    pub fn set_asking(&mut self, asking: Vec<AgentId>) {
        self.asking = asking;
    }

    /// Returns the lines of the status area: at most `space` of them, each at most `width` characters long.
    #[must_use]
    pub fn lines(&self, now_ms: i64, width: usize, space: usize) -> Vec<String> {
        let mut lines = vec![self.bar(now_ms, width), self.totals(now_ms)];
        lines.extend(list("waits for you:", self.waits_for_person()));
        lines.extend(list("retrying:", self.retrying(now_ms)));
        lines.extend(self.agents(now_ms, space.saturating_sub(lines.len())));
        lines.truncate(space);
        lines.iter().map(|line| cut(&printable::line(line), width)).collect()
    }

    /// Returns the number of tasks with a bar of those that have ended, if there is space for one.
    fn bar(&self, now_ms: i64, width: usize) -> String {
        let tasks = self.tasks(now_ms);
        let (mut all, mut ended) = (0, 0);
        for (_, task) in self.state.tasks() {
            all += 1;
            ended += usize::from(task.state.is_end());
        }
        if all == 0 || tasks.chars().count() + BAR + 3 > width {
            return tasks;
        }
        let full = BAR * ended / all;
        format!("[{}{}] {tasks}", "#".repeat(full), "-".repeat(BAR - full))
    }

    /// Returns the number of tasks by state, of children at work, and the time since the start.
    #[must_use]
    pub fn tasks(&self, now_ms: i64) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut all = 0;
        for (_, task) in self.state.tasks() {
            all += 1;
            *counts
                .entry(match task.state {
                    TaskState::Completed | TaskState::Reused => "done",
                    TaskState::Running => "running",
                    TaskState::Waiting if task.question.is_some() => "waiting for you",
                    TaskState::Waiting => "retrying",
                    TaskState::Pending | TaskState::Ready => "waiting",
                    TaskState::Failed => "failed",
                    TaskState::Skipped => "skipped",
                    TaskState::Cancelled => "cancelled",
                })
                .or_default() += 1;
        }
        let order =
            ["running", "retrying", "waiting for you", "waiting", "failed", "skipped", "cancelled"];
        let done = counts.get("done").copied().unwrap_or(0);
        let parts = order.iter().filter_map(|word| Some(format!("{} {word}", counts.get(word)?)));
        let parts: Vec<_> = parts.collect();
        let mut text = format!("tasks {done}/{all} done");
        for part in parts {
            text.push_str(&format!(", {part}"));
        }
        let children = self.open().filter(|(_, agent)| agent.is_delegated()).count();
        match children {
            0 => {}
            1 => text.push_str(" · 1 child"),
            more => text.push_str(&format!(" · {more} children")),
        }
        text.push_str(&format!(" · {}", clock(self.elapsed(now_ms))));
        text
    }

    /// Returns turns, tokens and money so far.
    #[must_use]
    pub fn totals(&self, now_ms: i64) -> String {
        let turns: u64 = self.state.agents().values().map(|agent| u64::from(agent.turn)).sum();
        let usage = self.state.spending().usage;
        let noun = if turns == 1 { "turn" } else { "turns" };
        let (context, output) = (short(usage.context()), short(usage.output));
        let mut text = format!("{turns} {noun} · {context} in, {output} out");
        if let Some(cost) = self.state.spending().cost_usd().filter(|cost| *cost > 0.0) {
            text.push_str(&format!(" · ${cost:.2}"));
            let minutes = self.elapsed(now_ms).as_secs_f64() / 60.0;
            if minutes >= 0.5 {
                let rate = (cost - self.spent_before) / minutes;
                text.push_str(&format!(", ${rate:.2}/min"));
            }
        }
        text
    }

    /// Returns what waits for a person: the questions at this terminal, and those that are answered
    /// by a command.
    fn waits_for_person(&self) -> Vec<String> {
        let here = self.asking.iter().map(|agent| self.names.shown(agent.as_str()).into_owned());
        let open = self.state.questions().open().into_iter().filter(|question| {
            question.agent.as_ref().is_none_or(|agent| !self.asking.contains(agent))
        });
        let told = open.map(|question| {
            let who = question.agent.as_ref().map_or(question.task.as_str(), AgentId::as_str);
            let who = self.names.shown(who);
            let (id, message) = (&question.asked.id, &question.asked.message);
            let verb = match question.asked.kind {
                ApprovalKind::Question => "answer",
                ApprovalKind::Permission | ApprovalKind::Approval => "approve",
            };
            let id = id.get(..8).unwrap_or(id);
            format!("{who} ({verb} {id}): {}", message.lines().next().unwrap_or_default())
        });
        here.chain(told).collect()
    }

    fn elapsed(&self, now_ms: i64) -> Duration {
        let began = self.began_ms.unwrap_or(now_ms);
        Duration::from_millis(u64::try_from(now_ms - began).unwrap_or(0))
    }

    fn open(&self) -> impl Iterator<Item = (&AgentId, &AgentStatus)> {
        self.state.agents().iter().filter(|(_, agent)| agent.outcome.is_none())
    }

    /// Returns the answers to why. Whoever shows a status follows the process that drives the run.
    fn why(&self, now_ms: i64) -> Why<'_> {
        Why::of(&self.state, true, now_ms)
    }

    fn retrying(&self, now_ms: i64) -> Vec<String> {
        let providers = self.parked.iter().filter(|(_, until)| **until > now_ms);
        let seconds = |until: i64| (until - now_ms).max(0).unsigned_abs().div_ceil(1000);
        let providers = providers
            .map(|(provider, until)| format!("provider {provider} in {} s", seconds(*until)));
        let why = self.why(now_ms);
        let waits = |task: &TaskStatus| task.state == TaskState::Waiting;
        let tasks = self.state.tasks().filter(|(_, task)| waits(task));
        let tasks = tasks.map(|(name, _)| (name.as_str(), Subject::Task(name.clone())));
        let pauses = |agent: &AgentStatus| matches!(agent.doing, Doing::Retrying(_));
        let agents = self.open().filter(|(_, agent)| pauses(agent));
        let agents = agents.map(|(id, _)| (id.as_str(), Subject::Agent(id.clone())));
        let told = |(name, subject): (&str, Subject)| {
            let words = next_attempt(&why.first(&subject)?, now_ms)?;
            let words = words.strip_prefix("retrying").unwrap_or(&words);
            Some(format!("{}{words}", self.names.shown(name)))
        };
        providers.chain(tasks.chain(agents).filter_map(told)).collect()
    }

    /// Returns true for an agent without activity for longer than twice its median.
    fn is_slow(&self, id: &AgentId, agent: &AgentStatus, now_ms: i64) -> bool {
        let quiet = now_ms - agent.last_ms;
        let is_paused = matches!(agent.doing, Doing::Retrying(_)) || self.asking.contains(id);
        let is_late = quiet > SLOW_MS && self.median(id).is_some_and(|usual| quiet > 2 * usual);
        is_late && !is_paused
    }

    fn median(&self, id: &AgentId) -> Option<i64> {
        let gaps = self.gaps.get(id).filter(|gaps| gaps.len() >= LEAST_GAPS)?;
        let mut sorted: Vec<i64> = gaps.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// Returns when the next attempt begins, for a subject that waits for it.
fn next_attempt(link: &Link, now_ms: i64) -> Option<String> {
    match &link.relation {
        Relation::WaitsForRetry { failure, attempt, until_ms } => {
            Some(retrying(*until_ms, now_ms, *failure, *attempt))
        }
        Relation::WaitsForRateLimit { attempt, until_ms } => {
            Some(retrying(*until_ms, now_ms, FailureKind::RateLimit, *attempt))
        }
        _ => None,
    }
}

/// Returns a line with a label and a list, or nothing if the list is empty.
fn list(label: &str, mut items: Vec<String>) -> Option<String> {
    if items.is_empty() {
        return None;
    }
    let more = items.len().saturating_sub(NAMED);
    items.truncate(NAMED);
    if more > 0 {
        items.push("…".to_owned());
    }
    Some(format!("{label} {}", items.join(", ")))
}

/// Formats a time as `03:12` or `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes:02}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Formats a time in one unit.
fn long(ms: i64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests;
