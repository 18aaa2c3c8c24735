//! The turn boundary: decides an agent's next action, and the edits that fit its view to the next
//! request.
//!
//! Pure. [`next`] reads an agent's state, folded from its records, and tries the edits of the
//! layers, the guard and the provider's strategy on a copy of the view. It does not change the
//! state: the agent records the edits, and applies them when they are recorded, live as on a
//! resume.

mod relief;
mod size;
mod summary;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

pub use self::size::LEAST_OUTPUT_TOKENS;
use self::size::Size;
pub use self::summary::{ByProvider, Due, Summarise, Writer};
use crate::context::CompactionRequested;
use crate::context::layers::Surroundings;
use crate::context::layers::pipeline::AppliedEdit;
use crate::context::layers::preset::Preset;
use crate::context::provider::compaction_block;
use crate::context::provider::server::ContextWork;
use crate::context::provider::strategy::{self, Strategy, StrategySettings};
use crate::context::sending::repair;
use crate::context::sending::thinking;
use crate::context::sending::validity::{self, Fit, Invalid, Last, Rules, Sendable};
use crate::context::view::View;
use crate::context::view::rules::Rule;
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::message::{Json, Message};
use crate::messages::MessageId;
use crate::own_tool::OwnCall;
use crate::spec::capability::Capabilities;
use crate::spec::{ModelSpec, Thinking};
use crate::turn::Outcome;
use crate::turn_machine::{Counted, Machine, Mail, PendingCall, Step};

/// Most times in a row that a provider may stop after a summary and nothing else. A second such
/// stop made no headway, so the next request asks for a plain reply.
const MOST_PAUSES: u32 = 2;

/// Conditions of an agent's requests: its configuration, its model and the time.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Layers and their constants.
    pub preset: &'a Preset,
    /// Work on the context that is left to providers.
    pub strategy: &'a StrategySettings,
    /// Model of the agent.
    pub model: &'a ModelSpec,
    /// Known capabilities of the model's provider.
    pub capabilities: &'a Capabilities,
    /// Names of the tools that the requests offer, sorted.
    pub tools: &'a [Name],
    /// Model that is configured for summaries, if there is one.
    pub summariser: Option<&'a ModelSpec>,
    /// Path of the agent's transcript, as markers name it.
    pub transcript: &'a str,
    /// Folder of the stored results, as markers name it.
    pub results: &'a str,
    /// Time since the last request.
    pub idle: Duration,
}

/// State of a summary that is written while the agent continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// There is none.
    None,
    /// It is being written.
    Writing,
    /// It is written, or it is known that it will not come.
    Answered,
}

/// The next action of an agent.
#[derive(Clone, Debug)]
pub enum Action {
    /// Record these repairs of a view that was rebuilt, if there are any, and decide again.
    LookedOver(Vec<Event>),
    /// Record these events and decide again.
    Record(Vec<Event>),
    /// Put the summary that was written ahead into the view, or drop it.
    TakeAhead,
    /// Wait for the summary that is being written ahead.
    AwaitAhead,
    /// Have a summary written and wait for it.
    Summarise(Box<Summarise>),
    /// Defer the requested summary until a user speaks.
    Defer,
    /// Record that there is nothing to summarise.
    NothingToSummarise(CompactionRequested),
    /// Call the model.
    Send(Box<Sending>),
    /// Run these calls, which have no result yet.
    RunTools(Vec<PendingCall>),
    /// Run the agent's command: the call, if it was announced before.
    RunCommand(Option<PendingCall>),
    /// Record the end.
    Finish(Outcome),
    /// Nothing: the end is recorded.
    Rest,
}

impl Action {
    /// Returns true if the agent ends because its request does not fit the window.
    fn is_too_large(&self) -> bool {
        match self {
            Self::Send(sending) => sending.outgoing.fit.is_some_and(|fit| !fit.holds()),
            Self::Finish(Outcome::Failed { failure, .. }) => {
                failure.kind == FailureKind::ContextOverflow
            }
            _ => false,
        }
    }
}

