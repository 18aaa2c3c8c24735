//! Decides about agents: when children start, what follows a crash, and how agents end.
//!
//! A task has ended only when all its agents have, and a child counts as ended for its parent only
//! when all agents below it have. An agent that must end is asked first, and killed when its grace
//! is over.

use super::decision::Decision;
use super::facts::{Answer, Child, Facts, OpenAgent, Stage};
use super::request::{ChildResult, Delegation, Refused, Reply};
use super::slots::Rank;
use super::timers::Timer;
use super::{Action, RunMachine};
use crate::event::{Draft, SharedRecord};
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, CallKey, Name};
use crate::policy::{RestartPolicy, RestartWindow};
use crate::run_state::Reading;
use crate::turn::{AgentRestarted, AgentSpawned, Outcome, Program};

/// Reason for cancelling the children of an agent that was asked to end.
const PARENT_STOPPED: &str = "its parent was stopped";

/// Reason for cancelling agents whose parent has ended.
pub(super) const PARENT_ENDED: &str = "its parent has ended";

/// Sentence after the prompt of a child whose answer must fit a schema, which follows.
const FORM: &str =
    "\n\nAnswer with one JSON document that fits this JSON Schema, and with nothing else:\n";

/// Error of an agent whose actor was killed.
const KILLED: &str = "it did not end in time and was killed";

impl Facts {
    /// Returns the reason why the limits allow no further child, in words for the model; `None` if
    /// they do.
    fn refusal(&self, place: usize, delegation: &Delegation) -> Option<String> {
        let limits = &self.settings.limits;
        if delegation.depth > limits.max_depth {
            return Some(format!("the delegation depth of {} is reached", limits.max_depth));
        }
        if self.children_left_for(place) > 0 {
            return None;
        }
        let most = limits.max_descendants;
        Some(match self.children_left() {
            0 => format!("the run's limit of {most} children is reached; do the work yourself"),
            left => format!(
                "this task has used its share of the run's {most} children, and the {left} that are \
                 left are kept for other tasks; do the work yourself"
            ),
        })
    }

    /// Returns true if an agent with this id was spawned.
    pub(super) fn is_taken(&self, id: &AgentId) -> bool {
        self.state.agents().contains_key(id)
    }

    /// Returns the child that a call asked for.
    fn child_of(&self, call: &CallKey) -> Option<AgentId> {
        self.state.child_of_call(call).or(self.coming.get(call)).cloned()
    }

    /// Returns true if an agent has ended or was asked to end.
    pub(super) fn is_over(&self, id: &AgentId) -> bool {
        self.agents.get(id).is_none_or(|agent| agent.told.is_some())
    }

    /// Returns true if an agent and all agents that work for it have ended. Agents whose first
    /// record is on its way to the journal count as not ended.
    pub(super) fn is_subtree_over(&self, id: &AgentId) -> bool {
        let ended = self.state.agents().get(id).is_some_and(|agent| agent.has_subtree_ended());
        ended && !self.spawning.contains_key(id)
    }

    /// Returns an agent, its parent, and so on up to the task's own agent.
    fn line_of(&self, id: &AgentId) -> Vec<AgentId> {
        let parent = |id: &AgentId| self.state.agents().get(id)?.parent.clone();
        std::iter::successors(Some(id.clone()), parent).collect()
    }

    pub(super) fn rank(&self, agent: &AgentId) -> Rank {
        match self.state.agents().get(agent).is_some_and(|agent| agent.is_delegated()) {
            true => Rank::Child,
            false => Rank::Main,
        }
    }

    /// Returns the outcome with which an agent must end before it starts, if its run, task or
    /// parent was stopped while its first record was on its way to the journal.
    pub(super) fn sentence(&self, id: &AgentId) -> Option<Outcome> {
        let status = self.state.agents().get(id)?;
        if let Some(parent) = status.parent.as_ref().filter(|_| status.is_delegated()) {
            let cancelled = || Outcome::Cancelled { reason: PARENT_STOPPED.to_owned() };
            return self.is_over(parent).then(cancelled);
        }
        self.sentence_of_task(self.settings.plan.place(&status.task)?)
    }

