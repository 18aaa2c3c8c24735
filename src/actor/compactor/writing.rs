//! Writes one summary: makes the calls that it takes, and checks that the reply is a summary.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::actor::briefing::Briefing;
use crate::actor::gateway::Permits;
use crate::actor::meter::{self, Meter};
use crate::actor::model_call::{self, CallError, Payer};
use crate::actor::model_service::ModelService;
use crate::actor::services::Services;
use crate::actor::summary::{NoSummary, Summary, SummaryAnswer, SummaryError, SummaryJob, Written};
use crate::actor::work;
use crate::context::CompactionTrigger;
use crate::context::layers::summary::{Form, Material, SummaryRequest};
use crate::context::measure::estimate;
use crate::context::provider::compaction_block;
use crate::context::provider::server::ContextWork;
use crate::context::sending::validity::{self, Rules};
use crate::context::view::View;
use crate::id::{AgentId, Name};
use crate::message::{Json, Message, StopReason};
use crate::model::{ErrorClass, Head, ModelError, Rendering, Reply, Request};

/// The name of the agent in the calls that write summaries, as requests and scripts see it.
const NAME: &str = "compactor";

/// Number of characters sent for which the time limit of a call grows once more by the configured
/// limit. Within the default limit of a minute, a model that reads slowly (500 characters a second)
/// reads that many.
const CHARS_PER_TIMEOUT: usize = 30_000;

/// Most characters of a summary for each token that it was allowed: twice as many as prose has, so
/// that only a reply of a provider that ignores the limit is refused.
const MAX_CHARS_PER_TOKEN: u64 = 8;

/// Characters that a token is assumed to have when a request is made to fit: fewer than text and
/// code have on average.
const CHARS_PER_TOKEN: u64 = 3;

/// Most retries of a call whose stream broke: as many as of one that failed.
const STREAM_RETRIES: u32 = 1;

/// Most times that a request that is too long is made smaller. Each time a third is removed if the
/// provider does not say how much is too much, so that about an eighth is left at the end.
const MOST_CUTS: u32 = 5;

/// The reason why there is no summary when even that does not help.
const TOO_LONG: &str = "what it is to read is too long, however much is left out";

/// Writes a summary, whatever happens. Returns its result, and whether the model succeeded: `None`
/// if the result says nothing about the model.
pub(super) async fn work(
    services: &Services,
    job: SummaryJob,
    permits: &Permits,
) -> (SummaryAnswer, Option<bool>) {
    let SummaryJob { agent, due, model, prefix, by_provider, meter, number: _ } = job;
    let trigger = due.trigger;
    let Some(service) = services.models.get(&model) else {
        let error = SummaryError::Model(format!("there is no model `{model}`"));
        return (Err(error.into()), Some(false));
    };
    let prefix = match prefix.map(|(name, depth)| services.briefing(&name, depth, &[])).transpose()
    {
        Ok(prefix) => prefix,
        Err(error) => return (Err(SummaryError::Model(error).into()), Some(false)),
    };
    let mut writing = Writing { services, service, permits, agent, meter: &meter };
    let written = writing.write(due, prefix, by_provider);
    let error = match work::caught(written).await {
        Ok(Ok(written)) => {
            let spent = meter::spent(&service.spec, &meter.spent());
            return (Ok(Summary { written, spent }), Some(true));
        }
        Ok(Err(error)) => error,
        Err(panic) => SummaryError::Crashed(panic.to_string()),
    };
    // A context that was compacted early on request may have nothing to free: that is no failure of
    // the model.
    let tells =
        trigger == CompactionTrigger::Auto || !matches!(error, SummaryError::FreesTooLittle);
    let spent = meter.cost(&service.spec);
    (Err(NoSummary { error, spent }), tells.then_some(false))
}

/// The writing of one summary.
struct Writing<'a> {
    services: &'a Services,
    service: &'a ModelService,
    permits: &'a Permits,
    agent: AgentId,
    /// Counts the tokens of all its calls.
    meter: &'a Meter,
}

/// The reason why a call gave no text.
enum Failed {
    /// The request is too long: its tokens, and how many of them are too many, if the provider said
    /// so.
    TooLong(Option<(u64, u64)>),
    /// The provider does not write summaries itself.
    Unsupported,
    Other(SummaryError),
}

impl From<SummaryError> for Failed {
    fn from(error: SummaryError) -> Self {
        Self::Other(error)
    }
}

