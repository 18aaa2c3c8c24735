//! Finds out what became of calls that had begun when their agent's process or actor ended.
//!
//! Owns the order of the steps: first all processes of the call have ended, by themselves within
//! what is left of their grace or by a kill, so that nothing can change any more; then its kept result is looked up in the spool; only if there is none, the
//! rules of its effect apply, and what it had printed by then is told. The same steps serve an agent that crashed, a run that is resumed,
//! and an agent that ends without resuming.

use std::sync::Arc;
use std::time::Duration;

use super::mail::StepError;
use super::services::Services;
use super::step::{StepContext, StepResult, finished, killed, printed_by};
use super::tool_run;
use super::unknown::{self, Resolution};
use super::work::{self, Helper};
use crate::crash::{self, Point};
use crate::event::{Event, SharedRecord};
use crate::id::AgentId;
use crate::journal::stamp;
use crate::message::Block;
use crate::store::Store;
use crate::tool::process::{self, Remains};
use crate::tool::so_far;
use crate::tool::under_way::UnderWay;
use crate::tool::workspace::Workspace;
use crate::tool::{Ending, ToolError, ToolOutput, wrapper};
use crate::turn::{ResultSource, ToolFinished, ToolStarted, ToolStatus};
use crate::turn_machine::interrupted::{self, Content, Known};
use crate::turn_machine::lost::LostCalls;
use crate::turn_machine::{Interrupted, Machine, PendingCall};

/// The places where calls leave traces: the result store with its spool, and the workspace.
#[derive(Clone, Debug)]
pub struct Traces {
    /// The result store, whose spool keeps the results of calls.
    pub store: Arc<Store>,
    /// The files that calls change; `None` if they cannot be looked at.
    pub workspace: Option<Arc<Workspace>>,
    /// The calls of which the journal lost the records.
    pub lost: Arc<LostCalls>,
    /// Time for which commands may still run after the death of their owner.
    pub orphan_grace: Duration,
    /// Told of the calls that are made again; `None` if nobody makes them.
    pub under_way: Option<Arc<UnderWay>>,
}

impl Traces {
    /// Returns the places of a live run.
    pub(super) fn of(services: &Services) -> Self {
        let (store, workspace) =
            (services.store.clone(), Some(services.surroundings.workspace.clone()));
        let orphan_grace = services.limits.orphan_grace;
        let under_way = Some(services.under_way.clone());
        Self { store, workspace, lost: services.lost.clone(), orphan_grace, under_way }
    }
}

/// The `tool.intended` and `tool.started` records of an agent since the latest reply of its model.
#[derive(Clone, Debug, Default)]
pub(super) struct Begun(Vec<SharedRecord>);

impl Begun {
    /// Takes in the agent's next record.
    pub(super) fn note(&mut self, record: &SharedRecord) {
        match &record.event {
            Event::ModelResponded(_) => self.0.clear(),
            Event::ToolIntended(_) | Event::ToolStarted(_) => self.0.push(record.clone()),
            _ => {}
        }
    }

    /// Returns the calls that have no result.
    pub(super) fn lost(&self, machine: &Machine) -> Vec<Lost> {
        let mut interrupted = machine.interrupted();
        let lost = machine.open_calls().into_iter().map(|call| {
            let at = interrupted.iter().position(|begun| begun.call.key == call.key);
            let begun = at.map(|at| self.beginning(interrupted.swap_remove(at).started));
            Lost { announced: self.announced(&call), call, begun }
        });
        lost.collect()
    }

    /// Returns the number of the record that announced a call.
    fn announced(&self, call: &PendingCall) -> u64 {
        let is_it = |record: &&SharedRecord| match &record.event {
            Event::ToolIntended(intended) => intended.key == call.key,
            _ => false,
        };
        self.0.iter().rev().find(is_it).map_or(u64::MAX, |record| record.seq)
    }

    fn beginning(&self, started: ToolStarted) -> Beginning {
        let is_it = |record: &&SharedRecord| match &record.event {
            Event::ToolStarted(known) => *known == started,
            _ => false,
        };
        let record = self.0.iter().rev().find(is_it);
        let (ts_ms, seq) = (record.map(|record| record.ts_ms), record.map_or(0, |r| r.seq));
        Beginning { started, ts_ms, seq }
    }
}

/// A call without a result.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    call: PendingCall,
    /// `None`: according to the records the call had not begun. If the spool holds a result of it
    /// all the same, the end of the journal was lost.
    begun: Option<Beginning>,
    /// Number of the record that announced it.
    announced: u64,
}

/// The beginning of a call, and its time in milliseconds since the Unix epoch.
#[derive(Clone, Debug)]
struct Beginning {
    started: ToolStarted,
    ts_ms: Option<i64>,
    /// Number of the record of the beginning.
    seq: u64,
}

/// Records what became of the calls, as one batch. Calls that stay without a result are run again
/// by the agent's next step.
pub(super) async fn look_up(context: StepContext, lost: Vec<Lost>) -> StepResult {
    let (traces, turn) = (Traces::of(&context.services), context.turn);
    let agent = context.agent.clone();
    let calls = lost.clone();
    let found =
        work::blocking(Helper::LostCalls, move || results(&traces, &agent, turn, lost)).await;
    let mut results = found.map_err(|error| StepError::Crashed(error.to_string()))?;
    note_prints(&context, &calls, &mut results);
    crash::pass(Point::BeforeRepair);
    let is_unknown = |finished: &ToolFinished| finished.status == ToolStatus::Unknown;
    let (unknown, known): (Vec<_>, Vec<_>) = results.into_iter().partition(is_unknown);
    let mut records = tool_run::record_results(&context, known).await?;
    // A person may be asked about these, which takes as long as it takes.
    for finished in unknown {
        let Some(lost) = calls.iter().find(|lost| lost.call.key == finished.key) else { continue };
        let begun = lost.begun.as_ref().map_or(0, |begun| begun.seq);
        match unknown::resolve(&context, &lost.call, finished, begun, 1).await {
            Resolution::Finished(finished) => {
                records.extend(tool_run::record_results(&context, [finished]).await?);
            }
            Resolution::Again => {}
            Resolution::Open => break,
        }
    }
    Ok(records)
}

