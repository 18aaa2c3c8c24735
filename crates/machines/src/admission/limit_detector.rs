//! Tells a limit from noise: whether a refusal says that calls come too fast.
//!
//! Pure. A key that others use too, or a gateway with several services behind it, refuses a part of the
//! calls however few there are. To slow down then only loses time. So where others would have to wait, one
//! call is made at once after a refusal: a limit refuses it too, while noise seldom does. Under a pace that a
//! limit allowed, refusals come seldom and late; if they come early again and again, one call asks again.

use std::time::Duration;

/// Time from a refusal to the call that asks whether it is a limit: the refused call, which is the oldest, has
/// come back until then.
const ASKS_AFTER: Duration = Duration::from_millis(10);

/// How much longer than the refusal before it an answer may take until it is taken for none: a refusal comes
/// at once, while a model may think for minutes.
const PATIENCE: u32 = 4;

/// Time that is added to it, for busy machines.
const SLACK: Duration = Duration::from_millis(100);

/// The longest time that all wait for one answer.
const LONGEST: Duration = Duration::from_secs(3);

/// Calls that ask one after the other and must all be refused to show a limit: where a quarter is refused by
/// chance, one of 64 questions is answered wrongly.
const ANSWERS: u32 = 3;

/// Calls besides the refused one that make it worth to ask. Fewer lose little by a pause.
const OTHERS: usize = 2;

/// Early refusals in a row under a learned pace after which one call asks again. The pace that was learned
/// from a first burst may be too high once.
const EARLY: u32 = 2;

/// Weight of the newest answer in the share of refusals.
const NEWEST: f64 = 1.0 / 48.0;

/// The share of refusals above which noise is taken for a limit all the same. At 25 % of random refusals the
/// measured share has a standard deviation of 0.044, so that this is five of them away. Of a small bucket that is
/// filled often, whose places a call that asks always finds, twenty agents see 40 to 50 % of their calls refused. With
/// 60 seeds of each case of the benchmark, 0.42 and 0.55 miss more.
const MOST: f64 = 0.48;

/// Answers without a refusal that must come in a row once an answer has shown a limit, until one more shows noise.
const SURE: u32 = 2;

/// The share from which the measurement begins.
const FIRST: f64 = 0.3;

/// Time without a refusal after which nothing is believed any more.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// What refusals are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    Unknown,
    Limit,
    Noise,
}

/// What a refusal says about the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Calls come too fast.
    Limit,
    /// Nothing.
    Nothing,
    /// One call is to be made, and all others wait for its answer.
    AskOne,
}

/// The refusal of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) started: Duration,
    /// True if the call was the one that asked.
    pub(super) asked: bool,
    /// True if the call began after the newest pause, and was the first to do so.
    pub(super) is_first: bool,
    /// True if the call began before the newest pause.
    pub(super) is_old: bool,
    /// Whether the refusal came earlier than a limit would refuse at the learned pace; absent if no pace is
    /// learned.
    pub(super) is_early: Option<bool>,
    /// The calls that wait or are under way besides.
    pub(super) others: usize,
    /// What the headers say is left of the limit.
    pub(super) left: Option<u64>,
}

/// The call that asks.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// The time from which it may start.
    from: Duration,
    started: Option<Duration>,
    patience: Duration,
    /// Calls that asked and were refused.
    refused: u32,
}

/// Learns from the refusals of one provider whether they show a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitDetector {
    belief: Belief,
    share: f64,
    last: Option<Duration>,
    early: u32,
    /// The answers without a refusal that it takes until nothing is sure: some calls after the refusal a new
    /// window may have begun, or the bucket may have a place again.
    sure: u32,
    question: Option<Question>,
}

impl Default for LimitDetector {
    fn default() -> Self {
        Self {
            belief: Belief::Unknown,
            share: FIRST,
            last: None,
            early: 0,
            sure: 0,
            question: None,
        }
    }
}

