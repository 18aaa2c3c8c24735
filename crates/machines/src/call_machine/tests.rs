//! Table tests of the call machine: no socket, no clock.

use std::cell::RefCell;

use super::error::ErrorClass;
use super::standing::{Lost, Rules};
use super::*;
use crate::failure::FailureKind;
use crate::message::UsageSource;
use crate::policy::RetryPolicy;
use crate::spec::capability::{Capabilities, Capability};

const S: Duration = Duration::from_secs(1);
const COOLDOWN: Duration = Duration::from_secs(60);
const WINDOW: u64 = 100_000;

/// A model of the table.
struct Row {
    retry: RetryPolicy,
    shares_pauses: bool,
    waits_for_quota: bool,
    window: u64,
    standing: RefCell<Standing>,
}

/// The models of a run, with a clock that the test moves.
struct Table {
    rows: Vec<Row>,
    now: Instant,
}

impl Table {
    /// So many models that hold to schemas and edit contexts. The first is the call's own.
    fn of(models: usize) -> Self {
        let now = Instant::now();
        let row = |_| {
            let mut standing = Standing::new(COOLDOWN, now);
            standing.believe(Capabilities::from_iter(Capability::ALL), true);
            Row {
                retry: RetryPolicy {
                    max_attempts: 5,
                    initial_interval: S,
                    max_interval: 6 * S,
                    ..RetryPolicy::default()
                },
                shares_pauses: true,
                waits_for_quota: true,
                window: WINDOW,
                standing: RefCell::new(standing),
            }
        };
        Self { rows: (0..models).map(row).collect(), now }
    }

    fn standing(&self, place: usize) -> std::cell::RefMut<'_, Standing> {
        self.rows[place].standing.borrow_mut()
    }

    fn is_ready(&self, place: usize) -> bool {
        self.standing(place).is_ready(self.now)
    }
}

impl Models for Table {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn rules(&self, place: usize) -> Rules<'_> {
        let row = &self.rows[place];
        Rules {
            retry: &row.retry,
            shares_pauses: row.shares_pauses,
            waits_for_quota: row.waits_for_quota,
            window: row.window,
            max_output_tokens: 4_000 - 1_000 * place as u64,
        }
    }

    fn with<R>(&self, place: usize, look: impl FnOnce(&mut Standing) -> R) -> R {
        look(&mut self.standing(place))
    }
}

const TURN: Call = Call {
    purpose: Purpose::Turn,
    expected_tokens: 1_000,
    messages: 3,
    made_smaller: false,
    announced: 0,
    form: Form { place: 0, max_output_tokens: 4_000, has_schema: true, has_edits: true },
};

const SUMMARY: Call = Call {
    purpose: Purpose::Summary,
    form: Form { has_schema: false, has_edits: false, ..TURN.form },
    ..TURN
};

/// A call that is played step by step.
struct Play {
    machine: CallMachine,
    step: Step,
}

impl Play {
    /// Begins a call, up to its first step.
    fn begin(call: Call, table: &Table) -> Self {
        let mut machine = CallMachine::new(call, table, table.now);
        let step = machine.first();
        Self { machine, step }
    }

    /// Begins a call and plays it until its request is sent.
    fn sent(call: Call, table: &mut Table) -> Self {
        let mut play = Self::begin(call, table);
        play.until_sent(table);
        play
    }

    fn tell(&mut self, table: &Table, input: Input) -> String {
        self.step = self.machine.next(table, table.now, input);
        in_words(&self.step)
    }

    /// Lets all waits pass and all wishes come true, until the request is sent or the call has ended. Returns
    /// the steps.
    fn until_sent(&mut self, table: &mut Table) -> String {
        let mut steps = vec![in_words(&self.step)];
        loop {
            let input = match &self.step {
                Step::Announce { .. } | Step::Failed(_) | Step::Cut { .. } => Input::Recorded,
                Step::LetAhead => Input::Woke,
                Step::Permit { pause, .. } => {
                    table.now += *pause;
                    Input::Admitted
                }
                Step::Wait(pause) => {
                    table.now += *pause;
                    Input::Woke
                }
                Step::Send | Step::End(_) => return steps.join(", "),
            };
            steps.push(self.tell(table, input));
        }
    }

    /// Lets the attempt fail, and plays on until the request is sent again or the call has ended.
    fn fails(&mut self, table: &mut Table, error: &ModelError) -> String {
        assert_eq!(self.step, Step::Send);
        self.tell(table, Input::Failed { error: error.clone(), chance: 1.0 });
        self.until_sent(table)
    }

    /// Lets the call succeed.
    fn replies(&mut self, table: &Table) {
        assert_eq!(self.step, Step::Send);
        assert_eq!(self.tell(table, Input::Replied), "replied");
    }
}

