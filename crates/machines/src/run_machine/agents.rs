//! Decides about agents: how they start, what follows a crash, and how they end.
//!
//! - `delegation`: the children that agents ask for; `ending`: the ends of agents;
//! - `resuming`: the agents that the last process left.
//!
//! A task has ended only when all its agents have, and a child counts as ended for its parent only
//! when all agents below it have.

mod delegation;
mod ending;
mod resuming;

use std::collections::BTreeMap;

use ahash::HashMap;

use super::decision::Decision;
use super::desk::Desk;
use super::request::{ChildReply, Reply};
use super::timers::Timer;
use super::{Action, Facts, UnfinishedAgent};
use crate::event::{Draft, SharedRecord};
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, CallKey, Name};
use crate::policy::{RestartPolicy, RestartWindow};
use crate::run_state::Reading;
use crate::turn::{AgentRestarted, AskedAgain, Outcome};

/// Error of an agent whose actor was killed.
const KILLED: &str = "it did not end in time and was killed";

/// The agents of a run, as far as no record tells of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Agents {
    /// The agents that have not ended.
    open: HashMap<AgentId, OpenAgent>,
    /// Number of agents that have an actor.
    live: usize,
    /// Number of agents without an actor whose end is being recorded.
    ending: usize,
    /// Number of agents that are between two actors: their records are read or their restart is
    /// recorded, or their killed actor is not gone yet.
    between: usize,
    /// The agents that had not ended when the last process stopped, until they have an actor or
    /// end.
    unfinished: BTreeMap<AgentId, UnfinishedAgent>,
    unfinished_of_task: HashMap<Name, Vec<AgentId>>,
    /// The children that calls asked for, until their first record is durable.
    coming: HashMap<CallKey, AgentId>,
    /// The latest number given to a child, by parent and agent definition.
    ordinals: HashMap<AgentId, HashMap<Name, u32>>,
    /// Number of spawns on their way to the journal within each agent's subtree.
    spawning: HashMap<AgentId, u32>,
}

/// An agent that has not ended.
#[derive(Clone, Debug)]
struct OpenAgent {
    stage: Stage,
    /// The outcome with which it must end. It is set also for an agent without an actor.
    required_outcome: Option<Outcome>,
}

/// The stage of an agent that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has no actor: the last process left it, or it waits for its slot or its restart.
    Idle,
    /// It crashed, and the record of its restart is on its way to the journal.
    Restarting,
    /// Its records are being folded.
    Folding,
    /// It has an actor, or it rests while it waits for others, and the performer of the actions starts one for
    /// whatever it is sent.
    Live,
    /// Its actor was killed and is not gone yet.
    Killed,
    /// Its end is being recorded without an actor.
    Ending,
}

impl Agents {
    /// Makes the agents of a run that has these from before.
    pub(super) fn new(unfinished: BTreeMap<AgentId, UnfinishedAgent>) -> Self {
        let idle = || OpenAgent { stage: Stage::Idle, required_outcome: None };
        let open = unfinished.keys().map(|id| (id.clone(), idle())).collect();
        Self { open, unfinished, ..Self::default() }
    }

    /// Returns the agents that have not ended, each with whether it has an actor that was not killed.
    pub(super) fn open(&self) -> impl Iterator<Item = (&AgentId, bool)> {
        self.open.iter().map(|(id, agent)| (id, agent.stage == Stage::Live))
    }

    /// Returns true if an agent has not ended.
    pub(super) fn is_open(&self, id: &AgentId) -> bool {
        self.open.contains_key(id)
    }

    /// Returns true if an agent has an actor that was not killed.
    pub(super) fn is_live(&self, id: &AgentId) -> bool {
        self.stage(id) == Some(Stage::Live)
    }

    /// Returns true if an agent has ended or was asked to end.
    pub(super) fn is_over(&self, id: &AgentId) -> bool {
        self.open.get(id).is_none_or(|agent| agent.required_outcome.is_some())
    }

    /// Returns true if an agent that has not ended was asked to end.
    pub(super) fn must_end(&self, id: &AgentId) -> bool {
        self.required_outcome(id).is_some()
    }

    /// Returns true if no agent has an actor, and none is being ended.
    pub(super) fn are_at_rest(&self) -> bool {
        self.live == 0 && self.ending == 0
    }

