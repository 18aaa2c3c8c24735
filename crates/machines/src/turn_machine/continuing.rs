//! Decides how an agent continues after a reply without tool calls, after a model call that failed,
//! and after its end.

use super::inbox::Full;
use super::{Machine, Phase};
use crate::context::CompactionTrigger;
use crate::failure::{Failure, FailureKind};
use crate::message::StopReason;
use crate::output::Output;
use crate::turn::{ModelFailed, Outcome, Program};

/// Most times in a row that an answer which was cut is continued: enough for an answer of several
/// times the output limit, few enough that a model which never ends is stopped.
pub(super) const MAX_CONTINUATIONS: u32 = 4;

/// Message to a model after its answer was cut at the output limit.
const CONTINUE: &str = "Continue from the previous response. Do not repeat completed work.";

/// Message to a model after a reply with neither text nor a tool call: nothing, or only thinking.
const NUDGE: &str = "Your last reply had neither text nor a tool call. Go on: call a tool, or give your \
    answer as text.";

/// The advice to a person whose first prompt was refused as too large.
const PROMPT_ALONE: &str =
    "the prompt alone is too large: shorten it, or let the agent read parts of it";

impl Machine {
    /// Returns the outcome of an agent that said that it cannot do the work.
    pub(super) fn given_up(&self, reason: &str) -> Outcome {
        let kind = match self.shortfalls.denied.is_empty() {
            true => FailureKind::GaveUp,
            false => FailureKind::Denied,
        };
        self.failed(kind, format!("the agent gave up: {reason}"))
    }

    /// Returns the failure of an agent that may not go on without the outcome of a call.
    pub(super) fn failed_for(&self, tool: &str) -> Outcome {
        let message = format!(
            "a call of `{tool}` was interrupted and may have taken effect, and the agent may not go on \
             without knowing (`on_unknown`); it was not run again. Inspect the state before you repeat \
             the task"
        );
        self.failed(FailureKind::Interrupted, message)
    }

    /// Decides how the agent continues after a model call that failed for good.
    pub(super) fn model_failed(&mut self, failed: &ModelFailed) {
        let failure = &failed.failure;
        self.measure.refused(failed.context_tokens, failed.window_tokens);
        if self.handing_over {
            self.phase = Phase::Ending(self.failed(failure.kind, failure.message.as_str()));
            return;
        }
        let is_too_large =
            matches!(failure.kind, FailureKind::ContextOverflow | FailureKind::RequestTooLarge);
        if is_too_large && self.replies == 0 && self.view.slots().nth(1).is_none() {
            // The same request would be refused again: there is nothing that could be left out.
            let message = format!("{}; {PROMPT_ALONE}", failure.message);
            self.fail_after(&ModelFailed {
                failure: Failure::new(failure.kind, message),
                ..failed.clone()
            });
            return;
        }
        if is_too_large && self.summaries.refused(self.turn) {
            self.refused = Some(failure.clone());
            self.phase = Phase::Ready;
            return;
        }
        self.fail_after(failed);
    }

    /// Ends an agent whose replies broke so often that the retry policy gave up.
    pub(super) fn broken_for_good(&mut self, failed: &ModelFailed) {
        if self.breaks > 0 && failed.turn == self.turn {
            self.inbox.forget_continuation();
            self.fail_after(failed);
        }
    }

    fn fail_after(&mut self, failed: &ModelFailed) {
        let failure = &failed.failure;
        let mut outcome = self.failed(failure.kind, failure.message.as_str());
        if let Outcome::Failed { failure, .. } = &mut outcome {
            failure.attempts = Some(failed.attempt);
        }
        self.phase = Phase::Ending(outcome);
    }

