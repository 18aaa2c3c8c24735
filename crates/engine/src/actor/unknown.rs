//! Resolves what is recorded for a call whose outcome nobody knows: asks a person where `on_unknown` says
//! so, and lets the agent fail where that is wanted.
//!
//! A question outlives its process: whoever looks for the same beginning of the same call again asks
//! again and finds the answer.

use super::questions;
use super::step::StepContext;
use crate::run_state::questions::Answered;
use crate::spec::OnUnknown;
use crate::turn::ToolFinished;
use crate::turn_machine::PendingCall;
use crate::turn_machine::unknown::{self, Decision};

/// What follows from a result.
pub(super) enum Resolution {
    /// It is recorded.
    Finished(ToolFinished),
    /// The call is made again.
    Again,
    /// The agent must end before a person has answered: its successor asks again.
    Open,
}

/// Returns what follows from the result of a call. `begun` is the number of the record of its last
/// beginning, 0 without one, and `tries` counts how often this process has made it.
pub(super) async fn resolve(
    context: &StepContext,
    call: &PendingCall,
    finished: ToolFinished,
    begun: u64,
    tries: u32,
) -> Resolution {
    if unknown::is_repeated(call, &finished, tries) {
        return Resolution::Again;
    }
    let tool = context.services.tools.get(&call.call.name).and_then(|tool| tool.on_unknown());
    match unknown::rule(call, &finished, tool, context.on_unknown) {
        OnUnknown::Tell => Resolution::Finished(finished),
        OnUnknown::Fail => Resolution::Finished(unknown::failing(finished)),
        OnUnknown::Ask => {
            let secrets = &context.services.secrets;
            let [mut arguments, mut known] =
                [call.call.input.as_str().to_owned(), unknown::result_text(&finished)];
            secrets.redact(&mut arguments);
            secrets.redact(&mut known);
            let asked = unknown::question(call, &arguments, &known, begun);
            match questions::ask(context, asked, None, None).await {
                Err(_) => Resolution::Open,
                Ok(Answered { answer, .. }) => match unknown::decide(call, finished, &answer) {
                    Decision::Finished(finished) => Resolution::Finished(finished),
                    Decision::Again => Resolution::Again,
                },
            }
        }
    }
}
