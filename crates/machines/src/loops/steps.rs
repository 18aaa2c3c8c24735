//! The steps that are taken when an agent goes in circles: it is told, then it has a turn without tools, then it
//! hands over and ends.
//!
//! Pure. The steps of a loop only go up: nothing but a person resets them.

use std::collections::VecDeque;

use super::{FULL, Found};
use crate::fingerprint::Fingerprint;
use crate::spec::loops::OnLoop;
use crate::turn::{Circle, LoopRule};

/// The most loops whose steps are remembered.
const REMEMBERED: usize = 32;

/// Turns after a step in which other loops lead to no step that is not higher: they are most often parts of the
/// same loop.
const REST: u32 = 3;

/// The most turns without tools. An agent that needs one more goes from one loop to the next.
const MOST_HOLDS: u32 = 3;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The agent is told.
    Notice,
    /// Its next turn has no tools.
    Hold,
    /// It hands over and ends.
    Break,
}

/// A step that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// The step.
    pub step: Step,
    /// The loop.
    pub circle: Circle,
}

/// The steps taken so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// The loops with the last step of each, the newest last.
    taken: VecDeque<(LoopRule, Fingerprint, Step)>,
    /// The turn and the step that were last.
    last: Option<(u32, Step)>,
    holds: u32,
    holds_next: bool,
}

impl Steps {
    pub(super) fn holds(&self) -> bool {
        self.holds_next
    }

    pub(super) fn turn_started(&mut self) {
        self.holds_next = false;
    }

    pub(super) fn begin_again(&mut self) {
        self.holds_next = false;
    }

    pub(super) fn taken(&mut self, turn: u32, step: Step, circle: &Circle) {
        self.taken.retain(|(rule, key, _)| (*rule, *key) != (circle.rule, circle.key));
        if self.taken.len() >= REMEMBERED {
            self.taken.pop_front();
        }
        self.taken.push_back((circle.rule, circle.key, step));
        self.last = Some((turn, step));
        match step {
            Step::Notice | Step::Break => {}
            Step::Hold => {
                self.holds += 1;
                self.holds_next = true;
            }
        }
    }

    /// Decides the step that follows from the loops of the latest turn, if one does.
    pub(super) fn decide(&self, found: Vec<Found>, turn: u32, on_loop: OnLoop) -> Option<Due> {
        let mut due: Option<Due> = None;
        for found in found {
            let Some(step) = self.next(&found, turn, on_loop) else { continue };
            if due.as_ref().is_none_or(|due| due.step < step) {
                due = Some(Due { step, circle: found.circle });
            }
        }
        due
    }

    fn next(&self, found: &Found, turn: u32, on_loop: OnLoop) -> Option<Step> {
        let Circle { rule, key, .. } = found.circle;
        let taken = self.taken.iter().find(|(r, k, _)| (*r, *k) == (rule, key));
        let taken = taken.map(|(_, _, step)| *step);
        // A turn that was held back counts as one more time.
        let held = if taken == Some(Step::Hold) { FULL } else { 0 };
        let (bound, step) = match taken {
            None => (found.bounds[0], Step::Notice),
            Some(Step::Notice) => (found.bounds[1], Step::Hold),
            Some(Step::Hold) => (found.bounds[2], Step::Break),
            Some(Step::Break) => return None,
        };
        if found.points + held < bound {
            return None;
        }
        let step = match (on_loop, step) {
            (OnLoop::Off, _) | (OnLoop::Nudge, Step::Hold | Step::Break) => return None,
            (OnLoop::Steps, Step::Hold) if self.holds >= MOST_HOLDS => Step::Break,
            (OnLoop::Steps | OnLoop::Nudge, step) => step,
        };
        let is_covered = |(when, last): (u32, Step)| last >= step && turn <= when + REST;
        (step == Step::Break || !self.last.is_some_and(is_covered)).then_some(step)
    }
}