    /// Returns the outcome with which the agents of a task must end, if the run or the task was
    /// stopped.
    pub(super) fn sentence_of_task(&self, place: usize) -> Option<Outcome> {
        let cancelled = |reason: &String| Outcome::Cancelled { reason: reason.clone() };
        let of_task = || self.cancelled.get(&place).map(cancelled);
        let stopped = self.stopped.as_ref().filter(|_| !self.cleans_up(place));
        stopped.map(super::facts::Stop::outcome).or_else(of_task)
    }

    /// Returns true if an agent has children that are at work or wait for a slot.
    pub(super) fn has_open_children(&self, id: &AgentId) -> bool {
        let children = self.state.agents().get(id).map(|agent| agent.children.as_slice());
        children.unwrap_or_default().iter().any(|child| self.agents.contains_key(child))
            || self.coming.values().any(|child| child.is_within(id))
    }

    /// Returns the id of a new child. The children of a parent are numbered by agent definition, in
    /// the order of the requests.
    fn next_child(&mut self, parent: &AgentId, agent: &Name) -> AgentId {
        let started = || {
            let children = self.state.agents().get(parent).map(|parent| &parent.children);
            let definition = |id: &AgentId| self.state.agents().get(id)?.definition.clone();
            let of_kind = |id: &&AgentId| definition(id).as_ref() == Some(agent);
            let count = children.into_iter().flatten().filter(of_kind).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let known = self.ordinals.get(parent).and_then(|numbers| numbers.get(agent)).copied();
        let mut ordinal = known.unwrap_or_else(started) + 1;
        while self.is_taken(&parent.child(agent, ordinal)) {
            ordinal += 1;
        }
        let numbers = self.ordinals.entry(parent.clone()).or_default();
        numbers.insert(agent.clone(), ordinal);
        parent.child(agent, ordinal)
    }

    fn touch_task_of(&mut self, agent: &AgentId) {
        let Some(task) = self.state.agents().get(agent).map(|agent| &agent.task) else {
            return;
        };
        let place = self.settings.plan.place(task);
        // An instance that is not in the plan: the end of its task may wait for it.
        let of = || task.of_instance().and_then(|of| self.settings.plan.place(of));
        if let Some(place) = place.or_else(of) {
            self.agenda.touch(place);
        }
    }

    /// Notes that the first record of work below an agent, or of its own next round, is on its way to
    /// the journal.
    pub(super) fn begins_soon_below(&mut self, agent: &AgentId) {
        for ancestor in self.line_of(agent) {
            *self.spawning.entry(ancestor).or_default() += 1;
        }
    }

    /// Notes that work below an agent, whose first record was on its way to the journal, begins.
    pub(super) fn begins_below(&mut self, agent: &AgentId) {
        for ancestor in self.line_of(agent) {
            if let Some(count) = self.spawning.get_mut(&ancestor) {
                *count -= 1;
                if *count == 0 {
                    self.spawning.remove(&ancestor);
                }
            }
        }
    }

    /// Forgets a child that a call asked for and that will not begin.
    fn forget_coming(&mut self, task: &Name, call: &CallKey) {
        self.coming.remove(call);
        if let Some(place) = self.settings.plan.place(task) {
            self.shares.take_back(self.whole(place));
        }
    }
}

impl RunMachine {
    /// Handles a parent's request for a child, or again for the child of an earlier call.
    pub(super) fn delegated(&mut self, parent: AgentId, task: Name, delegation: Delegation) {
        // A parent that waits for its children needs no slot.
        self.facts.slots.release(&parent);
        if let Some(child) = self.facts.child_of(&delegation.call) {
            // A child that is still at work answers when it ends.
            return self.post(Decision::GiveResult(child));
        }
        let is_ending = self.facts.interrupted.is_some() || self.facts.stopped.is_some();
        let place = self.facts.settings.plan.place(&task);
        let (Some(place), false) = (place, is_ending || self.facts.is_over(&parent)) else {
            // The parent was asked to end, and waits until then. An answer would be recorded as the
            // call's result, so a resumed run could not make the call again.
            return;
        };
        if let Some(reason) = self.facts.refusal(place, &delegation) {
            return self.answer(&parent, &delegation.call, Err(Refused(reason)));
        }
        let agent = self.facts.next_child(&parent, &delegation.agent);
        self.facts.coming.insert(delegation.call.clone(), agent.clone());
        self.facts.shares.count(self.facts.whole(place), 1);
        let owner = self.facts.owner(place, Rank::Child);
        self.facts.slots.want_child(owner, place, Child { agent, parent, task, delegation });
    }