/// Puts a step into words.
fn in_words(step: &Step) -> String {
    match step {
        Step::Announce { number } => format!("announce {number}"),
        Step::LetAhead => "let ahead".to_owned(),
        Step::Permit { pause, patience } => {
            let pause = if pause.is_zero() { String::new() } else { format!(" in {pause:?}") };
            match patience {
                Patience::Endless => format!("permit{pause}"),
                Patience::UntilFall(falls) => format!("permit{pause} until fall {falls}"),
                Patience::For(limit) => format!("permit{pause} for {limit:?}"),
            }
        }
        Step::Send => "send".to_owned(),
        Step::Failed(failed) => {
            let Failed { place, attempt, then, gave_up, lost, .. } = &**failed;
            let then = match then {
                Then::Nothing => String::new(),
                Then::Again(pause) => format!(" again in {pause:?}"),
                Then::Other(place) => format!(" then {place}"),
            };
            let up = if *gave_up { " given up" } else { "" };
            let lost = lost.map(|lost| format!(" {lost:?}")).unwrap_or_default();
            format!("{place} fails {attempt}{then}{up}{lost}")
        }
        Step::Cut { attempt } => format!("cut {attempt}"),
        Step::Wait(pause) => format!("wait {pause:?}"),
        Step::End(End::Replied) => "replied".to_owned(),
        Step::End(End::Failed(error)) => format!("over: {error}"),
        Step::End(End::Cancelled) => "cancelled".to_owned(),
    }
}

fn error(class: ErrorClass) -> ModelError {
    ModelError::new(class, "no")
}

fn asks(class: ErrorClass, pause: Duration) -> ModelError {
    ModelError { retry_after: Some(pause), ..error(class) }
}

/// The classes of what may pass, without the rate limit.
const PASSING: [ErrorClass; 4] = [
    ErrorClass::Overloaded,
    ErrorClass::ServerError,
    ErrorClass::Connection,
    ErrorClass::IdleTimeout,
];

const TOO_LONG: ErrorClass = ErrorClass::ContextTokens { have: None, max: None };

/// The classes of what the same request would meet again.
const LASTING: [ErrorClass; 8] = [
    TOO_LONG,
    ErrorClass::ContextPlusOutput { input: None, limit: None },
    ErrorClass::RequestBytes,
    ErrorClass::Pairing,
    ErrorClass::ThinkingChanged,
    ErrorClass::ReplyTooLarge,
    ErrorClass::Auth,
    ErrorClass::NotFound,
];

// The way of a call.

#[test]
fn a_call_is_announced_and_admitted_before_it_is_sent() {
    for call in [TURN, SUMMARY] {
        let mut table = Table::of(1);
        let mut play = Play::begin(call, &table);
        assert_eq!(play.until_sent(&mut table), "announce 1, let ahead, permit, send");
        play.replies(&table);
    }
    let mut table = Table::of(1);
    let again = Call { announced: 4, ..TURN };
    let mut play = Play::begin(again, &table);
    assert_eq!(play.until_sent(&mut table), "announce 5, let ahead, permit, send");
}

#[test]
fn a_cancelled_call_settles_what_it_announced() {
    let table = Table::of(1);
    let mut play = Play::begin(TURN, &table);
    assert_eq!(play.tell(&table, Input::Recorded), "let ahead");
    assert_eq!(play.tell(&table, Input::Cancelled), "cut 1");
    assert_eq!(play.tell(&table, Input::Recorded), "cancelled");

    let mut play = Play::begin(TURN, &table);
    play.tell(&table, Input::Recorded);
    assert_eq!(play.tell(&table, Input::Woke), "permit");
    assert_eq!(play.tell(&table, Input::Cancelled), "cut 1");
    assert_eq!(play.tell(&table, Input::Recorded), "cancelled");

    let mut table = table;
    let mut play = Play::sent(TURN, &mut table);
    play.fails(&mut table, &error(ErrorClass::Overloaded));
    assert_eq!(play.tell(&table, Input::Cancelled), "cut 2", "while it is sent");
    assert_eq!(play.tell(&table, Input::Recorded), "cancelled");
}

#[test]
fn a_call_that_is_cancelled_between_its_attempts_has_nothing_to_settle() {
    for (class, waits) in
        [(ErrorClass::Overloaded, "wait 1s"), (ErrorClass::RateLimited, "permit in 1s")]
    {
        let mut table = Table::of(1);
        let mut play = Play::sent(TURN, &mut table);
        play.tell(&table, Input::Failed { error: error(class), chance: 1.0 });
        assert_eq!(play.tell(&table, Input::Recorded), waits);
        assert_eq!(play.tell(&table, Input::Cancelled), "cancelled");
    }
}

// Retries.

