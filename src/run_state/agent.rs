//! One agent as the journal tells it: what it is doing, what it used, how it ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::clock::Reading;
use crate::event::Event;
use crate::id::{AgentId, CallKey, Name};
use crate::message::Usage;
use crate::turn::{AgentSpawned, Outcome};

/// What an agent is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It is about to act.
    Starting,
    /// A model call is under way.
    Model,
    /// These tools are running.
    Tools(Vec<String>),
    /// Its children are at work.
    Children,
    /// A summary is being written.
    Compaction,
    /// It has ended.
    Nothing,
}

/// An agent as the journal tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The task it works for.
    pub task: Name,
    /// The agent definition; absent for a command.
    pub definition: Option<Name>,
    /// The agent that delegated to it.
    pub parent: Option<AgentId>,
    /// The call that asked for it.
    pub call: Option<CallKey>,
    /// Its delegation depth.
    pub depth: u32,
    /// What it is doing.
    pub doing: Doing,
    /// Its current turn.
    pub turn: u32,
    /// Its own tokens.
    pub usage: Usage,
    /// What they cost, as far as the models have a price.
    pub cost_usd: Option<f64>,
    /// Its model calls by model: tokens and cost.
    pub by_model: BTreeMap<Name, (Usage, Option<f64>)>,
    /// How often it was restarted.
    pub restarts: u32,
    /// When it was, by the run's clock.
    pub restarted: Vec<Reading>,
    /// How many children it started, by definition.
    pub children: BTreeMap<Name, u32>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// When its latest event was, in milliseconds since the Unix epoch.
    pub last_ms: i64,
}

impl AgentStatus {
    pub(super) fn new(
        task: Name,
        definition: Option<Name>,
        spawned: &AgentSpawned,
        ts_ms: i64,
    ) -> Self {
        Self {
            task,
            definition,
            parent: spawned.parent.clone(),
            call: spawned.call.clone(),
            depth: spawned.depth,
            doing: Doing::Starting,
            turn: 0,
            usage: Usage::default(),
            cost_usd: Some(0.0),
            by_model: BTreeMap::new(),
            restarts: 0,
            restarted: Vec::new(),
            children: BTreeMap::new(),
            outcome: None,
            last_ms: ts_ms,
        }
    }

    /// Takes an event in, recorded at this wall time, when the run's clock showed `now`; the caller
    /// has seen to it that the agent has not ended.
    pub(super) fn apply(&mut self, event: &Event, ts_ms: i64, now: Reading) {
        self.last_ms = ts_ms;
        match event {
            Event::AgentRestarted(restarted) => {
                self.restarts = restarted.restart;
                self.restarted.push(now);
                self.doing = Doing::Starting;
            }
            Event::AgentEnded(ended) => {
                self.doing = Doing::Nothing;
                self.outcome = Some(ended.outcome.clone());
            }
            Event::TurnStarted(started) => self.turn = started.turn,
            Event::ModelRequested(_) => self.doing = Doing::Model,
            Event::ModelResponded(reply) => {
                // The supervisor is not told of the turn's beginning.
                self.turn = reply.turn;
                self.doing = Doing::Starting;
                self.settle(&reply.model, reply.usage, reply.cost_usd);
            }
            Event::ToolIntended(intended) => self.tool_begins(&intended.name),
            Event::ToolFinished(finished) => self.tool_ends(&finished.name),
            Event::CompactionRequested(_) => self.doing = Doing::Compaction,
            Event::CompactionFinished(finished) => {
                self.doing = Doing::Starting;
                self.settle(&finished.model, finished.usage, finished.cost_usd);
            }
            Event::CompactionFailed(failed) => {
                self.doing = Doing::Starting;
                if let Some(spent) = &failed.spent {
                    self.settle(&spent.model, spent.usage, spent.cost_usd);
                }
            }
            _ => {}
        }
    }

    fn settle(&mut self, model: &Name, usage: Usage, cost_usd: Option<f64>) {
        let add = |sum: Option<f64>| sum.zip(cost_usd).map(|(a, b)| a + b);
        self.usage += usage;
        self.cost_usd = add(self.cost_usd);
        let (tokens, cost) =
            self.by_model.entry(model.clone()).or_insert((Usage::default(), Some(0.0)));
        *tokens += usage;
        *cost = add(*cost);
    }

    fn tool_begins(&mut self, tool: &str) {
        if let Doing::Tools(tools) = &mut self.doing {
            tools.push(tool.to_owned());
        } else {
            self.doing = Doing::Tools(vec![tool.to_owned()]);
        }
    }

    fn tool_ends(&mut self, tool: &str) {
        if let Doing::Tools(tools) = &mut self.doing {
            if let Some(place) = tools.iter().position(|name| name == tool) {
                tools.remove(place);
            }
            if tools.is_empty() {
                self.doing = Doing::Starting;
            }
        }
    }

    /// What it waits for, for a person; nothing once it has ended.
    #[must_use]
    pub fn waiting_for(&self) -> Option<String> {
        match &self.doing {
            Doing::Starting | Doing::Nothing => None,
            Doing::Model => Some("model".to_owned()),
            Doing::Compaction => Some("summary".to_owned()),
            Doing::Children => Some("children".to_owned()),
            Doing::Tools(tools) if tools.iter().all(|tool| tool == "delegate") => {
                Some(format!("{} children", tools.len()))
            }
            Doing::Tools(tools) => Some(tools.join(", ")),
        }
    }

    /// Its state in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match &self.outcome {
            None if matches!(&self.doing, Doing::Tools(t) if t.iter().all(|t| t == "delegate")) => {
                "waiting"
            }
            None => "running",
            Some(Outcome::Completed { .. }) => "completed",
            Some(Outcome::Failed { .. }) => "failed",
            Some(Outcome::Cancelled { .. }) => "cancelled",
        }
    }
}
