//! The steps of an agent, which run beside its mailbox.
//!
//! Each step follows the write-ahead order: the event that announces an effect is durable before
//! the effect begins, and the result is durable before the agent receives it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::briefing::Briefing;
use super::call_records::{self, CallRecords};
use super::compaction_step::Announcement;
use super::fallback::{self, Source};
use super::given::Given;
use super::mail::StepError;
use super::model_call::{self, Answered, CallError, Caller, Payer};
use super::spans;
use super::step::{Cut, StepContext, StepResult, ended, store_spills};
use super::unknown::{self, Resolution};
use super::{tool_context, tool_run};
use crate::call_machine::Broken;
use crate::context::layers::pipeline::AppliedEdit;
use crate::crash::{self, Point};
use crate::event::{Event, SharedRecord};
use crate::failure::Failure;
use crate::id::CallKey;
use crate::message::{Block, Json, ToolCall};
use crate::messages::{MessageDelivered, MessageId};
use crate::model::Request;
use crate::tool::environment::Environment;
use crate::tool::{ToolSpec, bash};
use crate::turn::{
    AgentEnded, Command, Effect, ModelResponded, Outcome, Program, ToolIntended, TurnStarted,
};
use crate::turn_machine::{Counted, PendingCall, RUN, reply};

/// Returns the effect class of a tool; `once` for a tool that does not exist.
fn effect_of(tools: &[ToolSpec], name: &str) -> Effect {
    let spec = tools.iter().find(|spec| spec.name.as_str() == name);
    // Such a call does nothing now, but a resumed run may have a tool of that name.
    spec.map_or(Effect::Once, |spec| spec.effect)
}

/// Records events and does nothing else.
pub async fn record<E: Into<Event>>(context: StepContext, events: Vec<E>) -> StepResult {
    Ok(context.record(events).await?)
}

/// A model call that is to be made.
#[derive(Debug)]
pub struct ModelTurn {
    /// The turn that it begins.
    pub turn: u32,
    /// A user message that is added to the conversation first.
    pub message: Option<Json>,
    /// The messages to the agent that stand in it.
    pub delivers: Vec<MessageId>,
    /// The edits that made the view that is sent.
    pub changes: Vec<AppliedEdit>,
    /// The announcement of a summary that is written during the call.
    pub announcement: Option<Announcement>,
    /// The request.
    pub request: Box<Request>,
    /// The briefing from which the request was made: the model, the head and the tools.
    pub briefing: Arc<Briefing>,
    /// The tokens that the request is expected to hold.
    pub expected_tokens: u64,
    /// The ids of all tool calls in the conversation so far.
    pub call_ids: Arc<HashSet<String>>,
    /// Number of requests that the turn has announced, if its call is made again.
    pub announced: Option<u32>,
    /// What the provider has counted of the request.
    pub counted: Option<Counted>,
    /// True if the reply hands over what there is.
    pub hand_over: bool,
    /// The failure for which the agent ends after it, if it is not that its turns are used up.
    pub ends_for: Option<Failure>,
    /// True if the reply may call no tool and is no answer, because the agent goes in circles.
    pub held: bool,
    /// Number of replies in a row, before this one, whose stream broke.
    pub breaks: u32,
    /// True if the request before was refused as too long, and this one is smaller.
    pub made_smaller: bool,
    /// What the request was rendered from, if the model has fallbacks.
    pub source: Option<Source>,
}

/// Announces a turn, calls the model, and records its reply with the calls that follow from it.
pub fn call_model(
    context: StepContext,
    call: ModelTurn,
    cut: Cut,
) -> impl Future<Output = StepResult> + Send + 'static {
    let (turn, briefing) = (call.turn, call.briefing.clone());
    // A future keeps room for its arguments until its end, so these are put into boxes at once: a call is awaited
    // for long, and by many.
    let context = StepContext { abandon: cut.reply, ..context };
    let chat = Box::pin(chat(Box::new(context), Box::new(call), cut.call));
    async move {
        let span = spans::turn(turn, &briefing.model.spec.name);
        chat.instrument(span).await
    }
}

