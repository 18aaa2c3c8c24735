//! Tables whose keys are names that the user chooses.

use std::rc::Rc;

use figment::value::Value;

use super::{Field, Read};
use crate::config::diagnostic::{Code, Place, Problems};
use crate::config::names;
use crate::config::tree::{self, Places, Written};

/// Values by names that the user chooses.
#[derive(Debug)]
pub(in crate::config) struct Named<V> {
    /// The entries sorted by name, so that a name is found by binary search.
    entries: Vec<Entry<V>>,
    /// Indices into `entries`, in the order in which the entries are written.
    order: Vec<usize>,
}

/// A name, its place, and its value.
#[derive(Debug)]
pub(in crate::config) struct Entry<V> {
    pub(in crate::config) name: String,
    pub(in crate::config) at: Rc<Written>,
    /// The value; absent if it could not be read.
    pub(in crate::config) value: Option<V>,
}

impl<V> Default for Named<V> {
    fn default() -> Self {
        Self { entries: Vec::new(), order: Vec::new() }
    }
}

impl<V: Read> Read for Named<V> {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        let dict = value.as_dict()?;
        let entry = |(name, value): (&String, &Value)| Entry {
            name: name.clone(),
            at: Rc::clone(places.of(value)),
            value: V::read(value, places),
        };
        let values: Vec<&Value> = dict.values().collect();
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by_key(|at| tree::number(values[*at]));
        Some(Self { entries: dict.iter().map(entry).collect(), order })
    }
}

impl<V> Named<V> {
    pub(in crate::config) fn get(&self, name: &str) -> Option<&Entry<V>> {
        #[cfg(test)]
        looks::count();
        let at = self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name));
        Some(&self.entries[at.ok()?])
    }

    /// Returns the value of a name, if it could be read.
    pub(in crate::config) fn value(&self, name: &str) -> Option<&V> {
        self.get(name)?.value.as_ref()
    }

    pub(in crate::config) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Reports a name that does not exist; `code` is `unknown_` followed by the kind of thing.
    pub(in crate::config) fn must_have(
        &self,
        code: Code,
        name: &str,
        place: &Place,
        problems: &Problems,
    ) {
        if !self.has(name) {
            names::report_unknown(code, name, place, self.names(), problems);
        }
    }

    /// Returns the entries in the order in which they are written.
    pub(in crate::config) fn iter(&self) -> impl Iterator<Item = &Entry<V>> + Clone {
        self.order.iter().map(|at| {
            #[cfg(test)]
            looks::count();
            &self.entries[*at]
        })
    }

    /// Returns the entries whose value could be read, with the value.
    pub(in crate::config) fn values(&self) -> impl Iterator<Item = (&Entry<V>, &V)> {
        self.iter().filter_map(|entry| Some((entry, entry.value.as_ref()?)))
    }

    pub(in crate::config) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.iter().map(|entry| entry.name.as_str())
    }

    /// Returns the first written name that begins with `start`.
    pub(in crate::config) fn beginning_with(&self, start: &str) -> Option<&str> {
        let near = self.entries.partition_point(|entry| entry.name.as_str() < start);
        // There is seldom such a name, so the search in written order is seldom needed.
        self.entries.get(near).filter(|entry| entry.name.starts_with(start))?;
        self.names().find(|name| name.starts_with(start))
    }
}

impl<V> Field<Named<V>> {
    /// Reports a name that does not exist, as that of [`Named`] does. Where the whole table could not be read,
    /// nothing is known of its names.
    pub(in crate::config) fn must_have(
        &self,
        code: Code,
        name: &str,
        place: &Place,
        problems: &Problems,
    ) {
        if !self.is_wrong() {
            (**self).must_have(code, name, place, problems);
        }
    }
}

/// Counts the accesses to entries, for a test: a table that is searched once for each of its
/// entries would show as a square.
#[cfg(test)]
pub(in crate::config) mod looks {
    use std::cell::Cell;

    thread_local!(static COUNT: Cell<usize> = const { Cell::new(0) });

    pub(super) fn count() {
        COUNT.set(COUNT.get() + 1);
    }

    /// Returns the number of accesses since the last call, on this thread.
    pub(in crate::config) fn take() -> usize {
        COUNT.replace(0)
    }
}
