//! What holds up a run as a whole: a pause, a hook, a process that is gone.

use super::{Link, Relation, Subject, Why, link};
use crate::event::{PauseCause, RunStatus};
use crate::id::Name;
use crate::plan::{Standing, TaskState};
use crate::run_state::{Moment, RunPhase};

impl Why<'_> {
    /// Puts what holds up the whole run beside the causes of a part of it that has not ended.
    pub(super) fn with_stop(&self, subject: &Subject, mut found: Vec<Link>) -> Vec<Link> {
        let Some((relation, since)) = self.stop() else { return found };
        let stop = link(subject.clone(), relation, since);
        // These hold only what is about to begin; what is at work goes on, and others wait for that.
        if matches!(stop.relation, Relation::WaitsForDisk { .. } | Relation::WaitsForQuota { .. }) {
            let is_held = found.first().is_none_or(|first| holds(&stop.relation, &first.relation));
            if is_held || *subject == Subject::Run {
                found.insert(0, stop);
            }
            return found;
        }
        // An answer is wanted first: until it is given, a process that goes on has nothing to do here.
        let waits_for_person = matches!(
            found.first().map(|first| &first.relation),
            Some(
                Relation::WaitsForPerson { .. }
                    | Relation::WaitsForBudget { .. }
                    | Relation::PausedByPerson { .. }
            )
        );
        let is_for_people = self.state.paused_cause() == Some(PauseCause::Person);
        match waits_for_person || is_for_people {
            true => found.push(stop),
            false => found.insert(0, stop),
        }
        found
    }

    /// Returns what holds up the whole run, with the moment since which it does.
    fn stop(&self) -> Option<(Relation, Moment)> {
        let state = self.state;
        match state.phase() {
            RunPhase::Completed(_) => None,
            RunPhase::Open if self.is_live => None,
            RunPhase::Open => {
                let opening = state.opening();
                let (pid, by) = (opening.pid, opening.by.clone());
                Some((Relation::NoProcessDrives { pid, by }, state.last()))
            }
            RunPhase::Paused => Some((self.pause(), state.phase_since())),
        }
    }

    fn pause(&self) -> Relation {
        let cause = self.state.paused_cause().unwrap_or_default();
        let reason = self.state.paused_reason().unwrap_or_default().to_owned();
        match (cause, self.state.quotas().last()) {
            (PauseCause::DiskFull, _) if self.is_live => Relation::WaitsForDisk { reason },
            (PauseCause::Quota, Some((provider, closed))) if self.is_live => {
                Relation::WaitsForQuota {
                    provider: provider.clone(),
                    until_ms: closed.until_ms,
                    reason,
                }
            }
            _ => Relation::PausedBy { cause, reason },
        }
    }

    pub(super) fn of_run(&self) -> Vec<Link> {
        let state = self.state;
        if state.created().is_none() {
            return Vec::new();
        }
        if let RunPhase::Completed(status) = state.phase() {
            return self.ended_run(status);
        }
        let mut found = Vec::new();
        if let Some(hook) = state.hook_at_work().filter(|_| self.is_live) {
            found.push(link(Subject::Run, Relation::InHook { hook }, state.phase_since()));
        }
        let open = state.written_tasks().filter(|(_, task)| !task.state.is_end());
        let mut open: Vec<_> = open.map(|(name, _)| name).collect();
        self.heaviest_first(&mut open);
        let since = state.opening().at;
        let of = |name: &Name| {
            link(Subject::Run, Relation::WaitsForDependency { of: name.clone() }, since)
        };
        found.extend(open.into_iter().map(of));
        self.with_stop(&Subject::Run, found)
    }

    fn ended_run(&self, status: RunStatus) -> Vec<Link> {
        let (state, since) = (self.state, self.state.phase_since());
        if status == RunStatus::Completed {
            return Vec::new();
        }
        let bad = state.tasks().filter(|(_, task)| match status {
            RunStatus::Cancelled => task.state == TaskState::Cancelled,
            RunStatus::Failed | RunStatus::Partial => task.standing() == Standing::Failed,
            RunStatus::Completed => false,
        });
        let mut bad: Vec<_> = bad.map(|(name, task)| (task.ended_seq, name)).collect();
        // What failed first comes first.
        bad.sort_unstable();
        let of = |(_, name): (u64, &Name)| {
            link(Subject::Run, Relation::BlockedByFailure { of: name.clone() }, since)
        };
        let mut found: Vec<_> = bad.into_iter().map(of).collect();
        if found.is_empty() {
            let undone = state.shortfalls();
            found.push(link(Subject::Run, Relation::PartialBecause { undone }, since));
        }
        found
    }
}

/// Returns true if a pause that ends by itself holds what would otherwise be in this relation.
fn holds(pause: &Relation, relation: &Relation) -> bool {
    let calls = matches!(
        relation,
        Relation::InModelCall { .. }
            | Relation::WaitsForRetry { .. }
            | Relation::WaitsForRateLimit { .. }
    );
    let begins = matches!(
        relation,
        Relation::WaitsForSlot { .. } | Relation::BeingDecided | Relation::AboutToAct
    );
    begins || (calls && matches!(pause, Relation::WaitsForQuota { .. }))
}