impl Writing<'_> {
    async fn write(
        &mut self,
        due: SummaryRequest,
        prefix: Option<Arc<Briefing>>,
        by_provider: Option<Request>,
    ) -> Result<Written, SummaryError> {
        if let Some(request) = by_provider
            && let Some(block) = self.by_provider(request, &due).await?
        {
            return Ok(block);
        }
        let text = match prefix {
            Some(prefix) => self.on_prefix(&due, &prefix).await?,
            None => self.in_parts(&due).await?,
        };
        if text.chars().count() + due.least_gain > due.covers_chars {
            return Err(SummaryError::FreesTooLittle);
        }
        Ok(Written::Text(text))
    }

    /// Asks the provider to write the summary itself. Returns `None` if it turns out that it
    /// cannot.
    async fn by_provider(
        &mut self,
        request: Request,
        due: &SummaryRequest,
    ) -> Result<Option<Written>, SummaryError> {
        let reply = match self.attempt(request, tokens(due.covers_chars)).await {
            Ok(reply) => reply,
            Err(Failed::Unsupported) => return Ok(None),
            Err(failed) => return Err(failed.into()),
        };
        usable_block(&reply, due.covers_chars.saturating_sub(due.least_gain)).map(Some)
    }

    /// Sends the messages as the agent sent them, with the instruction at the end, so that the
    /// provider's cache holds their prefix. If that is too long, the oldest exchanges are left out
    /// or the largest message is cut.
    async fn on_prefix(
        &mut self,
        due: &SummaryRequest,
        prefix: &Briefing,
    ) -> Result<String, SummaryError> {
        let mut material = due.material.clone();
        let told = due.told();
        // The agent itself has just sent as much, but this model's window may be smaller.
        let beside = self.output(due) + tokens(told.len());
        let over = (due.prefix_tokens + beside).saturating_sub(self.service.spec.context_window);
        if over > 0 {
            material.shed(scaled(material.chars(), over, due.prefix_tokens));
        }
        for _ in 0..=MOST_CUTS {
            let messages = material.conversation(&told);
            let front = (&prefix.head, prefix.tool_names.as_slice());
            match self.call(front, &messages, due).await {
                Ok(text) => return Ok(text),
                Err(Failed::TooLong(by)) if material.shed(excess(&material, by)) => {}
                Err(failed) => return Err(failed.into()),
            }
        }
        Err(SummaryError::Unusable(TOO_LONG))
    }

    /// Sends the messages as text, in parts that fit the model's window, each with the summary of
    /// the parts before. If a part is too long, all parts are made smaller.
    async fn in_parts(&mut self, due: &SummaryRequest) -> Result<String, SummaryError> {
        let head = self.service.model.head(&self.service.spec, &due.system, &[]);
        let instruction = due.told().chars().count();
        // Space for two summaries: the one to write, and that of the parts before, which a later
        // part is sent with.
        let mut part = self.room(2 * self.output(due)).saturating_sub(instruction);
        for _ in 0..=MOST_CUTS {
            match self.part_by_part(due, &head, part).await {
                Ok(text) => return Ok(text),
                Err(Failed::TooLong(Some((have, over)))) if have > over => {
                    part = scaled(part, have - over, have) / 10 * 9;
                }
                Err(Failed::TooLong(_)) => part = part / 3 * 2,
                Err(failed @ (Failed::Other(_) | Failed::Unsupported)) => return Err(failed.into()),
            }
        }
        Err(SummaryError::Unusable(TOO_LONG))
    }

    async fn part_by_part(
        &mut self,
        due: &SummaryRequest,
        head: &Head,
        part: usize,
    ) -> Result<String, Failed> {
        let mut so_far: Option<String> = None;
        for text in due.parts(part) {
            let prompt = Message::user(due.prompt(&text, so_far.as_deref()));
            let messages = [Json::encode(&prompt)];
            so_far = Some(self.call((head, &[]), &messages, due).await?);
        }
        Ok(so_far.unwrap_or_default())
    }

    /// Returns the most tokens that the summary may have.
    fn output(&self, due: &SummaryRequest) -> u64 {
        due.max_tokens.min(self.service.spec.max_output_tokens)
    }

    /// Returns the characters of a request that leave so many tokens free in the model's window.
    fn room(&self, tokens: u64) -> usize {
        let room = self.service.spec.context_window.saturating_sub(tokens);
        whole(room.saturating_mul(CHARS_PER_TOKEN))
    }

    /// Makes one call, and repeats it if its stream breaks.
    async fn call(
        &mut self,
        (head, tools): (&Head, &[Name]),
        messages: &[Json],
        due: &SummaryRequest,
    ) -> Result<String, Failed> {
        let max_tokens = self.output(due);
        let mut view = View::default();
        for message in messages {
            let pushed = view.push(message.clone());
            pushed.map_err(|error| SummaryError::Model(error.to_string()))?;
        }
        let rules = Rules { tools, ..Rules::default() };
        let sendable = validity::check(&view, None, &rules);
        let sendable = sendable.map_err(|invalid| SummaryError::Model(invalid.to_string()))?;
        let service = &self.service;
        let pieces = Rendering::default().render(&sendable, &*service.model, &service.spec.media);
        let request = Request {
            agent: Name::new(NAME).expect("the compactor's name is a name"),
            agent_id: self.agent.clone(),
            turn: 1,
            head: head.clone(),
            pieces,
            max_output_tokens: max_tokens,
            context: ContextWork::Nothing,
            no_calls: false,
            answer_schema: None,
        };
        let expected = messages.iter().map(|json| estimate(json.as_str())).sum();
        let mut retries = 0;
        loop {
            let reply = self.attempt(request.clone(), expected).await?;
            if !matches!(reply.stop, StopReason::Interrupted(_)) {
                return Ok(usable(&reply, max_tokens, due.form)?);
            }
            if retries == STREAM_RETRIES {
                return Err(SummaryError::Unusable("the stream broke").into());
            }
            retries += 1;
        }
    }

    async fn attempt(&mut self, request: Request, expected: u64) -> Result<Reply, Failed> {
        let bytes: usize = request.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let deadline = deadline(self.services.compaction.summary_timeout, bytes);
        let cancel = CancellationToken::new();
        let mut payer = Payer::Summary { meter: self.meter, expected_tokens: expected };
        let (services, service, permits) = (self.services, self.service, self.permits);
        let call = model_call::call(services, service, request, permits, &mut payer, &cancel);
        match within(deadline, call).await? {
            Ok(answered) => Ok(answered.reply),
            Err(CallError::Journal(error)) => Err(SummaryError::Journal(error).into()),
            Err(CallError::Cancelled) => Err(SummaryError::Gone.into()),
            Err(CallError::Model(error)) => Err(judge(&error)),
        }
    }
}

