//! Fits an agent's next request into its model's window: measured before every call, of children
//! as of any other agent.
//!
//! Decides nothing by itself: the measure says how much there is, the guard what goes.

use super::Services;
use super::briefing::Briefing;
use super::model_call::LEAST_OUTPUT_TOKENS;
use crate::context::measure::Doubt;
use crate::context::{ContextEdited, guard};
use crate::id::AgentId;
use crate::turn_machine::Machine;

/// A report this many times smaller than expected is no passing difference: somebody should know.
const FAR_LESS: u64 = 2;

/// Makes the view fit the window, with room for the reply, and gives what it changed.
pub(super) fn guard(
    services: &Services,
    agent: &AgentId,
    briefing: &Briefing,
    machine: &mut Machine,
) -> Vec<ContextEdited> {
    let Some(guard) = services.compaction.preset.guard else { return Vec::new() };
    let spec = &briefing.model.spec;
    let window = machine.measure().window(spec.context_window).tokens;
    let limit = window.saturating_sub(spec.max_output_tokens);
    let room = machine.measure().room(machine.extent(), limit);
    let transcript = services.transcript(agent);
    guard::make_fit(machine.view_mut(), &guard, room, &transcript.to_string_lossy())
}

/// Why the request cannot fit by any measure, after all that the guard could do: a prompt of many
/// megabytes is a failure, not a bill.
pub(super) fn too_large(
    services: &Services,
    briefing: &Briefing,
    machine: &Machine,
) -> Option<String> {
    services.compaction.preset.guard?;
    let spec = &briefing.model.spec;
    let window = machine.measure().window(spec.context_window);
    let least = machine.measure().at_least(machine.extent());
    (least > window.tokens).then(|| {
        format!(
            "the request needs at least {least} tokens, the window of `{}` has {} (by {})",
            spec.name, window.tokens, window.origin
        )
    })
}

/// The most tokens of the reply: fewer than the model allows where input and output together would
/// not fit the window.
pub(super) fn output_limit(briefing: &Briefing, machine: &Machine) -> u64 {
    let (spec, measure) = (&briefing.model.spec, machine.measure());
    let window = measure.window(spec.context_window).tokens;
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
