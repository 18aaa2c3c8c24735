//! The three layers in a run, the compactor's breaker, and views under any sequence of edits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callsheet::context::layers::micro::KeepUnit;
use callsheet::context::layers::pipeline::{AppliedEdit, run_cheap_layers, summary_due};
use callsheet::context::layers::preset::Preset;
use callsheet::context::layers::{Surroundings, Window};
use callsheet::context::view::View;
use callsheet::context::{CompactionTrigger, Edit};
use callsheet::event::Event;
use callsheet::id::RunId;
use callsheet::message::{
    Block, Json, Message, ResultContent, Role, StopReason, ToolCall, ToolResult,
};
use callsheet::model::ErrorClass;
use callsheet::policy::BreakerState;
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;

use crate::support::answer::Answer;
use crate::support::asked::Asked;
use crate::support::faults::{
    Act, DUMPED, Ended, Fake, FakeTool, Setup, defect, follows_tools, id, records, transcript,
    unsendable,
};
use crate::support::provider::Provider;
use crate::support::test_run::RunFolder;

/// Settings with a small threshold, and summaries as often as they are due.
const EVERY_TURN: &str = "threshold = 2_000\nsummary_spacing = 1";

const PROMPT: &str = "Find \"every\" error\nand list it.";

fn graph(compaction: &str) -> String {
    let preset = if compaction.contains("preset") { "" } else { "preset = \"three-layer\"" };
    format!(
        r#"
[compaction]
{preset}
{compaction}
[agents.worker]
model = "main"
instructions = "Work."
tools = ["dump", "compact", "rest"]
[tasks.work]
agent = "worker"
prompt = {PROMPT:?}
"#
    )
}

/// The breaker's pause in these tests.
const COOLDOWN: Duration = Duration::from_secs(5);

fn rest() -> Arc<FakeTool> {
    FakeTool::new("rest", Effect::Pure, |_, _| async {
        // The clock moves past the breaker's pause, without waiting.
        tokio::time::pause();
        tokio::time::advance(COOLDOWN).await;
        tokio::time::resume();
        Ok(ToolOutput::ok("rested"))
    })
}

fn setup(main: &Arc<Fake>) -> Setup {
    Setup::new().model("main", main).tool(&FakeTool::dump()).tool(&rest())
}

fn summary_prompt(request: &callsheet::model::Request) -> Option<String> {
    let text = request.messages()[0].text();
    text.starts_with("Summarize this conversation").then_some(text)
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages
        .iter()
        .flat_map(|m| m.tool_results().map(ToolResult::text).collect::<Vec<_>>())
        .collect()
}

fn of_kind(ended: &Ended, kind: &str) -> usize {
    ended.records.iter().filter(|record| record.event.kind() == kind).count()
}

#[tokio::test]
async fn old_results_are_cleared_as_documented_and_recorded_first() {
    // 100 characters stay, 101 go; the three newest stay whatever their size.
    let sizes = [101, 100, 500, 101, 7, 300, 2_000, 50];
    let journal: Arc<OnceLock<RunFolder>> = Arc::default();
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let (of_journal, of_recorded) = (journal.clone(), recorded.clone());
    let provider = Provider::start(move |asked: &Asked| {
        // What the request shows must be durable by the time it arrives.
        let dir = of_journal.get().expect("known before the first call");
        let cleared = records(dir)
            .iter()
            .map(|record| match &record.event {
                Event::ContextEdited(edited) => match &edited.edit {
                    Edit::ClearResults { results } => results.len(),
                    Edit::Replace { .. }
                    | Edit::Record(_)
                    | Edit::Window { .. }
                    | Edit::DropThinking { .. } => 0,
                },
                _ => 0,
            })
            .sum::<usize>();
        of_recorded.lock().push(cleared);
        match sizes.get(asked.count - 1) {
            Some(size) => Answer::tool("dump", json!({ "size": size })),
            None => Answer::text("done"),
        }
    })
    .await;
    let text = format!(
        "[providers.main]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = {{ env = \"TEST_KEY\" }}\n\
         [models.main]\nprovider = \"main\"\nmodel = \"m\"\n{}",
        provider.base_url(),
        graph(""),
    );
    let setup = Setup::new().tool(&FakeTool::dump()).tool(&rest());
    let run_id = RunId::from(uuid::Uuid::now_v7());
    let dir = RunFolder::at(setup.config(&text).state_dir.join(run_id.to_string()));
    journal.set(dir).expect("once");
    let run = setup.start_as(&text, run_id).await;
    let ended = Ended::of(run).await;
    assert_eq!(ended.output("work"), "done");
    let requests = provider.requests();
    assert_eq!(requests.len(), sizes.len() + 1);
    for (before, asked) in requests.iter().enumerate() {
        let messages = asked.messages();
        assert_eq!(unsendable(&messages), None);
        assert_eq!(messages[0].text(), PROMPT);
        let mut cleared = 0;
        for (at, text) in texts(&messages).iter().enumerate() {
            let is_old = at + 3 < before;
            if is_old && sizes[at] > 100 {
                assert_eq!(text, "[Previous: used dump]", "request {before}, result {at}");
                cleared += 1;
            } else {
                assert_eq!(text.chars().count(), sizes[at], "request {before}, result {at}");
            }
        }
        assert_eq!(recorded.lock()[before], cleared, "request {before}");
    }
    // The transcript has it all.
    let whole = transcript(&ended.dir.transcript(&id("work")));
    let whole: Vec<_> = texts(&whole).iter().map(|text| text.chars().count()).collect();
    assert_eq!(whole, sizes);
}