    /// Returns true if no agent comes, begins, ends, or is between two actors.
    pub(super) fn none_is_under_way(&self) -> bool {
        let none_comes = self.coming.is_empty() && self.spawning.is_empty();
        none_comes && self.ending == 0 && self.between == 0
    }

    /// Returns true if the first record of an agent, or of a further round of one, is on its way to the
    /// journal.
    pub(super) fn any_begins(&self) -> bool {
        !self.spawning.is_empty()
    }

    /// Returns true if such a record is on its way for an agent or for one that works for it.
    pub(super) fn begins_below(&self, id: &AgentId) -> bool {
        self.spawning.contains_key(id)
    }

    /// Returns the number of children whose first record is not durable.
    pub(super) fn coming(&self) -> usize {
        self.coming.len()
    }

    fn stage(&self, id: &AgentId) -> Option<Stage> {
        self.open.get(id).map(|agent| agent.stage)
    }

    /// Returns the outcome with which an agent was asked to end, if it was.
    fn required_outcome(&self, id: &AgentId) -> Option<&Outcome> {
        self.open.get(id).and_then(|agent| agent.required_outcome.as_ref())
    }

    fn insert(&mut self, id: &AgentId) {
        self.open.insert(id.clone(), OpenAgent { stage: Stage::Idle, required_outcome: None });
    }

    /// Moves an agent that has not ended to another stage.
    fn set_stage(&mut self, id: &AgentId, stage: Stage) {
        let Some(agent) = self.open.get_mut(id) else { return };
        let before = std::mem::replace(&mut agent.stage, stage);
        self.count(before, stage);
    }

    /// Removes an agent that has ended.
    fn remove(&mut self, id: &AgentId) {
        if let Some(agent) = self.open.remove(id) {
            self.count(agent.stage, Stage::Idle);
        }
        self.unfinished.remove(id);
        self.ordinals.remove(id);
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
}

impl Facts {
    /// Returns true if an agent with this id was spawned.
    pub(super) fn is_taken(&self, id: &AgentId) -> bool {
        self.state.agents().contains_key(id)
    }

    /// Returns true if an agent and all agents that work for it have ended. Agents whose first
    /// record is on its way to the journal count as not ended.
    pub(super) fn is_subtree_over(&self, id: &AgentId) -> bool {
        let ended = self.state.agents().get(id).is_some_and(|agent| agent.has_subtree_ended());
        ended && !self.agents.begins_below(id)
    }

    /// Returns an agent, its parent, and so on up to the task's own agent.
    pub(super) fn line_of(&self, id: &AgentId) -> Vec<AgentId> {
        let parent = |id: &AgentId| self.state.agents().get(id)?.parent.clone();
        std::iter::successors(Some(id.clone()), parent).collect()
    }

    /// Returns the outcome with which an agent must end before it starts, if its run, task or
    /// parent was stopped while its first record was on its way to the journal.
    pub(super) fn sentence(&self, id: &AgentId) -> Option<Outcome> {
        let status = self.state.agents().get(id)?;
        if let Some(parent) = status.parent.as_ref().filter(|_| status.is_delegated()) {
            let cancelled = || Outcome::Cancelled { reason: ending::PARENT_STOPPED.to_owned() };
            return self.agents.is_over(parent).then(cancelled);
        }
        self.sentence_of_task(self.settings.plan.place(&status.task)?)
    }

    /// Returns true if an agent waits for children that are at work or wait for a slot.
    pub(super) fn waits_for_children(&self, id: &AgentId) -> bool {
        let children = self.state.agents().get(id).map(|agent| agent.children.as_slice());
        let is_awaited = |child: &AgentId| {
            let status = self.state.agents().get(child);
            status.is_some_and(|status| !status.background && status.open > 0)
        };
        // One that comes is waited for in any case: until it has begun.
        let comes = |child: &AgentId| {
            child.as_str().rsplit_once('/').is_some_and(|(parent, _)| parent == id.as_str())
        };
        children.unwrap_or_default().iter().any(is_awaited)
            || self.agents.coming.values().any(comes)
    }
}

impl Desk<'_, Agents> {
    /// Handles the wish of an agent to continue after its children have ended.
    pub(super) fn wants_slot(&mut self, agent: AgentId) {
        self.post(Decision::ForgetLoose(agent.clone()));
        if self.scarce.holds(&agent) {
            // All its delegations were refused, so it never gave its slot back.
            return self.grant_slot(agent);
        }
        self.post(Decision::ReturnTo(agent));
    }

