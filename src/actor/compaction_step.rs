//! The steps that make a view smaller by a summary: asked for, written, applied or dropped.
//!
//! Runs in an agent's step, or beside its steps: then the summary is announced with a turn, written
//! while the agent goes on, and held against the view at a later turn boundary.

use tokio::sync::oneshot;

use super::mail::StepError;
use super::step::{StepContext, StepResult, settled};
use super::summarise::{self, Source};
use super::summary::{NoSummary, Summary as Gained, SummaryAnswer, SummaryError, Written};
use super::{carry_over, hooks};
use crate::context::layers::inventory::Inventory;
use crate::context::layers::pipeline::AppliedEdit;
use crate::context::layers::summary::{self, Summary, SummaryRequest};
use crate::context::provider::compaction_block;
use crate::context::view::{Version, View};
use crate::context::{
    CompactionFailed, CompactionFinished, CompactionRequested, CompactionTrigger, Spent,
};
use crate::event::Event;
use crate::tool::hook;
use crate::turn_machine::Machine;

/// A summary that is to be written and applied.
#[derive(Debug)]
pub struct Compaction {
    /// What the cheap layers changed before.
    pub changes: Vec<AppliedEdit>,
    /// The layer that asks for it.
    pub layer: Summary,
    /// What is asked.
    pub due: SummaryRequest,
    /// What it is for.
    pub held: Held,
    /// Who writes it.
    pub source: Source,
}

/// What an agent holds when a summary is put into its view.
#[derive(Debug)]
pub struct Held {
    /// The view.
    pub view: View,
    /// What it has at hand, some of which comes back with the summary.
    pub inventory: Inventory,
}

impl Held {
    /// This view, and what the agent has at hand beside it.
    #[must_use]
    pub fn new(view: View, machine: &Machine) -> Self {
        Self { view, inventory: machine.inventory().clone() }
    }
}

/// A summary that is announced with a turn.
#[derive(Debug)]
pub struct Announcement {
    /// The announcement.
    pub requested: CompactionRequested,
    /// Where the writing waits until the announcement is durable.
    pub durable: oneshot::Sender<()>,
}

/// What a summary covers: what it is held against before it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The first message covered.
    pub from: u64,
    /// The first message not covered.
    pub to: u64,
    /// What stood there when it was asked for.
    pub version: Version,
    /// The characters that must be freed.
    pub least_gain: usize,
    /// Why it was asked for.
    pub trigger: CompactionTrigger,
    /// The tokens that the view may have with what comes back: less than sets off another.
    pub most_tokens: u64,
}

impl Covered {
    /// What this summary is to cover.
    #[must_use]
    pub fn by(due: &SummaryRequest) -> Self {
        let SummaryRequest { from, to, version, least_gain, trigger, limit, .. } = *due;
        Self { from, to, version, least_gain, trigger, most_tokens: limit / 2 }
    }
}

/// The event that announces a summary.
#[must_use]
pub fn announced(due: &SummaryRequest) -> CompactionRequested {
    let (trigger, from, to) = (due.trigger, due.from, due.to);
    CompactionRequested { trigger, from, to, focus: due.focus.clone() }
}

/// Has a summary written and records the edit that it makes, or why there is none.
pub async fn compact(context: StepContext, compaction: Compaction) -> StepResult {
    let Compaction { changes, layer, due, held, source } = compaction;
    context.room().await?;
    let mut before = settled(&context, changes).await?;
    before.push(announced(&due).into());
    let mut records = context.record(before).await?;
    let covered = Covered::by(&due);
    let answer = tokio::select! {
        () = context.cancel.cancelled() => return Err(StepError::Cancelled),
        answer = write(&context, due, source) => answer?,
    };
    records.extend(apply(context, layer, covered, answer, held).await?);
    Ok(records)
}

/// Has a summary written once its announcement is durable. It changes nothing: what comes of it is
/// decided at a turn boundary.
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

/// Asks the hook, and then for the summary.
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
        hook::Answer::Block(reason) => return Ok(Err(SummaryError::Blocked(reason).into())),
    }
    Ok(summarise::summarise(context, due, source).await)
}

/// Records the edit that a summary makes of the view as it is now, or why it makes none.
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
        Err(NoSummary { error, spent }) => {
            return Ok(context.record([failed(&error, spent)]).await?);
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

/// What a summary comes to: nothing, where what it covers has changed or the view would not shrink.
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
        return Ok(failed(&SummaryError::Stale, Some(spent)));
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
        return Ok(failed(&SummaryError::Crashed(error.to_string()), Some(spent)));
    }
    let (before, left) = (view.chars_with_history(), after.chars_with_history());
    if left + least_gain > before {
        return Ok(failed(&SummaryError::FreesTooLittle, Some(spent)));
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

/// The event that says why there is no summary, and what it cost all the same.
pub fn failed(error: &SummaryError, spent: Option<Spent>) -> Event {
    let blocked = matches!(error, SummaryError::Blocked(_));
    CompactionFailed { reason: error.to_string(), blocked, spent }.into()
}
