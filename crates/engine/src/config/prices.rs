//! The prices of models: those that the file gives, and the table of known models, with the day on which
//! it was right.
//!
//! Owns the table and the names that it knows. A name that it does not know has no price: a guess would
//! look like a count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::diagnostic::Problems;
use super::raw::{CacheTime, Model, PriceList, Prices};
use super::shape::Field;
use super::{Setting, names};
use crate::id::Name;
use crate::spec::{ModelSpec, Price};

/// Default price of a cache write relative to input: Anthropic's, the highest of the public
/// services, so that an estimate is never too low.
const CACHE_WRITE_FACTOR: f64 = 1.25;
/// The same where what is cached is kept for an hour.
const HOUR_WRITE_FACTOR: f64 = 2.0;

/// The place where the price of a model was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceSource {
    /// The file, in `cost_per_mtok`.
    File,
    /// The table of known models.
    Builtin {
        /// The day on which the price was known to be public, like `2026-07-24`.
        checked: &'static str,
        /// The page that has the price.
        source: &'static str,
    },
}

/// The table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    group: Vec<Group>,
}

/// The models of one service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    prefix: String,
    checked: String,
    source: String,
    model: Vec<Known>,
}

/// A model of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    names: Vec<String>,
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    /// The most tokens of a request for which the prices hold.
    up_to: Option<u64>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    toml::from_str(include_str!("prices.toml")).expect("the table is constant and read by a test")
});

/// Returns the price of a model and where it was found; `None` if it is not known.
pub(super) fn find(raw: &Model, setting: Setting<'_>, window: u64) -> Option<(Price, PriceSource)> {
    let for_hour = caches_for_hour(raw, setting);
    if raw.cost_per_mtok.is_set() {
        let factor = if for_hour { HOUR_WRITE_FACTOR } else { CACHE_WRITE_FACTOR };
        return Some((written(&raw.cost_per_mtok, factor, setting.problems)?, PriceSource::File));
    }
    let name = raw.model.as_deref().filter(|_| list(raw, setting) == PriceList::Builtin)?;
    let (group, known) = lookup(name)?;
    let holds = known.up_to.is_none_or(|most| window <= most);
    let source = PriceSource::Builtin { checked: &group.checked, source: &group.source };
    let price = known.price();
    // The table has the price of an entry that is kept for five minutes.
    let cache_write = if for_hour { price.input * HOUR_WRITE_FACTOR } else { price.cache_write };
    holds.then_some((Price { cache_write, ..price }, source))
}

/// Returns true if the provider of a model keeps what it caches for an hour.
fn caches_for_hour(raw: &Model, setting: Setting<'_>) -> bool {
    let name = raw.provider.as_deref();
    let mut providers = setting.raw.providers.values();
    let provider = providers.find(|(entry, _)| Some(entry.name.as_str()) == name);
    provider.is_some_and(|(_, provider)| *provider.cache_ttl == CacheTime::OneHour)
}

fn list(raw: &Model, setting: Setting<'_>) -> PriceList {
    raw.prices.unwrap_or(*setting.raw.defaults.prices)
}

impl Known {
    fn price(&self) -> Price {
        let Self { input, output, cache_read, cache_write, .. } = *self;
        Price {
            input,
            output,
            cache_read: cache_read.unwrap_or(input),
            cache_write: cache_write.unwrap_or(input),
        }
    }
}

/// Returns the model of the table that a provider's name means: the name itself, or the name with a date
/// at its end, perhaps with the prefix of a broker.
fn lookup(name: &str) -> Option<(&'static Group, &'static Known)> {
    let (prefix, name) = match name.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, name),
    };
    let exact = |name: &str| {
        let groups = TABLE.group.iter();
        let mut groups = groups.filter(|group| prefix.is_none_or(|prefix| prefix == group.prefix));
        groups.find_map(|group| {
            let known = group.model.iter().find(|known| known.names.iter().any(|own| own == name));
            Some((group, known?))
        })
    };
    exact(name).or_else(|| exact(undated(name)?))
}

