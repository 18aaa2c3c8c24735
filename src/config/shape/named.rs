//! Tables whose keys are names of one's own.

use std::rc::Rc;

use figment::value::Value;

use super::Read;
use crate::config::diagnostic::{Code, Place, Problems};
use crate::config::names;
use crate::config::tree::{self, Places, Written};

/// Values by names of one's own.
#[derive(Debug)]
pub(in crate::config) struct Named<V> {
    /// By name.
    entries: Vec<Entry<V>>,
    /// Their places among the entries, in the order in which they were written.
    order: Vec<usize>,
}

/// A name, where it stands, and its value.
#[derive(Debug)]
pub(in crate::config) struct Entry<V> {
    pub(in crate::config) name: String,
    pub(in crate::config) at: Rc<Written>,
    /// Absent where it could not be read.
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

    pub(in crate::config) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Reports a name that is not among them; `code` is `unknown_` and what they are.
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

    /// The entries in the order in which they were written.
    pub(in crate::config) fn iter(&self) -> impl Iterator<Item = &Entry<V>> + Clone {
        self.order.iter().map(|at| {
            #[cfg(test)]
            looks::count();
            &self.entries[*at]
        })
    }

    /// Those that could be read, with their values.
    pub(in crate::config) fn values(&self) -> impl Iterator<Item = (&Entry<V>, &V)> {
        self.iter().filter_map(|entry| Some((entry, entry.value.as_ref()?)))
    }

    pub(in crate::config) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.iter().map(|entry| entry.name.as_str())
    }

    /// The first written of the names that begin so.
    pub(in crate::config) fn beginning_with(&self, start: &str) -> Option<&str> {
        let near = self.entries.partition_point(|entry| entry.name.as_str() < start);
        // There is seldom one, so the walk in the written order is seldom needed.
        self.entries.get(near).filter(|entry| entry.name.starts_with(start))?;
        self.names().find(|name| name.starts_with(start))
    }
}

/// Counts how often an entry is looked at: a table that is searched once for each of its entries
/// would show here.
#[cfg(test)]
pub(in crate::config) mod looks {
    use std::cell::Cell;

    thread_local!(static COUNT: Cell<usize> = const { Cell::new(0) });

    pub(super) fn count() {
        COUNT.set(COUNT.get() + 1);
    }

    /// Returns the number of looks since the last call, on this thread.
    pub(in crate::config) fn take() -> usize {
        COUNT.replace(0)
    }
}
