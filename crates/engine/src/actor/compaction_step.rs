//! The steps that make a view smaller by a summary: they ask for it, and apply or drop it.
//!
//! Runs in an agent's step or beside its steps. Beside its steps, the summary is announced with a
//! turn, written while the agent continues, and compared with the view at a later turn boundary.

use tokio::sync::oneshot;

use super::mail::StepError;
use super::step::{StepContext, StepResult, store_spills};
use super::summarise::{self, Source};
use super::summary::{NoSummary, Summary as Gained, SummaryAnswer, SummaryError, Written};
use super::{carry_over, hooks, reserving};
use crate::context::layers::inventory::Inventory;
use crate::context::layers::pipeline::AppliedEdit;
use crate::context::layers::summary::{self, Summary, SummaryRequest};
use crate::context::provider::compaction_block;
use crate::context::view::{Version, View};
use crate::context::{
    CompactionFailed, CompactionFinished, CompactionRequested, CompactionTrigger, Spent,
};
use crate::event::Event;
use crate::spending::Rest;
use crate::tool::hook;
use crate::turn_machine::Machine;

/// The parts of a summary that a step has written and applies.
#[derive(Debug)]
pub struct Compaction {
    /// The edits that other layers made before.
    pub changes: Vec<AppliedEdit>,
    /// The layer that asks for it.
    pub layer: Summary,
    /// The range to summarise, and how.
    pub due: SummaryRequest,
    /// The view that it is for.
    pub held: Held,
    /// The model that writes it, and its input.
    pub source: Source,
}

/// The view and the inventory of an agent at the time when a summary is put into its view.
#[derive(Debug)]
pub struct Held {
    /// The view.
    pub view: View,
    /// The agent's inventory; some of it is attached again with the summary.
    pub inventory: Inventory,
}

impl Held {
    /// Takes this view, and the inventory of the agent's machine.
    #[must_use]
    pub fn new(view: View, machine: &Machine) -> Self {
        Self { view, inventory: machine.inventory().clone() }
    }
}

/// The announcement of a summary, which is recorded with a turn.
#[derive(Debug)]
pub struct Announcement {
    /// The event that announces it.
    pub requested: CompactionRequested,
    /// Starts the writing, when the announcement is durable.
    pub durable: oneshot::Sender<()>,
}

/// The range that a summary covers, and the conditions that are checked before it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The first message covered.
    pub from: u64,
    /// The first message not covered.
    pub to: u64,
    /// The version of that range when the summary was asked for; a summary for another version is
    /// stale.
    pub version: Version,
    /// Least number of characters that the summary must free.
    pub least_gain: usize,
    /// The reason for the summary.
    pub trigger: CompactionTrigger,
    /// Most tokens that the view may have with the texts that are attached again: fewer than
    /// trigger another summary.
    pub most_tokens: u64,
    /// The most that its calls can cost.
    pub most: Rest,
}

impl Covered {
    /// Takes these values from the request for the summary.
    #[must_use]
    pub fn by(due: &SummaryRequest, most: Rest) -> Self {
        let SummaryRequest { from, to, version, least_gain, trigger, limit, .. } = *due;
        Self { from, to, version, least_gain, trigger, most_tokens: limit / 2, most }
    }
}

/// Makes the event that announces a summary.
#[must_use]
pub fn announced(due: &SummaryRequest, most: Rest) -> CompactionRequested {
    let (trigger, from, to) = (due.trigger, due.from, due.to);
    CompactionRequested { trigger, from, to, focus: due.focus.clone(), most: Some(most) }
}

/// Has a summary written, and records the edit that it makes or why there is none.
pub async fn compact(context: StepContext, compaction: Compaction) -> StepResult {
    let Compaction { changes, layer, due, held, source } = compaction;
    context.wait_for_disk().await?;
    let mut before = store_spills(&context, changes).await?;
    let most = source.most();
    before.push(announced(&due, most).into());
    let mut records = context.record(before).await?;
    let covered = Covered::by(&due, most);
    let paid = source.clone();
    let answer = tokio::select! {
        () = context.cancel.cancelled() => {
            let (error, spent) = (SummaryError::Stopped, paid.cost().map(Box::new));
            let stopped = NoSummary { error, spent, most: Some(most.into()) };
            records.extend(context.record([cut(&stopped)]).await?);
            return Ok(records);
        }
        answer = write(&context, due, source) => answer?,
    };
    records.extend(apply(context, layer, covered, answer, held).await?);
    Ok(records)
}

/// Has a summary written when its announcement is durable. It does not change the view: a later
/// turn boundary decides about the answer.
pub async fn prepare(
    context: StepContext,
    durable: oneshot::Receiver<()>,
    due: SummaryRequest,
    source: Source,
) -> SummaryAnswer {
    if durable.await.is_err() {
        return Err(SummaryError::Gone.into());
    }
    match write(&context, due, source).await {
        Ok(answer) => answer,
        Err(StepError::Journal(error)) => Err(SummaryError::Journal(error).into()),
        Err(StepError::Crashed(text)) => Err(SummaryError::Crashed(text).into()),
        Err(StepError::Cancelled) => Err(SummaryError::TooLate.into()),
    }
}