async fn chat(
    context: Box<StepContext>,
    call: Box<ModelTurn>,
    cut: CancellationToken,
) -> StepResult {
    let ModelTurn {
        turn,
        message,
        delivers,
        changes,
        announcement,
        request,
        briefing,
        expected_tokens,
        call_ids,
        announced,
        counted,
        hand_over,
        ends_for,
        held,
        breaks,
        made_smaller,
        source,
    } = { *call };
    let service = &briefing.model;
    context.wait_for_disk().await?;
    let mut before = store_spills(&context, changes).await?;
    let summary = announcement.map(|Announcement { requested, durable }| {
        before.push(requested.into());
        durable
    });
    if announced.is_none() {
        if !delivers.is_empty() {
            before.push(MessageDelivered { ids: delivers, turn }.into());
        }
        before.push(TurnStarted { turn, message, hand_over, ends_for, held }.into());
    }
    let source = source.as_ref();
    let records = CallRecords {
        context: &context,
        turn,
        own: &service.spec.name,
        head_tokens: briefing.head_tokens,
        expected_tokens,
        counted,
        hand_over,
        most: None,
        before,
        durable: summary,
        made: Vec::new(),
    };
    let prefix = &briefing.prefix;
    let announced = announced.unwrap_or(0);
    let caller = Caller { records, announced, made_smaller, source, prefix };
    let mut payer = Payer::Agent(Box::new(caller));
    let (permits, services) = (&context.answers.permits, &context.services);
    // In a box, as a future is copied whole while its step starts.
    let reply = model_call::call(services, service, request, permits, &mut payer, &cut);
    let reply = Box::pin(reply).await;
    let (mut records, most) = payer.into_records();
    let Answered { mut reply, by } = match reply {
        Ok(answered) => answered,
        Err(CallError::Cancelled | CallError::Model(_)) => return Ok(records),
        Err(CallError::OverBudget(failure)) => {
            context.answers.must_end(failure);
            return Ok(records);
        }
        Err(CallError::Journal(error)) => return Err(error.into()),
    };
    if by.spec.name != service.spec.name {
        // The agent's own model could not read it.
        fallback::drop_thinking(&mut reply.message);
    }
    let (model, service) = (by.spec.name.clone(), by);
    let (usage, usage_source) = reply.usage.or_expected(expected_tokens);
    let cost_usd = service.spec.price.map(|price| price.cost(&usage));
    let unsettled = most.filter(|_| !usage_source.is_reported());
    let unsettled = unsettled.and_then(|most| most.beyond(&usage, cost_usd));
    spans::reply(&Span::current(), &usage);
    let mut message = reply::fit(reply.message, turn, &call_ids);
    if hand_over || held {
        // Nothing may be called any more, and a call without a result could not stand.
        message.content.retain(|block| !matches!(block, Block::ToolUse(_)));
    }
    let calls: Vec<_> = message.tool_calls().cloned().collect();
    // After a hand-over nothing follows.
    let broken = reply.broken.filter(|_| !hand_over).map(|error| {
        let broken = Broken { error: &error, number: breaks + 1, has_calls: !calls.is_empty() };
        if source.is_some() && broken.gives_up() {
            service.give_up();
        }
        let pause = broken.pause(&service.retry, fastrand::f64());
        call_records::broken(turn, &broken, pause)
    });
    let responded = ModelResponded {
        turn,
        model,
        message: Json::encode(&message),
        stop: reply.stop,
        usage,
        usage_source,
        cost_usd,
        unsettled,
        context: reply.context,
        repeats: reply.repeats,
    };
    let mut after: Vec<Event> = vec![responded.into()];
    for (index, call) in (0..).zip(calls) {
        let key = CallKey::derive(
            context.services.run,
            &context.agent,
            turn,
            index,
            &call.name,
            call.input.as_str(),
        );
        let effect = effect_of(&briefing.tools, &call.name);
        let (id, name, input) = (call.id, call.name, call.input);
        after.push(ToolIntended { key, turn, index, id, name, input, effect }.into());
    }
    let pause = broken.as_ref().and_then(|failed| failed.retry_in_ms);
    after.extend(broken.map(Event::from));
    records.extend(context.record(after).await?);
    crash::pass(Point::AfterIntent);
    if let Some(pause) = pause {
        // What was paid for is durable. An agent that is asked to end meanwhile learns of it first.
        tokio::select! {
            () = cut.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(pause)) => {}
        }
    }
    Ok(records)
}

/// Runs the open calls of a turn.
pub async fn run_tools(context: StepContext, calls: Vec<PendingCall>) -> StepResult {
    context.wait_for_disk().await?;
    tool_run::run(&context, calls).await
}

