//! The call machine: decides the course of one model call, from its first request to the reply or to the error
//! that ends it.
//!
//! Pure. An actor performs each [`Step`] and tells what came of it as an [`Input`], with the time. Calls of
//! agents and calls for summaries take the same way; what all calls learn of a model is its [`Standing`].
//!
//! The rules:
//!
//! - *Records.* Each request is announced before it leaves, the first one before the permit, since it shares the
//!   batch of its turn. Each that was announced is settled by the reply, by a failure or by a cut. A request
//!   that was not sent leaves its number to the next.
//! - *Permits.* Each attempt has one of its own, so that a call that pauses holds none.
//! - *Retries.* The retry policy of the model counts the attempts and draws the pauses; what the provider asks
//!   for counts instead of the drawn pause. `x-should-retry` overrides the class of the error, and an error may
//!   allow fewer attempts.
//! - *429.* Where all calls share its pause, the call asks the gateway again at once, to start after the pause. It
//!   is no attempt if the provider took other calls meanwhile, or if the gateway let the call start before its
//!   own pause was over, to ask whether all must wait.
//! - *Quota.* Where the provider's quota is waited for, the call asks the gateway again, however often.
//! - *Form.* An output limit that does not fit beside the input is made smaller. What the provider refuses to do
//!   (work on the context, a schema for the answer) is left out, and no later call asks for it.
//! - *Length.* A refusal in unknown words of a request that fills half of the window counts as one for its
//!   length, once: the turn is then made smaller. The call itself ends with such an error.
//! - *Fallbacks.* A model is given up at once for its quota, its key, its address or its certificate, and after
//!   the third attempt for what may pass. Calls that wait for a permit of it leave too. The next model that is
//!   not given up and whose window holds the request is called, with attempts of its own; if there is none, the
//!   policy of the last goes on. After the cooldown one call tries the model again, with one attempt and little
//!   patience.
//! - *Summaries* ([`summary`] names their calls). Two attempts with a short pause between them, no fallbacks, no wait for a quota. Their failures
//!   do not count against the provider, since an agent can go on without.
//! - *Cancellation* ends a call in whatever it waits for.

mod after;
pub mod error;
pub mod simulation;
pub mod standing;
mod step;
pub mod summary;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

pub use self::after::Broken;
use self::after::{Attempt, Next};
use self::error::ModelError;
use self::standing::{Admitted, Models, Standing};
pub use self::step::{Call, End, Failed, Form, Input, Patience, Purpose, Step, Then};
use crate::admission::{CallEnd, LONGEST_PAUSE};
use crate::message::{StopReason, Usage};

/// The longest time that a call which tries a model again waits for a permit, before it goes to a fallback too.
const PROBE_WAIT: Duration = Duration::from_secs(5);

/// What follows once something is durable.
#[derive(Clone, Debug)]
enum Follows {
    LetAhead,
    Send,
    Permit,
    /// The next attempt asks the gateway to start after this pause.
    Parked(Duration),
    Wait(Duration),
    End(End),
}

/// A model that was chosen for the next attempts.
#[derive(Clone, Copy, Debug)]
struct Choice {
    place: usize,
    admitted: Admitted,
    /// How often the model was given up before.
    falls: u64,
}

impl Choice {
    /// Takes the model at this place, if it may be called now.
    fn take(models: &impl Models, place: usize, now: Instant) -> Option<Self> {
        models.with(place, |standing| {
            let falls = standing.falls();
            standing.admit(now).map(|admitted| Self { place, admitted, falls })
        })
    }

    /// Takes the first of the models after this place that may be called now and holds so many tokens.
    fn behind(models: &impl Models, place: usize, tokens: u64, now: Instant) -> Option<Self> {
        behind(models, place, tokens).find_map(|place| Self::take(models, place, now))
    }

    /// Takes the call's own model, whatever its state.
    fn own(models: &impl Models) -> Self {
        Self { place: 0, admitted: Admitted::Freely, falls: models.with(0, |own| own.falls()) }
    }
}

/// The places after this one whose models hold so many tokens.
fn behind<M: Models>(models: &M, place: usize, tokens: u64) -> impl Iterator<Item = usize> {
    (place + 1..models.count()).filter(move |place| models.rules(*place).holds(tokens))
}

