//! Folds what is alike: tasks in the same state, with the same failure, become one line.
//!
//! Pure. Owns the labels of such groups, such as `review[0..9997]`, and the bound on their number.

use std::collections::HashMap;
use std::hash::Hash;

/// The most tasks that are listed one by one: about a screen.
pub const UNFOLDED: usize = 50;

/// The most groups that tasks are folded to.
const GROUPS: usize = 40;

/// The most ranges of numbers that a label lists.
const RANGES: usize = 4;

/// Tasks that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their names in short: the name of the only one, `review[0..2,5]`, or `first … last`.
    pub label: String,
    /// Their places in the list, in order; never empty.
    pub members: Vec<usize>,
}

/// Groups names that are alike, by the first of each group: names with equal keys that differ only
/// in a number, or, where these are too many groups, all names with equal keys. A list of at most
/// [`UNFOLDED`] names stays as it is. The groups are at most 41; the last one holds the rest.
#[must_use]
pub fn fold<K: Eq + Hash>(items: &[(&str, K)]) -> Vec<Group> {
    if items.len() <= UNFOLDED {
        let alone = |(at, (name, _)): (usize, &(&str, K))| Group {
            label: (*name).to_owned(),
            members: vec![at],
        };
        return items.iter().enumerate().map(alone).collect();
    }
    let mut groups = grouped(items.iter().map(|(name, key)| (stem(name), key)));
    if groups.len() > GROUPS {
        groups = grouped(items.iter().map(|(_, key)| key));
    }
    if groups.len() > GROUPS {
        let mut rest: Vec<_> = groups.split_off(GROUPS).into_iter().flatten().collect();
        rest.sort_unstable();
        groups.push(rest);
    }
    let label = |members: &[usize]| {
        let names: Vec<_> = members.iter().map(|at| items[*at].0).collect();
        label(&names)
    };
    groups.into_iter().map(|members| Group { label: label(&members), members }).collect()
}

fn grouped<K: Eq + Hash>(keys: impl Iterator<Item = K>) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut places: HashMap<K, usize> = HashMap::new();
    for (at, key) in keys.enumerate() {
        let place = *places.entry(key).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Returns the name without the number at its end: `review[` of `review[3]`, which is not the `review` that fanned
/// out, and `t` of `t003`.
fn stem(name: &str) -> &str {
    match instance(name) {
        Some((task, _)) => &name[..=task.len()],
        None => name.trim_end_matches(|c: char| c.is_ascii_digit()),
    }
}

/// Returns the task and the number of an instance of a fan-out.
fn instance(name: &str) -> Option<(&str, u64)> {
    let (stem, number) = name.strip_suffix(']')?.rsplit_once('[')?;
    Some((stem, number.parse().ok()?))
}

/// Returns one label for names that are alike: `review[0..2,5]` for instances, `first … last` for others.
#[must_use]
pub fn label(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, .., last] => ranges(names).unwrap_or_else(|| format!("{first} … {last}")),
    }
}

/// Returns instances of one task in short; `None` if the names are others.
fn ranges(names: &[&str]) -> Option<String> {
    let mut numbers = Vec::with_capacity(names.len());
    let (task, _) = instance(names.first()?)?;
    for name in names {
        let (stem, number) = instance(name)?;
        if stem != task {
            return None;
        }
        numbers.push(number);
    }
    numbers.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if number <= *last + 1 => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let mut shown: Vec<_> = ranges
        .iter()
        .take(RANGES)
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}..{last}"),
        })
        .collect();
    if ranges.len() > RANGES {
        shown.push("…".to_owned());
    }
    Some(format!("{task}[{}]", shown.join(",")))
}

/// Returns the value that all have; `None` if they differ or there are none.
#[must_use]
pub fn same<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values = values.into_iter();
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// Formats a count with commas between thousands: `9,998`.
#[must_use]
pub fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(items: &[(String, &str)]) -> Vec<(String, usize)> {
        let items: Vec<_> = items.iter().map(|(name, key)| (name.as_str(), *key)).collect();
        let groups = fold(&items).into_iter();
        groups.map(|group| (group.label, group.members.len())).collect()
    }

    #[test]
    fn few_names_stay_and_many_are_folded() {
        let done = |name: String| (name, "done");
        let few: Vec<_> = (0..UNFOLDED).map(|n| done(format!("r[{n}]"))).collect();
        assert_eq!(folded(&few).len(), UNFOLDED);
        let mut many: Vec<_> = (0..10_000).map(|n| done(format!("r[{n}]"))).collect();
        for n in [3, 7] {
            many[n].1 = "failed";
        }
        many.push(done("report".to_owned()));
        // The task that fanned out is no instance.
        many.push(done("r".to_owned()));
        let named = |label: &str, count| (label.to_owned(), count);
        assert_eq!(
            folded(&many),
            [
                named("r[0..2,4..6,8..9999]", 9_998),
                named("r[3,7]", 2),
                named("report", 1),
                named("r", 1)
            ]
        );
        // Every second one: the ranges end.
        for n in (0..10_000).step_by(2) {
            many[n].1 = "failed";
        }
        assert_eq!(folded(&many)[0].0, "r[0,2..4,6..8,10,…]");
    }

    #[test]
    fn names_without_numbers_are_folded_by_key_and_the_groups_are_bounded() {
        let words: Vec<_> = (0..60).map(|n| (format!("t{n}x"), "done")).collect();
        assert_eq!(folded(&words), [("t0x … t59x".to_owned(), 60)]);
        let numbered: Vec<_> = (0..60).map(|n| (format!("t{n:02}"), "done")).collect();
        assert_eq!(folded(&numbered), [("t00 … t59".to_owned(), 60)]);
        let keys: Vec<_> = (0..1_000).map(|n| n.to_string()).collect();
        let apart: Vec<_> = keys.iter().map(|key| (format!("{key}x"), key.as_str())).collect();
        let groups = folded(&apart);
        assert_eq!(groups.len(), GROUPS + 1);
        assert_eq!(groups.last(), Some(&("40x … 999x".to_owned(), 960)));
        assert_eq!(folded(&[]), []);
    }

    #[test]
    fn counts_have_commas() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
