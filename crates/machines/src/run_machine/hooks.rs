//! Decides when the hooks of the run itself begin, and what follows from their ends.
//!
//! A hook is recorded before it starts. It is never started a second time: if its end is not known
//! after a crash, that is recorded in its place. Only one that a pause has ended comes again when the run
//! goes on. `on_start` comes before everything else; those of an end come when all tasks have ended and before
//! the result is recorded, and cannot change it.
//!
//! The hooks of states (a pause, an opening, a question, a budget) run once for each state, one after the other, beside the
//! work. Nothing waits for them but a pause and the end of the run.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::decision::Decision;
use super::desk::Desk;
use super::timers::Timer;
use super::{Action, Facts};
use crate::event::{BudgetWarned, Draft, Event, PauseCause, RunCompleted, RunStatus, SharedRecord};
use crate::failure::{Failure, FailureKind};
use crate::run_state::{BudgetState, HookState};
use crate::spec::budget::OnExceed;
use crate::spec::hooks::{Hook, HookFinished, HookStarted};
use crate::spending::Usd;

/// Reason for the failure of a hook whose process ended before its end was recorded.
const UNKNOWN: &str =
    "it was interrupted, and nobody knows how far it had come; it is not run again";

/// The hooks of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Hooks {
    /// The hook whose beginning or end is on its way to the journal, or which is at work.
    begun: Option<Begun>,
    /// True if that one was told to end.
    must_end: bool,
    /// The states whose hooks come next.
    waiting: VecDeque<State>,
}

/// A hook that has begun.
#[derive(Clone, Debug)]
struct Begun {
    hook: Hook,
    /// The state for which it runs; empty for the beginning and the end of a run.
    about: String,
    /// What it reads.
    input: Value,
}

/// A state for which a hook may run.
#[derive(Clone, Debug)]
enum State {
    /// The run was opened again.
    Resumed,
    /// The run waits, and its process stays.
    Paused(String, PauseCause),
    /// A person is asked, by the id of the question.
    Question(String),
    /// A share of a budget is spent, or it is used up, by the name of the state.
    Budget(String),
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

    /// Returns the hook of a state, if it is set and did not run; `None` also if the state is over.
    fn hook_of(&self, state: &State) -> Option<Begun> {
        let opened = self.state.opened_seq();
        let (hook, about, own) = match state {
            State::Resumed => (Hook::RunResumed, format!("resumed-{opened}"), json!({})),
            State::Paused(_, PauseCause::Quota)
                if self.state.paused_cause() != Some(PauseCause::Quota) =>
            {
                return None;
            }
            State::Paused(reason, cause) => {
                let own = json!({ "reason": reason, "cause": cause });
                (Hook::RunPaused, format!("paused-{opened}"), own)
            }
            State::Question(id) => {
                let question = self.state.questions().get(id)?;
                let own = json!({ "question": {
                    "id": id,
                    "kind": question.asked.kind,
                    "text": question.asked.message,
                    "task": question.task,
                    "agent": question.agent,
                }});
                (Hook::Question, format!("question-{id}"), own)
            }
            State::Budget(name) => {
                let (_, budget) = self.state.budget_states().find(|(known, _)| *known == name)?;
                (Hook::OnBudget, name.clone(), json!({ "budget": of_budget(budget) }))
            }
        };
        let is_due = self.settings.hooks.contains(&hook) && !self.state.had_hook(&about);
        is_due.then(|| {
            let mut input = self.input_of_hook(None);
            if let (Value::Object(input), Value::Object(own)) = (&mut input, own) {
                input.extend(own);
            }
            Begun { hook, about, input }
        })
    }
}