/// One model call.
#[derive(Debug)]
pub struct CallMachine {
    call: Call,
    form: Form,
    using: Choice,
    /// True if, when the permit was asked for, another model could be called.
    has_next: bool,
    /// Number of the attempt at the model in use, from 1.
    attempt: u32,
    /// Number of the request that was announced last.
    number: u32,
    /// True if that one may have been sent.
    was_sent: bool,
    /// True if it is announced, and not settled.
    is_open: bool,
    /// The calls that the provider had taken when this one began with it, or was refused last.
    taken: Option<u64>,
    /// True if the provider has taken the attempt.
    is_taken: bool,
    /// The end of the call's own pause after a refusal.
    ready: Instant,
    follows: Follows,
}

impl CallMachine {
    /// Begins a call with the agent's own model or, if that was given up, with the first of its fallbacks. If all
    /// were, it is the agent's own.
    pub fn new(call: Call, models: &impl Models, now: Instant) -> Self {
        // What has no fallbacks is never given up.
        let choice = (models.count() > 1).then(|| {
            let own = Choice::take(models, 0, now);
            own.or_else(|| Choice::behind(models, 0, call.expected_tokens, now))
        });
        let using = choice.flatten().unwrap_or_else(|| Choice::own(models));
        let form = call.form.at(using.place, models);
        Self {
            call,
            form,
            using,
            has_next: false,
            attempt: 1,
            number: call.announced,
            was_sent: true,
            is_open: false,
            taken: None,
            is_taken: false,
            ready: now,
            follows: Follows::LetAhead,
        }
    }

    /// Returns the form of the request that is sent next.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns the first step.
    pub fn first(&mut self) -> Step {
        self.announce(Follows::LetAhead)
    }

    /// Takes in what came of the last step, and returns the next.
    pub fn next(&mut self, models: &impl Models, now: Instant, input: Input) -> Step {
        match input {
            Input::Recorded => self.recorded(models, now),
            Input::RecordedLate => {
                if matches!(self.follows, Follows::Send) {
                    self.follows = Follows::Permit;
                }
                self.recorded(models, now)
            }
            Input::Woke => self.permit(models, now),
            Input::Admitted if self.is_open => self.send(),
            Input::Admitted => self.announce(Follows::Send),
            Input::OutOfPatience => {
                match Choice::behind(models, self.using.place, self.call.expected_tokens, now) {
                    Some(other) => self.switch(models, other, now),
                    None => self.using.falls = models.with(self.using.place, |own| own.falls()),
                }
                self.permit(models, now)
            }
            Input::Replied => {
                self.taken(models);
                self.using.admitted = Admitted::Freely;
                models.with(self.using.place, Standing::is_well);
                self.end(End::Replied)
            }
            Input::Failed { error, chance } => self.failed(models, now, error, chance),
            Input::Cancelled if self.is_open => {
                self.follows = Follows::End(End::Cancelled);
                Step::Cut { attempt: self.attempt }
            }
            Input::Cancelled => self.end(End::Cancelled),
        }
    }

    /// Takes in that the provider has begun to answer, and so takes the call.
    pub fn taken(&mut self, models: &impl Models) {
        if !std::mem::replace(&mut self.is_taken, true) {
            models.with(self.using.place, Standing::note_taken);
        }
    }

    /// Takes in that nobody makes the call any more: if it tried a model again, another may.
    pub fn dropped(&mut self, models: &impl Models) {
        if std::mem::replace(&mut self.using.admitted, Admitted::Freely) == Admitted::AsProbe {
            models.with(self.using.place, Standing::abandon);
        }
    }

    /// Returns what the reply to this attempt means for the other calls to the provider.
    pub fn end_of_reply(&self, stop: &StopReason, usage: &Usage) -> CallEnd {
        self.end_for_others(after::end_of_reply(stop, usage))
    }

    /// Returns what the error of this attempt means for the other calls to the provider.
    pub fn end_of_error(&self, error: &ModelError) -> CallEnd {
        self.end_for_others(after::end_of_error(error))
    }

    fn end_for_others(&self, end: CallEnd) -> CallEnd {
        match end {
            CallEnd::Failed | CallEnd::Overloaded if self.call.purpose == Purpose::Summary => {
                CallEnd::Abandoned
            }
            // Nobody waits for the quota if another model is called.
            CallEnd::QuotaExhausted { .. } if self.has_next => CallEnd::Abandoned,
            end => end,
        }
    }

    fn recorded(&mut self, models: &impl Models, now: Instant) -> Step {
        match std::mem::replace(&mut self.follows, Follows::Permit) {
            Follows::LetAhead => Step::LetAhead,
            Follows::Send => self.send(),
            Follows::Permit => self.permit(models, now),
            Follows::Parked(pause) => {
                self.ready = now + pause.min(LONGEST_PAUSE);
                self.permit(models, now)
            }
            Follows::Wait(pause) => Step::Wait(pause),
            Follows::End(end) => self.end(end),
        }
    }