#[test]
fn what_may_pass_is_tried_again_with_growing_pauses() {
    for class in PASSING {
        let mut table = Table::of(1);
        let mut play = Play::sent(TURN, &mut table);
        let error = error(class);
        assert_eq!(
            [(); 5].map(|()| play.fails(&mut table, &error)),
            [
                "0 fails 1 again in 1s, wait 1s, permit, announce 2, send",
                "0 fails 2 again in 2s, wait 2s, permit, announce 3, send",
                "0 fails 3 again in 4s, wait 4s, permit, announce 4, send",
                "0 fails 4 again in 6s, wait 6s, permit, announce 5, send",
                "0 fails 5, over: no",
            ],
            "{class:?}"
        );
    }
}

#[test]
fn what_lasts_ends_the_call_at_once() {
    for class in LASTING.into_iter().chain([ErrorClass::Fatal]) {
        let mut table = Table::of(1);
        let mut play = Play::sent(TURN, &mut table);
        assert_eq!(play.fails(&mut table, &error(class)), "0 fails 1, over: no", "{class:?}");
    }
}

#[test]
fn the_pause_is_drawn_or_the_one_that_the_provider_asks_for() {
    let mut table = Table::of(1);
    let mut play = Play::sent(TURN, &mut table);
    let drawn = Input::Failed { error: error(ErrorClass::Overloaded), chance: 0.25 };
    assert_eq!(play.tell(&table, drawn), "0 fails 1 again in 250ms");
    play.until_sent(&mut table);
    let asked = asks(ErrorClass::Overloaded, 90 * S);
    assert_eq!(
        play.fails(&mut table, &asked),
        "0 fails 2 again in 90s, wait 90s, permit, announce 3, send",
        "it may be longer than any pause of the policy"
    );
    play.fails(&mut table, &asked);
    play.fails(&mut table, &asked);
    assert_eq!(play.fails(&mut table, &asked), "0 fails 5, over: no", "and allows no attempt more");
}

#[test]
fn a_provider_and_an_error_may_say_whether_to_try_again() {
    let said = |class, should_retry| ModelError { should_retry, ..error(class) };
    let most = |most| ModelError { most_attempts: Some(most), ..error(ErrorClass::ServerError) };
    let again = "0 fails 1 again in 1s, wait 1s, permit, announce 2, send";
    let over = "0 fails 1, over: no";
    for (error, expected) in [
        (said(ErrorClass::Fatal, Some(true)), again),
        (said(ErrorClass::Overloaded, Some(true)), again),
        (said(ErrorClass::Overloaded, Some(false)), over),
        (most(2), again),
        (most(1), over),
    ] {
        let mut table = Table::of(1);
        let mut play = Play::sent(TURN, &mut table);
        assert_eq!(play.fails(&mut table, &error), expected, "{error:?}");
    }
}

#[test]
fn the_policy_names_the_kinds_of_failure_that_are_tried_again() {
    let mut table = Table::of(1);
    table.rows[0].retry.retry_on = vec![FailureKind::ServerError];
    for class in [ErrorClass::Overloaded, ErrorClass::Connection, ErrorClass::RateLimited] {
        let mut play = Play::sent(TURN, &mut table);
        assert_eq!(play.fails(&mut table, &error(class)), "0 fails 1, over: no", "{class:?}");
        let mut play = Play::sent(TURN, &mut table);
        let asked = ModelError { should_retry: Some(true), ..error(class) };
        let steps = play.fails(&mut table, &asked);
        assert!(steps.starts_with("0 fails 1 again in 1s, wait 1s"), "{class:?}: {steps}");
    }
}

// Rate limits and quotas.

#[test]
fn after_a_429_the_gateway_is_asked_again_at_once() {
    let mut table = Table::of(1);
    let mut play = Play::sent(TURN, &mut table);
    let refused = asks(ErrorClass::RateLimited, 7 * S);
    assert_eq!(
        play.fails(&mut table, &refused),
        "0 fails 1 again in 7s, permit in 7s, announce 2, send"
    );
    for attempt in 2..5 {
        let steps = play.fails(&mut table, &error(ErrorClass::RateLimited));
        assert!(steps.starts_with(&format!("0 fails {attempt} again in ")), "{steps}");
    }
    assert_eq!(play.fails(&mut table, &refused), "0 fails 5, over: no");

    let mut table = Table::of(1);
    table.rows[0].shares_pauses = false;
    let mut play = Play::sent(TURN, &mut table);
    assert_eq!(
        play.fails(&mut table, &refused),
        "0 fails 1 again in 7s, wait 7s, permit, announce 2, send",
        "where each call pauses by itself"
    );
}

#[test]
fn a_refusal_is_no_attempt_while_the_provider_takes_other_calls() {
    let mut table = Table::of(1);
    table.rows[0].retry.max_attempts = 1;
    let mut play = Play::sent(TURN, &mut table);
    for number in 2..20 {
        Play::sent(TURN, &mut table).machine.taken(&table);
        let steps = play.fails(&mut table, &error(ErrorClass::RateLimited));
        let expected = format!("0 fails 1 again in 1s, permit in 1s, announce {number}, send");
        assert_eq!(steps, expected);
    }
    let refused = asks(ErrorClass::RateLimited, 3 * S);
    Play::sent(TURN, &mut table).machine.taken(&table);
    let steps = play.fails(&mut table, &refused);
    assert_eq!(steps, "0 fails 1 again in 3s, permit in 3s, announce 20, send");
    assert_eq!(play.fails(&mut table, &refused), "0 fails 1, over: no", "it takes none");
}

