//! What became of the calls that had begun when an agent was lost: looked up before it goes on.
//!
//! Owns the order: first nothing of the call may be at work any more, then its kept result is
//! looked for, and only without one the rules of its effect apply. The same steps serve an agent
//! that crashed and a run that is resumed.

use std::time::Duration;

use super::step::{StepContext, StepError, StepResult, finished, without_outcome};
use super::tool_run;
use crate::crash::{self, Point};
use crate::event::{Event, SharedRecord};
use crate::journal::stamp;
use crate::tool::process::{self, Remains};
use crate::tool::{ToolOutput, wrapper};
use crate::turn::{ResultSource, ToolFinished};
use crate::turn_machine::Interrupted;
use crate::turn_machine::PendingCall;
use crate::turn_machine::recovery::{self, Content, Known};

/// A call that had begun, and when, in milliseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) interrupted: Interrupted,
    pub(super) began_ms: Option<i64>,
}

impl Lost {
    /// The call with its beginning among the agent's records.
    pub(super) fn among(records: &[SharedRecord], interrupted: Interrupted) -> Self {
        let began = |record: &&SharedRecord| match &record.event {
            Event::ToolStarted(started) => *started == interrupted.started,
            _ => false,
        };
        let began_ms = records.iter().rev().find(began).map(|record| record.ts_ms);
        Self { interrupted, began_ms }
    }
}

/// Records what became of the calls, as one batch. Those that are left without a result are run
/// again by the agent's next step.
pub(super) async fn recover(context: StepContext, lost: Vec<Lost>) -> StepResult {
    let mut results = Vec::new();
    for call in lost {
        let of_call = context.clone();
        // It waits for processes and reads files.
        let found = tokio::task::spawn_blocking(move || result_of(&of_call, call)).await;
        results.extend(found.map_err(|error| StepError::Crashed(error.to_string()))?);
    }
    crash::pass(Point::BeforeRepair);
    tool_run::settled(&context, results).await
}

fn result_of(context: &StepContext, lost: Lost) -> Option<ToolFinished> {
    let Lost { interrupted, began_ms } = lost;
    let Interrupted { call, started } = &interrupted;
    let remains = started.process().map(|process| process::end_remains(process, &call.key));
    let kept = wrapper::spooled(&context.services.spool, &call.key).unwrap_or_else(|error| {
        tracing::warn!(key = %call.key, %error, "a kept result cannot be read");
        None
    });
    let known = match kept {
        // What of it was done counts for nothing: it is made again as a whole.
        Some((Ok(output), _)) if output.told_to_end && call.effect.is_repeatable() => return None,
        Some((Ok(output), took)) => return Some(adopted(context, call, output, took)),
        Some((Err(error), took)) => match without_outcome(context, error) {
            Ok(known) => known,
            Err(error) => {
                // Worded as if it had been recorded then.
                let output = ToolOutput::error(format!("Error: {error}"));
                return Some(adopted(context, call, output, took));
            }
        },
        None => {
            let processes = remains.map(|remains| processes(remains).to_owned());
            Known { processes, ..Known::default() }
        }
    };
    let began = began_ms.map(stamp::text);
    let known = Known { began, content: content(context, &interrupted), ..known };
    recovery::answer(context.turn, interrupted, &known)
}

/// The record of a call whose result was kept.
fn adopted(
    context: &StepContext,
    call: &PendingCall,
    output: ToolOutput,
    took: Duration,
) -> ToolFinished {
    let live = finished(context.turn, call, output, took);
    ToolFinished { source: ResultSource::Spool, ..live }
}

fn processes(remains: Remains) -> &'static str {
    match remains {
        Remains::None => "Nothing of it is at work any more.",
        Remains::Ended => "Its processes were still at work and have been ended.",
        Remains::AtWork => "Its processes were told to end but are still there.",
    }
}

fn content(context: &StepContext, interrupted: &Interrupted) -> Content {
    let Some(change) = &interrupted.started.change else { return Content::Unknown };
    match context.services.workspace.fingerprint(&change.path) {
        Ok(Some(hash)) => Content::Hash(hash),
        Ok(None) => Content::Absent,
        Err(error) => {
            tracing::warn!(path = change.path, %error, "a file cannot be compared");
            Content::Unknown
        }
    }
}
