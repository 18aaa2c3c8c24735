//! The shortest ids of runs that are unique in one folder.
//!
//! Ids made within the same minute share their beginning, so they are shortened from the end.

use std::collections::HashMap;

/// The least characters of a short id in a list.
const LEAST: usize = 4;

/// The least characters in a command that is printed: it is typed later, when there are more runs.
const LEAST_TYPED: usize = 8;

/// The runs of a folder with their short ids.
#[derive(Clone, Debug, Default)]
pub(super) struct ShortIds(HashMap<String, String>);

impl ShortIds {
    /// Finds the shortest ends by which these ids differ, all of one length.
    pub(super) fn of_runs(ids: impl Iterator<Item = String>) -> Self {
        Self::of_at_least(LEAST, ids)
    }

    /// Finds ends that stay those of one run, most likely, when more runs come.
    pub(super) fn to_type(ids: impl Iterator<Item = String>) -> Self {
        Self::of_at_least(LEAST_TYPED, ids)
    }

    fn of_at_least(least: usize, ids: impl Iterator<Item = String>) -> Self {
        let ids: Vec<String> = ids.collect();
        let longest = ids.iter().map(String::len).max().unwrap_or(0);
        let end = |id: &str, length: usize| id[id.len().saturating_sub(length)..].to_owned();
        let is_unique = |length: &usize| {
            let mut ends: Vec<_> = ids.iter().map(|id| end(id, *length)).collect();
            ends.sort_unstable();
            ends.windows(2).all(|pair| pair[0] != pair[1])
        };
        let length = (least..=longest).find(is_unique).unwrap_or(longest);
        Self(ids.iter().map(|id| (id.clone(), end(id, length))).collect())
    }

    /// Returns the short id of a run; an unknown id stays whole.
    pub(super) fn of(&self, id: &str) -> String {
        self.0.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_short_as_they_can_be() {
        let ids = ["01a1-7000-aaaa1111", "01a1-7000-bbbb1111", "01a1-7000-cccc2222"];
        let short = ShortIds::of_runs(ids.iter().map(|id| (*id).to_owned()));
        assert_eq!(ids.map(|id| short.of(id)), ["a1111", "b1111", "c2222"]);
        let one = ShortIds::of_runs(std::iter::once(ids[0].to_owned()));
        assert_eq!((one.of(ids[0]), one.of("other")), ("1111".to_owned(), "other".to_owned()));
        let typed = ShortIds::to_type(ids.iter().map(|id| (*id).to_owned()));
        assert_eq!(ids.map(|id| typed.of(id)), ["aaaa1111", "bbbb1111", "cccc2222"]);
    }
}
