//! One line of plain words per record, for people: in the agents' logs, in `tail` and in `run`.
//!
//! Pure. Owns the wording. Text of models and tools is shortened and its control characters are
//! escaped, so that it can neither forge a line nor steer a terminal.

mod asked;
mod messages;
mod peek;
mod words;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

use self::asked::describe_question;
pub use self::words::{Reasons, cut, in_one_line};
use self::words::{bytes, duration, first_line, last_line, plural, reason, tokens};
use crate::event::{Event, Record, RunStatus};
use crate::failure::Failure;
use crate::journal::stamp;
use crate::message::{Json, StopReason};
use crate::output::Output;
use crate::printable;
use crate::spec::budget::OnExceed;
use crate::turn::{
    AgentEnded, CheckPlace, ModelResponded, Outcome, Program, ToolFinished, ToolStatus,
};

/// The most characters of text from models and tools in a line: with the rest of the line it fits
/// two rows of a terminal.
const QUOTED: usize = 160;

/// The most characters of a line of a command's output.
const WIDEST: usize = 400;

/// Returns the event of a record in words, in one line.
#[must_use]
pub fn line_of(record: &Record, reasons: Reasons) -> String {
    let mut line = String::new();
    // Writing to a string cannot fail.
    let _ = describe(&record.event, reasons, &mut line);
    safe(line)
}

/// Returns the line of a record in a file, without a newline: `HH:MM:SS.mmm` in UTC and the event in words, with whole
/// reasons.
#[must_use]
pub fn line_for(record: &Record) -> String {
    let stamp = stamp::text(record.ts_ms);
    // Skips the date and its `T`, and the final `Z`.
    let mut line = format!("{} ", &stamp[11..stamp::LEN - 1]);
    // Writing to a string cannot fail.
    let _ = describe(&record.event, Reasons::Whole, &mut line);
    safe(line)
}

/// Returns the same line, in which nothing steers a terminal, whoever put it there.
fn safe(line: String) -> String {
    match printable::line(&line) {
        Cow::Borrowed(_) => line,
        Cow::Owned(safe) => safe,
    }
}

/// Returns the text of a record in its agent's log: its line and the lines below, each with its
/// newline.
#[must_use]
pub fn log_text(record: &Record) -> String {
    let mut text = line_for(record);
    if let Some(below) = lines_below(record) {
        text.push('\n');
        text.push_str(&below);
    }
    text.push('\n');
    text
}

/// Returns the lines under the line of a record, without the last newline: the end of the output of
/// a command that failed. `None` for most records.
#[must_use]
pub fn lines_below(record: &Record) -> Option<String> {
    let failure = match &record.event {
        Event::AgentEnded(ended) => match &ended.outcome {
            Outcome::Failed { failure, .. } => failure,
            Outcome::Completed { .. } | Outcome::Cancelled { .. } => return None,
        },
        Event::HookFinished(finished) if !finished.output.trim().is_empty() => {
            return Some(marked(finished.output.trim_end()));
        }
        Event::TaskFailed(failed) => &failed.failure,
        Event::TaskRetrying(retrying) => &retrying.failure,
        _ => return None,
    };
    output_lines(failure)
}

/// Returns the end of the output of a command that failed, with a mark before each line.
#[must_use]
pub fn output_lines(failure: &Failure) -> Option<String> {
    Some(marked(failure.output.as_ref()?))
}

/// Returns a text of a command with a mark before each line, and without the last newline.
pub fn marked(text: &str) -> String {
    text.lines().map(|line| format!("    | {}", ends_of(line))).collect::<Vec<_>>().join("\n")
}

/// Returns a line without its middle if it is too long: the message of an error stands at its end.
fn ends_of(line: &str) -> String {
    let count = line.chars().count();
    if count <= WIDEST {
        return cut(line, WIDEST);
    }
    let tail: String = line.chars().skip(count - WIDEST / 2).collect();
    format!("{} {}", cut(line, WIDEST / 2), cut(&tail, WIDEST))
}

