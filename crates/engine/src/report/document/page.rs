//! The page of a report, in blocks that Markdown and HTML have in common.
//!
//! Pure. Owns the order, the words and the bounds: of many tasks it lists groups, and in detail the
//! first ones, failures first. Texts from outside are always [`Inline::Foreign`] or
//! [`Block::Verbatim`]: the two formats make only these safe.

use super::{AgentReport, Circling, Document, Spender, TaskReport, Wait};
use crate::failure::Failure;
use crate::message::Usage;
use crate::output::Output;
use crate::report::evidence::{FileEvidence, TaskEvidence, TestRun};
use crate::report::fold::{self, Group};
use crate::report::folded_rows::rank;
use crate::report::for_others::INCOMPLETE;
use crate::report::inclusive::Inclusive;
use crate::report::{short, undone};

/// The most tasks that have a section of their own.
const SECTIONS: usize = 40;

/// The most entries of a list in a section.
const LISTED: usize = 30;

/// The most lines and characters of a text that is quoted.
const QUOTED: (usize, usize) = (25, 3_000);

/// A part of a page.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    /// A heading of level 1 to 3.
    Heading(u8, Vec<Inline>),
    Paragraph(Vec<Inline>),
    List(Vec<Vec<Inline>>),
    /// A table: the heads of its columns, and its rows.
    Table(Vec<&'static str>, Vec<Vec<Inline>>),
    /// Text from outside, line by line.
    Verbatim(String),
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Inline {
    /// Words of the program.
    Plain(String),
    /// A state: words of the program that stand out.
    State(String),
    /// Text from outside.
    Foreign(String),
}

use Inline::{Foreign, Plain, State};

fn plain(text: impl Into<String>) -> Inline {
    Plain(text.into())
}

fn foreign(text: impl Into<String>) -> Inline {
    Foreign(text.into())
}

/// Returns the page of a report.
pub(super) fn of(document: &Document) -> Vec<Block> {
    let mut page = vec![Block::Heading(
        1,
        vec![foreign(&document.workflow), plain(": "), State(document.state.clone())],
    )];
    if let Some(damage) = &document.damage {
        page.push(heading("The journal cannot be read to its end"));
        page.push(Block::Paragraph(vec![plain(
            "This report covers the records before the damage.",
        )]));
        page.push(Block::Verbatim(damage.clone()));
    }
    page.push(Block::List(overview(document)));
    if let Some(inputs) = document.asked.inputs.as_ref().filter(|inputs| inputs.as_str() != "{}") {
        page.push(heading("What was asked"));
        let pretty = serde_json::to_string_pretty(&inputs.to_value()).unwrap_or_default();
        page.push(Block::Verbatim(quoted(&pretty)));
    }
    if !document.next.is_empty() {
        page.push(heading("What to do next"));
        let steps = document.next.iter();
        let line = |what: &str, command: &str| vec![plain(format!("{what}: ")), foreign(command)];
        page.push(Block::List(steps.map(|step| line(&step.what, &step.command)).collect()));
    }
    warnings(document, &mut page);
    for_others(document, &mut page);
    page.push(heading("Tasks"));
    page.push(table(document));
    details(document, &mut page);
    spending(document, &mut page);
    circles(document, &mut page);
    waits(document, &mut page);
    page
}

fn circles(document: &Document, page: &mut Vec<Block>) {
    if document.circles.is_empty() {
        return;
    }
    page.push(heading("Went in circles"));
    let costs = document.circles.iter().map(|circling| circling.cost_usd);
    let since = match costs.sum::<Option<f64>>() {
        Some(cost) => format!(", ${cost:.4} spent after the first notice"),
        None => String::new(),
    };
    let count = document.circles.len() as u64 + document.circles_left_out;
    page.push(Block::Paragraph(vec![plain(format!("agents: {count}{since}"))]));
    let row = |circling: &Circling| {
        vec![
            foreign(circling.agent.to_string()),
            State(circling.step.to_owned()),
            foreign(&circling.what),
            plain(circling.calls.to_string()),
        ]
    };
    let rows = document.circles.iter().take(LISTED).map(row).collect();
    page.push(Block::Table(vec!["agent", "step", "loop", "model calls since"], rows));
}

fn heading(text: &str) -> Block {
    Block::Heading(2, vec![plain(text)])
}

fn overview(document: &Document) -> Vec<Vec<Inline>> {
    let mut lines = vec![vec![plain("run: "), foreign(&document.run)]];
    if let Some(code) = document.exit_code {
        lines.push(vec![plain(format!("exit code: {code}"))]);
    }
    if let Some(reason) = &document.paused {
        lines.push(vec![plain("paused: "), foreign(reason)]);
    }
    let mut file = vec![plain("file: "), foreign(&document.asked.file)];
    if let Some(profile) = &document.asked.profile {
        file.extend([plain(", profile "), foreign(profile)]);
    }
    lines.push(file);
    for (key, value) in &document.asked.overrides {
        lines.push(vec![plain("with "), foreign(format!("{key}={value}"))]);
    }
    if let (Some(began), Some(last)) = (&document.began, &document.last) {
        let worked = time(document.worked_s);
        lines.push(vec![plain(format!("from {began} to {last}, {worked} of work"))]);
    }
    let counts: Vec<_> = document
        .counts
        .iter()
        .map(|(state, count)| format!("{} {state}", fold::count(*count)))
        .collect();
    let agents = document.tasks.iter().flat_map(|task| &task.agents);
    let children = agents.filter(|agent| agent.parent.is_some()).count();
    let children = match children {
        0 => String::new(),
        1 => "; 1 child agent".to_owned(),
        many => format!("; {} child agents", fold::count(many)),
    };
    lines.push(vec![plain(format!("tasks: {}{children}", counts.join(", ")))]);
    lines.push(vec![plain(format!("spent: {}", spent(&document.usage, document.cost_usd)))]);
    lines.extend(document.unsettled.iter().map(|unsettled| vec![plain(unsettled.clone())]));
    lines.extend(document.unprotected.iter().map(|none| vec![plain(none.clone())]));
    lines.extend(document.untold.iter().map(|untold| vec![foreign(untold)]));
    lines
}

fn warnings(document: &Document, page: &mut Vec<Block>) {
    let mut lines: Vec<_> = document
        .warnings
        .iter()
        .take(LISTED)
        .map(|warning| {
            let task = document.names.shown(warning.task.as_str());
            vec![foreign(task), plain(format!(": {}", warning.text))]
        })
        .collect();
    more(document.warnings.len(), &mut lines);
    // The names of tools in it may be a model's.
    lines.extend(
        undone(&document.shortfalls).map(|text| vec![plain("left undone: "), foreign(text)]),
    );
    if !lines.is_empty() {
        page.extend([heading("Warnings"), Block::List(lines)]);
    }
}

fn for_others(document: &Document, page: &mut Vec<Block>) {
    let changes = document.run_by_others.iter().take(LISTED);
    let mut lines: Vec<_> = changes.map(|change| vec![foreign(change.line())]).collect();
    more(document.run_by_others.len(), &mut lines);
    if document.run_by_others_incomplete {
        lines.push(vec![plain(INCOMPLETE)]);
    }
    if !lines.is_empty() {
        page.extend([heading("Changed files that other programs run"), Block::List(lines)]);
    }
}

fn more(all: usize, lines: &mut Vec<Vec<Inline>>) {
    if all > LISTED {
        lines.push(vec![plain(format!("and {} more", fold::count(all - LISTED)))]);
    }
}

/// Returns the tasks, failures first where there are many.
fn ranked(document: &Document) -> Vec<&TaskReport> {
    let mut tasks: Vec<_> = document.tasks.iter().collect();
    if tasks.len() > fold::UNFOLDED {
        tasks.sort_by_key(|task| rank(task.state));
    }
    tasks
}

fn table(document: &Document) -> Block {
    let tasks = ranked(document);
    let keys: Vec<_> = tasks
        .iter()
        .map(|task| (task.task.as_str(), (task.state, task.error.as_ref().map(|e| e.kind))))
        .collect();
    let row = |Group { label, members }: Group| {
        let of: Vec<_> = members.iter().map(|at| tasks[*at]).collect();
        // A fan-out is shown with its instances; in a sum with them it would count twice.
        let alone = match of.as_slice() {
            [task] => task.inclusive,
            _ => None,
        };
        let usage = of.iter().fold(Usage::default(), |mut sum, task| {
            sum += task.usage;
            sum
        });
        let cost: Option<f64> = of.iter().map(|task| task.cost_usd).sum();
        let (usage, cost) = alone.map_or((usage, cost), |all| (all.usage, all.cost_usd));
        let state = fold::same(of.iter().map(|task| task.state)).unwrap_or("mixed");
        let longest = of.iter().filter_map(|task| task.took_s).fold(None, |longest, took| {
            Some(longest.map_or(took, |longest: f64| longest.max(took)))
        });
        let attempts = of.iter().map(|task| task.attempts).max().unwrap_or(0);
        let count = match of.len() {
            1 => String::new(),
            many => fold::count(many),
        };
        vec![
            foreign(if of.len() == 1 { document.names.shown(&label) } else { (&label).into() }),
            plain(count),
            State(state.to_owned()),
            plain(longest.map(time).unwrap_or_default()),
            plain(attempts.to_string()),
            plain(short(usage.context())),
            plain(short(usage.output)),
            plain(cost.filter(|cost| *cost > 0.0).map(money).unwrap_or_default()),
        ]
    };
    let rows = fold::fold(&keys).into_iter().map(row).collect();
    Block::Table(vec!["task", "count", "state", "time", "attempts", "in", "out", "cost"], rows)
}

fn details(document: &Document, page: &mut Vec<Block>) {
    let tasks = ranked(document);
    for task in tasks.iter().take(SECTIONS) {
        section(document, task, page);
    }
    if tasks.len() > SECTIONS {
        let left = fold::count(tasks.len() - SECTIONS);
        let text = format!("{left} more tasks are in the table only; the JSON report has all.");
        page.push(Block::Paragraph(vec![plain(text)]));
    }
}

fn section(document: &Document, task: &TaskReport, page: &mut Vec<Block>) {
    page.push(Block::Heading(
        3,
        vec![
            foreign(document.names.shown(task.task.as_str())),
            plain(": "),
            State(task.state.to_owned()),
        ],
    ));
    let mut lines = Vec::new();
    if let Some(failure) = &task.error {
        lines.push(failed("", failure));
    }
    lines.extend(task.reason.iter().map(|reason| vec![plain("reason: "), foreign(reason)]));
    lines.extend(task.waiting_for.iter().map(|what| vec![plain("waits for "), foreign(what)]));
    for retry in task.retries.iter().take(LISTED) {
        lines.push(failed(
            &format!("attempt {} failed at {}: ", retry.attempt, retry.at),
            &retry.error,
        ));
    }
    if let Some(evidence) = &task.evidence {
        proof(evidence, &mut lines);
    }
    let used = task.inclusive.as_ref().and_then(Inclusive::words);
    lines.extend(used.map(|used| vec![plain(format!("its instances used {used}"))]));
    lines.extend(undone(&task.shortfalls).map(|text| vec![plain("left undone: "), foreign(text)]));
    let children: Vec<_> = task.agents.iter().filter(|agent| agent.parent.is_some()).collect();
    lines.extend(children.iter().take(LISTED).map(|agent| child(document, agent)));
    more(children.len(), &mut lines);
    if !lines.is_empty() {
        page.push(Block::List(lines));
    }
    let mut quote = |what: &str, text: &str| {
        if !text.trim().is_empty() {
            page.push(Block::Paragraph(vec![plain(what)]));
            page.push(Block::Verbatim(quoted(text)));
        }
    };
    if let Some(asked) = &task.asked {
        quote("Asked:", asked);
    }
    if let Some(output) = task.error.as_ref().and_then(|error| error.output.as_ref()) {
        quote("The end of its output:", output);
    }
    let text = |output: &Output| output.text.clone();
    if let Some(partial) = &task.partial {
        quote("Partial output:", &text(partial));
    }
    if let Some(output) = &task.output {
        quote("Answer:", &text(output));
    }
}

fn failed(before: &str, failure: &Failure) -> Vec<Inline> {
    vec![plain(format!("{before}{}: ", failure.kind)), foreign(&failure.message)]
}

fn proof(evidence: &TaskEvidence, lines: &mut Vec<Vec<Inline>>) {
    for file in evidence.files.iter().take(LISTED) {
        lines.push(vec![plain("changed "), foreign(&file.path), plain(counted(file))]);
    }
    more(evidence.files.len(), lines);
    if evidence.commands > 0 {
        let noun = if evidence.commands == 1 { "command" } else { "commands" };
        lines.push(vec![plain(format!(
            "ran {} {noun}; files that commands change are not known",
            evidence.commands
        ))]);
    }
    lines.extend(evidence.last_test.as_ref().map(tested));
    for check in evidence.checks.iter().take(LISTED) {
        let word = match check.passed {
            Some(true) => " passed",
            Some(false) => " failed",
            None => " did not end",
        };
        let mut line = vec![plain("check "), foreign(check.shown.as_str()), plain(word)];
        line.extend(check.reason.iter().flat_map(|reason| [plain(": "), foreign(reason)]));
        lines.push(line);
    }
    for artifact in evidence.artifacts.iter().filter(|artifact| artifact.stored) {
        let text = format!("{}: {} bytes, stored as ", artifact.kind, artifact.bytes);
        lines.push(vec![plain(text), foreign(&artifact.hash)]);
    }
    for warning in &evidence.warnings {
        lines.push(vec![plain(format!("warning: {}", warning.text))]);
    }
}

fn counted(file: &FileEvidence) -> String {
    let lines = match (file.added, file.removed) {
        (Some(added), Some(removed)) => format!(": +{added} -{removed} lines"),
        _ => ": lines not known".to_owned(),
    };
    format!("{lines}{}", if file.created { ", new" } else { "" })
}

fn tested(test: &TestRun) -> Vec<Inline> {
    let word = match (test.passed, test.exit_code) {
        (Some(true), _) => "passed".to_owned(),
        (Some(false), Some(code)) => format!("failed (exit code {code})"),
        (_, None) => "did not finish".to_owned(),
        (None, Some(code)) => format!("ended, and its line with exit code {code} hides the result"),
    };
    let order = match test.after_last_edit {
        Some(true) => ", after the last edit",
        Some(false) => ", before the last edit",
        None => "",
    };
    vec![plain(format!("last test {word}{order}: ")), foreign(&test.line)]
}

fn child(document: &Document, agent: &AgentReport) -> Vec<Inline> {
    let noun = if agent.turns == 1 { "turn" } else { "turns" };
    let cost = spent(&agent.usage, agent.cost_usd);
    let mut line = vec![
        plain("child "),
        foreign(document.names.shown(agent.agent.as_str())),
        plain(" "),
        State(agent.state.clone()),
        plain(format!(", {} {noun}, {cost}", agent.turns)),
    ];
    if let Some(failure) = &agent.error {
        line.push(plain("; "));
        line.extend(failed("", failure));
    }
    line
}

fn spending(document: &Document, page: &mut Vec<Block>) {
    let table = |what: &'static str, spenders: &[Spender]| {
        let row = |spender: &Spender| {
            vec![
                foreign(document.names.shown(&spender.name)),
                plain(short(spender.usage.context())),
                plain(short(spender.usage.output)),
                plain(spender.cost_usd.map_or("no price".to_owned(), money)),
            ]
        };
        Block::Table(vec![what, "in", "out", "cost"], spenders.iter().map(row).collect())
    };
    if !document.models.is_empty() {
        page.push(heading("Spending"));
        page.push(table("model", &document.models));
        page.push(table("biggest spenders", &document.spenders));
    }
}

