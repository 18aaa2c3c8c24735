//! Reads `paths` and `exclusive` of tasks: tells which tasks may write the same files at the same time, and gives locks
//! to those that must not.
//!
//! `paths` says what a task means to write. Nothing keeps its tools or commands from other files.

use std::collections::{BTreeMap, HashMap};

use super::Setting;
use super::diagnostic::{NO_HELP, Place, Problems};
use super::raw::Task;
use super::shape::Item;
use crate::glob::overlap::PathPattern;
use crate::glob::{Wildcards, compile};
use crate::id::Name;
use crate::spec::{Join, TaskSpec};

/// Returns the valid patterns of a task, and reports the others.
pub(super) fn read(task: &Task, problems: &Problems) -> Vec<String> {
    if let Some(at) = task.exclusive.at().filter(|_| *task.exclusive && !task.paths.is_set()) {
        let message = "`exclusive` compares `paths`, and the task has none";
        let help = "say which files it writes: `paths = [\"src/api/**\"]`";
        problems.error("missing_field", &at.key, message, help);
    }
    let read = |Item { value, at }: &Item<String>| match wrong(value) {
        None => Some(value.clone()),
        Some((message, help)) => {
            problems.error("bad_value", &at.value, message, help);
            None
        }
    };
    let mut all: Vec<String> = task.paths.iter().filter_map(read).collect();
    all.sort();
    all.dedup();
    all
}

/// Says what is wrong with a pattern, and what to do.
fn wrong(pattern: &str) -> Option<(String, &'static str)> {
    if pattern.trim().is_empty() {
        return Some(("the pattern is empty".to_owned(), "write `**` for all files"));
    }
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        let message = format!("`{pattern}` leads out of the workspace");
        return Some((message, "name files relative to the folder of agents.toml"));
    }
    if pattern.contains("{{") {
        let message = format!("`{pattern}` is a template, and `paths` takes none");
        return Some((message, "write a pattern that matches the files of all instances"));
    }
    let error = compile(pattern, Wildcards::WithinName).err()?;
    Some((format!("`{pattern}` is no pattern: {error}"), NO_HELP))
}

/// Tasks whose `paths` are the same, and which take the same locks. One that is not exclusive stands alone, because
/// its locks must not keep another such task waiting.
struct Class {
    patterns: Vec<(String, PathPattern)>,
    exclusive: bool,
    /// Numbers of tasks.
    tasks: Vec<usize>,
}

/// Gives locks to the tasks whose `paths` overlap with those of an exclusive one, and warns of others that may write
/// the same files at the same time.
pub(super) fn check(setting: Setting<'_>, tasks: &mut [TaskSpec]) {
    let classes = classes(tasks);
    let mut order = Order::new(tasks);
    let mut locks = Vec::new();
    for (at, one) in classes.iter().enumerate() {
        let number = one.tasks[0];
        if one.exclusive {
            locks.push((format!("paths/{}", tasks[number].name), one.tasks.clone()));
        }
        let mut is_warned = false;
        for other in &classes[..at] {
            let is_locked = one.exclusive || other.exclusive;
            if !is_locked && (is_warned || order.is_given(other.tasks[0], number)) {
                continue;
            }
            let Some(patterns) = overlap(other, one) else { continue };
            let [first, second] = [&tasks[other.tasks[0]].name, &tasks[number].name];
            if is_locked {
                let both = other.tasks.iter().chain(&one.tasks).copied().collect();
                locks.push((format!("paths/{first}/{second}"), both));
            } else {
                is_warned = true;
                warn(setting, [first, second], patterns);
            }
        }
    }
    for (lock, holders) in locks {
        let Ok(lock) = Name::of_record(&lock) else { continue };
        for at in holders {
            tasks[at].locks.push(lock.clone());
        }
    }
    for task in tasks {
        // In one order, so that no two tasks take them in different ones.
        task.locks.sort();
        task.locks.dedup();
    }
}

