//! Reads the files that a configuration names: expands globs and merges the files of `include`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use figment::value::{Dict, Value};
use ignore::WalkBuilder;
use miette::NamedSource;

use super::diagnostic::{NO_HELP, Place, Problems, Text};
use super::raw::Header;
use super::shape::{Item, Section};
use super::tree::Places;
use crate::glob::{self, Wildcards};

/// Reads the text file that the value at `place` names.
pub(super) fn read(path: &Path, place: &Place, problems: &Problems) -> Option<String> {
    match text_of(path) {
        Ok(text) => Some(text),
        Err(error) => {
            let message = format!("cannot read `{}`: {error}", path.display());
            problems.error("unreadable_file", place, message, NO_HELP);
            None
        }
    }
}

/// The most bytes of a file that a configuration is read from: no person writes one that is longer,
/// and a device has no end.
const MOST_BYTES: u64 = 16 << 20;

/// Reads a text file. The error of a file that is not UTF-8 names the line.
pub(super) fn text_of(path: &Path) -> Result<String, String> {
    let bytes = bytes_of(path)?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

/// Reads a regular file of bounded size. Opening a pipe would wait for its other end.
fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    match bytes.len() as u64 > MOST_BYTES {
        true => Err(format!("it has more than {} MiB", MOST_BYTES >> 20)),
        false => Ok(bytes),
    }
}

/// The texts of the files that the main file names, read from the disk or from the record of a run.
#[derive(Debug)]
pub(super) struct Shelf<'a> {
    root: &'a Path,
    recorded: Option<&'a BTreeMap<String, String>>,
    taken: RefCell<BTreeMap<String, String>>,
}

impl<'a> Shelf<'a> {
    pub(super) fn new(root: &'a Path, recorded: Option<&'a BTreeMap<String, String>>) -> Self {
        Self { root, recorded, taken: RefCell::default() }
    }

    /// Returns the texts that were read, by path; a path within the root is relative to it.
    pub(super) fn into_taken(self) -> BTreeMap<String, String> {
        self.taken.into_inner()
    }

    fn key(&self, path: &Path) -> String {
        path.strip_prefix(self.root).unwrap_or(path).display().to_string()
    }

    /// Reads a recorded text, or else the file like [`read`].
    pub(super) fn read(&self, path: &Path, place: &Place, problems: &Problems) -> Option<String> {
        let text = match self.recorded.and_then(|recorded| recorded.get(&self.key(path))) {
            Some(text) => text.clone(),
            None => read(path, place, problems)?,
        };
        self.taken.borrow_mut().insert(self.key(path), text.clone());
        Some(text)
    }

    /// Returns the files that a pattern matches, sorted. A path without wildcards stands for
    /// itself, whether it exists or not. A pattern that matches nothing is a warning.
    pub(super) fn expand(&self, pattern: &str, place: &Place, problems: &Problems) -> Vec<PathBuf> {
        let root = self.root;
        let wild = |part: &str| part.contains(['*', '?', '[', '{']);
        let parts: Vec<&str> = pattern.split('/').collect();
        let Some(first) = parts.iter().position(|part| wild(part)) else {
            return vec![root.join(pattern)];
        };
        let (fixed, rest) = parts.split_at(first);
        let base = match (fixed, pattern.starts_with('/')) {
            ([], _) => root.to_path_buf(),
            (fixed, true) => Path::new("/").join(fixed.join("/").trim_start_matches('/')),
            (fixed, false) => root.join(fixed.join("/")),
        };
        let glob = match glob::compile(&rest.join("/"), Wildcards::WithinName) {
            Ok(glob) => glob,
            Err(error) => {
                let message = format!("`{pattern}`: {error}");
                problems.error("bad_value", place, message, NO_HELP);
                return Vec::new();
            }
        };
        let fits = |path: &Path| path.strip_prefix(&base).is_ok_and(|inner| glob.is_match(inner));
        let mut found: Vec<PathBuf> = match self.recorded {
            Some(files) => {
                files.keys().map(|key| root.join(key)).filter(|path| fits(path)).collect()
            }
            None => {
                // Without `**` the pattern fixes the depth, so deeper folders are not walked.
                let depth = (!rest.contains(&"**")).then_some(rest.len());
                let walk = WalkBuilder::new(&base).standard_filters(false).max_depth(depth).build();
                let paths = walk.filter_map(Result::ok).map(ignore::DirEntry::into_path);
                paths.filter(|path| fits(path) && path.is_file()).collect()
            }
        };
        found.sort();
        if found.is_empty() {
            problems.warning("no_match", place, format!("no file fits `{pattern}`"), NO_HELP);
        }
        found
    }
}

