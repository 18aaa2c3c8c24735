//! What a turn machine does about loops: it gives the facts of its calls to their fold, and tells the model of each
//! step.
//!
//! Pure. A text for the model joins the view with the record of the step, never before it.

use std::sync::Arc;

use super::calls::CallState;
use super::facts::Facts;
use super::{Machine, Phase};
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::fingerprint::Fingerprint;
use crate::loops::{Due, Ended, Loops, Step, Written};
use crate::own_tool::OwnCall;
use crate::spec::loops::LoopSpec;
use crate::turn::{
    Circle, Effect, Feedback, FileChange, LoopBroken, LoopHeld, LoopNoticed, LoopRule,
};

/// What the model reads after its turn without tools.
const AFTER_HOLD: &str = "You can call tools again. Go on with what you said, or give your final answer in \
    full: what you wrote in the last message does not count as it.";

impl Machine {
    /// Looks for loops by these rules.
    #[must_use]
    pub fn watched(self, spec: Arc<LoopSpec>) -> Self {
        Self { loops: Loops::new(spec), ..self }
    }

    /// Returns the record of the step that is due because the agent goes in circles, if one is.
    #[must_use]
    pub fn loop_step(&self) -> Option<Event> {
        let Due { step, circle } = self.loops.due()?;
        if !matches!(self.phase, Phase::Ready) || self.hands_over() {
            return None;
        }
        let circle = circle.clone();
        Some(match step {
            Step::Notice => LoopNoticed { circle }.into(),
            Step::Hold => LoopHeld { circle }.into(),
            Step::Break => LoopBroken { circle }.into(),
        })
    }

    /// Returns true if the next turn, or the one that is under way, may call no tool.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self.phase {
            _ if self.hands_over() => false,
            Phase::Calling => self.held,
            Phase::Ready => self.loops.holds(),
            Phase::Working | Phase::Ending(_) | Phase::Ended => false,
        }
    }

    /// Gives the calls of a turn that has ended to the fold.
    pub(super) fn note_calls(&mut self, calls: &[CallState]) {
        if !self.loops.is_on() {
            return;
        }
        if calls.iter().filter_map(|call| call.facts.as_ref()).any(|facts| facts.by_person) {
            return self.loops.person_spoke();
        }
        // To make room in the context, or to wait for others, is neither work nor a circle, however often it happens.
        let is_passed_over = |state: &&CallState| {
            let own = state.callee.call();
            matches!(own, Some(OwnCall::Compact(_) | OwnCall::Snip(_) | OwnCall::Wait(_)))
        };
        let ended = calls.iter().filter(|state| !is_passed_over(state)).filter_map(|state| {
            let Facts { prints, is_error, .. } = *state.facts.as_ref()?;
            let effect = state.intended.as_ref().map(|(_, effect)| *effect);
            let change = state.started.as_ref().and_then(|started| started.change.as_ref());
            Some(Ended {
                tool: state.call.name.as_str().into(),
                prints,
                is_error,
                may_change: effect.is_some_and(|effect| effect != Effect::Pure),
                delegates: matches!(state.callee.call(), Some(OwnCall::Delegate(_))),
                written: change.filter(|_| !is_error).map(written),
            })
        });
        self.loops.turn_ended(self.turn, ended.collect());
    }

    /// Takes in the reason for which a round begins.
    pub(super) fn note_refusal(&mut self, feedback: &Feedback) {
        let said = match feedback.cause {
            // Another job is no refusal.
            crate::turn::Cause::Parent => return,
            // Its text is the same in each round, and only the answer tells if anything moves.
            crate::turn::Cause::Until => &self.answer,
            crate::turn::Cause::Format | crate::turn::Cause::Schema | crate::turn::Cause::Check => {
                &feedback.text
            }
        };
        self.loops.refused(self.turn, Fingerprint::of_result(said));
    }

    /// Takes a step that is recorded: the model reads of it, also where the records are folded by other rules than
    /// those by which it was decided.
    pub(super) fn take_loop_step(&mut self, step: Step, circle: &Circle) {
        self.loops.stepped(self.turn, step, circle);
        let words = circle.words();
        match step {
            Step::Notice => self.tell(&format!("{} {}", told(&words), advice(circle.rule))),
            Step::Hold => self.tell(&format!(
                "{} The next message can call no tool. Say in it what blocks you, and what you will do that \
                 is different.",
                told(&words)
            )),
            // The model reads of it with its last turn.
            Step::Break => {
                self.ends_for.get_or_insert_with(|| no_progress(circle));
            }
        }
    }

    /// Lets a sentence join the results that the model reads next, or the message that is due.
    pub(super) fn tell(&mut self, text: &str) {
        if !self.view.add_to_results(text) {
            self.inbox.add(text);
        }
    }

    /// Goes on after the reply of a turn without tools.
    pub(super) fn after_hold(&mut self) -> Phase {
        (self.continuations, self.truncations) = (0, 0);
        if !self.view.ends_with_user() {
            self.inbox.ask_for_rest(AFTER_HOLD);
        }
        Phase::Ready
    }

    /// Goes on after a reply that was cut because it repeated this text.
    pub(super) fn after_repetition(&mut self, text: Fingerprint) -> Phase {
        (self.continuations, self.truncations) = (0, 0);
        self.loops.cut(self.turn, text);
        if !self.view.ends_with_user() {
            self.inbox.ask_for_rest(AFTER_CUT);
        }
        Phase::Ready
    }
}

/// What the model reads after a reply that was cut.
const AFTER_CUT: &str = "Your last message repeated the same text over and over, and was cut. Go on without \
    repeating it.";

/// Returns the failure of an agent that is ended because it goes in circles.
fn no_progress(circle: &Circle) -> Failure {
    let message = format!("the agent went in circles: {}", circle.words());
    Failure::new(FailureKind::NoProgress, message)
}

fn told(words: &str) -> String {
    format!("[callsheet] You go in circles: {words}.")
}

fn advice(rule: LoopRule) -> &'static str {
    match rule {
        LoopRule::Repeat | LoopRule::Cycle => {
            "To ask again will not change it: do something else, or answer with what you have."
        }
        LoopRule::Edits => "Decide which content is right before you change it again.",
        LoopRule::Spawn => "Do it in another way, or go on without it.",
        LoopRule::Error => "Find out what causes the error before you try further arguments.",
        LoopRule::Stall | LoopRule::Compaction => {
            "Do something that you have not done yet, or answer with what you have."
        }
        LoopRule::Rounds => {
            "Change what the check complains about, or say why that cannot be done."
        }
        LoopRule::Text => "Give your answer once.",
    }
}

fn written(change: &FileChange) -> Written {
    let FileChange { path, pre, post, .. } = change;
    let path = Fingerprint::of_text(path.trim_start_matches("./"));
    let (pre, post) = (pre.as_deref().map(Fingerprint::of_text), Fingerprint::of_text(post));
    Written { path, pre, post }
}
