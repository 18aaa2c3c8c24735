//! Runs the tool calls of one turn.
//!
//! Calls that only read, and delegations, run at the same time, a bounded number of them; any other call
//! runs alone, after all calls before it. Every call gets exactly one result, also if it is denied, unknown, wrong or
//! crashes. The exception is a repeatable call that is cancelled with its agent: it gets none, so
//! that a resumed run makes it again. Results are recorded as they arrive; the model reads them in
//! the order of the calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use tracing::{Instrument, Span};

use super::asked::Asked;
use super::mail::StepError;
use super::permission::Decision;
use super::step::{SlotReturn, StepContext, ended, take_slot};
use super::ticket::Ticket;
use super::unknown::{self, Resolution};
use super::work::{self, Helper, Work};
use super::{children, hooks, messages, outside, permission, proposing, questions, recall, spans};
use crate::crash::{self, Point};
use crate::event::SharedRecord;
use crate::foreign::Panicked;
use crate::own_tool::{Callee, OwnCall, OwnTool, WaitsFor};
use crate::tool::basis::Basis;
use crate::tool::{ToolError, ToolOutput};
use crate::turn::{ResultSource, ToolFinished, ToolStatus};
use crate::turn_machine::PendingCall;

/// Most calls of one turn that run at once, delegations apart, of which `limits.max_children` decides:
/// enough to keep a disk and all processors of a machine busy.
const CALLS_AT_ONCE: usize = 16;

/// Runs the calls and returns the records of their results.
///
/// # Errors
/// Returns an error if the journal failed.
pub(super) async fn run(
    context: &StepContext,
    calls: Vec<PendingCall>,
) -> Result<Vec<SharedRecord>, StepError> {
    let mut records = Vec::new();
    for group in groups(context, calls) {
        // Also if it is denied by now: its agent has no slot.
        let has_rested = |call: &PendingCall| context.answers.waits.before(&call.key).is_some();
        let waits = group.iter().any(|call| delegates(call) || has_rested(call));
        let has_waited = Arc::new(AtomicBool::new(false));
        let of_group;
        let context = match group.len() {
            1 => context,
            _ => {
                let slot_return = SlotReturn::AfterGroup(has_waited.clone());
                of_group = StepContext { slot_return, ..context.clone() };
                &of_group
            }
        };
        if group.iter().any(|call| may_change_files(context, call)) {
            context.surroundings.may_change_files(Some(&context.agent)).await;
        }
        run_group(context, group, &mut records).await?;
        // The records are returned also when the agent must end: its machine must know which
        // results are recorded, or it would close those calls a second time.
        if context.cancel.is_cancelled() || context.answers.waits.is_granted() {
            return Ok(records);
        }
        if waits || has_waited.load(Ordering::Relaxed) {
            take_slot(context).await;
        }
    }
    Ok(records)
}

/// Returns true if a call waits for child agents.
fn delegates(call: &PendingCall) -> bool {
    call.callee.own().is_some_and(|own| own.waits_for() == WaitsFor::Children)
}