fn describe(event: &Event, reasons: Reasons, out: &mut String) -> std::fmt::Result {
    match event {
        Event::RunCreated(_)
        | Event::RunOpened(_)
        | Event::RunPaused(_)
        | Event::RunCompleted(_)
        | Event::PlanExtended(_)
        | Event::HookStarted(_)
        | Event::HookFinished(_)
        | Event::NoticeIntended(_)
        | Event::NoticeDelivered(_)
        | Event::NoticeFailed(_)
        | Event::BudgetWarned(_)
        | Event::BudgetExceeded(_)
        | Event::BudgetChanged(_)
        | Event::ScopePaused(_)
        | Event::ScopeUnpaused(_)
        | Event::BudgetBoundBroken(_)
        | Event::GatewayParked(_)
        | Event::GatewayResumed(_)
        | Event::GatewayBreaker(_) => describe_run(event, reasons, out),
        Event::TaskReady(_)
        | Event::TaskStarted(_)
        | Event::TaskRetrying(_)
        | Event::TaskCompleted(_)
        | Event::TaskReused(_)
        | Event::TaskFailed(_)
        | Event::TaskSkipped(_)
        | Event::TaskCancelled(_) => describe_task(event, reasons, out),
        Event::ContextEdited(_)
        | Event::CompactionRequested(_)
        | Event::CompactionFinished(_)
        | Event::CompactionFailed(_)
        | Event::CompactionBreaker(_) => describe_context(event, reasons, out),
        Event::AgentSpawned(spawned) => {
            if let Some(CheckPlace { round, index }) = spawned.check {
                write!(out, "check {} of round {round}: ", index + 1)?;
            }
            match &spawned.program {
                Program::Model { agent, prompt } => {
                    write!(out, "spawned as {agent}: {}", first_line(prompt.beginning(), QUOTED))
                }
                Program::Command(command) => write!(out, "$ {}", first_line(&command.run, QUOTED)),
            }
        }
        Event::AgentRestarted(e) => match &e.feedback {
            None => write!(out, "restarted ({}): {}", e.restart, reason(&e.reason, reasons)),
            Some(feedback) if feedback.text.is_empty() => out.write_str(&e.reason),
            Some(feedback) => {
                write!(out, "{}: {}", e.reason, reason(&feedback.text, reasons))
            }
        },
        Event::AgentEnded(ended) => describe_end(ended, reasons, out),
        Event::TurnStarted(e) if e.hand_over => {
            let why = if e.ends_for.is_none() { "it is out of turns and" } else { "it" };
            write!(out, "turn {}: {why} hands over", e.turn)
        }
        Event::TurnStarted(e) if e.held => write!(out, "turn {}: without tools", e.turn),
        Event::TurnStarted(e) => write!(out, "turn {}", e.turn),
        Event::ModelRequested(e) => {
            let (count, size) = (plural(e.messages as u64, "message"), bytes(e.bytes as u64));
            write!(out, "calling {}: {count}, {size}", e.model)
        }
        Event::ModelResponded(responded) => describe_reply(responded, reasons, out),
        Event::ModelFailed(e) if e.cut => {
            write!(out, "model call cut: {}", reason(&e.failure.message, reasons))
        }
        Event::ModelFailed(e) => {
            let message = reason(&e.failure.message, reasons);
            write!(
                out,
                "failed: model call, attempt {}: {}: {message}",
                e.attempt, e.failure.kind
            )?;
            match e.retry_in_ms {
                _ if let Some(model) = &e.next_model => {
                    write!(out, "; model `{model}` is called instead")
                }
                Some(pause) => write!(out, "; next attempt in {}", duration(pause)),
                None => Ok(()),
            }
        }
        Event::ToolIntended(e) => {
            write!(out, "{} {}", cut(&e.name, QUOTED), argument(&e.input))
        }
        Event::ToolStarted(e) => write!(out, "call {} started", cut(e.key.as_str(), QUOTED)),
        Event::ToolFinished(finished) => describe_result(finished, out),
        Event::LoopNoticed(e) => write!(out, "goes in circles: {}", e.circle.words()),
        Event::LoopHeld(e) => {
            write!(out, "goes in circles and is held back: {}", e.circle.words())
        }
        Event::LoopBroken(e) => {
            write!(out, "failed: went in circles: {}; it hands over", e.circle.words())
        }
        Event::ApprovalAsked(_) | Event::ApprovalAnswered(_) => describe_question(event, out),
        Event::MessageSent(_) | Event::MessageDelivered(_) | Event::MessageReturned(_) => {
            messages::describe(event, out)
        }
    }
}