/// Returns a name without the date at its end, `-20250929` or `-2025-09-29`; `None` if it has none.
fn undated(name: &str) -> Option<&str> {
    let is_date = |date: &str| {
        let digits: String = match date.as_bytes() {
            [_, _, _, _, b'-', _, _, b'-', _, _] => date.replace('-', ""),
            _ => date.to_owned(),
        };
        let is_number = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number && digits.starts_with("20")
    };
    [8, 10].into_iter().find_map(|length| {
        let (name, date) = name.split_at_checked(name.len().checked_sub(length)?)?;
        name.strip_suffix('-').filter(|_| is_date(date))
    })
}

/// Reads the prices that the file gives.
fn written(raw: &Field<Option<Prices>>, factor: f64, problems: &Problems) -> Option<Price> {
    let (prices, at) = raw.as_ref().zip(raw.at())?;
    for (key, price) in [("input", &prices.input), ("output", &prices.output)] {
        if !price.is_set() {
            let message = format!("`cost_per_mtok` has no `{key}`");
            problems.error("missing_field", &at.key, message, super::NO_HELP);
        }
    }
    let (input, output) = prices.input.zip(*prices.output)?;
    Some(Price {
        input,
        output,
        cache_read: prices.cache_read.unwrap_or(input),
        cache_write: prices.cache_write.unwrap_or(input * factor),
    })
}

/// Reports models in use that have no price: a limit in money needs the price of every model, and
/// somebody who asks for built-in prices should know where there are none.
pub(super) fn check(
    setting: Setting<'_>,
    models: &BTreeMap<Name, ModelSpec>,
    used: &BTreeSet<Name>,
    is_scripted: impl Fn(&ModelSpec) -> bool,
) {
    let raw = setting.raw;
    let of_tasks = raw.tasks.values().map(|(_, task)| &task.budget);
    let of_agents = raw.agents.values().map(|(_, agent)| &agent.budget);
    let mut budgets = std::iter::once(&raw.budget).chain(of_tasks).chain(of_agents);
    let ceiling = budgets.find_map(|budget| budget.as_ref()?.max_cost.at());
    let unpriced = used.iter().filter_map(|name| models.get(name));
    for model in unpriced.filter(|model| model.price.is_none()) {
        let name = &model.name;
        let entry = raw.models.get(name.as_str());
        if let Some(ceiling) = ceiling {
            let place = entry.map_or(&ceiling.key, |entry| &entry.at.key);
            let message = format!("`max_cost` is set, but model `{name}` has no price");
            let near = slip(&model.model).map(|near| format!("did you mean model `{near}`? else "));
            let help = format!("{}add [models.{name}.cost_per_mtok]", near.unwrap_or_default());
            setting.problems.error("missing_price", place, message, help);
        }
        let Some((entry, value)) = entry.and_then(|entry| Some((entry, entry.value.as_ref()?)))
        else {
            continue;
        };
        if is_scripted(model) || value.cost_per_mtok.is_set() {
            continue;
        }
        if list(value, setting) == PriceList::None {
            misspelt(model, value, setting.problems);
            continue;
        }
        let place = value.prices.at().or(setting.raw.defaults.prices.at());
        let place = place.map_or(&entry.at.key, |at| &at.value);
        let why = match lookup(&model.model).and_then(|(_, known)| known.up_to) {
            Some(most) => format!(
                "cost more in requests of more than {most} tokens, for which `context_window` has room"
            ),
            None => "are not among the built-in prices".to_owned(),
        };
        let text = &model.model;
        let message =
            format!("the tokens of model `{name}` (`{text}`) {why}: its cost is not counted");
        let near = nearest(text).filter(|near| *near != text.as_str());
        let near = near.map(|near| format!("did you mean `{near}`? else ")).unwrap_or_default();
        let help = format!(
            "{near}add `cost_per_mtok = {{ input = ..., output = ... }}` to [models.{name}], in US dollars per \
             million tokens"
        );
        setting.problems.warning("unknown_price", place, message, help);
    }
}