#[test]
fn a_call_that_was_taken_and_refused_after_all_was_not_taken() {
    let mut table = Table::of(1);
    table.rows[0].retry.max_attempts = 1;
    let mut play = Play::sent(TURN, &mut table);
    let mut other = Play::sent(TURN, &mut table);
    other.machine.taken(&table);
    other.machine.taken(&table);
    assert_eq!(table.standing(0).taken(), 1, "it is one call");
    other.fails(&mut table, &error(ErrorClass::Fatal));
    assert_eq!(table.standing(0).taken(), 0);
    assert_eq!(play.fails(&mut table, &error(ErrorClass::RateLimited)), "0 fails 1, over: no");
    // A reply counts, also of a client that does not tell that the call was taken.
    Play::sent(TURN, &mut table).replies(&table);
    assert_eq!(table.standing(0).taken(), 1);
}

#[test]
fn a_refusal_before_the_end_of_the_own_pause_is_no_attempt() {
    let mut table = Table::of(1);
    table.rows[0].retry.max_attempts = 2;
    let mut play = Play::sent(TURN, &mut table);
    let refused = asks(ErrorClass::RateLimited, 10 * S);
    play.tell(&table, Input::Failed { error: refused.clone(), chance: 1.0 });
    assert_eq!(play.tell(&table, Input::Recorded), "permit in 10s");
    for _ in 0..3 {
        // The gateway lets the call ask whether all must wait.
        table.now += S;
        play.tell(&table, Input::Admitted);
        play.tell(&table, Input::Recorded);
        let steps = play.tell(&table, Input::Failed { error: refused.clone(), chance: 1.0 });
        assert_eq!(steps, "0 fails 2 again in 10s");
        assert_eq!(play.tell(&table, Input::Recorded), "permit in 10s");
    }
    play.until_sent(&mut table);
    assert_eq!(play.fails(&mut table, &refused), "0 fails 2, over: no");
}

#[test]
fn a_quota_is_waited_for_however_often_its_end_is_tried() {
    let mut table = Table::of(1);
    let mut play = Play::sent(TURN, &mut table);
    let closed = asks(ErrorClass::QuotaExhausted, 3_600 * S);
    for number in 2..40 {
        let expected = format!("0 fails 1 again in 3600s, permit, announce {number}, send");
        assert_eq!(play.fails(&mut table, &closed), expected);
    }
    let steps = play.fails(&mut table, &error(ErrorClass::QuotaExhausted));
    assert_eq!(steps, "0 fails 1 again in 6s, permit, announce 40, send", "the longest pause");

    for call in [TURN, SUMMARY] {
        let mut table = Table::of(1);
        table.rows[0].waits_for_quota = call.purpose == Purpose::Summary;
        let mut play = Play::sent(call, &mut table);
        assert_eq!(play.fails(&mut table, &closed), "0 fails 1, over: no");
    }
}

// Forms and lengths.

#[test]
fn an_output_limit_that_does_not_fit_is_made_smaller() {
    let too_much = |input, limit| error(ErrorClass::ContextPlusOutput { input, limit });
    let mut table = Table::of(1);
    let mut play = Play::sent(TURN, &mut table);
    let steps = play.fails(&mut table, &too_much(Some(97_000), Some(WINDOW)));
    assert_eq!(steps, "0 fails 1 again in 0ns, permit, announce 2, send");
    assert_eq!(play.machine.form(), Form { max_output_tokens: 3_000, ..TURN.form });
    for (input, limit) in [
        (Some(97_000), Some(WINDOW)),
        (Some(99_999), Some(WINDOW)),
        (Some(WINDOW + 1), Some(WINDOW)),
        (None, Some(WINDOW)),
        (Some(97_000), None),
    ] {
        let steps = play.fails(&mut table, &too_much(input, limit));
        assert_eq!(steps, "0 fails 2, over: no", "no smaller, too small, or unknown");
        play = Play::sent(TURN, &mut table);
        play.fails(&mut table, &too_much(Some(97_000), Some(WINDOW)));
    }
}