    /// Decides how the agent continues after a reply without tool calls.
    pub(super) fn judge(&mut self, stop: &StopReason, is_empty: bool) -> Phase {
        let no_text = self.answer.trim().is_empty();
        match stop {
            StopReason::Refusal(explanation) => {
                let said = explanation.clone().unwrap_or_else(|| self.answer.trim().to_owned());
                let said = if said.is_empty() { "no reason was given".to_owned() } else { said };
                let message = format!("the model refused: {said}");
                Phase::Ending(self.failed(FailureKind::Refusal, message))
            }
            StopReason::PauseTurn if !is_empty => Phase::Ready,
            // The effect of the summary on the view is recorded before the next call.
            StopReason::Compaction => Phase::Ready,
            StopReason::ContextWindowExceeded => {
                if self.summaries.ended_in(self.turn) {
                    let message = "the context window was full and a summary did not help";
                    return Phase::Ending(self.failed(FailureKind::ContextOverflow, message));
                }
                self.ask_to_compact(CompactionTrigger::Reactive, None);
                self.resume_cut()
            }
            StopReason::MaxTokens => self.resume_cut(),
            // The failure that is recorded next says whether the retry policy gives up.
            StopReason::Interrupted(_) => self.resume(),
            StopReason::EndTurn
            | StopReason::ToolUse
            | StopReason::StopSequence
            | StopReason::PauseTurn
            | StopReason::Other(_) => {
                // What came before the cut is a fragment, and the rest of it never came.
                if no_text || (is_empty && self.continuations > 0) {
                    if !self.nudged && self.replies < self.max_turns {
                        return self.nudge();
                    }
                    let message = match no_text {
                        true => "the model answered nothing",
                        false => "the model did not continue its answer, which was cut",
                    };
                    return Phase::Ending(self.failed(FailureKind::EmptyAnswer, message));
                }
                let output = Output::whole(self.answer.trim());
                Phase::Ending(Outcome::Completed { output })
            }
        }
    }

    /// Ends an agent whose provider paused its turn and then did not end it: its messages would follow each
    /// other without one of the user between them, which no request may have.
    pub(super) fn pause_without_end(&self) -> Phase {
        let message = "the provider paused its turn and did not end it with an answer";
        Phase::Ending(self.failed(FailureKind::ServerError, message))
    }

    /// Asks the model to continue an answer that reached the output limit, a bounded number of times.
    fn resume_cut(&mut self) -> Phase {
        if self.truncations >= MAX_CONTINUATIONS {
            let message =
                format!("the answer was still cut after {MAX_CONTINUATIONS} continuations");
            return Phase::Ending(self.failed(FailureKind::OutputTruncated, message));
        }
        self.truncations += 1;
        self.resume()
    }

    /// Asks the model to continue its answer.
    fn resume(&mut self) -> Phase {
        self.continuations = self.continuations.saturating_add(1);
        // After an assistant message only a user message may follow; after none (the reply had no
        // complete block) the history still ends with one.
        // What waits in the inbox is a reason to answer too.
        if !self.view.ends_with_user() {
            self.inbox.ask_for_rest(CONTINUE);
        }
        Phase::Ready
    }

    /// Asks a model that answered nothing once more. After a reply without any block the conversation
    /// still ends with the message that it answers, and no other may follow.
    fn nudge(&mut self) -> Phase {
        self.nudged = true;
        if !self.view.ends_with_user() {
            self.inbox.ask_for_rest(NUDGE);
        }
        Phase::Ready
    }

    /// Begins the next round of an agent that had ended: a conversation continues with this user
    /// message, a command runs again.
    ///
    /// # Errors
    /// Returns an error if too much waits to be read already.
    pub(super) fn begin_round(&mut self, text: &str) -> Result<Phase, Full> {
        self.refused = None;
        self.answer.clear();
        (self.continuations, self.truncations, self.breaks) = (0, 0, 0);
        self.nudged = false;
        self.calls.clear();
        if let Program::Model { .. } = self.spawned.program {
            self.inbox.ask(text)?;
        }
        Ok(Phase::Ready)
    }

    /// Continues a conversation that had ended, because its task is retried.
    pub(super) fn continue_after_end(&mut self) -> Phase {
        self.refused = None;
        (self.handing_over, self.ends_for) = (false, None);
        self.nudged = false;
        // An answer that was cut at the output limit keeps its beginning; any other text belongs to
        // an earlier turn.
        let is_cut = self.continuations > 0;
        if !is_cut {
            self.answer.clear();
        }
        (self.continuations, self.truncations, self.breaks) = (0, 0, 0);
        let phase = match self.calls.iter().any(|call| call.result.is_none()) {
            true => Phase::Working,
            false => self.resume(),
        };
        self.continuations = u32::from(is_cut);
        phase
    }
}