impl LimitDetector {
    /// Takes note of a refusal.
    pub(super) fn refused(&mut self, now: Duration, refused: Refused) -> Says {
        // Calls that were under way at the refusal before say the same once more.
        if self.last.is_none_or(|last| refused.started >= last) {
            self.share += (1.0 - self.share) * NEWEST;
        }
        if self.last.replace(now).is_some_and(|last| now.saturating_sub(last) > FORGOTTEN) {
            *self = Self { last: Some(now), question: self.question, ..Self::default() };
        }
        if refused.left == Some(0) {
            return self.limit();
        }
        if let Some(question) = &mut self.question {
            question.refused += u32::from(refused.asked);
            let enough = if self.sure > 0 { ANSWERS - 1 } else { ANSWERS };
            if question.refused >= enough {
                return self.limit();
            }
            if refused.asked {
                (question.from, question.started) = (now + ASKS_AFTER, None);
            }
            return Says::Nothing;
        }
        if self.belief == Belief::Noise {
            return if self.share > MOST { self.limit() } else { Says::Nothing };
        }
        match refused.is_early {
            Some(true) if !refused.is_old => self.early += 1,
            Some(true) => {}
            Some(false) | None => self.early = 0,
        }
        let asks = refused.is_early.is_none() || self.early >= EARLY;
        if refused.is_first || refused.is_old || refused.others < OTHERS || !asks {
            self.belief = Belief::Limit;
            return Says::Limit;
        }
        if refused.left.is_some() {
            self.noise();
            return Says::Nothing;
        }
        let took = now.saturating_sub(refused.started);
        let patience = (took * PATIENCE + SLACK).min(LONGEST);
        let from = now + ASKS_AFTER;
        self.question = Some(Question { from, started: None, patience, refused: 0 });
        Says::AskOne
    }

    /// Takes note of a call that the provider has taken. Returns true if this shows that refusals are noise.
    pub(super) fn taken(&mut self, asked: bool) -> bool {
        self.share -= self.share * NEWEST;
        asked && self.question.is_some() && self.contradicted()
    }

    /// Takes note that the call that asked ended without an answer.
    pub(super) fn unanswered(&mut self, now: Duration) {
        if let Some(question) = &mut self.question {
            (question.from, question.started) = (now, None);
        }
    }

    /// Takes note of the call that starts while the others wait. Returns true if it is the one that asks.
    pub(super) fn start(&mut self, now: Duration) -> bool {
        let Some(question) = &mut self.question else { return false };
        question.started = Some(now);
        true
    }

    /// Returns true if the call that asks is to be chosen now, or is under way.
    pub(super) fn is_asking(&self) -> bool {
        self.question.is_some()
    }

    /// Returns the time until which no call may start because an answer is awaited.
    pub(super) fn holds_until(&self) -> Option<Duration> {
        let question = self.question?;
        Some(question.started.map_or(question.from, |started| started + question.patience))
    }

    /// Ends the wait for an answer that takes longer than a refusal. Returns true if it does, and refusals are
    /// noise.
    pub(super) fn give_up(&mut self, now: Duration) -> bool {
        let is_late = |question: Question| {
            question.started.is_some_and(|started| started + question.patience <= now)
        };
        let is_late = self.question.is_some_and(is_late);
        is_late && self.contradicted()
    }

    /// Takes note that the call that asked was not refused. Returns true if refusals are noise.
    fn contradicted(&mut self) -> bool {
        if self.sure > 0 {
            // The next early refusal asks again.
            (self.sure, self.early, self.question) = (self.sure - 1, EARLY - 1, None);
            return false;
        }
        self.noise();
        true
    }

    fn noise(&mut self) {
        (self.belief, self.early, self.question) = (Belief::Noise, 0, None);
        self.share = self.share.min(FIRST);
    }

