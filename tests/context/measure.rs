//! Requests against windows: providers that count tokens in their own way, and runs that would
//! outgrow every window if callsheet did not measure them.

use std::collections::HashMap;
use std::sync::Arc;

use callsheet::context::measure::estimate;
use callsheet::event::Event;
use callsheet::message::{Message, Usage, UsageSource};
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use callsheet::turn_machine::Machine;
use parking_lot::Mutex;
use serde_json::json;

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::faults::{Ended, FakeTool, Setup, unsendable};
use crate::support::provider::Provider;

/// The window of the agent `lead`, and of its child `helper`.
const WINDOWS: [(&str, u64); 2] = [("lead", 12_000), ("helper", 8_000)];

/// Most output tokens of either model.
const OUTPUT: u64 = 1_500;

/// Texts of about `tokens` tokens by the estimate.
fn text(kind: &str, tokens: u64) -> String {
    let line = match kind {
        "prose" => "The supervisor owns the run and starts a task when what it waits for ended.\n",
        "code" => "        self.items.push_back(value).map_err(|error| Full { at: self.at })?;\n",
        "log" => "2026-03-01T12:00:04.113Z INFO [worker-3] request id=9f86d081 took 35ms\n",
        "base64" => {
            "bjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB1L9RIvNEVUxTveLruM0rfj0WAK1jHDhaXX\n"
        }
        "cjk" => "监督者拥有整个运行。当一个任务所等待的一切都结束时，它就启动该任务。\n",
        other => panic!("{other}"),
    };
    let lines = tokens.div_ceil(estimate(line));
    line.repeat(usize::try_from(lines).expect("few lines"))
}

/// Returns the tokens that a provider counts for a request, given its count of a text.
fn count(asked: &Asked, tokens: &dyn Fn(&str) -> u64) -> u64 {
    let body = asked.json();
    let head = tokens(&asked.system()) + tokens(&body["tools"].to_string());
    let of_message = |message: &Message| {
        let texts = message.tool_results().map(|result| tokens(&result.text())).sum::<u64>();
        let calls = message.tool_calls().map(|call| tokens(call.input.as_str()) + 10).sum::<u64>();
        tokens(&message.text()) + texts + calls + 4
    };
    head + asked.messages().iter().map(of_message).sum::<u64>()
}

type Counting = Box<dyn Fn(&str) -> u64 + Send + Sync>;

/// Multiples of the estimate, and a tokenizer that weighs scripts in its own way.
fn countings() -> Vec<(&'static str, Counting)> {
    let times = |percent: u64| -> Counting { Box::new(move |text| estimate(text) * percent / 100) };
    let own: Counting = Box::new(|text| {
        let (wide, narrow): (String, String) = text.chars().partition(|c| !c.is_ascii());
        (estimate(&wide) * 11 + estimate(&narrow) * 9) / 10
    });
    vec![("0.6", times(60)), ("1.0", times(100)), ("1.5", times(150)), ("own", own)]
}

/// A request as the provider saw it.
struct Seen {
    model: String,
    tokens: u64,
    max_tokens: u64,
    messages: Vec<Message>,
}

impl Seen {
    fn is_summary(&self) -> bool {
        self.messages[0].text().starts_with("Summarize this conversation")
    }
}

fn graph(url: &str, wire: Wire) -> String {
    let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
    let models = WINDOWS.map(|(name, window)| {
        format!(
            "[models.{name}]\nprovider = \"main\"\nmodel = \"{name}\"\ncontext_window = {window}\n\
             max_output_tokens = {OUTPUT}\n"
        )
    });
    format!(
        r#"
[providers.main]
kind = "{kind}"
base_url = "{url}"
api_key = {{ env = "TEST_KEY" }}
{}
[compaction]
preset = "three-layer"
threshold = 1_000_000
keep_recent = 1_000
[agents.lead]
model = "lead"
instructions = "Lead."
tools = ["text"]
sub_agents = ["helper"]
max_turns = 100
[agents.helper]
model = "helper"
instructions = "Help."
tools = ["text"]
max_turns = 100
[tasks.work]
agent = "lead"
prompt = "Read it all."
"#,
        models.concat()
    )
}

fn text_tool() -> Arc<FakeTool> {
    FakeTool::new("text", Effect::Pure, |_, input| async move {
        let kind = input["kind"].as_str().expect("a kind").to_owned();
        Ok(ToolOutput::ok(text(&kind, input["tokens"].as_u64().expect("a size"))))
    })
}

/// The texts that an agent reads in turn: several times the size of its window.
fn reading(turn: usize) -> Option<(&'static str, u64)> {
    let plan = [
        ("prose", 700),
        ("code", 2_500),
        ("cjk", 1_500),
        ("base64", 2_000),
        ("log", 3_000),
        ("cjk", 40_000),
        ("prose", 3_500),
        ("base64", 2_500),
        ("base64", 20_000),
        ("code", 900),
        ("cjk", 3_000),
        ("log", 60_000),
        ("prose", 2_000),
    ];
    plan.get(turn).copied()
}

