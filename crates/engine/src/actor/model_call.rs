//! Makes one model call: performs the steps that the call machine names, and tells it what came of them.
//!
//! Runs inside a step's task, never in a handler. Agents and the compactor both use it, so that the
//! same limits and the same rules for retries apply to all of them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::call_records::CallRecords;
use super::fallback::Source;
use super::gateway::{self, Permits, Wanted};
use super::meter::Meter;
use super::model_attempt::{Try, UnderWay, send};
use super::model_service::{Chain, ModelService};
use super::services::Services;
use super::warm_up::Prefix;
use crate::call_machine::standing::Lost;
use crate::call_machine::{Call, End, Failed, Form, Input, Patience, Purpose, Step, Then};
use crate::context::provider::server::ContextWork;
use crate::event::SharedRecord;
use crate::failure::Failure;
use crate::id::Name;
use crate::journal::JournalError;
use crate::model::{ModelError, Reply, Request};
use crate::spending::Rest;

/// Bytes of a request that are about one token.
const BYTES_PER_TOKEN: u64 = 4;

/// Who makes a call, and pays for it.
#[derive(Debug)]
pub enum Payer<'a> {
    /// An agent.
    Agent(Box<Caller<'a>>),
    /// The agent that a summary is written for.
    Summary {
        /// Counts what the calls of the summary cost.
        meter: &'a Meter,
        /// The tokens that the request is expected to hold.
        expected_tokens: u64,
    },
}

/// The agent that makes a call.
#[derive(Debug)]
pub struct Caller<'a> {
    /// The records of the call.
    pub(super) records: CallRecords<'a>,
    /// Number of requests that the turn has announced before.
    pub(super) announced: u32,
    /// True if the request before was refused as too long, and this one is smaller.
    pub(super) made_smaller: bool,
    /// What the request was rendered from, if the model has fallbacks.
    pub(super) source: Option<&'a Source>,
    /// The front of the request as an entry of the provider's cache.
    pub(super) prefix: &'a Prefix,
}

impl<'a> Payer<'a> {
    fn caller(&self) -> Option<&Caller<'a>> {
        match self {
            Self::Agent(caller) => Some(caller),
            Self::Summary { .. } => None,
        }
    }

    /// Returns the records of the call, and the most that its latest request can cost.
    pub(super) fn into_records(self) -> (Vec<SharedRecord>, Option<Rest>) {
        match self {
            Self::Agent(caller) => (caller.records.made, caller.records.most),
            Self::Summary { .. } => (Vec::new(), None),
        }
    }

    /// Returns the call that this request makes.
    fn facts(&self, request: &Request) -> Call {
        let form = Form {
            place: 0,
            max_output_tokens: request.max_output_tokens,
            has_schema: request.answer_schema.is_some(),
            has_edits: matches!(request.context, ContextWork::Edit(_)),
        };
        let messages = request.pieces.len();
        match self {
            Self::Agent(caller) => Call {
                purpose: Purpose::Turn,
                expected_tokens: caller.records.expected_tokens,
                messages,
                made_smaller: caller.made_smaller,
                announced: caller.announced,
                form,
            },
            Self::Summary { expected_tokens, .. } => Call {
                purpose: Purpose::Summary,
                expected_tokens: *expected_tokens,
                messages,
                made_smaller: false,
                announced: 0,
                form,
            },
        }
    }

    /// Returns the records of the call; `None` for a summary, which is recorded as a whole.
    fn records(&mut self) -> Option<&mut CallRecords<'a>> {
        match self {
            Self::Agent(caller) => Some(&mut caller.records),
            Self::Summary { .. } => None,
        }
    }
}

/// A reply, and the model that gave it.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The reply.
    pub reply: Reply,
    /// The model, which is another if it stood in.
    pub by: &'a ModelService,
}