impl From<Failed> for SummaryError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::TooLong(_) => Self::Unusable(TOO_LONG),
            Failed::Unsupported => Self::Unusable("the provider cannot do this"),
            Failed::Other(error) => error,
        }
    }
}

/// Returns the time limit of a call that sends so many characters.
#[expect(clippy::cast_precision_loss, reason = "a request has far fewer than 2^52 characters")]
fn deadline(least: Duration, chars: usize) -> Duration {
    least.mul_f64(1.0 + chars as f64 / CHARS_PER_TIMEOUT as f64)
}

async fn within<T>(deadline: Duration, call: impl Future<Output = T>) -> Result<T, SummaryError> {
    tokio::time::timeout(deadline, call).await.map_err(|_| SummaryError::Timeout(deadline))
}

fn judge(error: &ModelError) -> Failed {
    let over = |have: Option<u64>, max: Option<u64>| {
        let (have, max) = have.zip(max)?;
        Some((have, have.saturating_sub(max)))
    };
    match error.class {
        ErrorClass::ContextTokens { have, max } => Failed::TooLong(over(have, max)),
        ErrorClass::Unsupported(_) => Failed::Unsupported,
        // The output limit does not fit beside the input.
        ErrorClass::ContextPlusOutput { .. } | ErrorClass::RequestBytes => Failed::TooLong(None),
        _ => Failed::Other(SummaryError::Model(error.to_string())),
    }
}

/// Returns how many characters must be removed: the share of the tokens that the provider named and
/// a tenth of everything, because the estimate is not exact; or a third if it named none.
fn excess(material: &Material, by: Option<(u64, u64)>) -> usize {
    let chars = material.chars();
    match by {
        Some((have, over)) => scaled(chars, over, have) + chars / 10,
        None => chars / 3,
    }
}

/// Estimates the tokens of so many characters, too many rather than too few.
fn tokens(chars: usize) -> u64 {
    chars as u64 / CHARS_PER_TOKEN
}

/// Returns the share of `chars` that `part` is of `all`.
fn scaled(chars: usize, part: u64, all: u64) -> usize {
    let scaled = chars as u128 * u128::from(part) / u128::from(all.max(1));
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

fn whole(tokens: u64) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX)
}

/// Takes the provider's summary from a reply to a request that asked for nothing else.
fn usable_block(reply: &Reply, most_chars: usize) -> Result<Written, SummaryError> {
    let found =
        reply.message.content.iter().find_map(|b| Some((b, compaction_block::summary_text(b)?)));
    match (&reply.stop, found) {
        (StopReason::Compaction, Some((_, text))) if text.chars().count() >= most_chars => {
            Err(SummaryError::FreesTooLittle)
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

/// Takes the summary from a reply. A reply without text is a failure, whatever its stop reason, and
/// so is one that is longer than it was allowed to be. A tool call in the reply is never run.
fn usable(reply: &Reply, max_tokens: u64, form: Form) -> Result<String, SummaryError> {
    if let StopReason::Refusal(_) = reply.stop {
        return Err(SummaryError::Unusable("the model refused"));
    }
    let text = reply.message.text();
    if text.trim().is_empty() {
        return Err(SummaryError::Unusable("it has no text"));
    }
    if text.chars().count() as u64 > max_tokens.saturating_mul(MAX_CHARS_PER_TOKEN) {
        return Err(SummaryError::Unusable("it is longer than it may be"));
    }
    form.read(&text).ok_or(SummaryError::Unusable("nothing in it is a summary"))
}