/// Plays both agents: each reads its plan, and the lead delegates once halfway.
fn play(turns: &Mutex<HashMap<String, usize>>, model: &str) -> Answer {
    let mut turns = turns.lock();
    let turn = turns.entry(model.to_owned()).or_default();
    *turn += 1;
    match reading(*turn - 1) {
        Some((kind, tokens)) => {
            let answer = Answer::tool("text", json!({"kind": kind, "tokens": tokens}));
            match (model, *turn) {
                ("lead", 4) => {
                    answer.and_tool("delegate", json!({"agent": "helper", "prompt": "Read, too."}))
                }
                _ => answer,
            }
        }
        None => Answer::text("done"),
    }
}

/// The part of its token counts that a provider reports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reports {
    All,
    Nothing,
    /// It reads no more than its window and reports only the tokens that it read.
    WhatItRead,
}

/// A provider that counts in its own way.
struct Server {
    wire: Wire,
    tokens: Counting,
    reports: Reports,
    /// Size of its windows, if they are smaller than configured.
    window: Option<u64>,
}

impl Server {
    fn answer(&self, seen: &Seen, turns: &Mutex<HashMap<String, usize>>) -> Answer {
        let configured = WINDOWS.iter().find(|(name, _)| *name == seen.model).expect("a model").1;
        let window = self.window.unwrap_or(configured);
        let mut tokens = seen.tokens;
        if tokens > window && self.reports != Reports::WhatItRead {
            return Answer::fault(Fault::TooLong { have: tokens, max: window });
        }
        if seen.is_summary() {
            return Answer::text("short");
        }
        if self.reports == Reports::WhatItRead {
            tokens = tokens.min(window);
        }
        let cached = tokens / 2;
        let usage =
            Usage { input: tokens - cached, cache_read: cached, output: 30, cache_write: 0 };
        let answer = play(turns, &seen.model).costing(usage);
        if self.reports == Reports::Nothing { answer.with(Fault::NoUsage) } else { answer }
    }

    /// Runs both agents; returns the requests that the provider received.
    async fn run(self) -> (Ended, Vec<Seen>) {
        let (wire, all) = (self.wire, Arc::new(Mutex::new(Vec::new())));
        let (turns, of_all) = (Mutex::default(), all.clone());
        let provider = Provider::start(move |asked: &Asked| {
            let body = asked.json();
            let limits = ["max_tokens", "max_completion_tokens"].iter();
            let seen = Seen {
                model: asked.model(),
                tokens: count(asked, &*self.tokens),
                max_tokens: limits.filter_map(|key| body[key].as_u64()).next().expect("a limit"),
                messages: asked.messages(),
            };
            let answer = self.answer(&seen, &turns);
            of_all.lock().push(seen);
            answer
        })
        .await;
        let setup = Setup::new().tool(&text_tool());
        let ended = setup.run(&graph(&provider.url_for(wire), wire)).await;
        assert_eq!(ended.output("work"), "done");
        let all = std::mem::take(&mut *all.lock());
        assert!(all.iter().all(|seen| unsendable(&seen.messages).is_none()));
        (ended, all)
    }
}

/// Checks that the requests of this model fit this window, and that it was used.
fn check(what: &str, all: &[Seen], model: &str, window: u64) {
    let sizes = all.iter().filter(|seen| seen.model == model && !seen.is_summary());
    let sizes: Vec<_> = sizes.map(|seen| (seen.tokens, seen.max_tokens)).collect();
    assert_eq!(sizes.len(), 14, "{what}: {model} was refused or stopped: {sizes:?}");
    for (tokens, max_tokens) in &sizes {
        assert!(tokens + max_tokens <= window, "{what}: {model}: {sizes:?}");
    }
    let largest = sizes.iter().map(|(tokens, _)| *tokens).max();
    assert!(largest > Some(window / 2), "{what}: {model} uses its window: {sizes:?}");
}

#[tokio::test]
async fn no_request_of_parent_or_child_is_over_its_window_however_a_provider_counts() {
    for (what, tokens) in countings() {
        let wire = if what == "own" { Wire::OpenAi } else { Wire::Anthropic };
        let server = Server { wire, tokens, reports: Reports::All, window: None };
        let (ended, all) = server.run().await;
        for (model, window) in WINDOWS {
            check(what, &all, model, window);
        }
        for agent in ["work", "work/helper-1"] {
            rebuilt_agents_measure_as_before(&ended, agent);
        }
    }
}

