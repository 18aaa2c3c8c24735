//! Budgets: the most that a part of a run may spend, and what happens when that is used up.
//!
//! Holds values and their arithmetic. What an amount is compared with is decided elsewhere.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::duration;
use crate::id::{AgentId, Name};
use crate::own_tool::ChildBudget;
use crate::spending::{Spending, Usd};

/// A part of a run that may have a budget: the run, a task with all its attempts and instances, or one agent with
/// all agents below it.
///
/// Written as the part of an address behind the run: `/`, `/TASK`, `/@AGENT`.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Scope {
    /// The whole run.
    Run,
    /// A task.
    Task(Name),
    /// An agent.
    Agent(AgentId),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run => f.write_str("/"),
            Self::Task(name) => write!(f, "/{name}"),
            Self::Agent(id) => write!(f, "/@{id}"),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

/// A text that is no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a scope is written `/`, `/TASK` or `/@AGENT`")]
pub struct NoScope;

impl FromStr for Scope {
    type Err = NoScope;

    fn from_str(text: &str) -> Result<Self, NoScope> {
        let text = text.strip_prefix('/').ok_or(NoScope)?;
        match text.strip_prefix('@') {
            Some("") => Err(NoScope),
            Some(agent) => Ok(Self::Agent(AgentId::from_text(agent))),
            None if text.is_empty() => Ok(Self::Run),
            None => Name::of_record(text).map(Self::Task).map_err(|_| NoScope),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = NoScope;

    fn try_from(text: String) -> Result<Self, NoScope> {
        text.parse()
    }
}

impl Scope {
    /// Returns the scope in words for people.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Run => "the run".to_owned(),
            Self::Task(name) => format!("task `{name}`"),
            Self::Agent(id) => format!("agent `{id}`"),
        }
    }
}

/// An amount of what a budget limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Amount {
    /// Cost in picodollars; the most that there is where a price is unknown.
    #[schemars(with = "i64")]
    pub cost: Usd,
    /// Tokens, input (cached or not) and output.
    pub tokens: u64,
    /// Requests to models.
    pub calls: u64,
}

impl Amount {
    /// Returns it for programs: `cost_usd` is null where nobody knows the price.
    #[must_use]
    pub fn json(self) -> Value {
        let cost = (self.cost != Usd::MOST).then(|| self.cost.dollars());
        json!({ "cost_usd": cost, "tokens": self.tokens, "calls": self.calls })
    }

    /// Returns what was spent and is known.
    #[must_use]
    pub fn settled(spending: &Spending) -> Self {
        let Spending { usage, cost, requests, .. } = spending;
        Self { cost: cost.unwrap_or(Usd::MOST), tokens: usage.total(), calls: *requests }
    }

    /// Returns the most that may have been spent beyond it.
    #[must_use]
    pub fn unsettled(spending: &Spending) -> Self {
        let unsettled = &spending.unsettled;
        Self { cost: unsettled.most.unwrap_or(Usd::MOST), tokens: unsettled.tokens, calls: 0 }
    }

    /// Returns so many times the amount.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self {
            cost: self.cost.times(count),
            tokens: self.tokens.saturating_mul(count),
            calls: self.calls.saturating_mul(count),
        }
    }

    /// Returns the larger of each two amounts.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        Self {
            cost: self.cost.max(other.cost),
            tokens: self.tokens.max(other.tokens),
            calls: self.calls.max(other.calls),
        }
    }

    /// Returns the smaller of each two amounts.
    #[must_use]
    pub fn smaller(self, other: Self) -> Self {
        Self {
            cost: self.cost.min(other.cost),
            tokens: self.tokens.min(other.tokens),
            calls: self.calls.min(other.calls),
        }
    }

    /// Returns what is left after something was taken away; nothing where there was less.
    #[must_use]
    pub fn without(self, taken: Self) -> Self {
        Self {
            cost: self.cost.without(taken.cost),
            tokens: self.tokens.saturating_sub(taken.tokens),
            calls: self.calls.saturating_sub(taken.calls),
        }
    }
}

impl std::ops::Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cost: self.cost + other.cost,
            tokens: self.tokens.saturating_add(other.tokens),
            calls: self.calls.saturating_add(other.calls),
        }
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// One limit of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Money.
    Cost,
    /// Tokens.
    Tokens,
    /// Requests to models.
    Calls,
    /// Time.
    Time,
}

/// The limits of a budget; a limit that is absent does not limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caps {
    /// The most money, in picodollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub max_cost: Option<Usd>,
    /// The most tokens, input (cached or not) and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The most requests to models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// The most time, in milliseconds for which the run is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time_ms: Option<u64>,
}

