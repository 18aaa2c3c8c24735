//! The names by which people know the instances of fan-outs: `count[f7.txt]` for the recorded `count[6]`.
//!
//! Pure. Owns both directions: what is shown for a recorded name, and which recorded name a person means. The number
//! stays where the key is a number or could be mistaken for another instance, and where it is the hash of an item, which
//! says less.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::event::{Event, Record};
use crate::id::Name;
use crate::printable;
use crate::run_state::RunState;

/// The most characters of a key in a name: most paths, in half a row of a terminal. A longer one is cut in the middle.
const WIDEST_KEY: usize = 40;

/// The digits of a key that is the hash of an item (`run_machine/items.rs`).
const HASH: usize = 16;

/// The keys of the fan-outs of a run.
#[derive(Clone, Debug, Default)]
pub struct Names(HashMap<Name, Vec<Item>>);

/// The item of one instance; its place in the list is the number of the instance.
#[derive(Clone, Debug)]
struct Item {
    key: String,
    /// The key as it is shown; `None` if the number is.
    label: Option<String>,
}

impl Names {
    /// Returns the names of a run.
    #[must_use]
    pub fn of(state: &RunState) -> Self {
        let mut names = Self::default();
        for (name, task) in state.tasks().filter(|(_, task)| !task.instances.is_empty()) {
            names.add(name, task.instances.iter().map(|(_, key)| key.as_str()));
        }
        names
    }

    /// Takes the keys of a fan-out from its record.
    pub fn apply(&mut self, record: &Record) {
        if let (Some(task), Event::TaskStarted(started)) = (&record.task, &record.event)
            && let Some(instances) = &started.instances
        {
            self.add(task, instances.keys.iter().map(String::as_str));
        }
    }

    fn add<'a>(&mut self, task: &Name, keys: impl Iterator<Item = &'a str>) {
        let labelled: Vec<_> = keys.map(|key| (key, label(key))).collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for (_, label) in &labelled {
            *counts.entry(label).or_default() += 1;
        }
        // A number is the name of an instance by its place. Beside `count[0]`, `count[4]` would be read as one too,
        // also where the list has no fifth item.
        let is_number =
            |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_digit());
        let is_hash = |label: &str| {
            label.len() == HASH && label.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_clear = |label: &str| {
            let is_alone = counts.get(label) == Some(&1);
            is_alone && !label.trim().is_empty() && !is_number(label) && !is_hash(label)
        };
        let item = |(key, label): &(&str, Cow<'_, str>)| Item {
            key: (*key).to_owned(),
            label: is_clear(label).then(|| label.to_string()),
        };
        let items = labelled.iter().map(item).collect();
        self.0.insert(task.clone(), items);
    }

    /// Returns the key of an instance, whole; `None` for another task.
    #[must_use]
    pub fn key(&self, task: &str) -> Option<&str> {
        let (item, after) = self.item(task)?;
        after.is_empty().then_some(item.key.as_str())
    }

    /// Returns the recorded name of a task or the id of an agent as people read it: safe to show in one line.
    #[must_use]
    pub fn shown<'a>(&self, recorded: &'a str) -> Cow<'a, str> {
        let labelled = self.item(recorded).and_then(|(item, after)| {
            let (label, (task, _)) = (item.label.as_ref()?, recorded.split_once('[')?);
            Some(format!("{task}[{label}]{}", printable::line(after)))
        });
        labelled.map_or_else(|| printable::line(recorded), Cow::Owned)
    }

    /// Returns the recorded name of a task or the id of an agent that a person typed, with the number or the key of an
    /// instance. Any other text stays as it is.
    #[must_use]
    pub fn recorded<'a>(&self, typed: &'a str) -> Cow<'a, str> {
        if self.item(typed).is_some() {
            return typed.into();
        }
        let Some((task, rest)) = typed.split_once('[') else { return typed.into() };
        let items = self.0.get(task).into_iter().flatten().enumerate();
        let meant = items.flat_map(|(number, Item { key, label })| {
            let texts = [Some(key), label.as_ref()].into_iter().flatten();
            texts.filter_map(move |text| {
                let after = rest.strip_prefix(text.as_str())?.strip_prefix(']')?;
                is_end_or_below(after).then_some((text.len(), number, after))
            })
        });
        // A key may hold brackets too: the longest one is the whole.
        match meant.max_by_key(|(length, ..)| *length) {
            Some((_, number, after)) => format!("{task}[{number}]{after}").into(),
            None => typed.into(),
        }
    }

    /// Returns the item of the instance to which a recorded name belongs, and what follows in the name.
    fn item<'a>(&self, recorded: &'a str) -> Option<(&Item, &'a str)> {
        let (task, rest) = recorded.split_once('[')?;
        let (number, after) = rest.split_once(']')?;
        let item = self.0.get(task)?.get(number.parse::<usize>().ok()?)?;
        is_end_or_below(after).then_some((item, after))
    }
}