    pub(super) fn answer(
        &mut self,
        parent: &AgentId,
        call: &CallKey,
        answer: Result<ChildResult, Refused>,
    ) {
        // A parent without an actor asks again after it has resumed.
        if self.facts.stage(parent) == Some(Stage::Live) {
            self.facts.asking.note_loose(parent);
            self.reply(parent.clone(), call.as_str(), Reply::Child(answer));
        }
    }

    /// Records a new child that has got a slot.
    pub(super) fn start_child(&mut self, child: Child) {
        let Child { agent: id, parent, task, delegation } = child;
        let schema = self.facts.schema_of_child(&delegation);
        let Delegation { depth, call, agent, mut prompt, timeout, .. } = delegation;
        if let Some(schema) = &schema {
            prompt.push_str(FORM);
            prompt.push_str(schema.as_str());
        }
        let place = self.facts.settings.plan.place(&task).filter(|_| !self.facts.is_over(&parent));
        let Some(place) = place else { return self.facts.forget_coming(&task, &call) };
        let owner = self.facts.owner(place, Rank::Child);
        self.facts.slots.begin(id.clone(), Rank::Child, owner, place);
        self.facts.begins_soon_below(&parent);
        let definition = |id: &AgentId| self.facts.state.agents().get(id)?.definition.clone();
        let lineage = self.facts.line_of(&parent).iter().filter_map(definition).collect();
        let spawned = AgentSpawned {
            program: Program::Model { agent, prompt: prompt.into() },
            depth,
            parent: Some(parent),
            call: Some(call),
            lineage,
            check: None,
            answer_schema: schema,
            timeout_ms: timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        };
        self.record(vec![Draft::agent(&task, &id, spawned)]);
    }

    /// Handles the wish of an agent to continue after its children have ended.
    pub(super) fn wants_slot(&mut self, agent: AgentId) {
        self.facts.asking.forget_loose(&agent);
        if self.facts.slots.holds(&agent) {
            // All its delegations were refused, so it never gave its slot back.
            return self.grant_slot(agent);
        }
        let rank = self.facts.rank(&agent);
        self.facts.slots.return_to(agent, rank);
    }

    fn grant_slot(&mut self, agent: AgentId) {
        self.reply(agent, "", Reply::Slot(()));
    }

    /// Continues an agent that got its slot back.
    pub(super) fn slot_granted(&mut self, agent: AgentId) {
        match self.facts.stage(&agent) {
            Some(Stage::Live) => self.grant_slot(agent),
            // It waits for the end of its pause, and keeps the slot.
            Some(Stage::Idle) if self.facts.timers.is_set(&Timer::Restart(agent.clone())) => {}
            Some(Stage::Idle) => self.fold(&agent),
            // These agents continue by themselves, or end.
            Some(Stage::Folding | Stage::Restarting | Stage::Killed | Stage::Ending) => {}
            // A child mends its answer, or an attempt goes on without its agent: a check follows, or it is
            // asked again.
            None => match self.facts.answers.get(&agent) {
                Some(Answer::IsMended(_)) => self.post(Decision::MendAnswer(agent)),
                _ => self.facts.touch_task_of(&agent),
            },
        }
    }

    /// Starts an agent after its first record became durable.
    pub(super) fn spawned(&mut self, id: &AgentId, record: &SharedRecord) {
        let status = self.facts.state.agents().get(id);
        let (call, parent) = status.map_or((None, None), |s| (s.call.clone(), s.parent.clone()));
        if let Some(call) = call {
            self.facts.coming.remove(&call);
        }
        parent.iter().for_each(|parent| self.facts.begins_below(parent));
        self.facts.is_counted(id);
        self.facts.agents.insert(id.clone(), OpenAgent::new(Stage::Idle));
        if self.facts.interrupted.is_some() {
            return;
        }
        if let Some(outcome) = self.facts.sentence(id) {
            return self.end_agent(id, outcome);
        }
        self.facts.set_stage(id, Stage::Live);
        self.actions.push_back(Action::Spawn { agent: id.clone(), born: record.clone() });
        self.post(Decision::LimitAgent(id.clone()));
        if self.facts.state.agents().get(id).is_some_and(|agent| agent.check.is_some()) {
            self.post(Decision::LimitAttemptOf(id.clone()));
        }
    }

