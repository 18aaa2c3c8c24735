//! Decides what comes before a turn whose view grows large: layers that need no model first, then a
//! summary, then the guard.

use super::{Action, Ahead, Boundary, Due, MOST_PAUSES, Sending};
use crate::context::layers::guard::Reach;
use crate::context::layers::summary::{self, Urgency, failure};
use crate::context::layers::{Layer, pipeline};
use crate::context::provider::server::ContextWork;
use crate::failure::FailureKind;
use crate::message::Json;
use crate::turn_machine::Relief;

/// Most rounds of edits that make a view fit after edits. Two were enough in all trials.
const MOST_ROUNDS: usize = 8;

impl Boundary<'_> {
    /// Returns the action before a turn: the model call, or the action that must come first.
    pub(super) fn before_turn(mut self, turn: u32, message: Option<Json>, ahead: Ahead) -> Action {
        // No layer edits the view while a summary is being written: an edit would make the summary
        // stale, and the edited messages are about to be replaced.
        let is_written = ahead == Ahead::Writing;
        // The provider's cache holds the view as it was sent last. A summary reads that view,
        // whatever the layers change now.
        let as_sent = self.pressure().map(|_| self.view.clone());
        self.snip();
        if !is_written {
            let preset = self.client_preset();
            self.edit(|view, around| pipeline::run_cheap_layers(view, &preset, around));
        }
        let relief = self.machine.relief(turn, self.pressure(), is_written);
        match relief {
            Relief::Nothing | Relief::Prepare => {}
            Relief::Wait => return Action::AwaitAhead,
            Relief::Summarise => {
                if let Some(due) = self.due(None, as_sent.as_ref()) {
                    return self.summarise(due, as_sent);
                }
            }
            Relief::Digest => self.digest(),
            Relief::Halve => self.halve(),
            Relief::Stop => {
                let reason = self.thrashing();
                let outcome = self.machine.failed(FailureKind::ContextOverflow, reason);
                return Action::Finish(outcome);
            }
        }
        if !is_written {
            self.record_instead();
        }
        self.guard();
        self.tell_of_failure();
        // This comes before the summary is requested: a change of the messages that it covers would
        // make it stale.
        self.guard_until_stable();
        let is_due = relief == Relief::Prepare;
        let prepare = is_due.then(|| self.due(None, as_sent.as_ref())).flatten();
        self.send(turn, message, prepare)
    }

    fn send(self, turn: u32, message: Option<Json>, prepare: Option<Due>) -> Action {
        // An edit may have put a record in the place of the answer that was to be continued.
        let hand_over = self.machine.hands_over();
        let message = message.filter(|_| hand_over || !self.view.ends_with_user());
        // Nothing can stand beside a record. The messages wait for the next turn.
        let mail = self.mail.as_ref().filter(|_| self.view.takes_beside());
        let delivers = mail.map(|mail| mail.ids.clone()).unwrap_or_default();
        let message = mail.map(|mail| mail.behind(message.as_ref())).or(message);
        let outgoing = self.outgoing(message);
        let may_work = self.machine.provider().pauses < MOST_PAUSES;
        let sending = Sending {
            turn,
            context: if may_work { self.strategy.work() } else { ContextWork::Nothing },
            max_output_tokens: self.size.output_limit(&self.view),
            expected_tokens: self.size.expected_tokens(&self.view),
            counted: self.machine.counted().filter(|_| self.changes.is_empty()),
            outgoing,
            delivers,
            changes: self.changes,
            prepare,
            hand_over,
            ends_for: self.machine.ends_for().cloned(),
            held: self.machine.is_held(),
            made_smaller: self.machine.was_refused(),
        };
        Action::Send(Box::new(sending))
    }

    /// Returns the urgency of a summary that nobody asked for.
    fn pressure(&self) -> Option<Urgency> {
        let preset = self.client_preset();
        self.ask(|view, around| pipeline::pressure(view, &preset, around))
    }

    /// Drops the middle of the view if the model asked for that.
    fn snip(&mut self) {
        let (Some(keep), preset) = (self.machine.snip(), self.terms.preset) else { return };
        self.edit(|view, around| pipeline::run_snip(view, preset, around, keep));
    }

    /// Makes the view fit its window.
    fn guard(&mut self) {
        let preset = self.terms.preset;
        self.edit(|view, around| pipeline::run_guard(view, preset, around));
    }

    /// Leaves out thinking that the edits made stale, and makes the view fit again: with each edit less is
    /// known of its size, so a view that just fitted may not fit after it. A request that is made again
    /// after a crash finds nothing to edit.
    fn guard_until_stable(&mut self) {
        for _ in 0..MOST_ROUNDS {
            self.leave_out_stale_thinking();
            let made = self.changes.len();
            if made > 0 {
                self.guard();
            }
            if self.changes.len() == made {
                return;
            }
        }
        self.leave_out_stale_thinking();
    }

    /// Makes the record that stands instead of a summary which the model asked for and nobody could write, if
    /// the preset keeps records and no layer has changed the view. A hook that forbids the summary forbids the
    /// record too.
    fn record_instead(&mut self) {
        let preset = self.terms.preset;
        let keeps_records = preset.layers.iter().any(|layer| matches!(layer, Layer::Digest(_)));
        let is_due = self.machine.failed_compaction().is_some_and(|failed| !failed.blocked);
        if !is_due || !keeps_records || !self.changes.is_empty() {
            return;
        }
        self.edit(|view, around| {
            let half = around.tokens(view.chars()) / 2;
            pipeline::shrink(view, preset, around, half, Reach::Read)
        });
    }

    /// Tells the model that the summary which it asked for was not written, and what stands instead.
    fn tell_of_failure(&mut self) {
        let Some(failed) = self.machine.failed_compaction() else { return };
        let edits: Vec<_> = self.changes.iter().map(|change| &change.edited.edit).collect();
        let note = failure::note(&self.view, &failed.reason, &edits);
        self.changes.extend(pipeline::apply(&mut self.view, failure::NAME, note.into()));
        // A view that filled its window does not fit with the note.
        self.guard();
    }

    /// Makes the view as small as a summary would have made it, without a model.
    fn digest(&mut self) {
        let preset = self.terms.preset;
        let Some(layer) = pipeline::summary(preset) else { return };
        self.edit(|view, around| {
            let goal = layer.pace.goal(layer.limit(around), &around.window);
            pipeline::shrink(view, preset, around, goal, Reach::Read)
        });
    }

    /// Makes a view that was refused smaller without a model: by the rule of its preset, or to half
    /// its size if the rule changes nothing.
    fn halve(&mut self) {
        let preset = self.terms.preset;
        self.edit(|view, around| {
            let changes = pipeline::run_reactive(view, preset, around);
            if !changes.is_empty() {
                return changes;
            }
            let half = around.tokens(view.chars()) / 2;
            pipeline::shrink(view, preset, around, half, Reach::All)
        });
    }

    fn thrashing(&self) -> String {
        let pace = pipeline::summary(self.terms.preset).map(|layer| &layer.pace);
        let (times, turns) = pace.map_or((0, 0), |pace| (pace.refill_limit, pace.summary_spacing));
        let cause = summary::largest(&self.view);
        format!(
            "rapid_refill_breaker: Autocompact is thrashing: the context refilled to the limit \
             within {turns} turns of the previous compact, {times} times in a row; {cause}"
        )
    }
}
