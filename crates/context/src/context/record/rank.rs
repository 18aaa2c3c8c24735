//! Ranking: the names and values that are most likely to be used again.
//!
//! Pure.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use regex::Regex;

use super::Known;
use super::words::{Use, Uses, is_name, values, words};

/// Worth of a use of a name in a call, in what the agent says, and in a result: names in calls are
/// used again, most of the names in results never are.
const WORTH: [f64; 3] = [4.0, 1.5, 0.7];
/// Number of messages over which the worth of a name falls to about a third.
const DECAY: f64 = 1_600.0;
/// Characters added to the length of each name, so that short ones are not worth too much.
const LENGTH: f64 = 4.0;
/// Most characters of a name: a longer run of letters is data.
const MOST_CHARS: usize = 80;
/// Most characters of the key of a value.
const KEY_CHARS: usize = 24;

/// The key before a value in JSON.
static KEY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#""([\w.-]{1,24})"\s*:\s*"?[^",:{}\[\]]{0,12}$"#).expect("a valid pattern")
});

/// Names and values that may be listed, gathered from the messages of a range.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    names: HashSet<String>,
    /// The worth of each value, and how it is shown.
    values: HashMap<String, (f64, String)>,
}

impl Candidates {
    /// Adds a text of the agent: a call's arguments, or what it said.
    pub fn add_own(&mut self, text: &str) {
        self.add_names(text, |_| true);
        self.add_values(text, 2.0);
    }

    /// Adds a result.
    pub fn add_result(&mut self, text: &str) {
        self.add_names(text, is_name);
        self.add_values(text, 1.0);
    }

    /// Adds what a record lists.
    pub fn add_listed(&mut self, names: &[String], listed: &[String]) {
        self.names.extend(names.iter().cloned());
        for (place, shown) in listed.iter().enumerate() {
            for value in values(shown) {
                self.value(value, listed_worth(place), || shown.clone());
            }
        }
    }

    fn add_names(&mut self, text: &str, is_wanted: impl Fn(&str) -> bool) {
        for word in words(text).filter(|word| is_wanted(word)) {
            if word.chars().nth(MOST_CHARS).is_none() && !self.names.contains(word) {
                self.names.insert(word.to_owned());
            }
        }
    }

    /// Adds the values of a text. Of many together each is worth less: they are line numbers and
    /// addresses.
    #[expect(clippy::cast_precision_loss, reason = "a text has far fewer than 2^52 values")]
    fn add_values(&mut self, text: &str, worth: f64) {
        let all: HashSet<&str> = values(text).collect();
        let each = worth / (all.len().max(1) as f64).sqrt();
        for value in all {
            self.value(value, each, || with_key(text, value));
        }
    }

    fn value(&mut self, value: &str, worth: f64, shown: impl FnOnce() -> String) {
        match self.values.get_mut(value) {
            Some((known, _)) => *known += worth,
            None => drop(self.values.insert(value.to_owned(), (worth, shown()))),
        }
    }

    /// Returns the names that are worth most and not known, in so many characters; adds them to
    /// `known`.
    pub fn names(&self, uses: &Uses, now: u64, known: &mut Known, room: usize) -> Vec<String> {
        let worth = |name: &str| worth(name, uses, now);
        let mut all: Vec<(f64, &str)> = self
            .names
            .iter()
            .filter(|name| !known.has(name))
            .map(|name| (worth(name), name.as_str()))
            .collect();
        all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let chosen = within(all.into_iter().map(|(_, name)| name), room);
        known.words.extend(chosen.iter().cloned());
        chosen
    }

    /// Returns the values that are worth most and not known, in so many characters; adds them to
    /// `known`.
    pub fn values(&self, known: &mut Known, room: usize) -> Vec<String> {
        let new = self.values.iter().filter(|(value, _)| !known.has(value));
        let mut all: Vec<_> =
            new.map(|(value, (worth, shown))| (*worth, value.as_str(), shown.as_str())).collect();
        all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let chosen = within(all.iter().map(|(_, _, shown)| *shown), room);
        chosen.iter().for_each(|shown| known.add(shown));
        chosen
    }
}

/// Returns the worth of a value that a record lists at this place: the order is that of their worth.
#[expect(clippy::cast_precision_loss, reason = "a list has far fewer than 2^52 values")]
fn listed_worth(place: usize) -> f64 {
    1.0 / (1.0 + place as f64 / 20.0)
}

/// Returns a value with the key that stands before it in JSON, if one does.
fn with_key(text: &str, value: &str) -> String {
    let at = text.find(value).unwrap_or_default();
    let from = text.floor_char_boundary(at.saturating_sub(KEY_CHARS + 20));
    match KEY.captures(&text[from..at]) {
        Some(key) => format!("{}={value}", &key[1]),
        None => value.to_owned(),
    }
}

/// Returns the first items that fit in so many characters together; a long one is passed over.
fn within<'a>(items: impl Iterator<Item = &'a str>, room: usize) -> Vec<String> {
    let mut left = room;
    let mut chosen = Vec::new();
    for item in items {
        let chars = item.chars().count() + 1;
        if chars <= left {
            left -= chars;
            chosen.push(item.to_owned());
        }
        if left < 7 {
            break;
        }
    }
    chosen
}

/// Returns the worth of a name: its uses, the later the more, for its length.
#[expect(clippy::cast_precision_loss, reason = "message numbers are far below 2^52")]
fn worth(name: &str, uses: &Uses, now: u64) -> f64 {
    let all = [uses.of_word(name), uses.in_said(name), uses.in_results(name)];
    let of = |used: &Use, worth: f64| {
        f64::from(used.count) * worth * (-(now.saturating_sub(used.last) as f64) / DECAY).exp()
    };
    let sum: f64 = all.iter().zip(WORTH).map(|(used, worth)| of(used, worth)).sum();
    sum / (name.len() as f64 + LENGTH).sqrt()
}
