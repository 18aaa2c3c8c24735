//! Writes one summary: makes the calls that its machine names (`call_machine/summary.rs`).

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
use crate::actor::summary::{NoSummary, Summary, SummaryAnswer, SummaryError, SummaryJob};
use crate::actor::work;
use crate::call_machine::summary::{Means, Step, Writing, Written};
use crate::context::CompactionTrigger;
use crate::context::layers::summary::SummaryRequest;
use crate::context::measure::estimate;
use crate::context::provider::server::ContextWork;
use crate::context::sending::validity::{self, Rules};
use crate::context::view::View;
use crate::id::{AgentId, Name};
use crate::message::Json;
use crate::model::{Head, ModelError, Rendering, Reply, Request};

/// The name of the agent in the calls that write summaries, as requests and scripts see it.
const NAME: &str = "compactor";

/// Number of characters sent for which the time limit of a call grows once more by the configured
/// limit. Within the default limit of a minute, a model that reads slowly (500 characters a second)
/// reads that many.
const CHARS_PER_TIMEOUT: usize = 30_000;

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
    let calls = Calls { services, service, permits, agent, meter: &meter };
    let written = calls.write(due, prefix, by_provider);
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
    let spent = meter.cost(&service.spec).map(Box::new);
    (Err(NoSummary { most: None, error, spent }), tells.then_some(false))
}

/// The calls of one summary.
struct Calls<'a> {
    services: &'a Services,
    service: &'a ModelService,
    permits: &'a Permits,
    agent: AgentId,
    /// Counts the tokens of all of them.
    meter: &'a Meter,
}

impl Calls<'_> {
    /// Makes the calls that the writing of a summary names.
    async fn write(
        &self,
        due: SummaryRequest,
        prefix: Option<Arc<Briefing>>,
        by_provider: Option<Request>,
    ) -> Result<Written, SummaryError> {
        let spec = &self.service.spec;
        let means = Means {
            by_provider: by_provider.is_some(),
            on_prefix: prefix.is_some(),
            window: spec.context_window,
            max_output_tokens: spec.max_output_tokens,
        };
        let (head, tools) = match &prefix {
            Some(prefix) => (prefix.head.clone(), prefix.tool_names.as_slice()),
            None => (self.service.model.head(spec, &due.system, &[]), [].as_slice()),
        };
        let (mut writing, mut step) = Writing::begin(due, means);
        // The request under way, and the tokens that it is expected to hold.
        let mut asked = by_provider.map(|request| (request, 0));
        loop {
            let messages = match step {
                Step::ByProvider(expected) => {
                    asked = asked.map(|(request, _)| (request, expected));
                    None
                }
                Step::Again => None,
                Step::OnPrefix(messages) => Some(messages),
                Step::Alone(message) => Some(vec![message]),
                Step::End(written) => return written.map_err(SummaryError::from),
            };
            if let Some(messages) = messages {
                asked = Some(self.request((&head, tools), &messages, writing.max_tokens())?);
            }
            let Some((request, expected)) = asked.clone() else { return Err(SummaryError::Gone) };
            step = match self.call(request, expected).await? {
                Ok(reply) => writing.replied(&reply.message, &reply.stop),
                Err(error) => writing.failed(&error),
            };
        }
    }

    /// Makes the request of these messages behind this front.
    fn request(
        &self,
        (head, tools): (&Head, &[Name]),
        messages: &[Json],
        max_output_tokens: u64,
    ) -> Result<(Request, u64), SummaryError> {
        let mut view = View::default();
        for message in messages {
            let pushed = view.push(message.clone());
            pushed.map_err(|error| SummaryError::Model(error.to_string()))?;
        }
        let rules = Rules { tools, ..Rules::default() };
        let sendable = validity::check(&view, None, &rules);
        let sendable = sendable.map_err(|invalid| SummaryError::Model(invalid.to_string()))?;
        let service = self.service;
        let pieces = Rendering::default().render(&sendable, &*service.model, &service.spec.media);
        let request = Request {
            agent: Name::new(NAME).expect("the compactor's name is a name"),
            agent_id: self.agent.clone(),
            turn: 1,
            head: head.clone(),
            pieces,
            max_output_tokens,
            context: ContextWork::Nothing,
            no_calls: false,
            answer_schema: None,
        };
        Ok((request, messages.iter().map(|json| estimate(json.as_str())).sum()))
    }

    /// Makes a call; returns its reply, or the error of its last attempt.
    async fn call(
        &self,
        request: Request,
        expected_tokens: u64,
    ) -> Result<Result<Reply, ModelError>, SummaryError> {
        let bytes: usize = request.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let deadline = deadline(self.services.compaction.summary_timeout, bytes);
        let cancel = CancellationToken::new();
        let mut payer = Payer::Summary { meter: self.meter, expected_tokens };
        let (services, service, permits) = (self.services, self.service, self.permits);
        let request = Box::new(request);
        let call = model_call::call(services, service, request, permits, &mut payer, &cancel);
        match within(deadline, call).await? {
            Ok(answered) => Ok(Ok(answered.reply)),
            Err(CallError::Model(error)) => Ok(Err(error)),
            Err(CallError::Journal(error)) => Err(SummaryError::Journal(error)),
            Err(CallError::Cancelled | CallError::OverBudget(_)) => Err(SummaryError::Gone),
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
