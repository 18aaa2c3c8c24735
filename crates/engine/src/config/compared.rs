//! The differences between the configuration that a run recorded and what is on the disk now.
//!
//! A record may be of somebody else and name any file. So what lies outside the directory is compared
//! only if a configuration that a person trusts names it, no value of it is ever shown, and a file is
//! read only if it has the size of the recorded text: a record costs no more than its own length.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use figment::value::{Dict, Value};
use miette::NamedSource;

use super::files::{self, Beside, Form};
use super::layers::recorded;
use super::tree::{self, Places};
use super::{Config, Diagnostic, Sources, root};
use crate::event::RunCreated;

/// The most characters of a value in a list of changes, so that two values fit a line.
const VALUE: usize = 40;

/// What a comparison of a run's recorded configuration with the disk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The keys, files and variables that differ.
    pub changes: Vec<KeyChange>,
    /// True if something lies outside the directory and was not looked at, because nobody trusts it.
    pub has_unseen: bool,
}

/// Why a configuration file cannot be compared.
#[derive(Debug)]
pub enum NotCompared {
    /// It cannot be read; the reason, as a fragment.
    Unreadable(String),
    /// It is not TOML.
    NotToml(Box<Diagnostic>),
}

/// Compares the configuration that a run recorded with the file as it is now, the files that it names,
/// and the variables of `environment` that set keys. Comments and order do not count. `trusted` is the
/// configuration of the record, if a person trusts it: outside of the directory only what it names is
/// looked at.
///
/// # Errors
/// Returns why the configuration file cannot be compared.
pub fn compared(
    created: &RunCreated,
    sources: &Sources,
    environment: &BTreeMap<String, String>,
    trusted: Option<&Config>,
) -> Result<Comparison, NotCompared> {
    let mut found = Comparison::default();
    let root = root(&sources.file);
    let is_own = trusted.is_some() || !sources.recorded_elsewhere;
    let mut beside = |key: &str, path: &Path, before: &str| {
        let is_named = trusted.is_some_and(|config| config.files.contains_key(key));
        let touches = |path: &Path| is_named || is_own && path.starts_with(&root);
        match files::beside(path, before, touches) {
            Beside::Same => {}
            Beside::Unseen => found.has_unseen = true,
            Beside::Other(now) => found.changes.push(KeyChange {
                key: key.to_owned(),
                before: Some(size(before.len() as u64)),
                now: now.map(size),
            }),
        }
    };
    for (path, before) in &created.files {
        beside(path, &root.join(path), before);
    }
    let named = root.join(sources.file.file_name().unwrap_or_default());
    let before = keys(&created.config, &sources.file).unwrap_or_default();
    let now = if is_own { configuration(&named, sources)? } else { None };
    match now {
        Some(now) => drop(found.changes.splice(0..0, differences(&before, &now))),
        None => beside(&sources.file.display().to_string(), &named, &created.config),
    }
    found.changes.extend(differences(&created.settings, &recorded(environment)));
    Ok(found)
}

/// Returns the keys of the configuration file, or `None` if it lies where none of its values is shown, or
/// is no configuration: the record may name any file.
fn configuration(
    named: &Path,
    sources: &Sources,
) -> Result<Option<BTreeMap<String, String>>, NotCompared> {
    let real = files::real(named).map_err(NotCompared::Unreadable)?;
    let root = root(&sources.file);
    if !real.starts_with(&root) {
        return Ok(None);
    }
    let text = files::text_of(&real).map_err(NotCompared::Unreadable)?;
    let form = Form::of(&real, &root);
    match tree_of(&text, &sources.file) {
        Ok(tree) if form.shows(&tree) => Ok(Some(flat(&tree))),
        Err(found) if form == Form::Configuration => Err(NotCompared::NotToml(found)),
        Ok(_) | Err(_) => Ok(None),
    }
}

fn size(bytes: u64) -> String {
    format!("{bytes} bytes")
}

/// A key whose value differs between the recorded text and the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key, with dots between the levels.
    pub key: String,
    /// The recorded value; absent when the key is new.
    pub before: Option<String>,
    /// The current value; absent when the key is gone.
    pub now: Option<String>,
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, before, now } = self;
        match (before, now) {
            (Some(before), Some(now)) => write!(f, "~ {key}: {} -> {}", cut(before), cut(now)),
            (None, Some(now)) => write!(f, "+ {key}: {}", cut(now)),
            (Some(before), None) => write!(f, "- {key}: {}", cut(before)),
            (None, None) => write!(f, "  {key}"),
        }
    }
}

fn cut(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(VALUE).collect();
    if characters.next().is_some() {
        shown.push_str("...");
    }
    shown
}