#[tokio::test]
async fn over_the_threshold_a_summary_replaces_what_was_read() {
    let main = Fake::new(|request| match summary_prompt(request) {
        Some(_) => Act::say("so far so good"),
        None if request.turn <= 7 => Act::tool("dump", json!({"size": 4_000})),
        None => Act::say("done"),
    });
    let setup = setup(&main);
    let ended = setup.run(&graph("threshold = 2_000")).await;
    assert_eq!(ended.output("work"), "done");
    assert!(of_kind(&ended, "compaction.finished") >= 2, "{:#?}", ended.kinds());
    let path = ended.dir.transcript(&id("work"));
    let opening =
        format!("[Conversation compressed. Transcript: {}]\n\nso far so good", path.display());
    let mut dumps = 0;
    for messages in main.sent_by("work") {
        if messages[0].text().starts_with("Summarize this conversation") {
            assert_eq!(messages.len(), 1);
            continue;
        }
        assert_eq!(unsendable(&messages), None, "{messages:#?}");
        assert!(messages.iter().any(|m| m.text() == PROMPT), "the request stands word for word");
        if let Some(unseen) = messages.last().and_then(|m| m.tool_results().next()) {
            dumps += 1;
            let whole = format!("{dumps}:{}", DUMPED.repeat(300));
            assert_eq!(unseen.text(), whole[..4_000], "unseen is whole");
        }
        if messages[0].text() != PROMPT {
            assert_eq!(messages[0].text(), opening);
            assert_eq!(
                messages[1].text(),
                "Understood. I have the context from the summary. Continuing."
            );
            assert_eq!(messages[2].text(), PROMPT);
        }
    }
    assert_eq!(dumps, 7);
    for record in &ended.records {
        if let Event::CompactionFinished(finished) = &record.event {
            assert!(finished.after_tokens < finished.before_tokens);
        }
    }
    let whole = transcript(&path);
    assert_eq!(defect(&whole), None);
    assert_eq!(whole.len(), 16, "a prompt, seven exchanges, an answer");
    assert!(whole.iter().all(|m| !m.text().contains("compressed")));
    assert!(texts(&whole).iter().all(|text| text.len() == 4_000));
}

#[tokio::test]
async fn the_compact_tool_takes_effect_after_its_batch() {
    let main = Fake::new(|request| match (summary_prompt(request), request.turn) {
        (Some(_), _) => Act::say("short"),
        (None, 1) => Act::tool("dump", json!({"size": 3_000})),
        (None, 2) => Act::Call(vec![
            ("compact", json!({"focus": "the names"})),
            ("dump", json!({"size": 50})),
        ]),
        (None, _) => Act::say("done"),
    });
    let setup = setup(&main);
    let ended = setup.run(&graph("")).await;
    assert_eq!(ended.output("work"), "done");
    let sent = main.sent_by("work");
    assert_eq!(sent.len(), 4, "two turns, the summary, the last turn");
    let prompt = sent[2][0].text();
    let begin = "Summarize this conversation for continuity. Include: 1) What was accomplished, \
                 2) Current state, 3) Key decisions made. Be concise but preserve critical details. \
                 Pay special attention to preserving details about: the names.\n\n";
    assert!(prompt.starts_with(begin), "{prompt}");
    let last = &sent[3];
    assert_eq!(unsendable(last), None, "{last:#?}");
    assert_eq!(texts(last)[0], "Compressing...");
    assert_eq!(texts(last)[1].len(), 50, "its siblings ran and keep their results");
    assert!(last[0].text().ends_with("]\n\nshort"));
    assert_eq!(last[2].text(), PROMPT);
}

