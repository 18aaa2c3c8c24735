//! The summaries of one agent, folded from its events, and the rules for the next one.
//!
//! Pure. Counts in turns, never in time, so that a rebuilt agent keeps the same pace.

use super::Machine;
use crate::context::layers::guard;
use crate::context::layers::summary::{OnRefill, Pace, Urgency, failure};
use crate::context::{CompactionFailed, CompactionTrigger, ContextEdited};

/// State of the summaries of one agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Summaries {
    pace: Pace,
    /// Summary that was requested for the next turn boundary.
    asked: Option<(CompactionTrigger, Option<String>)>,
    /// Requested summary that waits until a user speaks.
    deferred: Option<(CompactionTrigger, Option<String>)>,
    /// True if the summary that was requested is one that the model asked for.
    asked_by_model: bool,
    /// The failure of the summary that the model asked for, until the model is told.
    unreported: Option<CompactionFailed>,
    /// Reasons of the summaries that are being written, in the order of the requests: the last one
    /// ends first.
    open: Vec<CompactionTrigger>,
    /// Turn in which a summary was last begun.
    tried: Option<u32>,
    /// Turn in which a summary was last begun because a request was refused.
    relieved: Option<u32>,
    /// Turn in which a summary last ended, with or without success.
    ended: Option<u32>,
    /// Turn in which the view was last made smaller because it was full.
    freed: Option<u32>,
    /// Times in a row that the view was full again soon after it was made smaller.
    refills: u32,
    /// `refills` before the first summary in `open` was requested.
    refills_before: u32,
    /// Times in a row that a request was refused as too long.
    refusals: u32,
    /// True if the next request must be smaller although no summary made it so.
    must_shrink: bool,
}

/// The way in which an agent makes its view smaller before a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// It does nothing.
    Nothing,
    /// It has a summary written and continues meanwhile.
    Prepare,
    /// It has a summary written and waits for it.
    Summarise,
    /// It waits for the summary that is being written.
    Wait,
    /// It makes the view smaller without a model.
    Digest,
    /// It makes the view half as large without a model, because the last request was refused.
    Halve,
    /// It ends, because the view is full again and again.
    Stop,
}

impl Machine {
    /// Returns the same agent with this pace of summaries in place of the default.
    #[must_use]
    pub fn paced(self, pace: Pace) -> Self {
        Self { summaries: Summaries { pace, ..Summaries::default() }, ..self }
    }

    /// Returns the way in which the agent makes its view smaller before this turn. `wanted` is the
    /// urgency of a summary, and `is_written` is true if one is being written.
    #[must_use]
    pub fn relief(&self, before: u32, wanted: Option<Urgency>, is_written: bool) -> Relief {
        // The turn has begun if its request is made again, after a failure or a crash. That must
        // change nothing.
        self.summaries.relief(before.saturating_sub(1), wanted, is_written)
    }

    /// Requests a summary at the next turn boundary.
    pub fn ask_to_compact(&mut self, trigger: CompactionTrigger, focus: Option<String>) {
        self.summaries.ask(trigger, focus);
    }

    /// Returns the failure of the summary that the model asked for, if the model was not told yet.
    #[must_use]
    pub fn failed_compaction(&self) -> Option<&CompactionFailed> {
        self.summaries.unreported.as_ref()
    }

    /// Defers the requested summary until a user speaks.
    pub fn defer_summary(&mut self) {
        self.summaries.deferred = self.summaries.asked.take();
    }

    /// Forgets the summaries under way when an agent is rebuilt: none of those that its records
    /// announce is still being written.
    pub fn forget_lost_summary(&mut self) {
        self.summaries.forget_lost();
    }
}

impl Summaries {
    #[cfg(test)]
    fn paced(pace: Pace) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Decides for this turn, from the urgency of a summary and whether one is being written.
    pub(super) fn relief(&self, turn: u32, wanted: Option<Urgency>, is_written: bool) -> Relief {
        if self.must_shrink {
            return Relief::Halve;
        }
        let rests = self.tried.is_some_and(|tried| turn < tried + self.pace.summary_spacing);
        let thrashes = self.refills + 1 >= self.pace.refill_limit && self.is_refill(turn);
        match (wanted, is_written) {
            (Some(Urgency::Now), true) => Relief::Wait,
            (None, _) | (Some(Urgency::Soon), true) => Relief::Nothing,
            (Some(_), false) if rests => Relief::Nothing,
            (Some(Urgency::Soon), false) if thrashes => Relief::Nothing,
            (Some(Urgency::Soon), false) => Relief::Prepare,
            (Some(Urgency::Now), false) if !thrashes => Relief::Summarise,
            (Some(Urgency::Now), false) => match self.pace.on_refill {
                OnRefill::Digest => Relief::Digest,
                OnRefill::Stop => Relief::Stop,
            },
        }
    }