    fn announce(&mut self, follows: Follows) -> Step {
        // A request that was not sent, because another model is asked instead, leaves its number.
        self.number += u32::from(std::mem::replace(&mut self.was_sent, false));
        (self.is_open, self.follows) = (true, follows);
        Step::Announce { number: self.number }
    }

    fn permit(&mut self, models: &impl Models, now: Instant) -> Step {
        let Choice { place, admitted, falls } = self.using;
        self.taken.get_or_insert_with(|| models.with(place, |standing| standing.taken()));
        self.has_next = behind(models, place, self.call.expected_tokens)
            .any(|place| models.with(place, |standing| standing.is_ready(now)));
        let patience = match (self.has_next, admitted) {
            (false, _) => Patience::Endless,
            (true, Admitted::Freely) => Patience::UntilFall(falls),
            (true, Admitted::AsProbe) => Patience::For(PROBE_WAIT),
        };
        Step::Permit { pause: self.ready.saturating_duration_since(now), patience }
    }

    fn send(&mut self) -> Step {
        (self.was_sent, self.is_taken) = (true, false);
        Step::Send
    }

    fn end(&mut self, end: End) -> Step {
        self.is_open = false;
        Step::End(end)
    }

    /// Goes on with another model. The pause was that of the first.
    fn switch(&mut self, models: &impl Models, other: Choice, now: Instant) {
        self.dropped(models);
        self.ready = now;
        (self.using, self.form) = (other, self.call.form.at(other.place, models));
        (self.attempt, self.taken, self.is_open) = (1, None, false);
    }

    fn failed(
        &mut self,
        models: &impl Models,
        now: Instant,
        mut error: ModelError,
        chance: f64,
    ) -> Step {
        let Call { purpose, expected_tokens, messages, made_smaller, .. } = self.call;
        let (place, attempt, rules) =
            (self.using.place, self.attempt, models.rules(self.using.place));
        let gave_up = self.has_next && after::is_due(&error, attempt, self.using.admitted);
        let usage_source = after::estimated(&mut error, expected_tokens);
        // A prompt alone cannot be made smaller.
        if purpose == Purpose::Turn && !made_smaller && messages > 1 {
            error = after::suspected(error, expected_tokens, rules.window);
        }
        let (lost, taken) = models.with(place, |standing| {
            if self.is_taken {
                // It was refused after all: only calls that the provider answers show that it takes some.
                standing.note_refused();
            }
            if gave_up {
                standing.give_up(now);
            }
            (standing.lose(&error), standing.taken())
        });
        self.is_open = false;
        let before = self.taken.replace(taken);
        // While the provider takes other calls, to be refused is no attempt. Nor is it when the gateway let the
        // call start before its time, to ask whether all calls must wait.
        let is_no_attempt = before.is_some_and(|before| taken > before) || now < self.ready;
        let mut other = None;
        if gave_up {
            self.using.admitted = Admitted::Freely;
            other = Choice::behind(models, place, expected_tokens, now);
        }
        let then = if let Some(other) = other {
            self.switch(models, other, now);
            self.follows = Follows::Permit;
            Then::Other(other.place)
        } else {
            let (form, number, error) = (self.form, attempt, &error);
            let next =
                Attempt { error, rules, form, purpose, number, is_no_attempt, chance }.next();
            self.follow(next, is_no_attempt, error);
            next.pause().map_or(Then::Nothing, Then::Again)
        };
        Step::Failed(Box::new(Failed { place, attempt, error, usage_source, then, gave_up, lost }))
    }

    /// Prepares what follows the failure, once it is recorded.
    fn follow(&mut self, next: Next, is_no_attempt: bool, error: &ModelError) {
        let is_counted = match next {
            Next::QuotaClosed(_) => false,
            Next::Parked(_) => !is_no_attempt,
            _ => true,
        };
        self.attempt += u32::from(is_counted);
        match next {
            Next::Smaller(tokens) => self.form.max_output_tokens = tokens,
            Next::Plain => self.form.has_edits = false,
            Next::WithoutSchema => self.form.has_schema = false,
            Next::GiveUp | Next::Again(_) | Next::Parked(_) | Next::QuotaClosed(_) => {}
        }
        self.follows = match next {
            Next::GiveUp => Follows::End(End::Failed(error.clone())),
            Next::Again(pause) => Follows::Wait(pause),
            Next::Parked(pause) => Follows::Parked(pause),
            Next::QuotaClosed(_) | Next::Smaller(_) | Next::Plain | Next::WithoutSchema => {
                Follows::Permit
            }
        };
    }
}
