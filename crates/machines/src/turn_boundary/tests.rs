//! Plays agents against their own decisions: random replies and results, every preset, small
//! windows, and summaries that come, fail or come late.

#![expect(clippy::result_large_err, reason = "an outcome ends a play, which is rare")]

use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::*;
use crate::context::layers::Layer;
use crate::context::layers::pipeline;
use crate::context::layers::summary::{Pace, Summary, failure};
use crate::context::provider::server::ContextReport;
use crate::context::{ClearedResult, CompactionFailed, CompactionFinished, ContextEdited, Edit};
use crate::id::{AgentId, CallKey, RunId};
use crate::message::{Block, Message, ResultContent, Role, StopReason, ToolCall, ToolResult};
use crate::message::{Usage, UsageSource};
use crate::messages::{MessageId, MessageSent, Sender};
use crate::spec::capability::Declared;
use crate::spec::{Price, fallback_cooldown};
use crate::turn::{
    AgentSpawned, Effect, ModelFailed, ModelRequested, ModelResponded, Program, ToolFinished,
    ToolIntended, ToolStatus, TurnStarted,
};

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn model(context_window: u64, thinking: Thinking) -> ModelSpec {
    ModelSpec {
        name: name("m"),
        provider: name("p"),
        model: "m".to_owned(),
        context_window,
        max_output_tokens: context_window / 8,
        temperature: None,
        top_p: None,
        reasoning_effort: None,
        seed: None,
        price: Some(Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 }),
        thinking,
        thinking_mode: None,
        media: Vec::new(),
        fallbacks: Vec::new(),
        fallback_cooldown: fallback_cooldown(),
        capabilities: Declared::default(),
        extra_body: None,
    }
}

/// Reaction of the model in one turn.
#[derive(Clone, Debug)]
enum Turn {
    /// Calls, by tool and size of the result in characters.
    Calls(Vec<(usize, usize)>),
    /// An answer that was cut at the output limit.
    Cut,
    /// The request is refused as too long.
    Refused,
}

/// Fate of a summary.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Written,
    Failed,
}

#[derive(Clone, Debug)]
struct Script {
    preset: &'static str,
    /// Bits that say which of the cheap layers run, if summaries are written ahead.
    ahead: Option<u16>,
    window: u64,
    thinking: Thinking,
    wanted: strategy::Wanted,
    turns: Vec<Turn>,
    fates: Vec<Fate>,
}

const TOOLS: [&str; 5] = ["bash", "read_file", "todo_write", "compact", "snip"];

fn script() -> impl Strategy<Value = Script> {
    let tool = prop_oneof![20 => 0..3_usize, 1 => 3..TOOLS.len()];
    let call = (tool, prop_oneof![8 => 100..4_000_usize, 1 => 4_000..40_000_usize]);
    let turn = prop_oneof![
        12 => prop::collection::vec(call, 1..3).prop_map(Turn::Calls),
        1 => Just(Turn::Cut),
        1 => Just(Turn::Refused),
    ];
    (
        prop::sample::select(&Preset::NAMES[..]),
        prop::option::of(any::<u16>()),
        prop_oneof![Just(9_000_u64), Just(16_000), Just(32_000)],
        prop_oneof![Just(Thinking::Bound), Just(Thinking::Free)],
        prop::sample::select(&strategy::Wanted::ALL[..]),
        prop::collection::vec(turn, 1..40),
        prop::collection::vec(prop_oneof![3 => Just(Fate::Written), 1 => Just(Fate::Failed)], 8),
    )
        .prop_map(|(preset, ahead, window, thinking, wanted, turns, fates)| Script {
            ahead,
            preset,
            window,
            thinking,
            wanted,
            turns,
            fates,
        })
}

/// State of one agent in the game.
struct Play {
    preset: Preset,
    strategy: StrategySettings,
    model: ModelSpec,
    capabilities: Capabilities,
    machine: Machine,
    events: Vec<Event>,
    /// The summary that is written ahead, and true once it is written.
    ahead: Option<(Due, bool)>,
    is_rebuilt: bool,
    fates: Vec<Fate>,
    summaries: usize,
}

