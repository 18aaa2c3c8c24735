//! Reads the files that a configuration names: expands globs and merges the files of `include`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use figment::value::{Dict, Value};
use globset::GlobSet;
use ignore::WalkBuilder;
use miette::NamedSource;
use rustix::fs::{Mode, OFlags};

use super::Outside;
use super::concern::{self, leads_outside};
use super::diagnostic::{Diagnostic, NO_HELP, Place, Problems, Text};
use super::raw::{File, Header};
use super::shape::{Item, Section};
use super::tree::Places;
use crate::glob::{self, Wildcards};

/// The most bytes of a file that a configuration names: no person writes one that is longer, and a
/// device has no end.
const MOST_BYTES: u64 = 16 << 20;

/// The most bytes of a configuration file. It is a hundred times the longest that is known, and
/// short enough that all of it is checked within seconds.
pub(super) const MOST_CONFIGURATION: u64 = 4 << 20;

/// The most bytes of all texts that a configuration takes from other files. A file counts each time
/// that it is named, because each agent gets a copy.
const MOST_OF_ALL: usize = 64 << 20;

/// The most files and folders that are looked at for one pattern.
const MOST_ENTRIES: usize = 100_000;

/// The text of a file, with the path of the file that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) text: String,
    /// The path without links.
    pub(super) real: PathBuf,
}

/// Reads a text file. The error of a file that is not UTF-8 names the line.
pub(super) fn text_of(path: &Path) -> Result<String, String> {
    opened(path, MOST_BYTES).map(|opened| opened.text)
}

/// Does the same with a bound in bytes, and tells which file was opened.
pub(super) fn opened(path: &Path, most: u64) -> Result<Opened, String> {
    let (file, real) = found(path)?;
    Ok(Opened { text: text_in(&file, most)?, real })
}

/// Finds a regular file without opening it, because opening a device can have an effect and opening
/// a pipe waits for its other end. Returns a handle of it, and its path without links.
fn found(path: &Path) -> Result<(fs::File, PathBuf), String> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty());
    let file = fs::File::from(handle.map_err(|error| std::io::Error::from(error).to_string())?);
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let real = fs::read_link(link_to(&file)).map_err(|error| error.to_string())?;
    Ok((file, real))
}

/// Returns the path without links of a regular file, which is not opened.
pub(super) fn real(path: &Path) -> Result<PathBuf, String> {
    found(path).map(|(_, real)| real)
}

/// How a file is beside a text.
pub(super) enum Beside {
    /// Its text is the same.
    Same,
    /// It is another one, of so many bytes; `None` if it cannot be read.
    Other(Option<u64>),
    /// It may not be touched.
    Unseen,
}

/// Compares a file with a text. It is read only if it is as long. `touches` tells of a path, as it is
/// written and then without links, whether it may be touched.
pub(super) fn beside(path: &Path, text: &str, touches: impl Fn(&Path) -> bool) -> Beside {
    if !touches(&concern::clean(path)) {
        return Beside::Unseen;
    }
    let Ok((file, real)) = found(path) else { return Beside::Other(None) };
    if !touches(&real) {
        return Beside::Unseen;
    }
    let size = file.metadata().ok().map(|metadata| metadata.len());
    let is_as_long = size == Some(text.len() as u64);
    match is_as_long && text_in(&file, MOST_BYTES).is_ok_and(|now| now == text) {
        true => Beside::Same,
        false => Beside::Other(size),
    }
}