/// The reason why a call gave no reply after all its attempts.
#[derive(Debug)]
pub enum CallError {
    /// The model failed, with the error of the last attempt.
    Model(ModelError),
    /// The caller was cancelled.
    Cancelled,
    /// A budget is used up, so the caller must end.
    OverBudget(Failure),
    /// The journal failed.
    Journal(JournalError),
}

impl From<JournalError> for CallError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Waits for the reservation of an attempt. One that waits for long gives its permit back: it may wait for a person for
/// days, and others need the permit.
async fn reserve<P>(
    records: &CallRecords<'_>,
    service: &ModelService,
    request: &Request,
    permit: &mut Option<P>,
) -> Result<Option<u64>, Failure> {
    let mut reserving = std::pin::pin!(records.reserve(&service.spec, request));
    tokio::select! {
        biased;
        reserved = &mut reserving => return reserved,
        () = tokio::time::sleep(PERMIT_PATIENCE), if permit.is_some() => *permit = None,
    }
    reserving.await
}

/// The longest time for which an attempt that waits for its reservation keeps its permit. A reservation that is granted
/// takes milliseconds.
const PERMIT_PATIENCE: Duration = Duration::from_secs(1);

/// Makes a call, and makes it again as long as its machine says so. Each request of an agent is announced and
/// settled by its records.
///
/// # Errors
/// Returns the last attempt's error, the cancellation, or the journal's error.
pub async fn call<'a>(
    services: &'a Services,
    own: &'a ModelService,
    request: Box<Request>,
    permits: &Permits,
    payer: &mut Payer<'_>,
    cancel: &CancellationToken,
) -> Result<Answered<'a>, CallError> {
    let own_meter = Meter::default();
    let (meter, source, prefix) = match payer {
        Payer::Agent(caller) => (&own_meter, caller.source, Some(caller.prefix)),
        Payer::Summary { meter, .. } => (*meter, None, None),
    };
    let is_watched = payer.caller().is_some_and(|caller| caller.records.context.watches_text());
    let agent = payer.caller().map(|caller| &caller.records.context.agent).cloned();
    let abandon = payer.caller().map_or(cancel, |caller| &caller.records.context.abandon).clone();
    let since = gateway::first_attempt(services);
    let facts = payer.facts(&request);
    let chain = if source.is_some() { Chain::of(&services.models, own) } else { Chain::alone(own) };
    let mut call = UnderWay::new(facts, chain);
    let mut sending = Sending::new(*request, source, facts.form);
    let (mut permit, mut reply, mut ahead) = (None, None, None);
    let mut step = call.first();
    loop {
        let service = call.service();
        sending.shape(call.form(), service);
        let request = &sending.request;
        let input = match step {
            Step::Announce { number } => {
                let mut input = Input::Recorded;
                if let Some(records) = payer.records() {
                    let had_permit = permit.is_some();
                    let reserved = reserve(records, service, request, &mut permit).await;
                    if had_permit && permit.is_none() {
                        input = Input::RecordedLate;
                    }
                    match reserved {
                        Ok(Some(output)) => sending.request.max_output_tokens = output,
                        // Nothing of it is announced.
                        Ok(None) => return Err(CallError::Cancelled),
                        Err(failure) => return Err(CallError::OverBudget(failure)),
                    }
                    let request = &sending.request;
                    records.announce(number, &service.spec, request).await?;
                }
                input
            }
            Step::LetAhead => match prefix {
                None => Input::Woke,
                Some(prefix) => tokio::select! {
                    () = cancel.cancelled() => Input::Cancelled,
                    place = prefix.ready() => {
                        ahead = Some(place);
                        Input::Woke
                    }
                },
            },
            Step::Permit { pause, patience } => {
                let wanted = Wanted { since, tokens: tokens(request), pause };
                let acquire = gateway::acquire(services, &service.spec.provider, permits, wanted);
                tokio::select! {
                    () = cancel.cancelled() => Input::Cancelled,
                    granted = acquire => {
                        permit = granted;
                        Input::Admitted
                    }
                    () = end_of(patience, service) => Input::OutOfPatience,
                }
            }
            Step::Send => {
                let one = Try {
                    request,
                    abandon: &abandon,
                    agent: agent.as_ref(),
                    prefix: prefix.filter(|_| std::ptr::eq(service, own)),
                    meter,
                    expected: facts.expected_tokens,
                    is_watched,
                };
                (step, reply) = send(services, &mut call, permit.take(), one).await;
                continue;
            }
            Step::Failed(failed) => {
                let (by, then) = (call.at(failed.place), failed.then);
                tell(&by.spec.name, &failed);
                meter.end(failed.error.usage.as_deref().copied().unwrap_or_default());
                if let Some(records) = payer.records() {
                    let next = match then {
                        Then::Other(place) => Some(&call.at(place).spec.name),
                        Then::Nothing | Then::Again(_) => None,
                    };
                    records.failed(&by.spec, &failed, next).await?;
                }
                Input::Recorded
            }
            Step::Cut { attempt } => {
                if let Some(records) = payer.records() {
                    records.cut(&service.spec, attempt, meter.open()).await?;
                }
                Input::Recorded
            }
            Step::Wait(pause) => tokio::select! {
                () = cancel.cancelled() => Input::Cancelled,
                () = tokio::time::sleep(pause) => Input::Woke,
            },
            Step::End(end) => {
                drop(ahead);
                return match (end, reply) {
                    (End::Failed(error), _) => Err(CallError::Model(error)),
                    (End::Replied, Some(reply)) => Ok(Answered { reply, by: service }),
                    (End::Replied | End::Cancelled, _) => Err(CallError::Cancelled),
                };
            }
        };
        step = call.next(input);
    }
}