impl Caps {
    /// Returns the limits that a parent gives to a child; `None` if nothing is limited.
    ///
    /// # Errors
    /// Returns an error if a limit is nothing, less, or no duration.
    pub fn of_child(given: Option<&ChildBudget>) -> Result<Option<Self>, String> {
        let Some(given) = given else { return Ok(None) };
        let ChildBudget { max_cost, max_tokens, max_calls, ref max_time } = *given;
        let bad = |key: &str, why: &str| format!("`budget.{key}` {why}");
        if max_cost.is_some_and(|dollars| !(dollars.is_finite() && dollars > 0.0)) {
            return Err(bad("max_cost", "must be a number of dollars above 0"));
        }
        for (key, limit) in [("max_tokens", max_tokens), ("max_calls", max_calls)] {
            if limit == Some(0) {
                return Err(bad(
                    key,
                    "must be above 0: a child that may spend nothing cannot answer",
                ));
            }
        }
        let time = max_time.as_deref().map(|text| {
            let time = duration::parse(text).filter(|time| !time.is_zero());
            time.ok_or_else(|| bad("max_time", "must be a duration such as `90s` or `5m`"))
        });
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let caps = Self {
            max_cost: max_cost.map(Usd::from_dollars),
            max_tokens,
            max_calls,
            max_time_ms: time.transpose()?.map(millis),
        };
        Ok((!caps.is_empty()).then_some(caps))
    }

    /// Returns true if nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the caps with those of `over` in the place of its own.
    #[must_use]
    pub fn changed_to(self, over: Self) -> Self {
        Self {
            max_cost: over.max_cost.or(self.max_cost),
            max_tokens: over.max_tokens.or(self.max_tokens),
            max_calls: over.max_calls.or(self.max_calls),
            max_time_ms: over.max_time_ms.or(self.max_time_ms),
        }
    }

    /// Returns the lower of each two limits: a part of something cannot have more than the whole.
    #[must_use]
    pub fn narrowed_to(self, other: Self) -> Self {
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            a.into_iter().chain(b).min()
        }
        Self {
            max_cost: least(self.max_cost, other.max_cost),
            max_tokens: least(self.max_tokens, other.max_tokens),
            max_calls: least(self.max_calls, other.max_calls),
            max_time_ms: least(self.max_time_ms, other.max_time_ms),
        }
    }

    /// Returns the first limit that an amount would pass, if it passes any.
    #[must_use]
    pub fn passed_by(&self, amount: Amount) -> Option<Measure> {
        let passes = |cap: Option<u64>, has: u64| cap.is_some_and(|cap| has > cap);
        if self.max_cost.is_some_and(|cap| amount.cost > cap) {
            Some(Measure::Cost)
        } else if passes(self.max_tokens, amount.tokens) {
            Some(Measure::Tokens)
        } else if passes(self.max_calls, amount.calls) {
            Some(Measure::Calls)
        } else {
            None
        }
    }

    /// Returns true if so much time is all there is, or more.
    #[must_use]
    pub fn is_over(&self, time: Duration) -> bool {
        self.max_time_ms.is_some_and(|most| time.as_millis() >= u128::from(most))
    }

    /// Returns true if an amount has reached this share, in thousandths, of any limit.
    #[must_use]
    pub fn is_reached(&self, share: u16, amount: Amount) -> bool {
        let reached = |cap: Option<u64>, has: u64| {
            cap.is_some_and(|cap| u128::from(has) * 1_000 >= u128::from(cap) * u128::from(share))
        };
        let cost = self.max_cost.map(Usd::picodollars);
        reached(cost, amount.cost.picodollars())
            || reached(self.max_tokens, amount.tokens)
            || reached(self.max_calls, amount.calls)
    }
}

impl fmt::Display for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = [
            self.max_cost.map(|cost| format!("${}", cost.dollars())),
            self.max_tokens.map(|tokens| format!("{tokens} tokens")),
            self.max_calls.map(|calls| format!("{calls} calls")),
            self.max_time_ms.map(|ms| format!("{} s", ms / 1_000)),
        ];
        let limits: Vec<_> = limits.into_iter().flatten().collect();
        f.write_str(&limits.join(", "))
    }
}

/// What happens when a call does not fit a budget any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExceed {
    /// The agents of the scope rest before their next call until a person raises the limit.
    #[default]
    Pause,
    /// The agents of the scope end, each with one last reply in which it hands over what there is.
    Stop,
    /// Nothing, but it is reported.
    Warn,
}

impl OnExceed {
    /// All words, in the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Pause, Self::Stop, Self::Warn];

    /// Returns the word as it is written in configurations and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Stop => "stop",
            Self::Warn => "warn",
        }
    }
}

/// The budget of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The limits.
    pub caps: Caps,
    /// The shares of a limit at which people are warned, in thousandths, in rising order.
    pub warn_at: Vec<u16>,
    /// What happens when a call does not fit.
    pub on_exceed: OnExceed,
    /// True if an agent that ends for it has one last reply, whose price is held back.
    pub hand_over: bool,
}

