//! The compactor: writes summaries for all agents of a run.
//!
//! Owns the queue of requests, the workers and the breaker. It never touches a context: it gives
//! back what was written, and the agent applies it or not.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::model_call::{self, CallError};
use super::panic::panic_text;
use super::{ModelService, Services};
use crate::context::layer::summary::SummaryRequest;
use crate::context::measure::estimate;
use crate::context::server::ContextWork;
use crate::context::validity::{self, Rules};
use crate::context::view::View;
use crate::context::{CompactionBreaker, CompactionTrigger, Spent, block, strategy};
use crate::event::Draft;
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::message::{Block, Json, Message, StopReason};
use crate::model::{ErrorClass, Rendering, Reply, Request};
use crate::policy::{Breaker, BreakerState};

/// The name under which the compactor's address is kept.
pub const ADDRESS: &str = "compactor";

/// The least time that a summary may take.
const BASE_DEADLINE: Duration = Duration::from_secs(60);

/// What the deadline grows by for each thousand characters of input: a summariser that reads
/// slowly (500 characters a second) still comes to its end.
const DEADLINE_PER_1000_CHARS: Duration = Duration::from_secs(2);

/// The most characters that a summary may have for each token that it was allowed: twice what
/// tokens of prose have, so that only a provider which ignores the limit is refused.
const MAX_CHARS_PER_TOKEN: u64 = 8;

/// What the compactor is told.
#[derive(Debug)]
pub enum CompactorMsg {
    /// Write a summary.
    Summarise(Box<Job>),
    /// A worker has ended.
    Done {
        /// The model that was used.
        model: Name,
        /// Whether there is a summary; `None` when that says nothing of the summariser.
        success: Option<bool>,
        /// Whether it was the breaker's probe.
        is_probe: bool,
    },
}

/// A summary that somebody waits for.
#[derive(Debug)]
pub struct Job {
    agent: AgentId,
    due: SummaryRequest,
    by_provider: Option<Request>,
    service: Arc<ModelService>,
    reply: oneshot::Sender<Result<Summary, NoSummary>>,
}

/// What an agent asks for.
#[derive(Debug)]
pub struct Asked {
    /// What is to be summarised, and the prompt for it.
    pub due: SummaryRequest,
    /// The same for a provider that writes summaries by itself; it then needs no prompt.
    pub by_provider: Option<Request>,
    /// The model that writes.
    pub model: Name,
}

impl Asked {
    /// Adds instructions of somebody's own.
    pub(super) fn instruct(&mut self, instructions: &str) {
        self.due.instruct(instructions);
        if let Some(request) = &mut self.by_provider {
            strategy::instruct(&mut request.context, instructions);
        }
    }
}

/// A summary as it came.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// A text, by a prompt of ours.
    Text(String),
    /// A block of the provider's own, which stands in the view as it is.
    Block {
        /// The block.
        summary: Block,
        /// What it says.
        text: String,
    },
}

/// A summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What was written.
    pub written: Written,
    /// What it cost.
    pub spent: Spent,
}

/// No summary.
#[derive(Clone, Debug)]
pub struct NoSummary {
    /// Why.
    pub error: SummaryError,
    /// What it cost all the same, if a model replied.
    pub spent: Option<Spent>,
}

impl From<SummaryError> for NoSummary {
    fn from(error: SummaryError) -> Self {
        Self { error, spent: None }
    }
}

/// Why there is no summary. The view stays as it is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SummaryError {
    /// Too many failed in a row; nothing is tried until the pause is over.
    #[error("the breaker is open: too many summaries failed in a row")]
    BreakerOpen,
    /// The model failed.
    #[error("{0}")]
    Model(String),
    /// The reply is no summary.
    #[error("the reply is no summary: {0}")]
    Unusable(&'static str),
    /// It would make the context no smaller.
    #[error("the summary is no shorter than what it replaces")]
    FreesNothing,
    /// It took too long.
    #[error("no summary after {} s", .0.as_secs())]
    Timeout(Duration),
    /// The worker crashed.
    #[error("the summary crashed ({0})")]
    Crashed(String),
    /// The compactor is not there.
    #[error("the compactor is restarting")]
    Gone,
    /// The journal failed.
    #[error(transparent)]
    Journal(JournalError),
}

/// Asks for a summary and waits for it.
///
/// # Errors
/// When there is none; the view then stays as it is.
pub async fn summarise(
    services: &Services,
    agent: AgentId,
    asked: Asked,
) -> Result<Summary, NoSummary> {
    let Asked { due, by_provider, model } = asked;
    let service = services.models.get(&model).cloned();
    let service =
        service.ok_or_else(|| SummaryError::Model(format!("there is no model `{model}`")))?;
    let compactor = services.addresses.compactor.get(ADDRESS).map(|entry| entry.value().clone());
    let compactor = compactor.ok_or(SummaryError::Gone)?;
    let (reply, summary) = oneshot::channel();
    let job = Job { agent, due, by_provider, service, reply };
    let sent = compactor.send_message(CompactorMsg::Summarise(Box::new(job)));
    sent.map_err(|_| SummaryError::Gone)?;
    summary.await.unwrap_or(Err(SummaryError::Gone.into()))
}

