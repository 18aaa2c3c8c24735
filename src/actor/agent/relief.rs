//! What an agent does when its view grows large: a summary beside its turns or amid them, or less
//! without a model.
//!
//! What is due is decided in `turn_machine` and `context`; here it is done. One summary at a time is
//! written ahead, while the agent goes on; it is held against the view at a turn boundary.

use futures_util::FutureExt;
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{Agent, State};
use crate::actor::agent_steps;
use crate::actor::compaction_step::{self, Announcement, Compaction, Covered, Held};
use crate::actor::mail::AgentMsg;
use crate::actor::model_service::ModelService;
use crate::actor::panic::panic_text;
use crate::actor::summarise::{self, Source};
use crate::actor::summary::{NoSummary, SummaryAnswer, SummaryError};
use crate::context::guard::Reach;
use crate::context::layer::summary::SummaryInput::SamePrefix;
use crate::context::layer::summary::writer::{CallSize, own_is_cheaper};
use crate::context::layer::summary::{self, Summary, SummaryRequest, Urgency};
use crate::context::pipeline::{self, Change};
use crate::context::view::View;
use crate::context::{CompactionRequested, CompactionTrigger, Spent};
use crate::failure::FailureKind;
use crate::message::Json;
use crate::tool::arguments;
use crate::tool::steps::SnipInput;
use crate::turn_machine::{PendingCall, Relief};

/// How many characters a token is taken to have where two costs are compared: as in the documented
/// presets.
const CHARS_PER_TOKEN: usize = 4;

/// A summary that is written while the agent goes on.
#[derive(Debug)]
pub(super) struct Ahead {
    number: u64,
    layer: Summary,
    covered: Covered,
    /// The summary, once it is there.
    answer: Option<SummaryAnswer>,
}

/// A summary that is due.
struct Due {
    layer: Summary,
    request: SummaryRequest,
    /// The view as it was sent last, where layers have changed it since.
    as_sent: Option<View>,
}

/// What comes of an agent's view before a turn.
pub(super) enum Before {
    /// It can be sent, with these changes; a summary may be announced beside it.
    Turn(Vec<Change>, Option<Announcement>),
    /// Something else is done first.
    Other,
}

impl Agent {
    /// Sees to it that the view is no larger than it may be before it is sent.
    pub(super) fn relieve(&self, myself: &ActorRef<AgentMsg>, state: &mut State) -> Before {
        if self.apply_ahead(myself, state) {
            return Before::Other;
        }
        // What is being summarised is left alone: an edit would make the summary stale, and what it
        // edits is about to go.
        let is_written = state.ahead.is_some();
        // What was sent last is in the provider's cache: a summary reads that, whatever the layers
        // change now.
        let as_sent = self.wanted(state).map(|_| state.machine.view().clone());
        let mut changes: Vec<Change> = self.run_snip(state).into_iter().collect();
        if !is_written {
            changes.extend(self.run_cheap_layers(state));
        }
        let mut announcement = None;
        let wanted = self.wanted(state);
        let relief = state.machine.relief(wanted, is_written);
        match relief {
            Relief::Nothing | Relief::Prepare => {}
            Relief::Wait => {
                summarise::hurry(&self.services, &self.id);
                return Before::Other;
            }
            Relief::Summarise => {
                if let Some(due) = self.due(state, None, as_sent.clone()) {
                    self.compact(myself, state, changes, due);
                    return Before::Other;
                }
            }
            Relief::Digest => changes.extend(self.digest(state)),
            Relief::Halve => changes.extend(self.lessen(state)),
            Relief::Stop => {
                let reason = self.thrashing(state);
                let outcome = state.machine.failed(FailureKind::ContextOverflow, reason);
                self.finish(myself, state, outcome);
                return Before::Other;
            }
        }
        changes.extend(self.run_guard(state));
        if relief == Relief::Prepare {
            announcement = self.prepare(myself, state, as_sent);
        }
        Before::Turn(changes, announcement)
    }

    /// Drops the middle of the view, if the model asked for that.
    fn run_snip(&self, state: &mut State) -> Option<Change> {
        let keep = state.machine.snip()?;
        let preset = &self.services.compaction.preset;
        self.around(state, |view, around| pipeline::run_snip(view, preset, around, keep)).flatten()
    }