#[tokio::test]
async fn two_summaries_in_a_row_keep_the_request() {
    let main = Fake::new(|request| match (summary_prompt(request), request.turn) {
        (Some(prompt), _) if prompt.contains("again") => Act::say("shorter"),
        (Some(_), _) => Act::say("a summary that is long enough to be summarised once more, again"),
        (None, 1) => Act::tool("dump", json!({"size": 3_000})),
        (None, 2) => Act::tool("compact", json!({})),
        (None, 3) if !follows_tools(request) => Act::say("?"),
        (None, 3) => Act::Fail(ErrorClass::ContextTokens { have: None, max: None }),
        (None, _) => Act::say("done"),
    });
    let setup = setup(&main);
    let ended = setup.run(&graph("")).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(of_kind(&ended, "compaction.finished"), 2, "{:#?}", ended.kinds());
    let last = main.sent_by("work").pop().expect("a request");
    assert_eq!(unsendable(&last), None, "{last:#?}");
    assert!(last[0].text().ends_with("]\n\nshorter"), "{last:#?}");
    assert_eq!(last[2].text(), PROMPT, "{last:#?}");
}

#[tokio::test]
async fn a_continued_answer_does_not_take_the_place_of_the_request() {
    let main = Fake::new(|request| match (summary_prompt(request), request.turn) {
        (Some(_), _) => Act::say("short"),
        (None, 1) => Act::Reply(Message::assistant("Well, "), StopReason::MaxTokens),
        (None, 2..=4) => Act::tool("dump", json!({"size": 4_000})),
        (None, _) => Act::say("done"),
    });
    let setup = setup(&main);
    let ended = setup.run(&graph("threshold = 2_000")).await;
    assert_eq!(ended.output("work"), "done");
    assert!(of_kind(&ended, "compaction.finished") >= 1);
    for messages in main.sent_by("work") {
        if !messages[0].text().starts_with("Summarize") {
            assert!(messages.iter().any(|m| m.text() == PROMPT), "{messages:#?}");
            assert_eq!(unsendable(&messages), None, "{messages:#?}");
        }
    }
    assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
}

#[tokio::test]
async fn an_answer_about_to_be_continued_stays_out_of_the_summary() {
    // The cut answer itself is what takes the view over the threshold.
    let main = Fake::new(|request| match (summary_prompt(request), request.turn) {
        (Some(_), _) => Act::say("short"),
        (None, 1) => Act::tool("dump", json!({"size": 6_000})),
        (None, 2) => Act::Reply(Message::assistant("w".repeat(4_000)), StopReason::MaxTokens),
        (None, _) => Act::say("done"),
    });
    let setup = setup(&main);
    let ended = setup.run(&graph("threshold = 2_000")).await;
    assert_eq!(ended.output("work"), format!("{}done", "w".repeat(4_000)));
    let last = main.sent_by("work").pop().expect("a request");
    assert_eq!(unsendable(&last), None, "{last:#?}");
    assert_eq!(last[last.len() - 2].text().len(), 4_000);
}

