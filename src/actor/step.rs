//! What the steps of an agent share: what they know of it, how they end, what they record.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::gateway::Permits;
use super::mail::{Caller, StepError};
use super::record_right::RecordRight;
use super::replies::Replies;
use super::services::Services;
use super::summary::SummaryAnswer;
use crate::context::layers::pipeline::AppliedEdit;
use crate::event::{Draft, Event, SharedRecord};
use crate::id::{AgentId, CallKey, Name};
use crate::journal::JournalError;
use crate::journal::disk_space::DiskSpace;
use crate::message::{Block, Json, ResultContent, ToolResult};
use crate::run_machine::{ChildResult, Refused};
use crate::spec::AgentSpec;
use crate::store::Store;
use crate::tool::spool::Spool;
use crate::tool::{Ending, ToolError, ToolOutput, ToolSpec};
use crate::turn::{ResultSource, ToolFinished, ToolStatus};
use crate::turn_machine::interrupted::{self, Known};
use crate::turn_machine::{Machine, PendingCall};

/// The messages of a conversation before the model's latest reply: that one makes the calls, and
/// would only find itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// How many they are.
    pub messages: u64,
    /// The number of the record that the reply came with: theirs are smaller.
    pub before: u64,
}

impl Past {
    /// Takes in a record that the agent is about to fold.
    pub(super) fn note(&mut self, machine: &Machine, record: &SharedRecord) {
        if let Event::ModelResponded(_) = record.event {
            *self = Self { messages: machine.view().next_message(), before: record.seq };
        }
    }
}

/// The answers that the steps of an agent wait for.
#[derive(Debug)]
pub struct Answers {
    /// The ends of children, by the call that asked for the child.
    pub children: Replies<CallKey, Result<ChildResult, Refused>>,
    /// The agent's slot.
    pub slot: Replies<(), ()>,
    /// The agent's calls to providers.
    pub permits: Permits,
    /// Summaries, by the number under which they were asked for.
    pub summaries: Replies<u64, SummaryAnswer>,
}

impl Answers {
    /// No answer is waited for yet.
    #[must_use]
    pub fn new(caller: Caller) -> Self {
        Self {
            children: Replies::default(),
            slot: Replies::default(),
            permits: Permits::new(caller),
            summaries: Replies::default(),
        }
    }
}

/// What a step knows of its agent.
#[derive(Clone, Debug)]
pub struct StepContext {
    /// What the run's actors share.
    pub services: Arc<Services>,
    /// The task.
    pub task: Name,
    /// The agent.
    pub agent: AgentId,
    /// The agent's current turn.
    pub turn: u32,
    /// The agent's delegation depth.
    pub depth: u32,
    /// The part of its conversation that can be recalled.
    pub past: Past,
    /// The agent's definition; absent for a command.
    pub spec: Option<Arc<AgentSpec>>,
    /// The tools that the agent was offered.
    pub tools: Arc<[ToolSpec]>,
    /// The answers that the agent's steps wait for.
    pub answers: Arc<Answers>,
    /// The right to record.
    pub right: RecordRight,
    /// Fires when the agent is to end.
    pub cancel: CancellationToken,
}

impl StepContext {
    /// Waits until new work may begin.
    pub(super) async fn room(&self) -> Result<(), StepError> {
        let mut room = self.services.room.subscribe();
        tokio::select! {
            () = self.cancel.cancelled() => Err(StepError::Cancelled),
            // The other end is among the services themselves.
            _ = room.wait_for(|room| *room == DiskSpace::Enough) => Ok(()),
        }
    }