fn classes(tasks: &[TaskSpec]) -> Vec<Class> {
    let mut found: BTreeMap<(&[String], Option<usize>), Vec<usize>> = BTreeMap::new();
    for (at, task) in tasks.iter().enumerate().filter(|(_, task)| !task.paths.is_empty()) {
        let alone = (!task.exclusive).then_some(at);
        found.entry((&task.paths, alone)).or_default().push(at);
    }
    let read = |text: &String| (text.clone(), PathPattern::read(text));
    let mut classes: Vec<Class> = found
        .into_iter()
        .map(|((patterns, alone), tasks)| Class {
            patterns: patterns.iter().map(read).collect(),
            exclusive: alone.is_none(),
            tasks,
        })
        .collect();
    // In the order of the file, so that the later of two tasks is the one that is warned of.
    classes.sort_by_key(|class| class.tasks[0]);
    classes
}

/// Returns the first patterns of two classes that may match one file.
fn overlap<'a>(one: &'a Class, other: &'a Class) -> Option<(&'a str, &'a str)> {
    one.patterns.iter().find_map(|(text, first)| {
        let met = other.patterns.iter().find(|(_, second)| first.overlaps(second))?;
        Some((text.as_str(), met.0.as_str()))
    })
}

fn warn(setting: Setting<'_>, [first, second]: [&Name; 2], patterns: (&str, &str)) {
    let message = match patterns {
        (one, other) if one == other => {
            format!("`{first}` and `{second}` may write `{one}` at the same time")
        }
        (one, other) => format!(
            "`{first}` and `{second}` may write the same files at the same time: `{one}` and `{other}` overlap"
        ),
    };
    let help = format!(
        "let one depend on the other, set `exclusive = true` for one, or narrow the `paths` of `{second}`"
    );
    if let Some(place) = place(setting, second) {
        setting.problems.warning("overlapping_paths", place, message, &help);
    }
}

/// Returns the place of the `paths` of a task, or of the sub-graph that brings the task.
fn place<'a>(setting: Setting<'a>, task: &Name) -> Option<&'a Place> {
    let entry = setting.raw.tasks.value(task.as_str().split('/').next()?)?;
    entry.paths.at().or(entry.workflow.at()).map(|at| &at.value)
}

/// Which tasks never run at the same time because one waits for the other.
struct Order<'a> {
    tasks: &'a [TaskSpec],
    /// The numbers of the dependencies of each task.
    dependencies: Vec<Vec<usize>>,
    /// For each task that was asked about, which others have ended when it starts.
    before: HashMap<usize, Vec<bool>>,
}

impl<'a> Order<'a> {
    fn new(tasks: &'a [TaskSpec]) -> Self {
        let numbers: HashMap<&Name, usize> = tasks.iter().map(|task| &task.name).zip(0..).collect();
        let of = |task: &TaskSpec| {
            task.depends_on.iter().filter_map(|name| numbers.get(name)).copied().collect()
        };
        Self { tasks, dependencies: tasks.iter().map(of).collect(), before: HashMap::new() }
    }

    fn is_given(&mut self, one: usize, other: usize) -> bool {
        self.starts_after(one, other) || self.starts_after(other, one)
    }

    /// Returns true if a task starts only when another has ended.
    fn starts_after(&mut self, task: usize, other: usize) -> bool {
        if !self.before.contains_key(&task) {
            let before = self.all_before(task);
            self.before.insert(task, before);
        }
        self.before[&task][other]
    }

