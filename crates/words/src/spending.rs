//! Spending: the tokens of model calls and their cost, in sums that do not depend on the order.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::id::Name;
use crate::message::Usage;

/// Picodollars in a US dollar. The cheapest token sold costs some thousands of picodollars, and a
/// sum of nine million dollars still fits into 64 bits.
const PICODOLLARS: f64 = 1e12;

/// An amount of US dollars, in whole picodollars.
///
/// It is not a floating-point number, because such a sum depends on the order of its parts: the
/// total of a run would differ between a table by agent and a table by model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Usd(i64);

impl Usd {
    /// Rounds an amount of dollars to whole picodollars; an amount out of range becomes the nearest
    /// that fits.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    pub fn from_dollars(dollars: f64) -> Self {
        Self((dollars * PICODOLLARS).round() as i64)
    }

    /// The most that an amount can be: it stands for a cost that nobody knows.
    pub const MOST: Self = Self(i64::MAX);

    /// Rounds an amount of dollars up. One picodollar is added, because the parts of a sum may each be rounded.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    pub fn at_most_dollars(dollars: f64) -> Self {
        Self(((dollars * PICODOLLARS).ceil() as i64).saturating_add(1))
    }

    /// Takes an amount in picodollars.
    #[must_use]
    pub fn from_picodollars(amount: u64) -> Self {
        Self(i64::try_from(amount).unwrap_or(i64::MAX))
    }

    /// Returns the amount in picodollars; 0 for less than nothing.
    #[must_use]
    pub fn picodollars(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    /// Returns what is left after something was taken away; nothing where there was less.
    #[must_use]
    pub fn without(self, taken: Self) -> Self {
        Self(self.0.saturating_sub(taken.0).max(0))
    }

    /// Returns so many times the amount; the most that there is where that does not fit, or where nobody knows the
    /// amount.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)))
    }

    /// Returns the amount in dollars.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "beyond 9,000 dollars a picodollar is lost")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / PICODOLLARS
    }
}

impl Add for Usd {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The tokens and the cost of a number of model calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// The tokens, summed.
    pub usage: Usage,
    /// The cost, summed; `None` when the price of some call is unknown.
    pub cost: Option<Usd>,
    /// Number of requests that were announced.
    #[serde(default)]
    pub requests: u64,
    /// Those of them whose end nobody knows. They are in no other sum.
    #[serde(default)]
    pub unsettled: Unsettled,
}

/// Requests that were announced and of which nobody knows what they cost in the end: the process died, the stream
/// was cut, or the provider reported no tokens. What is known of them is settled, the rest stands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    /// Their number.
    pub requests: u64,
    /// The most that they can have cost; `None` when the price of one is unknown.
    pub most: Option<Usd>,
    /// The most tokens that they can have used.
    #[serde(default)]
    pub tokens: u64,
}

/// The most that one call may have cost beyond what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rest {
    /// Tokens.
    pub tokens: u64,
    /// Cost in picodollars; absent if the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub cost: Option<Usd>,
}

impl Rest {
    /// Returns what is left of it when so much is known to be spent; `None` if nothing is.
    #[must_use]
    pub fn beyond(self, usage: &Usage, cost_usd: Option<f64>) -> Option<Self> {
        let known = cost_usd.map(Usd::from_dollars);
        let cost = self.cost.map(|most| most.without(known.unwrap_or_default()));
        let tokens = self.tokens.saturating_sub(usage.total());
        let is_left = tokens > 0 || cost.is_some_and(|cost| cost > Usd::default());
        is_left.then_some(Self { tokens, cost })
    }

    /// Returns it as spending that is not settled.
    #[must_use]
    pub fn spending(self) -> Spending {
        Spending::of_lost(self.cost, self.tokens)
    }
}

impl Unsettled {
    /// Returns the most that they can have cost, in US dollars; `None` when the price of one is unknown.
    #[must_use]
    pub fn most_usd(&self) -> Option<f64> {
        self.most.map(Usd::dollars)
    }
}

impl Default for Unsettled {
    /// Returns no requests, which cost nothing.
    fn default() -> Self {
        Self { requests: 0, most: Some(Usd::default()), tokens: 0 }
    }
}

impl Spending {
    /// Returns the spending of one recorded call; `cost_usd` is `None` if the model has no price.
    #[must_use]
    pub fn of_call(usage: Usage, cost_usd: Option<f64>) -> Self {
        Self { usage, cost: cost_usd.map(Usd::from_dollars), ..Self::default() }
    }

    /// Returns the spending of a request that was announced and has not ended.
    #[must_use]
    pub fn of_request() -> Self {
        Self { requests: 1, ..Self::default() }
    }

    /// Returns what is known of the spending of a request of which nobody knows what it cost: at most so much, and
    /// so many tokens.
    #[must_use]
    pub fn of_lost(most: Option<Usd>, tokens: u64) -> Self {
        Self { unsettled: Unsettled { requests: 1, most, tokens }, ..Self::default() }
    }