/// Reports the name of a model that is most likely a slip: the provider would refuse it. Other unknown names are
/// those of models that are newer than the table, or of other services.
fn misspelt(model: &ModelSpec, raw: &Model, problems: &Problems) {
    let (Some(near), Some(at)) = (slip(&model.model), raw.model.at()) else { return };
    let ModelSpec { name, model, .. } = model;
    let message = format!(
        "model `{name}` has no price, and no known model is named `{model}`: its cost is not counted"
    );
    problems.warning("unknown_price", &at.value, message, format!("did you mean `{near}`?"));
}

/// Returns the known name that is nearest to a name.
fn nearest(name: &str) -> Option<&'static str> {
    let known = TABLE.group.iter().flat_map(|group| &group.model).flat_map(|known| &known.names);
    names::nearest(name, known.map(String::as_str))
}

/// Returns the known name of which a name differs by a slip of one or two letters. Other digits are another
/// version, and short names are too near to each other.
fn slip(name: &str) -> Option<&'static str> {
    const SHORTEST: usize = 10;
    const MOST: usize = 2;
    let digits = |name: &str| name.chars().filter(char::is_ascii_digit).collect::<String>();
    let near = nearest(name).filter(|_| name.len() >= SHORTEST && lookup(name).is_none())?;
    let is_slip = digits(near) == digits(name) && strsim::damerau_levenshtein(near, name) <= MOST;
    is_slip.then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_a_name_is_known_and_a_new_version_is_none() {
        for (name, near) in [
            ("claude-sonet-4-5", Some("claude-sonnet-4-5")),
            ("cluade-sonnet-4-5", Some("claude-sonnet-4-5")),
            ("claude-sonnet-4-5", None),
            ("claude-sonnet-4-5-20250929", None),
            ("claude-sonnet-4-9", None),
            ("claude-sonnet-4-5-fast", None),
            ("bedrock/claude-sonnet-4-5", None),
            ("gpt-4", None),
            ("llama-3.3-70b", None),
        ] {
            assert_eq!(slip(name), near, "{name}");
        }
    }

    fn input(name: &str) -> Option<f64> {
        lookup(name).map(|(_, known)| known.input)
    }

    #[test]
    fn names_are_known_exactly_or_with_a_date() {
        for (name, price) in [
            ("claude-sonnet-4-5", Some(3.0)),
            ("claude-sonnet-4-5-20250929", Some(3.0)),
            ("anthropic/claude-sonnet-4.5", Some(3.0)),
            ("claude-opus-4-20250514", Some(15.0)),
            ("gpt-4o", Some(2.5)),
            ("gpt-4o-2024-08-06", Some(2.5)),
            ("gpt-4o-2024-05-13", Some(5.0)),
            ("openai/gpt-5-mini-2025-08-07", Some(0.25)),
            ("google/gemini-2.5-flash", Some(0.3)),
            ("openai/claude-sonnet-4-5", None),
            ("a/anthropic/claude-sonnet-4-5", None),
            ("claude-sonnet-4-5:free", None),
            ("claude-sonnet-4-5-fast", None),
            ("claude-sonnet-4-5-12345678", None),
            ("Claude-Sonnet-4-5", None),
            ("gpt-4o-20240513x", None),
            ("gpt-5-pro", None),
            ("20250929", None),
            ("-20250929", None),
            ("é0250929", None),
            ("", None),
        ] {
            assert_eq!(input(name), price, "{name}");
        }
    }

    #[test]
    fn the_table_names_each_model_once_with_prices_that_can_be() {
        let mut names = BTreeSet::new();
        for group in &TABLE.group {
            assert!(undated(&format!("x-{}", group.checked)).is_some(), "{}", group.checked);
            assert!(group.source.starts_with("https://"), "{}", group.source);
            for known in &group.model {
                let price = known.price();
                assert!(0.0 < price.cache_read && price.cache_read <= price.input, "{known:?}");
                assert!(price.input <= price.cache_write && price.cache_write < price.output);
                for name in &known.names {
                    assert!(names.insert(name), "{name}");
                    assert_eq!(input(&format!("{}/{name}", group.prefix)), Some(known.input));
                }
            }
        }
        assert!(names.len() > 50, "{}", names.len());
    }
}