    /// Records events of this agent as one batch; returns when they are durable.
    ///
    /// # Errors
    /// When the journal failed, or somebody else records the agent's end.
    pub(super) async fn record<E: Into<Event>>(
        &self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<SharedRecord>, JournalError> {
        let Some(_recording) = self.right.begin().await else { return Err(JournalError::Closed) };
        let drafts = events.into_iter().map(|event| Draft::agent(&self.task, &self.agent, event));
        self.services.journal.append(drafts.collect()).await
    }
}

impl StepContext {
    /// Removes the kept results of the calls that these records are of: they are durable now.
    pub(super) fn forget_results(&self, records: &[SharedRecord]) {
        if self.services.wrapper.is_some() {
            forget_results(self.services.store.clone(), records);
        }
    }
}

/// Removes the kept results of the calls that these records are of: they are durable now.
pub(crate) fn forget_results(store: Arc<Store>, records: &[SharedRecord]) {
    let keys = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished(finished) => Some(finished.key.clone()),
        _ => None,
    });
    let keys: Vec<_> = keys.collect();
    if !keys.is_empty() {
        // Nobody waits for it: what stays is removed when the run ends.
        tokio::task::spawn_blocking(move || {
            keys.iter().for_each(|key| Spool::of(&store).forget_result(key));
        });
    }
}

/// The record of a call's end, whatever its tool gave. `took` is the time since it began, `told` the
/// words for an error.
pub(super) fn ended(
    context: &StepContext,
    call: &PendingCall,
    result: Result<ToolOutput, ToolError>,
    took: Duration,
    told: fn(&ToolError) -> String,
) -> ToolFinished {
    let known = match result {
        Ok(output) if output.ending == Ending::Cancelled(None) => killed(output),
        Ok(output) => return finished(context.turn, call, output, took),
        Err(ToolError::Lost) => Known::default(),
        Err(ToolError::Cancelled) if context.cancel.is_cancelled() => {
            Known { processes: Some(format!("{TOLD}.")), ..Known::default() }
        }
        Err(error) => return finished(context.turn, call, ToolOutput::error(told(&error)), took),
    };
    interrupted::unknown(context.turn, call.clone(), &known)
}

/// The record of a call whose outcome is known.
pub(super) fn finished(
    turn: u32,
    call: &PendingCall,
    output: ToolOutput,
    took: Duration,
) -> ToolFinished {
    let (is_error, exit_code) = (output.is_error(), output.exit_code());
    let told_to_end = output.was_cancelled();
    let result = ToolResult {
        tool_use_id: call.call.id.clone(),
        content: ResultContent::Text(output.text),
        is_error,
    };
    ToolFinished {
        key: call.key.clone(),
        turn,
        index: call.index,
        name: call.call.name.clone(),
        status: if is_error { ToolStatus::Error } else { ToolStatus::Ok },
        source: ResultSource::Live,
        block: Json::encode(&Block::ToolResult(result)),
        stored: output.stored,
        exit_code,
        told_to_end,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    }
}

/// How a command came to be told to end.
const TOLD: &str = "It was told to end while it was at work, because its agent was";

/// What is known of a command of which something had to be killed, by what it had printed.
pub(super) fn killed(printed: ToolOutput) -> Known {
    let processes = Some(format!("{TOLD}, and had to be killed."));
    Known { processes, printed: printed.into_output(), ..Known::default() }
}

/// What a step recorded, or why it could not.
pub type StepResult = Result<Vec<SharedRecord>, StepError>;

/// Stores what the changes took out of the view, and gives their records: what a marker names is
/// durable before the marker is.
pub(super) async fn settled(
    context: &StepContext,
    changes: Vec<AppliedEdit>,
) -> Result<Vec<Event>, StepError> {
    let mut events = Vec::with_capacity(changes.len());
    for AppliedEdit { edited, spills } in changes {
        for spill in spills {
            let spool = context.services.store.clone();
            let stored = tokio::task::spawn_blocking(move || spool.store(spill.text)).await;
            let stored = stored.map_err(|error| StepError::Crashed(error.to_string()))?;
            stored.map_err(|error| JournalError::io("results", &error))?;
        }
        events.push(edited.into());
    }
    Ok(events)
}