    /// Returns true if a summary was begun a short while ago because a request was refused.
    fn was_relieved(&self, turn: u32) -> bool {
        self.relieved.is_some_and(|relieved| turn < relieved + self.pace.summary_spacing)
    }

    /// Returns true if the view was made smaller so few turns ago that a full view now is a refill.
    fn is_refill(&self, turn: u32) -> bool {
        self.freed.is_some_and(|freed| turn <= freed + self.pace.summary_spacing)
    }

    fn count_refill(&mut self, turn: u32) {
        self.refills = if self.is_refill(turn) { self.refills + 1 } else { 0 };
    }

    pub(super) fn asked(&self) -> Option<&(CompactionTrigger, Option<String>)> {
        self.asked.as_ref()
    }

    pub(super) fn ask(&mut self, trigger: CompactionTrigger, focus: Option<String>) {
        self.asked = Some((trigger, focus));
    }

    /// Notes that the model asked for a summary.
    pub(super) fn ask_by_model(&mut self, focus: Option<String>) {
        self.ask(CompactionTrigger::Manual, focus);
        self.asked_by_model = true;
    }

    /// Notes that a user spoke, which ends the wait of a deferred summary.
    pub(super) fn user_spoke(&mut self) {
        self.asked = self.deferred.take().or(self.asked.take());
    }

    pub(super) fn ended_in(&self, turn: u32) -> bool {
        self.ended == Some(turn)
    }

    pub(super) fn requested(&mut self, turn: u32, trigger: CompactionTrigger) {
        if self.open.is_empty() {
            self.refills_before = self.refills;
        }
        if trigger == CompactionTrigger::Auto {
            self.count_refill(turn);
        }
        if trigger == CompactionTrigger::Reactive {
            self.relieved = Some(turn);
        }
        self.open.push(trigger);
        self.tried = Some(turn);
    }

    pub(super) fn finished(&mut self, turn: u32) {
        self.freed = Some(turn);
        if self.end(turn) == Some(CompactionTrigger::Manual) {
            self.asked_by_model = false;
        }
    }

    pub(super) fn failed(&mut self, turn: u32, failed: &CompactionFailed) {
        match self.end(turn) {
            // The next rung of the ladder needs no model.
            Some(CompactionTrigger::Reactive) => self.must_shrink = true,
            Some(CompactionTrigger::Manual) if std::mem::take(&mut self.asked_by_model) => {
                self.unreported = Some(failed.clone());
            }
            Some(CompactionTrigger::Manual | CompactionTrigger::Auto) | None => {}
        }
    }

    /// Notes the end of a summary. Returns the reason of the request that it answers, if there is
    /// one.
    fn end(&mut self, turn: u32) -> Option<CompactionTrigger> {
        self.ended = Some(turn);
        // A summary that was written ahead does not answer a request that came after its beginning.
        let is_ahead = self.open.pop() == Some(CompactionTrigger::Auto);
        let answered = if is_ahead { None } else { self.asked.take() };
        answered.map(|(trigger, _)| trigger)
    }

    /// Notes that a request was refused as too long. Returns true if it is to be made smaller and
    /// sent again: by a summary the first time, after that without a model. It also goes without a
    /// model if a summary was written for a refused request a short while ago.
    pub(super) fn refused(&mut self, turn: u32) -> bool {
        self.refusals += 1;
        match self.refusals {
            refusals if refusals > self.pace.reactive_retries => return false,
            1 if !self.was_relieved(turn) => self.ask(CompactionTrigger::Reactive, None),
            _ => self.must_shrink = true,
        }
        true
    }

