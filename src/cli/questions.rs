//! The open questions of runs, for the verbs that list and answer them and for everything that says
//! what is waited for.

use serde_json::{Value, json};

use super::awaited_budgets;
use super::locate::Project;
use super::rows::folded;
use super::stream::Stream;
use crate::id::AgentId;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::person::AskedCall;
use crate::report;
use crate::run::answers;
use crate::run_state::RunState;
use crate::run_state::questions::{Answered, Question};
use crate::show::log_line::cut;
use crate::show::question::{lines_of_asked, safe};
use crate::store;
use crate::trust::Store;
use crate::turn::question::ApprovalKind;

/// The least characters of an id that commands show.
const LEAST_ID: usize = 8;

/// The most characters of a question in a summary; `pending` shows all of it.
const MESSAGE: usize = 300;

/// An open question of a run.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) run: RecordedRun,
    pub(super) question: Question,
}

impl Pending {
    pub(super) fn id(&self) -> &str {
        &self.question.asked.id
    }

    pub(super) fn kind(&self) -> ApprovalKind {
        self.question.asked.kind
    }

    /// Returns who asks: the agent, or the task.
    pub(super) fn who(&self) -> &str {
        let Question { task, agent, .. } = &self.question;
        agent.as_ref().map_or(task.as_str(), AgentId::as_str)
    }

    /// Returns all that the call would do, for a question of a permission.
    fn effect(&self) -> Option<AskedCall> {
        let effect = self.question.asked.effect.as_ref()?;
        let text = store::whole_text(&self.run, effect).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Returns true if all that a yes would allow can be shown.
    pub(super) fn can_be_shown(&self) -> bool {
        self.kind() != ApprovalKind::Permission || self.effect().is_some()
    }

    /// Returns the question as `pending --json` prints it.
    pub(super) fn json(&self) -> Value {
        let Question { task, agent, asked, since_ms, .. } = &self.question;
        json!({
            "id": asked.id,
            "run": self.run.name(),
            "task": task,
            "agent": agent,
            "kind": asked.kind,
            "message": asked.message,
            "since": stamp::text(*since_ms),
            "until": asked.until_ms.map(stamp::text),
            "shown": asked.shown,
            "choices": asked.choices,
            "effect": self.effect(),
        })
    }

    /// Returns all of the question in lines that are safe to show.
    pub(super) fn lines(&self) -> Vec<String> {
        lines_of_asked(&self.question.asked, self.who(), self.effect())
    }

    /// Returns the commands that answer the question, named by this id.
    pub(super) fn commands(&self, project: &Project, id: &str) -> Vec<String> {
        let flags = project.flags();
        match self.kind() {
            ApprovalKind::Permission | ApprovalKind::Approval => vec![
                format!("callsheet approve{flags} {id}"),
                format!("callsheet reject{flags} {id} --reason TEXT"),
            ],
            ApprovalKind::Question => vec![format!("callsheet answer{flags} {id} TEXT")],
        }
    }
}

/// Returns the questions of a run that wait for an answer, in the order in which they were asked.
/// One whose answer was left for the next process does not wait.
pub(super) fn of_run(run: &RecordedRun, state: &RunState) -> Vec<Pending> {
    let open = state.questions().open().into_iter();
    let store = Store::of_user();
    let is_left = |id: &str| answers::left_for(&**run, id, &store).is_some();
    let open = open.filter(|question| !is_left(&question.asked.id));
    open.map(|question| Pending { run: run.clone(), question: question.clone() }).collect()
}

/// Returns true if a run needs a person: nobody drives it, or it waits for an answer.
pub(super) fn needs_somebody(run: &RecordedRun, state: &RunState, live: bool) -> bool {
    state.created().is_some()
        && (report::is_resumable(state, live) || !of_run(run, state).is_empty())
}

/// Returns the questions of all runs that have not ended, the oldest run first.
pub(super) fn of_all(project: &Project) -> Vec<Pending> {
    let of_run = |run: RecordedRun| of_run(&run, &run.state(|_| {}).0);
    project.runs().into_iter().rev().flat_map(of_run).collect()
}

/// Returns the shortest beginning of this id that none of the others has, of at least eight
/// characters.
pub(super) fn short_id<'a>(id: &'a str, all: &[Pending]) -> &'a str {
    let others: Vec<_> = all.iter().map(Pending::id).filter(|other| *other != id).collect();
    let is_unique = |length: &usize| {
        let beginning = id.get(..*length);
        beginning.is_some_and(|beginning| !others.iter().any(|id| id.starts_with(beginning)))
    };
    let length = (LEAST_ID..=id.len()).find(is_unique).unwrap_or(id.len());
    &id[..length.min(id.len())]
}

