//! Reservations of agents for their calls of models: the most that a call can take, and the wait until it may be made.

use std::sync::atomic::Ordering;

use super::step::{StepContext, take_slot};
use crate::context::view::View;
use crate::failure::Failure;
use crate::model::Request;
use crate::run_machine::{Allowance, LAST_OUTPUT_TOKENS, Purpose, Reservation};
use crate::run_state::budgets::FACTOR;
use crate::spec::ModelSpec;
use crate::spending::Rest;
use crate::turn_machine::Counted;

/// Tokens that a provider may add to a request unseen: its own words about tools, and the marks around messages. The
/// public services document up to 700 for tools.
const UNSEEN_TOKENS: u64 = 1_024;

/// Tokens that the marks of a few new messages may add to a request whose beginning was counted.
const MARK_TOKENS: u64 = 256;

/// Returns true if calls need a reservation, because spending is limited.
pub(super) fn is_needed(context: &StepContext) -> bool {
    context.services.limits_spending.load(Ordering::Acquire)
}

/// Returns the most tokens of a request to a model: as the provider counted them for its beginning, and one for each
/// byte of the rest. A token has at least one byte, whatever the tokenizer. No request has more than the window.
pub(super) fn most_input(spec: &ModelSpec, request: &Request, counted: Option<Counted>) -> u64 {
    let bytes: usize = request.pieces.iter().map(|piece| piece.bytes.len()).sum();
    let bytes = bytes as u64;
    let tokens = match counted {
        Some(counted) => counted.tokens + bytes.saturating_sub(counted.bytes) + MARK_TOKENS,
        None => request.head.0.len() as u64 + bytes + UNSEEN_TOKENS,
    };
    tokens.min(spec.context_window)
}

/// The most tokens of the words with which a summary is asked for.
const SUMMARY_PROMPT_TOKENS: u64 = 16_384;

/// Requests that may be made for one summary: a second one where the first fails.
const SUMMARY_REQUESTS: u64 = 2;

/// Makes the reservation for a summary of a view by this model. `head` is the size in bytes of what stands before the
/// messages.
pub(super) fn for_summary(spec: &ModelSpec, view: &View, head: usize) -> Reservation {
    let bytes: usize = view.slots().map(|slot| slot.entry.json.as_str().len()).sum();
    let tokens = (bytes + head) as u64 + SUMMARY_PROMPT_TOKENS + UNSEEN_TOKENS;
    Reservation {
        purpose: Purpose::Summary,
        model: spec.name.clone(),
        input_tokens: tokens.min(spec.context_window),
        max_output_tokens: spec.max_output_tokens,
        price: spec.price,
        requests: SUMMARY_REQUESTS,
    }
}

/// Returns the most that a call can cost for which this was reserved.
pub(super) fn most(reservation: &Reservation) -> Rest {
    let amount = reservation.takes(reservation.max_output_tokens, FACTOR, false);
    let cost = reservation.price.map(|_| amount.cost);
    Rest { tokens: amount.tokens, cost }
}

/// Returns the most tokens of the reply to a request: a last reply is short, and its price was held back.
pub(super) fn output(request: &Request, hand_over: bool) -> u64 {
    match hand_over {
        true => request.max_output_tokens.min(LAST_OUTPUT_TOKENS),
        false => request.max_output_tokens,
    }
}

/// Waits until a call may be made, if spending is limited. Returns the most tokens that its reply may have, or `None`
/// if the agent must end meanwhile.
///
/// # Errors
/// Returns the failure for which the agent must end, if a budget is used up.
pub(super) async fn reserve(
    context: &StepContext,
    reservation: Reservation,
) -> Result<Option<u64>, Failure> {
    if !is_needed(context) {
        return Ok(Some(reservation.max_output_tokens));
    }
    let id = if reservation.purpose == Purpose::Summary { "summary" } else { "turn" };
    let allowance = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Ok(None),
        allowance = context.request(id, reservation) => allowance,
    };
    let (granted, without_slot) = match allowance {
        None => return Ok(None),
        Some(Allowance::Granted { max_output_tokens, without_slot }) => {
            (Ok(max_output_tokens), without_slot)
        }
        Some(Allowance::Refused { failure, without_slot }) => (Err(failure), without_slot),
    };
    if without_slot {
        take_slot(context).await;
    }
    if context.cancel.is_cancelled() {
        return Ok(None);
    }
    granted.map(Some)
}
