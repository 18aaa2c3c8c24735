//! `pending`: lists the questions that wait for a person.

use super::locate::Project;
use super::questions::{self, Pending};
use super::rows::folded;
use super::stream::Stream;
use super::{args, awaited_budgets, pause};
use super::{say, say_json};
use crate::exit::Exit;
use crate::journal::stamp;
use crate::show::question::safe;

pub(super) fn run(project: &Project, verb: &args::Pending) -> Exit {
    let pending = match &verb.run {
        None => match project.listed() {
            Ok(_) => questions::of_all(project),
            Err(exit) => return exit,
        },
        Some(name) => {
            let found = project.run(Some(name)).and_then(|dir| Ok((project.state(&dir)?, dir)));
            match found {
                Ok((state, dir)) => questions::of_run(&dir, &state),
                Err(exit) => return exit,
            }
        }
    };
    let runs = match &verb.run {
        None => project.runs(),
        Some(name) => project.run(Some(name)).into_iter().collect(),
    };
    let (mut budgets, mut pauses) = (Vec::new(), Vec::new());
    for run in runs.iter().rev() {
        let state = run.state(|_| {}).0;
        let waited_for = awaited_budgets::waited_for(run, &state);
        budgets.extend(waited_for.map(|exceeded| (run.clone(), exceeded.clone())));
        let all = pause::all(&state);
        pauses.extend(all.map(|(scope, one)| (run.clone(), scope.clone(), one.clone())));
    }
    if verb.json {
        let lines = pending.iter().map(|pending| format!("{}\n", pending.json()));
        let rows = budgets
            .iter()
            .map(|(run, exceeded)| format!("{}\n", awaited_budgets::row(run, exceeded)));
        let paused = pauses.iter();
        let paused = paused.map(|(run, scope, one)| format!("{}\n", pause::row(run, scope, one)));
        return say_json(&lines.chain(rows).chain(paused).collect::<String>());
    }
    if pending.is_empty() && budgets.is_empty() && pauses.is_empty() {
        return say("nothing waits for a person\n");
    }
    let texts = pending.iter().map(|one| text(project, one, &pending));
    let raised =
        budgets.iter().map(|(run, exceeded)| awaited_budgets::waiting_text(project, run, exceeded));
    let paused = pauses.iter().map(|(run, scope, one)| pause::text(project, run, scope, one));
    let texts: Vec<_> = texts.chain(raised).chain(paused).collect();
    say(&texts.join("\n"))
}

/// Returns a question with who asks, since when and until when, and the commands that answer it.
fn text(project: &Project, pending: &Pending, all: &[Pending]) -> String {
    let id = questions::short_id(pending.id(), all);
    let asked = &pending.question.asked;
    let now = stamp::now_ms();
    let age = long(now - pending.question.since_ms);
    let until = asked.until_ms.map(|until| match until - now {
        left @ 1.. => format!(", answered automatically in {}", long(left)),
        _ => ", its time is over".to_owned(),
    });
    let mut text = format!(
        "{id}  {}  of {} in run {}, for {age} now{}\n",
        asked.kind.as_str(),
        safe(pending.who()),
        project.short(&pending.run),
        until.unwrap_or_default()
    );
    for line in pending.lines() {
        text.push_str(&folded(&line, Stream::Out));
        text.push('\n');
    }
    for command in pending.commands(project, id) {
        text.push_str(&format!("  > {command}\n"));
    }
    text
}

/// Formats a time in one unit.
fn long(ms: i64) -> String {
    match ms.max(0) / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