    /// Returns the cost in US dollars; `None` when the price of some call is unknown.
    #[must_use]
    pub fn cost_usd(&self) -> Option<f64> {
        self.cost.map(Usd::dollars)
    }
}

impl Default for Spending {
    /// Returns the spending of no calls, which is zero.
    fn default() -> Self {
        let (usage, cost, unsettled) = (Usage::default(), Some(Usd::default()), Default::default());
        Self { usage, cost, requests: 0, unsettled }
    }
}

impl AddAssign for Spending {
    fn add_assign(&mut self, other: Self) {
        self.usage += other.usage;
        self.cost = self.cost.zip(other.cost).map(|(sum, more)| sum + more);
        self.requests += other.requests;
        self.unsettled.requests += other.unsettled.requests;
        let most = self.unsettled.most.zip(other.unsettled.most);
        self.unsettled.most = most.map(|(sum, more)| sum + more);
        self.unsettled.tokens = self.unsettled.tokens.saturating_add(other.unsettled.tokens);
    }
}

impl Spending {
    /// Returns what was spent since an earlier state of the same sum.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let usage = Usage {
            input: self.usage.input.saturating_sub(before.usage.input),
            output: self.usage.output.saturating_sub(before.usage.output),
            cache_read: self.usage.cache_read.saturating_sub(before.usage.cache_read),
            cache_write: self.usage.cache_write.saturating_sub(before.usage.cache_write),
        };
        let unsettled = Unsettled {
            requests: self.unsettled.requests.saturating_sub(before.unsettled.requests),
            most: self
                .unsettled
                .most
                .zip(before.unsettled.most)
                .map(|(most, less)| most.without(less)),
            tokens: self.unsettled.tokens.saturating_sub(before.unsettled.tokens),
        };
        Self {
            usage,
            cost: self.cost.zip(before.cost).map(|(cost, less)| cost.without(less)),
            requests: self.requests.saturating_sub(before.requests),
            unsettled,
        }
    }
}

impl Sum for Spending {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

/// The spending of an agent by model, recorded as a map.
///
/// A list, because most agents call one model, and the smallest tree has room for eleven.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<Name, Spending>")]
pub struct ByModel(Vec<(Name, Spending)>);

impl ByModel {
    /// Returns the spending of a model, for changes.
    pub fn of(&mut self, model: &Name) -> &mut Spending {
        let found = self.0.binary_search_by(|(name, _)| name.cmp(model));
        let place = found.unwrap_or_else(|place| {
            if self.0.is_empty() {
                // A list that grows by itself takes room for four.
                self.0.reserve_exact(1);
            }
            self.0.insert(place, (model.clone(), Spending::default()));
            place
        });
        &mut self.0[place].1
    }

    /// Returns the models with their spending, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Spending)> {
        self.0.iter().map(|(model, spending)| (model, spending))
    }
}

impl From<BTreeMap<Name, Spending>> for ByModel {
    fn from(sums: BTreeMap<Name, Spending>) -> Self {
        Self(sums.into_iter().collect())
    }
}

impl Serialize for ByModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spending_by_model_is_recorded_as_a_map_in_the_order_of_the_names() {
        let mut sums = ByModel::default();
        for (model, requests) in [("b", 1), ("a", 2), ("c", 3), ("b", 4)] {
            sums.of(&Name::new(model).unwrap()).requests += requests;
        }
        let listed = |sums: &ByModel| -> Vec<_> {
            sums.iter().map(|(model, sum)| (model.to_string(), sum.requests)).collect()
        };
        let expected = [("a", 2), ("b", 5), ("c", 3)].map(|(name, sum)| (name.to_owned(), sum));
        assert_eq!(listed(&sums), expected);
        let text = serde_json::to_string(&sums).unwrap();
        assert!(text.starts_with(r#"{"a":{"usage""#), "{text}");
        assert_eq!(serde_json::from_str::<ByModel>(&text).unwrap(), sums);
        assert_eq!(serde_json::to_string(&ByModel::default()).unwrap(), "{}");
    }

    #[test]
    fn sums_do_not_depend_on_their_order() {
        let costs = [0.1, 0.7, 1e-9, 123.456_789, 0.000_075];
        let of = |cost| Spending::of_call(Usage::default(), Some(cost));
        let forth: Spending = costs.into_iter().map(of).sum();
        let back: Spending = costs.into_iter().rev().map(of).sum();
        assert_eq!(forth, back);
        assert_eq!(forth.cost_usd(), Some(124.256_864_001));
    }

    #[test]
    fn no_calls_cost_nothing_and_one_without_a_price_leaves_no_sum() {
        let nothing: Spending = std::iter::empty().sum();
        assert_eq!(nothing.cost_usd().map(|cost| format!("{cost:.4}")), Some("0.0000".to_owned()));
        let parts = [Some(1.0), None].map(|cost| Spending::of_call(Usage::default(), cost));
        assert_eq!(parts.into_iter().sum::<Spending>().cost_usd(), None);
        assert_eq!(Usd::from_dollars(f64::NAN), Usd::default());
        assert_eq!(Usd::from_dollars(1e300).dollars(), 9_223_372.036_854_776);
    }
}
