//! What is known of a run now: its records, its plan and settings, and what no record holds.
//!
//! Plain data, and what each rule may read of it. What no record holds is lost with the process, and a resume derives
//! it from the records again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::agenda::Agenda;
use super::asking::Asking;
use super::evaluation::{Evaluating, Evaluation};
use super::items::Items;
use super::locks::Locks;
use super::request::Delegation;
use super::scope::Inputs;
use super::shares::Shares;
use super::slots::Slots;
use super::start::{Left, Now, Settings};
use super::timers::Timers;
use crate::event::PauseCause;
use crate::failure::Failure;
use crate::id::{AgentId, CallKey, Name};
use crate::run_state::RunState;
use crate::spec::hooks::Hook;
use crate::spec::{AgentSpec, TaskSpec};
use crate::template::Known;
use crate::turn::Outcome;

/// The stage of an agent that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has no actor: the last process left it, or it waits for its slot or its restart.
    Idle,
    /// It crashed, and the record of its restart is on its way to the journal.
    Restarting,
    /// Its records are being folded.
    Folding,
    /// It has an actor.
    Live,
    /// Its actor was killed and is not gone yet.
    Killed,
    /// Its end is being recorded without an actor.
    Ending,
}

/// An agent that has not ended.
#[derive(Clone, Debug)]
pub(super) struct OpenAgent {
    pub(super) stage: Stage,
    /// The outcome with which it must end. It is set also for an agent without an actor.
    pub(super) told: Option<Outcome>,
}

impl OpenAgent {
    pub(super) fn new(stage: Stage) -> Self {
        Self { stage, told: None }
    }
}

/// A child that waits for its slot.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) agent: AgentId,
    pub(super) parent: AgentId,
    pub(super) task: Name,
    pub(super) delegation: Delegation,
}

/// What is known of the answer of a child that has ended.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// It is being compared with the schema.
    Compared,
    /// It does not fit, and the child mends it once it has a slot.
    IsMended(Failure),
    /// It fits.
    Fits,
    /// It does not fit, and the child may not mend it.
    Fails(Failure),
}

/// An output that is being checked.
#[derive(Clone, Debug)]
pub(super) struct Checking {
    /// The key of the earlier result, if the output is one.
    pub(super) reused: Option<String>,
    /// True if the task is completed when it passes.
    pub(super) is_last: bool,
}

/// An answer whose form is right, and which is judged by checks and by the condition of a loop.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    /// Its value for templates.
    pub(super) value: Known,
    /// True if it has passed.
    pub(super) is_accepted: bool,
}

/// The reason why the run as a whole was stopped before its end.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// The run was cancelled, by a person or because of a failure.
    Cancelled(String),
    /// The run used up its time, or its beginning failed.
    Failed(Failure),
}

impl Stop {
    /// Returns the outcome of agents that are at work.
    pub(super) fn outcome(&self) -> Outcome {
        match self.clone() {
            Self::Cancelled(reason) => Outcome::Cancelled { reason },
            Self::Failed(failure) => Outcome::Failed { failure, partial: None },
        }
    }

    /// Returns the reason why the other tasks do not start.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Cancelled(reason) => reason,
            Self::Failed(failure) => &failure.message,
        }
    }
}

/// A proposal that is on its way to the journal.
#[derive(Clone, Debug)]
pub(super) struct Growing {
    /// The agent that proposed it.
    pub(super) by: AgentId,
    pub(super) tasks: Vec<TaskSpec>,
    /// The agent definitions that are theirs alone.
    pub(super) agents: Vec<Arc<AgentSpec>>,
    pub(super) unasked: bool,
}