impl Play {
    fn new(script: &Script) -> Self {
        let preset = preset(script);
        Self {
            machine: machine(&preset),
            preset,
            strategy: StrategySettings { wanted: script.wanted, ..StrategySettings::default() },
            model: model(script.window, script.thinking),
            capabilities: crate::spec::capability::Capability::ALL.into_iter().collect(),
            events: Vec::new(),
            ahead: None,
            is_rebuilt: true,
            fates: script.fates.clone(),
            summaries: 0,
        }
    }

    /// Plays a script; returns the outcome too, if the agent ended before the script did.
    fn through(script: &Script) -> (Self, Option<Outcome>) {
        let mut play = Self::new(script);
        for (number, turn) in script.turns.iter().enumerate() {
            let sent = play.until_request();
            if let Err(outcome) = sent.and_then(|sending| play.send(sending, turn, number)) {
                return (play, Some(outcome));
            }
            if let Some((_, is_there)) = &mut play.ahead {
                *is_there |= number.is_multiple_of(3);
            }
        }
        (play, None)
    }

    fn next(&self) -> Action {
        let tools = TOOLS.map(name);
        let mut tools = tools.to_vec();
        tools.sort();
        let terms = Terms {
            preset: &self.preset,
            strategy: &self.strategy,
            model: &self.model,
            capabilities: &self.capabilities,
            tools: &tools,
            summariser: None,
            transcript: "t.jsonl",
            results: "results",
            idle: Duration::ZERO,
        };
        let ahead = match &self.ahead {
            None => Ahead::None,
            Some((_, false)) => Ahead::Writing,
            Some((_, true)) => Ahead::Answered,
        };
        next(&self.machine, Some(&terms), ahead, self.is_rebuilt)
    }

    fn record(&mut self, event: impl Into<Event>) {
        let event = event.into();
        self.machine.apply(&event).expect("legal");
        self.events.push(event);
    }

    fn edits(&mut self, changes: Vec<AppliedEdit>) {
        changes.into_iter().for_each(|change| self.record(change.edited));
    }

    /// Performs the decided actions up to the next request; returns the request, or the outcome of
    /// an agent that ends first.
    fn until_request(&mut self) -> Result<Sending, Outcome> {
        for _ in 0..30 {
            match self.next() {
                Action::LookedOver(events) => {
                    self.is_rebuilt = false;
                    assert!(events.is_empty(), "a view of ours needs no repair: {events:?}");
                }
                Action::Record(events) => events.into_iter().for_each(|event| self.record(event)),
                Action::TakeAhead => {
                    let (due, _) = self.ahead.take().expect("one");
                    self.conclude(&due);
                }
                Action::AwaitAhead => self.ahead.as_mut().expect("one").1 = true,
                Action::Summarise(summarise) => {
                    let Summarise { changes, due, view, by_provider } = *summarise;
                    self.edits(changes);
                    assert_eq!(places(&view), places(self.machine.view()));
                    let (from, to) = (due.request.from, due.request.to);
                    assert_eq!(view.version_of(from, to), due.request.version);
                    let is_short =
                        |asked: &ByProvider| asked.messages < asked.outgoing.view.slots().len();
                    assert!(by_provider.as_ref().is_none_or(is_short));
                    self.announce(&due);
                    self.conclude(&due);
                }
                Action::Defer => self.machine.defer_summary(),
                Action::NothingToSummarise(requested) => {
                    self.record(requested);
                    self.record(CompactionFailed {
                        unsettled: None,
                        reason: "there is nothing to summarise".to_owned(),
                        blocked: false,
                        spent: None,
                        cut: false,
                    });
                }
                Action::Send(sending) => return Ok(*sending),
                Action::Finish(outcome) => return Err(outcome),
                Action::RunTools(calls) => self.run(calls),
                action @ (Action::RunCommand(_) | Action::Rest) => panic!("{action:?}"),
            }
        }
        panic!("it comes to no end: {:?}", self.next());
    }

    fn announce(&mut self, due: &Due) {
        let (trigger, from, to) = (due.request.trigger, due.request.from, due.request.to);
        let focus = due.request.focus.clone();
        self.record(CompactionRequested { most: None, trigger, from, to, focus });
    }

