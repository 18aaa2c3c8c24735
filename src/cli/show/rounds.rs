//! The rounds of a task and the checks of its answers, for `show`.

use serde_json::{Value, json};

use crate::id::Name;
use crate::printable;
use crate::run_state::{RunState, TaskStatus, Verdict};
use crate::show::names::Names;

/// Returns the rounds of a task's latest attempt with their causes, and its checks with their results,
/// one a line. Empty for a task that has neither.
pub(super) fn text(state: &RunState, name: &Name, task: &TaskStatus) -> String {
    let (mut text, names) = (String::new(), Names::of(state));
    for (number, cause) in (2..).zip(&task.rounds) {
        text.push_str(&format!("round {number}: {}\n", cause.words()));
    }
    for (id, check) in state.checks_of_task(name) {
        let Some(place) = check.check else { continue };
        let who = check.definition.as_ref().map_or("command", |definition| definition.as_str());
        let result = match check.verdict() {
            None => "not ended".to_owned(),
            Some(Verdict::Passed) => "passed".to_owned(),
            Some(Verdict::Failed(failure)) => format!("failed: {}", failure.message),
            Some(Verdict::Unclear(failure) | Verdict::Undecided(failure)) => {
                format!("could not judge: {failure}")
            }
            Some(Verdict::Cancelled(reason)) => format!("cancelled: {reason}"),
        };
        let (round, number) = (place.round, place.index + 1);
        let id = names.shown(id.as_str());
        let line = format!("check {number} of round {round}, @{id} ({who}): {result}");
        text.push_str(&format!("{}\n", printable::line(&line)));
    }
    text
}

/// Returns the checks of a task's latest attempt as JSON.
pub(super) fn checks_json(state: &RunState, name: &Name) -> Value {
    let checks = state.checks_of_task(name).map(|(id, check)| {
        let verdict = check.verdict();
        let (word, error) = match &verdict {
            None => ("open", None),
            Some(Verdict::Passed) => ("passed", None),
            Some(Verdict::Failed(failure)) => ("failed", Some(failure)),
            Some(Verdict::Unclear(failure) | Verdict::Undecided(failure)) => {
                ("undecided", Some(failure))
            }
            Some(Verdict::Cancelled(_)) => ("cancelled", None),
        };
        let place = check.check;
        json!({
            "agent": id,
            "round": place.map(|place| place.round),
            "check": place.map(|place| place.index + 1),
            "result": word,
            "error": error,
        })
    });
    checks.collect()
}
