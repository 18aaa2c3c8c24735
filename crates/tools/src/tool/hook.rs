//! Hooks: commands that `agents.toml` names, run before something happens to ask and after it to tell.
//!
//! Owns the run of a hook and the format of its answer. The agent or the supervisor decides when a
//! hook runs and what it receives; no model can name one.

use std::path::PathBuf;

use serde::Deserialize;

use super::process::{self, Errors, ProcessGroup, Program};
use super::{Ending, ToolContext, ToolError, ToolOutput, wrapper};
use crate::message::Json;
use crate::store::INLINE_CHARS;

/// The most characters of a word of a hook that an error repeats.
const MOST_OF_A_WORD: usize = 50;

/// Exit code by which a hook blocks.
const BLOCKS: i32 = 2;

/// Answer of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Continue, with this text for the agent if there is one.
    GoOn(Option<String>),
    /// Continue only if a person allows it, for this reason.
    Ask(String),
    /// Do not continue, for this reason.
    Block(String),
}

/// Runs a hook of a compaction with `input` on its stdin, in the workspace root, until the time limit
/// of the context. When this returns or is dropped, no process of its group is left.
///
/// # Errors
/// Returns an error if the hook could not be started, took too long, was cancelled, or ended with
/// an exit code other than 0 and 2.
pub async fn run(
    argv: &[String],
    input: &Json,
    context: &ToolContext,
) -> Result<Answer, ToolError> {
    let ended = ended(argv, input, context).await?;
    answer(exit_code(&ended, context)?, &ended.text, &ended.errors)
}

/// Runs a hook of a tool call in the same way, and reads its decision.
///
/// # Errors
/// Returns an error in the same cases as [`run`], and if the hook printed JSON that says nothing
/// which is understood.
pub async fn decide(
    argv: &[String],
    input: &Json,
    context: &ToolContext,
) -> Result<Answer, ToolError> {
    let ended = ended(argv, input, context).await?;
    decision(exit_code(&ended, context)?, &ended.text, &ended.errors)
}

/// Runs a hook that has nothing to decide, in the same way. Returns what it printed, and the reason
/// why it did not do its work, if it did not.
pub async fn report(
    argv: &[String],
    input: &Json,
    context: &ToolContext,
) -> (String, Option<String>) {
    let ended = match ended(argv, input, context).await {
        Ok(ended) => ended,
        Err(error) => return (String::new(), Some(error.to_string())),
    };
    let error = match exit_code(&ended, context) {
        Ok(0) => None,
        Ok(code) => Some(failed(code, &ended.errors).to_string()),
        Err(error) => Some(error.to_string()),
    };
    let line_break = if ended.text.is_empty() || ended.text.ends_with('\n') { "" } else { "\n" };
    (ended.text + line_break + &ended.errors, error)
}

async fn ended(
    argv: &[String],
    input: &Json,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let (argv, input) = (argv.to_vec(), Some(input.as_str().to_owned()));
    let (folder, timeout, inline_chars) = (PathBuf::new(), context.timeout, INLINE_CHARS);
    let program = Program { argv, folder, input, errors: Errors::Apart, timeout, inline_chars };
    match &context.wrapper {
        Some(wrapper) => wrapper::run_program(wrapper, program, context).await,
        None => process::run(program, ProcessGroup::OwnGroup, context).await,
    }
}

fn exit_code(ended: &ToolOutput, context: &ToolContext) -> Result<i32, ToolError> {
    match ended.ending {
        Ending::Exited(code) => Ok(code),
        Ending::TimedOut(_) => Err(ToolError::Timeout(context.timeout)),
        Ending::Cancelled(_) | Ending::Done | Ending::Failed | Ending::Denied | Ending::Refused => {
            Err(ToolError::Cancelled)
        }
    }
}

fn failed(exit_code: i32, errors: &str) -> ToolError {
    let what = errors.lines().next().unwrap_or_default();
    ToolError::Failed(format!("exit code {exit_code}: {what}"))
}

/// JSON object that a hook may print in place of plain text. Other keys belong to other programs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    decision: Option<String>,
    reason: Option<String>,
    #[serde(rename = "hookSpecificOutput")]
    specific: Specific,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Specific {
    #[serde(rename = "additionalContext")]
    additional_context: Option<String>,
    #[serde(rename = "permissionDecision")]
    permission_decision: Option<String>,
    #[serde(rename = "permissionDecisionReason")]
    permission_decision_reason: Option<String>,
}

