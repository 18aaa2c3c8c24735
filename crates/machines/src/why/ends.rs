//! Why a task or an agent ended as it did. Decides the relation, never the words.

use super::{Link, Relation, Subject, Why, link};
use crate::failure::{Failure, FailureClass, FailureKind};
use crate::id::{AgentId, Name};
use crate::plan::{Standing, TaskState};
use crate::run_state::{AgentStatus, TaskStatus};
use crate::spec::budget::Scope;
use crate::turn::Outcome;

impl Why<'_> {
    pub(super) fn ended_task(&self, name: &Name, task: &TaskStatus) -> Vec<Link> {
        let of_task = |relation| vec![link(Subject::Task(name.clone()), relation, task.since)];
        let reason = || task.reason.clone().unwrap_or_default();
        match task.state {
            TaskState::Failed => {
                let Some(failure) = &task.failure else { return Vec::new() };
                let of = self.first_failed(name, task, failure);
                of_task(limited(failure, of, self.budget_of(task.agent.as_ref(), failure)))
            }
            TaskState::Skipped => match &task.because {
                Some(of) => of_task(Relation::BlockedByFailure { of: of.clone() }),
                None => of_task(Relation::SkippedBecause { reason: reason() }),
            },
            TaskState::Cancelled => {
                let of = self.state.fan_out_of(name).filter(|(_, of)| of.state.is_end());
                let of = of.map(|(of, _)| Subject::Task(of.clone()));
                of_task(Relation::CancelledBy { reason: reason(), of })
            }
            TaskState::Completed | TaskState::Reused => {
                let undone = self.state.shortfalls_of_task(name);
                match undone.is_empty() {
                    true => Vec::new(),
                    false => of_task(Relation::PartialBecause { undone }),
                }
            }
            TaskState::Pending | TaskState::Ready | TaskState::Running | TaskState::Waiting => {
                Vec::new()
            }
        }
    }

    /// Returns what made the failure of a task inevitable: an instance, a task before it, or one of its agents.
    fn first_failed(&self, name: &Name, task: &TaskStatus, failure: &Failure) -> Option<Subject> {
        let is_failed = |name: &&Name| self.state.standing(name) == Standing::Failed;
        let first = |names: &mut dyn Iterator<Item = &Name>| {
            let failed = names.filter(is_failed);
            failed.min_by_key(|name| self.state.task(name).map(|task| task.since)).cloned()
        };
        let instance = first(&mut task.instances.iter().map(|(name, _)| name));
        if let Some(instance) = instance.filter(|_| failure.kind == FailureKind::InstancesFailed) {
            return Some(Subject::Task(instance));
        }
        let refuted = |id: &&AgentId| {
            let check = self.state.agents().get(*id);
            matches!(check.and_then(|check| check.outcome.as_ref()), Some(Outcome::Failed { .. }))
        };
        if failure.kind == FailureKind::CheckFailed {
            let checks: Vec<_> = self.state.checks_of_task(name).map(|(id, _)| id).collect();
            let found = checks.iter().rev().find(|id| refuted(id)).or_else(|| checks.last());
            return found.map(|id| Subject::Agent((*id).clone()));
        }
        let main = task.agent.as_ref().filter(refuted)?;
        Some(Subject::Agent(main.clone()))
    }

    pub(super) fn ended_agent(
        &self,
        id: &AgentId,
        agent: &AgentStatus,
        outcome: &Outcome,
    ) -> Vec<Link> {
        let relation = match outcome {
            Outcome::Failed { failure, .. } => {
                limited(failure, None, self.budget_of(Some(id), failure))
            }
            Outcome::Cancelled { reason } => {
                let parent = agent.parent.as_ref().and_then(|id| self.state.agents().get(id));
                let is_over = parent.is_some_and(|parent| parent.outcome.is_some());
                let of = agent.parent.clone().filter(|_| is_over).map(Subject::Agent);
                Relation::CancelledBy { reason: reason.clone(), of }
            }
            Outcome::Completed { .. } if agent.shortfalls.is_empty() => return Vec::new(),
            Outcome::Completed { .. } => {
                Relation::PartialBecause { undone: agent.shortfalls.clone() }
            }
        };
        vec![link(Subject::Agent(id.clone()), relation, agent.since)]
    }
}

/// Returns the relation of a failure: that of what limited it, or of the circle in which an agent went.
fn limited(failure: &Failure, of: Option<Subject>, scope: Option<Scope>) -> Relation {
    let (kind, message) = (failure.kind, failure.message.clone());
    if kind == FailureKind::NoProgress && of.is_none() {
        return Relation::LoopStopped { rule: message };
    }
    match kind.class() {
        FailureClass::Limit | FailureClass::Time => {
            Relation::LimitedBy { failure: kind, message, of, scope }
        }
        FailureClass::Provider
        | FailureClass::Request
        | FailureClass::Denied
        | FailureClass::Crash
        | FailureClass::Bug
        | FailureClass::Work => Relation::FailedBecause { failure: kind, message, of },
    }
}
