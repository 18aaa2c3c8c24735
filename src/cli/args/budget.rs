//! The arguments about budgets, as the user typed them.

use std::time::Duration;

use clap::Args;

use super::{File, complete};
use crate::duration;
use crate::spec::budget::Caps;
use crate::spending::Usd;

/// Heading of the help for limits.
const LIMITS: &str = "Limits";

#[derive(Debug, Args)]
pub(in crate::cli) struct Budget {
    #[command(flatten)]
    pub file: File,
    /// The run, RUN/TASK, or RUN/@AGENT
    #[arg(value_name = "RUN[/TASK or /@AGENT]", add = complete::parts())]
    pub what: String,
    #[command(flatten)]
    pub limits: BudgetLimits,
}

/// Limits of spending. Those that are left out stay as they are.
#[derive(Debug, Default, Args)]
pub(in crate::cli) struct BudgetLimits {
    /// The most money in US dollars; 0 allows nothing
    #[arg(long, value_name = "USD", value_parser = dollars, help_heading = LIMITS)]
    pub max_cost: Option<f64>,
    /// The most tokens, input and output
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    pub max_tokens: Option<u64>,
    /// The most requests to models
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    pub max_calls: Option<u64>,
    /// The most time for which the run is open, like 90m
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = LIMITS)]
    pub max_time: Option<Duration>,
}

impl BudgetLimits {
    /// Returns the variables that set the budget of a run. As variables they are recorded with it, and a resume keeps
    /// them.
    pub(in crate::cli) fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let limits = [
            ("MAX_COST", self.max_cost.map(|cost| cost.to_string())),
            ("MAX_TOKENS", self.max_tokens.map(|tokens| tokens.to_string())),
            ("MAX_CALLS", self.max_calls.map(|calls| calls.to_string())),
            ("MAX_TIME", self.max_time.map(|time| format!("{}ms", time.as_millis()))),
        ];
        let variable = |(name, value): (&str, Option<String>)| {
            Some((format!("CALLSHEET_BUDGET__{name}"), value?))
        };
        limits.into_iter().filter_map(variable)
    }

    /// Returns the limits.
    pub(in crate::cli) fn caps(&self) -> Caps {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Caps {
            max_cost: self.max_cost.map(Usd::from_dollars),
            max_tokens: self.max_tokens,
            max_calls: self.max_calls,
            max_time_ms: self.max_time.map(millis),
        }
    }
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.trim_start_matches('$').parse::<f64>().ok();
    amount
        .filter(|amount| (0.0..=1_000_000.0).contains(amount))
        .ok_or_else(|| "an amount in US dollars from 0 to 1000000 is needed".to_owned())
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "a time like 90s or 2h is needed".to_owned())
}