/// A command that is to run.
#[derive(Debug)]
pub(super) struct CommandStep {
    pub(super) program: Program,
    /// The output that the command is given.
    pub(super) given: Option<Given>,
    /// The call, if it was announced before.
    pub(super) announced: Option<PendingCall>,
}

/// Runs the command of a `run` task or of a check. Announces it first, unless it was announced
/// before. Each round of a command is a turn.
pub(super) async fn run_command(context: StepContext, command: CommandStep) -> StepResult {
    let CommandStep { program, given, announced } = command;
    let Program::Command(command) = program else { return Ok(Vec::new()) };
    let turn = context.turn + u32::from(announced.is_none());
    let context = StepContext { turn, ..context };
    context.wait_for_disk().await?;
    let given = match given {
        Some(given) => given.variables(&context.services).await?,
        None => Default::default(),
    };
    let (mut records, call) = match announced {
        Some(call) => (Vec::new(), call),
        None => announce(&context, &command).await?,
    };
    context.surroundings.may_change_files(Some(&context.agent)).await;
    let mut tool_context = tool_context::tool_context(&context, call.key.clone());
    let mut all = (*context.surroundings.env).clone();
    all.extend(command.env.clone());
    all.extend(given);
    tool_context.env = Environment::only(all);
    // The time limit of tools does not apply: a `run` task has the time limit of its task.
    tool_context.timeout = Duration::MAX;
    let mut known = context.services.lost.answer(&context.agent, context.turn, &call);
    let mut tries = 0;
    let finished = loop {
        let finished = match known.take() {
            Some(known) => known,
            None => {
                tries += 1;
                let began = Instant::now();
                let result = bash::run_task(&command, &tool_context).await;
                if call.effect.is_repeatable() && tool_run::was_cancelled(&context, &result) {
                    // It has no result, so that a resumed run runs it again.
                    return Ok(records);
                }
                ended(&context, &call, result, began.elapsed(), ToString::to_string)
            }
        };
        let begun = context.begun.load(Ordering::Relaxed);
        match unknown::resolve(&context, &call, finished, begun, tries).await {
            Resolution::Finished(finished) => break finished,
            Resolution::Again => {}
            Resolution::Open => return Ok(records),
        }
    };
    records.extend(tool_run::record_results(&context, [finished]).await?);
    Ok(records)
}

/// Announces a command as a tool call that no model made.
async fn announce(
    context: &StepContext,
    command: &Command,
) -> Result<(Vec<SharedRecord>, PendingCall), StepError> {
    let input = Json::encode(&serde_json::json!({ "command": command.run }));
    // Every command gets the key of its call, which is the same when it runs again.
    let effect = if command.idempotent { Effect::Keyed } else { Effect::Once };
    let (index, name) = (0, RUN.to_owned());
    let key = CallKey::derive(
        context.services.run,
        &context.agent,
        context.turn,
        index,
        &name,
        input.as_str(),
    );
    let call = ToolCall { id: name.clone(), name: name.clone(), input: input.clone() };
    let intended = ToolIntended {
        key: key.clone(),
        turn: context.turn,
        index,
        id: name.clone(),
        name,
        input,
        effect,
    };
    let records = context.record([intended]).await?;
    crash::pass(Point::AfterIntent);
    Ok((records, PendingCall::new(key, index, call, effect)))
}

/// Records the agent's end, and before it the results that close its open calls.
pub async fn finish(
    context: StepContext,
    closings: Vec<Event>,
    mut ended: AgentEnded,
) -> StepResult {
    ended.outcome = match ended.outcome {
        Outcome::Completed { output } => {
            Outcome::Completed { output: context.services.bounded(output).await }
        }
        Outcome::Failed { failure, partial } => {
            let partial = match partial {
                Some(output) => Some(context.services.bounded(output).await),
                None => None,
            };
            Outcome::Failed { failure, partial }
        }
        Outcome::Cancelled { reason } => Outcome::Cancelled { reason },
    };
    ended.run_by_others = context.surroundings.changed_for_others(Some(&context.agent)).await;
    ended.run_by_others_incomplete = context.surroundings.watch.is_incomplete();
    Ok(context.record(closings.into_iter().chain([Event::from(ended)])).await?)
}
