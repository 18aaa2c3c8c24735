//! Asks models whether they can be called: one short call to each, outside of any run.
//!
//! Records nothing and knows no tasks. It spends what the calls cost, so only somebody who asked for it
//! may start it.

use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::StartError;
use super::services::{client, redacted};
use crate::config::{Config, ProviderKind, ProviderSpec};
use crate::context::provider::server::ContextWork;
use crate::context::sending::validity::{self, Last, Rules};
use crate::context::view::View;
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::message::{Json, Message, Usage};
use crate::model::{Allowance, Client, Delta, ErrorClass, ModelError, Rendering, Reply, Request};
use crate::redaction::Secrets;
use crate::spec::capability::{Declared, ModelFacts};
use crate::spec::{ModelSpec, ThinkingMode};

/// The most calls at the same time: enough for the models of a file, and far below any provider's limit.
const AT_ONCE: usize = 8;

/// The longest time that all calls together may take, whatever the limits of the providers are.
const ALL: Duration = Duration::from_secs(120);

/// The longest pause before the only retry.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most tokens of a reply: the fewest that all services accept.
const OUTPUT_TOKENS: u64 = 16;

/// The name of the agent that asks.
const AGENT: &str = "check";

/// What came of asking one model.
#[derive(Debug)]
pub struct Connection<'a> {
    /// The model.
    pub model: &'a ModelSpec,
    /// What came of it.
    pub outcome: Outcome,
}

/// The outcome of asking a model.
#[derive(Debug)]
pub enum Outcome {
    /// A script or the embedding program answers: nothing was asked.
    Skipped,
    /// The model answered.
    Reached(Box<Reached>),
    /// The model did not answer.
    Failed {
        /// The kind of the failure.
        kind: FailureKind,
        /// The words of the provider or of callsheet.
        message: String,
    },
}

/// Facts about a model that answered.
#[derive(Debug)]
pub struct Reached {
    /// The time until the first word of the answer; absent if the answer has none.
    pub first_token: Option<Duration>,
    /// The time of the whole call.
    pub took: Duration,
    /// The tokens of the call; absent if the provider reports none.
    pub usage: Option<Usage>,
    /// What the headers tell of limits.
    pub allowance: Allowance,
    /// What the provider said about the model; absent if it is not to be asked.
    pub facts: Option<Result<ModelFacts, ModelError>>,
}

/// Returns the models in use that are called over a network.
pub fn callable(config: &Config) -> impl Iterator<Item = &ModelSpec> {
    in_use(config).filter(|model| network(config, model).is_some())
}

/// Asks each model in use with one short call, and returns the outcomes in the order of the names, as
/// they come.
pub fn connect(config: &Config) -> impl Stream<Item = Connection<'_>> {
    let (until, secrets) = (Instant::now() + ALL, redacted(config));
    let asked = in_use(config).map(move |model| {
        let secrets = secrets.clone();
        async move {
            let outcome = match network(config, model) {
                None => Outcome::Skipped,
                Some(provider) => ask(provider, model, until, &secrets).await,
            };
            Connection { model, outcome }
        }
    });
    stream::iter(asked).buffered(AT_ONCE)
}

fn in_use(config: &Config) -> impl Iterator<Item = &ModelSpec> {
    config.models_in_use.iter().filter_map(|name| config.models.get(name))
}

/// Returns the provider of a model if it is called over a network.
fn network<'a>(config: &'a Config, model: &ModelSpec) -> Option<&'a ProviderSpec> {
    let provider = config.providers.get(&model.provider)?;
    (!matches!(provider.kind, ProviderKind::Scripted { .. })).then_some(provider)
}