#[test]
fn what_a_provider_refuses_to_do_is_left_out_from_then_on() {
    let refused = Capability::ContextEditing;
    let cases = [
        (ErrorClass::SchemaRefused, "Schemas", Form { has_schema: false, ..TURN.form }),
        (
            ErrorClass::Unsupported(refused),
            "Capability(ContextEditing)",
            Form { has_edits: false, ..TURN.form },
        ),
    ];
    for (class, lost, form) in cases {
        let mut table = Table::of(2);
        let mut play = Play::sent(TURN, &mut table);
        let mut other = Play::sent(TURN, &mut table);
        let rest = "permit until fall 0, announce 2, send";
        let steps = play.fails(&mut table, &error(class));
        assert_eq!(steps, format!("0 fails 1 again in 0ns {lost}, {rest}"));
        assert_eq!(play.machine.form(), form);
        // A call that was under way learns it too, but it is no news.
        let steps = other.fails(&mut table, &error(class));
        assert_eq!(steps, format!("0 fails 1 again in 0ns, {rest}"));
        assert_eq!(play.fails(&mut table, &error(class)), "0 fails 2, over: no", "it was left out");
        let standing = table.standing(0);
        let is_schema = class == ErrorClass::SchemaRefused;
        assert_eq!(standing.holds_to_schema(), !is_schema);
        assert_eq!(standing.capabilities().has(refused), is_schema);
    }
}

#[test]
fn a_refusal_in_unknown_words_near_the_window_may_be_about_the_size() {
    let refused = |status, class| ModelError { status: Some(status), ..error(class) };
    let half = Call { expected_tokens: WINDOW / 2, ..TURN };
    let class_of = |call: Call, refused: &ModelError| {
        let mut table = Table::of(1);
        let mut play = Play::sent(call, &mut table);
        play.tell(&table, Input::Failed { error: refused.clone(), chance: 1.0 });
        let Step::Failed(failed) = &play.step else { panic!("{:?}", play.step) };
        (failed.error.class, failed.error.message.clone())
    };
    for status in [400, 422] {
        let (class, message) = class_of(half, &refused(status, ErrorClass::Fatal));
        assert_eq!(class, TOO_LONG);
        let expected = "no (perhaps it is too long: it has about 50000 of 100000 tokens)";
        assert_eq!(message, expected);
    }
    let same = |call: Call, refused: ModelError| {
        assert_eq!(class_of(call, &refused), (refused.class, refused.message));
    };
    let fatal = refused(400, ErrorClass::Fatal);
    same(Call { expected_tokens: WINDOW / 2 - 1, ..TURN }, fatal.clone());
    same(Call { made_smaller: true, ..half }, fatal.clone());
    same(Call { messages: 1, ..half }, fatal.clone());
    same(Call { purpose: Purpose::Summary, ..half }, fatal);
    for status in [200, 403, 415] {
        same(half, refused(status, ErrorClass::Fatal));
    }
    for class in [ErrorClass::Pairing, ErrorClass::NotFound, ErrorClass::Auth] {
        same(half, refused(400, class));
    }
}

#[test]
fn an_attempt_that_had_begun_to_write_has_read_its_request() {
    let counted = |usage: Option<Usage>| {
        let mut table = Table::of(1);
        let mut play = Play::sent(TURN, &mut table);
        let error = ModelError { usage: usage.map(Box::new), ..error(ErrorClass::Connection) };
        play.tell(&table, Input::Failed { error, chance: 1.0 });
        let Step::Failed(failed) = &play.step else { panic!("{:?}", play.step) };
        (failed.error.usage.as_deref().copied(), failed.usage_source)
    };
    let written = Usage { output: 7, ..Usage::default() };
    let read = Usage { input: 1_000, ..written };
    assert_eq!(counted(Some(written)), (Some(read), UsageSource::Expected));
    let said = Usage { input: 40, ..written };
    assert_eq!(counted(Some(said)), (Some(said), UsageSource::Reported));
    assert_eq!(counted(None), (None, UsageSource::Reported));
}

// Fallbacks.

#[test]
fn a_model_is_given_up_at_once_or_after_its_third_attempt() {
    let at_once = "0 fails 1 then 1 given up, permit, announce 2, send";
    let certificate = ModelError { should_retry: Some(false), ..error(ErrorClass::Connection) };
    let classes = [ErrorClass::QuotaExhausted, ErrorClass::Auth, ErrorClass::NotFound];
    for error in classes.map(error).into_iter().chain([certificate]) {
        let mut table = Table::of(2);
        let mut play = Play::sent(TURN, &mut table);
        assert_eq!(play.fails(&mut table, &error), at_once, "{error:?}");
    }
    for class in PASSING {
        let mut table = Table::of(2);
        let mut play = Play::sent(TURN, &mut table);
        let error = error(class);
        assert_eq!(
            [(); 3].map(|()| play.fails(&mut table, &error)),
            [
                "0 fails 1 again in 1s, wait 1s, permit until fall 0, announce 2, send",
                "0 fails 2 again in 2s, wait 2s, permit until fall 0, announce 3, send",
                "0 fails 3 then 1 given up, permit, announce 4, send",
            ],
            "{class:?}"
        );
    }
    let mut table = Table::of(2);
    let mut play = Play::sent(TURN, &mut table);
    let twice = ModelError { most_attempts: Some(2), ..error(ErrorClass::IdleTimeout) };
    play.fails(&mut table, &twice);
    let steps = play.fails(&mut table, &twice);
    assert_eq!(steps, "0 fails 2 then 1 given up, permit, announce 3, send");
}