#[tokio::test]
async fn the_breaker_opens_after_three_failures_and_half_opens_after_a_pause() {
    use BreakerState::{Closed, HalfOpen, Open};
    let main = Fake::new(|request| match request.turn {
        8 => Act::tool("rest", json!({})),
        1..=10 => Act::tool("dump", json!({"size": 4_000})),
        _ => Act::say("done"),
    });
    let calls = AtomicUsize::new(0);
    let small = Fake::new(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0..=2 => Act::Reply(Message::assistant("no"), StopReason::Refusal(None)),
        _ => Act::say("at last"),
    });
    let setup = setup(&main).model("small", &small);
    let breaker = "[compaction.circuit_breaker]\nfailure_threshold = 3\ncooldown = \"5s\"";
    let text = graph(&format!("model = \"small\"\n{EVERY_TURN}\n{breaker}"));
    let ended = setup.run(&text).await;
    assert_eq!(ended.output("work"), "done");
    let states = ended.records.iter().filter_map(|record| match &record.event {
        Event::CompactionBreaker(changed) => Some(changed.state),
        _ => None,
    });
    assert_eq!(states.collect::<Vec<_>>(), [Open, HalfOpen, Closed]);
    let reasons = ended.records.iter().filter_map(|record| match &record.event {
        Event::CompactionFailed(failed) => Some(failed.reason.clone()),
        _ => None,
    });
    let reasons: Vec<_> = reasons.collect();
    assert!(reasons[..3].iter().all(|reason| reason.contains("refused")), "{reasons:?}");
    let open = reasons[3..].iter().filter(|reason| reason.contains("breaker is open")).count();
    assert!(open >= 1 && open == reasons.len() - 3, "{reasons:?}");
    // While it is open, old results are still cleared.
    let sent = main.sent_by("work");
    let while_open = sent.iter().find(|messages| messages.len() == 15).expect("the eighth turn");
    let kept = texts(while_open).iter().filter(|text| text.len() == 4_000).count();
    assert_eq!(kept, 3);
    assert!(sent.iter().all(|messages| unsendable(messages).is_none()));
}

#[tokio::test]
async fn what_was_asked_for_is_tried_while_the_breaker_is_open() {
    let main = Fake::new(|request| match request.turn {
        1..=6 => Act::tool("dump", json!({"size": 4_000})),
        7 => Act::tool("compact", json!({})),
        _ => Act::say("done"),
    });
    let calls = AtomicUsize::new(0);
    let small = Fake::new(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0..=2 => Act::Panic,
        _ => Act::say("short"),
    });
    let setup = setup(&main).model("small", &small);
    let ended = setup.run(&graph(&format!("model = \"small\"\n{EVERY_TURN}"))).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(small.count(), 4);
    assert_eq!(of_kind(&ended, "compaction.finished"), 1);
    assert_eq!(of_kind(&ended, "compaction.breaker"), 2, "it opened, and closed again");
}

#[tokio::test]
async fn no_summariser_can_stop_an_agent_or_flood_it() {
    let text = |block| Message { role: Role::Assistant, content: vec![block] };
    let call = || {
        Block::ToolUse(ToolCall {
            id: "x".to_owned(),
            name: "dump".to_owned(),
            input: Json::encode(&json!({"size": 1})),
        })
    };
    type Lie = Box<dyn Fn() -> Act + Send + Sync>;
    let lies: Vec<(&str, Lie)> = vec![
        ("an error", Box::new(|| Act::Fail(ErrorClass::Fatal))),
        ("an outage", Box::new(|| Act::Fail(ErrorClass::ServerError))),
        (
            "nothing",
            Box::new(|| {
                let content = Vec::new();
                Act::Reply(Message { role: Role::Assistant, content }, StopReason::EndTurn)
            }),
        ),
        ("space", Box::new(|| Act::say(" \n "))),
        (
            "a refusal",
            Box::new(|| {
                Act::Reply(Message::assistant("no"), StopReason::Refusal(Some("no".to_owned())))
            }),
        ),
        ("a call", Box::new(move || Act::Reply(text(call()), StopReason::ToolUse))),
        ("a novel", Box::new(|| Act::say("n".repeat(1_000_000)))),
        ("a long text", Box::new(|| Act::say("l".repeat(17_000)))),
        (
            "half a text",
            Box::new(|| {
                let broken = StopReason::Interrupted("cut".to_owned());
                Act::Reply(Message::assistant("half"), broken)
            }),
        ),
        ("a panic", Box::new(|| Act::Panic)),
    ];
    for (what, lie) in lies {
        let main = Fake::new(|request| match request.turn {
            1..=6 => Act::tool("dump", json!({"size": 25_000})),
            _ => Act::say("done"),
        });
        let small = Fake::new(move |_| lie());
        let setup = setup(&main).model("small", &small);
        let dump = FakeTool::dump();
        let setup = setup.tool(&dump);
        let ended = setup.run(&graph(&format!("model = \"small\"\n{EVERY_TURN}"))).await;
        assert_eq!(ended.output("work"), "done", "{what}");
        // What may pass is tried once more.
        let calls = if ["half a text", "an outage"].contains(&what) { 6 } else { 3 };
        assert_eq!(small.count(), calls, "{what}: then the breaker is open");
        assert_eq!(of_kind(&ended, "compaction.finished"), 0, "{what}");
        assert_eq!(of_kind(&ended, "gateway.breaker"), 0, "{what}: agents may call the provider");
        assert_eq!(dump.calls(), 6, "{what}: no call of a summariser is run");
        for messages in main.sent_by("work") {
            assert_eq!(unsendable(&messages), None, "{what}");
            assert_eq!(messages[0].text(), PROMPT, "{what}: the view stays as it was");
        }
    }
}

