//! `tail`: prints the agents' logs from the journal, while the run works or afterwards.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::args;
use super::deltas::Deltas;
use super::locate::{Project, SUGGESTED};
use super::paint::Paint;
use super::rows::folded;
use super::screen::Screen;
use super::stream::Stream;
use super::times::Times;
use super::{complain, refusal, runtime};
use crate::client::{Client, Parts, Update};
use crate::config::suggest;
use crate::event::{Event, Record, SharedRecord};
use crate::exit::Exit;
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::source::{Cursor, RecordedRun};
use crate::printable;
use crate::report;
use crate::show::log_line::{Reasons, line_of, lines_below};
use crate::show::names::Names;
use crate::show::status::Milestone;

pub(super) fn run(project: &Project, verb: &args::Tail) -> Exit {
    let filter = match Filter::new(verb) {
        Ok(filter) => filter,
        Err(error) => {
            complain(&format!("error: {error}"));
            return Exit::Usage;
        }
    };
    if verb.follow && verb.run.is_none() {
        wait_for_a_run(project);
    }
    let run = match project.run(verb.run.as_deref()) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let mut printer = Printer::for_tail(verb.json, Paint::of(Stream::Out), project.times.clone());
    let after = match replay(&run, &filter, verb.lines, &mut printer) {
        Ok(Some(after)) => after,
        Ok(None) => return printer.end(),
        Err(error) => return refusal::refused(&project.flags(), Some(&run), &error),
    };
    if !verb.follow {
        if !filter.has_fitted.get() {
            nothing_fits(project, &run, verb);
        }
        return Exit::Done;
    }
    let parts = match (verb.deltas, verb.json) {
        (true, _) => Parts::All,
        (false, true) => Parts::None,
        (false, false) => Parts::Commands,
    };
    match runtime() {
        Ok(runtime) => {
            runtime.block_on(follow(project, run, &filter, (after, parts), &mut printer))
        }
        Err(exit) => exit,
    }
}

/// Says that the run has nobody whom the filter wants.
fn nothing_fits(project: &Project, run: &RecordedRun, verb: &args::Tail) {
    let Ok(state) = project.state(run) else { return };
    let names = Names::of(&state);
    let known = |wanted: &[String], what: &str, recorded: Vec<&str>| {
        let Some(first) = wanted.first() else { return };
        complain(&format!("note: the run has no {what} `{}`", wanted.join("`, `")));
        let shown: Vec<_> = recorded.into_iter().map(|name| names.shown(name)).collect();
        match suggest(first, shown.iter().map(AsRef::as_ref)) {
            help if help.is_empty() => {}
            help => complain(&format!("help: {help}")),
        }
    };
    let agents = state.agents().keys().take(SUGGESTED).map(AgentId::as_str).collect();
    known(&verb.agents, "agent", agents);
    let tasks = state.tasks().take(SUGGESTED).map(|(name, _)| name.as_str()).collect();
    known(&verb.tasks, "task", tasks);
}

/// Waits until there is a run. Ctrl-C ends the program as usual.
fn wait_for_a_run(project: &Project) {
    let has_begun = || project.runs().iter().any(|run| run.has_begun());
    if has_begun() {
        return;
    }
    complain(&format!("waiting for a run in {}", project.runs_folder().display()));
    while !has_begun() {
        std::thread::sleep(LOOK);
    }
}

/// The pause between two looks for a run: a person does not notice it.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

fn failed(error: &dyn std::fmt::Display) -> Exit {
    complain(&format!("error: {error}"));
    Exit::Disk
}