#[test]
fn the_pause_that_one_model_asks_for_holds_for_no_other() {
    let mut table = Table::of(2);
    let mut play = Play::sent(TURN, &mut table);
    let refused = asks(ErrorClass::RateLimited, 60 * S);
    play.tell(&table, Input::Failed { error: refused.clone(), chance: 1.0 });
    assert_eq!(play.tell(&table, Input::Recorded), "permit in 60s until fall 0");
    // Another call gives the model up meanwhile.
    table.standing(0).give_up(table.now);
    assert_eq!(play.tell(&table, Input::OutOfPatience), "permit");
    play.until_sent(&mut table);
    // So a refusal by the other model is an attempt.
    table.rows[1].retry.max_attempts = 1;
    assert_eq!(play.fails(&mut table, &refused), "1 fails 1, over: no");
}

#[test]
fn what_any_model_would_refuse_goes_nowhere_else() {
    let lasting = LASTING
        .into_iter()
        .filter(|class| ![ErrorClass::Auth, ErrorClass::NotFound].contains(class));
    for class in lasting.chain([ErrorClass::Fatal]) {
        let mut table = Table::of(2);
        let mut play = Play::sent(TURN, &mut table);
        assert_eq!(play.fails(&mut table, &error(class)), "0 fails 1, over: no", "{class:?}");
        assert!(table.is_ready(0), "it stays well");
    }
}

#[test]
fn the_other_model_gets_the_form_that_it_can_read_and_attempts_of_its_own() {
    let mut table = Table::of(3);
    table.standing(2).believe(Capabilities::default(), false);
    let mut play = Play::sent(TURN, &mut table);
    play.fails(&mut table, &error(ErrorClass::Auth));
    let form = Form { place: 1, max_output_tokens: 3_000, has_schema: true, has_edits: false };
    assert_eq!(play.machine.form(), form);
    let overloaded = error(ErrorClass::Overloaded);
    assert_eq!(
        [(); 3].map(|()| play.fails(&mut table, &overloaded)),
        [
            "1 fails 1 again in 1s, wait 1s, permit until fall 0, announce 3, send",
            "1 fails 2 again in 2s, wait 2s, permit until fall 0, announce 4, send",
            "1 fails 3 then 2 given up, permit, announce 5, send",
        ]
    );
    let form = Form { place: 2, max_output_tokens: 2_000, has_schema: false, has_edits: false };
    assert_eq!(play.machine.form(), form);
    // When no model is left, the policy of the last applies.
    let steps = [(); 4].map(|()| play.fails(&mut table, &overloaded));
    assert_eq!(steps[0], "2 fails 1 again in 1s, wait 1s, permit, announce 6, send");
    assert_eq!(steps[3], "2 fails 4 again in 6s, wait 6s, permit, announce 9, send");
    assert_eq!(play.fails(&mut table, &overloaded), "2 fails 5, over: no");
}

#[test]
fn models_that_were_given_up_or_are_too_small_are_passed_over() {
    let quota = error(ErrorClass::QuotaExhausted);
    let mut table = Table::of(4);
    table.rows[1].window = 3_999;
    let now = table.now;
    table.standing(2).give_up(now);
    let mut play = Play::sent(TURN, &mut table);
    let steps = play.fails(&mut table, &quota);
    assert_eq!(steps, "0 fails 1 then 3 given up, permit, announce 2, send");
    // Later calls begin with it.
    assert_eq!(Play::begin(TURN, &table).machine.form().place, 3);
    // When all were given up, it is the agent's own, whose quota is waited for.
    table.standing(3).give_up(now);
    let mut play = Play::begin(TURN, &table);
    assert_eq!(play.machine.form(), TURN.form);
    assert_eq!(play.until_sent(&mut table), "announce 1, let ahead, permit, send");
    let steps = play.fails(&mut table, &quota);
    assert_eq!(steps, "0 fails 1 again in 6s, permit, announce 2, send");
}

#[test]
fn calls_that_wait_for_a_permit_leave_a_model_that_is_given_up() {
    let mut table = Table::of(2);
    let mut waits = Play::begin(TURN, &table);
    waits.tell(&table, Input::Recorded);
    assert_eq!(waits.tell(&table, Input::Woke), "permit until fall 0");
    Play::sent(TURN, &mut table).fails(&mut table, &error(ErrorClass::Auth));
    assert_eq!(table.standing(0).falls(), 1);
    assert_eq!(waits.tell(&table, Input::OutOfPatience), "permit");
    assert_eq!(waits.machine.form().place, 1);
    // The request that was announced first was never sent: there is nothing to cut, and its number is free.
    assert_eq!(waits.until_sent(&mut table), "permit, announce 1, send");
    waits.replies(&table);
}

