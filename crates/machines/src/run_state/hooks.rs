//! The hooks of a run: which began, how they ended, and how often those that run many times did not work.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{RunPhase, RunState};
use crate::event::{BudgetExceeded, BudgetWarned, Event, PauseCause, Record, RunOpened};
use crate::spec::hooks::{Hook, HookFinished, HookStarted};

/// The state of a hook that began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookState {
    /// Its beginning is recorded, and its end is not.
    Begun,
    /// It did its work.
    Done,
    /// It did not do its work, for this reason.
    Failed(String),
}

/// A state of a budget: a share of it is spent, or it is used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetState {
    /// A share of it is spent.
    Warned(BudgetWarned),
    /// It is used up.
    Exceeded(BudgetExceeded),
}

impl BudgetState {
    /// Takes the state of which an event tells.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        match event {
            Event::BudgetWarned(warned) => Some(Self::Warned((**warned).clone())),
            Event::BudgetExceeded(exceeded) => Some(Self::Exceeded((**exceeded).clone())),
            _ => None,
        }
    }

    /// Returns the name of the state. A budget whose limits somebody changed has other states.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Warned(BudgetWarned { scope, share, caps, .. }) => {
                format!("budget-{scope}-{share}-of-{caps}")
            }
            Self::Exceeded(BudgetExceeded { scope, caps, .. }) => {
                format!("budget-{scope}-used-up-of-{caps}")
            }
        }
    }
}

/// The hooks of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hooks {
    /// The hooks of the run itself, since it began or was last begun again.
    of_run: BTreeMap<Hook, HookState>,
    /// The number of times that a hook of tools or of states did not work, and the first reason.
    repeated: BTreeMap<Hook, (u64, String)>,
    /// The states for which a hook ran or began.
    states: BTreeSet<String>,
    /// The hook of a state that began and has not ended, with its state.
    begun: Option<(Hook, String)>,
    /// The states of budgets whose hook has not ended, by the name of the state.
    #[serde(default)]
    budgets: BTreeMap<String, BudgetState>,
    /// Number of the record of the newest opening.
    opened_seq: u64,
    /// True if that was not the first, and not the end of a wait for disk space.
    is_resumed: bool,
    /// True if the process before that one had recorded no end.
    has_died: bool,
}

impl Hooks {
    /// Takes in a record of this run itself: a fork runs the hooks of its own states.
    pub(super) fn note(&mut self, record: &Record, phase: RunPhase, paused: Option<PauseCause>) {
        match &record.event {
            Event::RunOpened(RunOpened { reason, .. }) => {
                self.has_died = self.opened_seq > 0 && reason.is_none() && phase == RunPhase::Open;
                // Nothing could be recorded of a hook while the disk was full, so there was none.
                let had_no_hook = reason.is_some() && paused == Some(PauseCause::DiskFull);
                self.is_resumed = self.opened_seq > 0 && !had_no_hook;
                self.opened_seq = record.seq;
            }
            Event::HookStarted(HookStarted { hook, about }) if !about.is_empty() => {
                self.states.insert(about.clone());
                self.begun = Some((*hook, about.clone()));
            }
            Event::HookFinished(finished) if !finished.about.is_empty() => {
                self.begun = None;
                match finished.paused {
                    true => drop(self.states.remove(&finished.about)),
                    false => drop(self.budgets.remove(&finished.about)),
                }
            }
            event => {
                let state = BudgetState::of(event);
                if let Some(state) = state.filter(|state| !self.states.contains(&state.name())) {
                    self.budgets.insert(state.name(), state);
                }
            }
        }
    }

    pub(super) fn started(&mut self, started: &HookStarted) {
        if started.about.is_empty() {
            self.of_run.insert(started.hook, HookState::Begun);
        }
    }

    pub(super) fn finished(&mut self, finished: &HookFinished) {
        let error = finished.error.clone();
        match finished.hook {
            hook @ (Hook::PreToolUse
            | Hook::PostToolUse
            | Hook::RunPaused
            | Hook::RunResumed
            | Hook::Question
            | Hook::OnBudget) => {
                // One that a pause has ended comes again. Those of tools are recorded only if they did not work.
                let counts = !finished.paused && (error.is_some() || finished.about.is_empty());
                if counts {
                    let first = error.unwrap_or_default();
                    self.repeated.entry(hook).or_insert((0, first)).0 += 1;
                }
            }
            // It comes again when the run goes on.
            hook if finished.paused => drop(self.of_run.remove(&hook)),
            hook => {
                self.of_run.insert(hook, error.map_or(HookState::Done, HookState::Failed));
            }
        }
    }

    /// Forgets the ends of a run that goes on, and a beginning that failed: they come again.
    pub(super) fn begin_again(&mut self) {
        let stays = |hook: &Hook, state: &HookState| {
            !hook.is_of_end() && !matches!(state, HookState::Failed(_))
        };
        self.of_run.retain(|hook, state| stays(hook, state));
    }
}

impl RunState {
    /// Returns the number of the last record that a fork shares with its parent; 0 for other runs.
    #[must_use]
    pub fn shared_seq(&self) -> u64 {
        self.created().and_then(|created| created.forked).map_or(0, |origin| origin.seq)
    }

    /// Returns the state of a hook of the run; `None` if it has not begun.
    #[must_use]
    pub fn hook(&self, hook: Hook) -> Option<&HookState> {
        self.hooks.of_run.get(&hook)
    }

    /// Returns the hook of the run that is at work, if one is.
    #[must_use]
    pub fn hook_at_work(&self) -> Option<Hook> {
        let begun = self.hooks.of_run.iter().find(|(_, state)| **state == HookState::Begun);
        let of_state = self.hooks.begun.as_ref().map(|(hook, _)| *hook);
        begun.map(|(hook, _)| *hook).or(of_state)
    }

    /// Returns the hook of a state that began and has not ended, with its state.
    #[must_use]
    pub fn hook_of_state(&self) -> Option<&(Hook, String)> {
        self.hooks.begun.as_ref()
    }

    /// Returns the states of budgets for which a hook is due, with their names. Whether the hook is set, whoever runs
    /// it knows.
    pub fn budget_states(&self) -> impl Iterator<Item = (&String, &BudgetState)> {
        self.hooks.budgets.iter().filter(|(name, _)| !self.had_hook(name))
    }

    /// Returns true if a hook ran or began for this state.
    #[must_use]
    pub fn had_hook(&self, about: &str) -> bool {
        self.hooks.states.contains(about)
    }

    /// Returns the number of the record by which the run was opened last.
    #[must_use]
    pub fn opened_seq(&self) -> u64 {
        self.hooks.opened_seq
    }

    /// Returns true if the run was opened last because the process that drove it had died.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.hooks.has_died
    }

    /// Returns true if the run was opened last to go on, after a pause or the death of a process.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.hooks.is_resumed
    }

    /// Returns the hooks that did not work, each with a sentence.
    pub fn failed_hooks(&self) -> impl Iterator<Item = (Hook, String)> {
        let of_run = self.hooks.of_run.iter().filter_map(|(hook, state)| match state {
            HookState::Failed(reason) => Some((*hook, reason.clone())),
            HookState::Begun | HookState::Done => None,
        });
        let repeated = self.hooks.repeated.iter().map(|(hook, (count, reason))| match count {
            1 => (*hook, reason.clone()),
            count => (*hook, format!("{count} times, first: {reason}")),
        });
        of_run.chain(repeated)
    }
}
