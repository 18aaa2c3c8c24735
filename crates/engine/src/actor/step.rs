//! The code that the steps of an agent share: their context, the answers that they wait for, and
//! the records of calls that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::gateway::Permits;
use super::mail::{Caller, StepError, SupervisorMsg};
use super::record_right::RecordRight;
use super::replies::Replies;
use super::services::Services;
use super::summary::SummaryAnswer;
use super::surroundings::Surroundings;
use super::waits::{Waited, Waits};
use super::work::{self, Helper};
use crate::context::layers::pipeline::AppliedEdit;
use crate::event::{Draft, Event, SharedRecord};
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::disk_space::DiskSpace;
use crate::message::{Block, Json, ResultContent, ToolResult};
use crate::run_machine::{Asks, Kind, Reply, Request, SlotBack};
use crate::spec::loops::LoopSpec;
use crate::spec::sandbox::Confinement;
use crate::spec::{AgentSpec, OnUnknown};
use crate::store::Store;
use crate::tool::so_far;
use crate::tool::spool::Spool;
use crate::tool::{Ending, ToolError, ToolOutput, ToolSpec};
use crate::turn::files::KnownFiles;
use crate::turn::{Prints, ResultSource, ToolFinished, ToolStatus};
use crate::turn_machine::interrupted::{self, Known};
use crate::turn_machine::{Machine, PendingCall, RUN};

/// The messages of a conversation before the model's latest reply, which `recall` may search. The
/// reply itself is left out: it makes the call of `recall`, so a search would find the call itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Number of these messages.
    pub messages: u64,
    /// The `seq` of the reply's record: the records of these messages have smaller numbers.
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

/// The tables of answers that the steps of an agent wait for.
#[derive(Debug)]
pub struct Answers {
    /// The replies of the run, by the kind and the id of the request.
    pub requests: Replies<(Kind, String), Reply>,
    /// The permits of the agent's calls to providers.
    pub permits: Permits,
    /// Summaries, by the number of the request.
    pub summaries: Replies<u64, SummaryAnswer>,
    /// The calls of its step that wait for others.
    pub waits: Waits,
    /// The failure for which the agent must end, if a call of its model was refused for it.
    must_end: Mutex<Option<Failure>>,
}

impl Answers {
    /// Makes the tables of an agent whose calls had waited before, for another actor.
    #[must_use]
    pub(super) fn new(caller: Caller, waited: Waited) -> Self {
        Self {
            requests: Replies::default(),
            permits: Permits::new(caller),
            summaries: Replies::default(),
            waits: Waits::after(waited),
            must_end: Mutex::default(),
        }
    }

    /// Notes that a call of the model was refused, so that the agent must end for this failure.
    pub(super) fn must_end(&self, failure: Failure) {
        *self.must_end.lock() = Some(failure);
    }

    /// Takes out the failure for which the agent must end.
    pub(super) fn take_must_end(&self) -> Option<Failure> {
        self.must_end.lock().take()
    }
}

/// The way to cut one call of a model, while the agent goes on.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Cancelled to begin nothing more of the call.
    pub call: CancellationToken,
    /// Cancelled to wait for no reply that is on its way.
    pub reply: CancellationToken,
}

impl Cut {
    /// Makes the way to cut the next call. The end of the agent cuts it too.
    #[must_use]
    pub fn of(cancel: &CancellationToken, abandon: &CancellationToken) -> Self {
        Self { call: cancel.child_token(), reply: abandon.child_token() }
    }
}

/// Decides when an agent whose call waited for a person asks for its slot again.
#[derive(Clone, Debug, Default)]
pub enum SlotReturn {
    /// Before the call continues.
    #[default]
    AtOnce,
    /// After all calls of its group: they only read. True once a call of the group has waited.
    AfterGroup(Arc<AtomicBool>),
}

/// The data and handles of the agent that a step works for.
#[derive(Clone, Debug)]
pub struct StepContext {
    /// The values and handles that the run's actors share.
    pub services: Arc<Services>,
    /// Where its calls happen.
    pub surroundings: Arc<Surroundings>,
    /// The task.
    pub task: Name,
    /// What the task is kept from.
    pub confinement: Confinement,
    /// The longest time that an attempt of the task may take, if there is one.
    pub time_limit: Option<Duration>,
    /// What the task says of calls whose outcome nobody knows.
    pub on_unknown: OnUnknown,
    /// Number of the record of the last beginning of a call in this step, 0 before there is one.
    pub begun: Arc<AtomicU64>,
    /// The agent.
    pub agent: AgentId,
    /// The agent's current turn.
    pub turn: u32,
    /// The agent's delegation depth.
    pub depth: u32,
    /// The part of its conversation that `recall` may search.
    pub past: Past,
    /// The agent's definition; `None` for a command.
    pub spec: Option<Arc<AgentSpec>>,
    /// The contents of files that the agent knows. Its calls that change files add to them.
    pub files: Arc<Mutex<KnownFiles>>,
    /// The tools that the agent was offered.
    pub tools: Arc<[ToolSpec]>,
    /// The answers that the agent's steps wait for.
    pub answers: Arc<Answers>,
    /// The right to record.
    pub right: RecordRight,
    /// When a call that waited for a person asks for the agent's slot again.
    pub slot_return: SlotReturn,
    /// Cancelled when the agent must end.
    pub cancel: CancellationToken,
    /// Cancelled when not even a reply that is on its way is waited for.
    pub abandon: CancellationToken,
}

