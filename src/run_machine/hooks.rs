//! Decides when the hooks of the run itself begin, and what follows from their ends.
//!
//! A hook is recorded before it starts. It is never started a second time: if its end is not known
//! after a crash, that is recorded in its place. `on_start` comes before everything else; the others
//! come when all tasks have ended and before the result is recorded, and cannot change it.

use serde_json::{Map, Value, json};

use super::decision::Decision;
use super::facts::{Facts, Stop};
use super::timers::Timer;
use super::{Action, RunMachine};
use crate::event::{Draft, Event, RunCompleted, RunStatus};
use crate::failure::{Failure, FailureKind};
use crate::run_state::HookState;
use crate::spec::hooks::{Hook, HookFinished, HookStarted};

/// Reason for the failure of a hook whose process ended before its end was recorded.
const UNKNOWN: &str =
    "it was interrupted, and nobody knows how far it had come; it is not run again";

impl Facts {
    /// Returns what a hook reads of the run.
    fn input(&self, result: Option<&RunCompleted>) -> Value {
        let mut fields = json!({
            "run_id": self.settings.run,
            "workflow": self.settings.workflow,
            "inputs": self.settings.inputs,
        });
        if let (Value::Object(fields), Some(result)) = (&mut fields, result) {
            let tasks = result.tasks.iter().map(|(name, end)| {
                let error = end.error.as_ref().map(ToString::to_string);
                (name.to_string(), json!({ "state": end.state, "error": error }))
            });
            fields.insert("status".to_owned(), json!(result.status));
            fields.insert("tasks".to_owned(), Value::Object(tasks.collect::<Map<_, _>>()));
            fields.insert("usage".to_owned(), json!(result.usage));
            fields.insert("cost_usd".to_owned(), json!(result.cost_usd));
        }
        fields
    }
}

impl RunMachine {
    /// Handles a recorded beginning: only now may the hook run.
    pub(super) fn hook_started(&mut self, hook: Hook) {
        if let Some((begun, input)) = self.facts.hook.clone()
            && begun == hook
        {
            self.actions.push_back(Action::RunHook { hook, input });
            // The run was told to stop while the beginning was on its way to the journal.
            let is_late = self.facts.stopped.is_some() && hook == Hook::OnStart;
            if is_late || self.facts.interrupted.is_some() {
                self.end_hook();
            }
        }
    }

    /// Has `on_start` run before anything else. Returns true while nothing may begin.
    pub(super) fn waits_for_start(&mut self) -> bool {
        if !self.facts.settings.hooks.contains(&Hook::OnStart) {
            return false;
        }
        let reason = match self.facts.state.hook(Hook::OnStart) {
            Some(HookState::Done) => return false,
            Some(HookState::Failed(reason)) => reason.clone(),
            Some(HookState::Begun) => return self.waits_for_hook(Hook::OnStart),
            // A run that is stopped before it began needs no beginning.
            None if self.facts.stopped.is_some() => return false,
            None => {
                self.begin_hook(Hook::OnStart, None);
                return true;
            }
        };
        if self.facts.stopped.is_none() {
            let message = format!("the hook on_start failed: {reason}; no task was started");
            let failure = Failure::new(FailureKind::CommandFailed, message);
            // Nothing has begun that could be cleaned up.
            self.facts.is_cleanup_stopped = true;
            // One task shows why the run ended.
            if self.facts.state.first_failed().is_none() {
                self.facts.untold = Some(failure.clone());
            }
            self.post(Decision::Stop(Stop::Failed(failure)));
        }
        false
    }

    /// Has the hooks of an end run, one after the other. Returns true until all have ended.
    pub(super) fn waits_for_end(&mut self, result: &RunCompleted) -> bool {
        let first = match result.status {
            RunStatus::Completed => Some(Hook::OnSuccess),
            RunStatus::Failed | RunStatus::Partial => Some(Hook::OnFailure),
            RunStatus::Cancelled => None,
        };
        for hook in first.into_iter().chain([Hook::OnExit]) {
            match self.facts.state.hook(hook) {
                _ if !self.facts.settings.hooks.contains(&hook) => {}
                Some(HookState::Done | HookState::Failed(_)) => {}
                Some(HookState::Begun) => return self.waits_for_hook(hook),
                None => {
                    self.facts.timers.cancel(&Timer::RunLimit);
                    self.begin_hook(hook, Some(result));
                    return true;
                }
            }
        }
        false
    }

    fn begin_hook(&mut self, hook: Hook, result: Option<&RunCompleted>) {
        if self.facts.hook.is_none() {
            self.facts.hook = Some((hook, self.facts.input(result)));
            self.record(vec![Draft::run(HookStarted { hook })]);
        }
    }

    /// Returns true: a hook that began has not ended. If an earlier process began it, its end is
    /// recorded as unknown.
    fn waits_for_hook(&mut self, hook: Hook) -> bool {
        if self.facts.hook.is_none() {
            self.facts.hook = Some((hook, Value::Null));
            let finished = HookFinished::new(hook, Some(UNKNOWN.to_owned()));
            self.record(vec![Draft::run(Event::from(finished))]);
        }
        true
    }

    /// Ends the hook that is at work, if one is: the run is told to stop.
    pub(super) fn end_hook(&mut self) {
        if self.facts.hook.is_some() {
            self.actions.push_back(Action::EndHook);
        }
    }
}
