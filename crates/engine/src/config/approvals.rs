//! Builds the approvals of a configuration: tasks that ask a person.

use super::Setting;
use super::compaction::check_program;
use super::diagnostic::NO_HELP;
use super::raw::{Approval, Task};
use super::shape::{Entry, Item};
use super::templates::{Language, Scope};
use crate::spec::{self, Work};

/// Reports the keys of a task that have no meaning beside `approval`, and returns the question.
pub(super) fn work(
    setting: Setting<'_>,
    entry: &Entry<Task>,
    task: &Task,
    approval: &Approval,
) -> Option<Work> {
    let (name, problems) = (&entry.name, setting.problems);
    let others = [
        ("agent", task.agent.at()),
        ("run", task.run.at()),
        ("prompt", task.prompt.at()),
        ("retry", task.retry.at()),
        ("output", task.output.at()),
        ("output_schema", task.output_schema.at()),
        ("output_retries", task.output_retries.at()),
        ("checks", task.checks.at()),
        ("loop", task.r#loop.at()),
        ("env", task.env.at()),
        ("stdin", task.stdin.at()),
        ("cwd", task.cwd.at()),
        ("capture", task.capture.at()),
        ("idempotent", task.idempotent.at()),
        ("idempotency_key", task.idempotency_key.at()),
        ("on_unknown", task.on_unknown.at()),
        ("model", task.model.at()),
        ("max_turns", task.max_turns.at()),
        ("context", task.context.at()),
        ("locks", task.locks.at()),
        ("paths", task.paths.at()),
        ("exclusive", task.exclusive.at()),
        ("always", task.always.at()),
        ("timeout", task.timeout.at()),
    ];
    for (key, at) in others {
        let Some(at) = at else { continue };
        let message = format!("task `{name}` asks a person, so `{key}` has no meaning");
        let help = match key {
            "timeout" => "write it below [tasks.NAME.approval]",
            _ => NO_HELP,
        };
        problems.error("conflict", &at.key, message, help);
    }
    if let Some(at) = approval.on_timeout.at().filter(|_| !approval.timeout.is_set()) {
        let message = "`on_timeout` never answers without a `timeout`";
        problems.error("missing_field", &at.key, message, "add `timeout = \"8h\"`, or remove it");
    }
    if approval.message.as_ref().is_none_or(|message| message.trim().is_empty()) {
        let message = format!("task `{name}` asks nothing");
        let help = "add `message` to its approval";
        let place = task.approval.at().map_or(&entry.at.key, |at| &at.key);
        problems.error("missing_field", place, message, help);
    }
    Some(Work::Approval(spec::Approval {
        message: approval.message.clone()?,
        show: approval.show.iter().map(|item| item.value.clone()).collect(),
        timeout: *approval.timeout,
        on_timeout: *approval.on_timeout,
        notify: notify(setting, approval),
    }))
}

fn notify(setting: Setting<'_>, approval: &Approval) -> Vec<String> {
    let command = &approval.notify.command;
    if let Some(at) = command.at().filter(|_| !command.is_wrong()) {
        check_program("command", command, at, setting);
    }
    command.iter().map(|item| item.value.clone()).collect()
}

/// Returns the templates and expressions of an approval.
pub(super) fn all_texts(approval: &Approval) -> impl Iterator<Item = &str> {
    let shown = approval.show.iter().map(|item| item.value.as_str());
    approval.message.iter().map(String::as_str).chain(shown)
}

/// Checks the templates and expressions of an approval.
pub(super) fn texts(scope: &Scope<'_>, approval: &Approval) {
    if let Some((message, place)) = approval.message.placed() {
        scope.check(message, place, Language::Template);
    }
    for Item { value: expression, at } in approval.show.iter() {
        scope.check(expression, &at.value, Language::Expression("show"));
    }
}