impl StepContext {
    /// Waits until the agent may rest, because its `open` calls all wait for others.
    pub(super) fn may_rest(&self, open: usize) -> impl Future<Output = ()> + use<'_> {
        self.answers.waits.may_rest(&self.services, &self.agent, open)
    }

    /// Returns the rules by which loops of the agent are noticed, if they are looked for.
    pub(super) fn loops(&self) -> Option<&LoopSpec> {
        self.spec.as_ref().map(|spec| &*spec.loops).filter(|loops| loops.is_on())
    }

    /// Returns the fingerprints of a call and the text of its result, if the call is looked at.
    pub(super) fn prints_of(
        &self,
        call: &PendingCall,
        text: &str,
        is_error: bool,
    ) -> Option<Prints> {
        let keys = self.loops()?.keys_of(&call.call.name)?;
        Some(Prints::of(&call.call, keys, text, is_error))
    }

    /// Does the same for what a tool returned.
    pub(super) fn prints_of_result(
        &self,
        call: &PendingCall,
        result: &Result<ToolOutput, ToolError>,
    ) -> Option<Prints> {
        self.loops()?;
        match result {
            Ok(output) => self.prints_of(call, &output.text, output.is_error()),
            Err(error) => self.prints_of(call, &error.message_for_model(), true),
        }
    }

    /// Returns true if a reply that repeats one text over and over is cut.
    pub(super) fn watches_text(&self) -> bool {
        self.loops().is_some_and(|loops| loops.text)
    }

    /// Waits until new work may begin, which it may not while the disk is full.
    pub(super) async fn wait_for_disk(&self) -> Result<(), StepError> {
        let mut disk_space = self.services.disk_space.subscribe();
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(StepError::Cancelled),
            // The sender is in the services themselves, so it cannot be dropped here.
            _ = disk_space.wait_for(|space| *space == DiskSpace::Enough) => Ok(()),
        }
    }

    /// Sends a request to the run at once, and waits for the reply. Returns `None` if another task
    /// now waits for the same request.
    pub(super) fn request<A: Asks>(
        &self,
        id: &str,
        asks: A,
    ) -> impl Future<Output = Option<A::Reply>> + use<'_, A> {
        // The wait begins before the mail is sent: what is asked again may have its reply already.
        let reply = self.answers.requests.expect((A::KIND, id.to_owned()));
        self.services.tell_supervisor(SupervisorMsg::Request(Box::new(Request {
            from: self.agent.clone(),
            task: self.task.clone(),
            id: id.to_owned(),
            wish: asks.wish(),
        })));
        async move { reply.wait().await.and_then(A::taken_from) }
    }

    /// Records events of this agent as one batch; returns when they are durable.
    ///
    /// # Errors
    /// Returns an error if the journal failed, or if somebody else records the agent's end.
    pub(super) fn record<E: Into<Event>>(
        &self,
        events: impl IntoIterator<Item = E>,
    ) -> impl Future<Output = Result<Vec<SharedRecord>, JournalError>> {
        let drafts = events.into_iter().map(|event| Draft::agent(&self.task, &self.agent, event));
        // At once, so that the future has no room for events by value.
        let drafts: Vec<_> = drafts.collect();
        async move {
            // Held until the append is acknowledged: whoever withdraws the right waits for that.
            let recording = self.right.begin().await;
            let Some(_recording) = recording else { return Err(JournalError::Closed) };
            self.services.journal.append(drafts).await
        }
    }
}

/// Waits for the slot that the agent gave up while its children worked or a person was asked.
pub(super) async fn take_slot(context: &StepContext) {
    tokio::select! {
        () = context.cancel.cancelled() => {}
        _ = context.request("", SlotBack) => {}
    }
}

impl StepContext {
    /// Removes the spooled results of the calls in these records: the records are durable now. Only commands have
    /// some, and where most calls read files it would cost each of them three looks at the disk, or six.
    pub(super) fn forget_results(&self, records: &[SharedRecord]) {
        let is_command = |record: &SharedRecord| {
            let Event::ToolFinished(finished) = &record.event else { return false };
            let tool = self.services.tools.get(&finished.name);
            finished.name == RUN || tool.is_some_and(|tool| tool.announces_itself())
        };
        if self.surroundings.wrapper.is_some() && records.iter().any(is_command) {
            forget_results(self.services.store.clone(), records);
        }
    }
}

