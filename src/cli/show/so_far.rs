//! `show --output` and `show --stderr` of a command that has no recorded result: what it has printed so far.

use std::fs::File;
use std::io::{self, Read};

use super::{command, copy_stored};
use crate::cli::locate::Project;
use crate::cli::{complain, stream};
use crate::event::Event;
use crate::exit::Exit;
use crate::id::{AgentId, CallKey};
use crate::journal::JournalError;
use crate::journal::source::RecordedRun;
use crate::output::Output;
use crate::tool::spool::{SoFar, Spool};
use crate::tool::{ToolOutput, wrapper};

/// Prints what the command of an agent has printed so far on one of its streams, and says on stderr what that is.
/// Returns `None` if the agent has no command under way.
pub(super) fn show(
    project: &Project,
    run: &RecordedRun,
    (what, agent): (&str, &AgentId),
    stream: SoFar,
) -> Result<Option<Exit>, JournalError> {
    let Some(key) = under_way(run, agent)? else { return Ok(None) };
    let Some(store) = run.drivable().map(|run| run.store()) else { return Ok(None) };
    let cannot = |error: io::Error| JournalError::cannot("read", store.scratch_dir(), &error);
    let so_far = Spool::of(&store).so_far(&key, stream).map_err(cannot)?;
    if so_far.is_none() {
        // It may have ended just now.
        if let Some((Ok(output), _)) = wrapper::spooled(&store, &key).map_err(cannot)? {
            return Ok(Some(whole(project, run, output, stream)));
        }
        if under_way(run, agent)?.as_ref() != Some(&key) {
            return Ok(None);
        }
    }
    let now = if run.is_live() { "is still running" } else { "was interrupted" };
    let said = match so_far {
        Some(_) => "this is what its command has printed so far",
        None => "its command has printed nothing here so far",
    };
    complain(&format!("note: {what} {now}: {said}"));
    Ok(Some(so_far.map_or(Exit::Done, copied)))
}

/// Copies as much of a file as there is now: a command may print faster than anybody reads.
fn copied(file: File) -> Exit {
    let length = file.metadata().map_or(u64::MAX, |metadata| metadata.len());
    stream::said(stream::copy(&mut file.take(length)))
}

/// Prints what a command had printed by its end.
fn whole(project: &Project, run: &RecordedRun, ended: ToolOutput, of: SoFar) -> Exit {
    let output = match of {
        SoFar::Stdout => ended.into_output(),
        SoFar::Stderr | SoFar::LastLines => {
            Output { text: ended.errors, stored: ended.errors_stored }
        }
    };
    match &output.stored {
        Some(stored) => copy_stored(project, run, &stored.hash),
        None => stream::said(stream::copy(&mut output.text.as_bytes())),
    }
}

/// Returns the key of the newest call of an agent that runs one command, if it has no result.
fn under_way(run: &RecordedRun, agent: &AgentId) -> Result<Option<CallKey>, JournalError> {
    let Some(records) = command::records(run, agent)? else { return Ok(None) };
    let last = records.iter().rev().find_map(|record| match &record.event {
        Event::ToolIntended(intended) => Some(Some(intended.key.clone())),
        Event::ToolFinished(_) => Some(None),
        _ => None,
    });
    Ok(last.flatten())
}