/// A model call that is to be made.
#[derive(Clone, Debug)]
pub struct Sending {
    /// Number of the turn that the call begins, or of the present turn if the call is made again.
    pub turn: u32,
    /// View that is sent, with the message that joins it first.
    pub outgoing: Outgoing,
    /// The messages to the agent that stand in that message.
    pub delivers: Vec<MessageId>,
    /// Edits that made the view, in order.
    pub changes: Vec<AppliedEdit>,
    /// Summary that is to be written meanwhile.
    pub prepare: Option<Due>,
    /// Work on the context that the provider is asked for.
    pub context: ContextWork,
    /// Most tokens of the reply.
    pub max_output_tokens: u64,
    /// Tokens that the request is expected to hold.
    pub expected_tokens: u64,
    /// What the provider has counted of it.
    pub counted: Option<Counted>,
    /// True if the reply hands over what there is, because the turns are used up or something else ends the agent.
    pub hand_over: bool,
    /// The failure for which the agent ends after it, if it is not that its turns are used up.
    pub ends_for: Option<Failure>,
    /// True if the reply may call no tool, because the agent goes in circles.
    pub held: bool,
    /// True if the request before was refused as too long, and this one is smaller.
    pub made_smaller: bool,
}

/// A view that is about to be sent, with the rules that it must keep.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// View of the conversation.
    pub view: View,
    /// User message that joins the view first.
    pub message: Option<Json>,
    /// User message that has joined the last one of the view.
    pub beside: Option<Json>,
    last: Last,
    thinking: Thinking,
    fit: Option<Fit>,
}

impl Outgoing {
    /// Checks the view against the rules for what may be sent. This stops a prompt of many
    /// megabytes before it costs anything.
    ///
    /// # Errors
    /// Returns the rule that is broken. Any rule but [`Rule::Fits`] is a defect of this program.
    pub fn check<'a>(&'a self, tools: &'a [Name]) -> Result<Sendable<'a>, Invalid> {
        let Self { last, thinking, fit, .. } = *self;
        let rules = Rules { tools, last, thinking, fit };
        let checked = validity::check(&self.view, self.message.as_ref(), &rules);
        checked.inspect_err(|invalid| debug_assert_eq!(invalid.rule(), Rule::Fits, "{invalid}"))
    }
}

/// Returns the next action of an agent. `terms` are absent for an agent that runs one command.
/// `is_rebuilt` is true if the view was rebuilt from records, of whatever version, and was not
/// checked since.
#[must_use]
pub fn next(
    machine: &Machine,
    terms: Option<&Terms<'_>>,
    ahead: Ahead,
    is_rebuilt: bool,
) -> Action {
    if let Some(step) = machine.loop_step() {
        return Action::Record(vec![step]);
    }
    let begin = |terms, mail| Boundary::begin(machine, terms, mail, ahead, is_rebuilt);
    let mail = terms.and_then(|terms| machine.mail(terms.model.context_window));
    match (machine.next(), terms) {
        (Step::CallModel { turn, message }, Some(terms)) => {
            let may_wait = mail.as_ref().is_some_and(|mail| !mail.follows_answer);
            let call = |mail| {
                let call = |at: Boundary<'_>| at.before_turn(turn, message.clone(), ahead);
                begin(terms, mail).map_or_else(|first| *first, call)
            };
            match call(mail) {
                // Messages never end an agent: they wait for a turn that has space for them.
                action if may_wait && action.is_too_large() => call(None),
                action => action,
            }
        }
        (Step::Compact { trigger, focus }, Some(terms)) => begin(terms, mail)
            .map_or_else(|first| *first, |at| at.summarise_as_asked(trigger, focus)),
        (Step::CallModel { .. } | Step::Compact { .. }, None) => {
            let reason = "an agent without a model cannot call one";
            Action::Finish(machine.failed(FailureKind::Internal, reason))
        }
        (Step::RunTools(mut calls), terms) => {
            if let Some(terms) = terms {
                Boundary::new(machine, terms, None).answer(&mut calls);
            }
            Action::RunTools(calls)
        }
        (Step::RunCommand(announced), _) => Action::RunCommand(announced),
        (Step::Finish(outcome), _) => Action::Finish(outcome),
        (Step::Rest, _) => Action::Rest,
    }
}

fn events(changes: Vec<AppliedEdit>) -> Vec<Event> {
    changes.into_iter().map(|change| change.edited.into()).collect()
}