/// Prints the records that are in the journal, or the last `lines` of them. Returns the position
/// behind the last record read, or `None` if the reader of the output has gone away.
fn replay(
    run: &RecordedRun,
    filter: &Filter,
    lines: Option<usize>,
    printer: &mut Printer,
) -> Result<Option<Cursor>, JournalError> {
    match run.first() {
        // The run's first records are being written.
        Err(JournalError::NeverBegan) if run.is_live() => return Ok(Some(Cursor::START)),
        first => first?,
    };
    let mut batches = run.batches(Cursor::START)?;
    let mut last = VecDeque::new();
    while let Some(batch) = batches.next_batch()? {
        for record in batch {
            printer.learn(&record);
            if !filter.wants(&record, &printer.names) || !printer.shows(&record) {
                continue;
            }
            match lines {
                None => {
                    if !printer.print(&record) {
                        return Ok(None);
                    }
                }
                Some(most) => {
                    last.push_back(record);
                    if last.len() > most {
                        last.pop_front();
                    }
                }
            }
        }
    }
    let shown = last.iter().all(|record| printer.print(record));
    Ok(shown.then(|| batches.cursor()))
}

async fn follow(
    project: &Project,
    run: RecordedRun,
    filter: &Filter,
    (after, parts): (Cursor, Parts),
    printer: &mut Printer,
) -> Exit {
    let refused = |error: &JournalError| refusal::refused(&project.flags(), Some(&run), error);
    let mut updates = match Client::of(run.clone()).updates(after, parts) {
        Ok(updates) => updates,
        Err(error) => return refused(&error),
    };
    let mut deltas = Deltas::new(None, Paint::of(Stream::Out));
    let fits = |agent: &AgentId, names: &Names| {
        agent.possible_tasks().any(|task| filter.fits(Some(agent.as_str()), Some(task), names))
    };
    loop {
        let next = tokio::select! {
            next = updates.next() => next,
            _ = tokio::signal::ctrl_c() => return Exit::Interrupted,
        };
        match next {
            Ok(Some(Update::Record(record))) => {
                printer.learn(&record);
                if filter.wants(&record, &printer.names) && !printer.print(&record) {
                    return printer.end();
                }
            }
            Ok(Some(Update::Part(part))) => {
                let names = &printer.names;
                deltas.take(&part, names, |agent| fits(agent, names));
            }
            Ok(Some(Update::NoParts(reason))) => Deltas::none_come(&reason),
            Ok(None) => return Exit::Done,
            Err(error) => return refused(&error),
        }
    }
}

/// Selects the records that the user asked for.
#[derive(Debug)]
struct Filter {
    agents: Option<Selection>,
    tasks: Option<Selection>,
    since: u64,
    /// True once an agent and a task fitted, or if all do.
    has_fitted: Cell<bool>,
}

/// Names and globs.
#[derive(Debug)]
struct Selection {
    names: Vec<String>,
    globs: GlobSet,
}

impl Selection {
    /// Reads names and globs. Returns `None` if there is none.
    fn new(patterns: &[String]) -> Result<Option<Self>, globset::Error> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            // An instance such as `review[3]` is a name before it is a pattern, and a pattern that
            // does not parse may still be a name.
            match Glob::new(pattern) {
                Ok(glob) => drop(set.add(glob)),
                Err(_) if pattern.contains('[') => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(Self { names: patterns.to_vec(), globs: set.build()? }))
    }

    /// Returns true if a name is selected, as it is recorded or as people read it. The name of a task that fans out
    /// selects its instances.
    fn has(&self, name: &str, names: &Names) -> bool {
        let fanned_out = name.split_once('[').map(|(task, _)| task);
        let shown = fanned_out.map(|_| names.shown(name));
        let is_named = |known: &String| {
            let known = known.as_str();
            known == name || Some(known) == fanned_out || Some(known) == shown.as_deref()
        };
        self.names.iter().any(is_named) || self.globs.is_match(name)
    }
}

impl Filter {
    fn new(verb: &args::Tail) -> Result<Self, globset::Error> {
        let (agents, tasks) = (Selection::new(&verb.agents)?, Selection::new(&verb.tasks)?);
        let has_fitted = Cell::new(agents.is_none() && tasks.is_none());
        Ok(Self { agents, tasks, since: verb.since.unwrap_or(0), has_fitted })
    }