/// Merges the files that `include` names into the main file. Sections are joined; a key of a
/// section may be in one file only.
pub(super) fn include(
    main: &mut Dict,
    patterns: &[Item<String>],
    shelf: &Shelf<'_>,
    texts: &mut Vec<Text>,
    places: &mut Places,
    problems: &Problems,
) {
    let root = shelf.root;
    // The name is built like that of the main file, so that diagnostics of both look alike.
    let shown = Path::new(texts[0].name()).parent().unwrap_or(Path::new("")).to_path_buf();
    let own = root.join(Path::new(texts[0].name()).file_name().unwrap_or_default());
    for Item { value: pattern, at } in patterns {
        for path in shelf.expand(pattern, &at.value, problems) {
            let name = shown.join(path.strip_prefix(root).unwrap_or(&path)).display().to_string();
            if path == own || texts.iter().any(|text| text.name() == name) {
                continue;
            }
            let Some(content) = shelf.read(&path, &at.value, problems) else { continue };
            let text: Text = Arc::new(NamedSource::new(name, content));
            texts.push(Arc::clone(&text));
            match places.parse(&text) {
                Ok(table) => join(main, table, places, problems),
                Err(found) => problems.add(*found),
            }
        }
    }
}

fn join(main: &mut Dict, included: Dict, places: &Places, problems: &Problems) {
    let header = Header::read_keys(&included, places);
    let nested = header.include.at();
    if let Some(at) = nested {
        problems.error("bad_value", &at.key, "an included file cannot include others", NO_HELP);
    }
    let is_nested = |value: &Value| nested.is_some_and(|at| std::ptr::eq(at, &**places.of(value)));
    for (key, more) in included.into_iter().filter(|(_, value)| !is_nested(value)) {
        match (main.get_mut(&key), more) {
            (None, more) => drop(main.insert(key, more)),
            (Some(Value::Dict(_, own)), Value::Dict(_, more)) => {
                for (key, value) in more {
                    match own.get(&key) {
                        Some(first) => duplicate(&key, first, &value, places, problems),
                        None => drop(own.insert(key, value)),
                    }
                }
            }
            (Some(first), more) => duplicate(&key, first, &more, places, problems),
        }
    }
}

fn duplicate(key: &str, first: &Value, again: &Value, places: &Places, problems: &Problems) {
    let (first, again) = (&places.of(first).key, &places.of(again).key);
    let (line, _) = first.line_column();
    let message = format!("`{key}` is already set in {}, line {line}", first.text.name());
    problems.error("duplicate_key", again, message, NO_HELP);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_within_their_level() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["a.md", "b.txt", "docs/c.md", "docs/deep/d.md"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            std::fs::write(path, "x").expect("written");
        }
        let text: Text = Arc::new(NamedSource::new("t", String::new()));
        let problems = Problems::default();
        let names = |pattern: &str| -> Vec<String> {
            let shelf = Shelf::new(dir.path(), None);
            let found = shelf.expand(pattern, &Place::start(&text), &problems);
            let name = |p: &PathBuf| p.strip_prefix(dir.path()).map(|p| p.display().to_string());
            found.iter().map(|p| name(p).expect("inside")).collect()
        };
        assert_eq!(names("*.md"), ["a.md"]);
        assert_eq!(names("docs/*.md"), ["docs/c.md"]);
        assert_eq!(names("**/*.md"), ["a.md", "docs/c.md", "docs/deep/d.md"]);
        assert_eq!(names("gone.md"), ["gone.md"]);
        assert_eq!(names("nowhere/*.md"), Vec::<String>::new());
        let warnings = problems.settle(&[text]).expect("warnings only");
        assert_eq!(warnings.iter().map(|d| d.code).collect::<Vec<_>>(), ["no_match"]);
    }
}
