//! Declares the keys of a budget.

use std::time::Duration;

use crate::config::shape::kinds::{COUNT_OR_NONE, SHARE, TOKENS_OR_NONE, words_of};
use crate::config::shape::{Kind, List, sections, words};
use crate::spec::budget::OnExceed;

words! { OnExceed }

/// An amount of money. A limit beyond it limits nothing.
const MONEY: Kind = Kind::Number(0, 1_000_000, "USD");

sections! {
    /// The most that a part of a run may spend: the run itself (`[budget]`), a task with all its attempts and instances
    /// (`[tasks.NAME.budget]`), an agent with all agents below it (`[agents.NAME.budget]`, for each one of that
    /// definition). Everything counts: turns, summaries, checks, retries, fallbacks, and calls that were cut, with all
    /// that they may have cost. Nothing is given back, by no resume, retry or round. A call is made only if all that it
    /// can cost is left; `0` allows nothing. docs/what-it-costs.md has the details.
    Budget {
        /// The most money. Each model that may be called needs a price.
        max_cost: f64, MONEY => "no limit", gives "missing_price";
        /// The most tokens, input (read from a cache or not) and output.
        max_tokens: u64, TOKENS_OR_NONE => "no limit";
        /// The most requests to models.
        max_calls: u64, COUNT_OR_NONE => "no limit";
        /// The most time for which the run is open. It is looked at before each call.
        max_time: Duration, Kind::Pause => "no limit";
        /// The shares of a limit at which people are warned, once for each.
        warn_at: List<f64>, Kind::List(&SHARE) => "[0.8]";
        /// What happens when a call does not fit, also after the calls under way have ended and with a shorter reply:
        /// `pause`, its agents rest until a person raises the limit (`callsheet budget`); `stop`, each agent has one
        /// last reply and ends with what it hands over; `warn`, nothing, but it is reported.
        on_exceed: OnExceed = OnExceed::Pause, words_of::<OnExceed>(&[]);
        /// If `false`, `stop` ends agents without a last reply, and nothing is held back for it.
        hand_over: bool = true, Kind::Truth;
    }
}