    /// Handles the end of an agent's actor.
    pub(super) fn gone(&mut self, id: &AgentId, error: Option<String>) {
        let killed = match self.facts.stage(id) {
            Some(Stage::Killed) => Some(KILLED.to_owned()),
            Some(Stage::Live | Stage::Folding) => None,
            // The end of such an agent is recorded, or it has no actor.
            Some(Stage::Idle | Stage::Restarting | Stage::Ending) | None => return,
        };
        self.facts.timers.cancel(&Timer::EndOverdue(id.clone()));
        self.facts.timers.cancel(&Timer::KillOverdue(id.clone()));
        self.facts.set_stage(id, Stage::Idle);
        // An actor that ended without an error was interrupted.
        let Some(error) = error.or(killed) else { return };
        if self.facts.interrupted.is_none() {
            self.crashed(id, &error);
        }
    }

    /// Restarts a crashed agent or ends it, as its restart policy says.
    fn crashed(&mut self, id: &AgentId, error: &str) {
        if self.facts.told(id).is_some() {
            return self.end_idle(vec![id.clone()]);
        }
        let Some(status) = self.facts.state.agents().get(id) else { return };
        let spec = status.definition.as_ref().and_then(|name| self.facts.settings.agents.get(name));
        let policy = spec.map(|spec| spec.restart).unwrap_or_default();
        let (task, restart) = (status.task.clone(), status.restarts + 1);
        let times = status.restarted.iter().map(|at| at.since(Reading::default()));
        if RestartWindow::after(times).admit(&policy, self.facts.open_time()) {
            self.facts.set_stage(id, Stage::Restarting);
            let reason = error.to_owned();
            let restarted = AgentRestarted { restart, reason, feedback: None };
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
        if self.facts.stage(id) != Some(Stage::Restarting) {
            return;
        }
        self.facts.set_stage(id, Stage::Idle);
        if self.facts.interrupted.is_some() {
            return;
        }
        if self.facts.told(id).is_some() {
            return self.end_idle(vec![id.clone()]);
        }
        let at = self.facts.now.since + RestartPolicy::pause(restart);
        self.facts.timers.set(at, Timer::Restart(id.clone()));
    }

    /// Restarts a crashed agent after its pause. One that crashed while it had no slot first gets
    /// one, unless it waits for children.
    pub(super) fn restart_agent(&mut self, id: &AgentId) {
        // It may have been resumed before, with a slot that it waited for when it crashed.
        if self.facts.stage(id) != Some(Stage::Idle) {
            return;
        }
        let waits = self.facts.has_open_children(id) || self.facts.has_open_question(id);
        if self.facts.slots.holds(id) || waits {
            return self.fold(id);
        }
        let rank = self.facts.rank(id);
        self.facts.slots.return_to(id.clone(), rank);
    }

    /// Asks for the records of an agent to be folded, if it has no actor.
    pub(super) fn fold(&mut self, id: &AgentId) {
        if self.facts.stage(id) == Some(Stage::Idle) && self.facts.interrupted.is_none() {
            self.facts.set_stage(id, Stage::Folding);
            self.actions.push_back(Action::Fold(id.clone()));
        }
    }

    /// Starts the actor of an agent whose records were folded.
    pub(super) fn folded(&mut self, id: &AgentId) {
        if self.facts.stage(id) != Some(Stage::Folding) {
            return;
        }
        self.facts.set_stage(id, Stage::Idle);
        if self.facts.interrupted.is_some() {
            return;
        }
        if self.facts.told(id).is_some() {
            return self.end_idle(vec![id.clone()]);
        }
        self.facts.left.remove(id);
        self.facts.set_stage(id, Stage::Live);
        if !self.facts.slots.holds(id) {
            self.facts.asking.note_loose(id);
        }
        self.actions.push_back(Action::Start(id.clone()));
        self.post(Decision::LimitAgent(id.clone()));
    }

    /// Asks an agent and its children to end.
    pub(super) fn end_agent(&mut self, id: &AgentId, outcome: Outcome) {
        let Some(agent) = self.facts.agents.get_mut(id) else { return };
        if agent.told.is_some() || agent.stage == Stage::Ending {
            return;
        }
        agent.told = Some(outcome.clone());
        match agent.stage {
            Stage::Live => {
                self.actions.push_back(Action::End { agent: id.clone(), outcome });
                let at = self.facts.now.since + self.facts.end_grace();
                self.facts.timers.set(at, Timer::EndOverdue(id.clone()));
            }
            Stage::Idle => self.end_idle(vec![id.clone()]),
            // It ends as soon as its record is durable, its fold is done, or its actor is gone.
            Stage::Folding | Stage::Restarting | Stage::Killed | Stage::Ending => {}
        }
        self.end_children(id, PARENT_STOPPED);
    }

    /// Ends the children of an agent, and drops those that wait for a slot.
    fn end_children(&mut self, parent: &AgentId, reason: &str) {
        let Some(status) = self.facts.state.agents().get(parent) else { return };
        let (place, children) =
            (self.facts.settings.plan.place(&status.task), status.children.clone());
        let is_theirs = |child: &Child| child.parent == *parent;
        let forgotten = place.map(|place| self.facts.slots.forget_children(place, is_theirs));
        for child in forgotten.unwrap_or_default() {
            self.facts.forget_coming(&child.task, &child.delegation.call);
        }
        for child in children {
            self.post(Decision::ForgetAnswer(child.clone()));
            self.end_agent(&child, Outcome::Cancelled { reason: reason.to_owned() });
        }
    }

    /// Asks for the ends of agents without an actor to be recorded, with the outcomes that they
    /// were given.
    pub(super) fn end_idle(&mut self, agents: Vec<AgentId>) {
        let mut ends = Vec::with_capacity(agents.len());
        for id in agents {
            self.facts.timers.cancel(&Timer::Restart(id.clone()));
            self.facts.left.remove(&id);
            // A slot that the agent holds is released when its subtree has ended.
            self.facts.slots.withdraw(&id);
            self.facts.set_stage(&id, Stage::Ending);
            if let Some(outcome) = self.facts.told(&id).cloned() {
                ends.push((id, outcome));
            }
        }
        if !ends.is_empty() {
            self.actions.push_back(Action::EndIdle(ends));
        }
    }

    /// Handles the recorded end of an agent.
    pub(super) fn ended(&mut self, id: &AgentId) {
        self.facts.timers.cancel(&Timer::EndOverdue(id.clone()));
        self.facts.timers.cancel(&Timer::KillOverdue(id.clone()));
        self.facts.timers.cancel(&Timer::AgentLimit(id.clone()));
        self.facts.remove(id);
        self.facts.left.remove(id);
        self.facts.ordinals.remove(id);
        self.end_children(id, PARENT_ENDED);
        for agent in self.facts.line_of(id) {
            if !self.facts.is_subtree_over(&agent) {
                break;
            }
            self.subtree_ended(&agent);
        }
        self.facts.touch_task_of(id);
    }

    /// Releases the slot of an agent whose whole subtree has ended. That of a child is released with its result.
    fn subtree_ended(&mut self, id: &AgentId) {
        let Some(status) = self.facts.state.agents().get(id) else { return };
        if status.call.is_some() {
            return self.post(Decision::EndChild(id.clone()));
        }
        let (parent, is_check) = (status.parent.clone(), status.check.is_some());
        let current = self.facts.state.task(&status.task).and_then(|task| task.agent.clone());
        if let Some(main) =
            parent.as_ref().filter(|main| is_check && current.as_ref() == Some(main))
        {
            self.facts.slots.hand_over(id, main.clone());
            self.facts.slots.withdraw(id);
        } else if current.as_ref() != Some(id) {
            // The slot of a task's current agent is released at the end of the attempt.
            self.facts.slots.release(id);
        }
    }
}