fn describe_run(event: &Event, reasons: Reasons, out: &mut String) -> std::fmt::Result {
    match event {
        Event::RunCreated(e) => {
            let count = plural(e.tasks.len() as u64, "task");
            write!(out, "run {} of {} created: {count}", e.run, cut(&e.workflow, QUOTED))
        }
        Event::RunOpened(e) => match &e.reason {
            Some(why) => write!(out, "run goes on: {}", reason(why, reasons)),
            None => write!(out, "run opened by process {} ({})", e.pid, e.epoch),
        },
        Event::RunPaused(e) => write!(out, "run paused: {}", reason(&e.reason, reasons)),
        Event::RunCompleted(e) => {
            let status = match e.status {
                RunStatus::Completed => "completed",
                RunStatus::Partial => "partly completed",
                RunStatus::Failed => "failed",
                RunStatus::Cancelled => "cancelled",
            };
            let (read, made) = (tokens(e.usage.context()), tokens(e.usage.output));
            let cost = e.cost_usd.filter(|cost| *cost > 0.0).map(|cost| format!(", ${cost:.4}"));
            write!(out, "run {status}: {read} in / {made} out{}", cost.unwrap_or_default())
        }
        Event::PlanExtended(e) => {
            let names =
                e.tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>().join(", ");
            let (count, by) = (e.tasks.len(), &e.by);
            write!(out, "{count} proposed by {by}: {}", first_line(&names, QUOTED))
        }
        Event::HookStarted(e) => write!(out, "hook {} started", e.hook),
        Event::HookFinished(e) => match &e.error {
            None => write!(out, "hook {} done in {}", e.hook, duration(e.took_ms)),
            Some(error) => write!(out, "hook {} failed: {}", e.hook, reason(error, reasons)),
        },
        Event::NoticeIntended(e) => {
            write!(out, "reports it by {} ({}): {}", e.channel, e.kind, first_line(&e.text, QUOTED))
        }
        Event::NoticeDelivered(e) => {
            write!(out, "notice {} delivered, attempt {}", cut(&e.id, QUOTED), e.attempt)
        }
        Event::NoticeFailed(e) => {
            let (id, error) = (cut(&e.id, QUOTED), reason(&e.error, reasons));
            let next = if e.gives_up { "given up" } else { "it is tried again" };
            write!(out, "notice {id} not delivered, attempt {}: {error}; {next}", e.attempt)
        }
        Event::GatewayParked(e) => {
            let (pause, why) = (duration(e.for_ms), reason(&e.reason, reasons));
            write!(out, "all calls to {} wait {pause}: {why}", e.provider)
        }
        Event::GatewayResumed(e) => write!(out, "{} may be called again", e.provider),
        Event::BudgetWarned(e) => {
            let percent = f64::from(e.share) / 10.0;
            write!(out, "{percent} % of the budget of {} is spent", e.scope.words())
        }
        Event::BudgetExceeded(e) => {
            let then = match e.on_exceed {
                OnExceed::Pause => "its agents wait until a person raises it",
                OnExceed::Stop => "its agents end",
                OnExceed::Warn => "its agents go on",
            };
            write!(out, "budget used up, {then}: {}", e.words())
        }
        Event::BudgetChanged(e) => {
            let by = e.by.as_deref().unwrap_or("a person");
            write!(out, "budget of {} set by {by}: {}", e.scope.words(), e.caps)
        }
        Event::BudgetBoundBroken(e) => write!(
            out,
            "model {} reported {} tokens where {} could be expected: more is reserved from now on",
            e.model, e.reported, e.reserved
        ),
        Event::ScopePaused(e) => write!(out, "{}", reason(&e.words(), reasons)),
        Event::ScopeUnpaused(e) => write!(out, "{} goes on: unpaused by {}", e.scope.words(), e.by),
        Event::GatewayBreaker(e) => {
            write!(out, "breaker of {} is {}", e.provider, words::breaker(e.state))
        }
        other => out.write_str(other.kind()),
    }
}

