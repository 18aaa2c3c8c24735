//! The state of one agent according to the journal: its activity, its spending, its outcome.

use serde::{Deserialize, Serialize};

use super::Moment;
use super::clock::{Reading, Stopwatch};
use crate::context::Spent;
use crate::event::Event;
use crate::failure::FailureKind;
use crate::id::{AgentId, CallKey, Name};
use crate::message::Json;
use crate::own_tool;
use crate::spec::budget::Caps;
use crate::spending::{ByModel, Rest, Spending, Usd};
use crate::turn::{AgentSpawned, CheckPlace, ModelRequested, Outcome, Shortfalls};

/// The activity of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It is about to act.
    Starting,
    /// A model call is under way.
    Model,
    /// A model call failed, and the next attempt waits.
    Retrying(ModelPause),
    /// A person was asked and has not answered.
    Person,
    /// These tools are running.
    Tools(Vec<String>),
    /// Its children are at work.
    Children,
    /// A summary is being written.
    Compaction,
    /// It has ended.
    Nothing,
}

/// The state of an agent according to the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The task it works for.
    pub task: Name,
    /// The agent definition; absent for a command.
    pub definition: Option<Name>,
    /// The agent that delegated to it; absent for a task's own agent.
    pub parent: Option<AgentId>,
    /// The call that asked for it; absent for a task's own agent.
    pub call: Option<CallKey>,
    /// Its delegation depth; 0 for a task's own agent.
    pub depth: u32,
    /// True if its parent does not wait for it.
    #[serde(default)]
    pub background: bool,
    /// True if it began in the background: its parent may let it go on after its end.
    #[serde(default)]
    pub may_go_on: bool,
    /// True if nothing has to tell its parent of its end any more, if it works in the background: the message with its
    /// result is durable, or its parent has begun another round.
    #[serde(default)]
    pub is_told: bool,
    /// True if it was told that children still work for it, since the last of them began.
    #[serde(default)]
    pub knows_of_children: bool,
    /// The check that it makes of its parent's answer, if it makes one.
    #[serde(default)]
    pub check: Option<CheckPlace>,
    /// What its parent wants of it, if it is a child with a deadline or a schema.
    #[serde(default)]
    pub wanted: Option<Wanted>,
    /// The reading of the run's clock when it began.
    #[serde(default)]
    pub began: Reading,
    /// The time in which a person had paused it.
    #[serde(default)]
    pub paused: Stopwatch,
    /// Its activity.
    pub doing: Doing,
    /// The moment since which it does that.
    #[serde(default)]
    pub since: Moment,
    /// Its current turn.
    pub turn: u32,
    /// The spending of its own calls.
    pub own: Spending,
    /// The spending of its own calls by model.
    pub by_model: ByModel,
    /// Number of its rounds, the first included.
    #[serde(default = "first_round")]
    pub round: u32,
    /// Number of its restarts.
    pub restarts: u32,
    /// The times of its restarts, by the run's clock.
    pub restarted: Vec<Reading>,
    /// The children that it started, in the order of their start.
    pub children: Vec<AgentId>,
    /// Number of agents of its subtree that have not ended, itself included.
    pub open: u32,
    /// The spending of its subtree, its own included.
    pub inclusive: Spending,
    /// The request that was announced and of which nothing came yet.
    #[serde(default)]
    pub(super) requested: Option<Requested>,
    /// The most that the summary may cost that was announced and of which nothing came yet.
    #[serde(default)]
    pub(super) summary: Option<Rest>,
    /// The tools that are running while a person is asked about one of them.
    #[serde(default)]
    pub behind_person: Vec<String>,
    /// Ids of its questions that a person has not answered.
    #[serde(default)]
    pub asked: Vec<String>,
    /// Its calls that did not do what it asked for. The supervisor knows them once it has ended.
    pub shortfalls: Shortfalls,
    /// Its outcome, once it has ended.
    pub outcome: Option<Outcome>,
    /// Time of its latest event, in milliseconds since the Unix epoch.
    pub last_ms: i64,
}

/// A request to a model that was announced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Requested {
    turn: u32,
    attempt: u32,
    model: Name,
    most: Option<Usd>,
    /// The most tokens that it can use.
    #[serde(default)]
    tokens: u64,
}

/// What a parent wants of its child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// JSON Schema that its answer must fit.
    pub schema: Option<Json>,
    /// The longest time that it may take, in milliseconds of the run's clock.
    pub timeout_ms: Option<u64>,
    /// The most that it may spend.
    #[serde(default)]
    pub budget: Option<Caps>,
    /// The reading of the run's clock when it began.
    pub since: Reading,
}

/// The pause after a model call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPause {
    /// Time at which the next attempt begins, in milliseconds since the Unix epoch.
    pub until_ms: i64,
    /// The kind of the failure.
    pub kind: FailureKind,
    /// Number of the next attempt.
    pub attempt: u32,
}

