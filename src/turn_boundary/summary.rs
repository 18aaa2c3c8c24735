//! Summaries that are due: what one covers, who writes it, and what a provider is asked for that
//! writes it by itself.

use super::{Action, Boundary, Outgoing};
use crate::context::layers::pipeline::{self, AppliedEdit};
use crate::context::layers::summary::SummaryInput::SamePrefix;
use crate::context::layers::summary::writer::{CallSize, own_is_cheaper};
use crate::context::layers::summary::{Summary, SummaryRequest};
use crate::context::provider::server::ContextWork;
use crate::context::sending::validity::Last;
use crate::context::view::View;
use crate::context::{CompactionRequested, CompactionTrigger};

/// How many characters a token is taken to have where two costs are compared: as in the documented
/// presets.
const CHARS_PER_TOKEN: usize = 4;

/// Who writes a summary, and what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The agent's own model, which reads what it was sent last from its cache.
    Prefix,
    /// The model that is configured for summaries, else the agent's own, which reads the messages
    /// as text.
    Configured,
}

/// A summary that is due.
#[derive(Clone, Debug)]
pub struct Due {
    /// The layer that asks for it.
    pub layer: Summary,
    /// What is asked.
    pub request: SummaryRequest,
    /// Who writes it.
    pub writer: Writer,
}

/// A summary that the agent waits for.
#[derive(Clone, Debug)]
pub struct Summarise {
    /// The edits that are made before.
    pub changes: Vec<AppliedEdit>,
    /// The summary.
    pub due: Due,
    /// The view after those edits, which the summary is put into.
    pub view: View,
    /// What the provider is asked for, where it writes summaries by itself; tried first.
    pub by_provider: Option<ByProvider>,
}

/// A summary that the provider writes: of what the agent sent last, cut where the summary ends, so
/// that it is read from the warm cache.
#[derive(Clone, Debug)]
pub struct ByProvider {
    /// What is sent.
    pub outgoing: Outgoing,
    /// How many of its messages, from the oldest.
    pub messages: usize,
    /// What the provider is to do.
    pub context: ContextWork,
}

impl Boundary<'_> {
    /// The summary that somebody asked for, or why there is none.
    pub(super) fn summarise_as_asked(
        mut self,
        trigger: CompactionTrigger,
        focus: Option<String>,
    ) -> Action {
        let preset = self.terms.preset;
        if trigger == CompactionTrigger::Manual && pipeline::waits_for_user(&self.view, preset) {
            return Action::Defer;
        }
        // Before the summary is asked for: a change of what it covers would make it stale.
        self.leave_out_stale_thinking();
        let Some(due) = self.due(Some((trigger, focus.clone())), None) else {
            let end = self.view.next_message();
            let requested = CompactionRequested { trigger, from: end, to: end, focus };
            return Action::NothingToSummarise(requested);
        };
        if trigger == CompactionTrigger::Reactive {
            // The largest results of what the summary leaves in a view that was refused.
            let from = due.request.to;
            self.edit(|view, around| pipeline::shed(view, preset, around, from));
        }
        self.summarise(due, None)
    }

    /// Has a summary written and waits for it. `as_sent` is the view as it was sent last, where
    /// layers have changed it since.
    pub(super) fn summarise(self, due: Due, as_sent: Option<View>) -> Action {
        let by_provider = self.by_provider(&due.request, as_sent);
        let Self { changes, view, .. } = self;
        Action::Summarise(Box::new(Summarise { changes, due, view, by_provider }))
    }

    /// The summary that is due, if one is.
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

    /// The agent's own model reads its warm prefix, unless the price table says that the configured
    /// one reads all of it anew for less.
    fn writer(&self, request: &SummaryRequest) -> Writer {
        let own = self.terms.model;
        let other = self.terms.summariser.filter(|other| other.name != own.name);
        let size = CallSize {
            prefix: request.prefix_tokens,
            instruction: (request.told().len() / CHARS_PER_TOKEN) as u64,
            output: request.max_tokens,
        };
        let rides = other
            .is_none_or(|other| own_is_cheaper(own.price.as_ref(), other.price.as_ref(), &size));
        if request.input == SamePrefix && rides { Writer::Prefix } else { Writer::Configured }
    }

    fn by_provider(&self, request: &SummaryRequest, as_sent: Option<View>) -> Option<ByProvider> {
        // What was refused as too long is too long for this as well.
        if request.trigger == CompactionTrigger::Reactive {
            return None;
        }
        let context = self.strategy.summary(request.focus.as_deref())?;
        let view = as_sent.unwrap_or_else(|| self.view.clone());
        let messages = view.slots().take_while(|slot| slot.to <= request.to).count();
        let thinking = self.terms.model.thinking;
        let outgoing = Outgoing { view, message: None, last: Last::Either, thinking, room: None };
        // A view that cannot be sent is summarised by a prompt of ours.
        outgoing.check(self.terms.tools).ok()?;
        Some(ByProvider { outgoing, messages, context })
    }
}