#[test]
fn a_call_that_left_a_model_and_is_cancelled_has_sent_nothing() {
    let mut table = Table::of(2);
    let mut waits = Play::begin(TURN, &table);
    waits.tell(&table, Input::Recorded);
    waits.tell(&table, Input::Woke);
    Play::sent(TURN, &mut table).fails(&mut table, &error(ErrorClass::Auth));
    waits.tell(&table, Input::OutOfPatience);
    assert_eq!(waits.tell(&table, Input::Cancelled), "cancelled");
}

#[test]
fn a_call_whose_patience_ends_while_nothing_else_can_be_called_waits_on() {
    let mut table = Table::of(2);
    let mut waits = Play::begin(TURN, &table);
    waits.tell(&table, Input::Recorded);
    assert_eq!(waits.tell(&table, Input::Woke), "permit until fall 0");
    let now = table.now;
    table.standing(0).give_up(now);
    table.standing(1).give_up(now);
    assert_eq!(waits.tell(&table, Input::OutOfPatience), "permit");
    assert_eq!(waits.machine.form().place, 0);
    // The other is well again, and the next fall counts.
    table.standing(1).is_well();
    assert_eq!(waits.until_sent(&mut table), "permit, send", "its announcement stands");
    let steps = waits.fails(&mut table, &error(ErrorClass::Overloaded));
    assert_eq!(steps, "0 fails 1 again in 1s, wait 1s, permit until fall 1, announce 2, send");
}

#[test]
fn one_call_at_a_time_tries_a_model_that_was_given_up() {
    let mut table = Table::of(2);
    Play::sent(TURN, &mut table).fails(&mut table, &error(ErrorClass::Auth));
    assert_eq!(Play::begin(TURN, &table).machine.form().place, 1);
    table.now += COOLDOWN;
    let mut probe = Play::begin(TURN, &table);
    assert_eq!(probe.machine.form().place, 0);
    assert_eq!(Play::begin(TURN, &table).machine.form().place, 1, "one is enough");
    assert_eq!(probe.until_sent(&mut table), "announce 1, let ahead, permit for 5s, send");
    // One attempt shows whether it is well.
    let steps = probe.fails(&mut table, &error(ErrorClass::Overloaded));
    assert_eq!(steps, "0 fails 1 then 1 given up, permit, announce 2, send");
    assert_eq!(Play::begin(TURN, &table).machine.form().place, 1, "the cooldown begins again");
    table.now += COOLDOWN;
    let mut probe = Play::sent(TURN, &mut table);
    assert_eq!(probe.machine.form().place, 0);
    probe.replies(&table);
    for _ in 0..2 {
        assert_eq!(Play::begin(TURN, &table).machine.form().place, 0, "it is well");
    }
}

#[test]
fn a_call_that_tries_a_model_without_result_lets_another_try() {
    let ways: [fn(&mut Play, &mut Table); 3] = [
        // Nobody makes it any more.
        |probe, table| probe.machine.dropped(table),
        // It goes to the fallback, after a short wait for a permit.
        |probe, table| {
            probe.tell(table, Input::Recorded);
            assert_eq!(probe.tell(table, Input::Woke), "permit for 5s");
            assert_eq!(probe.tell(table, Input::OutOfPatience), "permit");
            assert_eq!(probe.machine.form().place, 1);
        },
        // Its error says nothing of the model.
        |probe, table| {
            probe.until_sent(table);
            assert_eq!(probe.fails(table, &error(ErrorClass::Fatal)), "0 fails 1, over: no");
            assert!(!table.is_ready(0), "until it is over");
            probe.machine.dropped(table);
        },
    ];
    for way in ways {
        let mut table = Table::of(2);
        let now = table.now;
        table.standing(0).give_up(now);
        table.now += COOLDOWN;
        let mut probe = Play::begin(TURN, &table);
        assert!(!table.is_ready(0));
        way(&mut probe, &mut table);
        assert!(table.is_ready(0));
        // The end of a call that does not try it changes nothing.
        let mut other = Play::begin(TURN, &table);
        probe.machine.dropped(&table);
        assert!(!table.is_ready(0), "another tries it");
        other.machine.dropped(&table);
    }
}

// Summaries, and what an end means for others.