fn answer(exit_code: i32, output: &str, errors: &str) -> Result<Answer, ToolError> {
    if exit_code == BLOCKS {
        return Ok(Answer::Block(reason(errors)));
    }
    if exit_code != 0 {
        return Err(failed(exit_code, errors));
    }
    let output = output.trim();
    let object = Some(output).filter(|output| output.starts_with('{'));
    let text = match object.and_then(|object| serde_json::from_str::<Said>(object).ok()) {
        Some(said) if said.decision.as_deref() == Some("block") => {
            return Ok(Answer::Block(reason(&said.reason.unwrap_or_default())));
        }
        Some(said) => said.specific.additional_context.unwrap_or_default(),
        None => output.to_owned(),
    };
    Ok(Answer::GoOn(Some(text).filter(|text| !text.trim().is_empty())))
}

fn reason(text: &str) -> String {
    match text.trim() {
        "" => "no reason was given".to_owned(),
        text => text.to_owned(),
    }
}

/// Reads the decision of a hook on a call of a tool.
fn decision(exit_code: i32, output: &str, errors: &str) -> Result<Answer, ToolError> {
    if exit_code != 0 || !output.trim().starts_with('{') {
        return answer(exit_code, output, errors);
    }
    let said = serde_json::from_str::<Said>(output).map_err(|error| {
        ToolError::Failed(format!("what it printed begins like JSON and is none: {error}"))
    })?;
    let Specific { additional_context, permission_decision, permission_decision_reason } =
        said.specific;
    let why =
        |own: Option<String>, other: Option<String>| reason(&own.or(other).unwrap_or_default());
    let on_call = permission_decision.as_deref();
    let known = match (on_call, said.decision.as_deref()) {
        (Some("deny"), _) => Answer::Block(why(permission_decision_reason, said.reason)),
        (_, Some("block" | "deny")) => Answer::Block(why(said.reason, permission_decision_reason)),
        (Some("ask"), _) => Answer::Ask(why(permission_decision_reason, said.reason)),
        (Some("allow") | None, Some("approve" | "allow") | None) => {
            Answer::GoOn(additional_context.filter(|text| !text.trim().is_empty()))
        }
        (Some(other), _) | (None, Some(other)) => {
            let other: String = other.chars().take(MOST_OF_A_WORD).collect();
            return Err(ToolError::Failed(format!("`{other}` is no decision that is known")));
        }
    };
    Ok(known)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tool::environment::{self, Environment};
    use crate::tool::files::tests::Bench;

    fn input() -> Json {
        Json::encode(&serde_json::json!({"hook_event_name": "PreCompact", "trigger": "auto"}))
    }

    /// A bench with a hook of these shell lines.
    fn bench(lines: &str) -> (Bench, Vec<String>) {
        let bench = Bench::new();
        bench.file("own.sh", lines);
        (bench, ["sh", "own.sh", "first word"].map(str::to_owned).to_vec())
    }

    async fn run_lines(lines: &str) -> Result<Answer, ToolError> {
        let (bench, argv) = bench(lines);
        run(&argv, &input(), &bench.context()).await
    }

    #[test]
    fn answers_are_read_as_documented() {
        let go = |text: &str| Answer::GoOn(Some(text.to_owned()));
        let block = |text: &str| Answer::Block(text.to_owned());
        let specific = r#"{"hookSpecificOutput":{"additionalContext":"more"}}"#;
        for (code, output, errors, expected) in [
            (0, "", "noise", Answer::GoOn(None)),
            (0, " \n", "", Answer::GoOn(None)),
            (0, "Keep the names.\n", "", go("Keep the names.")),
            (0, r#"{"decision":"block","reason":"not now"}"#, "", block("not now")),
            (0, r#"{"decision":"block"}"#, "", block("no reason was given")),
            (0, r#"{"decision":"approve","continue":true}"#, "", Answer::GoOn(None)),
            (0, specific, "", go("more")),
            (0, "{ not json", "", go("{ not json")),
            (0, r#"["block"]"#, "", go(r#"["block"]"#)),
            (2, "ignored", "too early\n", block("too early")),
            (2, "", "", block("no reason was given")),
        ] {
            assert_eq!(answer(code, output, errors).unwrap(), expected, "{code} {output} {errors}");
        }
        let error = answer(1, r#"{"decision":"block"}"#, "broken\nstack").unwrap_err();
        assert_eq!(error.to_string(), "exit code 1: broken");
    }

    #[test]
    fn decisions_on_calls_are_read_as_documented() {
        let block = |text: &str| Answer::Block(text.to_owned());
        let specific = |decision: &str| {
            format!(
                r#"{{"hookSpecificOutput":{{"hookEventName":"PreToolUse","permissionDecision":"{decision}","permissionDecisionReason":"so"}}}}"#
            )
        };
        for (code, output, expected) in [
            (0, String::new(), Answer::GoOn(None)),
            (0, "fine".to_owned(), Answer::GoOn(Some("fine".to_owned()))),
            (2, "ignored".to_owned(), block("stderr")),
            (2, specific("allow"), block("stderr")),
            (0, specific("allow"), Answer::GoOn(None)),
            (0, specific("ask"), Answer::Ask("so".to_owned())),
            (0, specific("deny"), block("so")),
            (0, r#"{"decision":"block","reason":"no"}"#.to_owned(), block("no")),
            (0, r#"{"decision":"approve"}"#.to_owned(), Answer::GoOn(None)),
            (
                0,
                r#"{"decision":"block","reason":"no","hookSpecificOutput":{"permissionDecision":"allow"}}"#
                    .to_owned(),
                block("no"),
            ),
            (
                0,
                r#"{"continue":true,"hookSpecificOutput":{"updatedInput":{"a":1}}}"#.to_owned(),
                Answer::GoOn(None),
            ),
        ] {
            assert_eq!(decision(code, &output, "stderr\n").unwrap(), expected, "{code} {output}");
        }
        for (code, output, told) in [
            (1, "{}", "exit code 1: stderr"),
            (139, "", "exit code 139"),
            (0, "{ garbage", "begins like JSON and is none"),
            (0, r#"{"decision":3}"#, "begins like JSON and is none"),
            (0, r#"{"decision":"denied"}"#, "`denied` is no decision"),
        ] {
            let error = decision(code, output, "stderr\n").unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        let long = format!(r#"{{"decision":"{}"}}"#, "x".repeat(30_000));
        assert!(decision(0, &long, "").unwrap_err().to_string().len() < 200);
    }

    #[tokio::test]
    async fn a_hook_reads_its_input_and_knows_its_place() {
        let answer = run_lines("echo \"$1: $(cat)\"; pwd; echo noise >&2").await.unwrap();
        let Answer::GoOn(Some(text)) = answer else { panic!("{answer:?}") };
        let expected = format!("first word: {}\n/", input().as_str());
        assert!(text.starts_with(&expected) && !text.contains("noise"), "{text}");
    }

    #[tokio::test]
    async fn a_hook_need_not_read_a_long_input() {
        let (bench, argv) = bench("exit 0");
        let input = Json::encode(&"x".repeat(1 << 20));
        assert_eq!(run(&argv, &input, &bench.context()).await.unwrap(), Answer::GoOn(None));
    }

    #[tokio::test]
    async fn a_hook_that_hangs_is_ended() {
        let (bench, argv) = bench("sleep 300");
        let mut context = bench.context();
        (context.timeout, context.grace_period) = (Duration::from_millis(50), Duration::ZERO);
        let error = run(&argv, &input(), &context).await.unwrap_err();
        assert!(matches!(error, ToolError::Timeout(_)), "{error}");
    }

    #[tokio::test]
    async fn what_a_hook_started_ends_with_it() {
        let (bench, argv) = bench("sleep 300 & echo $! > pid.new; mv pid.new pid; wait");
        let context = bench.context();
        let (input, pid) = (input(), bench.path("pid"));
        let cancelled = async {
            while !pid.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            context.cancel.cancel();
        };
        let (ended, ()) = tokio::join!(run(&argv, &input, &context), cancelled);
        assert!(matches!(ended, Err(ToolError::Cancelled)));
        let pid = std::fs::read_to_string(pid).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        assert!(stat.map_or(true, |stat| stat.contains(" Z ")), "it lives");
    }

    #[tokio::test]
    async fn a_path_is_meant_from_the_root() {
        let bench = Bench::new();
        let folder = bench.path("bin");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("/bin/echo", folder.join("say")).unwrap();
        let argv = ["bin/say", "here"].map(str::to_owned);
        let answer = run(&argv, &input(), &bench.context()).await.unwrap();
        assert_eq!(answer, Answer::GoOn(Some("here".to_owned())));
    }

    #[tokio::test]
    async fn variables_are_hidden_and_an_endless_output_is_bounded() {
        let (bench, argv) = bench("echo \"[$CARGO_MANIFEST_DIR]\"; yes | head -c 5000000");
        let mut context = bench.context();
        context.env = Environment::only(environment::passed(&[]));
        let Answer::GoOn(Some(text)) = run(&argv, &input(), &context).await.unwrap() else {
            panic!("a text")
        };
        assert!(text.starts_with("[]\n") && text.len() < 20_000);
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_named() {
        let bench = Bench::new();
        let error = run(&["./no-such".to_owned()], &input(), &bench.context()).await.unwrap_err();
        assert!(error.to_string().contains("./no-such"), "{error}");
    }
}