    /// Notes an edit that needed no model. An edit by the guard means that the view was full. It
    /// counts as a refill only if the reaction to refills is a digest: no agent may end for an edit
    /// that was not a summary.
    pub(super) fn edited(&mut self, turn: u32, edited: &ContextEdited) {
        if edited.layer == failure::NAME {
            self.unreported = None;
        }
        let counts = self.pace.on_refill == OnRefill::Digest && edited.layer == guard::GUARD_LAYER;
        if counts && self.freed != Some(turn) {
            self.count_refill(turn);
            self.freed = Some(turn);
        }
    }

    pub(super) fn turn_started(&mut self) {
        self.must_shrink = false;
        self.unreported = None;
    }

    pub(super) fn replied(&mut self) {
        self.refusals = 0;
    }

    /// Returns true if a request was refused as too long since the newest reply.
    pub(super) fn was_refused(&self) -> bool {
        self.refusals > 0
    }

    /// Forgets a summary that was being written when the agent was interrupted, as if it had not
    /// been tried: the request that comes in its place is the same refill, not one more.
    pub(super) fn forget_lost(&mut self) {
        if !self.open.is_empty() {
            self.open.clear();
            self.tried = None;
            self.refills = self.refills_before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Relief::{Digest, Halve, Nothing, Prepare, Stop, Summarise, Wait};
    use Urgency::{Now, Soon};

    fn no() -> CompactionFailed {
        CompactionFailed {
            unsettled: None,
            reason: "no".to_owned(),
            blocked: false,
            spent: None,
            cut: false,
        }
    }

    #[test]
    fn before_the_limit_it_goes_on_and_at_the_limit_it_waits() {
        let fresh = Summaries::paced(Pace::ahead());
        let table = [
            ((None, false), Nothing),
            ((None, true), Nothing),
            ((Some(Soon), false), Prepare),
            ((Some(Soon), true), Nothing),
            ((Some(Now), false), Summarise),
            ((Some(Now), true), Wait),
        ];
        for ((wanted, is_written), relief) in table {
            assert_eq!(fresh.relief(7, wanted, is_written), relief, "{wanted:?} {is_written}");
        }
    }

    #[test]
    fn one_summary_in_three_turns_whatever_becomes_of_it() {
        for is_good in [true, false] {
            let mut summaries = Summaries::paced(Pace::ahead());
            let mut tried = Vec::new();
            for turn in 1..=12 {
                if summaries.relief(turn, Some(Now), false) != Summarise {
                    continue;
                }
                tried.push(turn);
                summaries.requested(turn, CompactionTrigger::Auto);
                if is_good { summaries.finished(turn) } else { summaries.failed(turn, &no()) }
            }
            let expected: &[u32] = if is_good { &[1, 4, 7, 11] } else { &[1, 4, 7, 10] };
            assert_eq!(tried, expected, "{is_good}");
        }
    }

    #[test]
    fn three_rapid_refills_are_the_end_of_summaries_for_now() {
        for (on_refill, relief) in [(OnRefill::Digest, Digest), (OnRefill::Stop, Stop)] {
            let mut summaries = Summaries::paced(Pace { on_refill, ..Pace::ahead() });
            for turn in [10, 13, 16] {
                assert_eq!(summaries.relief(turn, Some(Now), false), Summarise);
                summaries.requested(turn, CompactionTrigger::Auto);
                summaries.finished(turn);
            }
            assert_eq!(summaries.relief(19, Some(Soon), false), Nothing);
            assert_eq!(summaries.relief(19, Some(Now), false), relief);
            // A refill after more turns is no thrashing.
            assert_eq!(summaries.relief(20, Some(Now), false), Summarise);
            summaries.requested(20, CompactionTrigger::Auto);
            summaries.finished(20);
            assert_eq!(summaries.relief(23, Some(Now), false), Summarise, "it counts anew");
        }
    }

    #[test]
    fn what_the_guard_did_is_a_refill_only_where_no_agent_ends_for_it() {
        let edited = ContextEdited {
            layer: guard::GUARD_LAYER.to_owned(),
            edit: crate::context::Edit::ClearResults { results: Vec::new() },
            before_tokens: 2,
            after_tokens: 1,
        };
        for (on_refill, relief) in [(OnRefill::Digest, Digest), (OnRefill::Stop, Summarise)] {
            let mut summaries = Summaries::paced(Pace { on_refill, ..Pace::ahead() });
            for turn in [10, 12, 14] {
                summaries.edited(turn, &edited);
                summaries.edited(turn, &edited);
            }
            assert_eq!(summaries.relief(15, Some(Now), false), relief, "{on_refill:?}");
            assert_eq!(summaries.relief(18, Some(Now), false), Summarise);
        }
    }

    #[test]
    fn a_refused_request_is_answered_by_rung_after_rung() {
        let mut summaries = Summaries::paced(Pace::ahead());
        assert!(summaries.refused(1));
        assert!(matches!(summaries.asked(), Some((CompactionTrigger::Reactive, None))));
        summaries.requested(1, CompactionTrigger::Reactive);
        summaries.failed(1, &no());
        assert!(summaries.asked().is_none());
        assert_eq!(summaries.relief(1, None, false), Halve, "no summary: without a model");
        summaries.turn_started();
        assert_eq!(summaries.relief(2, None, false), Nothing);
        for _ in 0..3 {
            assert!(summaries.refused(2));
            assert_eq!(summaries.relief(2, None, false), Halve);
            summaries.turn_started();
        }
        assert!(!summaries.refused(2), "there is an end");
        summaries.replied();
        assert!(summaries.refused(3), "it counts in a row only");
        assert!(summaries.asked().is_none(), "too early for another summary");
        summaries.replied();
        assert!(summaries.refused(4) && summaries.asked().is_some());
    }

    #[test]
    fn what_was_asked_is_not_answered_by_one_that_was_being_written() {
        let mut summaries = Summaries::paced(Pace::ahead());
        summaries.requested(1, CompactionTrigger::Auto);
        summaries.ask(CompactionTrigger::Manual, None);
        summaries.failed(2, &no());
        assert!(summaries.asked().is_some());
        summaries.requested(2, CompactionTrigger::Manual);
        summaries.finished(2);
        assert!(summaries.asked().is_none() && summaries.ended_in(2));
    }

    #[test]
    fn a_lost_summary_is_asked_for_again() {
        let mut summaries = Summaries::paced(Pace::ahead());
        summaries.requested(4, CompactionTrigger::Auto);
        assert_eq!(summaries.relief(5, Some(Soon), false), Nothing);
        summaries.forget_lost();
        assert_eq!(summaries.relief(5, Some(Soon), false), Prepare);
        summaries.requested(5, CompactionTrigger::Auto);
        summaries.failed(6, &no());
        summaries.forget_lost();
        assert_eq!(summaries.relief(6, Some(Soon), false), Nothing, "that one was not lost");
    }

    #[test]
    fn lost_summaries_are_no_refills() {
        let mut summaries = Summaries::paced(Pace { on_refill: OnRefill::Stop, ..Pace::ahead() });
        summaries.requested(10, CompactionTrigger::Auto);
        summaries.finished(10);
        for _ in 0..5 {
            assert_eq!(summaries.relief(13, Some(Now), false), Summarise);
            summaries.requested(13, CompactionTrigger::Auto);
            summaries.forget_lost();
        }
        summaries.requested(13, CompactionTrigger::Auto);
        summaries.finished(13);
        assert_eq!(summaries.relief(16, Some(Now), false), Summarise, "one refill so far");
        summaries.requested(16, CompactionTrigger::Auto);
        summaries.finished(16);
        assert_eq!(summaries.relief(19, Some(Now), false), Stop);
    }

    #[test]
    fn the_model_is_told_of_the_failure_of_what_it_asked_for() {
        let ask = |by_model: bool| {
            let mut summaries = Summaries::paced(Pace::ahead());
            match by_model {
                true => summaries.ask_by_model(None),
                false => summaries.ask(CompactionTrigger::Manual, None),
            }
            summaries.requested(4, CompactionTrigger::Manual);
            summaries
        };
        let mut asked = ask(true);
        asked.failed(4, &no());
        assert_eq!(asked.unreported, Some(no()));
        asked.turn_started();
        assert_eq!(asked.unreported, None, "told once");
        let mut done = ask(true);
        done.finished(4);
        done.requested(9, CompactionTrigger::Auto);
        done.failed(9, &no());
        assert_eq!(done.unreported, None);
        let mut by_person = ask(false);
        by_person.failed(4, &no());
        assert_eq!(by_person.unreported, None, "a person sees the event");
    }
}