fn describe_task(event: &Event, reasons: Reasons, out: &mut String) -> std::fmt::Result {
    match event {
        Event::TaskReady(_) => out.write_str("task ready"),
        Event::TaskStarted(e) => {
            write!(out, "task started, attempt {}", e.attempt)?;
            match (&e.agent, &e.instances) {
                // The agent of an instance has the number of the item, which says less.
                (Some(_), _) if let Some(item) = &e.item => {
                    write!(out, ", for {}", first_line(item, QUOTED))
                }
                (Some(agent), _) => write!(out, ", by {}", cut(agent.as_str(), QUOTED)),
                (None, Some(instances)) => {
                    write!(out, ", with {}", plural(instances.keys.len() as u64, "instance"))
                }
                (None, None) => Ok(()),
            }
        }
        Event::TaskRetrying(e) => {
            let message = reason(&e.failure.message, reasons);
            write!(
                out,
                "attempt {} failed: {}: {message}; next attempt ",
                e.attempt, e.failure.kind
            )?;
            match e.on_resume {
                true => out.write_str("when the run is resumed"),
                false => write!(out, "in {}", duration(e.pause_ms)),
            }
        }
        Event::TaskCompleted(e) => write!(out, "task completed{}", after_colon(&e.output)),
        Event::TaskReused(e) => write!(out, "task reused{}", after_colon(&e.output)),
        Event::TaskFailed(e) => {
            let message = reason(&e.failure.message, reasons);
            write!(out, "task failed: {}: {message}", e.failure.kind)
        }
        Event::TaskSkipped(e) => write!(out, "task skipped: {}", reason(&e.reason, reasons)),
        Event::TaskCancelled(e) => write!(out, "task cancelled: {}", reason(&e.reason, reasons)),
        other => out.write_str(other.kind()),
    }
}

fn describe_context(event: &Event, reasons: Reasons, out: &mut String) -> std::fmt::Result {
    match event {
        Event::ContextEdited(e) => {
            let (before, after) = (tokens(e.before_tokens), tokens(e.after_tokens));
            write!(out, "view edited by {}: {before} -> {after} tokens", cut(&e.layer, QUOTED))
        }
        Event::CompactionRequested(e) => {
            write!(out, "compaction asked for: messages {} to {}", e.from, e.to)
        }
        Event::CompactionFinished(e) => {
            let (before, after) = (tokens(e.before_tokens), tokens(e.after_tokens));
            write!(out, "compacted {before} -> {after} tokens")
        }
        Event::CompactionFailed(e) => {
            write!(out, "failed: compaction: {}", reason(&e.reason, reasons))
        }
        Event::CompactionBreaker(e) => {
            write!(out, "breaker of compaction is {}", words::breaker(e.state))
        }
        other => out.write_str(other.kind()),
    }
}

fn describe_end(ended: &AgentEnded, reasons: Reasons, out: &mut String) -> std::fmt::Result {
    let turns = plural(u64::from(ended.turns), "turn");
    match &ended.outcome {
        Outcome::Completed { output } => write!(out, "done after {turns}{}", after_colon(output)),
        Outcome::Failed { failure, .. } => {
            let message = reason(&failure.message, reasons);
            write!(out, "failed: after {turns}: {}: {message}", failure.kind)
        }
        Outcome::Cancelled { reason: why } => {
            write!(out, "cancelled after {turns}: {}", reason(why, reasons))
        }
    }
}

/// Returns the last line of an output, which the summary of a run shows too.
fn after_colon(output: &Output) -> String {
    let line = last_line(&output.text, QUOTED);
    if line.is_empty() { String::new() } else { format!(": {line}") }
}

/// The fields of a content block that the log shows; serde skips all others without building them.
#[derive(Deserialize)]
struct BlockPeek<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

