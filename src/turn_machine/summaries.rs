//! What an agent's events tell of its summaries, and what follows for the next one.
//!
//! Pure. Counts in turns, never in time, so that a rebuilt agent keeps the same pace.

use super::Machine;
use crate::context::layers::guard;
use crate::context::layers::summary::{OnRefill, Pace, Urgency};
use crate::context::{CompactionTrigger, ContextEdited};

/// The summaries of one agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Summaries {
    pace: Pace,
    /// The one that was asked for at the next turn boundary.
    asked: Option<(CompactionTrigger, Option<String>)>,
    /// The one that waits until a user speaks.
    deferred: Option<(CompactionTrigger, Option<String>)>,
    /// Why those were asked for that are being written: what was asked for last ends first.
    open: Vec<CompactionTrigger>,
    /// The turn in which one was last begun.
    tried: Option<u32>,
    /// The turn in which one was last begun because a request was refused.
    relieved: Option<u32>,
    /// The turn in which one last came to an end, good or bad.
    settled: Option<u32>,
    /// The turn in which the view was last made smaller because it was full.
    freed: Option<u32>,
    /// How often in a row it was full again soon after.
    refills: u32,
    /// How often in a row a request was refused as too long.
    refusals: u32,
    /// Whether the next request must be smaller, though no summary made it so.
    must_shrink: bool,
}

/// What an agent does about the size of its view before a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// Nothing.
    Nothing,
    /// It has a summary written and goes on.
    Prepare,
    /// It has a summary written and waits.
    Summarise,
    /// It waits for the summary that is being written.
    Wait,
    /// It makes the view smaller without a model.
    Digest,
    /// It makes the view half as large without a model: what was sent was refused.
    Halve,
    /// It ends: the view is full again and again.
    Stop,
}

impl Machine {
    /// The same agent with another pace of summaries than the documented one.
    #[must_use]
    pub fn paced(self, pace: Pace) -> Self {
        Self { summaries: Summaries { pace, ..Summaries::default() }, ..self }
    }

    /// What the agent does about the size of its view before its next turn, given how soon a
    /// summary is wanted and whether one is being written.
    #[must_use]
    pub fn relief(&self, wanted: Option<Urgency>, is_written: bool) -> Relief {
        self.summaries.relief(self.turn, wanted, is_written)
    }

    /// Asks for a summary at the next turn boundary.
    pub fn ask_to_compact(&mut self, trigger: CompactionTrigger, focus: Option<String>) {
        self.summaries.ask(trigger, focus);
    }

    /// Puts the summary that was asked for off until a user speaks.
    pub fn defer_summary(&mut self) {
        self.summaries.deferred = self.summaries.asked.take();
    }

    /// An agent that is rebuilt has no summary under way, whatever its records announce.
    pub fn forget_lost_summary(&mut self) {
        self.summaries.forget_lost();
    }
}

impl Summaries {
    #[cfg(test)]
    fn paced(pace: Pace) -> Self {
        Self { pace, ..Self::default() }
    }

    /// What follows in this turn, given how soon a summary is wanted and whether one is being
    /// written.
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

    /// Whether a refused request had a summary written a short while ago.
    fn was_relieved(&self, turn: u32) -> bool {
        self.relieved.is_some_and(|relieved| turn < relieved + self.pace.summary_spacing)
    }

    /// Whether a view that is full now is so soon after it was made smaller.
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

    /// A user spoke.
    pub(super) fn user_spoke(&mut self) {
        self.asked = self.deferred.take().or(self.asked.take());
    }

    pub(super) fn settled_in(&self, turn: u32) -> bool {
        self.settled == Some(turn)
    }

    pub(super) fn requested(&mut self, turn: u32, trigger: CompactionTrigger) {
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
        self.settle(turn);
    }

    pub(super) fn failed(&mut self, turn: u32) {
        if self.settle(turn) == Some(CompactionTrigger::Reactive) {
            // The next rung of the ladder needs no model.
            self.must_shrink = true;
        }
    }

    /// One came to its end; gives why it had been asked for, if somebody had.
    fn settle(&mut self, turn: u32) -> Option<CompactionTrigger> {
        self.settled = Some(turn);
        // One that was written ahead does not answer what was asked since.
        let is_ahead = self.open.pop() == Some(CompactionTrigger::Auto);
        let answered = if is_ahead { None } else { self.asked.take() };
        answered.map(|(trigger, _)| trigger)
    }

    /// A request was refused as too long. Whether it is made smaller and sent again: by a summary
    /// the first time, then without a model, as also where the last summary did not help for long.
    pub(super) fn refused(&mut self, turn: u32) -> bool {
        self.refusals += 1;
        match self.refusals {
            refusals if refusals > self.pace.reactive_retries => return false,
            1 if !self.was_relieved(turn) => self.ask(CompactionTrigger::Reactive, None),
            _ => self.must_shrink = true,
        }
        true
    }

    /// An edit was recorded that needed no model. The guard's tells that the view was full, where
    /// something is done about that without a model; no agent ends for what was no summary.
    pub(super) fn edited(&mut self, turn: u32, edited: &ContextEdited) {
        let counts = self.pace.on_refill == OnRefill::Digest && edited.layer == guard::GUARD_LAYER;
        if counts && self.freed != Some(turn) {
            self.count_refill(turn);
            self.freed = Some(turn);
        }
    }

    pub(super) fn turn_started(&mut self) {
        self.must_shrink = false;
    }

    pub(super) fn replied(&mut self) {
        self.refusals = 0;
    }

    /// A summary that was being written when the agent was interrupted is lost: it is as if it had
    /// not been tried.
    pub(super) fn forget_lost(&mut self) {
        if !self.open.is_empty() {
            self.open.clear();
            self.tried = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Relief::{Digest, Halve, Nothing, Prepare, Stop, Summarise, Wait};
    use Urgency::{Now, Soon};

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
                if is_good { summaries.finished(turn) } else { summaries.failed(turn) }
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
            // What came later than that is no thrashing.
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
        summaries.failed(1);
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
        summaries.failed(2);
        assert!(summaries.asked().is_some());
        summaries.requested(2, CompactionTrigger::Manual);
        summaries.finished(2);
        assert!(summaries.asked().is_none() && summaries.settled_in(2));
    }

    #[test]
    fn a_lost_summary_is_asked_for_again() {
        let mut summaries = Summaries::paced(Pace::ahead());
        summaries.requested(4, CompactionTrigger::Auto);
        assert_eq!(summaries.relief(5, Some(Soon), false), Nothing);
        summaries.forget_lost();
        assert_eq!(summaries.relief(5, Some(Soon), false), Prepare);
        summaries.requested(5, CompactionTrigger::Auto);
        summaries.failed(6);
        summaries.forget_lost();
        assert_eq!(summaries.relief(6, Some(Soon), false), Nothing, "that one was not lost");
    }
}