/// Returns the calls in order, in groups: the calls of a group may run at the same time.
fn groups(context: &StepContext, calls: Vec<PendingCall>) -> Vec<Vec<PendingCall>> {
    let mut groups: Vec<(bool, Vec<PendingCall>)> = Vec::new();
    for call in calls {
        let spec = context.tools.iter().find(|spec| spec.name.as_str() == call.call.name);
        let together = spec.is_none_or(|spec| spec.reads_only);
        match groups.last_mut() {
            Some((true, group)) if together => group.push(call),
            _ => groups.push((together, vec![call])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns true if a call works outside the agents and does more than read.
fn may_change_files(context: &StepContext, call: &PendingCall) -> bool {
    let spec = context.tools.iter().find(|spec| spec.name.as_str() == call.call.name);
    let is_tool = context.services.tools.get(&call.call.name).is_some();
    is_tool && spec.is_some_and(|spec| !spec.reads_only)
}

async fn run_group(
    context: &StepContext,
    group: Vec<PendingCall>,
    records: &mut Vec<SharedRecord>,
) -> Result<(), StepError> {
    if let [call] = group.as_slice() {
        let result = tokio::select! {
            biased;
            result = run_one(context, call, Ticket::default()) => result,
            () = context.may_rest(1) => None,
        };
        if let Some(result) = result {
            records.extend(record_results(context, [result]).await?);
        }
        return Ok(());
    }
    // Its permits bound what waits here: at most one result for each call of the group.
    let mut open = group.len();
    let (send_result, mut results) = mpsc::unbounded_channel();
    let mut running = Work::default();
    let mut before = None;
    // It gives its permits in the order of asking, so the calls begin in their order.
    let permits = Arc::new(Semaphore::new(CALLS_AT_ONCE));
    for call in group {
        let (context, permits) = (context.clone(), permits.clone());
        let asks_in_order = delegates(&call) || call.callee.own() == Some(OwnTool::SendMessage);
        let ticket = if asks_in_order { Ticket::after(&mut before) } else { Ticket::default() };
        let (of, made) = (context.clone(), call.clone());
        let run = async move {
            // One that waits for its place in the order would keep those before it from a permit.
            let _permit = if asks_in_order { None } else { permits.acquire().await.ok() };
            run_one(&context, &call, ticket).await
        };
        let send_result = send_result.clone();
        running.start(Helper::Call, run.instrument(Span::current()), move |end| {
            let lost = |panic| {
                let result = Err(crashed(&panic));
                Some(ended(&of, &made, result, Duration::ZERO, ToolError::message_for_model))
            };
            // A step that was given up needs no results.
            let _ = send_result.send(end.unwrap_or_else(lost));
        });
    }
    drop(send_result);
    while open > 0 {
        let first = tokio::select! {
            biased;
            first = results.recv() => first.flatten(),
            () = context.may_rest(open) => return Ok(()),
        };
        open -= 1;
        // Other results that are ready are recorded in the same batch: one sync for all of them.
        let mut ready: Vec<ToolFinished> = first.into_iter().collect();
        while let Ok(next) = results.try_recv() {
            ready.extend(next);
            open -= 1;
        }
        records.extend(record_results(context, ready).await?);
    }
    Ok(())
}

/// Records results and removes their copies in the spool, which are no longer needed.
pub(super) async fn record_results(
    context: &StepContext,
    results: impl IntoIterator<Item = ToolFinished>,
) -> Result<Vec<SharedRecord>, StepError> {
    crash::pass(Point::AfterEffect);
    let records = context.record(results).await?;
    let mut changed = context.services.changed_files.lock();
    records.iter().for_each(|record| changed.note(record));
    drop(changed);
    crash::pass(Point::AfterResult);
    context.forget_results(&records);
    Ok(records)
}

/// Runs one call to its result, whatever happens. Returns `None` if the call was cancelled with its
/// agent and is repeatable, or if a person has not answered yet: it then has no result, so that a
/// resumed run makes it again or asks again.
async fn run_one(
    context: &StepContext,
    call: &PendingCall,
    ticket: Ticket,
) -> Option<ToolFinished> {
    let is_own_step = context.services.tools.get(&call.call.name).is_none();
    let lost = &context.services.lost;
    let mut known = lost.answer(&context.agent, context.turn, call).filter(|_| !is_own_step);
    let (mut ticket, mut tries) = (Some(ticket), 0);
    loop {
        let finished = match known.take() {
            Some(known) => known,
            None => {
                tries += 1;
                make(context, call, ticket.take().unwrap_or_default()).await?
            }
        };
        let begun = context.begun.load(Ordering::Relaxed);
        match unknown::resolve(context, call, finished, begun, tries).await {
            Resolution::Finished(finished) => return Some(finished),
            Resolution::Again => context.answers.waits.make_again(&call.key),
            Resolution::Open => return None,
        }
    }
}

/// Makes a call. Returns `None` if it has no result.
async fn make(context: &StepContext, call: &PendingCall, ticket: Ticket) -> Option<ToolFinished> {
    let began = context.answers.waits.since(&call.key).unwrap_or_else(Instant::now);
    // A tool that panics must not end the agent: its panic becomes an error result.
    let span = spans::tool(&call.call);
    let body = dispatch(context, call, ticket).instrument(span);
    let mut result = match work::caught(body).await {
        // It has not begun: a resumed run asks again.
        Ok(Err(ToolError::Unanswered)) => return None,
        Ok(result) if was_cancelled(context, &result) && call.effect.is_repeatable() => {
            return None;
        }
        Ok(result) => result,
        Err(panic) => Err(crashed(&panic)),
    };
    let mut source = ResultSource::Live;
    if let Ok(output) = &mut result {
        context.services.secrets.redact(&mut output.text);
    }
    // Before anything stands in the place of the text or is added to it.
    let prints = context.prints_of_result(call, &result);
    if let Ok(output) = &mut result {
        let repeats = call.repeats.as_ref().filter(|_| !output.is_error());
        if let Some(stub) = repeats.and_then(|read| read.stub_for(&output.text)) {
            (output.text, source) = (stub, ResultSource::Unchanged);
        }
    }
    if let Ok(output) = &mut result
        && !output.was_cancelled()
    {
        hooks::post_tool_use(context, call, output).await;
        if let Some(file) = &output.file {
            context.files.lock().note(file);
        }
    }
    let ended = ended(context, call, result, began.elapsed(), ToolError::message_for_model);
    // The source differs only if the view already shows the same text.
    let source = if source == ResultSource::Live { ended.source } else { source };
    let prints = prints.filter(|_| ended.status != ToolStatus::Unknown);
    Some(ToolFinished { source, prints, ..ended })
}

fn crashed(panic: &Panicked) -> ToolError {
    ToolError::Failed(format!("the tool crashed ({panic})"))
}

/// Returns true if a call was ended because its agent must end.
pub(super) fn was_cancelled(context: &StepContext, result: &Result<ToolOutput, ToolError>) -> bool {
    match result {
        Ok(output) => output.was_cancelled(),
        Err(ToolError::Cancelled) => context.cancel.is_cancelled(),
        Err(_) => false,
    }
}

async fn dispatch(
    context: &StepContext,
    call: &PendingCall,
    ticket: Ticket,
) -> Result<ToolOutput, ToolError> {
    let (name, input) = (call.call.name.as_str(), &call.call.input);
    if !context.tools.iter().any(|spec| spec.name.as_str() == name) {
        return Ok(ToolOutput::error(format!("Unknown tool: {name}")));
    }
    if !input.as_str().trim_start().starts_with('{') {
        return Err(ToolError::Arguments("a JSON object is needed".to_owned()));
    }
    if let Some(tool) = context.services.tools.get(name) {
        tool.check(input)?;
    }
    let own = call.callee.own();
    let waited = context.answers.waits.before(&call.key);
    let decision = match waited.map(|wait| wait.asked) {
        _ if own.is_some_and(|own| !own.permission().is_judged()) => {
            Decision::Allowed(Basis::default())
        }
        // Its agent rested meanwhile: what was decided is not decided anew.
        Some(None | Some(Asked { plan: Some(_), .. })) => Decision::Allowed(Basis::default()),
        Some(Some(asked)) => permission::asked(context, call, asked).await?,
        None => permission::decide(context, call).await?,
    };
    let basis = match decision {
        Decision::Allowed(basis) => basis,
        Decision::Denied(reason) => return Ok(ToolOutput::denied(reason)),
    };
    match &call.callee {
        Callee::Own(_, own) => {
            let own = own.as_ref().map_err(|why| ToolError::Arguments(why.clone()))?;
            step(context, call, own, ticket).await
        }
        // In a box, as is all that takes much room: the futures of a step stand on one stack.
        Callee::Other => Box::pin(outside::work(context, call, basis)).await,
    }
}

/// Takes a step of the agent itself.
async fn step(
    context: &StepContext,
    call: &PendingCall,
    own: &OwnCall,
    ticket: Ticket,
) -> Result<ToolOutput, ToolError> {
    Ok(match own {
        OwnCall::Delegate(job) => return children::delegate(context, call, job, ticket).await,
        OwnCall::AskPerson(asked) => return questions::ask_person(context, call, asked).await,
        OwnCall::ProposeTasks(tasks) => return proposing::propose(context, call, tasks).await,
        OwnCall::SendMessage(message) => {
            return messages::send(context, call, message, ticket).await;
        }
        OwnCall::ListAgents(_) => return messages::list(context, call).await,
        OwnCall::Wait(wait) => return children::wait(context, call, wait).await,
        OwnCall::CheckChild(asked) => return children::check(context, call, asked).await,
        OwnCall::StopChild(asked) => return children::stop(context, call, asked).await,
        OwnCall::Recall(asked) => return recall::recall(context, asked).await,
        OwnCall::TodoWrite(list) => ToolOutput::ok(list.answer()),
        OwnCall::Compact(_) => {
            let tool = &context.services.compaction.preset.compact_tool;
            ToolOutput::ok(tool.compact_answer.as_str())
        }
        OwnCall::Snip(_) => {
            let answer = call.answer.clone();
            let nothing = || ToolError::Failed("nothing to drop".to_owned());
            ToolOutput::ok(answer.ok_or_else(nothing)?)
        }
        OwnCall::GiveUp(why) => {
            why.reason().map_err(ToolError::Arguments)?;
            ToolOutput::ok("The task ends as failed, with this reason.")
        }
    })
}