    fn conclude(&mut self, due: &Due) {
        let Due { layer, request, .. } = due;
        let (from, to) = (request.from, request.to);
        self.summaries += 1;
        let fate = self.fates[self.summaries % self.fates.len()];
        let view = self.machine.view();
        let edit = Summary::edit(layer, view, from, to, "t.jsonl", "what was done so far");
        let mut after = view.clone();
        after.apply(&edit).expect("applies");
        let frees = after.chars_with_history() + request.least_gain <= view.chars_with_history();
        // A guard or a summary that was asked for may have come in between.
        let is_stale = view.version_of(from, to) != request.version;
        if frees && !is_stale && matches!(fate, Fate::Written) {
            self.record(CompactionFinished {
                layer: "summary".to_owned(),
                edit,
                before_tokens: 2,
                after_tokens: 1,
                model: name("m"),
                usage: Usage::default(),
                cost_usd: None,
            });
        } else {
            let reason = "there is none".to_owned();
            self.record(CompactionFailed {
                unsettled: None,
                reason,
                blocked: false,
                spent: None,
                cut: false,
            });
        }
    }

    /// Sends a request, checks it against the records, and applies the model's reaction.
    fn send(&mut self, sending: Sending, turn: &Turn, number: usize) -> Result<(), Outcome> {
        let tools = {
            let mut tools = TOOLS.map(name).to_vec();
            tools.sort();
            tools
        };
        if let Err(invalid) = sending.outgoing.check(&tools) {
            return Err(self.machine.failed(invalid.kind(), invalid.to_string()));
        }
        let Sending { outgoing, changes, prepare, expected_tokens, .. } = sending;
        let tells = changes.iter().any(|change| change.edited.layer == failure::NAME);
        self.edits(changes);
        assert_eq!(places(&outgoing.view), places(self.machine.view()), "as it is recorded");
        if let Some(due) = &prepare {
            let (from, to) = (due.request.from, due.request.to);
            let version = self.machine.view().version_of(from, to);
            assert_eq!(version, due.request.version, "stale before it is written");
            self.announce(due);
        }
        let is_first = self.machine.announced().is_none();
        if is_first {
            let message = outgoing.message.clone();
            self.record(TurnStarted::new(sending.turn, message));
        }
        assert_eq!(
            self.machine.measure().size(self.machine.view().extent()),
            expected_tokens,
            "what is expected is what is sent"
        );
        self.record(ModelRequested {
            most_tokens: 0,
            turn: sending.turn,
            attempt: 1,
            model: name("m"),
            stands_in_for: None,
            messages: 1,
            bytes: 1,
            head_tokens: 500,
            expected_tokens,
            most_usd: None,
        });
        if let Some(due) = prepare {
            self.ahead = Some((due, number.is_multiple_of(2)));
        }
        // A message or a note that joined the view with the request counts like others from then
        // on, and `turn-window` moves its window when a halved view ends with a record.
        let is_still = outgoing.message.is_none() && !tells && self.preset.name != "turn-window";
        if is_first && self.ahead.is_none() && is_still {
            self.ask_again();
        }
        let reply = |content, stop| ModelResponded {
            unsettled: None,
            turn: sending.turn,
            model: name("m"),
            message: Json::encode(&Message { role: Role::Assistant, content }),
            stop,
            usage: Usage { input: expected_tokens, output: 10, ..Usage::default() },
            usage_source: UsageSource::Reported,
            cost_usd: None,
            context: ContextReport::default(),
            repeats: None,
        };
        match turn {
            Turn::Refused => self.record(ModelFailed {
                unsettled: None,
                turn: sending.turn,
                attempt: 1,
                failure: crate::failure::Failure::new(FailureKind::ContextOverflow, "too long"),
                retry_in_ms: None,
                next_model: None,
                context_tokens: None,
                window_tokens: None,
                spent: None,
                usage_source: Default::default(),
                cut: false,
            }),
            Turn::Cut => {
                let content = vec![Block::Text("an answer that is ".to_owned())];
                self.record(reply(content, StopReason::MaxTokens));
            }
            Turn::Calls(calls) => {
                let calls = calls.iter().enumerate();
                let calls: Vec<_> = calls.map(|(at, asked)| call(number, at, *asked)).collect();
                let thought = r#"{"type":"thinking","thinking":"hm","signature":"s"}"#;
                let thought = Json::parse(thought.to_owned()).expect("JSON");
                let mut content = vec![Block::Other(thought)];
                content.extend(calls.iter().cloned().map(Block::ToolUse));
                self.record(reply(content, StopReason::ToolUse));
                for (index, call) in (0..).zip(calls) {
                    self.record(intended(sending.turn, index, call));
                }
            }
        }
        Ok(())
    }

