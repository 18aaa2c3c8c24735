//! Fits an agent's next request into its model's window: measured before every call, of children
//! as of any other agent.
//!
//! Decides nothing by itself: the measure says how much there is, the guard what goes.

use std::time::Duration;

use super::briefing::Briefing;
use super::model_call::LEAST_OUTPUT_TOKENS;
use super::services::Services;
use crate::context::layer::{Surroundings, Window};
use crate::context::measure::{Doubt, WindowSize};
use crate::context::validity::Room;
use crate::context::view::View;
use crate::id::AgentId;
use crate::journal::stamp;
use crate::turn_machine::Machine;

/// A report this many times smaller than expected is no passing difference: somebody should know.
const FAR_LESS: u64 = 2;

/// Tokens a character where nothing was reported yet: a token of text or code has three characters
/// or more.
const UNREPORTED_TOKENS_PER_CHAR: f64 = 1.0 / 3.0;

/// Lets layers work on an agent's view, with what its measure says of it.
pub(super) fn around<T>(
    services: &Services,
    agent: &AgentId,
    briefing: &Briefing,
    machine: &mut Machine,
    idle: Duration,
    work: impl FnOnce(&mut View, &Surroundings<'_>) -> T,
) -> T {
    let (spec, measure) = (&briefing.model.spec, machine.measure());
    let window = Window {
        tokens: window_of(briefing, machine).tokens,
        output: spec.max_output_tokens,
        overhead: measure.overhead(),
    };
    let extent = machine.extent();
    let joining = extent.held - machine.view().extent().held;
    let room = measure.room(extent, window.tokens.saturating_sub(window.output));
    let (transcript, state) = (services.transcript(agent), machine.inventory().state());
    let around = Surroundings {
        transcript: &transcript.to_string_lossy(),
        results: &services.spool.results_dir().to_string_lossy(),
        window,
        tokens_per_char: tokens_per_char(machine),
        measured_room: Some(room.saturating_sub(joining)),
        idle,
        state: state.as_deref(),
        price: spec.price.and_then(|price| price.relative()).unwrap_or_default(),
    };
    work(machine.view_mut(), &around)
}

/// How long ago a moment was that records tell of; wall time, as the provider's cache has it.
pub(super) fn since(ts_ms: Option<i64>) -> Duration {
    let passed = ts_ms.map_or(0, |ts_ms| stamp::now_ms().saturating_sub(ts_ms));
    Duration::from_millis(u64::try_from(passed).unwrap_or(0))
}

/// The window of an agent's model, with what the provider took out of the latest request: it takes
/// that out of the next one as well.
fn window_of(briefing: &Briefing, machine: &Machine) -> WindowSize {
    let mut window = machine.measure().window(briefing.model.spec.context_window);
    window.tokens += machine.provider().cleared_tokens;
    window
}

/// How many tokens a character of the view is expected to have; until a provider has reported, no
/// fewer than text and code have at most on average.
#[expect(clippy::cast_precision_loss, reason = "a view has far fewer than 2^52 tokens")]
fn tokens_per_char(machine: &Machine) -> f64 {
    let (view, measure) = (machine.view(), machine.measure());
    let tokens = measure.size(view.extent()).saturating_sub(measure.overhead());
    let expected = tokens.max(1) as f64 / view.chars().max(1) as f64;
    if measure.is_calibrated() { expected } else { expected.max(UNREPORTED_TOKENS_PER_CHAR) }
}

/// The room that the request needs by any measure, after all that the guard could do, and has.
pub(super) fn room(briefing: &Briefing, machine: &Machine) -> Room {
    let measure = machine.measure();
    let needed = measure.at_least(machine.extent());
    Room { needed, window: window_of(briefing, machine) }
}

/// The most tokens of the reply: fewer than the model allows where input and output together would
/// not fit the window.
pub(super) fn output_limit(briefing: &Briefing, machine: &Machine) -> u64 {
    let (spec, measure) = (&briefing.model.spec, machine.measure());
    let window = window_of(briefing, machine).tokens;
    // The wide margin of a first request is no reason to cut its answer short.
    let size = match measure.is_calibrated() {
        true => measure.at_most(machine.extent()),
        false => machine.context_tokens(),
    };
    let room = window.saturating_sub(size);
    spec.max_output_tokens.min(room.max(LEAST_OUTPUT_TOKENS))
}

/// Says once when a provider counts far fewer tokens than were sent.
pub(super) fn warn_of_doubt(briefing: &Briefing, machine: &Machine) {
    if let Some(Doubt { reported, expected }) = machine.measure().doubt()
        && reported.saturating_mul(FAR_LESS) < expected
    {
        briefing.doubt.call_once(|| {
            tracing::warn!(
                model = %briefing.model.spec.name,
                reported,
                expected,
                "the provider counted far fewer tokens than were sent: it may cut requests in \
                 silence; compare its window with `context_window`"
            );
        });
    }
}