/// Runs the `pre_compact` hook, and asks for the summary unless the hook blocks it.
async fn write(
    context: &StepContext,
    mut due: SummaryRequest,
    mut source: Source,
) -> Result<SummaryAnswer, StepError> {
    match hooks::pre_compact(context, due.trigger, due.focus.as_deref()).await? {
        hook::Answer::GoOn(instructions) => {
            if let Some(text) = &instructions {
                due.instruct(text);
                source.instruct(text);
            }
        }
        hook::Answer::Block(reason) | hook::Answer::Ask(reason) => {
            return Ok(Err(SummaryError::Blocked(reason).into()));
        }
    }
    match reserving::reserve(context, source.reservation.clone()).await {
        Ok(Some(_)) => Ok(summarise::summarise(context, due, source).await),
        Ok(None) => Ok(Err(SummaryError::TooLate.into())),
        Err(failure) => Ok(Err(SummaryError::OverBudget(failure.message).into())),
    }
}

/// Records the edit that a summary makes to the current view, or why it makes none.
pub async fn apply(
    context: StepContext,
    layer: Summary,
    covered: Covered,
    answer: SummaryAnswer,
    held: Held,
) -> StepResult {
    let summary = match answer {
        Ok(summary) => summary,
        Err(NoSummary { error: SummaryError::Journal(error), .. }) => return Err(error.into()),
        Err(none) => {
            let none = NoSummary { most: none.most.or(Some(covered.most.into())), ..none };
            return Ok(context.record([failed(&none)]).await?);
        }
    };
    let text = summary.written.text().to_owned();
    let event = conclusion(&context, &layer, covered, summary, &held).await?;
    let is_done = matches!(event, Event::CompactionFinished(_));
    let records = context.record([event]).await?;
    if is_done {
        hooks::post_compact(&context, covered.trigger, &text).await;
    }
    Ok(records)
}

/// Makes the event that ends a summary: its edit, or a failure if the covered range has changed or
/// the view would not become small enough.
async fn conclusion(
    context: &StepContext,
    layer: &Summary,
    covered: Covered,
    summary: Gained,
    held: &Held,
) -> Result<Event, StepError> {
    let (view, Covered { from, to, version, least_gain, most_tokens, .. }) = (&held.view, covered);
    let Gained { written, spent } = summary;
    if view.version_of(from, to) != version {
        return Ok(failed(&paid(SummaryError::Stale, spent)));
    }
    let (name, edit) = match written {
        Written::Text(text) => {
            let path = context.services.transcript(&context.agent);
            (summary::NAME, layer.edit(view, from, to, &path.to_string_lossy(), &text))
        }
        Written::Block { summary, .. } => {
            (compaction_block::SERVER_LAYER, compaction_block::in_front(view, from, to, &summary))
        }
    };
    let edit = carry_over::add(context, &held.inventory, view, edit, most_tokens).await?;
    let mut after = view.clone();
    if let Err(error) = after.apply(&edit) {
        return Ok(failed(&paid(SummaryError::Crashed(error.to_string()), spent)));
    }
    let (before, left) = (view.chars_with_history(), after.chars_with_history());
    if left + least_gain > before {
        return Ok(failed(&paid(SummaryError::FreesTooLittle, spent)));
    }
    let finished = CompactionFinished {
        layer: name.to_owned(),
        edit,
        before_tokens: view.tokens_with_history(),
        after_tokens: after.tokens_with_history(),
        model: spent.model,
        usage: spent.usage,
        cost_usd: spent.cost_usd,
    };
    Ok(finished.into())
}

/// Makes the event that says why there is no summary, and what the attempt cost.
pub fn failed(none: &NoSummary) -> Event {
    let blocked = matches!(none.error, SummaryError::Blocked(_));
    CompactionFailed { blocked, ..without(none) }.into()
}

/// Makes the reason why a summary that was paid for is not used.
fn paid(error: SummaryError, spent: Spent) -> NoSummary {
    NoSummary { error, spent: Some(spent.into()), most: None }
}

fn without(none: &NoSummary) -> CompactionFailed {
    let (reason, spent, unsettled) =
        (none.error.to_string(), none.spent.as_deref().cloned(), none.unsettled());
    CompactionFailed { reason, blocked: false, spent, unsettled, cut: false }
}

/// Makes the event that says that a summary was cut, and what it had cost: the agent asks again if it goes on.
pub fn cut(none: &NoSummary) -> Event {
    CompactionFailed { cut: true, ..without(none) }.into()
}