    /// Says to each call of `snip` what will come of it.
    pub(super) fn answer_snips(&self, state: &mut State, calls: &mut [PendingCall]) {
        let Some(snip) = self.services.compaction.preset.snip() else { return };
        for pending in calls.iter_mut().filter(|pending| pending.call.name == "snip") {
            let Ok(SnipInput { keep }) = arguments(&pending.call.input) else { continue };
            let snipped = self.around(state, |view, around| snip.answer(view, around, keep));
            pending.answer = snipped.map(|snipped| Json::encode(&snipped).as_str().to_owned());
        }
    }

    /// How soon a summary is wanted that nobody asked for.
    fn wanted(&self, state: &mut State) -> Option<Urgency> {
        let preset = self.preset_for(state);
        self.around(state, |view, around| pipeline::pressure(view, &preset, around)).flatten()
    }

    /// Makes the view as small as an edit is to make it, without a model.
    fn digest(&self, state: &mut State) -> Vec<Change> {
        let preset = &self.services.compaction.preset;
        let Some(layer) = pipeline::summary(preset) else { return Vec::new() };
        let digest = self.around(state, |view, around| {
            let goal = layer.pace.goal(layer.limit(around), &around.window);
            pipeline::shrink(view, preset, around, goal, Reach::Read)
        });
        digest.unwrap_or_default()
    }

    /// Makes a view that was refused smaller without a model: as its preset does it, or by half.
    fn lessen(&self, state: &mut State) -> Vec<Change> {
        let preset = &self.services.compaction.preset;
        let lessened = self.around(state, |view, around| {
            let changes = pipeline::run_reactive(view, preset, around);
            if !changes.is_empty() {
                return changes;
            }
            let half = around.tokens(view.chars()) / 2;
            pipeline::shrink(view, preset, around, half, Reach::All)
        });
        lessened.unwrap_or_default()
    }

    fn thrashing(&self, state: &State) -> String {
        let pace = pipeline::summary(&self.services.compaction.preset).map(|layer| &layer.pace);
        let (times, turns) = pace.map_or((0, 0), |pace| (pace.refill_limit, pace.summary_spacing));
        let cause = summary::largest(state.machine.view());
        format!(
            "rapid_refill_breaker: Autocompact is thrashing: the context refilled to the limit \
             within {turns} turns of the previous compact, {times} times in a row; {cause}"
        )
    }

    /// Has a summary written while the agent goes on, once the turn that announces it is recorded.
    fn prepare(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        as_sent: Option<View>,
    ) -> Option<Announcement> {
        let Due { layer, request: due, .. } = self.due(state, None, as_sent)?;
        let source = self.source(state, &due)?;
        let requested = compaction_step::announced(&due);
        state.aheads += 1;
        let number = state.aheads;
        state.ahead = Some(Ahead { number, layer, covered: Covered::by(&due), answer: None });
        let (durable, announced) = oneshot::channel();
        let myself = myself.clone();
        let body = compaction_step::prepare(self.context(state), announced, due, source);
        state.beside.spawn(async move {
            let answer = std::panic::AssertUnwindSafe(body).catch_unwind().await;
            let crashed = |text| NoSummary::from(SummaryError::Crashed(text));
            let answer = answer.unwrap_or_else(|panic| Err(crashed(panic_text(panic.as_ref()))));
            // An agent that is gone asks again when it is rebuilt.
            let _ = myself.send_message(AgentMsg::Summarised { number, answer: Box::new(answer) });
        });
        Some(Announcement { requested, durable })
    }

    /// The summary that was asked for ahead is there, or will not come.
    pub(super) fn summarised(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        number: u64,
        answer: SummaryAnswer,
    ) {
        while state.beside.try_join_next().is_some() {}
        let current = state.ahead.as_mut().filter(|ahead| ahead.number == number);
        let Some(ahead) = current else { return };
        ahead.answer = Some(answer);
        // Amid a turn it waits for the turn's end; an agent that waits for it goes on now.
        if !state.busy {
            self.advance(myself, state);
        }
    }

    /// Applies the summary that was written ahead, or drops it. False when there is none yet.
    pub(super) fn apply_ahead(&self, myself: &ActorRef<AgentMsg>, state: &mut State) -> bool {
        let Some(ahead) = state.ahead.take_if(|ahead| ahead.answer.is_some()) else { return false };
        let Ahead { layer, covered, answer: Some(answer), .. } = ahead else { return false };
        let context = self.context(state);
        let step =
            compaction_step::apply(context, layer, covered, answer, Held::by(&state.machine));
        self.start(myself, state, step);
        true
    }