fn first_round() -> u32 {
    1
}

impl AgentStatus {
    pub(super) fn new(
        task: Name,
        definition: Option<Name>,
        spawned: &AgentSpawned,
        (at, now): (Moment, Reading),
    ) -> Self {
        let wanted = Wanted {
            schema: spawned.answer_schema.clone(),
            timeout_ms: spawned.timeout_ms,
            budget: spawned.budget,
            since: now,
        };
        let wants =
            wanted.schema.is_some() || wanted.timeout_ms.is_some() || wanted.budget.is_some();
        Self {
            task,
            definition,
            parent: spawned.parent.clone(),
            call: spawned.call.clone(),
            depth: spawned.depth,
            background: spawned.background,
            may_go_on: spawned.background,
            is_told: false,
            knows_of_children: false,
            check: spawned.check,
            wanted: Some(wanted).filter(|_| wants && spawned.call.is_some()),
            began: now,
            paused: Stopwatch::default(),
            doing: Doing::Starting,
            since: at,
            turn: 0,
            own: Spending::default(),
            by_model: ByModel::default(),
            round: first_round(),
            restarts: 0,
            restarted: Vec::new(),
            children: Vec::new(),
            open: 1,
            inclusive: Spending::default(),
            requested: None,
            summary: None,
            behind_person: Vec::new(),
            asked: Vec::new(),
            shortfalls: Shortfalls::default(),
            outcome: None,
            last_ms: at.ms,
        }
    }

    /// Returns the model whose reply it waits for.
    #[must_use]
    pub fn model_called(&self) -> Option<&Name> {
        self.requested.as_ref().map(|requested| &requested.model)
    }

    /// Returns true if another agent delegated to it. The other agents belong to the plan.
    #[must_use]
    pub fn is_delegated(&self) -> bool {
        self.parent.is_some() && self.check.is_none()
    }

    /// Returns true if the agent and all agents that work for it have ended.
    #[must_use]
    pub fn has_subtree_ended(&self) -> bool {
        self.open == 0
    }

    /// Applies an event of the record `at`, when the reading of the run's clock was `now`. Returns the spending that the event adds. The caller must make sure that
    /// the agent has not ended.
    pub(super) fn apply(&mut self, event: &Event, at: Moment, now: Reading) -> Option<Spending> {
        let before = std::mem::discriminant(&self.doing);
        let spending = self.take(event, at.ms, now);
        self.last_ms = at.ms;
        // Another tool beside those that run changes nothing of what it does.
        if std::mem::discriminant(&self.doing) != before {
            self.since = at;
        }
        spending
    }

    fn take(&mut self, event: &Event, ts_ms: i64, now: Reading) -> Option<Spending> {
        let mut spending = None;
        match event {
            Event::AgentRestarted(restarted) => {
                self.restarts = restarted.restart;
                self.restarted.push(now);
                self.doing = Doing::Starting;
                spending = self.lose_request();
            }
            Event::AgentEnded(ended) => {
                self.doing = Doing::Nothing;
                spending = self.lose_request();
                self.outcome = Some(ended.outcome.clone());
                // The counts of its own records are the same, except in records of a version that
                // did not count at the end.
                if !ended.shortfalls.is_empty() {
                    self.shortfalls = ended.shortfalls.clone();
                }
            }
            Event::TurnStarted(started) => self.turn = started.turn,
            Event::ModelRequested(requested) => {
                self.doing = Doing::Model;
                spending = self.request(requested);
            }
            Event::ModelFailed(failed) => {
                let requested = self.requested.take();
                let pause = failed.retry_in_ms.filter(|_| !failed.cut);
                let pause = pause.and_then(|pause| i64::try_from(pause).ok());
                self.doing = pause.map_or(Doing::Starting, |pause| {
                    Doing::Retrying(ModelPause {
                        until_ms: ts_ms.saturating_add(pause),
                        kind: failed.failure.kind,
                        attempt: failed.attempt.saturating_add(1),
                    })
                });
                let model = requested.map(|requested| requested.model);
                spending = self.spend_all(failed.spent.as_ref(), failed.unsettled, model.as_ref());
            }
            Event::ModelResponded(reply) => {
                // The supervisor does not receive `turn.started`, so the reply must set the turn
                // too.
                self.turn = reply.turn;
                self.doing = Doing::Starting;
                self.requested = None;
                let mut spent = Spending::of_call(reply.usage, reply.cost_usd);
                spent += reply.unsettled.map(Rest::spending).unwrap_or_default();
                spending = Some(self.spend(&reply.model, spent));
            }
            Event::ApprovalAsked(asked) => {
                if !self.asked.contains(&asked.id) {
                    self.asked.push(asked.id.clone());
                }
                let before = std::mem::replace(&mut self.doing, Doing::Person);
                if let Doing::Tools(tools) = before {
                    self.behind_person = tools;
                }
            }
            Event::ApprovalAnswered(answered) => {
                self.asked.retain(|id| *id != answered.id);
                self.person_answered();
            }
            Event::ToolIntended(intended) => self.tool_begins(&intended.name),
            Event::ToolFinished(finished) => {
                self.tool_ends(&finished.name);
                self.shortfalls.count(finished);
            }
            Event::CompactionRequested(requested) => {
                self.doing = Doing::Compaction;
                self.summary = requested.most;
            }
            Event::CompactionFinished(finished) => {
                self.doing = Doing::Starting;
                self.summary = None;
                let spent = Spending::of_call(finished.usage, finished.cost_usd);
                spending = Some(self.spend(&finished.model, spent));
            }
            Event::CompactionFailed(failed) => {
                self.doing = Doing::Starting;
                self.summary = None;
                spending = self.spend_all(failed.spent.as_ref(), failed.unsettled, None);
            }
            _ => {}
        }
        spending
    }