fn describe_reply(
    responded: &ModelResponded,
    reasons: Reasons,
    out: &mut String,
) -> std::fmt::Result {
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(borrow)]
        content: Vec<BlockPeek<'a>>,
    }
    let peek = serde_json::from_str::<Peek<'_>>(responded.message.as_str());
    let blocks = peek.map(|peek| peek.content).unwrap_or_default();
    let calls = blocks.iter().filter(|block| block.r#type == "tool_use").count() as u64;
    out.write_str("model replied: ")?;
    if calls > 0 {
        write!(out, "{}, ", plural(calls, "tool call"))?;
    }
    let usage = &responded.usage;
    write!(out, "{} in / {} out", tokens(usage.context()), tokens(usage.output))?;
    let cleared = responded.context.cleared_tokens();
    if cleared > 0 {
        write!(out, ", {} cleared by the provider", tokens(cleared))?;
    }
    match &responded.stop {
        StopReason::EndTurn | StopReason::ToolUse => {}
        StopReason::MaxTokens => out.write_str(", cut at the output limit")?,
        StopReason::StopSequence => out.write_str(", stop sequence")?,
        StopReason::PauseTurn => out.write_str(", paused")?,
        StopReason::Refusal(_) => out.write_str(", refused")?,
        StopReason::ContextWindowExceeded => out.write_str(", context window full")?,
        StopReason::Compaction => out.write_str(", the provider summarised")?,
        StopReason::Interrupted(why) | StopReason::Other(why) => {
            write!(out, ", {}", reason(why, reasons))?;
        }
    }
    let text = blocks.iter().find_map(|block| block.text);
    let text = text.and_then(|raw| serde_json::from_str::<Cow<'_, str>>(raw.get()).ok());
    match text.as_deref().map(|text| first_line(text, QUOTED)) {
        Some(line) if !line.is_empty() => write!(out, ": {line}"),
        Some(_) | None => Ok(()),
    }
}

/// Names of the arguments that identify a call best, the most telling first.
const TELLING: [&str; 8] =
    ["command", "path", "pattern", "agent", "name", "query", "url", "prompt"];

/// Returns a call's most telling argument, or all its arguments as JSON.
fn argument(input: &Json) -> String {
    let fields = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(input.as_str());
    let fields = fields.unwrap_or_default();
    let telling = TELLING.iter().find_map(|name| {
        let raw = fields.get(*name)?;
        serde_json::from_str::<String>(raw.get()).ok()
    });
    match telling {
        Some(text) => first_line(&text, QUOTED),
        None => first_line(input.as_str(), QUOTED),
    }
}

fn describe_result(finished: &ToolFinished, out: &mut String) -> std::fmt::Result {
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(borrow, default)]
        content: Option<&'a RawValue>,
    }
    let block = finished.block.as_str();
    let as_usual = peek::content_of(block).and_then(|raw| Some((raw, peek::decoded_len(raw)?)));
    let (raw, length) = match as_usual {
        Some((raw, length)) => (raw, Some(length)),
        None => {
            let peek = serde_json::from_str::<Peek<'_>>(block);
            let raw = peek.ok().and_then(|peek| peek.content).map_or("\"\"", RawValue::get);
            (raw, peek::decoded_len(raw))
        }
    };
    let status = match finished.status {
        ToolStatus::Ok => "ok",
        ToolStatus::Error => "failed",
        ToolStatus::Unknown => "interrupted",
    };
    let (line, length) = match peek::first_line_of(raw, QUOTED).zip(length) {
        Some(known) => known,
        None => {
            let text = first_text(raw);
            (first_line(&text, QUOTED), text.len())
        }
    };
    let size = finished.stored.as_ref().map_or(length as u64, |stored| stored.bytes);
    let (took, size) = (duration(finished.took_ms), bytes(size));
    write!(out, "{} {status} ({took}, {size}", cut(&finished.name, QUOTED))?;
    match finished.exit_code {
        Some(code) if code != 0 => write!(out, ", exit {code})")?,
        Some(_) | None => out.write_str(")")?,
    }
    if line.is_empty() { Ok(()) } else { write!(out, ": {line}") }
}