/// The compactor's settings.
#[derive(Debug)]
pub struct Compactor {
    /// What it shares with the run's other actors.
    pub services: Arc<Services>,
}

/// What the compactor keeps.
#[derive(Debug)]
pub struct State {
    queue: VecDeque<Job>,
    busy: usize,
    breakers: HashMap<Name, Breaker>,
    born: Instant,
    workers: JoinSet<()>,
    records: JoinSet<()>,
}

impl Actor for Compactor {
    type Msg = CompactorMsg;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<CompactorMsg>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State {
            queue: VecDeque::new(),
            busy: 0,
            breakers: HashMap::new(),
            born: Instant::now(),
            workers: JoinSet::new(),
            records: JoinSet::new(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<CompactorMsg>,
        message: CompactorMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CompactorMsg::Summarise(job) => state.queue.push_back(*job),
            CompactorMsg::Done { model, success, is_probe } => {
                state.busy = state.busy.saturating_sub(1);
                while state.workers.try_join_next().is_some() {}
                self.judge(&model, success, is_probe, state);
            }
        }
        self.start_workers(&myself, state);
        Ok(())
    }
}

impl Compactor {
    fn start_workers(&self, myself: &ActorRef<CompactorMsg>, state: &mut State) {
        while state.busy < self.services.compaction.max_concurrency {
            let Some(job) = state.queue.pop_front() else { return };
            if job.reply.is_closed() {
                continue;
            }
            let now = state.born.elapsed();
            let settings = &self.services.compaction;
            let breaker = state.breakers.entry(job.service.spec.name.clone());
            let breaker = breaker
                .or_insert_with(|| Breaker::new(settings.failure_threshold, settings.cooldown));
            // What a person or the agent asked for, and the last way out of a request that is too
            // long, are tried even so; their success closes the breaker.
            let is_auto = job.due.trigger == CompactionTrigger::Auto;
            if is_auto && !breaker.admit(now) {
                let _ = job.reply.send(Err(SummaryError::BreakerOpen.into()));
                continue;
            }
            let is_probe = is_auto && breaker.state() == BreakerState::HalfOpen;
            if is_probe {
                self.record(BreakerState::HalfOpen, state);
            }
            state.busy += 1;
            let (services, myself) = (self.services.clone(), myself.clone());
            state.workers.spawn(work(services, job, is_probe, myself));
        }
    }

    fn judge(&self, model: &Name, success: Option<bool>, is_probe: bool, state: &mut State) {
        let now = state.born.elapsed();
        let Some(breaker) = state.breakers.get_mut(model) else { return };
        let changed = match success {
            Some(true) => breaker.succeed(),
            Some(false) => breaker.fail(now),
            None if is_probe => {
                breaker.abandon();
                true
            }
            None => false,
        };
        if changed {
            let breaker = breaker.state();
            self.record(breaker, state);
        }
    }

    /// Records the breaker's state off the mailbox.
    fn record(&self, breaker: BreakerState, state: &mut State) {
        while state.records.try_join_next().is_some() {}
        let services = self.services.clone();
        state.records.spawn(async move {
            // A journal that fails stops the run by itself.
            let event = CompactionBreaker { state: breaker };
            let _ = services.journal.append(vec![Draft::run(event)]).await;
        });
    }
}

/// One worker: writes one summary and reports, whatever happens.
async fn work(
    services: Arc<Services>,
    job: Job,
    is_probe: bool,
    compactor: ActorRef<CompactorMsg>,
) {
    let Job { agent, due, by_provider, service, mut reply } = job;
    let trigger = due.trigger;
    let read = due.prompt.len().max(due.covers_chars);
    let deadline =
        BASE_DEADLINE + DEADLINE_PER_1000_CHARS * u32::try_from(read / 1000).unwrap_or(u32::MAX);
    let writing = write(&services, &service, agent, due, by_provider);
    let writing = std::panic::AssertUnwindSafe(writing).catch_unwind();
    let result = tokio::select! {
        () = reply.closed() => None,
        result = tokio::time::timeout(deadline, writing) => Some(match result {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(SummaryError::Crashed(panic_text(panic.as_ref())).into()),
            Err(_) => Err(SummaryError::Timeout(deadline).into()),
        }),
    };
    let success = match &result {
        // A context that was compacted early on request may leave nothing to free.
        Some(Err(NoSummary { error: SummaryError::FreesNothing, .. }))
            if trigger != CompactionTrigger::Auto =>
        {
            None
        }
        result => result.as_ref().map(Result::is_ok),
    };
    if let Some(result) = result {
        let _ = reply.send(result);
    }
    let model = service.spec.name.clone();
    let _ = compactor.send_message(CompactorMsg::Done { model, success, is_probe });
}