    /// Counts what a failure cost, and what it may have cost beyond. `asked` is the model that was asked, if it is
    /// known.
    fn spend_all(
        &mut self,
        spent: Option<&Spent>,
        rest: Option<Rest>,
        asked: Option<&Name>,
    ) -> Option<Spending> {
        let known = spent.map(|spent| Spending::of_call(spent.usage, spent.cost_usd));
        let unknown = rest.map(Rest::spending);
        if known.is_none() && unknown.is_none() {
            return None;
        }
        let mut spending = known.unwrap_or_default();
        spending += unknown.unwrap_or_default();
        match spent.map(|spent| &spent.model).or(asked) {
            Some(model) => drop(self.spend(model, spending)),
            None => self.own += spending,
        }
        Some(spending)
    }

    /// Counts a request, and the one before as lost if nothing settled it.
    fn request(&mut self, requested: &ModelRequested) -> Option<Spending> {
        let ModelRequested { turn, attempt, most_tokens: tokens, .. } = *requested;
        let (model, most) = (requested.model.clone(), requested.most_usd.map(Usd::at_most_dollars));
        let replaced = self.requested.take_if(|r| (r.turn, r.attempt) == (turn, attempt));
        let mut spending = self.lose_request().unwrap_or_default();
        if replaced.is_none() {
            spending += self.spend(&model, Spending::of_request());
        }
        self.requested = Some(Requested { turn, attempt, model, most, tokens });
        Some(spending)
    }

    /// Forgets the request under way, if there is one: another run has made it.
    pub(super) fn forget_request(&mut self) -> bool {
        self.summary = None;
        let Some(Requested { model, .. }) = self.requested.take() else { return false };
        let of_model = self.by_model.of(&model);
        for spending in [&mut self.own, of_model] {
            spending.requests = spending.requests.saturating_sub(1);
        }
        true
    }

    /// Counts a request whose end nobody knows, if there is one.
    pub(super) fn lose_request(&mut self) -> Option<Spending> {
        let summary = self.summary.take().map(Rest::spending);
        let request = self.requested.take();
        if request.is_none() && summary.is_none() {
            return None;
        }
        let mut lost = summary.unwrap_or_default();
        self.own += lost;
        if let Some(Requested { model, most, tokens, .. }) = request {
            lost += self.spend(&model, Spending::of_lost(most, tokens));
        }
        Some(lost)
    }

    fn spend(&mut self, model: &Name, spending: Spending) -> Spending {
        self.own += spending;
        *self.by_model.of(model) += spending;
        spending
    }

    fn person_answered(&mut self) {
        if !self.asked.is_empty() || self.doing != Doing::Person {
            return;
        }
        let tools = std::mem::take(&mut self.behind_person);
        self.doing = if tools.is_empty() { Doing::Starting } else { Doing::Tools(tools) };
    }

    fn tool_begins(&mut self, tool: &str) {
        if let Doing::Tools(tools) = &mut self.doing {
            tools.push(tool.to_owned());
        } else {
            self.doing = Doing::Tools(vec![tool.to_owned()]);
        }
    }

    fn tool_ends(&mut self, tool: &str) {
        if self.doing == Doing::Person {
            // The question of another call is open.
            self.behind_person.retain(|name| name != tool);
            return;
        }
        if let Doing::Tools(tools) = &mut self.doing {
            if let Some(place) = tools.iter().position(|name| name == tool) {
                tools.remove(place);
            }
            if tools.is_empty() {
                self.doing = Doing::Starting;
            }
        }
    }

    /// Returns its state in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match &self.outcome {
            None if matches!(&self.doing, Doing::Tools(tools) if wait_for_children(tools)) => {
                "waiting"
            }
            None => "running",
            Some(Outcome::Completed { .. }) => "completed",
            Some(Outcome::Failed { .. }) => "failed",
            Some(Outcome::Cancelled { .. }) => "cancelled",
        }
    }
}

fn wait_for_children(tools: &[String]) -> bool {
    tools.iter().all(|tool| own_tool::waits_for_children(tool))
}
