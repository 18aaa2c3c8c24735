//! A model call under way, and one attempt of it: sends the request, passes the parts of the reply on as they
//! come, and reports the end to the call's machine and to the gateway.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::gateway::Permit;
use super::meter::Meter;
use super::model_service::{Chain, ModelService};
use super::services::Services;
use super::warm_up::Prefix;
use crate::call_machine::{Call, CallMachine, Form, Input, Step};
use crate::id::AgentId;
use crate::loops::text::{Repeated, Repetition};
use crate::message::{Message, StopReason, Usage};
use crate::model::{Delta, ErrorClass, ModelError, Reply, Request};
use crate::redaction::LiveRedactor;

/// A call under way: its machine, and the models that it may use.
pub(super) struct UnderWay<'a> {
    machine: CallMachine,
    chain: Chain<'a>,
}

impl<'a> UnderWay<'a> {
    /// Begins a call.
    pub(super) fn new(call: Call, chain: Chain<'a>) -> Self {
        let machine = CallMachine::new(call, &chain, Instant::now().into_std());
        Self { machine, chain }
    }

    /// Returns the first step.
    pub(super) fn first(&mut self) -> Step {
        self.machine.first()
    }

    /// Returns the step that follows.
    pub(super) fn next(&mut self, input: Input) -> Step {
        self.machine.next(&self.chain, Instant::now().into_std(), input)
    }

    /// Returns the form of the request that is sent next.
    pub(super) fn form(&self) -> Form {
        self.machine.form()
    }

    /// Returns the model that is called next.
    pub(super) fn service(&self) -> &'a ModelService {
        self.at(self.form().place)
    }

    /// Returns the model at this place.
    pub(super) fn at(&self, place: usize) -> &'a ModelService {
        self.chain.at(place)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.machine.dropped(&self.chain);
    }
}

/// The request of an attempt, and who makes it.
#[derive(Clone, Copy)]
pub(super) struct Try<'a> {
    pub(super) request: &'a Request,
    /// Ends the call.
    pub(super) abandon: &'a CancellationToken,
    pub(super) agent: Option<&'a AgentId>,
    pub(super) prefix: Option<&'a Prefix>,
    pub(super) meter: &'a Meter,
    /// The tokens that the request is expected to hold.
    pub(super) expected: u64,
    /// True if a reply that repeats one text over and over is cut.
    pub(super) is_watched: bool,
}

/// Makes the attempt; returns the next step, and the reply if there is one. If it is cut, the meter knows what it
/// cost.
pub(super) async fn send(
    services: &Services,
    call: &mut UnderWay<'_>,
    permit: Option<Permit<'_>>,
    one: Try<'_>,
) -> (Step, Option<Reply>) {
    let Some(permit) = permit else {
        let error = ModelError::new(ErrorClass::Connection, "the provider has no gateway");
        let error = ModelError { never_sent: true, ..error };
        return (call.next(Input::Failed { error, chance: fastrand::f64() }), None);
    };
    let Some(result) = exchange(services, call, &permit, one).await else {
        return (call.next(Input::Cancelled), None);
    };
    let (input, end, reply) = match result {
        Ok(reply) => {
            one.meter.end(reply.usage.or_expected(one.expected).0);
            (Input::Replied, call.machine.end_of_reply(&reply.stop, &reply.usage), Some(reply))
        }
        Err(error) => {
            let end = call.machine.end_of_error(&error);
            (Input::Failed { error, chance: fastrand::f64() }, end, None)
        }
    };
    let step = call.next(input);
    // A model that is given up is so before another call gets the permit.
    permit.finish(end);
    (step, reply)
}

/// Sends the request and receives the reply. Returns `None` if the attempt was cut.
async fn exchange(
    services: &Services,
    call: &mut UnderWay<'_>,
    permit: &Permit<'_>,
    one: Try<'_>,
) -> Option<Result<Reply, ModelError>> {
    let Try { request, abandon, agent, prefix, meter, expected, is_watched } = one;
    let service = call.service();
    if abandon.is_cancelled() {
        return None;
    }
    let secrets = &services.secrets;
    let mut live = LiveRedactor::new(secrets);
    // The head of a stream may come before the prompt is read; its first event does not.
    let mut unread = prefix;
    let mut said = is_watched.then(Said::default);
    let repeats = CancellationToken::new();
    let mut arrived = |delta: Delta<'_>| {
        if let (Delta::Text(text), Some(said)) = (&delta, &mut said)
            && said.repeats(text)
        {
            repeats.cancel();
        }
        if let Delta::Taken(allowance) = delta {
            call.machine.taken(&call.chain);
            permit.taken(allowance);
        } else if let Delta::Spent(usage) = delta {
            return meter.report(usage);
        } else if let Some(prefix) = unread.take() {
            prefix.begun();
        }
        let Some(agent) = agent else { return };
        let text = match delta {
            Delta::Text(text) => live.push(text),
            Delta::Tool(_) => live.finish(),
            Delta::Taken(_) | Delta::Spent(_) | Delta::Alive => String::new(),
        };
        if !text.is_empty() {
            services.watcher.arrived(agent, Delta::Text(&text));
        }
        match delta {
            Delta::Text(_) if text.is_empty() => services.watcher.arrived(agent, Delta::Alive),
            Delta::Text(_) => {}
            Delta::Tool(_) | Delta::Alive => services.watcher.arrived(agent, delta),
            Delta::Taken(_) | Delta::Spent(_) => {}
        }
    };
    meter.begin(expected);
    let mut result = tokio::select! {
        () = abandon.cancelled() => return None,
        () = repeats.cancelled() => Ok(Reply::new(Message::assistant(""), StopReason::EndTurn, Usage::default())),
        result = service.model.call(request.clone(), &mut arrived) => result,
    };
    // Also if the reply ended by itself in the same moment.
    if let Some(cut) = said.and_then(|said| said.cut(meter.reported())) {
        result = Ok(cut);
    }
    if let Some(prefix) = unread.filter(|_| result.is_ok()) {
        prefix.begun();
    }
    let rest = live.finish();
    if let Some(agent) = agent.filter(|_| !rest.is_empty()) {
        services.watcher.arrived(agent, Delta::Text(&rest));
    }
    // A server knows the key and the headers that it is sent, and may repeat them.
    match &mut result {
        Ok(reply) => reply.redact(secrets),
        Err(error) => secrets.redact(&mut error.message),
    }
    if let Some(agent) = agent {
        services.watcher.ended(agent);
    }
    Some(result)
}

/// The text of a reply so far, which is watched for one that repeats itself.
#[derive(Debug, Default)]
struct Said {
    text: String,
    repetition: Repetition,
    repeated: Option<Repeated>,
}

impl Said {
    /// Takes in the next piece. Returns true once the text repeats itself.
    fn repeats(&mut self, piece: &str) -> bool {
        if self.repeated.is_none() {
            self.text.push_str(piece);
            self.repeated = self.repetition.push(piece);
        }
        self.repeated.is_some()
    }

    /// Returns the reply that is left of one that was cut: the text with two of the repetitions. `None` if the text
    /// did not repeat itself.
    fn cut(mut self, usage: Usage) -> Option<Reply> {
        let Repeated { print, surplus } = self.repeated?;
        let end = self.text.floor_char_boundary(self.text.len().saturating_sub(surplus));
        self.text.truncate(end);
        self.text.push_str(" ...");
        let stop = StopReason::Other("cut, because it repeated one text over and over".to_owned());
        let reply = Reply::new(Message::assistant(self.text), stop, usage);
        Some(Reply { repeats: Some(print), ..reply })
    }
}