#[test]
fn a_summary_is_tried_twice_with_a_short_pause() {
    let mut table = Table::of(1);
    let mut play = Play::sent(SUMMARY, &mut table);
    let asked = asks(ErrorClass::RateLimited, 5 * S);
    let steps = play.fails(&mut table, &asked);
    assert_eq!(steps, "0 fails 1 again in 5s, wait 5s, permit, announce 2, send");
    Play::sent(TURN, &mut table).machine.taken(&table);
    assert_eq!(play.fails(&mut table, &asked), "0 fails 2, over: no");
    for error in [
        asks(ErrorClass::RateLimited, 5 * S + Duration::from_millis(1)),
        error(ErrorClass::QuotaExhausted),
        error(ErrorClass::Unsupported(Capability::CompactOnDemand)),
    ] {
        let mut play = Play::sent(SUMMARY, &mut table);
        let steps = play.fails(&mut table, &error);
        assert!(steps.ends_with("over: no") && !steps.contains("again"), "{steps}");
    }
    assert!(!table.standing(0).capabilities().has(Capability::CompactOnDemand));
}

#[test]
fn the_end_of_an_attempt_says_what_it_means_for_others() {
    let mut table = Table::of(1);
    let turn = Play::sent(TURN, &mut table).machine;
    let summary = Play::sent(SUMMARY, &mut table).machine;
    let usage = Usage { input: 1, output: 10, cache_read: 100, cache_write: 1_000 };
    let broke = StopReason::Interrupted(String::new());
    for machine in [&turn, &summary] {
        let end = machine.end_of_reply(&StopReason::EndTurn, &usage);
        assert_eq!(end, CallEnd::Succeeded { tokens: 1_011 });
    }
    assert_eq!(turn.end_of_reply(&broke, &usage), CallEnd::Failed);
    assert_eq!(summary.end_of_reply(&broke, &usage), CallEnd::Abandoned);
    let left = Some(3);
    let limited = ModelError { limit_left: left, ..asks(ErrorClass::RateLimited, S) };
    let retry_after = Some(S);
    let end = CallEnd::RateLimited { retry_after, left, reason: "no".to_owned() };
    assert_eq!(turn.end_of_error(&limited), end);
    assert_eq!(summary.end_of_error(&limited), end);
    for (class, of_turn, of_summary) in [
        (ErrorClass::Overloaded, CallEnd::Overloaded, CallEnd::Abandoned),
        (ErrorClass::ServerError, CallEnd::Failed, CallEnd::Abandoned),
        (ErrorClass::Connection, CallEnd::Failed, CallEnd::Abandoned),
        (ErrorClass::IdleTimeout, CallEnd::Failed, CallEnd::Abandoned),
        (ErrorClass::Fatal, CallEnd::Refused, CallEnd::Refused),
        (ErrorClass::Auth, CallEnd::Refused, CallEnd::Refused),
        (ErrorClass::ReplyTooLarge, CallEnd::Refused, CallEnd::Refused),
    ] {
        assert_eq!(turn.end_of_error(&error(class)), of_turn, "{class:?}");
        assert_eq!(summary.end_of_error(&error(class)), of_summary, "{class:?}");
    }
    // Nobody waits for a quota where another model is called.
    let quota = asks(ErrorClass::QuotaExhausted, S);
    let end = CallEnd::QuotaExhausted { resets_in: Some(S), reason: "no".to_owned() };
    assert_eq!(turn.end_of_error(&quota), end);
    let with_next = Play::sent(TURN, &mut Table::of(2)).machine;
    assert_eq!(with_next.end_of_error(&quota), CallEnd::Abandoned);
}

#[test]
fn after_a_reply_that_broke_the_turn_goes_on_after_a_pause() {
    let retry = Table::of(1).rows.remove(0).retry;
    let (connection, asked) = (error(ErrorClass::Connection), asks(ErrorClass::Overloaded, 9 * S));
    for (error, number, has_calls, pause) in [
        (&connection, 1, false, Some(S)),
        (&connection, 3, true, Some(4 * S)),
        (&asked, 1, false, Some(9 * S)),
        (&connection, 5, false, None),
        (&connection, 5, true, Some(6 * S)),
        (&asked, 5, true, Some(6 * S)),
    ] {
        let broken = Broken { error, number, has_calls };
        assert_eq!(broken.pause(&retry, 1.0), pause, "{number} {has_calls}");
        assert_eq!(broken.gives_up(), number >= 3);
    }
}

#[test]
fn what_was_learned_is_lost_once() {
    let mut standing = Standing::new(COOLDOWN, Instant::now());
    assert!(!standing.holds_to_schema(), "nothing is believed at first");
    assert_eq!(standing.lose(&error(ErrorClass::SchemaRefused)), None);
    standing.believe(Capabilities::from_iter([Capability::ContextEditing]), true);
    let refused = error(ErrorClass::Unsupported(Capability::ContextEditing));
    let lost = Lost::Capability(Capability::ContextEditing);
    assert_eq!([(); 2].map(|()| standing.lose(&refused)), [Some(lost), None]);
    let schema = error(ErrorClass::SchemaRefused);
    assert_eq!([(); 2].map(|()| standing.lose(&schema)), [Some(Lost::Schemas), None]);
    assert_eq!(standing.lose(&error(ErrorClass::Fatal)), None);
}
