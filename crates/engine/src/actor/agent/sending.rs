//! Makes the requests of an agent from checked views, and starts the step that sends them.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;

use super::{Agent, State};
use crate::actor::agent_steps::{self, ModelTurn};
use crate::actor::briefing::Briefing;
use crate::actor::fallback::Source;
use crate::actor::mail::AgentMsg;
use crate::actor::step::Cut;
use crate::context::measure::Doubt;
use crate::context::provider::server::ContextWork;
use crate::context::sending::validity::Invalid;
use crate::context::view::View;
use crate::id::AgentId;
use crate::journal::stamp;
use crate::model::{Head, Rendering, Request};
use crate::turn_boundary::{Outgoing, Sending};
use crate::turn_machine::Machine;

/// The provider's count is doubted aloud if it is this many times smaller than expected: such a
/// difference is not chance.
const FAR_LESS: u64 = 2;

/// The parts that an agent needs to talk with a model.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) briefing: Arc<Briefing>,
    /// The view as it was last rendered.
    rendering: Rendering,
    /// The last front that contained a block of the view in its system prompt, with that block.
    front: Option<(String, Head)>,
}

impl Talk {
    pub(super) fn new(briefing: Arc<Briefing>) -> Self {
        Self { briefing, rendering: Rendering::default(), front: None }
    }

    /// Returns the front of a request for this view.
    fn head(&mut self, view: &View) -> Head {
        let Briefing { model, system, tools, head, .. } = &*self.briefing;
        let Some(block) = view.system().filter(|block| !block.is_empty()) else {
            return head.clone();
        };
        match &self.front {
            Some((known, head)) if known == block => head.clone(),
            _ => {
                let head = model.model.head_with_context(&model.spec, system, block, tools);
                self.front = Some((block.to_owned(), head.clone()));
                head
            }
        }
    }

    /// Returns what a request is rendered from, if it may be rendered for another model.
    fn source(&self, outgoing: &Outgoing) -> Option<Source> {
        let Briefing { model, system, tools, tool_names, .. } = &*self.briefing;
        if model.spec.fallbacks.is_empty() {
            return None;
        }
        let sendable = outgoing.check(tool_names).ok()?;
        let messages = sendable.messages().map(|message| message.json()).collect();
        let context = outgoing.view.system().unwrap_or_default().to_owned();
        Source::of(system.clone(), context, tools.clone(), messages)
    }

    /// Makes the request that sends a view, behind this front.
    pub(super) fn request(
        &mut self,
        agent_id: AgentId,
        turn: u32,
        head: Head,
        outgoing: &Outgoing,
        context: ContextWork,
    ) -> Result<Request, Invalid> {
        let Briefing { model, spec, tool_names, .. } = &*self.briefing;
        let sendable = outgoing.check(tool_names)?;
        Ok(Request {
            agent: spec.name.local(),
            agent_id,
            turn,
            head,
            pieces: self.rendering.render(&sendable, &*model.model, &model.spec.media),
            max_output_tokens: model.spec.max_output_tokens,
            context,
            no_calls: false,
            answer_schema: None,
        })
    }
}

impl Agent {
    pub(super) fn call_model(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        sending: Sending,
    ) {
        let Some(talk) = state.talk.as_mut() else { return };
        let Sending { turn, outgoing, context, .. } = sending;
        // What is handed over amid the work need not be whole.
        let schema = state.machine.spawned().answer_schema.clone();
        let is_answer = !sending.hand_over && !sending.held;
        let schema = schema.filter(|_| is_answer);
        let head = talk.head(&outgoing.view);
        let request = match talk.request(self.id.clone(), turn, head, &outgoing, context) {
            Ok(request) => Request {
                max_output_tokens: sending.max_output_tokens,
                // Without tools there is nothing to forbid, and providers refuse the field.
                no_calls: !is_answer && !talk.briefing.tools.is_empty(),
                answer_schema: schema.filter(|_| talk.briefing.model.holds_to_schema()),
                ..request
            },
            Err(invalid) => {
                let outcome = state.machine.failed(invalid.kind(), invalid.to_string());
                return self.finish(myself, state, outcome);
            }
        };
        let source = talk.source(&outgoing);
        let briefing = talk.briefing.clone();
        let announcement = sending.prepare.map(|due| self.prepare(myself, state, due));
        let call = ModelTurn {
            turn,
            message: outgoing.message.or(outgoing.beside),
            delivers: sending.delivers,
            changes: sending.changes,
            announcement: announcement.flatten(),
            request: Box::new(request),
            briefing,
            expected_tokens: sending.expected_tokens,
            call_ids: state.machine.call_ids(),
            announced: state.machine.announced(),
            counted: sending.counted,
            hand_over: sending.hand_over,
            ends_for: sending.ends_for,
            held: sending.held,
            breaks: state.machine.breaks(),
            made_smaller: sending.made_smaller,
            source,
        };
        let context = self.context(state);
        state.cut = Cut::of(&state.cancel, &state.abandon);
        let call = agent_steps::call_model(context, call, state.cut.clone());
        self.start(myself, state, call);
        state.is_calling = true;
    }
}

/// Returns the time since a recorded moment. It is wall time, because the provider's cache expires
/// by wall time.
pub(super) fn since(ts_ms: Option<i64>) -> Duration {
    let passed = ts_ms.map_or(0, |ts_ms| stamp::now_ms().saturating_sub(ts_ms));
    Duration::from_millis(u64::try_from(passed).unwrap_or(0))
}

/// Warns once for each definition if its provider counts far fewer tokens than were sent.
pub(super) fn warn_of_doubt(briefing: &Briefing, machine: &Machine) {
    if let Some(Doubt { reported, expected }) = machine.measure().doubt()
        && reported.saturating_mul(FAR_LESS) < expected
    {
        briefing.doubt.call_once(|| {
            tracing::warn!(
                model = %briefing.model.spec.name,
                reported,
                expected,
                "the provider reported far fewer input tokens than were sent: it may truncate requests; \
                 check `context_window`"
            );
        });
    }
}