#[tokio::test]
async fn a_crash_after_a_summary_rebuilds_the_same_view() {
    let crashed = std::sync::atomic::AtomicBool::new(false);
    let main = Fake::new(move |request| match (summary_prompt(request), request.turn) {
        (Some(_), _) => Act::say("short"),
        (None, 1..=4) => Act::tool("dump", json!({"size": 4_000})),
        (None, _) if !crashed.swap(true, Ordering::SeqCst) => Act::Panic,
        (None, _) => Act::say("done"),
    });
    let setup = setup(&main);
    let ended = setup.run(&graph(EVERY_TURN)).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(ended.count("work", "agent.restarted"), 1);
    let sent = main.sent_by("work");
    let [before, after] = &sent[sent.len() - 2..] else { panic!("two requests") };
    assert!(before[0].text().starts_with("[Conversation compressed"));
    assert_eq!(before, after);
}

/// One thing that happens to a conversation.
#[derive(Clone, Debug)]
enum Happening {
    /// A turn with results of these sizes.
    Turn(Vec<usize>),
    /// An answer, then a new request.
    Request(usize),
    /// The cheap layers run.
    Clear,
    /// A summary of this size is applied, if one is due or asked for.
    Summary(usize, bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => prop::collection::vec(0_usize..400, 1..5).prop_map(Happening::Turn),
        1 => (0_usize..200).prop_map(Happening::Request),
        2 => Just(Happening::Clear),
        1 => (1_usize..300, any::<bool>()).prop_map(|(size, asked)| Happening::Summary(size, asked)),
    ]
}

fn push(view: &mut View, message: &Message) {
    view.push(Json::encode(message)).expect("a message");
}

fn push_turn(view: &mut View, number: usize, sizes: &[usize]) {
    let id = |at: usize| format!("{number}.{at}");
    let calls = (0..sizes.len()).map(|at| {
        let input = Json::encode(&json!({"at": at}));
        Block::ToolUse(ToolCall { id: id(at), name: format!("tool-{}", at % 2), input })
    });
    push(view, &Message { role: Role::Assistant, content: calls.collect() });
    let results = sizes.iter().enumerate().map(|(at, size)| {
        // Some with characters of more than one byte, some that are no plain text.
        let content = match size % 7 {
            0 => ResultContent::Blocks(Json::encode(&json!([{"type": "text", "text": "b"}]))),
            1 => ResultContent::Text("é".repeat(*size)),
            _ => ResultContent::Text("x".repeat(*size)),
        };
        Block::ToolResult(ToolResult { tool_use_id: id(at), content, is_error: size % 5 == 0 })
    });
    push(view, &Message { role: Role::User, content: results.collect() });
}

fn messages(view: &View) -> Vec<Message> {
    view.slots().map(|slot| slot.entry.json.decode().expect("a message")).collect()
}

fn preset(keep_recent: usize, turns: bool, preserve: bool) -> Preset {
    let constants = json!({
        "keep_recent": keep_recent,
        "keep_unit": if turns { KeepUnit::Turns } else { KeepUnit::Blocks },
        "preserve_tools": if preserve { vec!["tool-1"] } else { Vec::new() },
        "threshold": 300,
        "summary_input_chars": 2_000,
        "summary_max_tokens": 100,
    });
    let constants = constants.as_object().expect("a table");
    Preset::three_layer().with_constants(constants).expect("its constants")
}

fn around() -> Surroundings<'static> {
    let window = Window { tokens: 200_000, output: 8_000, overhead: 0 };
    Surroundings::new("t.jsonl", "results", window)
}

fn cheap(view: &mut View, preset: &Preset) -> Vec<AppliedEdit> {
    run_cheap_layers(view, preset, &around())
}