    fn grant_slot(&mut self, agent: AgentId) {
        self.reply(agent, "", Reply::Slot(()));
    }

    /// Continues an agent that got its slot back.
    pub(super) fn slot_granted(&mut self, agent: AgentId) {
        match self.agents.stage(&agent) {
            Some(Stage::Live) => self.grant_slot(agent),
            // It waits for the end of its pause, and keeps the slot.
            Some(Stage::Idle) if self.timers.is_set(&Timer::Restart(agent.clone())) => {}
            Some(Stage::Idle) => self.fold(&agent),
            // These agents continue by themselves, or end.
            Some(Stage::Folding | Stage::Restarting | Stage::Killed | Stage::Ending) => {}
            // A child mends its answer or has another job, or an attempt goes on without its agent: a check follows, or it is
            // asked again.
            None if self.children.begins_again(&agent) => self.post(Decision::BeginAgain(agent)),
            None => self.touch_task_of(&agent),
        }
    }

    /// Starts an agent after its first record became durable.
    pub(super) fn spawned(&mut self, id: &AgentId, record: &SharedRecord) {
        let status = self.state.agents().get(id);
        let is_background = status.is_some_and(|status| status.background);
        let (call, parent) = status.map_or((None, None), |s| (s.call.clone(), s.parent.clone()));
        if let Some(call) = &call {
            self.own().coming.remove(call);
        }
        parent.iter().for_each(|parent| self.have_begun_below(parent));
        self.post(Decision::IsCounted(id.clone()));
        self.own().insert(id);
        if self.pauses.is_interrupted() {
            return;
        }
        if is_background {
            self.tell_begun(id);
        }
        if let Some(outcome) = self.sentence(id) {
            return self.end_agent(id, outcome);
        }
        self.own().set_stage(id, Stage::Live);
        self.act(Action::Spawn { agent: id.clone(), born: record.clone() });
        self.post(Decision::LimitAgent(id.clone()));
        if self.state.agents().get(id).is_some_and(|agent| agent.check.is_some()) {
            self.post(Decision::LimitAttemptOf(id.clone()));
        }
    }

    /// Tells a parent that a child has begun which works in the background.
    fn tell_begun(&mut self, child: &AgentId) {
        let status = self.state.agents().get(child);
        let asked = status.and_then(|child| child.parent.clone().zip(child.call.clone()));
        if let Some((parent, call)) = asked {
            let begun = Ok(ChildReply::Begun(child.clone()));
            self.post(Decision::AnswerParent(parent, call, begun));
        }
    }

    /// Handles the end of an agent's actor.
    pub(super) fn gone(&mut self, id: &AgentId, error: Option<String>) {
        let killed = match self.agents.stage(id) {
            Some(Stage::Killed) => Some(KILLED.to_owned()),
            Some(Stage::Live | Stage::Folding) => None,
            // The end of such an agent is recorded, or it has no actor.
            Some(Stage::Idle | Stage::Restarting | Stage::Ending) | None => return,
        };
        self.post(Decision::CancelTimer(Timer::EndOverdue(id.clone())));
        self.post(Decision::CancelTimer(Timer::KillOverdue(id.clone())));
        self.own().set_stage(id, Stage::Idle);
        // An actor that ended without an error was interrupted.
        let Some(error) = error.or(killed) else { return };
        if !self.pauses.is_interrupted() {
            self.crashed(id, &error);
        }
    }

    /// Restarts a crashed agent or ends it, as its restart policy says.
    fn crashed(&mut self, id: &AgentId, error: &str) {
        if self.agents.must_end(id) {
            return self.end_idle(vec![id.clone()]);
        }
        let Some(status) = self.state.agents().get(id) else { return };
        let spec = status.definition.as_ref().and_then(|name| self.settings.agents.get(name));
        let policy = spec.map(|spec| spec.restart).unwrap_or_default();
        let (task, restart) = (status.task.clone(), status.restarts + 1);
        let times = status.restarted.iter().map(|at| at.since(Reading::default()));
        if RestartWindow::after(times).admit(&policy, self.open_time()) {
            self.own().set_stage(id, Stage::Restarting);
            let restarted = AgentRestarted::new(restart, error, None);
            return self.record(vec![Draft::agent(&task, id, restarted)]);
        }
        let message = match restart {
            1 => error.to_owned(),
            _ => format!("{error} (after {} restarts)", restart - 1),
        };
        let failure = Failure::new(FailureKind::Crashed, message);
        self.end_agent(id, Outcome::Failed { failure, partial: None });
    }

