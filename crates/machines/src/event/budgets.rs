//! The payloads of the `budget.*` events: what the limits of spending did in a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Name;
use crate::spec::budget::{Amount, Caps, Measure, OnExceed, Scope};

/// Payload of `budget.warned`: a share of a limit is spent. It is recorded once for each share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetWarned {
    /// The part of the run.
    pub scope: Scope,
    /// The share, in thousandths of the limit.
    pub share: u16,
    /// The limits.
    pub caps: Caps,
    /// What is spent and known.
    pub settled: Amount,
    /// The most that may be spent beyond it.
    pub unsettled: Amount,
}

/// Payload of `budget.exceeded`: a call does not fit any more, and nothing that is under way can make it fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetExceeded {
    /// The part of the run.
    pub scope: Scope,
    /// The limit that does not hold the call.
    pub measure: Measure,
    /// The limits.
    pub caps: Caps,
    /// What is spent and known.
    pub settled: Amount,
    /// The most that may be spent beyond it.
    pub unsettled: Amount,
    /// The most that the call could take.
    pub needs: Amount,
    /// What happens.
    pub on_exceed: OnExceed,
}

/// Payload of `budget.changed`: a person set limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetChanged {
    /// The part of the run.
    pub scope: Scope,
    /// The limits that were set; the others stay.
    pub caps: Caps,
    /// Who set them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Payload of `budget.bound_broken`: a provider reported more tokens than a call could have by what was known. From
/// then on more is reserved for each call of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetBoundBroken {
    /// The model.
    pub model: Name,
    /// The tokens that were reserved.
    pub reserved: u64,
    /// The tokens that were reported.
    pub reported: u64,
    /// What input is multiplied with from now on, in hundredths.
    pub factor: u32,
}

impl BudgetExceeded {
    /// Returns what happened in words: the limit, and what is spent of it.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { scope, measure, caps, settled, unsettled, .. } = self;
        let scope = scope.words();
        let open =
            |open: String| format!(" and up to {open} more of calls whose outcome is unknown");
        match measure {
            Measure::Cost => {
                let dollars = |amount: crate::spending::Usd| format!("${:.4}", amount.dollars());
                let cap = caps.max_cost.map(dollars).unwrap_or_default();
                let more =
                    (unsettled.cost > Default::default()).then(|| open(dollars(unsettled.cost)));
                let spent = dollars(settled.cost);
                format!("{scope} may cost {cap}: {spent} is spent{}", more.unwrap_or_default())
            }
            Measure::Tokens => {
                let cap = caps.max_tokens.unwrap_or_default();
                let more = (unsettled.tokens > 0).then(|| open(unsettled.tokens.to_string()));
                let more = more.unwrap_or_default();
                format!("{scope} may use {cap} tokens: {} are used{more}", settled.tokens)
            }
            Measure::Calls => {
                let cap = caps.max_calls.unwrap_or_default();
                format!("{scope} may make {cap} calls: {} are made", settled.calls)
            }
            Measure::Time => {
                let seconds = caps.max_time_ms.unwrap_or_default() / 1_000;
                format!("{scope} may take {seconds} s, and they are over")
            }
        }
    }
}
