//! Decides whether a result from before still holds.
//!
//! One rule for every continuation: a result holds for what it was made from. That is the content of
//! its task (program, agents, models, rules for the answer), in which stands what it reads of the tasks
//! before it, and how the tasks ended for which it waited. Of a task that it waits for and does not
//! name, nobody knows what it uses; so the output of such a task counts as a whole.

use std::collections::BTreeSet;

use super::Facts;
use super::scope::{reads, tasks_read_by};
use crate::id::Name;
use crate::output::Output;
use crate::plan::TaskState;
use crate::spec::{TaskSpec, Work};
use crate::turn::Program;
use crate::turn::content::Content;
use crate::turn::question::Shown;

impl Facts {
    /// Returns the hash of everything that an approval asks about: its words, its values, and how each
    /// task before it ended, with its output.
    pub(super) fn content_of_question(
        &self,
        place: usize,
        message: &str,
        shown: &[Shown],
    ) -> String {
        let before = self.spec(place).depends_on.iter().filter_map(|name| {
            let status = self.state.task(name)?;
            let output = status.output.as_ref().filter(|_| !self.is_answer(name));
            Some((status.state.as_read(), output.map(Output::hash)))
        });
        let before: Vec<_> = before.collect();
        let text = serde_json::json!({ "message": message, "shown": shown, "before": before });
        blake3::hash(text.to_string().as_bytes()).to_hex()[..32].to_owned()
    }

    /// Returns the result that a task has from before, if it was made from the content with this key.
    pub(super) fn kept_result(&self, place: usize, key: &str) -> Option<Output> {
        let status = self.status(place)?;
        if status.anew {
            return None;
        }
        // What cleans up does so after each time that something ran.
        let kept = status.kept.as_ref().filter(|kept| kept.key == key);
        let own = kept.filter(|_| !self.spec(place).always).map(|kept| kept.output.clone());
        own.or_else(|| self.state.earlier_result(key).cloned())
    }

    /// Returns the answer that an approval has from before, if it asks about the same.
    pub(super) fn kept_answer(&self, place: usize, key: &str) -> Option<Output> {
        let kept = self.status(place)?.kept.as_ref()?;
        let holds = kept.question.is_some() && kept.key == key;
        holds.then(|| kept.output.clone())
    }

    /// Returns true if a task that was opened again must wait for a task before it, although its
    /// `join` could do without: what it was made from may change.
    pub(super) fn waits_for_content(&self, place: usize) -> bool {
        self.status(place).is_some_and(|status| status.again) && self.agenda.open_before(place)
    }

    /// Returns how the tasks ended for which a task waited, as far as its own content does not say it:
    /// the states of those that did not complete, and the outputs of those that it does not name. The
    /// names of tasks and their order do not count. A task that needs only some of the tasks before
    /// it is made from what it reads.
    fn waited_for(&self, place: usize) -> Vec<String> {
        let task = self.spec(place);
        if task.depends_on.is_empty() || task.effective_join().wanted().is_some() {
            return Vec::new();
        }
        let mut named = None;
        let mut waited = Vec::new();
        for name in &task.depends_on {
            let Some(status) = self.state.task(name) else { continue };
            if status.state.as_read() != TaskState::Completed.as_str() {
                waited.push(status.state.as_str().to_owned());
                continue;
            }
            let named = named.get_or_insert_with(|| self.named_by(place));
            let local = task.within.as_ref().map_or(Some(name.as_str()), |w| w.local(name));
            let is_named = local.is_some_and(|local| named.contains(local));
            if !is_named && !self.is_answer(name) {
                waited.extend(status.output.as_ref().map(Output::hash));
            }
        }
        waited.sort();
        waited
    }

    /// Returns the tasks that the templates of a task or of its fan-out name.
    fn named_by(&self, place: usize) -> BTreeSet<String> {
        let task = self.spec(place);
        let of = self.settings.plan.member(place).map_or(place, |member| member.of);
        let Some(fan_out) = &self.spec(of).fan_out else { return reads(task) };
        let list = format!("{{{{ {} }}}}", fan_out.list);
        let of_items = tasks_read_by([list.as_str()].into_iter().chain(fan_out.key.as_deref()));
        // What cannot be told may be any of them.
        let all = || task.depends_on.iter().map(ToString::to_string).collect();
        let mut named = of_items.unwrap_or_else(all);
        named.extend(reads(task));
        named
    }

    /// Returns true if the output of a task is the answer of a person. It tells when and by whom it
    /// was given, which changes nothing for the tasks that wait for it.
    fn is_answer(&self, name: &Name) -> bool {
        let task = self.settings.plan.task(name);
        task.is_some_and(|task: &TaskSpec| matches!(task.work, Work::Approval(_)))
    }

    /// Returns the content that the result of a task is made from at this moment.
    pub(super) fn content<'a>(&'a self, place: usize, program: &'a Program) -> Content<'a> {
        Content::of(program, self.spec(place), &self.settings.env, &&self.settings)
            .with_results(&self.settings.results)
            .after(self.waited_for(place))
    }
}

#[cfg(test)]
mod tests;