/// Removes the spooled results of the calls in these records: the records are durable now.
pub(crate) fn forget_results(store: Arc<Store>, records: &[SharedRecord]) {
    let keys = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished(finished) => Some((finished.key.clone(), may_have_left(finished))),
        _ => None,
    });
    let keys: Vec<_> = keys.collect();
    if !keys.is_empty() {
        // Nobody waits for this task: files that it leaves are removed when the run ends.
        work::leave_blocking(Helper::Forget, move || {
            for (key, may_have_left) in keys {
                Spool::of(&store).forget_result(&key);
                if may_have_left {
                    Spool::of(&store).forget_printed(&key);
                }
            }
        });
    }
}

/// Returns true if what a command had printed may have outlived it. One that ended sooner has left the disk alone; a
/// result that was lost, or that has no time, tells nothing of that.
fn may_have_left(finished: &ToolFinished) -> bool {
    let took = Duration::from_millis(finished.took_ms);
    finished.source != ResultSource::Live || took.is_zero() || took >= so_far::PAUSE
}

/// Makes the record of a call's end, whatever its tool returned. `took` is the time since the call
/// began; `in_words` puts an error into words.
pub(super) fn ended(
    context: &StepContext,
    call: &PendingCall,
    result: Result<ToolOutput, ToolError>,
    took: Duration,
    in_words: fn(&ToolError) -> String,
) -> ToolFinished {
    let known = match result {
        Ok(output) if output.ending == Ending::Cancelled(None) => killed(output),
        Ok(output) => return finished(context.turn, call, output, took),
        Err(ToolError::Lost(printed)) => {
            printed.map(|printed| printed_by(*printed)).unwrap_or_default()
        }
        Err(ToolError::Cancelled) if context.cancel.is_cancelled() => {
            Known { processes: Some(format!("{ASKED_TO_END}.")), ..Known::default() }
        }
        Err(error) => {
            return finished(context.turn, call, ToolOutput::error(in_words(&error)), took);
        }
    };
    interrupted::unknown(context.turn, call.clone(), &known)
}

/// Makes the record of a call whose outcome is known.
pub(super) fn finished(
    turn: u32,
    call: &PendingCall,
    output: ToolOutput,
    took: Duration,
) -> ToolFinished {
    let (is_error, exit_code) = (output.is_error(), output.exit_code());
    let (told_to_end, ending) = (output.was_cancelled(), output.ending);
    let (printed, file) = (output.beside().map(Box::new), output.file);
    let content = match output.attached {
        None => ResultContent::Text(output.text),
        Some(attached) => {
            let blocks = [Block::Text(output.text), Block::Other(attached)];
            ResultContent::Blocks(Json::encode(&blocks))
        }
    };
    let result = ToolResult { tool_use_id: call.call.id.clone(), content, is_error };
    ToolFinished {
        key: call.key.clone(),
        turn,
        index: call.index,
        name: call.call.name.clone(),
        status: if is_error { ToolStatus::Error } else { ToolStatus::Ok },
        source: ResultSource::Live,
        block: Json::encode(&Block::ToolResult(result)),
        stored: output.stored,
        printed,
        exit_code,
        told_to_end,
        denied: ending == Ending::Denied,
        refused: ending == Ending::Refused,
        fails_agent: false,
        prints: None,
        file,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    }
}

/// The beginning of the sentence about a command that received the signal to end.
const ASKED_TO_END: &str = "It was told to end while it was at work, because its agent was";

/// Returns the facts about a command of which a part had to be killed, with the text that it had
/// printed.
pub(super) fn killed(printed: ToolOutput) -> Known {
    let processes = Some(format!("{ASKED_TO_END}, and had to be killed."));
    Known { processes, ..printed_by(printed) }
}

/// Returns what a command had printed whose outcome nobody knows.
pub(super) fn printed_by(printed: ToolOutput) -> Known {
    let beside = printed.beside();
    Known { beside, printed: printed.into_output(), ..Known::default() }
}

/// The records of a step, or the reason why it did not complete.
pub type StepResult = Result<Vec<SharedRecord>, StepError>;

/// Stores the texts that the edits removed from the view, and returns the events of the edits. The
/// texts are durable before the records of the markers that name them.
pub(super) async fn store_spills(
    context: &StepContext,
    changes: Vec<AppliedEdit>,
) -> Result<Vec<Event>, StepError> {
    let mut events = Vec::with_capacity(changes.len());
    for AppliedEdit { edited, spills } in changes {
        for spill in spills {
            let spool = context.services.store.clone();
            let stored = work::blocking(Helper::Spill, move || spool.store(spill.text)).await;
            let stored = stored.map_err(|error| StepError::Crashed(error.to_string()))?;
            stored.map_err(|error| JournalError::io("cannot store a result", &error))?;
        }
        events.push(edited.into());
    }
    Ok(events)
}
