//! Loops: the fold of what an agent's calls were and gave, and the step that is due because it goes in circles.
//!
//! Pure. The facts are fingerprints in the agent's records, outside its context, so compaction, a resume and a
//! restart change nothing. `rules` has the rules, each a function of the latest facts; `steps` decides what is done.
//! A call costs work that grows with the window only, and at most 200 bytes.

mod memory;
mod rules;
mod steps;
#[cfg(test)]
mod tests;
pub mod text;

use std::sync::Arc;

use self::memory::Memory;
pub use self::memory::{Ended, Written};
use self::steps::Steps;
pub use self::steps::{Due, Step};
use crate::fingerprint::Fingerprint;
use crate::spec::loops::LoopSpec;
use crate::turn::{Circle, LoopRule};

/// What is known of an agent's loops, folded from its records.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    /// `None`: nothing is looked for.
    spec: Option<Arc<LoopSpec>>,
    memory: Memory,
    steps: Steps,
    due: Option<Due>,
}

impl Loops {
    /// Makes the state of an agent that has done nothing yet.
    #[must_use]
    pub fn new(spec: Arc<LoopSpec>) -> Self {
        Self { spec: Some(spec).filter(|spec| spec.is_on()), ..Self::default() }
    }

    /// Returns true if loops are looked for.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.spec.is_some()
    }

    /// Returns the step that is due before the next turn.
    #[must_use]
    pub fn due(&self) -> Option<&Due> {
        self.due.as_ref()
    }

    /// Returns true if the next turn has no tools.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.steps.holds()
    }

    /// Takes in the calls of a turn, in their order, once all have ended.
    pub fn turn_ended(&mut self, turn: u32, calls: Vec<Ended>) {
        let Some(spec) = &self.spec else { return };
        self.memory.turn_ended(turn, calls, spec);
        self.decide(turn);
    }

    /// Takes in that a person spoke to the agent: what it does next answers that.
    pub fn person_spoke(&mut self) {
        if self.is_on() {
            self.memory.forget_counts();
            self.due = None;
        }
    }

    /// Takes in that the agent's context was compacted.
    pub fn compacted(&mut self) {
        if self.is_on() {
            self.memory.compacted();
        }
    }

    /// Takes in that the answer of a round was not accepted for this reason.
    pub fn refused(&mut self, turn: u32, reason: Fingerprint) {
        if self.is_on() {
            self.memory.refused(turn, reason);
            self.decide(turn);
        }
    }

    /// Takes in that a reply was cut because it repeated this text.
    pub fn cut(&mut self, turn: u32, text: Fingerprint) {
        if self.is_on() {
            self.memory.cut(turn, text);
            self.decide(turn);
        }
    }

    /// Takes in that a turn began.
    pub fn turn_started(&mut self) {
        self.due = None;
        self.steps.turn_started();
    }

    /// Takes in that a step was taken.
    pub fn stepped(&mut self, turn: u32, step: Step, circle: &Circle) {
        if self.is_on() {
            self.due = None;
            self.steps.taken(turn, step, circle);
        }
    }

    /// Takes in that the agent begins a round, or goes on after its end.
    pub fn begin_again(&mut self) {
        self.due = None;
        self.steps.begin_again();
    }

    fn decide(&mut self, turn: u32) {
        let Some(spec) = &self.spec else { return };
        let found = rules::find(&self.memory, spec);
        self.due = self.steps.decide(found, turn, spec.on_loop);
    }
}

/// A loop that a rule found in the latest turn.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    circle: Circle,
    /// Points of the loop, four for each full occurrence.
    points: u32,
    /// The points from which on each of the steps is due.
    bounds: [u32; 3],
}

impl Found {
    fn new(rule: LoopRule, key: Fingerprint, points: u32, bounds: [u32; 3]) -> Self {
        let (times, tools, turns) = (points / FULL, Vec::new(), Vec::new());
        Self { circle: Circle { rule, key, tools, times, turns }, points, bounds }
    }
}

/// Points of an occurrence before which nothing new was learned. Others count for less: see `rules`.
const FULL: u32 = 4;