/// What is known of a run now.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) settings: Settings,
    /// The fold of the run's records so far.
    pub(super) state: RunState,
    /// The moment of the input that is handled.
    pub(super) now: Now,
    /// The moment of the latest record, from which the run's clock continues.
    pub(super) recorded_at: Duration,
    /// The tasks that need a decision.
    pub(super) agenda: Agenda,
    pub(super) slots: Slots<Child>,
    pub(super) timers: Timers,
    /// The agents that have not ended.
    pub(super) agents: HashMap<AgentId, OpenAgent>,
    /// Number of agents that have an actor.
    pub(super) live: usize,
    /// Number of agents without an actor whose end is being recorded.
    pub(super) ending: usize,
    /// Number of agents that are between two actors: their records are read or their restart is
    /// recorded, or their killed actor is not gone yet.
    pub(super) between: usize,
    /// The agents that had not ended when the last process stopped, until they have an actor or
    /// end.
    pub(super) left: BTreeMap<AgentId, Left>,
    pub(super) left_of_task: HashMap<Name, Vec<AgentId>>,
    /// The children that calls asked for, until their first record is durable.
    pub(super) coming: HashMap<CallKey, AgentId>,
    /// What is known of the answers of children that must fit a schema, once they have ended.
    pub(super) answers: HashMap<AgentId, Answer>,
    /// The latest number given to a child, by parent and agent definition.
    pub(super) ordinals: HashMap<AgentId, HashMap<Name, u32>>,
    /// Number of spawns on their way to the journal within each agent's subtree.
    pub(super) spawning: HashMap<AgentId, u32>,
    /// The tasks with a change on its way to the journal, by place in the plan.
    pub(super) proposed: HashSet<usize>,
    /// The tasks whose output is being checked, by place in the plan.
    pub(super) checking: HashMap<usize, Checking>,
    /// The answers that are judged, by the task's place in the plan.
    pub(super) judged: HashMap<usize, Judged>,
    /// The tasks that were cancelled one by one, by place in the plan, with the reason.
    pub(super) cancelled: HashMap<usize, String>,
    /// The tasks whose next attempt begins when the run is resumed, by place in the plan.
    pub(super) waiting_for_resume: BTreeSet<usize>,
    /// The values of ended tasks for templates. A value is kept as long as a later task may name
    /// it.
    pub(super) values: BTreeMap<String, Known>,
    /// The inputs of the run.
    pub(super) inputs: Inputs,
    /// The tasks for which something is evaluated, by place in the plan.
    pub(super) evaluating: HashMap<usize, Evaluating>,
    /// The evaluations that the rules want and that are not asked for yet.
    pub(super) wanted: Vec<Evaluation>,
    /// Number of evaluations so far.
    pub(super) evaluations: u64,
    /// The tasks that have a slot for an attempt whose program is rendered, by place in the
    /// plan, with the agent that has the slot.
    pub(super) preparing: HashMap<usize, AgentId>,
    /// The items of the tasks that have fanned out and have not ended, by place in the plan.
    pub(super) items: HashMap<usize, Arc<Items>>,
    /// The tasks that have fanned out over items that cannot be read again, with the failure.
    pub(super) lost_items: HashMap<usize, Failure>,
    /// The proposals that are on their way to the journal, by the call.
    pub(super) growing: HashMap<CallKey, Growing>,
    /// Number of agents and rounds on their way to the journal that count as children, although no
    /// agent delegated to them.
    pub(super) counted: usize,
    /// The locks of tasks, and the limits of fan-outs on their instances.
    pub(super) locks: Locks,
    /// The shares of the tasks in the children of the run.
    pub(super) shares: Shares,
    /// The tasks that may start although a failure keeps the others from it; absent before a
    /// failure does.
    pub(super) spared: Option<HashSet<usize>>,
    /// True if the tasks that always run are cancelled too.
    pub(super) is_cleanup_stopped: bool,
    pub(super) stopped: Option<Stop>,
    /// The failure that some task must still record: the run used up its time when no task was at
    /// work.
    pub(super) untold: Option<Failure>,
    pub(super) interrupted: Option<String>,
    /// The hook whose beginning or end is on its way to the journal, or which is at work, with what
    /// it reads.
    pub(super) hook: Option<(Hook, Value)>,
    /// The cause of the pause that follows an interruption.
    pub(super) pause_cause: PauseCause,
    /// The questions to people that are on their way.
    pub(super) asking: Asking,
    pub(super) is_disk_full: bool,
    /// True if the run is paused, or about to be, until the quota of a provider is reset.
    pub(super) waits_for_quota: bool,
    /// True if nothing new starts, because the quota of a provider is used up.
    pub(super) holds_starts: bool,
    /// True if the last record of this process is on its way to the journal or was made.
    pub(super) is_finishing: bool,
    pub(super) is_finished: bool,
}