    /// Walks from a task to all that have ended when it starts. A dependency that completed has started before. One
    /// that only ended may have been skipped at the first failure of its own dependencies, while others of them
    /// were at work.
    fn all_before(&self, task: usize) -> Vec<bool> {
        let mut is_before = vec![false; self.tasks.len()];
        let mut seen = [is_before.clone(), is_before.clone()];
        let mut open = vec![(task, true)];
        while let Some((at, has_started)) = open.pop() {
            if std::mem::replace(&mut seen[usize::from(has_started)][at], true) {
                continue;
            }
            is_before[at] = true;
            let (spec, of) = (&self.tasks[at], &self.dependencies[at]);
            let count = spec.depends_on.len();
            let have_completed = match spec.join {
                Join::AllSuccess => true,
                Join::AllDone | Join::NoneFailed => false,
                Join::AnySuccess => count == 1,
                Join::AtLeast(wanted) => wanted as usize >= count,
            };
            let waits_for_all =
                have_completed || matches!(spec.join, Join::AllDone | Join::NoneFailed);
            let all_have_ended = match has_started {
                true => waits_for_all,
                false => spec.join == Join::AllDone || (waits_for_all && count == 1),
            };
            if all_have_ended {
                open.extend(of.iter().map(|before| (*before, has_started && have_completed)));
            }
        }
        is_before[task] = false;
        is_before
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BASE, Workspace};