/// Returns true for what can follow the name of a task in the id of an agent.
fn is_end_or_below(after: &str) -> bool {
    after.is_empty() || after.starts_with(['~', '/'])
}

fn label(key: &str) -> Cow<'_, str> {
    match printable::line(key) {
        Cow::Borrowed(key) => cut_middle(key, WIDEST_KEY),
        Cow::Owned(key) => cut_middle(&key, WIDEST_KEY).into_owned().into(),
    }
}

/// Cuts the middle out of a text of more than `width` characters: names differ at their ends.
#[must_use]
pub fn cut_middle(text: &str, width: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= width {
        return text.into();
    }
    let head = width.saturating_sub(1) / 2;
    let tail = width.saturating_sub(head + 1);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{begin}…{end}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &[&str]) -> Names {
        let mut names = Names::default();
        names.add(&Name::new("count").expect("a name"), keys.iter().copied());
        names
    }

    #[test]
    fn instances_are_shown_by_their_keys() {
        let long = format!("src/{}/lib.rs", "x".repeat(100));
        let names = names(&["f7.txt", "src/b.rs", "a]~2", &long, "x\u{1b}[2J\n"]);
        let cut = format!("src/{}…{}/lib.rs", "x".repeat(15), "x".repeat(13));
        let table = [
            ("count", "count"),
            ("count[0]", "count[f7.txt]"),
            ("count[1]", "count[src/b.rs]"),
            ("count[0]~2", "count[f7.txt]~2"),
            ("count[1]~2/reader-1", "count[src/b.rs]~2/reader-1"),
            ("count[2]~2", "count[a]~2]~2"),
            ("count[3]", &format!("count[{cut}]")),
            ("other[0]", "other[0]"),
        ];
        for (recorded, shown) in table {
            assert_eq!(names.shown(recorded), shown);
            assert_eq!(names.recorded(shown), recorded);
            // What is recorded is always understood.
            assert_eq!(names.recorded(recorded), recorded);
        }
        let hostile = names.shown("count[4]").into_owned();
        assert!(!hostile.contains(|c: char| c.is_control()), "{hostile}");
        assert_eq!(names.recorded(&hostile), "count[4]");
        assert_eq!(names.recorded(&format!("count[{long}]")), "count[3]");
        assert_eq!(names.key("count[3]"), Some(long.as_str()));
        assert_eq!((names.key("count"), names.key("count[0]~2")), (None, None));
        for other in ["count[f8.txt]", "count[5]", "count[99999999999999999999]", "count[", "[", ""]
        {
            assert_eq!((names.shown(other), names.recorded(other)), (other.into(), other.into()));
        }
    }

    #[test]
    fn numbers_as_items_are_shown_by_their_places_alone() {
        let names = names(&["0", "1", "2", "4", "2024-01"]);
        for number in 0..=3 {
            let name = format!("count[{number}]");
            assert_eq!(names.shown(&name), name);
        }
        assert_eq!(names.shown("count[4]"), "count[2024-01]");
        // The place comes before the key, and a key that is no place is understood.
        assert_eq!(names.recorded("count[4]"), "count[4]");
        let years = self::names(&["2023", "2024"]);
        assert_eq!(
            (years.shown("count[1]"), years.recorded("count[2024]")),
            ("count[1]".into(), "count[1]".into())
        );
    }

    #[test]
    fn a_key_that_could_mean_another_instance_leaves_the_number() {
        const HASHED: &str = "0123456789abcdef";
        let same = format!("{}1{}", "x".repeat(30), "y".repeat(30));
        let alike = format!("{}2{}", "x".repeat(30), "y".repeat(30));
        let names = names(&["1", "", "  ", &same, &alike, "1234", "05", "twice", "twice", HASHED]);
        for number in 0..=9 {
            let name = format!("count[{number}]");
            assert_eq!(names.shown(&name), name);
        }
        assert_eq!(names.recorded("count[1234]"), "count[5]");
        // A number is the place in the list before it is a key.
        assert_eq!(names.recorded("count[1]"), "count[1]");
        assert_eq!(names.recorded(&format!("count[{alike}]")), "count[4]");
        assert_eq!(names.recorded(&format!("count[{HASHED}]")), "count[9]");
    }
}
