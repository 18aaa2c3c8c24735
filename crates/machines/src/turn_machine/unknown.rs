//! The question to a person about a call whose outcome nobody knows, and what the answer means.
//!
//! Pure. The model and files of the workspace have no part in it: the words of the question are fixed, and
//! only a person's answer, or none, decides.

use super::PendingCall;
use super::calls;
use crate::message::{Block, ToolResult};
use crate::spec::OnUnknown;
use crate::turn::question::{
    ApprovalAnswered, ApprovalAsked, ApprovalKind, SHOWN_BYTES, Shown, bounded,
};
use crate::turn::{Effect, ToolFinished, ToolStatus};

/// The answer that the call has done its work; its output may follow after a colon.
const DONE: &str = "done";

/// The answer that the call has had no effect, so that it may be made again.
const NOT_DONE: &str = "not done";

/// The answer of a person who does not know either.
const UNKNOWN: &str = "unknown";

/// What is recorded for a call whose outcome was not known.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// This result.
    Finished(ToolFinished),
    /// Nothing yet: the call is made again.
    Again,
}

/// How often a call that may be repeated is made in one process before it is told that nobody knows its
/// outcome: what ended it twice would end it again.
const MOST_TRIES: u32 = 2;

/// Returns true if a call is made again, because nobody knows its outcome and it may be repeated. `tries`
/// counts how often this process has made it.
#[must_use]
pub fn is_repeated(call: &PendingCall, finished: &ToolFinished, tries: u32) -> bool {
    finished.status == ToolStatus::Unknown && call.effect.is_repeatable() && tries < MOST_TRIES
}

/// Returns what `on_unknown` says of this result: that of the tool, if it has one, else that of the task.
/// Only the outcome of a call that may not be repeated is unknown; a conflict over a file is known.
#[must_use]
pub fn rule(
    call: &PendingCall,
    finished: &ToolFinished,
    tool: Option<OnUnknown>,
    task: OnUnknown,
) -> OnUnknown {
    match finished.status == ToolStatus::Unknown && call.effect == Effect::Once {
        true => tool.unwrap_or(task),
        false => OnUnknown::Tell,
    }
}

/// Returns the question about a call, with all that is known of it. `begun` tells one beginning of the
/// call from another: 0, or the number of the record of the beginning.
#[must_use]
pub fn question(call: &PendingCall, arguments: &str, known: &str, begun: u64) -> ApprovalAsked {
    let name = &call.call.name;
    let message = format!(
        "A call of `{name}` was interrupted, and nobody knows whether it took effect. Look, and answer \
         `{DONE}` (or `{DONE}: ` and its output), `{NOT_DONE}` (then the call is made again), or what you \
         know in your own words; a rejection fails the agent."
    );
    let shown = |expression: &str, text: &str| {
        let (text, left_out) = bounded(text, SHOWN_BYTES);
        Shown { expression: expression.to_owned(), text, left_out }
    };
    let id = format!("{}-unknown-{begun}", call.key);
    ApprovalAsked {
        tool: name.clone(),
        shown: vec![shown("the call", arguments), shown("what is known", known)],
        choices: [DONE, NOT_DONE, UNKNOWN].map(str::to_owned).to_vec(),
        ..ApprovalAsked::new(id, ApprovalKind::Question, &message)
    }
}

/// Returns what a person's answer makes of a result that says that nobody knows.
#[must_use]
pub fn decide(call: &PendingCall, unknown: ToolFinished, answer: &ApprovalAnswered) -> Decision {
    let words = answer.text.as_deref().unwrap_or_default().trim();
    let by = answer.by.as_deref().unwrap_or("a person");
    if !answer.allowed {
        let unknown = with(unknown, |text| match words {
            "" => format!("{text}\n{by} was asked what happened and rejected the question."),
            words => {
                format!("{text}\n{by} was asked what happened and rejected the question: {words}")
            }
        });
        return Decision::Finished(failing(unknown));
    }
    let plain = words.trim_end_matches('.').to_lowercase();
    if plain == NOT_DONE {
        return Decision::Again;
    }
    let output = match words.split_once(':') {
        _ if plain == DONE => Some(""),
        Some((first, output)) if first.trim().to_lowercase() == DONE => Some(output.trim()),
        _ => None,
    };
    Decision::Finished(match output {
        // Other tasks read the output of a command that nobody called as a tool.
        Some(output) => {
            let text = match (output, call.call.name == calls::RUN) {
                (output, true) => output.to_owned(),
                ("", false) => {
                    format!("The call was interrupted. {by} looked: it has done its work.")
                }
                (output, false) => {
                    format!(
                        "The call was interrupted. {by} looked: it has done its work.\n{output}"
                    )
                }
            };
            calls::answer(unknown.turn, call.clone(), ToolStatus::Ok, text)
        }
        None => {
            with(unknown, |text| format!("{text}\n{by} was asked what happened and said: {words}"))
        }
    })
}

/// Returns the result of a call whose agent fails because nobody knows the outcome.
#[must_use]
pub fn failing(unknown: ToolFinished) -> ToolFinished {
    ToolFinished { fails_agent: true, ..unknown }
}