async fn ask(
    provider: &ProviderSpec,
    spec: &ModelSpec,
    until: Instant,
    secrets: &Secrets,
) -> Outcome {
    let asked = async {
        let client = client(provider).map_err(|error| match error {
            StartError::Provider { reason, .. } => {
                ModelError { never_sent: true, ..ModelError::new(ErrorClass::Connection, reason) }
            }
            error => ModelError::new(ErrorClass::Fatal, error.to_string()),
        })?;
        match call(&*client, spec).await {
            Err(error) if is_worth_another(&error) => {
                sleep(error.retry_after.unwrap_or(provider.retry.initial_interval)).await;
                call(&*client, spec).await
            }
            once => once,
        }
    };
    let asked = timeout_at(until, asked).await.unwrap_or_else(|_| {
        let message = format!("no answer within the {} s of all calls", ALL.as_secs());
        Err(ModelError::new(ErrorClass::IdleTimeout, message))
    });
    match asked {
        Ok(reached) => Outcome::Reached(Box::new(reached)),
        Err(mut error) => {
            secrets.redact(&mut error.message);
            Outcome::Failed { kind: error.class.kind(), message: error.message }
        }
    }
}

/// Returns true if an error may pass within seconds. Silence is not waited for twice: its call may be paid.
fn is_worth_another(error: &ModelError) -> bool {
    error.is_retryable()
        && error.class != ErrorClass::IdleTimeout
        && error.retry_after.is_none_or(|pause| pause <= LONGEST_PAUSE)
}

async fn call(client: &dyn Client, spec: &ModelSpec) -> Result<Reached, ModelError> {
    let facts = match &spec.capabilities {
        Declared::Probe => Some(client.facts(spec).await),
        Declared::Listed(_) => None,
    };
    let request = request(client, spec)?;
    let (start, mut first_token, mut allowance) = (Instant::now(), None, Allowance::default());
    let mut watch = |delta: Delta<'_>| match delta {
        Delta::Text(_) | Delta::Tool(_) => {
            first_token.get_or_insert_with(|| start.elapsed());
        }
        Delta::Taken(told) => allowance = told,
        Delta::Spent(_) | Delta::Alive => {}
    };
    let Reply { usage, broken, .. } = client.call(request, &mut watch).await?;
    if let Some(error) = broken {
        return Err(*error);
    }
    // Output is estimated where the provider reports nothing, input never is.
    let usage = (usage.context() > 0).then_some(usage);
    Ok(Reached { first_token, took: start.elapsed(), usage, allowance, facts })
}

fn request(client: &dyn Client, spec: &ModelSpec) -> Result<Request, ModelError> {
    let own_error = |text: String| ModelError::new(ErrorClass::Fatal, text);
    let mut view = View::default();
    let hello = Json::encode(&Message::user("Answer with the word: yes"));
    view.push(hello).map_err(|error| own_error(error.to_string()))?;
    let rules = Rules { last: Last::Either, ..Rules::default() };
    let sendable = validity::check(&view, None, &rules);
    let sendable = sendable.map_err(|error| own_error(error.to_string()))?;
    Ok(Request {
        agent: Name::new(AGENT).map_err(|error| own_error(error.to_string()))?,
        agent_id: AgentId::from_text(AGENT),
        turn: 1,
        head: client.head(spec, "", &[]),
        pieces: Rendering::default().render(&sendable, client, &[]),
        max_output_tokens: output_tokens(spec),
        context: ContextWork::Nothing,
        no_calls: false,
        answer_schema: None,
    })
}

/// Returns the most tokens of the reply. Thinking with a budget of its own needs room for all of it.
fn output_tokens(spec: &ModelSpec) -> u64 {
    let extra = spec.extra_body.as_ref().map(Json::to_value).unwrap_or_default();
    let budget = match spec.thinking_mode {
        Some(ThinkingMode::Enabled { budget_tokens }) => budget_tokens,
        Some(ThinkingMode::Adaptive | ThinkingMode::Disabled) => 0,
        None => extra["thinking"]["budget_tokens"].as_u64().unwrap_or(0),
    };
    budget.saturating_add(OUTPUT_TOKENS).min(spec.max_output_tokens)
}