fn differences(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<KeyChange> {
    let mut all: Vec<_> = before.keys().chain(after.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let differs = all.into_iter().filter(|key| before.get(*key) != after.get(*key));
    let change = |key: &String| KeyChange {
        key: key.clone(),
        before: before.get(key).cloned(),
        now: after.get(key).cloned(),
    };
    differs.map(change).collect()
}

/// Returns the keys of a text with their values, as JSON.
pub(super) fn keys(text: &str, file: &Path) -> Result<BTreeMap<String, String>, Box<Diagnostic>> {
    tree_of(text, file).map(|tree| flat(&tree))
}

fn tree_of(text: &str, file: &Path) -> Result<Dict, Box<Diagnostic>> {
    let named = Arc::new(NamedSource::new(file.display().to_string(), text.to_owned()));
    Places::default().parse(&named)
}

fn flat(tree: &Dict) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    collect(tree, "", &mut all);
    all
}

fn collect(table: &Dict, above: &str, all: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = match above {
            "" => key.clone(),
            above => format!("{above}.{key}"),
        };
        match value {
            Value::Dict(_, inner) if !inner.is_empty() => collect(inner, &key, all),
            _ => drop(all.insert(key, tree::json(value).to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_count_as_changes() {
        let recorded = "# old\nversion = 1\n[tasks.a]\nrun = 'x'\n[tasks.b]\nrun = 'y'\n";
        let keys = |text: &str| keys(text, Path::new("a.toml"));
        let before = keys(recorded).expect("TOML");
        let changes = |now: &str| keys(now).map(|now| differences(&before, &now));
        let same = changes("version = 1 # new\ntasks = {b.run='y', a.run=\"x\"}").expect("TOML");
        assert_eq!(same, []);
        let now =
            format!("version = 1\n[tasks.a]\nrun = '{}'\n[tasks.c]\nrun = 'z'\n", "x".repeat(50));
        let lines: Vec<_> = changes(&now).expect("TOML").iter().map(ToString::to_string).collect();
        let long = format!("~ tasks.a.run: \"x\" -> \"{}...", "x".repeat(39));
        assert_eq!(lines, [long.as_str(), "- tasks.b.run: \"y\"", "+ tasks.c.run: \"z\""]);
        let found = changes("version = 1\n[tasks.a]\nrun = x\n").expect_err("not TOML");
        assert_eq!((found.file.as_str(), found.line, found.column), ("a.toml", 3, 7));
    }

    const TEXT: &str = "version = 1\n[tasks.a]\nrun = 'true'\n";

    /// What is shown of a record that names a file and other files, in a directory `p` beside `out`.
    fn shown(
        file: &str,
        files: &[(&str, &str)],
        make: impl Fn(&Path),
        trust: bool,
    ) -> (bool, Vec<String>) {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("p");
        std::fs::create_dir_all(above.path().join("out")).expect("made");
        std::fs::create_dir_all(dir.join(".transcripts")).expect("made");
        let secret = "[registry]\ntoken = 'CANARY'\n";
        std::fs::write(above.path().join("out/secret.toml"), secret).expect("written");
        std::fs::write(dir.join("agents.toml"), TEXT).expect("written");
        make(&dir);
        let files: BTreeMap<_, _> = files.iter().copied().collect();
        let created: RunCreated = serde_json::from_value(serde_json::json!({
            "run": "01a2134e-9de0-77b9-a131-83374a0c158c", "workflow": "x", "program": "0",
            "file": file, "config": TEXT, "config_hash": "0", "inputs": {}, "keep_going": false,
            "tasks": [{ "name": "a", "depends_on": [] }], "files": files,
        }))
        .expect("a record");
        let own = Sources::new(dir.join("agents.toml"));
        let config = trust.then(|| super::super::load_text(TEXT, &own).expect("a configuration"));
        let sources = own.of_run(&created, &dir.join(".transcripts"));
        let found = compared(&created, &sources, &BTreeMap::new(), config.as_ref());
        let found = found.expect("compared");
        (found.has_unseen, found.changes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn no_record_shows_what_lies_outside() {
        use std::os::unix::fs::symlink;
        let nothing = |_: &Path| {};
        let link = |name: &'static str| {
            move |dir: &Path| {
                let _ = std::fs::remove_file(dir.join(name));
                symlink("../out/secret.toml", dir.join(name)).expect("a link");
            }
        };
        assert_eq!(shown("agents.toml", &[], nothing, false), (false, vec![]));
        for trust in [false, true] {
            // Links, whatever their names.
            for name in ["agents.toml", "l", "l.toml"] {
                let (unseen, changes) = shown(name, &[], link(name), trust);
                assert!(unseen && changes.is_empty(), "{name}: {changes:?}");
            }
            // A file that no configuration names, by each way out.
            for key in ["../out/secret.toml", "/etc/hostname", "l", "x/../../out/gone"] {
                let (unseen, changes) = shown("agents.toml", &[(key, "x")], link("l"), trust);
                assert!(unseen && changes.is_empty(), "{key}: {changes:?}");
            }
        }
        // A file of the directory that is no configuration.
        let env = |dir: &Path| std::fs::write(dir.join(".env"), "T = 'CANARY'\n").expect("written");
        let (_, changes) = shown(".env", &[], env, false);
        assert!(changes.len() == 1 && changes[0].ends_with("35 bytes -> 13 bytes"), "{changes:?}");
        // What was recorded of the directory is compared.
        let (unseen, changes) =
            shown("agents.toml", &[("agents.toml", "x"), ("b", "y")], nothing, false);
        assert!(!unseen, "all lies inside");
        assert_eq!(changes, ["~ agents.toml: 1 bytes -> 35 bytes", "- b: 1 bytes"]);
    }
}
