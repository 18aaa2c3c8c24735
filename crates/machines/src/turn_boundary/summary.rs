//! Summaries that are due: the messages that one covers, its writer, and the request to a provider
//! that writes summaries by itself.

use super::{Action, Boundary, Outgoing};
use crate::context::layers::pipeline::{self, AppliedEdit};
use crate::context::layers::summary::SummaryInput::SamePrefix;
use crate::context::layers::summary::writer::{CallSize, own_is_cheaper};
use crate::context::layers::summary::{Summary, SummaryRequest};
use crate::context::measure::CHARS_PER_TOKEN;
use crate::context::provider::server::ContextWork;
use crate::context::sending::validity::Last;
use crate::context::view::View;
use crate::context::{CompactionRequested, CompactionTrigger};

/// Writer of a summary, and the form in which it reads the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The agent's own model, which reads the last request from its cache.
    Prefix,
    /// The model that is configured for summaries, else the agent's own model; it reads the
    /// messages as text.
    Configured,
}

/// A summary that is due.
#[derive(Clone, Debug)]
pub struct Due {
    /// Layer that asks for the summary.
    pub layer: Summary,
    /// Request for the summary.
    pub request: SummaryRequest,
    /// Writer of the summary.
    pub writer: Writer,
}

/// A summary that the agent waits for.
#[derive(Clone, Debug)]
pub struct Summarise {
    /// Edits that come before the summary.
    pub changes: Vec<AppliedEdit>,
    /// The summary.
    pub due: Due,
    /// View after those edits, into which the summary is put.
    pub view: View,
    /// Request to a provider that writes summaries by itself, if it does; tried first.
    pub by_provider: Option<ByProvider>,
}

/// A summary that the provider writes. It reads the agent's last request, cut where the summary
/// ends, so that the provider finds it in its cache.
#[derive(Clone, Debug)]
pub struct ByProvider {
    /// View that is sent.
    pub outgoing: Outgoing,
    /// Number of its messages to send, from the oldest.
    pub messages: usize,
    /// Work that the provider is asked for.
    pub context: ContextWork,
}

impl Boundary<'_> {
    /// Returns the action for a summary that somebody asked for.
    pub(super) fn summarise_as_asked(
        mut self,
        trigger: CompactionTrigger,
        focus: Option<String>,
    ) -> Action {
        let preset = self.terms.preset;
        if trigger == CompactionTrigger::Manual && pipeline::waits_for_user(&self.view, preset) {
            return Action::Defer;
        }
        // This comes before the summary is requested: a change of the messages that it covers would
        // make it stale.
        self.leave_out_stale_thinking();
        let Some(due) = self.due(Some((trigger, focus.clone())), None) else {
            let end = self.view.next_message();
            let requested = CompactionRequested { most: None, trigger, from: end, to: end, focus };
            return Action::NothingToSummarise(requested);
        };
        if trigger == CompactionTrigger::Reactive {
            // A refused request was too long: take out the largest results of the part that the
            // summary leaves.
            let from = due.request.to;
            self.edit(|view, around| pipeline::shed(view, preset, around, from));
        }
        self.summarise(due, None)
    }

    /// Returns the action that has a summary written and waits for it. `as_sent` is the view as it
    /// was sent last, if layers have changed it since.
    pub(super) fn summarise(self, due: Due, as_sent: Option<View>) -> Action {
        let by_provider = self.by_provider(&due.request, as_sent);
        let Self { changes, view, .. } = self;
        Action::Summarise(Box::new(Summarise { changes, due, view, by_provider }))
    }

    /// Returns the summary that is due, if there is one.
    pub(super) fn due(
        &self,
        asked: Option<(CompactionTrigger, Option<String>)>,
        as_sent: Option<&View>,
    ) -> Option<Due> {
        let preset = self.client_preset();
        let due = self.ask(|view, around| pipeline::summary_due(view, &preset, around, asked));
        let (layer, mut request) = due?;
        if let Some(as_sent) = as_sent.filter(|_| request.input == SamePrefix) {
            request.read_in(as_sent);
        }
        let writer = self.writer(&request);
        Some(Due { layer, request, writer })
    }

    /// Chooses the writer: the agent's own model, which finds its last request in the cache, unless
    /// by the price table the configured model costs less although it reads everything anew.
    fn writer(&self, request: &SummaryRequest) -> Writer {
        let own = self.terms.model;
        let other = self.terms.summariser.filter(|other| other.name != own.name);
        let size = CallSize {
            prefix: request.prefix_tokens,
            instruction: request.whole_instruction().len() as u64 / CHARS_PER_TOKEN,
            output: request.max_tokens,
        };
        let rides = other
            .is_none_or(|other| own_is_cheaper(own.price.as_ref(), other.price.as_ref(), &size));
        if request.input == SamePrefix && rides { Writer::Prefix } else { Writer::Configured }
    }

    fn by_provider(&self, request: &SummaryRequest, as_sent: Option<View>) -> Option<ByProvider> {
        // A request that was refused as too long is too long for the provider's summary too.
        if request.trigger == CompactionTrigger::Reactive {
            return None;
        }
        let context = self.strategy.summary(request.focus.as_deref())?;
        let view = as_sent.unwrap_or_else(|| self.view.clone());
        let messages = view.slots().take_while(|slot| slot.to <= request.to).count();
        let thinking = self.terms.model.thinking;
        let outgoing =
            Outgoing { beside: None, view, message: None, last: Last::Either, thinking, fit: None };
        // If the view cannot be sent as it is, a prompt of this program asks for the summary.
        outgoing.check(self.terms.tools).ok()?;
        Some(ByProvider { outgoing, messages, context })
    }
}