    /// Schedules the restart of an agent, after a pause, once the restart is recorded.
    pub(super) fn restarted(&mut self, id: &AgentId, restart: u32) {
        if self.agents.stage(id) != Some(Stage::Restarting) {
            return;
        }
        self.own().set_stage(id, Stage::Idle);
        if self.pauses.is_interrupted() {
            return;
        }
        if self.agents.must_end(id) {
            return self.end_idle(vec![id.clone()]);
        }
        let at = self.now.since + RestartPolicy::pause(restart);
        self.post(Decision::SetTimer(at, Timer::Restart(id.clone())));
    }

    /// Restarts a crashed agent after its pause. One that crashed while it had no slot first gets
    /// one, unless it waits for children.
    pub(super) fn restart_agent(&mut self, id: &AgentId) {
        // It may have been resumed before, with a slot that it waited for when it crashed.
        if self.agents.stage(id) != Some(Stage::Idle) {
            return;
        }
        let waits = self.waits_for_children(id) || self.has_open_question(id);
        if self.scarce.holds(id) || waits {
            return self.fold(id);
        }
        self.post(Decision::ReturnTo(id.clone()));
    }

    /// Asks for the records of an agent to be folded, if it has no actor.
    pub(super) fn fold(&mut self, id: &AgentId) {
        if self.agents.stage(id) == Some(Stage::Idle) && !self.pauses.is_interrupted() {
            self.own().set_stage(id, Stage::Folding);
            self.act(Action::Fold(id.clone()));
        }
    }

    /// Starts the actor of an agent whose records were folded.
    pub(super) fn folded(&mut self, id: &AgentId) {
        if self.agents.stage(id) != Some(Stage::Folding) {
            return;
        }
        self.own().set_stage(id, Stage::Idle);
        if self.pauses.is_interrupted() {
            return;
        }
        if self.agents.must_end(id) {
            return self.end_idle(vec![id.clone()]);
        }
        self.own().unfinished.remove(id);
        self.own().set_stage(id, Stage::Live);
        if !self.scarce.holds(id) {
            self.post(Decision::NoteLoose(id.clone()));
        }
        self.act(Action::Start(id.clone()));
        self.post(Decision::LimitAgent(id.clone()));
    }

    /// Continues an agent that had ended, once the record of its round is durable.
    pub(super) fn round_begins(&mut self, id: &AgentId, asked: Option<&AskedAgain>) {
        self.have_begun_below(id);
        self.post(Decision::IsCounted(id.clone()));
        self.own().insert(id);
        if self.pauses.is_interrupted() {
            return;
        }
        if asked.is_some_and(|asked| asked.background) {
            self.tell_begun(id);
        }
        if let Some(outcome) = self.sentence(id) {
            return self.end_agent(id, outcome);
        }
        self.fold(id);
        self.post(Decision::LimitAttemptOf(id.clone()));
    }

    fn touch_task_of(&mut self, agent: &AgentId) {
        let Some(task) = self.state.agents().get(agent).map(|agent| &agent.task) else {
            return;
        };
        let place = self.settings.plan.place(task);
        // An instance that is not in the plan: the end of its task may wait for it.
        let of = || task.of_instance().and_then(|of| self.settings.plan.place(of));
        if let Some(place) = place.or_else(of) {
            self.post(Decision::Touch(place));
        }
    }

    /// Notes that the first record of work below an agent, or of its own next round, is on its way to
    /// the journal.
    pub(super) fn begins_soon_below(&mut self, agent: &AgentId) {
        for ancestor in self.line_of(agent) {
            *self.own().spawning.entry(ancestor).or_default() += 1;
        }
    }

    /// Notes that work below an agent, whose first record was on its way to the journal, begins.
    pub(super) fn have_begun_below(&mut self, agent: &AgentId) {
        for ancestor in self.line_of(agent) {
            if let Some(count) = self.own().spawning.get_mut(&ancestor) {
                *count -= 1;
                if *count == 0 {
                    self.own().spawning.remove(&ancestor);
                }
            }
        }
    }
}