    fn limit(&mut self) -> Says {
        (self.belief, self.early, self.question) = (Belief::Limit, 0, None);
        (self.share, self.sure) = (FIRST, SURE);
        Says::Limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A refusal of a call that took 2 ms, while many others wait.
    fn refused(at: u32) -> Refused {
        Refused {
            started: MS * (at - 2),
            asked: false,
            is_first: false,
            is_old: false,
            is_early: None,
            others: 20,
            left: None,
        }
    }

    #[test]
    fn one_call_asks_and_its_answer_decides() {
        let mut detector = LimitDetector::default();
        assert_eq!(detector.refused(MS * 100, refused(100)), Says::AskOne);
        assert_eq!(detector.holds_until(), Some(MS * 110));
        assert_eq!(detector.refused(MS * 101, refused(101)), Says::Nothing, "it was under way");
        assert!(detector.start(MS * 110) && !detector.give_up(MS * 110));
        assert_eq!(detector.holds_until(), Some(MS * 218));
        let mut limited = detector;
        for (at, says) in [(112, Says::Nothing), (124, Says::Nothing), (136, Says::Limit)] {
            let asked = Refused { asked: true, ..refused(at) };
            assert_eq!(limited.refused(MS * at, asked), says);
            limited.start(MS * (at + 10));
        }
        assert_eq!(limited.holds_until(), None);
        let mut late = detector;
        assert!(late.give_up(MS * 218), "a model that thinks refuses nothing");
        assert!(!detector.taken(false) && detector.taken(true));
        for mut noise in [detector, late] {
            assert_eq!(noise.holds_until(), None);
            assert_eq!(noise.refused(MS * 300, refused(300)), Says::Nothing);
        }
    }

    #[test]
    fn headers_decide_without_a_question() {
        let left = |left| Refused { left: Some(left), ..refused(100) };
        assert_eq!(LimitDetector::default().refused(MS * 100, left(0)), Says::Limit);
        let mut noise = LimitDetector::default();
        assert_eq!(noise.refused(MS * 100, left(9)), Says::Nothing);
        assert_eq!(noise.refused(MS * 200, refused(200)), Says::Nothing);
        assert_eq!(noise.refused(MS * 300, left(0)), Says::Limit);
    }

    #[test]
    fn noise_that_refuses_nearly_everything_is_a_limit() {
        let mut detector = LimitDetector::default();
        detector.refused(MS * 100, refused(100));
        detector.start(MS * 110);
        assert!(detector.taken(true));
        // One of four is noise, however long.
        for at in 0..400 {
            let at = 200 + at * 10;
            assert_eq!(detector.refused(MS * at, refused(at)), Says::Nothing);
            (0..3).for_each(|_| assert!(!detector.taken(false)));
        }
        // Many at the same moment count as one.
        for _ in 0..100 {
            assert_eq!(detector.refused(MS * 5_000, refused(5_000)), Says::Nothing);
        }
        let says: Vec<Says> = (0..20)
            .map(|n| 5_010 + n * 10)
            .map(|at| detector.refused(MS * at, refused(at)))
            .collect();
        assert!(says.contains(&Says::Limit), "{says:?}");
    }

    #[test]
    fn under_a_learned_pace_only_early_refusals_are_asked_about() {
        let mut detector = LimitDetector::default();
        let early = |at, is_early| Refused { is_early: Some(is_early), ..refused(at) };
        assert_eq!(detector.refused(MS * 100, early(100, true)), Says::Limit);
        assert_eq!(detector.refused(MS * 200, early(200, false)), Says::Limit);
        assert_eq!(detector.refused(MS * 300, early(300, true)), Says::Limit);
        let old = Refused { is_old: true, ..early(301, true) };
        assert_eq!(detector.refused(MS * 301, old), Says::Limit);
        assert_eq!(detector.refused(MS * 400, early(400, true)), Says::AskOne);
        // Few lose little by a pause, and the first call after a pause has asked already.
        for few in
            [Refused { others: 1, ..refused(500) }, Refused { is_first: true, ..refused(500) }]
        {
            assert_eq!(LimitDetector::default().refused(MS * 500, few), Says::Limit);
        }
    }

    #[test]
    fn what_was_believed_long_ago_is_asked_again() {
        let mut detector = LimitDetector::default();
        let noise = Refused { left: Some(9), ..refused(100) };
        assert_eq!(detector.refused(MS * 100, noise), Says::Nothing);
        assert_eq!(detector.refused(MS * 60_000, refused(60_000)), Says::Nothing);
        assert_eq!(detector.refused(MS * 130_000, refused(130_000)), Says::AskOne);
    }
}
