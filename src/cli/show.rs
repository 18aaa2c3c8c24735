//! `show`: prints one run, task, agent or stored result in full.

mod changes;
mod command;
mod output;
mod rounds;
mod so_far;
mod view;

use std::io::{self, BufRead};

use serde_json::{Value, json};

use self::output::Shown;
use super::args;
use super::locate::{Project, Selector, agents};
use super::rows::{folded, indent, quoted};
use super::stream::Stream;
use super::{complain, evidence, refusal, say, say_json, stream};
use crate::config::suggest;
use crate::disk;
use crate::exit::Exit;
use crate::glob::{self, Wildcards};
use crate::id::{AgentId, Name};
use crate::journal::results;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::message::{Block, Message};
use crate::output::Output;
use crate::plan::TaskState;
use crate::printable;
use crate::report;
use crate::report::evidence::TaskEvidence;
use crate::run_state::{AgentStatus, RunState, TaskStatus};
use crate::show::log_line::marked;
use crate::show::names::Names;
use crate::show::why::column;
use crate::store::{self, Checked, StoreError};
use crate::turn::Outcome;
use crate::why::{Subject, Why};

pub(super) fn run(project: &Project, verb: &args::Show) -> Exit {
    let (run, part) = match project.shown(verb.what.as_deref()) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    if let Some(hash) = &verb.result {
        return show_result(project, &run, hash);
    }
    if verb.changes {
        return changes::show(&run, verb.json);
    }
    if verb.view && !matches!(part, Selector::Agent(_)) {
        complain("error: an agent is needed: RUN/@AGENT");
        return Exit::Usage;
    }
    let state = match project.state(&run) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    if verb.output || verb.stderr {
        let shown = if verb.stderr { Shown::Stderr } else { Shown::Output };
        return output::show(project, &run, &state, &part, shown);
    }
    match part {
        Selector::Run => show_run(project, &run, &state, verb.json),
        Selector::Task(name) => show_task(&run, &state, &name, verb.json),
        Selector::Agent(name) => show_agent(project, &run, &state, &name, verb),
    }
}

/// Prints a stored result, byte for byte.
fn show_result(project: &Project, run: &RecordedRun, hash: &str) -> Exit {
    if hash.is_empty() || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        complain(&format!("error: `{hash}` is not a hash"));
        return Exit::Usage;
    }
    copy_stored(project, run, hash)
}

/// Copies a stored result to stdout, byte for byte.
fn copy_stored(project: &Project, run: &RecordedRun, hash: &str) -> Exit {
    if !store::is_hash(hash) {
        complain(&format!("error: {hash}: the run has no such result"));
        return Exit::Failed;
    }
    // It is read twice, so that nothing of a damaged one is printed.
    let checked = run.open(hash).and_then(Checked::finish);
    let mut result = match checked.and_then(|()| run.open(hash)) {
        Ok(result) => result,
        Err(error) => return no_result(project, (run, hash), error),
    };
    match stream::copy(&mut result) {
        Ok(()) => match result.finish() {
            Ok(()) => Exit::Done,
            Err(error) => no_result(project, (run, hash), error),
        },
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(_) => Exit::Disk,
    }
}

/// Says why a stored result cannot be shown.
fn no_result(project: &Project, (run, hash): (&RecordedRun, &str), error: StoreError) -> Exit {
    let path = &error.path;
    if let (false, Ok(None)) = (path.exists(), results::origin(&**run, hash)) {
        complain(&format!("error: {}: the run has no such result", path.display()));
        return Exit::Failed;
    }
    refusal::refused(&project.flags(), None, &error.into())
}