impl Facts {
    pub(super) fn new(
        settings: Settings,
        state: RunState,
        left: BTreeMap<AgentId, Left>,
        outputs: Map<String, Value>,
    ) -> Self {
        let limits = &settings.limits;
        let agents = left.keys().map(|id| (id.clone(), OpenAgent::new(Stage::Idle)));
        Self {
            now: Now::default(),
            recorded_at: Duration::ZERO,
            agenda: Agenda::new(&settings.plan, &state),
            state,
            slots: Slots::new(limits.max_concurrency, limits.max_children),
            timers: Timers::default(),
            agents: agents.collect(),
            live: 0,
            ending: 0,
            between: 0,
            left,
            left_of_task: HashMap::new(),
            coming: HashMap::new(),
            answers: HashMap::new(),
            ordinals: HashMap::new(),
            spawning: HashMap::new(),
            proposed: HashSet::new(),
            checking: HashMap::new(),
            judged: HashMap::new(),
            cancelled: HashMap::new(),
            waiting_for_resume: BTreeSet::new(),
            values: outputs.iter().map(|(name, value)| (name.clone(), Known::of(value))).collect(),
            inputs: Inputs::new(settings.inputs.clone()),
            evaluating: HashMap::new(),
            wanted: Vec::new(),
            evaluations: 0,
            preparing: HashMap::new(),
            items: HashMap::new(),
            lost_items: HashMap::new(),
            growing: HashMap::new(),
            counted: 0,
            locks: Locks::default(),
            shares: Shares::new(limits.max_descendants),
            spared: None,
            is_cleanup_stopped: false,
            stopped: None,
            untold: None,
            interrupted: None,
            hook: None,
            pause_cause: PauseCause::Interrupted,
            asking: Asking::default(),
            is_disk_full: false,
            waits_for_quota: false,
            holds_starts: false,
            is_finishing: false,
            is_finished: false,
            settings,
        }
    }

    /// Moves an agent that has not ended to another stage.
    pub(super) fn set_stage(&mut self, id: &AgentId, stage: Stage) {
        let Some(agent) = self.agents.get_mut(id) else { return };
        let before = std::mem::replace(&mut agent.stage, stage);
        self.count(before, stage);
    }

    /// Removes an agent that has ended.
    pub(super) fn remove(&mut self, id: &AgentId) {
        if let Some(agent) = self.agents.remove(id) {
            self.count(agent.stage, Stage::Idle);
        }
    }

    fn count(&mut self, before: Stage, now: Stage) {
        let has_actor = |stage| matches!(stage, Stage::Live | Stage::Killed);
        self.live -= usize::from(has_actor(before));
        self.live += usize::from(has_actor(now));
        let is_between =
            |stage| matches!(stage, Stage::Folding | Stage::Restarting | Stage::Killed);
        self.between -= usize::from(is_between(before));
        self.between += usize::from(is_between(now));
        self.ending -= usize::from(before == Stage::Ending);
        self.ending += usize::from(now == Stage::Ending);
    }

    /// Returns the stage of an agent, or `None` if it has ended.
    pub(super) fn stage(&self, id: &AgentId) -> Option<Stage> {
        self.agents.get(id).map(|agent| agent.stage)
    }

    /// Returns the outcome with which an agent was asked to end, if it was.
    pub(super) fn told(&self, id: &AgentId) -> Option<&Outcome> {
        self.agents.get(id).and_then(|agent| agent.told.as_ref())
    }
}