async fn write(
    services: &Services,
    service: &ModelService,
    agent: AgentId,
    due: SummaryRequest,
    by_provider: Option<Request>,
) -> Result<Summary, NoSummary> {
    let (covers_chars, max_tokens) = (due.covers_chars, due.max_tokens);
    if let Some(request) = by_provider {
        let judge = |reply: &Reply| usable_block(reply, covers_chars);
        let expected = covers_chars as u64 / 4;
        if let Some(written) = ask(services, service, request, expected, judge).await? {
            return Ok(written);
        }
    }
    let expected = estimate(&due.prompt);
    let message = Json::encode(&Message::user(due.prompt));
    let view = View::default();
    let sendable = validity::check(&view, Some(&message), &Rules::default());
    let sendable = sendable.map_err(|invalid| SummaryError::Model(invalid.to_string()))?;
    let request = Request {
        agent: Name::new(ADDRESS).expect("the compactor's address is a name"),
        agent_id: agent,
        turn: 1,
        head: service.model.head(&service.spec, "", &[]),
        pieces: Rendering::default().render(&sendable, &*service.model),
        max_output_tokens: due.max_tokens.min(service.spec.max_output_tokens),
        context: ContextWork::Nothing,
    };
    let judge = |reply: &Reply| usable(reply, covers_chars, max_tokens).map(Written::Text);
    let written = ask(services, service, request, expected, judge).await?;
    written.ok_or_else(|| SummaryError::Model("the provider cannot do this".to_owned()).into())
}

/// Makes the call and takes the summary from its reply; nothing when the provider does not write
/// summaries by itself. `expected` is the size of what is read, where it reports none.
async fn ask(
    services: &Services,
    service: &ModelService,
    request: Request,
    expected: u64,
    judge: impl Fn(&Reply) -> Result<Written, SummaryError>,
) -> Result<Option<Summary>, NoSummary> {
    let cancel = CancellationToken::new();
    let reply = match model_call::call(services, service, request, None, &cancel).await {
        Ok(reply) => reply,
        Err(CallError::Journal(error)) => return Err(SummaryError::Journal(error).into()),
        Err(CallError::Cancelled) => return Err(SummaryError::Gone.into()),
        Err(CallError::Model { error, .. }) => {
            return match error.class {
                ErrorClass::Unsupported(_) => Ok(None),
                _ => Err(SummaryError::Model(error.to_string()).into()),
            };
        }
    };
    let (usage, _) = reply.usage.or_expected(expected);
    let spent = Spent {
        model: service.spec.name.clone(),
        usage,
        cost_usd: service.spec.price.map(|price| price.cost(&usage)),
    };
    match judge(&reply) {
        Ok(written) => Ok(Some(Summary { written, spent })),
        Err(error) => Err(NoSummary { error, spent: Some(spent) }),
    }
}

/// The provider's summary in a reply to a request that asked for nothing else.
fn usable_block(reply: &Reply, covers_chars: usize) -> Result<Written, SummaryError> {
    let found = reply.message.content.iter().find_map(|b| Some((b, block::summary_text(b)?)));
    match (&reply.stop, found) {
        (StopReason::Compaction, Some((_, text))) if text.chars().count() >= covers_chars => {
            Err(SummaryError::FreesNothing)
        }
        (StopReason::Compaction, Some((summary, text))) => {
            Ok(Written::Block { summary: summary.clone(), text })
        }
        (StopReason::MaxTokens, _) => Err(SummaryError::Unusable("it was cut")),
        (StopReason::Refusal(_), _) => Err(SummaryError::Unusable("the model refused")),
        (StopReason::ToolUse, _) => Err(SummaryError::Unusable("the model called a tool")),
        (StopReason::ContextWindowExceeded, _) => {
            Err(SummaryError::Unusable("the context window had no room for it"))
        }
        _ => Err(SummaryError::Unusable("it has no text")),
    }
}

/// The summary in a reply; a reply without text is a failure, whatever its stop reason, and so is
/// one that frees nothing or is longer than it was allowed to be.
fn usable(reply: &Reply, covers_chars: usize, max_tokens: u64) -> Result<String, SummaryError> {
    if let StopReason::Refusal(_) = reply.stop {
        return Err(SummaryError::Unusable("the model refused"));
    }
    if let StopReason::Interrupted(_) = reply.stop {
        return Err(SummaryError::Unusable("the stream broke"));
    }
    let text = reply.message.text();
    let chars = text.chars().count();
    if text.trim().is_empty() {
        Err(SummaryError::Unusable("it has no text"))
    } else if chars >= covers_chars {
        Err(SummaryError::FreesNothing)
    } else if chars as u64 > max_tokens.saturating_mul(MAX_CHARS_PER_TOKEN) {
        Err(SummaryError::Unusable("it is longer than it may be"))
    } else {
        Ok(text)
    }
}