    fn wants(&self, record: &SharedRecord, names: &Names) -> bool {
        let agent = record.agent.as_ref().map(|agent| agent.as_str());
        let task = record.task.as_ref().map(|task| task.as_str());
        let fits = self.fits(agent, task, names);
        if fits {
            self.has_fitted.set(true);
        }
        record.seq > self.since && fits
    }

    /// Returns true if the agent and the task are selected.
    fn fits(&self, agent: Option<&str>, task: Option<&str>, names: &Names) -> bool {
        let fits = |selection: &Option<Selection>, name: Option<&str>| {
            selection
                .as_ref()
                .is_none_or(|selection| name.is_some_and(|name| selection.has(name, names)))
        };
        fits(&self.agents, agent) && fits(&self.tasks, task)
    }
}

/// Prints records as JSON, or as lines with the name of their agent or task.
#[derive(Debug)]
pub(super) struct Printer {
    json: bool,
    paint: Paint,
    times: Times,
    pub(super) names: Names,
    width: usize,
    detail: Detail,
    reasons: Reasons,
    /// The terminal of the run that the verb drives; lines go there instead of to stdout.
    screen: Option<Arc<Screen>>,
    /// The last lines that were printed under the line of a record.
    below: Option<String>,
    /// The error that ended the printing, unless the reader has only gone away.
    broken: Option<io::Error>,
}

/// Amount of detail that is printed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Events of tasks, child agents and compactions, and what goes wrong.
    Milestones,
    /// All events.
    Full,
}

/// Least and greatest width of the column of names, in bytes. The least fits most names from the
/// first line on; the greatest leaves space for the text. Longer names are not cut.
const NAME_WIDTHS: std::ops::RangeInclusive<usize> = 16..=28;

impl Printer {
    /// Returns the printer of a verb that drives a run: events go to stdout as JSON, or to stderr
    /// as lines for people.
    pub(super) fn for_run(
        json: bool,
        detail: Detail,
        paint: Paint,
        times: Times,
        screen: Arc<Screen>,
    ) -> Self {
        Self {
            json,
            paint,
            times,
            names: Names::default(),
            width: 0,
            detail,
            reasons: reasons_on(Stream::Err),
            screen: (!json).then_some(screen),
            below: None,
            broken: None,
        }
    }

    fn for_tail(json: bool, paint: Paint, times: Times) -> Self {
        Self {
            json,
            paint,
            times,
            names: Names::default(),
            width: 0,
            detail: Detail::Full,
            reasons: reasons_on(Stream::Out),
            screen: None,
            below: None,
            broken: None,
        }
    }

    /// Takes the names of instances from a record, whether it is printed or not.
    pub(super) fn learn(&mut self, record: &Record) {
        self.names.apply(record);
    }

    /// Prints one record. Returns false if nothing more can be printed.
    pub(super) fn print(&mut self, record: &SharedRecord) -> bool {
        if !self.shows(record) {
            return true;
        }
        let line = if self.json { report::event_json(record) } else { self.line(record) };
        self.write(&line)
    }

    /// Writes a line. Returns false if nothing more can be written.
    fn write(&mut self, line: &str) -> bool {
        let written = match &self.screen {
            Some(screen) => screen.line(line),
            None if self.json => Stream::Out.print_json(&format!("{line}\n")),
            None => Stream::Out.print(&format!("{}\n", folded(line, Stream::Out))),
        };
        match written {
            Ok(()) => true,
            Err(error) => {
                self.broken = Some(error).filter(|e| e.kind() != io::ErrorKind::BrokenPipe);
                false
            }
        }
    }

    /// Returns true if a record is one of several that are printed as one line: the spawns of one
    /// turn.
    pub(super) fn groups(&self, record: &Record) -> bool {
        let is_child = match &record.event {
            Event::AgentSpawned(spawned) => spawned.parent.is_some() && spawned.check.is_none(),
            _ => false,
        };
        is_child && !self.json && self.detail == Detail::Milestones
    }