fn waits(document: &Document, page: &mut Vec<Block>) {
    if document.waits.is_empty() {
        return;
    }
    page.push(heading("What waited"));
    // The longest ones, in the order of time.
    let mut places: Vec<_> = (0..document.waits.len()).collect();
    places.sort_by_key(|at| std::cmp::Reverse(document.waits[*at].ms));
    places.truncate(LISTED);
    places.sort_unstable();
    let line = |wait: &Wait| {
        let what = match wait.kind {
            "pause" => "the run was paused",
            "death" => "no process drove the run",
            "provider" => "the provider asked to wait",
            "person" => "a person was asked",
            "retry" => "the next attempt waited",
            _ => "the next call of the model waited",
        };
        let open = if wait.open { ", and still waits" } else { "" };
        let long = time(std::time::Duration::from_millis(wait.ms.unsigned_abs()).as_secs_f64());
        let mut line = vec![plain(format!("{}, {long}{open}: ", wait.from))];
        if !wait.who.is_empty() {
            line.extend([foreign(document.names.shown(&wait.who)), plain(", ")]);
        }
        line.extend([plain(format!("{what}: ")), foreign(&wait.why)]);
        if let Some(by) = &wait.by {
            let done = if wait.kind == "person" { "; answered by " } else { "; resumed by " };
            line.extend([plain(done), foreign(by)]);
        }
        line
    };
    let mut lines: Vec<_> = places.into_iter().map(|at| line(&document.waits[at])).collect();
    let left_out = usize::try_from(document.waits_left_out).unwrap_or(usize::MAX);
    more(document.waits.len().saturating_add(left_out), &mut lines);
    page.push(Block::List(lines));
}

fn spent(usage: &Usage, cost: Option<f64>) -> String {
    let cost = match cost {
        Some(cost) if cost > 0.0 => format!(", {}", money(cost)),
        Some(_) => String::new(),
        None => ", no price".to_owned(),
    };
    format!("{} tokens in, {} out{cost}", short(usage.context()), short(usage.output))
}

fn money(cost: f64) -> String {
    if cost < 10.0 { format!("${cost:.4}") } else { format!("${cost:.2}") }
}

/// Formats seconds in the unit that people read: `1.5 s`, `12 min 5 s`, `3 h 20 min`.
fn time(seconds: f64) -> String {
    let whole = std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e12)).as_secs();
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
    }
}

/// Returns the beginning of a text, with a mark if more follows.
fn quoted(text: &str) -> String {
    let (lines, chars) = QUOTED;
    let mut kept: String = text.trim_end().chars().take(chars).collect();
    if let Some((end, _)) = kept.match_indices('\n').nth(lines - 1) {
        kept.truncate(end);
    }
    if kept.len() < text.trim_end().len() {
        kept.push_str("\n…");
    }
    kept
}