impl Default for Budget {
    /// Returns a budget without limits, with the defaults of the configuration.
    fn default() -> Self {
        Self {
            caps: Caps::default(),
            warn_at: vec![800],
            on_exceed: OnExceed::default(),
            hand_over: true,
        }
    }
}

impl Budget {
    /// Returns true if the price of a last reply is held back for each of its agents.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.on_exceed == OnExceed::Stop && self.hand_over
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn dollars(cost: f64) -> Usd {
        Usd::from_dollars(cost)
    }

    #[test]
    fn a_scope_is_read_as_it_is_written() {
        let task = Scope::Task(Name::new("build").expect("a name"));
        let agent = Scope::Agent(AgentId::from_text("build/helper-2"));
        for scope in [Scope::Run, task, agent] {
            assert_eq!(scope.to_string().parse(), Ok(scope.clone()), "{scope}");
            let json = serde_json::to_string(&scope).expect("plain data");
            assert_eq!(serde_json::from_str::<Scope>(&json).expect("it is a scope"), scope);
        }
        for text in ["", "build", "/@", "@x"] {
            assert_eq!(text.parse::<Scope>(), Err(NoScope), "{text}");
        }
    }

    #[test]
    fn a_cap_is_passed_by_one_picodollar_more_and_zero_is_nothing() {
        let caps = Caps { max_cost: Some(dollars(0.1)), ..Caps::default() };
        let amount = |cost| Amount { cost, ..Amount::default() };
        assert_eq!(caps.passed_by(amount(dollars(0.1))), None);
        assert_eq!(caps.passed_by(amount(dollars(0.1) + dollars(1e-12))), Some(Measure::Cost));
        assert_eq!(caps.passed_by(amount(Usd::MOST)), Some(Measure::Cost), "an unknown price");
        let nothing = Caps { max_calls: Some(0), ..Caps::default() };
        let call = Amount { calls: 1, ..Amount::default() };
        assert_eq!(nothing.passed_by(call), Some(Measure::Calls));
        assert_eq!(nothing.passed_by(Amount::default()), None);
        assert!(Caps { max_time_ms: Some(0), ..Caps::default() }.is_over(Duration::ZERO));
    }

    #[test]
    fn a_child_only_narrows() {
        let whole = Caps { max_tokens: Some(10), max_calls: Some(3), ..Caps::default() };
        let part = Caps { max_tokens: Some(90), max_cost: Some(dollars(1.0)), ..Caps::default() };
        let both = Caps { max_cost: Some(dollars(1.0)), ..whole };
        assert_eq!(whole.narrowed_to(part), both);
        assert_eq!(part.narrowed_to(whole), both);
    }

    #[test]
    fn a_share_is_reached_exactly() {
        let caps = Caps { max_tokens: Some(1_000), ..Caps::default() };
        let tokens = |tokens| Amount { tokens, ..Amount::default() };
        assert!(!caps.is_reached(800, tokens(799)) && caps.is_reached(800, tokens(800)));
    }

    #[test]
    fn the_budget_of_a_child_is_read_or_refused() {
        let caps = |budget: Value| {
            let given: Option<ChildBudget> =
                serde_json::from_value(budget).map_err(|error| error.to_string())?;
            Caps::of_child(given.as_ref())
        };
        let all = json!({"max_cost": 0.25, "max_tokens": 9, "max_calls": 3, "max_time": "90s"});
        let wanted = Caps {
            max_cost: Some(Usd::from_dollars(0.25)),
            max_tokens: Some(9),
            max_calls: Some(3),
            max_time_ms: Some(90_000),
        };
        assert_eq!(caps(all), Ok(Some(wanted)));
        assert_eq!(caps(json!({})), Ok(None));
        assert_eq!(caps(Value::Null), Ok(None));
        for (budget, names) in [
            (json!({"max_cost": 0}), "`budget.max_cost`"),
            (json!({"max_cost": -1}), "`budget.max_cost`"),
            (json!({"max_tokens": 0}), "`budget.max_tokens`"),
            (json!({"max_calls": 0}), "`budget.max_calls`"),
            (json!({"max_time": "0s"}), "`budget.max_time`"),
            (json!({"max_time": "soon"}), "`budget.max_time`"),
            (json!({"max_calls": 1.5}), "floating point"),
            (json!({"on_exceed": "warn"}), "unknown field"),
        ] {
            let refused = caps(budget.clone()).expect_err("no budget");
            assert!(refused.contains(names), "{budget}: {refused}");
        }
        // An amount that no counter holds limits nothing that could be reached.
        assert!(caps(json!({"max_cost": 1e300})).is_ok_and(|caps| caps.is_some()));
    }
}
