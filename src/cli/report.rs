//! `report`: prints what a run was asked, what it did, and what stands behind it, as one document.

use super::args::{self, ReportFormat};
use super::locate::Project;
use super::{after_failure, awaited_budgets, complain, refusal, say, say_json};
use crate::event::PauseCause;
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::journal::{JournalError, stamp};
use crate::report::document::{Document, NextStep, Story};
use crate::report::evidence::EvidenceFold;
use crate::report::is_resumable;
use crate::run_state::RunState;

pub(super) fn run(project: &Project, verb: &args::Report) -> Exit {
    let run = match project.run(verb.run.as_deref()) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let live = run.is_live();
    let (mut evidence, mut story) = (EvidenceFold::default(), Story::default());
    let (mut state, read) = run.fold(|record| {
        evidence.apply(record);
        story.apply(record);
    });
    state.lose_requests_unless(live);
    let damage = match read {
        Ok(()) => None,
        Err(JournalError::NeverBegan) if live => {
            complain("error: the run has no records yet");
            return Exit::Failed;
        }
        // Of a journal without a record there is nothing to report.
        Err(error) if state.created().is_none() => {
            return refusal::refused(&project.flags(), Some(&run), &error);
        }
        Err(error) => Some(error),
    };
    let code = exit_code(&state, story.pause(), live);
    let mut document = Document::new(&state, &evidence.finish(), story, live, stamp::now_ms());
    document.exit_code = code.filter(|_| damage.is_none()).map(|code| code as u8);
    document.damage = damage.as_ref().map(ToString::to_string);
    // A page for people has ids that can be typed. It outlives the next runs: should one of them have such an id too,
    // the verb names both, and the whole id stands at the top of the page.
    let id = match verb.format {
        ReportFormat::Md | ReportFormat::Html => project.short(&run),
        ReportFormat::Json => run.name(),
    };
    document.next = next(project, (&run, &id), &state, live, damage.is_some());
    let printed = match verb.format {
        ReportFormat::Md => say(&document.markdown()),
        ReportFormat::Html => say(&document.html()),
        ReportFormat::Json => say_json(&format!("{}\n", document.json())),
    };
    match damage {
        Some(error) if printed == Exit::Done => {
            refusal::refused(&project.flags(), Some(&run), &error)
        }
        _ => printed,
    }
}

/// Returns the exit code with which the process that drove the run ended, as far as the records
/// tell.
fn exit_code(state: &RunState, pause: Option<PauseCause>, live: bool) -> Option<Exit> {
    match (state.completed(), pause) {
        (Some(completed), _) => Some(Exit::of(completed)),
        (None, _) if live => None,
        (None, Some(PauseCause::Failure)) => Some(Exit::Provider),
        (None, Some(PauseCause::Person)) => Some(Exit::Waiting),
        // Which signal it was is not recorded.
        (None, Some(PauseCause::Interrupted | PauseCause::DiskFull | PauseCause::Quota) | None) => {
            None
        }
    }
}

/// Returns the commands that can follow.
fn next(
    project: &Project,
    (run, id): (&RecordedRun, &str),
    state: &RunState,
    live: bool,
    is_damaged: bool,
) -> Vec<NextStep> {
    let flags = project.flags();
    let step = |what: &str, command| NextStep { what: what.to_owned(), command };
    if live {
        vec![step("follow it", format!("callsheet attach{flags} {id}"))]
    } else if is_damaged {
        // The advice that follows on stderr names the place.
        vec![step("what can be done", format!("{} --explain", project.resume_command(id)))]
    } else if is_resumable(state, live) {
        let asks = !state.questions().is_empty()
            || awaited_budgets::waited_for(run, state).next().is_some();
        let answer =
            asks.then(|| step("what waits for you", format!("callsheet pending{flags} {id}")));
        answer.into_iter().chain([step("go on", project.resume_command(id))]).collect()
    } else {
        match after_failure::steps(project, (run, id), state) {
            steps if steps.is_empty() => {
                vec![step("its answers in full", format!("callsheet show{flags} {id}"))]
            }
            steps => steps.into_iter().map(|(what, command)| step(&what, command)).collect(),
        }
    }
}
