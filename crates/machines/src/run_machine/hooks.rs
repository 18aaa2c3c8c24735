//! Decides when the hooks of the run itself begin, and what follows from their ends.
//!
//! A hook is recorded before it starts. It is never started a second time: if its end is not known
//! after a crash, that is recorded in its place. Only one that a pause has ended comes again when the run
//! goes on. `on_start` comes before everything else; the others come when all tasks have ended and before
//! the result is recorded, and cannot change it.

use serde_json::{Map, Value, json};

use super::decision::Decision;
use super::desk::Desk;
use super::timers::Timer;
use super::{Action, Facts};
use crate::event::{Draft, Event, RunCompleted, RunStatus};
use crate::failure::{Failure, FailureKind};
use crate::run_state::HookState;
use crate::spec::hooks::{Hook, HookFinished, HookStarted};

/// Reason for the failure of a hook whose process ended before its end was recorded.
const UNKNOWN: &str =
    "it was interrupted, and nobody knows how far it had come; it is not run again";

/// The hooks of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Hooks {
    /// The hook whose beginning or end is on its way to the journal, or which is at work, with what
    /// it reads.
    begun: Option<(Hook, Value)>,
    /// True if that one was told to end.
    must_end: bool,
}

impl Hooks {
    /// Returns true if the end of a hook that has begun is not recorded.
    pub(super) fn is_at_work(&self) -> bool {
        self.begun.is_some()
    }
}

impl Facts {
    /// Returns what a hook reads of the run.
    fn input_of_hook(&self, result: Option<&RunCompleted>) -> Value {
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

impl Desk<'_, Hooks> {
    /// Handles a recorded beginning: only now may the hook run.
    pub(super) fn started(&mut self, hook: Hook) {
        if let Some((begun, input)) = self.hooks.begun.clone()
            && begun == hook
        {
            self.act(Action::RunHook { hook, input });
            // It was told so while its beginning was on its way to the journal.
            if self.hooks.must_end {
                self.end();
            }
        }
    }

    /// Records an end. A hook that was told to end because the run pauses has not done its work.
    pub(super) fn finished(&mut self, finished: HookFinished) {
        let paused = self.hooks.must_end && self.pauses.is_interrupted();
        let paused = paused && finished.error.is_some();
        self.record(vec![Draft::run(HookFinished { paused, ..finished })]);
    }

    /// Handles a recorded end.
    pub(super) fn ended(&mut self) {
        *self.own() = Hooks::default();
    }

    /// Has `on_start` run before anything else. Returns true while nothing may begin.
    pub(super) fn waits_for_start(&mut self) -> bool {
        if !self.settings.hooks.contains(&Hook::OnStart) {
            return false;
        }
        let reason = match self.state.hook(Hook::OnStart) {
            Some(HookState::Done) => return false,
            Some(HookState::Failed(reason)) => reason.clone(),
            Some(HookState::Begun) => return self.waits_for(Hook::OnStart),
            // A run that is stopped before it began needs no beginning.
            None if self.stopping.is_stopped() => return false,
            None => {
                self.begin(Hook::OnStart, None);
                return true;
            }
        };
        if !self.stopping.is_stopped() {
            let message = format!("the hook on_start failed: {reason}; no task was started");
            let failure = Failure::new(FailureKind::CommandFailed, message);
            self.post(Decision::FailBeginning(failure));
        }
        false
    }

    /// Has the result of the run recorded, after the hooks of its end.
    pub(super) fn complete(&mut self, result: Box<RunCompleted>) {
        if !self.waits_for_end(&result) {
            self.post(Decision::TellOfEnd(result));
        }
    }

    /// Has the hooks of an end run, one after the other. Returns true until all have ended.
    fn waits_for_end(&mut self, result: &RunCompleted) -> bool {
        let first = match result.status {
            RunStatus::Completed => Some(Hook::OnSuccess),
            RunStatus::Failed | RunStatus::Partial => Some(Hook::OnFailure),
            RunStatus::Cancelled => None,
        };
        for hook in first.into_iter().chain([Hook::OnExit]) {
            match self.state.hook(hook) {
                _ if !self.settings.hooks.contains(&hook) => {}
                Some(HookState::Done | HookState::Failed(_)) => {}
                Some(HookState::Begun) => return self.waits_for(hook),
                None => {
                    self.post(Decision::CancelTimer(Timer::RunLimit));
                    self.begin(hook, Some(result));
                    return true;
                }
            }
        }
        false
    }

    fn begin(&mut self, hook: Hook, result: Option<&RunCompleted>) {
        if !self.hooks.is_at_work() {
            *self.own() =
                Hooks { begun: Some((hook, self.input_of_hook(result))), must_end: false };
            self.record(vec![Draft::run(HookStarted { hook })]);
        }
    }

    /// Returns true: a hook that began has not ended. If an earlier process began it, its end is
    /// recorded as unknown.
    fn waits_for(&mut self, hook: Hook) -> bool {
        if !self.hooks.is_at_work() {
            self.own().begun = Some((hook, Value::Null));
            let finished = HookFinished::new(hook, Some(UNKNOWN.to_owned()));
            self.record(vec![Draft::run(Event::from(finished))]);
        }
        true
    }

    /// Ends the hook that is at work, if one is: the run is told to stop.
    pub(super) fn end(&mut self) {
        if self.hooks.is_at_work() {
            self.own().must_end = true;
            self.act(Action::EndHook);
        }
    }
}
