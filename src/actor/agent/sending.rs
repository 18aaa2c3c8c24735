//! What an agent sends: its requests, made of checked views, and what they leave to the provider.
//!
//! Decides nothing by itself: `context::strategy` chooses who does what.

use std::borrow::Cow;

use super::{Agent, State, Talk};
use crate::actor::fit;
use crate::context::layer::summary::SummaryRequest;
use crate::context::pipeline::Change;
use crate::context::preset::Preset;
use crate::context::rules::Rule;
use crate::context::server::ContextWork;
use crate::context::strategy::{self, ClientLayers, Strategy};
use crate::context::validity::{self, Last, Rules};
use crate::context::view::View;
use crate::context::{CompactionTrigger, thinking};
use crate::failure::FailureKind;
use crate::message::Json;
use crate::model::Request;
use crate::spec::Thinking;
use crate::turn::Outcome;

/// How often in a row a provider may stop after a summary and nothing else. The second time it made
/// no headway, so the next request asks for a plain reply.
const MOST_PAUSES: u32 = 2;

impl Agent {
    /// The strategy for the agent's next call.
    fn strategy(&self, state: &State) -> Option<Strategy> {
        let service = &state.talk.as_ref()?.briefing.model;
        let compaction = &self.services.compaction;
        let (settings, preference) = (&compaction.strategy, compaction.preset.preference);
        let spec = &service.spec;
        let room = spec.context_window.saturating_sub(spec.max_output_tokens);
        Some(strategy::choose(settings, preference, room, &service.abilities.now()))
    }

    /// The run's preset without the layers whose work the provider does.
    pub(super) fn preset_for(&self, state: &State) -> Cow<'_, Preset> {
        let layers = self.strategy(state).map_or(ClientLayers::All, |strategy| strategy.layers());
        layers.of(&self.services.compaction.preset)
    }

    /// What a request for a reply asks of the provider beside it.
    fn work(&self, state: &State) -> ContextWork {
        match self.strategy(state) {
            Some(strategy) if state.machine.provider().pauses < MOST_PAUSES => strategy.work(),
            Some(_) | None => ContextWork::Nothing,
        }
    }

    pub(super) fn leave_out_stale_thinking(&self, state: &mut State) -> Option<Change> {
        let spec = &state.talk.as_ref()?.briefing.model.spec;
        let is_bound = spec.thinking == Thinking::Bound;
        is_bound.then(|| thinking::leave_out_stale(state.machine.view_mut())).flatten()
    }

    /// The request of this turn, or how the agent ends without one. A prompt of many megabytes is a
    /// failure, not a bill; a view that breaks another rule is a defect, and never sent.
    pub(super) fn request(
        &self,
        state: &mut State,
        turn: u32,
        message: Option<&Json>,
    ) -> Result<Request, Outcome> {
        let context = self.work(state);
        let machine = &state.machine;
        let Some(talk) = state.talk.as_mut() else {
            let reason = "an agent without a model cannot call one";
            return Err(machine.failed(FailureKind::Internal, reason));
        };
        let head = talk.head(machine.view());
        let Talk { briefing, rendering, .. } = talk;
        let spec = &briefing.model.spec;
        let rules = Rules {
            tools: &briefing.tool_names,
            last: if machine.is_paused() { Last::Either } else { Last::User },
            thinking: spec.thinking,
            room: self.services.compaction.preset.guard.then(|| fit::room(briefing, machine)),
        };
        let sendable = validity::check(machine.view(), message, &rules).map_err(|invalid| {
            debug_assert_eq!(invalid.rule(), Rule::Fits, "{invalid}");
            machine.failed(invalid.kind(), invalid.to_string())
        })?;
        Ok(Request {
            agent: briefing.spec.name.clone(),
            agent_id: self.id.clone(),
            turn,
            head,
            pieces: rendering.render(&sendable, &*briefing.model.model),
            max_output_tokens: fit::output_limit(briefing, machine),
            context,
        })
    }

    /// The request for a summary by the provider, if the strategy leaves it to it: what the agent
    /// sent last, cut where the summary ends, so that it is read from the warm cache. With it the
    /// change that makes it sendable, if one was needed.
    pub(super) fn summary_request(
        &self,
        state: &mut State,
        due: &SummaryRequest,
        as_sent: Option<&View>,
    ) -> Option<(Request, Option<Change>)> {
        // What was refused as too long is too long for this as well.
        if due.trigger == CompactionTrigger::Reactive {
            return None;
        }
        let context = self.strategy(state)?.summary(due.focus.as_deref())?;
        let change = match as_sent {
            Some(_) => None,
            None => self.leave_out_stale_thinking(state),
        };
        let machine = &state.machine;
        let view = as_sent.unwrap_or(machine.view());
        let covered = view.slots().take_while(|slot| slot.to <= due.to).count();
        let Talk { briefing, rendering, .. } = state.talk.as_mut()?;
        let spec = &briefing.model.spec;
        let rules = Rules {
            tools: &briefing.tool_names,
            last: Last::Either,
            thinking: spec.thinking,
            room: None,
        };
        let sendable = validity::check(view, None, &rules).ok()?;
        let pieces = rendering.render(&sendable, &*briefing.model.model);
        let request = Request {
            agent: briefing.spec.name.clone(),
            agent_id: self.id.clone(),
            turn: machine.turn(),
            head: briefing.head.clone(),
            pieces: pieces.first(covered),
            max_output_tokens: spec.max_output_tokens,
            context,
        };
        Some((request, change))
    }
}