/// Returns the path by which this process reaches an open file, whatever happens to its name.
fn link_to(file: &fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn text_in(handle: &fs::File, most: u64) -> Result<String, String> {
    let file = fs::File::open(link_to(handle)).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!("it has more than {} MiB", most >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

/// The texts of the files that the main file names, read from the disk or from the record of a run.
#[derive(Debug)]
pub(super) struct Shelf<'a> {
    pub(super) root: &'a Path,
    recorded: Option<&'a BTreeMap<String, String>>,
    outside: Outside,
    left_out: Cell<bool>,
    /// The folders outside the directory whose files a pattern names: the pattern itself needs
    /// trust, and not each file.
    named: RefCell<Vec<(PathBuf, GlobSet)>>,
    bytes: Cell<usize>,
    taken: RefCell<BTreeMap<String, String>>,
}

impl<'a> Shelf<'a> {
    pub(super) fn new(
        root: &'a Path,
        recorded: Option<&'a BTreeMap<String, String>>,
        outside: Outside,
    ) -> Self {
        Self {
            root,
            recorded,
            outside,
            left_out: Cell::default(),
            named: RefCell::default(),
            bytes: Cell::default(),
            taken: RefCell::default(),
        }
    }

    /// Returns the texts that were read, by path; a path within the root is relative to it.
    pub(super) fn into_taken(self) -> BTreeMap<String, String> {
        self.taken.into_inner()
    }

    /// Returns true if a file outside the directory was left out.
    pub(super) fn left_out(&self) -> bool {
        self.left_out.get()
    }

    fn key(&self, path: &Path) -> String {
        path.strip_prefix(self.root).unwrap_or(path).display().to_string()
    }

    /// Reads a recorded text, or else the file that the value at `place` names. Returns nothing if
    /// that cannot be read, which is reported, or if it lies outside and is left out.
    pub(super) fn read(&self, path: &Path, place: &Place, problems: &Problems) -> Option<Opened> {
        let recorded = self.recorded.and_then(|recorded| recorded.get(&self.key(path)));
        let opened = match recorded {
            Some(text) => Opened { text: text.clone(), real: self.root.join(path) },
            None => self.read_unrecorded(path, place, problems)?,
        };
        self.taken.borrow_mut().insert(self.key(path), opened.text.clone());
        Some(opened)
    }

    /// Does the same with a file that no run records.
    pub(super) fn read_unrecorded(
        &self,
        path: &Path,
        place: &Place,
        problems: &Problems,
    ) -> Option<Opened> {
        match self.open(path, place, problems) {
            Ok(opened) => opened,
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", path.display());
                problems.error("unreadable_file", place, message, NO_HELP);
                None
            }
        }
    }

    /// Opens the file that the value at `place` names. Returns `Ok(None)` if it lies outside the
    /// directory and is left out. Nothing of such a file is touched.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be read, as a fragment.
    pub(super) fn open(
        &self,
        path: &Path,
        place: &Place,
        problems: &Problems,
    ) -> Result<Option<Opened>, String> {
        let written = concern::clean(path);
        if !written.starts_with(self.root) && !self.admits(&written, place, problems) {
            return Ok(None);
        }
        let (file, real) = found(path)?;
        // A link leads elsewhere than the text says, also outside.
        let leaves = real != written && !real.starts_with(self.root);
        if leaves && !self.admits(&real, place, problems) {
            return Ok(None);
        }
        let text = text_in(&file, MOST_BYTES)?;
        self.bytes.set(self.bytes.get() + text.len());
        if self.bytes.get() > MOST_OF_ALL {
            let most = MOST_OF_ALL >> 20;
            return Err(format!("the files of a configuration have more than {most} MiB"));
        }
        Ok(Some(Opened { text, real }))
    }

    /// Names a path outside the directory as something that needs trust. Returns true if it may be
    /// touched.
    fn admits(&self, path: &Path, place: &Place, problems: &Problems) -> bool {
        let is_named = |(folder, glob): &(PathBuf, GlobSet)| {
            path.strip_prefix(folder).is_ok_and(|inner| glob.is_match(inner))
        };
        if !self.named.borrow().iter().any(is_named) {
            problems.concern(place, format!("the file `{}` is read", path.display()));
        }
        self.touches(place)
    }

    /// Returns true if a path outside that the value at `place` names may be touched.
    pub(super) fn touches(&self, place: &Place) -> bool {
        let touches = self.outside == Outside::Read || !concern::is_of_project(place);
        if !touches {
            self.left_out.set(true);
        }
        touches
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
                if !self.admits_pattern((pattern, &glob), &base, place, problems) {
                    return Vec::new();
                }
                // Without `**` the pattern fixes the depth, so deeper folders are not walked.
                let depth = (!rest.contains(&"**")).then_some(rest.len());
                let walk = WalkBuilder::new(&base).standard_filters(false).max_depth(depth).build();
                let paths = walk.filter_map(Result::ok).map(ignore::DirEntry::into_path);
                let paths: Vec<PathBuf> = paths.take(MOST_ENTRIES + 1).collect();
                if paths.len() > MOST_ENTRIES {
                    let message = format!("`{pattern}`: there are more than {MOST_ENTRIES} files");
                    problems.error("bad_value", place, message, "name a folder with fewer");
                    return Vec::new();
                }
                paths.into_iter().filter(|path| fits(path) && path.is_file()).collect()
            }
        };
        found.sort();
        if found.is_empty() {
            problems.warning("no_match", place, format!("no file fits `{pattern}`"), NO_HELP);
        }
        found
    }

    /// Does the same as [`Shelf::admits`] for the files below `base` that a pattern names.
    fn admits_pattern(
        &self,
        (pattern, glob): (&str, &GlobSet),
        base: &Path,
        place: &Place,
        problems: &Problems,
    ) -> bool {
        let Some(outside) = base.to_str().and_then(|base| leads_outside(self.root, base)) else {
            return true;
        };
        let shown = outside.display();
        problems.concern(place, format!("files in `{shown}` are read, by the pattern `{pattern}`"));
        self.named.borrow_mut().push((outside, glob.clone()));
        self.touches(place)
    }
}