    /// What a summary has cost that was written ahead and is not wanted any more.
    pub(super) fn drop_ahead(state: &mut State) -> Option<Spent> {
        match state.ahead.take()?.answer? {
            Ok(summary) => Some(summary.spent),
            Err(NoSummary { spent, .. }) => spent,
        }
    }

    /// Has the summary written that somebody asked for.
    pub(super) fn compact_as_asked(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        trigger: CompactionTrigger,
        focus: Option<String>,
    ) {
        if self.apply_ahead(myself, state) {
            return;
        }
        let waits =
            pipeline::waits_for_user(state.machine.view(), &self.services.compaction.preset);
        if trigger == CompactionTrigger::Manual && waits {
            state.machine.defer_summary();
            return self.advance(myself, state);
        }
        if let Some(due) = self.due(state, Some((trigger, focus.clone())), None) {
            let changes = match trigger {
                CompactionTrigger::Reactive => self.shed(state, due.request.to),
                CompactionTrigger::Auto | CompactionTrigger::Manual => Vec::new(),
            };
            return self.compact(myself, state, changes, due);
        }
        let end = state.machine.view().next_message();
        let requested = CompactionRequested { trigger, from: end, to: end, focus };
        let failed = compaction_step::failed(&SummaryError::NothingToCover, None);
        let context = self.context(state);
        self.start(myself, state, agent_steps::record(context, vec![requested.into(), failed]));
    }

    /// Stores the largest results of what a summary leaves in a view that was refused.
    fn shed(&self, state: &mut State, from: u64) -> Vec<Change> {
        let preset = &self.services.compaction.preset;
        let shed = self.around(state, |view, around| pipeline::shed(view, preset, around, from));
        shed.unwrap_or_default()
    }

    /// Has a summary written and waits for it. `changes` are those that the cheap layers made
    /// before.
    fn compact(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        mut changes: Vec<Change>,
        due: Due,
    ) {
        let Due { layer, request: due, as_sent } = due;
        let Some(mut source) = self.source(state, &due) else {
            return self.give_up(myself, state, "an agent without a model cannot compact");
        };
        if let Some((request, change)) = self.summary_request(state, &due, as_sent.as_ref()) {
            changes.extend(change);
            source.by_provider = Some(request);
            // A provider's summary is one of this very conversation, so its own model writes it.
            if let Some(talk) = &state.talk {
                source.service = talk.briefing.model.clone();
            }
        }
        let held = Held::by(&state.machine);
        let context = self.context(state);
        let compaction = Compaction { changes, layer, due, held, source };
        self.start(myself, state, compaction_step::compact(context, compaction));
    }

    fn due(
        &self,
        state: &mut State,
        asked: Option<(CompactionTrigger, Option<String>)>,
        as_sent: Option<View>,
    ) -> Option<Due> {
        let preset = self.preset_for(state);
        let due =
            self.around(state, |view, around| pipeline::summary_due(view, &preset, around, asked));
        let (layer, mut request) = due.flatten()?;
        if let Some(as_sent) = as_sent.as_ref().filter(|_| request.input == SamePrefix) {
            request.read_in(as_sent);
        }
        Some(Due { layer, request, as_sent })
    }

    /// Who writes the summary, and from what: the agent's own model reads its warm prefix, unless
    /// the price table says that the configured one reads all of it anew for less.
    fn source(&self, state: &State, due: &SummaryRequest) -> Option<Source> {
        let briefing = &state.talk.as_ref()?.briefing;
        let own = &briefing.model;
        let configured = self.services.compaction.model.as_ref();
        let configured = configured.and_then(|name| self.services.models.get(name)).unwrap_or(own);
        let is_own = configured.spec.name == own.spec.name;
        let rides = || is_own || is_cheaper_warm(due, own, configured);
        if due.input == SamePrefix && rides() {
            return Some(Source {
                service: own.clone(),
                prefix: Some(briefing.clone()),
                by_provider: None,
            });
        }
        Some(Source { service: configured.clone(), prefix: None, by_provider: None })
    }
}

fn is_cheaper_warm(due: &SummaryRequest, own: &ModelService, other: &ModelService) -> bool {
    let size = CallSize {
        prefix: due.prefix_tokens,
        instruction: (due.told().len() / CHARS_PER_TOKEN) as u64,
        output: due.max_tokens,
    };
    own_is_cheaper(own.spec.price.as_ref(), other.spec.price.as_ref(), &size)
}