/// Adds the fingerprints of results that the calls had before the last actor ended.
fn note_prints(context: &StepContext, calls: &[Lost], results: &mut [ToolFinished]) {
    let spooled = results.iter_mut().filter(|result| result.source == ResultSource::Spool);
    for finished in spooled {
        let lost = calls.iter().find(|lost| lost.call.key == finished.key);
        if let (Some(Lost { call, .. }), Block::ToolResult(result)) = (lost, finished.block.block())
        {
            let is_error = finished.status == ToolStatus::Error;
            finished.prints = context.prints_of(call, &result.text(), is_error);
        }
    }
}

/// Returns the results of the lost calls of this turn. Calls that may be run again are left out.
/// Blocks: waits for processes and reads files.
pub(super) fn results(
    traces: &Traces,
    agent: &AgentId,
    turn: u32,
    lost: Vec<Lost>,
) -> Vec<ToolFinished> {
    let result = |lost: Lost| {
        let key = lost.call.key.clone();
        let found = result_of(traces, agent, turn, lost);
        if let (None, Some(calls)) = (&found, &traces.under_way) {
            calls.suspect(&key);
        }
        found
    };
    lost.into_iter().filter_map(result).collect()
}

fn result_of(traces: &Traces, agent: &AgentId, turn: u32, lost: Lost) -> Option<ToolFinished> {
    let Lost { call, begun, announced } = lost;
    let is_theirs = |begun: &Beginning| traces.lost.is_of_another_run(begun.seq);
    if call.effect.is_repeatable() && begun.as_ref().is_some_and(is_theirs) {
        return None;
    }
    let process = begun.as_ref().and_then(|begun| begun.started.process());
    let end = |process| process::end_remains(process, &call.key, traces.orphan_grace);
    let remains = process.map(end);
    // Only after the processes were ended: until then the wrapper might still write its result.
    let kept = wrapper::spooled(&traces.store, &call.key).unwrap_or_else(|error| {
        tracing::warn!(key = %call.key, %error, "a kept result cannot be read");
        None
    });
    if kept.is_none()
        && let Some(known) = traces.lost.answer(agent, turn, &call)
    {
        return Some(known);
    }
    let never_began = || match process {
        Some(process) => wrapper::never_began(&traces.store, &call.key, process),
        None => begun.is_none(),
    };
    let known = match kept {
        // The cancelled part does not count: the call is made again as a whole.
        Some((Ok(output), _)) if output.was_cancelled() && call.effect.is_repeatable() => {
            return None;
        }
        Some((Ok(output), _)) if output.ending == Ending::Cancelled(None) => killed(output),
        Some((Ok(output), took)) => return Some(adopted(turn, &call, output, took)),
        Some((Err(ToolError::Lost(printed)), _)) => {
            printed.map(|printed| printed_by(*printed)).unwrap_or_default()
        }
        Some((Err(error), took)) => {
            // The same words as if the error had been recorded when it happened.
            let output = ToolOutput::error(error.message_for_model());
            return Some(adopted(turn, &call, output, took));
        }
        // "No start on record", and "this start came to nothing", hold only where no record is missing.
        None if never_began() && !traces.lost.may_have_begun(&call.key, announced) => {
            return None;
        }
        // It is made again: what it had printed is told to nobody.
        None if call.effect.is_repeatable() => return None,
        None => {
            let processes = remains.map(|remains| processes(remains).to_owned());
            let printed = so_far::left(&traces.store, &call.key).map(printed_by);
            Known { processes, ..printed.unwrap_or_default() }
        }
    };
    let Some(Beginning { started, ts_ms, .. }) = begun else {
        return (!call.effect.is_repeatable()).then(|| interrupted::unknown(turn, call, &known));
    };
    let (began, content) = (ts_ms.map(stamp::text), content(traces, &started));
    let known = Known { began, content, ..known };
    interrupted::answer(turn, Interrupted { call, started }, &known)
}

/// Makes the record of a call from the result that the spool kept.
fn adopted(turn: u32, call: &PendingCall, output: ToolOutput, took: Duration) -> ToolFinished {
    let live = finished(turn, call, output, took);
    ToolFinished { source: ResultSource::Spool, ..live }
}

fn processes(remains: Remains) -> &'static str {
    match remains {
        Remains::None => "Nothing of it is at work any more.",
        Remains::Ended => "Its processes were still at work and have been ended.",
        Remains::AtWork => "Its processes were told to end but are still there.",
    }
}

fn content(traces: &Traces, started: &ToolStarted) -> Content {
    let (Some(change), Some(workspace)) = (&started.change, &traces.workspace) else {
        return Content::Unknown;
    };
    match workspace.fingerprint(&change.path) {
        Ok(Some(hash)) => Content::Hash(hash),
        Ok(None) => Content::Absent,
        Err(error) => {
            tracing::warn!(path = change.path, %error, "a file cannot be compared");
            Content::Unknown
        }
    }
}