fn show_run(project: &Project, run: &RecordedRun, state: &RunState, as_json: bool) -> Exit {
    let live = run.is_live();
    let Some(created) = state.created() else {
        complain("error: the run has no records yet");
        return Exit::Failed;
    };
    if as_json {
        let found = evidence::read(run);
        let names = Names::of(state);
        let of_task = |(name, task): (&Name, &TaskStatus)| {
            (name.to_string(), task_json(task, names.key(name.as_str())))
        };
        let tasks = state.tasks().map(of_task);
        let document = json!({
            "run": created.run,
            "workflow": created.workflow,
            "state": report::run_word(state, live),
            "profile": created.profile,
            "inputs": created.inputs,
            "forked": created.forked,
            "set": created.overrides,
            "tasks": tasks.collect::<serde_json::Map<_, _>>(),
            "usage": state.spending().usage,
            "cost_usd": state.spending().cost_usd(),
            "unsettled_usd": state.spending().unsettled.most_usd(),
            "resume": report::is_resumable(state, live)
                .then(|| project.resume_command(&created.run.to_string())),
            "sandbox": state.sandbox(),
            "run_by_others": found.for_others(),
            "run_by_others_incomplete": found.is_for_others_incomplete(),
            "dir": run.place(),
        });
        return say_json(&format!("{document}\n"));
    }
    let found = evidence::for_summary(run).unwrap_or_default();
    let forked =
        created.forked.map(|origin| format!("forked from {}@{}\n", origin.run, origin.seq));
    let set = created.overrides.iter().map(|(key, value)| {
        format!("set for this run: {}\n", printable::line(&format!("{key}={value}")))
    });
    let mut text = format!(
        "run {} of {}: {}\n{}{}{}\n{}\n",
        created.run,
        printable::line(&created.workflow),
        report::run_word(state, live),
        forked.unwrap_or_default(),
        set.collect::<String>(),
        printable::line(&run.place().to_string_lossy()),
        state
            .sandbox()
            .map(|kept| format!("sandbox of commands: {}\n", printable::line(&kept.to_string())))
            .unwrap_or_default(),
    );
    let unsettled = report::unsettled(&state.spending());
    text.extend(unsettled.map(|unsettled| format!("cost: {unsettled}\n")));
    if state.completed().is_some() {
        text.push_str(&folded(&report::summary(state, &found), Stream::Out));
    } else {
        if let Some(reason) = state.paused_reason() {
            let paused = format!("paused: {}\n", printable::line(reason));
            text.push_str(&folded(&paused, Stream::Out));
        }
        if report::is_resumable(state, live) {
            let command = project.resume_command(&project.short(run));
            text.push_str(&format!("resume with:  {command}\n\n"));
        }
        let rows = report::folded_rows(report::rows(state, live, stamp::now_ms()));
        let name =
            |row: &report::Row| format!("{}{}", indent(row.depth.saturating_sub(1)), row.shown);
        let widest = rows.iter().skip(1).map(|row| name(row).chars().count()).max().unwrap_or(0);
        for row in rows.iter().skip(1) {
            let waits = row.waiting_for.as_deref().unwrap_or_default();
            let line =
                format!("{}  {:9}  {waits}", printable::padded(&name(row), widest), row.state);
            text.push_str(&folded(printable::line(line.trim_end()).as_ref(), Stream::Out));
            text.push('\n');
        }
        let is_incomplete = found.is_for_others_incomplete();
        text.push_str(&report::for_others::lines(found.for_others(), is_incomplete));
    }
    say(&text)
}

/// Returns a task as JSON. Only an instance of a fan-out has a `key`.
fn task_json(task: &TaskStatus, key: Option<&str>) -> Value {
    let mut document = json!({
        "state": task.state,
        "attempt": task.attempt,
        "agent": task.agent,
        "output": task.output,
        "error": task.failure,
        "reason": task.reason,
        "because": task.because,
        "rounds": task.rounds,
        "started": task.started_ms.map(stamp::text),
        "ended": task.ended_ms.map(stamp::text),
    });
    if let Some(key) = key {
        document["key"] = json!(key);
    }
    document
}

fn show_task(run: &RecordedRun, state: &RunState, name: &str, as_json: bool) -> Exit {
    let found = match tasks(state, name) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let mut text = String::new();
    let names = Names::of(state);
    let (evidence, is_one) = (evidence::read(run), found.len() == 1);
    for (name, task) in found {
        if as_json {
            let mut document = task_json(task, names.key(name.as_str()));
            document["task"] = json!(name);
            document["waiting_for"] = json!(waits_for(run, state, &Subject::Task(name.clone())));
            document["evidence"] = json!(evidence.of(name));
            document["checks"] = rounds::checks_json(state, name);
            if let Some(command) = command::of(run, state, task) {
                document["command"] = command::json(state, &command);
            }
            text.push_str(&format!("{document}\n"));
            continue;
        }
        text.push_str(&format!(
            "task {}: {}, attempt {}\n",
            names.shown(name.as_str()),
            task.state.as_str(),
            task.attempt
        ));
        for note in task.failure.iter().map(ToString::to_string).chain(task.reason.clone()) {
            text.push_str(&format!("{}\n", quoted(&note)));
        }
        let cut_short = task.state == TaskState::Cancelled;
        let last_lines = evidence.last_lines(name).filter(|_| cut_short);
        text.extend(last_lines.map(|lines| format!("{}\n", marked(lines))));
        if let Some(command) = command::of(run, state, task).filter(|_| is_one) {
            text.push_str(&command::text(state, &command));
        }
        let waits = waits_for(run, state, &Subject::Task(name.clone()));
        text.extend(waits.map(|what| format!("waits for {}\n", printable::line(&what))));
        text.push_str(&rounds::text(state, name, task));
        if let Some(undone) = undone_of(state, name) {
            text.push_str(&format!("left undone: {undone}\n"));
        }
        text.push_str(&evidence.of(name).map(TaskEvidence::lines).unwrap_or_default());
        if let Some(output) =
            task.output.is_none().then(|| output::partial(run, state, task)).flatten()
        {
            text.push_str(&format!("\npartial output:\n{}\n", quoted(&output)));
        }
        if let Some(output) = &task.output {
            text.push_str(&format!("\n{}\n", quoted(&output.text)));
            if let Some(stored) = &output.stored {
                text.push_str(&format!("... the whole output: show --result {}\n", stored.hash));
            }
        }
        if is_one {
            text.push_str(&on_stderr(run, state, task));
        }
    }
    if as_json { say_json(&text) } else { say(&folded(&text, Stream::Out)) }
}