    /// Checks that a request which a crash interrupted is made again as it was.
    fn ask_again(&self) {
        match self.next() {
            Action::Send(again) => {
                assert!(again.changes.is_empty(), "{:?}", again.changes);
                assert!(again.prepare.is_none());
            }
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self, calls: Vec<PendingCall>) {
        for pending in calls {
            let size = pending.call.input.to_value()["size"].as_u64().unwrap_or(0);
            let text = match (&pending.answer, &pending.repeats) {
                (Some(answer), _) => answer.clone(),
                (None, _) => "x".repeat(usize::try_from(size).expect("small")),
            };
            self.record(finished(self.machine.turn(), pending, text));
        }
    }
}

fn preset(script: &Script) -> Preset {
    let mut preset = Preset::named(script.preset).expect("a preset");
    let Some(bits) = script.ahead else { return preset };
    let mut places = 0..;
    preset.layers.retain_mut(|layer| {
        let place = places.next().unwrap_or(0);
        if let Layer::Summary(summary) = layer {
            summary.pace = Pace { trigger: Some(0.80), ..Pace::ahead() };
            return true;
        }
        bits >> place & 1 == 1
    });
    preset
}

fn machine(preset: &Preset) -> Machine {
    let program = Program::Model { agent: name("reader"), prompt: "the goal".into() };
    let pace = pipeline::summary(preset).map(|layer| layer.pace.clone()).unwrap_or_default();
    let spawned = AgentSpawned::main(program);
    let mut machine = Machine::new(spawned, 1_000).paced(pace);
    machine.begin_with(&name("m"), 500);
    machine
}

fn call(turn: usize, at: usize, (tool, size): (usize, usize)) -> ToolCall {
    let input = match TOOLS[tool] {
        "read_file" => serde_json::json!({"path": format!("f{at}"), "size": size}),
        "todo_write" => serde_json::json!({"todos": [{"text": "x", "status": "pending"}]}),
        "compact" => serde_json::json!({"focus": "names"}),
        "snip" => serde_json::json!({"keep": 3}),
        _ => serde_json::json!({"command": "ls", "size": size}),
    };
    let id = format!("c{turn}.{at}");
    ToolCall { id, name: TOOLS[tool].to_owned(), input: Json::encode(&input) }
}

fn intended(turn: u32, index: u32, call: ToolCall) -> ToolIntended {
    let agent = AgentId::from_text("a");
    let (id, name, input) = (call.id, call.name, call.input);
    let run = RunId::parse("00000000-0000-7000-8000-000000000000").expect("an id");
    let key = CallKey::derive(run, &agent, turn, index, &name, input.as_str());
    ToolIntended { key, turn, index, id, name, input, effect: Effect::Pure }
}

fn finished(turn: u32, pending: PendingCall, text: String) -> ToolFinished {
    let content = ResultContent::Text(text);
    let result = ToolResult { tool_use_id: pending.call.id, content, is_error: false };
    ToolFinished {
        took_ms: 1,
        ..ToolFinished::new(
            pending.key,
            turn,
            pending.index,
            pending.call.name,
            ToolStatus::Ok,
            Json::encode(&Block::ToolResult(result)),
        )
    }
}

/// Returns a player whose agent has a prompt of so many words, which no layer shortens.
fn with_prompt(preset: &'static str, words: usize) -> Play {
    let script = Script {
        preset,
        ahead: None,
        window: 9_000,
        thinking: Thinking::Free,
        wanted: strategy::Wanted::ALL[0],
        turns: Vec::new(),
        fates: vec![Fate::Failed],
    };
    let mut play = Play::new(&script);
    let prompt = "word ".repeat(words);
    let program = Program::Model { agent: name("reader"), prompt: prompt.as_str().into() };
    play.machine = Machine::new(AgentSpawned::main(program), 1_000);
    play.machine.begin_with(&name("m"), 500);
    play
}

#[test]
fn messages_wait_where_the_request_does_not_fit_with_them() {
    let mut waited = 0;
    for preset in Preset::NAMES {
        for words in (1_000..60_000).step_by(500) {
            let fits = |play: &mut Play| match play.until_request() {
                Ok(sending) if sending.outgoing.check(&[]).is_ok() => Some(sending.delivers.len()),
                Ok(_) | Err(_) => None,
            };
            let without = fits(&mut with_prompt(preset, words));
            let mut play = with_prompt(preset, words);
            let (to, from) = (AgentId::from_text("a"), Sender::Person { by: "me".to_owned() });
            play.record(MessageSent {
                id: MessageId(1),
                to,
                from,
                text: "read this ".repeat(600),
                request: String::new(),
                reply_to: None,
                now: false,
                about: None,
            });
            let with = fits(&mut play);
            assert_eq!(with.is_some(), without.is_some(), "{preset}, {words} words");
            waited += usize::from(with == Some(0));
        }
    }
    // `off` has no guard: its requests are sent whatever their size.
    assert!(waited + 1 >= Preset::NAMES.len(), "they never waited");
}

fn places(view: &View) -> Vec<(u64, u64, u64, String)> {
    let place = |slot: &crate::context::view::Slot| {
        (slot.from, slot.to, slot.serial, slot.entry.json.as_str().to_owned())
    };
    view.slots().map(place).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// The view that is sent is the fold of the records, whatever happens. A summary that costs
    /// money covers messages that are still in the view. An agent rebuilt from the records is the
    /// same.
    #[test]
    fn what_is_sent_is_what_is_recorded(script in script()) {
        let (play, ended) = Play::through(&script);
        if let Some(Outcome::Failed { failure, .. }) = ended {
            let allowed = [FailureKind::ContextOverflow, FailureKind::OutputTruncated];
            prop_assert!(allowed.contains(&failure.kind), "{failure:?}");
        }
        let mut rebuilt = machine(&play.preset);
        play.events.iter().for_each(|event| rebuilt.apply(event).expect("legal"));
        prop_assert_eq!(places(rebuilt.view()), places(play.machine.view()));
        prop_assert_eq!(rebuilt.inventory().state(), play.machine.inventory().state());
    }
}

/// A summary leaves the newest messages behind its record, and the model drops those with `snip`.
#[test]
fn a_marker_can_stand_behind_a_record() {
    let calls = [(0, 100), (2, 100), (0, 100), (0, 34_509), (0, 100), (4, 100), (0, 100)];
    let script = Script {
        preset: "production",
        ahead: None,
        window: 9_000,
        thinking: Thinking::Bound,
        wanted: strategy::Wanted::Auto,
        turns: calls.into_iter().map(|call| Turn::Calls(vec![call])).collect(),
        fates: vec![Fate::Written; 8],
    };
    let (play, ended) = Play::through(&script);
    assert_eq!(ended, None);
    assert!(
        play.events
            .iter()
            .any(|event| matches!(event, Event::ContextEdited(edited) if edited.layer == "snip"))
    );
}

/// A result was cleared before thinking that a summary is to cover. The thinking must go before the
/// summary is requested: else the summary would be stale before it is written.
#[test]
fn a_summary_is_asked_for_when_all_edits_are_made() {
    let script = Script {
        preset: "three-layer",
        ahead: Some(0),
        window: 9_000,
        thinking: Thinking::Bound,
        wanted: strategy::Wanted::Client,
        turns: Vec::new(),
        fates: vec![Fate::Written],
    };
    let mut play = Play::new(&script);
    for (number, size) in [500, 20_000, 90, 90, 16_000].into_iter().enumerate() {
        let sending = play.until_request().expect("it goes on");
        assert!(sending.prepare.is_none() && sending.changes.is_empty());
        play.send(sending, &Turn::Calls(vec![(0, size)]), number).expect("it is sent");
    }
    let (message, tool_use_id, text) = (2, "c0.0".to_owned(), "[cleared]".to_owned());
    let cleared = ClearedResult { message, tool_use_id, text, stored: None, kept_chars: 0 };
    play.until_request().expect("the results join");
    play.record(ContextEdited {
        layer: "micro".to_owned(),
        edit: Edit::ClearResults { results: vec![cleared] },
        before_tokens: 2,
        after_tokens: 1,
    });
    let sending = play.until_request().expect("it goes on");
    let is_thinking = |change: &AppliedEdit| change.edited.layer == thinking::NAME;
    assert!(sending.prepare.is_some() && sending.changes.iter().all(is_thinking));
    assert_eq!(sending.changes.len(), 1);
    play.send(sending, &Turn::Cut, 9).expect("it is sent");
}
