//! The agents' lives: spawn, delegate, restart, end.

use ractor::{Actor, ActorId, ActorRef};
use tokio::sync::oneshot;

use super::{
    ChildReply, ChildResult, Delegation, Live, Refused, Service, State, Stop, Supervisor,
    SupervisorMsg,
};
use crate::actor::agent::{Agent, AgentMsg};
use crate::actor::ends::{self, Idle};
use crate::actor::slots::Rank;
use crate::event::Draft;
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::agent_records::AgentRecords;
use crate::plan::TaskState;
use crate::policy::{RestartPolicy, RestartWindow};
use crate::run_state::Reading;
use crate::turn::{AgentEnded, AgentRestarted, AgentSpawned, Outcome, Program};

/// Why the children of an agent that was told to end are cancelled.
const PARENT_STOPPED: &str = "its parent was stopped";

impl Supervisor {
    /// A parent asks for a child, or for the child that the same call asked for before.
    pub(super) fn delegate(&self, state: &mut State, delegation: Delegation) {
        state.slots.release(&delegation.parent);
        let known = state.run.child_of_call(&delegation.key).or(state.calls.get(&delegation.key));
        if let Some(child) = known.cloned() {
            return Self::wait_for(state, child, delegation.reply);
        }
        let ending = state.interrupted.is_some() || state.stopped.is_some();
        if ending || Self::is_over(state, &delegation.parent) {
            // The parent is told to end: until then it waits. An answer would be recorded as the
            // call's result, and a resumed run could not make the call again.
            return;
        }
        let limits = &self.services.limits;
        let refusal = if delegation.depth > limits.max_depth {
            Some(format!("the delegation depth of {} is reached", limits.max_depth))
        } else if Self::descendants(state) >= limits.max_descendants {
            let most = limits.max_descendants;
            Some(format!("the run's limit of {most} children is reached; do the work yourself"))
        } else {
            None
        };
        if let Some(reason) = refusal {
            // A parent that is gone has nobody to tell.
            let _ = delegation.reply.send(Err(Refused(reason)));
            return;
        }
        let kind = (delegation.parent.clone(), delegation.agent.clone());
        let started = state.run.agents().get(&delegation.parent);
        let started = started.and_then(|parent| parent.children.get(&delegation.agent));
        let ordinal = state.ordinals.entry(kind).or_insert(started.copied().unwrap_or(0));
        *ordinal += 1;
        let child = delegation.parent.child(&delegation.agent, *ordinal);
        state.calls.insert(delegation.key.clone(), child.clone());
        state.waiting_children.push_back((child, delegation));
    }

    /// Children that were started, and those that wait or are on their way to the journal.
    fn descendants(state: &State) -> usize {
        let agents = state.run.agents();
        let started = agents.values().filter(|agent| agent.parent.is_some()).count();
        started + state.calls.values().filter(|child| !agents.contains_key(child)).count()
    }

    /// Whether an agent has ended or was told to.
    fn is_over(state: &State, id: &AgentId) -> bool {
        let ended = state.run.agents().get(id).is_none_or(|agent| agent.outcome.is_some());
        ended || state.condemned.contains_key(id)
    }

    /// Answers at once when the child has ended, else when it does.
    fn wait_for(state: &mut State, child: AgentId, reply: ChildReply) {
        let waiting = state.waiting_children.iter_mut().find(|(id, _)| *id == child);
        if let Some((_, delegation)) = waiting {
            // The child has not started: the parent was restarted meanwhile.
            delegation.reply = reply;
            return;
        }
        match Self::child_result(state, &child) {
            // A parent that is gone asks again after its restart.
            Some(result) => drop(reply.send(Ok(result))),
            None => state.waiters.entry(child).or_default().push(reply),
        }
    }

    fn child_result(state: &State, child: &AgentId) -> Option<ChildResult> {
        let status = state.run.agents().get(child)?;
        let outcome = status.outcome.clone()?;
        let (usage, _) = state.run.inclusive(child);
        Some(ChildResult { agent: child.clone(), outcome, turns: status.turn, usage })
    }