/// Returns what the command of a task printed on stderr, in lines for a person.
fn on_stderr(run: &RecordedRun, state: &RunState, task: &TaskStatus) -> String {
    let runs_command = |agent: &&AgentId| {
        state.agents().get(*agent).is_some_and(|agent| agent.definition.is_none())
    };
    // What cannot be read is told where the outputs are.
    let agent = task.agent.as_ref().filter(runs_command);
    let command = agent.and_then(|agent| output::command_of(run, agent).ok()?);
    let Some(Output { text, stored }) = command.map(|command| command.stderr) else {
        return String::new();
    };
    if text.is_empty() {
        return String::new();
    }
    let rest = stored.map(|stored| format!("... all of it: show --result {}\n", stored.hash));
    format!("\non stderr:\n{}\n{}", quoted(&text), rest.unwrap_or_default())
}

/// Returns the task with this name, or else all tasks that match the name as a glob.
pub(super) fn tasks<'a>(
    state: &'a RunState,
    name: &str,
) -> Result<Vec<(&'a Name, &'a TaskStatus)>, Exit> {
    if let Some(found) = state.tasks().find(|(task, _)| task.as_str() == name) {
        return Ok(vec![found]);
    }
    let glob = glob::compile(name, Wildcards::Any).ok();
    let fits = |task: &Name| glob.as_ref().is_some_and(|glob| glob.is_match(task.as_str()));
    let found: Vec<_> = state.tasks().filter(|(task, _)| fits(task)).collect();
    if found.is_empty() {
        complain(&format!("error: the run has no task `{name}`; an agent is named `@{name}`"));
        let names = Names::of(state);
        let known: Vec<_> = state.tasks().map(|(task, _)| names.shown(task.as_str())).collect();
        let help = suggest(name, known.iter().map(AsRef::as_ref));
        complain(&format!("help: {help}"));
        return Err(Exit::Failed);
    }
    Ok(found)
}

/// Returns what the agents of a task left undone, in words.
fn undone_of(state: &RunState, task: &Name) -> Option<String> {
    report::undone(&state.shortfalls_of_task(task))
}

fn show_agent(
    project: &Project,
    run: &RecordedRun,
    state: &RunState,
    name: &str,
    verb: &args::Show,
) -> Exit {
    let found = match agents(state, name) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let names = Names::of(state);
    for (id, agent) in found {
        let exit = match (verb.transcript, verb.json) {
            _ if verb.view => view::show(project, run, (id, &names.shown(id.as_str())), verb.json),
            (true, true) => raw_transcript(run, id),
            (true, false) => readable_transcript(run, id),
            (false, true) => say_json(&format!("{}\n", agent_json(run, state, id, agent))),
            (false, false) => say(&folded(&agent_text(run, state, id, agent), Stream::Out)),
        };
        if exit != Exit::Done {
            return exit;
        }
    }
    Exit::Done
}

fn agent_json(run: &RecordedRun, state: &RunState, id: &AgentId, agent: &AgentStatus) -> Value {
    let inclusive = state.inclusive(id);
    json!({
        "agent": id,
        "definition": agent.definition,
        "task": agent.task,
        "parent": agent.parent,
        "depth": agent.depth,
        "state": state_word(run, agent),
        "turn": agent.turn,
        "restarts": agent.restarts,
        "usage": agent.own.usage,
        "cost_usd": agent.own.cost_usd(),
        "unsettled_usd": agent.own.unsettled.most_usd(),
        "inclusive": {"usage": inclusive.usage, "cost_usd": inclusive.cost_usd()},
        "waiting_for": waits_for(run, state, &Subject::Agent(id.clone())),
        "outcome": agent.outcome,
        "result": agent.outcome.as_ref().map(Outcome::word),
        "transcript": run.transcript_place(id),
    })
}

/// Returns what a task or an agent waits for, in the words of `ps`.
fn waits_for(run: &RecordedRun, state: &RunState, subject: &Subject) -> Option<String> {
    let now_ms = stamp::now_ms();
    column(&Why::of(state, run.is_live(), now_ms), subject, &Names::of(state), now_ms)
}