/// What is known of a text before it is read as a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It is one: its lines may be shown.
    Configuration,
    /// It may be any file. Unless all its tables are those of a configuration, it is none, and
    /// nothing of it is shown: it may hold secrets.
    Anything,
}

impl Form {
    /// Judges a file by its path without links. What a project calls `.toml` and keeps in its
    /// directory is a configuration, mistakes included.
    pub(super) fn of(real: &Path, root: &Path) -> Self {
        let is_toml = real.extension().is_some_and(|extension| extension == "toml");
        match is_toml && real.starts_with(root) {
            true => Self::Configuration,
            false => Self::Anything,
        }
    }

    /// Returns true if values of a file may be shown.
    pub(super) fn shows(self, tree: &Dict) -> bool {
        self == Self::Configuration || is_configuration(tree)
    }

    /// Parses a text and reports why it cannot be parsed. Without a form, the reason is reported at
    /// `named`, which names the file, and without its lines.
    pub(super) fn parse(
        self,
        text: &Text,
        named: &Place,
        places: &mut Places,
        problems: &Problems,
    ) -> Option<Dict> {
        let parsed = places.parse(text);
        let why = match (self, parsed) {
            (_, Ok(tree)) if self.shows(&tree) => return Some(tree),
            (Self::Configuration, Err(found)) => {
                problems.add(*found);
                return None;
            }
            (_, Ok(_)) => "it has tables that no configuration has".to_owned(),
            (Self::Anything, Err(found)) => format!("line {} is not valid TOML", found.line),
        };
        let named = match Arc::ptr_eq(&named.text, text) {
            true => &Place::start(&Arc::new(NamedSource::new(text.name(), String::new()))),
            false => named,
        };
        let message = format!("`{}` is not a configuration: {why}", text.name());
        let help = "its lines are not shown: a configuration ends in `.toml`, and lies in the \
                    directory";
        problems.error("not_a_configuration", named, message, help);
        None
    }
}

/// Returns true if all tables of a file are those of a configuration.
fn is_configuration(tree: &Dict) -> bool {
    let known = |name: &str| File::KEYS.iter().copied().flatten().any(|key| key.name == name);
    tree.keys().all(|name| known(name))
}

/// Returns the hash of the texts of a configuration.
pub(super) fn hash(texts: &[Text]) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.inner().len() as u64).to_le_bytes());
        hasher.update(text.inner().as_bytes());
    }
    hasher.finalize().to_hex().to_string()
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
            let Some(read) = shelf.read(&path, &at.value, problems) else { continue };
            let form = Form::of(&read.real, root);
            let text: Text = Arc::new(NamedSource::new(name, read.text));
            texts.push(Arc::clone(&text));
            if let Some(table) = form.parse(&text, &at.value, places, problems) {
                join(main, table, places, problems);
            }
        }
    }
}

pub(super) fn join(main: &mut Dict, included: Dict, places: &Places, problems: &Problems) {
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

/// Returns the error of a folder whose path is not UTF-8, if one of them has such a path: records are JSON,
/// which has no other names.
pub(super) fn not_text(folders: &[PathBuf], file: &Text) -> Option<Diagnostic> {
    let folder = folders.iter().find(|folder| folder.to_str().is_none())?;
    let message = format!("the path `{}` is not UTF-8", folder.display());
    let help = "records are JSON, which has no other names: rename the folder";
    Some(Diagnostic::error("unreadable_file", &Place::start(file), message, help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_within_their_level() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("a path");
        for name in ["a.md", "b.txt", "docs/c.md", "docs/deep/d.md"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            std::fs::write(path, "x").expect("written");
        }
        let text: Text = Arc::new(NamedSource::new("t", String::new()));
        let problems = Problems::default();
        let names = |pattern: &str| -> Vec<String> {
            let shelf = Shelf::new(&root, None, Outside::LeaveOut);
            let found = shelf.expand(pattern, &Place::start(&text), &problems);
            let name = |p: &PathBuf| p.strip_prefix(&root).map(|p| p.display().to_string());
            found.iter().map(|p| name(p).expect("inside")).collect()
        };
        assert_eq!(names("*.md"), ["a.md"]);
        assert_eq!(names("docs/*.md"), ["docs/c.md"]);
        assert_eq!(names("**/*.md"), ["a.md", "docs/c.md", "docs/deep/d.md"]);
        assert_eq!(names("gone.md"), ["gone.md"]);
        assert_eq!(names("nowhere/*.md"), Vec::<String>::new());
        let warnings = problems.sorted(&[text]).found;
        assert_eq!(warnings.iter().map(|d| d.code).collect::<Vec<_>>(), ["no_match"]);
    }
}