    /// Proposes the children that have room.
    pub(super) fn start_children(&self, state: &mut State) {
        while !state.waiting_children.is_empty() && state.slots.has_room(Rank::Child) {
            let Some((child, delegation)) = state.waiting_children.pop_front() else { return };
            let Delegation { parent, task, depth, key, agent, prompt, reply } = delegation;
            if Self::is_over(state, &parent) {
                state.calls.remove(&key);
                continue;
            }
            state.slots.take(child.clone(), Rank::Child);
            state.waiters.entry(child.clone()).or_default().push(reply);
            let spawned = AgentSpawned {
                program: Program::Model { agent, prompt },
                depth,
                parent: Some(parent),
                call: Some(key),
            };
            self.propose(state, vec![Draft::agent(&task, &child, spawned)]);
        }
    }

    /// An agent whose children have ended wants to go on.
    pub(super) fn take_slot(&self, state: &mut State, agent: AgentId, reply: oneshot::Sender<()>) {
        if state.slots.holds(&agent) {
            // None of its delegations was accepted, so it never gave the slot back.
            let _ = reply.send(());
            return;
        }
        let is_child = state.run.agents().get(&agent).is_some_and(|a| a.parent.is_some());
        let rank = if is_child { Rank::Child } else { Rank::Main };
        state.slots.queue(agent, rank, reply);
    }

    /// Gives an agent its actor; the records are all that it needs.
    pub(super) async fn spawn(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        id: &AgentId,
        records: AgentRecords,
    ) {
        let Some(status) = state.run.agents().get(id) else { return };
        if state.interrupted.is_some() {
            return;
        }
        if let Some(outcome) = Self::sentence(state, id) {
            let idle = Idle::new(id.clone(), status, records, outcome);
            return self.end_idle(state, vec![idle]);
        }
        let agent =
            Agent { services: self.services.clone(), id: id.clone(), task: status.task.clone() };
        match Actor::spawn_linked(None, agent, records, myself.get_cell()).await {
            Ok((actor, _)) => {
                state.by_actor.insert(actor.get_id(), id.clone());
                state.live.insert(id.clone(), Live { actor });
            }
            Err(error) => self.crashed(myself, state, id, &error.to_string()),
        }
    }

    /// How an agent must end that is about to get its actor: it was told to end before, or what it
    /// works for was stopped while its birth was on its way to the journal.
    fn sentence(state: &State, id: &AgentId) -> Option<Outcome> {
        if let Some(outcome) = state.condemned.get(id) {
            return Some(outcome.clone());
        }
        let status = state.run.agents().get(id)?;
        let cancelled = |reason: &str| Outcome::Cancelled { reason: reason.to_owned() };
        match &status.parent {
            Some(parent) => Self::is_over(state, parent).then(|| cancelled(PARENT_STOPPED)),
            None => {
                let of_task = || state.cancel_requested.get(&status.task).map(|r| cancelled(r));
                state.stopped.as_ref().map(Stop::outcome).or_else(of_task)
            }
        }
    }

    /// An actor is gone: with an error it crashed.
    pub(super) async fn gone(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        actor: ActorId,
        error: Option<String>,
    ) {
        if let Some(service) = state.services_by_actor.remove(&actor) {
            return self.service_gone(myself, state, service, error).await;
        }
        let Some(id) = state.by_actor.remove(&actor) else { return };
        state.live.remove(&id);
        self.services.addresses.agents.remove(&id);
        let ended = state.run.agents().get(&id).is_none_or(|agent| agent.outcome.is_some());
        if let Some(error) = error.filter(|_| !ended && !state.ending.contains(&id)) {
            self.crashed(myself, state, &id, &error);
        }
    }

    async fn service_gone(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        service: Service,
        error: Option<String>,
    ) {
        let Some(error) = error else { return };
        tracing::error!(?service, %error, "a serving actor crashed and is started again");
        if let Err(error) = self.start_service(myself, state, service).await {
            self.broken(myself, state, error.to_string());
        }
    }

    /// An agent crashed: its restart policy decides.
    fn crashed(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        id: &AgentId,
        error: &str,
    ) {
        if state.interrupted.is_some() || state.end.is_none() {
            return;
        }
        if Self::sentence(state, id).is_some() {
            return self.rebuild(myself, state, id, 1);
        }
        let Some(status) = state.run.agents().get(id) else { return };
        let spec = status.definition.as_ref().and_then(|name| self.services.agents.get(name));
        let policy = spec.map(|spec| spec.restart).unwrap_or_default();
        let (task, restart) = (status.task.clone(), status.restarts + 1);
        let times = status.restarted.iter().map(|at| at.since(Reading::default()));
        if RestartWindow::after(times).admit(&policy, state.open_time()) {
            tracing::warn!(agent = %id, restart, error, "an agent crashed and is restarted");
            let restarted = AgentRestarted { restart, reason: error.to_owned() };
            return self.propose(state, vec![Draft::agent(&task, id, restarted)]);
        }
        let message = match restart {
            1 => error.to_owned(),
            _ => format!("{error} (after {} restarts)", restart - 1),
        };
        let failure = Failure::new(FailureKind::Crashed, message);
        state.condemned.insert(id.clone(), Outcome::Failed { failure, partial: None });
        self.rebuild(myself, state, id, 1);
    }

