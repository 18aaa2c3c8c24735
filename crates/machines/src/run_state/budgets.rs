//! The budgets of a run, as its records tell: the limits that a person set, and what was reached.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::event::{BudgetExceeded, Event, Record};
use crate::id::Name;
use crate::spec::budget::{Caps, Scope};

/// What input of a model is multiplied with for a reservation, in hundredths, as long as no bound was broken.
pub const FACTOR: u32 = 100;

/// The budgets of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    by_scope: BTreeMap<Scope, Reached>,
    /// What input of a model is multiplied with, in hundredths, where a bound was broken.
    factors: BTreeMap<Name, u32>,
}

/// What became of the budget of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Reached {
    /// The limits that a person set.
    changed: Caps,
    /// When they were set last, in milliseconds since the Unix epoch.
    #[serde(default)]
    changed_ms: i64,
    exceeded: Option<Exceeded>,
    /// The shares that people were warned of, in thousandths.
    warned: BTreeSet<u16>,
}

/// A budget that a call did not fit, and which nobody raised since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceeded {
    /// The record's event.
    pub event: BudgetExceeded,
    /// Number of the record.
    pub seq: u64,
    /// Time of the record, in milliseconds since the Unix epoch.
    pub ts_ms: i64,
}

impl Budgets {
    /// Takes in a record.
    pub(super) fn note(&mut self, record: &Record) {
        match &record.event {
            Event::BudgetWarned(warned) => {
                self.of(&warned.scope).warned.insert(warned.share);
            }
            Event::BudgetExceeded(event) => {
                let (event, seq, ts_ms) = ((**event).clone(), record.seq, record.ts_ms);
                let scope = event.scope.clone();
                self.of(&scope).exceeded = Some(Exceeded { event, seq, ts_ms });
            }
            Event::BudgetChanged(changed) => {
                let reached = self.of(&changed.scope);
                reached.changed = reached.changed.changed_to(changed.caps);
                (reached.exceeded, reached.changed_ms) = (None, record.ts_ms);
                // A share of another limit is another share.
                reached.warned.clear();
            }
            Event::BudgetBoundBroken(broken) => {
                self.factors.insert(broken.model.clone(), broken.factor);
            }
            // The budgets may be others.
            Event::RunOpened(opened) if opened.accepted.is_some() => {
                self.by_scope.values_mut().for_each(|reached| reached.exceeded = None);
            }
            _ => {}
        }
    }

    fn of(&mut self, scope: &Scope) -> &mut Reached {
        self.by_scope.entry(scope.clone()).or_default()
    }

    /// Returns true if nobody set a limit.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.by_scope.values().all(|reached| reached.changed.is_empty())
    }

    /// Returns the limits that a person set for a scope.
    #[must_use]
    pub fn changed(&self, scope: &Scope) -> Caps {
        self.by_scope.get(scope).map(|reached| reached.changed).unwrap_or_default()
    }

    /// Returns when a person last set limits for a scope, in milliseconds since the Unix epoch; 0 for never.
    #[must_use]
    pub fn changed_ms(&self, scope: &Scope) -> i64 {
        self.by_scope.get(scope).map_or(0, |reached| reached.changed_ms)
    }

    /// Returns the end of a scope's budget, unless somebody raised it since.
    #[must_use]
    pub fn exceeded(&self, scope: &Scope) -> Option<&Exceeded> {
        self.by_scope.get(scope)?.exceeded.as_ref()
    }

    /// Returns the scopes whose budget is used up, in their order.
    pub fn all_exceeded(&self) -> impl Iterator<Item = &Exceeded> {
        self.by_scope.values().filter_map(|reached| reached.exceeded.as_ref())
    }

    /// Returns true if people were warned of this share of a scope's budget.
    #[must_use]
    pub fn is_warned(&self, scope: &Scope, share: u16) -> bool {
        self.by_scope.get(scope).is_some_and(|reached| reached.warned.contains(&share))
    }

    /// Returns what input of a model is multiplied with for a reservation, in hundredths.
    #[must_use]
    pub fn factor(&self, model: &Name) -> u32 {
        self.factors.get(model).copied().unwrap_or(FACTOR)
    }
}

impl super::RunState {
    /// Returns what became of the budgets.
    #[must_use]
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }
}