/// Checks the rules that hold for every view between two model calls.
fn check(view: &View, request: &str, last_turn: Option<&Message>) -> Result<(), TestCaseError> {
    let all = messages(view);
    prop_assert_eq!(unsendable(&all), None, "{:#?}", all);
    let count: usize = view.slots().map(|slot| slot.entry.json.as_str().chars().count()).sum();
    prop_assert_eq!(view.chars(), count);
    prop_assert!(all.iter().any(|m| m.text() == request), "the request is gone: {:#?}", all);
    if let Some(unseen) = last_turn {
        prop_assert_eq!(all.last(), Some(unseen), "an unseen result changed");
    }
    // The slots stand for the whole conversation, in order and without a gap.
    let mut at = 0;
    for slot in view.slots() {
        prop_assert_eq!(slot.from, at);
        prop_assert!(slot.to >= slot.from);
        at = slot.to;
    }
    prop_assert_eq!(at, view.next_message());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_view_is_valid_after_any_sequence_of_edits(
        happenings in prop::collection::vec(happening(), 1..40),
        keep_recent in 1_usize..5,
        turns in any::<bool>(),
        preserve in any::<bool>(),
    ) {
        let preset = preset(keep_recent, turns, preserve);
        let mut view = View::default();
        let mut replayed = View::default();
        let mut edits: Vec<(u64, Edit)> = Vec::new();
        let mut whole: Vec<Json> = Vec::new();
        let mut request = "request 0".to_owned();
        push(&mut view, &Message::user(request.as_str()));
        let mut unseen = None;
        for (number, happening) in happenings.iter().enumerate() {
            match happening {
                Happening::Turn(sizes) => {
                    push_turn(&mut view, number, sizes);
                    unseen = messages(&view).pop();
                }
                Happening::Request(size) => {
                    push(&mut view, &Message::assistant(format!("answer {}", "a".repeat(*size))));
                    request = format!("request {number}");
                    push(&mut view, &Message::user(request.as_str()));
                    unseen = None;
                }
                Happening::Clear => {
                    for AppliedEdit { edited, .. } in cheap(&mut view, &preset) {
                        edits.push((view.next_message(), edited.edit));
                    }
                    // The documented rule counts blocks, so that a batch of more than it keeps
                    // loses some before they were read.
                    if !turns && unseen.is_some() {
                        unseen = messages(&view).pop();
                    }
                    prop_assert!(cheap(&mut view, &preset).is_empty(), "idempotent");
                }
                Happening::Summary(size, asked) => {
                    let asked = asked.then_some((CompactionTrigger::Manual, None));
                    let due = summary_due(&view, &preset, &around(), asked);
                    let Some((layer, due)) = due else { continue };
                    let summary = "s".repeat(*size);
                    let parts = due.parts(usize::MAX);
                    prop_assert_eq!(parts.len(), 1);
                    let prompt = due.prompt(&parts[0], None);
                    prop_assert!(prompt.chars().count() < layer.reading.summary_input_chars + 400);
                    let edit = layer.edit(&view, due.from, due.to, "t.jsonl", &summary);
                    view.apply(&edit).expect("applies");
                    edits.push((view.next_message(), edit));
                }
            }
            check(&view, &request, unseen.as_ref())?;
        }
        // The same messages and edits give the same view.
        whole.extend(conversation(&happenings));
        let mut edits = edits.into_iter().peekable();
        for (at, json) in (1_u64..).zip(whole) {
            replayed.push(json).expect("a message");
            while let Some((_, edit)) = edits.next_if(|(after, _)| *after == at) {
                replayed.apply(&edit).expect("applies");
            }
        }
        prop_assert_eq!(messages(&replayed), messages(&view));
        prop_assert_eq!(replayed.chars(), view.chars());
    }
}

/// Builds the conversation of these happenings, without any edit.
fn conversation(happenings: &[Happening]) -> Vec<Json> {
    let mut view = View::default();
    push(&mut view, &Message::user("request 0"));
    for (number, happening) in happenings.iter().enumerate() {
        match happening {
            Happening::Turn(sizes) => push_turn(&mut view, number, sizes),
            Happening::Request(size) => {
                push(&mut view, &Message::assistant(format!("answer {}", "a".repeat(*size))));
                push(&mut view, &Message::user(format!("request {number}")));
            }
            Happening::Clear | Happening::Summary(..) => {}
        }
    }
    view.slots().map(|slot| slot.entry.json.clone()).collect()
}
