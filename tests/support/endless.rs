//! A conversation that does not end by itself: a provider that always asks for one more tool call
//! and checks every request against a window, and the tool that it asks for.
//!
//! The provider's verdict is the agent's answer: the size of the largest request, or the fault of
//! the first request that did not fit.

use std::fmt::Write;
use std::path::Path;

use callsheet::id::Name;
use callsheet::message::{Json, Usage};
use callsheet::run::Launch;
use callsheet::tool::{BoxFuture, Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use callsheet::turn::Effect;
use parking_lot::Mutex;
use serde_json::json;

use super::answer::Answer;
use super::asked::Asked;
use super::provider::Responder;

/// The window of the model: small, so that a conversation of few turns is far longer than it.
pub(crate) const WINDOW: u64 = 20_000;
/// The most tokens of a reply.
const MAX_TOKENS: u64 = 1_000;
/// Text of the model beside a call.
const SAYS: &str = "That part is about the order of events. I look at the next one, because the \
    place where the number is set has not come up yet.";
/// The name of the tool.
const TOOL: &str = "look";

/// A way to keep the conversation within the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// The preset.
    pub(crate) preset: &'static str,
    /// The rest of `[compaction]`.
    constants: &'static str,
}

impl Subject {
    pub(crate) const ALL: [Self; 2] = [
        Self { preset: "adaptive", constants: "" },
        // Its own threshold is far over the window.
        Self {
            preset: "three-layer",
            constants: "threshold = 12_000\nsummary_input_chars = 40_000",
        },
    ];
}

/// The provider's side.
#[derive(Debug)]
pub(crate) struct Endless {
    turns: usize,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    turns: usize,
    requests: usize,
    largest: u64,
    wrong: Option<String>,
}

impl Endless {
    /// Asks for so many calls, then ends.
    pub(crate) fn new(turns: usize) -> Self {
        Self { turns, seen: Mutex::default() }
    }
}

impl Responder for Endless {
    fn answer(&self, asked: &Asked) -> Answer {
        let body = std::str::from_utf8(&asked.body).expect("JSON");
        let (tokens, quarters) = (tokens(body), body.chars().count() as u64 / 4);
        let needed = tokens.max(quarters) + output_limit(body);
        let mut seen = self.seen.lock();
        seen.requests += 1;
        seen.largest = seen.largest.max(needed);
        if needed > WINDOW && seen.wrong.is_none() {
            seen.wrong = Some(format!(
                "request {} has {tokens} tokens, {quarters} quarters of its characters, and asks \
                 for {} more",
                seen.requests,
                output_limit(body)
            ));
        }
        let usage = Usage { input: tokens, output: 60, ..Usage::default() };
        let is_summary = body.contains("Summarize this conversation");
        let answer = match &seen.wrong {
            Some(wrong) => Answer::text(wrong.as_str()),
            None if is_summary => Answer::text(format!("{} parts were read.", seen.turns)),
            None if seen.turns == self.turns => {
                Answer::text(format!("{} {}", seen.largest, seen.requests))
            }
            None => {
                seen.turns += 1;
                Answer::text(SAYS).and_tool(TOOL, asked_of(seen.turns))
            }
        };
        answer.costing(usage)
    }
}

/// Returns the arguments of a turn's call.
fn asked_of(turn: usize) -> serde_json::Value {
    let path = format!("src/part_{}/item_{turn}.rs", turn % 97);
    json!({ "path": path, "pattern": format!("fn handle_{}|set_number_{turn}", turn % 31) })
}

/// Counts the tokens of a text by a rule of this provider: four letters or digits of a word, or one
/// mark, are a token.
fn tokens(text: &str) -> u64 {
    let (mut tokens, mut letters) = (0, 0_u64);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            tokens += u64::from(letters % 4 == 0);
            letters += 1;
        } else {
            tokens += u64::from(byte != b' ');
            letters = 0;
        }
    }
    tokens
}

fn output_limit(body: &str) -> u64 {
    let (_, limit) = body.split_once("\"max_tokens\":").expect("a limit of the reply");
    let end = limit.find(|c: char| !c.is_ascii_digit()).expect("more behind it");
    limit[..end].parse().expect("a number")
}

/// The tool. It returns a few hundred to a few thousand characters, different ones each time.
pub(crate) struct Look<F> {
    spec: ToolSpec,
    calls: Mutex<usize>,
    at_call: F,
}

impl<F: Fn(usize) + Send + Sync> Look<F> {
    /// Sender that reports each call, counted from 1.
    pub(crate) fn new(at_call: F) -> Self {
        let spec = ToolSpec {
            name: Name::new(TOOL).expect("a name"),
            description: "Shows the lines of a file that match a pattern.".to_owned(),
            input_schema: Json::encode(&json!({ "type": "object" })),
            effect: Effect::Pure,
            reads_only: true,
        };
        Self { spec, calls: Mutex::new(0), at_call }
    }
}

impl<F: Fn(usize) + Send + Sync> Tool for Look<F> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, _: Json, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        let turn = {
            let mut calls = self.calls.lock();
            *calls += 1;
            *calls
        };
        (self.at_call)(turn);
        Box::pin(std::future::ready(Ok(ToolOutput::ok(found(turn)))))
    }
}

/// Returns the result of a turn's call: 4 to 48 lines, of about 70 characters each.
fn found(turn: usize) -> String {
    let lines = 4 + turn * 7_919 % 45;
    let mut text = String::new();
    for line in 0..lines {
        let number = (turn * 31 + line) % 977;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:4}: let number_{number} = handle_{}(source, {turn}).await?; // of {line}",
            line * 3 + 1,
            (turn + line) % 31,
        );
    }
    text
}

/// The agent of this many turns, ready to start.
pub(crate) fn launch(subject: Subject, turns: usize, url: &str, root: &Path) -> Launch {
    let Subject { preset, constants } = subject;
    let most = turns + 1;
    let text = format!(
        r#"
version = 1

[providers.loopback]
kind = "anthropic"
base_url = "{url}"

[models.default]
provider = "loopback"
model = "endless"
context_window = {WINDOW}
max_output_tokens = {MAX_TOKENS}

[compaction]
preset = "{preset}"
{constants}

[agents.looker]
instructions = "You look through the parts of a program one after the other."
tools = ["{TOOL}"]
max_turns = {most}

[tasks.look]
agent = "looker"
prompt = "Find the place where the number is set."

[permissions]
default = "allow"
"#
    );
    Launch::text(text, root)
}

/// The largest request and the number of requests, by the provider's verdict.
pub(crate) fn verdict(output: Option<&str>) -> [u64; 2] {
    let said = output.expect("an answer");
    let figures: Option<Vec<u64>> = said.split(' ').map(|figure| figure.parse().ok()).collect();
    figures.and_then(|figures| figures.try_into().ok()).unwrap_or_else(|| panic!("{said}"))
}