/// The request, as it is sent next.
struct Sending<'a> {
    request: Request,
    form: Form,
    /// The request for the agent's own model, and what it was rendered from, if it may go to others.
    original: Option<(&'a Source, Box<Request>)>,
}

impl<'a> Sending<'a> {
    fn new(request: Request, source: Option<&'a Source>, form: Form) -> Self {
        let original = source.map(|source| (source, Box::new(request.clone())));
        Self { request, form, original }
    }

    /// Gives the request this form.
    fn shape(&mut self, form: Form, service: &ModelService) {
        let before = std::mem::replace(&mut self.form, form);
        if before == form {
            return;
        }
        if let Some((source, original)) =
            self.original.as_ref().filter(|_| before.place != form.place)
        {
            self.request = source.request(service, original);
        }
        let request = &mut self.request;
        request.max_output_tokens = form.max_output_tokens;
        request.answer_schema.take_if(|_| !form.has_schema);
        if !form.has_edits && matches!(request.context, ContextWork::Edit(_)) {
            request.context = ContextWork::Nothing;
        }
    }
}

/// Waits until the call has no more patience with the gateway of this model.
async fn end_of(patience: Patience, service: &ModelService) {
    match patience {
        Patience::Endless => std::future::pending().await,
        Patience::UntilFall(falls) => service.fallen(falls).await,
        Patience::For(limit) => tokio::time::sleep(limit).await,
    }
}

/// Tells people what a failure changes for later calls.
fn tell(model: &Name, failed: &Failed) {
    let error = &failed.error;
    if failed.gave_up {
        tracing::warn!(%model, %error, "the model is given up for now: another is called");
    }
    match failed.lost {
        None => {}
        Some(Lost::Schemas) => {
            tracing::warn!(%model, %error, "the provider holds no answer to this schema: going on without");
        }
        Some(Lost::Capability(capability)) => {
            let capability = capability.name();
            tracing::warn!(%model, capability, %error, "refused by the provider: going on without");
        }
    }
}

/// Returns an estimate of the tokens of a request, its reply included.
fn tokens(request: &Request) -> u64 {
    let bytes: usize = request.pieces.iter().map(|piece| piece.bytes.len()).sum();
    (request.head.0.len() + bytes) as u64 / BYTES_PER_TOKEN
}