/// One agent between two turns: a copy of its view, and the edits made on the copy.
struct Boundary<'a> {
    machine: &'a Machine,
    terms: &'a Terms<'a>,
    strategy: Strategy,
    size: Size<'a>,
    view: View,
    /// The messages that join the view with the next turn.
    mail: Option<Mail>,
    changes: Vec<AppliedEdit>,
}

impl<'a> Boundary<'a> {
    fn new(machine: &'a Machine, terms: &'a Terms<'a>, mail: Option<Mail>) -> Self {
        let Terms { preset, strategy, model, capabilities, .. } = *terms;
        let input_tokens = model.context_window.saturating_sub(model.max_output_tokens);
        let strategy = strategy::choose(strategy, preset.preference, input_tokens, capabilities);
        let size = Size::new(machine, model, mail.as_ref());
        let view = machine.view().clone();
        Self { machine, terms, strategy, size, view, mail, changes: Vec::new() }
    }

    /// Returns the boundary at which a request can be made, or the action that must come first.
    fn begin(
        machine: &'a Machine,
        terms: &'a Terms<'a>,
        mail: Option<Mail>,
        ahead: Ahead,
        is_rebuilt: bool,
    ) -> Result<Self, Box<Action>> {
        let mut at = Self::new(machine, terms, mail);
        if is_rebuilt {
            return Err(Action::LookedOver(events(repair::repair_with(&mut at.view))).into());
        }
        match (compaction_block::adopt(&mut at.view), ahead) {
            (adopted, _) if !adopted.is_empty() => Err(Action::Record(events(adopted)).into()),
            (_, Ahead::Answered) => Err(Action::TakeAhead.into()),
            (_, Ahead::None | Ahead::Writing) => Ok(at),
        }
    }

    /// Returns the preset without the layers whose work the provider does.
    fn client_preset(&self) -> Cow<'a, Preset> {
        self.strategy.layers().of(self.terms.preset)
    }

    /// Lets a part of the pipeline edit the view, and keeps its edits.
    fn edit(&mut self, work: impl FnOnce(&mut View, &Surroundings<'_>) -> Vec<AppliedEdit>) {
        let state = self.machine.inventory().state();
        let around = self.size.surroundings(self.terms, &self.view, state.as_deref());
        self.changes.extend(work(&mut self.view, &around));
    }

    /// Asks a part of the pipeline about the view.
    fn ask<T>(&self, question: impl FnOnce(&View, &Surroundings<'_>) -> T) -> T {
        let state = self.machine.inventory().state();
        question(&self.view, &self.size.surroundings(self.terms, &self.view, state.as_deref()))
    }

    fn leave_out_stale_thinking(&mut self) {
        if self.terms.model.thinking == Thinking::Bound {
            self.changes.extend(thinking::leave_out_stale(&mut self.view));
        }
    }

    /// Prepares the view as a request for a reply.
    fn outgoing(&self, message: Option<Json>) -> Outgoing {
        let mut view = self.view.clone();
        let beside = message.clone().filter(|_| view.ends_with_user());
        if let Some(json) = &beside
            && let Ok(read) = Message::read(json.as_str())
        {
            view.push_beside(json.clone(), &read);
        }
        let message = message.filter(|_| beside.is_none());
        let last = if self.machine.is_paused() { Last::Either } else { Last::User };
        let fit = self.terms.preset.guard.then(|| self.size.fit(&self.view));
        let thinking = self.terms.model.thinking;
        Outgoing { view, message, beside, last, thinking, fit }
    }

    /// Sets the answers that only the agent itself can give: the result of a `snip`, and the
    /// earlier read that a read repeats, if its result is still in the view.
    fn answer(&self, calls: &mut [PendingCall]) {
        let (preset, reads) = (self.terms.preset, self.machine.inventory().reads());
        for pending in calls {
            if let (Some(OwnCall::Snip(asked)), Some(snip)) = (pending.callee.call(), preset.snip())
            {
                let snipped = self.ask(|view, around| snip.answer(view, around, asked.keep));
                pending.answer = Some(Json::encode(&snipped).as_str().to_owned());
            } else if pending.call.name == "read_file" && preset.unchanged_stub {
                pending.repeats = reads.repeated(&pending.call, &self.view);
            }
        }
    }
}