    /// The tasks of a text behind `BASE` that take locks, with them; and the problems.
    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let workspace = Workspace::new();
        let text = format!("{BASE}{text}");
        let config = workspace.good(&text, &workspace.sources());
        let held = config.tasks.iter().filter(|task| !task.locks.is_empty());
        let locks = held.map(|task| {
            let locks: Vec<&str> = task.locks.iter().map(|lock| lock.as_str()).collect();
            format!("{}: {}", task.name, locks.join(" "))
        });
        (locks.collect(), workspace.problems(&text, &workspace.sources()))
    }

    fn tasks(tasks: &[(&str, &str)]) -> String {
        let tasks = tasks.iter().map(|(name, keys)| format!("[tasks.{name}]\nrun = 'x'\n{keys}\n"));
        tasks.collect()
    }

    /// The tasks named by warnings of overlaps.
    fn warned(problems: &[String]) -> Vec<&str> {
        let told = problems.iter().filter(|problem| problem.contains(" overlapping_paths "));
        told.map(|problem| problem.split_once(" | ").expect("a help").0)
            .map(|problem| problem.split_once("overlapping_paths ").expect("a code").1)
            .collect()
    }

    #[test]
    fn tasks_that_may_write_the_same_files_at_the_same_time_are_told() {
        let u = "paths = ['src/api/**', 'docs/*.md']";
        for (v, w, expected) in [
            (
                "paths = ['src/ui/**', 'docs']",
                "",
                vec![
                    "`u` and `v` may write the same files at the same time: \
              `docs/*.md` and `docs` overlap",
                ],
            ),
            (
                "paths = ['docs/*.md']",
                "",
                vec!["`u` and `v` may write `docs/*.md` at the same time"],
            ),
            ("paths = ['src/ui/**', 'docs/*.txt']", "", vec![]),
            (
                "",
                "paths = ['docs/a.md']",
                vec![
                    "`u` and `w` may write the same files at the same time: \
              `docs/*.md` and `docs/a.md` overlap",
                ],
            ),
            // One waits for the other, through others too.
            ("depends_on = ['u']\npaths = ['docs']", "", vec![]),
            ("depends_on = ['u']", "depends_on = ['v']\npaths = ['docs']", vec![]),
            (
                "depends_on = ['u']\njoin = 'all_done'",
                "depends_on = ['v']\njoin = 'none_failed'\npaths = ['docs']",
                vec![],
            ),
            ("", "depends_on = ['u', 'v']\njoin = 'at_least:2'\npaths = ['docs']", vec![]),
            // The one between them may be skipped, because of another, while the first is at work.
            (
                "depends_on = ['u', 't']",
                "depends_on = ['v']\njoin = 'all_done'\npaths = ['docs']",
                vec![
                    "`u` and `w` may \
              write the same files at the same time: `docs/*.md` and `docs` overlap",
                ],
            ),
            (
                "depends_on = ['u', 't']\njoin = 'all_done'",
                "depends_on = ['v']\njoin = 'all_done'\npaths = ['docs']",
                vec![],
            ),
            ("depends_on = ['u', 't']", "depends_on = ['v']\npaths = ['docs']", vec![]),
            // It may start while the other is at work.
            (
                "",
                "depends_on = ['u', 'v']\njoin = 'any_success'\npaths = ['docs']",
                vec![
                    "`u` and `w` may write the \
              same files at the same time: `docs/*.md` and `docs` overlap",
                ],
            ),
        ] {
            let text = tasks(&[("u", u), ("v", v), ("w", w)]);
            let (locks, problems) = read(&text);
            assert_eq!(warned(&problems), expected, "{text}");
            assert!(locks.is_empty(), "{locks:?}");
        }
        let (_, problems) = read(&tasks(&[("u", u), ("v", "paths = ['docs']")]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("19:9 warning overlapping_paths"), "{problems:?}");
        assert!(problems[0].ends_with("or narrow the `paths` of `v`"), "{problems:?}");
    }

    #[test]
    fn each_task_is_told_once() {
        let all: Vec<String> = (0..40).map(|number| format!("u{number}")).collect();
        let all: Vec<(&str, &str)> =
            all.iter().map(|name| (name.as_str(), "paths = ['a']")).collect();
        let (_, problems) = read(&tasks(&all));
        assert_eq!(warned(&problems).len(), 39);
    }

    #[test]
    fn an_exclusive_task_shares_a_lock_with_each_that_overlaps() {
        let (locks, problems) = read(&tasks(&[
            ("u", "paths = ['src']\nexclusive = true"),
            ("v", "paths = ['src/a']\nlocks = ['db']"),
            ("w", "paths = ['src/a']"),
            ("x", "paths = ['docs']\nexclusive = true"),
            ("y", "paths = ['src']\nexclusive = true"),
        ]));
        let expected = [
            "u: paths/u paths/u/v paths/u/w",
            "v: db paths/u/v",
            "w: paths/u/w",
            "x: paths/x",
            "y: paths/u paths/u/v paths/u/w",
        ];
        assert_eq!(locks, expected);
        // `v` and `w` are not exclusive: nothing keeps one of them from running beside the other.
        assert_eq!(warned(&problems), ["`v` and `w` may write `src/a` at the same time"]);
    }

    #[test]
    fn wrong_patterns_and_keys_that_need_each_other_are_errors() {
        let workspace = Workspace::new();
        for (keys, expected) in [
            ("paths = ['']", "16:10 bad_value the pattern is empty | write `**` for all files"),
            (
                "paths = ['../x']",
                "16:10 bad_value `../x` leads out of the workspace | name files relative to the folder of agents.toml",
            ),
            (
                "paths = ['/x']",
                "16:10 bad_value `/x` leads out of the workspace | name files relative to the folder of agents.toml",
            ),
            (
                "paths = ['{{ x }}']",
                "16:10 bad_value `{{ x }}` is a template, and `paths` takes none | write a pattern that matches \
                 the files of all instances",
            ),
            (
                "paths = ['a[']",
                "16:10 bad_value `a[` is no pattern: unclosed character class; missing ']'",
            ),
            (
                "exclusive = true",
                "16:1 missing_field `exclusive` compares `paths`, and the task has none | say which files it \
                 writes: `paths = [\"src/api/**\"]`",
            ),
        ] {
            let text = format!("{BASE}{}", tasks(&[("u", keys)]));
            assert_eq!(workspace.problems(&text, &workspace.sources()), [expected], "{keys}");
        }
        let asks =
            "[tasks.u]\npaths = ['a']\nexclusive = false\n[tasks.u.approval]\nmessage = 'Go?'\n";
        let problems = workspace.problems(&format!("{BASE}{asks}"), &workspace.sources());
        assert_eq!(
            problems.iter().filter(|problem| problem.contains(" conflict ")).count(),
            2,
            "{problems:?}"
        );
    }
}