/// A question that the command line names.
#[derive(Clone, Debug)]
pub(super) enum Named {
    Open(Box<Pending>),
    /// It was answered before.
    Answered(Box<Answered>),
}

/// Finds the question whose id begins with `text`, or `RUN/` and such a beginning, over all runs.
///
/// # Errors
/// Returns the reason if there is none, or if there are several.
pub(super) fn find(project: &Project, text: &str) -> Result<Named, String> {
    let (run, beginning) = match text.rsplit_once('/') {
        Some((run, beginning)) => (Some(run), beginning),
        None => (None, text),
    };
    if beginning.is_empty() {
        return Err("the id of the question is empty".to_owned());
    }
    let runs = match run {
        Some(run) => vec![project.find(Some(run)).map_err(|(reason, _)| reason)?],
        None => project.runs(),
    };
    let (mut open, mut answered) = (Vec::new(), Vec::new());
    for run in runs {
        let (state, _) = run.state(|_| {});
        let questions = state.questions();
        for (_, question) in questions.by_id().filter(|(id, _)| id.starts_with(beginning)) {
            open.push(Pending { run: run.clone(), question: question.clone() });
        }
        for id in questions.answered_ids().filter(|id| id.starts_with(beginning)) {
            let known = questions.answer(id).cloned();
            answered.extend(known.map(|known| (run.clone(), known)));
        }
    }
    // A beginning may stand for one open question and for others that are answered.
    match (open.as_slice(), answered.as_slice()) {
        ([one], _) => Ok(Named::Open(Box::new(one.clone()))),
        ([], [(_, one)]) => Ok(Named::Answered(Box::new(one.clone()))),
        ([], []) => Err(format!(
            "there is no question `{text}` in {}; `callsheet pending{}` lists those that are open",
            project.runs_folder().display(),
            project.flags()
        )),
        (several, _) => {
            let open = several.iter().map(|p| format!("{}/{}", p.run.name(), p.id()));
            let done = answered.iter().filter(|_| several.is_empty());
            let done = done.map(|(run, a)| format!("{}/{}", run.name(), a.answer.id));
            let all: Vec<_> = open.chain(done).collect();
            Err(format!("`{text}` matches several questions: {}", all.join(", ")))
        }
    }
}

/// Returns what waits for people in a run that has paused, with the commands that answer it.
pub(super) fn summary(project: &Project, run: &RecordedRun, state: &RunState) -> String {
    let (all, mut text) = (of_run(run, state), String::new());
    for pending in &all {
        let id = short_id(pending.id(), &all);
        let message = pending.question.asked.message.lines().next().unwrap_or_default();
        let message = safe(&cut(message, MESSAGE));
        let (who, kind) = (safe(pending.who()), pending.kind().as_str());
        text.push_str(&folded(&format!("{who} asks ({kind}): {message}\n"), Stream::Err));
        for command in pending.commands(project, id) {
            text.push_str(&format!("    {command}\n"));
        }
    }
    // Without more money a resume would pause again.
    for exceeded in awaited_budgets::waited_for(run, state) {
        text.push_str(&format!("    {}\n", awaited_budgets::command(project, run, exceeded)));
    }
    text
}