    /// Prints the spawns of one parent, as one line if they are several. Returns false if nothing
    /// more can be printed.
    pub(super) fn print_spawns(&mut self, spawns: &[SharedRecord]) -> bool {
        let (first, last) = match spawns {
            [] => return true,
            [one] => return self.print(one),
            [first, .., last] => (first, last),
        };
        let parent = |record: &Record| match &record.event {
            Event::AgentSpawned(spawned) => spawned.parent.clone(),
            _ => None,
        };
        let name = |record: &Record| {
            let id = record.agent.as_ref().map(|id| id.as_str()).unwrap_or_default();
            id.rsplit('/').next().unwrap_or_default().to_owned()
        };
        let text = format!("spawned {} children: {} to {}", spawns.len(), name(first), name(last));
        let parent = parent(first).map(|parent| parent.to_string()).unwrap_or_default();
        let line = self.prefixed(first.ts_ms, &parent, &text);
        self.write(&line)
    }

    /// Returns the exit code of the printing: a reader that has gone away is a success, a full disk
    /// is not.
    pub(super) fn end(&self) -> Exit {
        match &self.broken {
            Some(error) => failed(error),
            None => Exit::Done,
        }
    }

    /// Returns true if this record is printed at all.
    pub(super) fn shows(&self, record: &Record) -> bool {
        match (self.json, self.detail) {
            (true, _) => true,
            // For a person these two repeat the lines of the model call and of the announced tool
            // call.
            (false, Detail::Full) => {
                !matches!(record.event, Event::TurnStarted(_) | Event::ToolStarted(_))
            }
            (false, Detail::Milestones) => is_milestone(record),
        }
    }

    /// Prints a line of the log that belongs to no record. Returns false if nothing more can be printed.
    pub(super) fn print_milestone(&mut self, ts_ms: i64, milestone: &Milestone) -> bool {
        let name = milestone.name.as_deref().unwrap_or("run");
        let text = printable::line(&milestone.text).into_owned();
        let line = self.prefixed(ts_ms, name, &text);
        self.write(&line)
    }

    /// Returns a line that begins with a time, in milliseconds since the Unix epoch, and a name.
    fn prefixed(&mut self, ts_ms: i64, name: &str, text: &str) -> String {
        let name = &*self.names.shown(name);
        self.width =
            self.width.max(name.chars().count()).clamp(*NAME_WIDTHS.start(), *NAME_WIDTHS.end());
        let padding = " ".repeat(self.width.saturating_sub(name.chars().count()));
        let time = self.times.of_day(ts_ms);
        let (time, name) = (self.paint.faint(&time), self.paint.name(name));
        format!("{time} {name}{padding} | {text}")
    }

    fn line(&mut self, record: &Record) -> String {
        let agent = record.agent.as_ref().map(|agent| agent.as_str());
        let name = agent.or(record.task.as_ref().map(|task| task.as_str())).unwrap_or("run");
        let mut line = self.prefixed(record.ts_ms, name, &line_of(record, self.reasons));
        // A task fails with its agent, whose end has just been printed with the same lines.
        let below = lines_below(record).filter(|below| self.below.as_ref() != Some(below));
        if let Some(below) = below {
            line.push('\n');
            line.push_str(&below);
            self.below = Some(below);
        }
        line
    }
}

/// Returns how much of a reason is printed: all of it, unless somebody looks at a screen.
fn reasons_on(stream: Stream) -> Reasons {
    if stream.is_terminal() { Reasons::Short } else { Reasons::Whole }
}

/// Returns true if a record is printed while a run works without `-v`.
fn is_milestone(record: &Record) -> bool {
    match &record.event {
        // A main agent begins and ends with its task, which has its own line.
        Event::AgentSpawned(spawned) => spawned.parent.is_some(),
        Event::AgentEnded(_) => {
            let of_task = record.agent.as_ref().zip(record.task.as_ref());
            of_task.is_some_and(|(agent, task)| !agent.is_main_of(task))
        }
        // Other pauses and openings are reported at the beginning and the end of the output.
        Event::RunPaused(paused) => paused.cause.ends_by_itself(),
        Event::RunOpened(opened) => opened.reason.is_some(),
        event => event.is_milestone(),
    }
}