/// Folds an agent's records; before each request the fold must expect the recorded size.
fn rebuilt_agents_measure_as_before(ended: &Ended, agent: &str) {
    let events = ended.of_agent(agent);
    let Some(Event::AgentSpawned(spawned)) = events.first() else { panic!("{events:?}") };
    let mut machine = Machine::new(spawned.clone(), 100);
    let requested = events.iter().find_map(|event| match event {
        Event::ModelRequested(requested) => Some(requested.clone()),
        _ => None,
    });
    let first = requested.expect("a request");
    machine.begin_with(&first.model, first.head_tokens);
    let mut requests = 0;
    for event in &events[1..] {
        if let Event::ModelRequested(requested) = event {
            let expected = machine.measure().size(machine.view().extent());
            assert_eq!(requested.expected_tokens, expected, "{agent}");
            requests += 1;
        }
        machine.apply(event).expect("legal");
    }
    assert_eq!(requests, 14);
}

/// Returns the expected sizes of the agents' requests, in order.
fn expected(ended: &Ended, agent: &str) -> Vec<u64> {
    let requested = ended.of_agent(agent).into_iter().filter_map(|event| match event {
        Event::ModelRequested(requested) => Some(requested.expected_tokens),
        _ => None,
    });
    requested.collect()
}

#[tokio::test]
async fn after_three_reports_the_expectation_is_near_the_count() {
    for percent in [60, 150] {
        let tokens: Counting = Box::new(move |text| estimate(text) * percent / 100);
        let wire = Wire::Anthropic;
        let (ended, all) = Server { wire, tokens, reports: Reports::All, window: None }.run().await;
        let counted = all.iter().filter(|seen| seen.model == "lead").map(|seen| seen.tokens);
        // The first two are too small to tell.
        for (counted, expected) in counted.zip(expected(&ended, "work")).skip(5) {
            let off = counted.abs_diff(expected) * 100 / counted;
            assert!(off <= 8, "{percent} %: {expected} expected, {counted} counted");
        }
    }
}

#[tokio::test]
async fn a_provider_that_reports_nothing_is_sent_less() {
    for wire in Wire::BOTH {
        let tokens: Counting = Box::new(|text| estimate(text) * 3 / 2);
        let (ended, all) =
            Server { wire, tokens, reports: Reports::Nothing, window: None }.run().await;
        for (model, window) in WINDOWS {
            check("nothing reported", &all, model, window);
        }
        for event in ended.of_agent("work") {
            if let Event::ModelResponded(responded) = event {
                assert_eq!(responded.usage_source, UsageSource::Expected);
                assert!(responded.usage.input > 0, "it is not free");
            }
        }
    }
}

#[tokio::test]
async fn a_provider_that_cuts_in_silence_does_not_calibrate() {
    let tokens: Counting = Box::new(estimate);
    let reports = Reports::WhatItRead;
    let wire = Wire::OpenAi;
    let (ended, all) = Server { wire, tokens, reports, window: Some(4_096) }.run().await;
    for (model, window) in WINDOWS {
        check("cut in silence", &all, model, window);
    }
    let counted = all.iter().filter(|seen| seen.model == "lead").map(|seen| seen.tokens);
    for (counted, expected) in counted.zip(expected(&ended, "work")).skip(1) {
        assert!(expected * 10 >= counted * 8, "{expected} expected, {counted} sent");
    }
}

#[tokio::test]
async fn a_refusal_teaches_the_window() {
    for wire in Wire::BOTH {
        let tokens: Counting = Box::new(estimate);
        let server = Server { wire, tokens, reports: Reports::All, window: Some(4_000) };
        let (_, all) = server.run().await;
        for (model, _) in WINDOWS {
            let sizes = all.iter().filter(|seen| seen.model == model && !seen.is_summary());
            let sizes: Vec<_> = sizes.map(|seen| (seen.tokens, seen.max_tokens)).collect();
            let refused = sizes.iter().position(|(tokens, _)| *tokens > 4_000);
            let after = &sizes[refused.expect("the window is smaller than configured") + 1..];
            assert!(
                after.iter().all(|(tokens, max_tokens)| tokens + max_tokens <= 4_000),
                "{model}: {sizes:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_answer_gets_the_room_that_a_long_prompt_leaves() {
    let provider = Provider::script(vec![Answer::text("done")]).await;
    let prompt = text("prose", 10_700).replace('\n', " ");
    let graph = graph(&provider.url_for(Wire::Anthropic), Wire::Anthropic);
    let ended = Setup::new().tool(&text_tool()).run(&graph.replace("Read it all.", &prompt)).await;
    assert_eq!(ended.output("work"), "done");
    let asked = provider.requests().pop().expect("a request");
    let max_tokens = asked.json()["max_tokens"].as_u64().expect("a limit");
    assert!((1_024..OUTPUT).contains(&max_tokens), "{max_tokens}");
    assert!(count(&asked, &estimate) + max_tokens <= 12_000);
}