/// Returns the first text in a list of blocks.
fn first_text(raw: &str) -> Cow<'_, str> {
    let blocks = serde_json::from_str::<Vec<BlockPeek<'_>>>(raw).unwrap_or_default();
    let text = blocks.iter().find_map(|block| block.text);
    let text = text.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    Cow::Owned(text.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::context::{CompactionFinished, Edit};
    use crate::event::Draft;
    use crate::failure::{Failure, FailureKind};
    use crate::journal::samples::{draft, finished, intended, responded, spawned};
    use crate::journal::samples::{record, turn};
    use crate::message::Usage;
    use crate::turn::ModelFailed;

    fn line(draft: Draft) -> String {
        line_for(&record(1, draft))
    }

    #[test]
    fn lines_read_like_this() {
        let failure = Failure::new(FailureKind::RateLimit, "slow down");
        let failed = ModelFailed {
            unsettled: None,
            turn: 1,
            attempt: 2,
            failure,
            retry_in_ms: Some(2000),
            next_model: None,
            context_tokens: None,
            window_tokens: None,
            spent: None,
            usage_source: Default::default(),
            cut: false,
        };
        let compacted = CompactionFinished {
            layer: "summary".to_owned(),
            edit: Edit::Replace { from: 0, to: 1, with: Vec::new() },
            before_tokens: 51_200,
            after_tokens: 8_000,
            model: crate::id::Name::new("m").expect("a name"),
            usage: Usage::default(),
            cost_usd: None,
        };
        let big = format!("first line\nsecond{}", "x".repeat(2083));
        for (draft, expected) in [
            (turn("a", 3), "turn 3"),
            (spawned("\n  Read it.\nThen\n"), "spawned as helper: Read it. …"),
            (responded(1), "model replied: 2 tool calls, 1.2k in / 210 out: Looking."),
            (intended(1, 0, "read_file", r#"{"limit":5,"path":"src/a.rs"}"#), "read_file src/a.rs"),
            (intended(1, 0, "later", r#"{"a":[1]}"#), r#"later {"a":[1]}"#),
            (finished(1, 0, ToolStatus::Ok, &big), "read_file ok (12 ms, 2.1 kB): first line …"),
            (finished(1, 0, ToolStatus::Error, "no"), "read_file failed (12 ms, 2 B): no"),
            (
                draft(failed),
                "failed: model call, attempt 2: rate_limit: slow down; next attempt in 2.0 s",
            ),
            (draft(compacted), "compacted 51k -> 8.0k tokens"),
        ] {
            assert_eq!(line(draft), format!("02:04:05.123 {expected}"));
        }
    }

    #[test]
    fn failures_are_whole_in_files_and_marked_where_a_screen_cuts_them() {
        let message = format!("the answer has no table\nit {} with a web page", "x".repeat(400));
        let failure = Failure::new(FailureKind::GaveUp, message.clone());
        let failed = draft(crate::plan::TaskFailed { attempt: 1, failure, consequence: None });
        let record = record(1, failed);
        assert!(line_for(&record).ends_with(" with a web page"), "{}", line_for(&record));
        assert_eq!(line_of(&record, Reasons::Whole), line_for(&record)[13..]);
        let short = line_of(&record, Reasons::Short);
        assert_eq!(short, "task failed: gave_up: the answer has no table …");
    }

    #[test]
    fn blocks_show_their_first_text() {
        let Draft { event: Event::ToolFinished(mut result), .. } =
            finished(1, 0, ToolStatus::Ok, "")
        else {
            panic!("a result");
        };
        let block = r#"{"type":"tool_result","tool_use_id":"1","content":[{"type":"image","source":{}},{"type":"text","text":"a pict\u001bure"}]}"#;
        result.block = Json::parse(block.to_owned()).unwrap();
        let expected = "02:04:05.123 read_file ok (12 ms, 10 B): a pict\\u{1b}ure";
        assert_eq!(line(draft(result)), expected);
    }

    proptest! {
        #[test]
        fn foreign_text_can_neither_forge_lines_nor_steer_terminals(
            text in prop::collection::vec(any::<char>(), 0..400),
        ) {
            let text = text.into_iter().collect::<String>();
            let input = serde_json::json!({ "command": text.as_str() }).to_string();
            for draft in [
                spawned(&text),
                intended(1, 0, &text, &input),
                finished(1, 0, ToolStatus::Error, &text),
            ] {
                let line = line(draft);
                prop_assert!(!line.chars().any(char::is_control), "{line:?}");
                prop_assert!(!line.contains(['\u{202e}', '\u{2066}', '\u{2028}']), "{line:?}");
                // Every character may be escaped, into ten at most.
                prop_assert!(line.chars().count() < 2 * 10 * QUOTED + 100);
            }
        }
    }
}