    /// Reads the records of a crashed agent after a pause, off the mailbox: it is restarted, or ends
    /// if it was told to.
    pub(super) fn rebuild(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        id: &AgentId,
        restart: u32,
    ) {
        let (services, myself, agent) = (self.services.clone(), myself.clone(), id.clone());
        state.work.spawn(async move {
            tokio::time::sleep(RestartPolicy::pause(restart)).await;
            let records = services.journal.agent_records(&agent).await.map(AgentRecords::Held);
            // A supervisor that is gone restarts nobody.
            let _ = myself.send_message(SupervisorMsg::Rebuilt { agent, records });
        });
    }

    pub(super) async fn rebuilt(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        agent: AgentId,
        records: Result<AgentRecords, JournalError>,
    ) {
        match records {
            Ok(records) => self.spawn(myself, state, &agent, records).await,
            Err(error) => {
                self.finish(myself, state, super::RunEnd::JournalFailed(error));
            }
        }
    }

    /// Tells an agent and its children to end. One without an actor ends when it would come back.
    pub(super) fn end_agent(&self, state: &mut State, id: &AgentId, outcome: Outcome) {
        let open = state.run.agents().get(id).is_some_and(|agent| agent.outcome.is_none());
        if !open || state.ending.contains(id) {
            return;
        }
        let outcome = state.condemned.entry(id.clone()).or_insert(outcome).clone();
        if let Some(live) = state.live.get(id) {
            // One that is gone ends when it would come back.
            let _ = live.actor.send_message(AgentMsg::End(outcome));
        }
        self.end_children(state, id, PARENT_STOPPED);
    }

    fn end_children(&self, state: &mut State, parent: &AgentId, reason: &str) {
        let calls = &mut state.calls;
        state.waiting_children.retain(|(_, delegation)| {
            let stays = delegation.parent != *parent;
            if !stays {
                calls.remove(&delegation.key);
            }
            stays
        });
        let open = state.run.agents().iter().filter(|(_, child)| child.outcome.is_none());
        let children: Vec<_> = open
            .filter(|(_, child)| child.parent.as_ref() == Some(parent))
            .map(|(id, _)| id.clone())
            .collect();
        for child in children {
            let outcome = Outcome::Cancelled { reason: reason.to_owned() };
            self.end_agent(state, &child, outcome);
        }
    }

    /// Ends agents that have no actor and get none, off the mailbox.
    pub(super) fn end_idle(&self, state: &mut State, idle: Vec<Idle>) {
        state.ending.extend(idle.iter().map(|idle| idle.agent().clone()));
        let services = self.services.clone();
        state.work.spawn(async move {
            if let Err(error) = ends::record(&services, idle).await {
                services.tell_supervisor(SupervisorMsg::JournalFailed(error));
            }
        });
    }

    /// An agent's end is recorded: a child's slot is free, its parent gets the result.
    pub(super) fn agent_ended(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        id: &AgentId,
        ended: &AgentEnded,
    ) {
        let awaits = |task: &Name| {
            let task = state.run.task(task);
            task.is_some_and(|t| t.state == TaskState::Running && t.agent.as_ref() == Some(id))
        };
        let task = state.run.agents().get(id).map(|agent| agent.task.clone());
        let task = task.filter(awaits);
        if task.is_none() {
            // Otherwise the slot comes back with the end of the task's attempt.
            state.slots.release(id);
        }
        state.condemned.remove(id);
        state.ending.remove(id);
        self.end_children(state, id, "its parent has ended");
        if let Some(result) = Self::child_result(state, id) {
            for reply in state.waiters.remove(id).unwrap_or_default() {
                // A parent that is gone asks again after its restart.
                let _ = reply.send(Ok(result.clone()));
            }
        }
        if let Some(task) = task {
            self.settle(myself, state, &task, &ended.outcome);
        }
    }
}
