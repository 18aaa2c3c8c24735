//! The lines at which the texts of tasks are written, for the messages of a run.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use miette::NamedSource;

use super::Setting;
use super::diagnostic::{Place, line_starts};
use super::raw::Task;
use super::shape::Entry;
use crate::spec::Written;

/// The beginnings of the lines of texts. They are counted once for each text: a file can have as many texts of
/// tasks as lines.
#[derive(Debug, Default)]
pub(super) struct Lines(HashMap<*const NamedSource<String>, Vec<usize>>);

impl Lines {
    /// Returns the places of the texts of a task. The file is named as seen from the folder of the main file; what
    /// a variable or a flag gave has no place in it.
    pub(super) fn of_task(
        &mut self,
        setting: Setting<'_>,
        entry: &Entry<Task>,
        task: &Task,
    ) -> Written {
        let text = &entry.at.key.text;
        let folder = setting.sources.file.parent().unwrap_or(Path::new(""));
        let file = Path::new(text.name());
        let file = file.strip_prefix(folder).unwrap_or(file).display().to_string();
        let here = places(task).into_iter().filter(|(_, place)| Arc::ptr_eq(&place.text, text));
        Written { file, lines: here.map(|(key, place)| (key, self.of(place))).collect() }
    }

    /// Returns the lines at which the content of a text begins and ends: a line break after three quotes is no part
    /// of it.
    fn of(&mut self, place: &Place) -> (usize, usize) {
        let starts = self.0.entry(Arc::as_ptr(&place.text));
        let starts = starts.or_insert_with(|| line_starts(place.text.inner()));
        let line = |at: usize| starts.partition_point(|start| *start <= at);
        let (first, last) = (line(place.span.start), line(place.span.end));
        let written = place.written();
        let inner = written.strip_prefix("\"\"\"").or(written.strip_prefix("'''"));
        let begins_below = inner.is_some_and(|text| text.starts_with(['\n', '\r']));
        (first + usize::from(begins_below), last)
    }
}

/// Returns the places of the texts of a task by their keys.
fn places(task: &Task) -> Vec<(String, &Place)> {
    let own = [
        ("prompt", &task.prompt),
        ("output_file", &task.output_file),
        ("stdin", &task.stdin),
        ("cwd", &task.cwd),
        ("idempotency_key", &task.idempotency_key),
        ("foreach", &task.foreach),
        ("foreach_key", &task.foreach_key),
        ("when", &task.when),
        ("until", &task.r#loop.until),
    ];
    let mut all: Vec<(String, &Place)> = Vec::new();
    all.extend(own.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.placed()?.1))));
    let env = task.env.values();
    all.extend(env.map(|(name, _)| (format!("env.{}", name.name), &name.at.value)));
    if let Some(approval) = task.approval.as_ref() {
        all.extend(approval.message.placed().map(|(_, place)| ("message".to_owned(), place)));
        let show = approval.show.iter().enumerate();
        all.extend(show.map(|(number, item)| (format!("show[{number}]"), &item.at.value)));
    }
    for (number, check) in task.checks.iter().enumerate() {
        let (key, check) = (format!("checks[{number}]"), &check.value);
        all.extend(check.prompt.placed().map(|(_, place)| (format!("{key}.prompt"), place)));
        let env = check.env.values();
        all.extend(env.map(|(name, _)| (format!("{key}.env.{}", name.name), &name.at.value)));
    }
    all
}
