//! The hooks of a run: which began, how they ended, and how often those of tools did not work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::spec::hooks::{Hook, HookFinished};

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

/// The hooks of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hooks {
    /// The hooks of the run itself, since it began or was last begun again.
    of_run: BTreeMap<Hook, HookState>,
    /// The number of times that a hook of tools did not work, and the first reason.
    of_tools: BTreeMap<Hook, (u64, String)>,
}

impl Hooks {
    pub(super) fn started(&mut self, hook: Hook) {
        self.of_run.insert(hook, HookState::Begun);
    }

    pub(super) fn finished(&mut self, finished: &HookFinished) {
        let error = finished.error.clone();
        match finished.hook {
            hook @ (Hook::PreToolUse | Hook::PostToolUse) => {
                let first = error.unwrap_or_default();
                self.of_tools.entry(hook).or_insert((0, first)).0 += 1;
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
    /// Returns the state of a hook of the run; `None` if it has not begun.
    #[must_use]
    pub fn hook(&self, hook: Hook) -> Option<&HookState> {
        self.hooks.of_run.get(&hook)
    }

    /// Returns the hook of the run that is at work, if one is.
    #[must_use]
    pub fn hook_at_work(&self) -> Option<Hook> {
        let begun = self.hooks.of_run.iter().find(|(_, state)| **state == HookState::Begun);
        begun.map(|(hook, _)| *hook)
    }

    /// Returns the hooks that did not work, each with a sentence.
    pub fn failed_hooks(&self) -> impl Iterator<Item = (Hook, String)> {
        let of_run = self.hooks.of_run.iter().filter_map(|(hook, state)| match state {
            HookState::Failed(reason) => Some((*hook, reason.clone())),
            HookState::Begun | HookState::Done => None,
        });
        let of_tools = self.hooks.of_tools.iter().map(|(hook, (count, reason))| match count {
            1 => (*hook, reason.clone()),
            count => (*hook, format!("{count} times, first: {reason}")),
        });
        of_run.chain(of_tools)
    }
}