impl Desk<'_, Hooks> {
    /// Finds the states whose hooks the last process left, and the hook whose end it did not record.
    pub(super) fn take_up(&mut self) {
        if let Some((hook, about)) = self.state.hook_of_state().cloned() {
            self.lose(hook, about);
        }
        if self.state.is_resumed() {
            self.own().waiting.push_back(State::Resumed);
        }
        let open: Vec<_> = self.state.questions().by_id().map(|(id, _)| id.to_owned()).collect();
        self.own().waiting.extend(open.into_iter().map(State::Question));
        let budgets: Vec<_> = self.state.budget_states().map(|(name, _)| name.clone()).collect();
        self.own().waiting.extend(budgets.into_iter().map(State::Budget));
    }

    /// Looks at a record that was applied.
    pub(super) fn taken_in(&mut self, record: &SharedRecord) {
        if self.settings.hooks.is_empty() {
            return;
        }
        let state = match &record.event {
            Event::ApprovalAsked(asked) => State::Question(asked.id.clone()),
            Event::RunOpened(_) if self.state.is_resumed() => State::Resumed,
            Event::RunPaused(paused) if paused.cause == PauseCause::Quota => {
                State::Paused(paused.reason.clone(), paused.cause)
            }
            event => match BudgetState::of(event) {
                Some(budget) => State::Budget(budget.name()),
                None => return,
            },
        };
        self.own().waiting.push_back(state);
    }

    /// Has the hook of the next state run. While the process is told to stop, no further one begins: it comes when the
    /// run goes on.
    pub(super) fn start_next(&mut self) {
        let may_begin = !self.pauses.is_disk_full() && self.pauses.lets_hooks_begin();
        while may_begin && !self.hooks.is_at_work() {
            let Some(state) = self.own().waiting.pop_front() else { return };
            if let Some(begun) = self.hook_of(&state) {
                self.begin(begun);
            }
        }
    }

    /// Has a pause with which the process ends recorded, after its hook.
    pub(super) fn pause(&mut self, reason: String, cause: PauseCause) {
        // On a full disk nothing can be recorded of a hook.
        let state = State::Paused(reason.clone(), cause);
        match self.hook_of(&state).filter(|_| !self.pauses.is_disk_full()) {
            _ if self.hooks.is_at_work() => {}
            Some(begun) => self.begin(begun),
            None => self.post(Decision::TellOfPause(reason, cause)),
        }
    }

    /// Handles a recorded beginning: only now may the hook run.
    pub(super) fn started(&mut self, hook: Hook) {
        if let Some(Begun { hook: begun, input, .. }) = self.hooks.begun.clone()
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
        let about = self.hooks.begun.as_ref().map(|begun| begun.about.clone()).unwrap_or_default();
        self.record(vec![Draft::run(HookFinished { paused, about, ..finished })]);
    }

    /// Handles a recorded end.
    pub(super) fn ended(&mut self) {
        let own = self.own();
        (own.begun, own.must_end) = (None, false);
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
                self.begin_at(Hook::OnStart, None);
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
        if !self.waits_for_end(&result) && !self.hooks.is_at_work() {
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
                    self.begin_at(hook, Some(result));
                    return true;
                }
            }
        }
        false
    }

    /// Has the hook of the beginning or of an end run.
    fn begin_at(&mut self, hook: Hook, result: Option<&RunCompleted>) {
        let input = self.input_of_hook(result);
        self.begin(Begun { hook, about: String::new(), input });
    }

    fn begin(&mut self, begun: Begun) {
        if !self.hooks.is_at_work() {
            let started = HookStarted { hook: begun.hook, about: begun.about.clone() };
            let own = self.own();
            (own.begun, own.must_end) = (Some(begun), false);
            self.record(vec![Draft::run(started)]);
        }
    }

    /// Returns true: a hook that began has not ended. If an earlier process began it, its end is
    /// recorded as unknown.
    fn waits_for(&mut self, hook: Hook) -> bool {
        if !self.hooks.is_at_work() {
            self.lose(hook, String::new());
        }
        true
    }

    /// Records the end of a hook that an earlier process began as unknown.
    fn lose(&mut self, hook: Hook, about: String) {
        let finished = HookFinished::new(hook, Some(UNKNOWN.to_owned()));
        let finished = HookFinished { about: about.clone(), ..finished };
        self.own().begun = Some(Begun { hook, about, input: Value::Null });
        self.record(vec![Draft::run(Event::from(finished))]);
    }

    /// Ends the hook that is at work, if one is: the run is told to stop.
    pub(super) fn end(&mut self) {
        if self.hooks.is_at_work() {
            self.own().must_end = true;
            self.act(Action::EndHook);
        }
    }
}

/// Returns what a hook reads of the state of a budget.
fn of_budget(state: &BudgetState) -> Value {
    let (scope, caps, settled, unsettled, own) = match state {
        BudgetState::Warned(BudgetWarned { scope, share, caps, settled, unsettled }) => {
            let own = json!({ "state": "warned", "share": f64::from(*share) / 1_000.0 });
            (scope, caps, settled, unsettled, own)
        }
        BudgetState::Exceeded(event) => {
            let state = match event.on_exceed {
                OnExceed::Pause => "paused",
                OnExceed::Stop => "stopped",
                OnExceed::Warn => "passed",
            };
            let own = json!({ "state": state, "measure": event.measure, "message": event.words() });
            (&event.scope, &event.caps, &event.settled, &event.unsettled, own)
        }
    };
    let mut fields = json!({
        "scope": scope,
        "of": scope.words(),
        "limits": {
            "max_cost_usd": caps.max_cost.map(Usd::dollars),
            "max_tokens": caps.max_tokens,
            "max_calls": caps.max_calls,
            "max_time_ms": caps.max_time_ms,
        },
        "settled": settled.json(),
        "unsettled": unsettled.json(),
    });
    if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
        fields.extend(own);
    }
    fields
}

#[cfg(test)]
mod tests;
