//! The summaries of one agent: has them written beside its turns or within them, and puts them into
//! its view.
//!
//! `turn_boundary` decides when one is due. At most one summary at a time is written ahead, while
//! the agent continues; at a turn boundary it is compared with the view and applied or dropped.

use std::sync::Arc;

use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{Agent, State};
use crate::actor::compaction_step::{self, Announcement, Compaction, Covered, Held};
use crate::actor::mail::AgentMsg;
use crate::actor::reserving;
use crate::actor::summarise::Source;
use crate::actor::summary::{NoSummary, SummaryAnswer, SummaryError};
use crate::actor::work::Helper;
use crate::context::layers::summary::Summary;
use crate::foreign::Panicked;
use crate::model::Request;
use crate::turn_boundary::{Ahead, ByProvider, Due, Summarise, Writer};

/// A summary that is written while the agent continues.
#[derive(Debug)]
pub(super) struct SummaryAhead {
    number: u64,
    layer: Summary,
    covered: Covered,
    /// The model that writes it, and the meter of its cost.
    source: Source,
    /// The summary, or why there is none; `None` while it is being written.
    answer: Option<SummaryAnswer>,
}

impl SummaryAhead {
    /// Returns the stage of the summary that is written ahead.
    pub(super) fn stage(ahead: Option<&Self>) -> Ahead {
        match ahead {
            None => Ahead::None,
            Some(Self { answer: None, .. }) => Ahead::Writing,
            Some(Self { answer: Some(_), .. }) => Ahead::Answered,
        }
    }
}

impl Agent {
    /// Starts a summary that is written while the agent continues. The writing waits until the turn
    /// that announces it is recorded. Returns `None` if the agent has no model.
    pub(super) fn prepare(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        due: Due,
    ) -> Option<Announcement> {
        let Due { layer, request: due, writer } = due;
        let source = self.source(state, writer)?;
        let requested = compaction_step::announced(&due, source.most());
        state.aheads += 1;
        let number = state.aheads;
        let (covered, paid) = (Covered::by(&due, source.most()), source.clone());
        let ahead = SummaryAhead { number, layer, covered, source: paid, answer: None };
        state.ahead = Some(Box::new(ahead));
        let (durable, announced) = oneshot::channel();
        let myself = myself.clone();
        let body = compaction_step::prepare(self.context(state), announced, due, source);
        state.beside.start(Helper::SummaryAhead, body, move |answer| {
            let crashed = |panic: Panicked| SummaryError::Crashed(panic.to_string());
            let answer = answer.unwrap_or_else(|panic| Err(NoSummary::from(crashed(panic))));
            // An agent that has ended needs no answer: its successor asks again.
            let _ = myself.send_message(AgentMsg::Summarised { number, answer: Box::new(answer) });
        });
        Some(Announcement { requested, durable })
    }

    /// Handles the answer to a summary that was asked for ahead.
    pub(super) fn summarised(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        number: u64,
        answer: SummaryAnswer,
    ) {
        let current = state.ahead.as_mut().filter(|ahead| ahead.number == number);
        let Some(ahead) = current else { return };
        ahead.answer = Some(answer);
        // While a step is in progress the answer waits for the next turn boundary. An agent without
        // a step waits for the summary and continues now.
        if !state.busy {
            self.advance(myself, state);
        }
    }

    /// Puts the summary that was written ahead into the view, or drops it.
    pub(super) fn take_ahead(&self, myself: &ActorRef<AgentMsg>, state: &mut State) {
        let ahead = state.ahead.take_if(|ahead| ahead.answer.is_some());
        let Some(ahead) = ahead else { return };
        let SummaryAhead { layer, covered, answer: Some(answer), .. } = *ahead else { return };
        let context = self.context(state);
        let held = Held::new(state.machine.view().clone(), &state.machine);
        self.start(myself, state, compaction_step::apply(context, layer, covered, answer, held));
    }

    /// Drops the summary that is written ahead and returns its cost so far, if it has cost anything.
    pub(super) fn drop_ahead(state: &mut State) -> Option<NoSummary> {
        let source = state.ahead.take()?.source;
        let spent = Box::new(source.cost()?);
        let error = SummaryError::TooLate;
        Some(NoSummary { error, spent: Some(spent), most: Some(source.most().into()) })
    }

    /// Starts a step that has a summary written and waits for it.
    pub(super) fn summarise(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        summarise: Summarise,
    ) {
        let Summarise { changes, due: Due { layer, request: due, writer }, view, by_provider } =
            summarise;
        let Some(mut source) = self.source(state, writer) else { return };
        if let Some(request) = by_provider.and_then(|asked| self.by_provider(state, asked)) {
            source.by_provider = Some(request);
            // A provider summarises its own conversation, so the agent's own model writes the
            // summary.
            if let Some(talk) = &state.talk {
                source.service = talk.briefing.model.clone();
            }
        }
        let held = Held::new(view, &state.machine);
        let context = self.context(state);
        let compaction = Compaction { changes, layer, due, held, source };
        self.start(myself, state, compaction_step::compact(context, compaction));
    }

    fn by_provider(&self, state: &mut State, asked: ByProvider) -> Option<Request> {
        let (turn, talk) = (state.machine.turn(), state.talk.as_mut()?);
        let ByProvider { outgoing, messages, context } = asked;
        let head = talk.briefing.head.clone();
        let request = talk.request(self.id.clone(), turn, head, &outgoing, context).ok()?;
        Some(Request { pieces: request.pieces.first(messages), ..request })
    }

    /// Returns the model that writes a summary, and the input that it reads.
    fn source(&self, state: &State, writer: Writer) -> Option<Source> {
        let briefing = &state.talk.as_ref()?.briefing;
        let (own, by_provider, meter) = (&briefing.model, None, Arc::default());
        let (service, prefix) = match writer {
            Writer::Prefix => (own.clone(), Some(briefing.clone())),
            Writer::Configured => (self.services.summariser().unwrap_or(own).clone(), None),
        };
        let head = briefing.head.0.len();
        let reservation = reserving::for_summary(&service.spec, state.machine.view(), head);
        Some(Source { service, prefix, by_provider, meter, reservation })
    }
}