/// Returns the text of a result, as a model reads it.
#[must_use]
pub fn result_text(finished: &ToolFinished) -> String {
    match finished.block.decode() {
        Ok(Block::ToolResult(result)) => result.text(),
        _ => String::new(),
    }
}

/// Returns a result with another text.
fn with(finished: ToolFinished, change: impl FnOnce(&str) -> String) -> ToolFinished {
    let text = change(&result_text(&finished));
    let block = match finished.block.decode() {
        Ok(Block::ToolResult(result)) => {
            let content = crate::message::ResultContent::Text(text);
            crate::message::Json::encode(&Block::ToolResult(ToolResult { content, ..result }))
        }
        _ => finished.block,
    };
    ToolFinished { block, ..finished }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AgentId, CallKey, RunId};
    use crate::message::{Json, ToolCall};
    use crate::turn_machine::interrupted::{self, Known};

    fn call(name: &str, effect: Effect) -> PendingCall {
        let run = RunId::from(uuid::Uuid::nil());
        let key = CallKey::derive(run, &AgentId::from_text("a"), 1, 0, name, "{}");
        let input = Json::encode(&serde_json::json!({}));
        let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), input };
        PendingCall::new(key, 0, call, effect)
    }

    fn lost(call: &PendingCall) -> ToolFinished {
        interrupted::unknown(1, call.clone(), &Known::default())
    }

    fn answered(allowed: bool, text: Option<&str>) -> ApprovalAnswered {
        let (text, by) = (text.map(str::to_owned), Some("me@here".to_owned()));
        ApprovalAnswered { id: "x".to_owned(), allowed, text, by }
    }

    #[test]
    fn the_tool_s_own_rule_comes_before_the_task_s() {
        use OnUnknown::{Ask, Fail, Tell};
        let once = call("deploy", Effect::Once);
        for (tool, task, expected) in [
            (None, Tell, Tell),
            (None, Fail, Fail),
            (Some(Ask), Fail, Ask),
            (Some(Tell), Ask, Tell),
        ] {
            assert_eq!(rule(&once, &lost(&once), tool, task), expected);
        }
        let known = ToolFinished { status: ToolStatus::Ok, ..lost(&once) };
        assert_eq!(rule(&once, &known, Some(Ask), Fail), Tell);
        let change = call("write_file", Effect::Checked);
        assert_eq!(rule(&change, &lost(&change), None, Ask), Tell, "a conflict is told");
    }

    #[test]
    fn only_plain_words_make_a_call_again() {
        let tool = call("deploy", Effect::Once);
        for words in ["not done", "Not done.", "  NOT DONE "] {
            let decided = decide(&tool, lost(&tool), &answered(true, Some(words)));
            assert_eq!(decided, Decision::Again, "{words}");
        }
        for (words, status, says) in [
            ("done", ToolStatus::Ok, "me@here looked: it has done its work."),
            ("Done.", ToolStatus::Ok, "it has done its work."),
            ("done: version 3 is live", ToolStatus::Ok, "its work.\nversion 3 is live"),
            ("unknown", ToolStatus::Unknown, "me@here was asked what happened and said: unknown"),
            ("I think it is not done", ToolStatus::Unknown, "said: I think it is not done"),
            ("not done: half of it", ToolStatus::Unknown, "said: not done: half of it"),
            ("", ToolStatus::Unknown, "said: "),
        ] {
            let decided = decide(&tool, lost(&tool), &answered(true, Some(words)));
            let Decision::Finished(finished) = decided else { panic!("{words}") };
            assert_eq!((finished.status, finished.fails_agent), (status, false), "{words}");
            let text = result_text(&finished);
            assert!(text.contains(says), "{words}: {text}");
            let is_unknown = status == ToolStatus::Unknown;
            assert_eq!(text.starts_with(interrupted::OUTCOME_UNKNOWN), is_unknown);
            assert_eq!(finished.key, tool.key);
        }
        let Decision::Finished(failed) =
            decide(&tool, lost(&tool), &answered(false, Some("stop here")))
        else {
            panic!("a rejection is no reason to make the call again")
        };
        assert!(
            failed.fails_agent
                && result_text(&failed).ends_with("rejected the question: stop here")
        );
    }

    #[test]
    fn the_output_of_a_command_is_what_the_person_says_that_it_was() {
        let run = call(calls::RUN, Effect::Once);
        for (words, output) in [("done", ""), ("done: {\"a\": 1}", "{\"a\": 1}")] {
            let decided = decide(&run, lost(&run), &answered(true, Some(words)));
            let Decision::Finished(finished) = decided else { panic!("{words}") };
            assert_eq!(result_text(&finished), output);
        }
    }

    #[test]
    fn each_beginning_is_asked_about_by_itself_and_what_is_shown_has_a_bound() {
        let tool = call("deploy", Effect::Once);
        let [one, other] = [7, 9].map(|begun| question(&tool, "x", "y", begun));
        assert_ne!(one.id, other.id);
        let long = question(&tool, &"ä".repeat(SHOWN_BYTES), "y", 7);
        assert!(long.shown[0].text.len() <= SHOWN_BYTES && long.shown[0].left_out > 0);
    }
}