/// Returns the state of an agent. One that has not ended is `stopped` if no process drives the run.
fn state_word(run: &RecordedRun, agent: &AgentStatus) -> &'static str {
    if agent.outcome.is_none() && !run.is_live() { "stopped" } else { agent.state() }
}

fn agent_text(run: &RecordedRun, state: &RunState, id: &AgentId, agent: &AgentStatus) -> String {
    let inclusive = state.inclusive(id).usage;
    let definition = agent.definition.as_ref().map_or("command", |name| name.as_str());
    let mut text = format!(
        "agent {} ({definition}): {}, turn {}\n{} tokens in, {} out; with its children {} in, {} out\n{}\n",
        Names::of(state).shown(id.as_str()),
        state_word(run, agent),
        agent.turn,
        report::short(agent.own.usage.context()),
        report::short(agent.own.usage.output),
        report::short(inclusive.context()),
        report::short(inclusive.output),
        printable::line(&run.transcript_place(id).to_string_lossy()),
    );
    let unsettled = report::unsettled(&agent.own);
    text.extend(unsettled.map(|unsettled| format!("{unsettled}\n")));
    let ended = match &agent.outcome {
        None => {
            let waits = waits_for(run, state, &Subject::Agent(id.clone()));
            waits.map(|what| format!("waits for {}", printable::line(&what))).unwrap_or_default()
        }
        Some(Outcome::Completed { output }) => quoted(&output.text),
        Some(Outcome::Failed { failure, partial: None }) => quoted(&failure.to_string()),
        Some(Outcome::Failed { failure, partial: Some(partial) }) => {
            let (failure, text) = (quoted(&failure.to_string()), quoted(&partial.text));
            format!("{failure}\n\npartial output:\n{text}")
        }
        Some(Outcome::Cancelled { reason }) => format!("cancelled: {}", printable::line(reason)),
    };
    if !ended.is_empty() {
        text.push_str(&format!("\n{ended}\n"));
    }
    text
}

fn raw_transcript(run: &RecordedRun, id: &AgentId) -> Exit {
    each_line(run, id, |line| Stream::Out.print_json(&String::from_utf8_lossy(line)))
}

/// Prints the transcript for people: each message with its role, calls and results in full.
fn readable_transcript(run: &RecordedRun, id: &AgentId) -> Exit {
    #[derive(serde::Deserialize)]
    struct TranscriptLine {
        seq: u64,
        message: Message,
    }
    each_line(run, id, |line| {
        let Ok(line) = serde_json::from_slice::<TranscriptLine>(line) else { return Ok(()) };
        let shown = message_text(&line.seq.to_string(), &line.message, |_| String::new());
        Stream::Out.print(&folded(&shown, Stream::Out))
    })
}

/// Gives each line of an agent's transcript to `print` until a line cannot be printed.
fn each_line(
    run: &RecordedRun,
    id: &AgentId,
    mut print: impl FnMut(&[u8]) -> io::Result<()>,
) -> Exit {
    let mut line = Vec::new();
    let mut read = |input: &mut dyn BufRead| -> io::Result<Option<io::Result<()>>> {
        line.clear();
        Ok((disk::read_line(input, &mut line)? > 0).then(|| print(&line)))
    };
    let failed = |error: io::Error| {
        complain(&format!("error: {}: {error}", run.transcript_place(id).display()));
        Exit::Failed
    };
    let mut input = match run.transcript(id) {
        Ok(input) => input,
        Err(error) => return failed(error),
    };
    loop {
        match read(&mut *input) {
            Ok(Some(Ok(()))) => {}
            Ok(None) => return Exit::Done,
            Ok(Some(printed)) => return stream::said(printed),
            Err(error) => return failed(error),
        }
    }
}

/// Formats a message for people. `place` is its position, and `note` returns a remark on a block.
fn message_text(place: &str, message: &Message, note: impl Fn(&Block) -> String) -> String {
    let mut text = String::new();
    for block in &message.content {
        let (label, body) = match block {
            Block::Text(body) => (message.role.as_str().to_owned(), body.clone()),
            Block::ToolUse(call) => (format!("call {}", call.name), call.input.as_str().to_owned()),
            Block::ToolResult(result) if result.is_error => ("error".to_owned(), result.text()),
            Block::ToolResult(result) => ("result".to_owned(), result.text()),
            Block::Other(raw) => ("other".to_owned(), raw.as_str().to_owned()),
        };
        let note = note(block);
        // The name of a tool is the model's: it must not end the line and begin another message.
        let label = printable::line(&label);
        text.push_str(&format!("--- {place} {label}{note}\n{}\n", quoted(&body)));
    }
    text
}
