//! The `cluster` filter: divides a list of paths into groups of limited size by their folders.
//!
//! Pure and deterministic: the same list gives the same groups, so a script can compute the groups
//! again in every turn instead of storing them.

use minijinja::value::{Kwargs, Value as Cell};
use minijinja::{Error, ErrorKind};

/// The most groups that `min` can ask for: a mistyped number must not fill the memory.
const MOST_GROUPS: usize = 10_000;

struct Group {
    name: String,
    paths: Vec<String>,
}

/// `paths | cluster(min=1, max=none, size=none)`: groups of `{name, paths}` in the order of the
/// list.
///
/// Paths are in one group when they agree in the first component (without the extension) after the
/// folders that all paths have in common: `src/run.rs` and `src/run/watch.rs` are both `run`. A
/// group of more than `size` paths is split evenly; then the largest group is halved until there
/// are `min` groups; then the two smallest groups are joined until there are at most `max`, as long
/// as the joined group has at most `size` paths.
pub(super) fn cluster(paths: Vec<String>, options: Kwargs) -> Result<Cell, Error> {
    let count = |name, absent| -> Result<usize, Error> {
        let given = options.get::<Option<usize>>(name)?;
        match given {
            Some(0) => Err(Error::new(ErrorKind::InvalidOperation, format!("`{name}` is 0"))),
            Some(number) => Ok(number),
            None => Ok(absent),
        }
    };
    let (min, max) = (count("min", 1)?.min(MOST_GROUPS), count("max", usize::MAX)?);
    let size = count("size", usize::MAX)?;
    options.assert_all_used()?;
    let mut groups = together(paths);
    groups = groups.into_iter().flat_map(|group| split(group, size)).collect();
    while groups.len() < min && halve_largest(&mut groups) {}
    while groups.len() > max && join_smallest(&mut groups, size) {}
    let cell = |Group { name, paths }| minijinja::context! { name, paths };
    Ok(groups.into_iter().map(cell).collect())
}

/// Returns the length in bytes of the folders that every path lies in, the last slash included.
fn common_folders(paths: &[String]) -> usize {
    let Some(first) = paths.first() else { return 0 };
    let folders = first.rfind('/').map_or("", |at| &first[..=at]);
    let shared = paths.iter().fold(folders.len(), |shared, path| {
        let same = folders.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
        shared.min(same)
    });
    folders.as_bytes()[..shared].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)
}

fn together(paths: Vec<String>) -> Vec<Group> {
    let shared = common_folders(&paths);
    let mut groups: Vec<Group> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for path in paths {
        let name = key(&path[shared..]).to_owned();
        let at = *places.entry(name).or_insert_with_key(|name| {
            groups.push(Group { name: name.clone(), paths: Vec::new() });
            groups.len() - 1
        });
        groups[at].paths.push(path);
    }
    groups
}

/// Returns the first component of a path; if that is a file, without its extension.
fn key(path: &str) -> &str {
    if let Some((folder, _)) = path.split_once('/') {
        return folder;
    }
    match path.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => path,
    }
}

/// Cuts a group into parts of nearly the same length, none longer than `size`.
fn split(group: Group, size: usize) -> Vec<Group> {
    let parts = group.paths.len().div_ceil(size).max(1);
    if parts == 1 {
        return vec![group];
    }
    let length = group.paths.len().div_ceil(parts);
    let part = |(number, paths): (usize, &[String])| Group {
        name: format!("{} ({})", group.name, number + 1),
        paths: paths.to_vec(),
    };
    group.paths.chunks(length).enumerate().map(part).collect()
}

fn halve_largest(groups: &mut Vec<Group>) -> bool {
    let largest = (0..groups.len()).rev().max_by_key(|at| groups[*at].paths.len());
    let Some(at) = largest.filter(|at| groups[*at].paths.len() > 1) else { return false };
    let half = groups[at].paths.len().div_ceil(2);
    let paths = groups[at].paths.split_off(half);
    let name = groups[at].name.clone();
    groups[at].name = format!("{name}, first half");
    groups.insert(at + 1, Group { name: format!("{name}, second half"), paths });
    true
}

fn join_smallest(groups: &mut Vec<Group>, size: usize) -> bool {
    let mut by_size: Vec<usize> = (0..groups.len()).collect();
    by_size.sort_by_key(|at| groups[*at].paths.len());
    let [a, b, ..] = by_size[..] else { return false };
    let (first, second) = (a.min(b), a.max(b));
    if groups[first].paths.len() + groups[second].paths.len() > size {
        return false;
    }
    let joined = groups.remove(second);
    groups[first].name.push_str(", ");
    groups[first].name.push_str(&joined.name);
    groups[first].paths.extend(joined.paths);
    true
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::template::evaluate;

    fn groups(paths: &Value, options: &str) -> Value {
        let expression = format!("paths | cluster({options})");
        evaluate(&expression, &json!({ "paths": paths })).expect("groups")
    }

    fn names(groups: &Value) -> Vec<&str> {
        groups.as_array().expect("a list").iter().filter_map(|g| g["name"].as_str()).collect()
    }

    #[test]
    fn a_module_and_its_folder_go_together() {
        let paths = json!(["src/run.rs", "src/main.rs", "src/run/watch.rs", "src/.env"]);
        assert_eq!(
            groups(&paths, ""),
            json!([
                {"name": "run", "paths": ["src/run.rs", "src/run/watch.rs"]},
                {"name": "main", "paths": ["src/main.rs"]},
                {"name": ".env", "paths": ["src/.env"]},
            ])
        );
        assert_eq!(groups(&json!([]), "min=6"), json!([]));
        assert_eq!(names(&groups(&json!(["é/a", "è/b"]), "")), ["é", "è"]);
    }

    #[test]
    fn the_bounds_hold_and_nothing_is_lost() {
        let paths: Vec<String> = (0..100).map(|n| format!("d{}/f{n}", n % 30)).collect();
        for (options, least, most) in [
            ("max=24", 24, 24),
            ("min=50", 50, 50),
            ("min=500", 100, 100),
            ("max=5, size=10", 10, 30),
            ("size=2", 50, 60),
        ] {
            let groups = groups(&json!(paths), options);
            let groups = groups.as_array().expect("a list");
            assert!((least..=most).contains(&groups.len()), "{options}: {}", groups.len());
            let mut all: Vec<&str> = groups
                .iter()
                .flat_map(|g| g["paths"].as_array().expect("a list"))
                .filter_map(Value::as_str)
                .collect();
            all.sort_unstable();
            let mut want: Vec<&str> = paths.iter().map(String::as_str).collect();
            want.sort_unstable();
            assert_eq!(all, want, "{options}");
        }
    }

    #[test]
    fn few_files_still_make_enough_groups_with_names_of_their_own() {
        let paths: Vec<String> = (0..7).map(|n| format!("lib/f/{n}.c")).collect();
        let groups = groups(&json!(paths), "min=6");
        let mut names = names(&groups);
        assert_eq!(names.len(), 7);
        names.dedup();
        assert_eq!(names.len(), 7);
    }

    #[test]
    fn wrong_options_are_refused() {
        for options in ["size=0", "mni=3"] {
            let expression = format!("['a'] | cluster({options})");
            assert!(evaluate(&expression, &json!({})).is_err(), "{options}");
        }
    }
}
