//! Keys and other secrets: where they are found, and a type that does not show them.

use std::fmt;
use std::path::Path;

use super::Sources;
use super::diagnostic::{Place, Problems};
use super::names;
use super::raw::{Entry, Table};

/// A text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: for the wire and for redaction, never for a log.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A key that could not be had.
#[derive(Debug)]
pub(super) struct NoKey {
    pub(super) place: Place,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

impl NoKey {
    fn new(place: &Place, message: String, help: impl Into<String>) -> Self {
        Self { place: place.clone(), message, help: Some(help.into()) }
    }
}

/// The value of a variable; an empty one counts as not set.
pub(super) fn variable(sources: &Sources, name: &str) -> Option<Secret> {
    let value = sources.environment.get(name).filter(|value| !value.trim().is_empty())?;
    Some(Secret::new(value.trim()))
}

/// The value of a variable that a provider's key is read from unless the file says otherwise.
pub(super) fn usual(sources: &Sources, name: &str, place: &Place) -> Result<Secret, NoKey> {
    variable(sources, name).ok_or_else(|| {
        let message = format!("the environment variable `{name}` is not set");
        NoKey::new(place, message, "set it, or say with `api_key` where the key is found")
    })
}

/// Follows `{ env = .. }`, `{ file = .. }` or `{ secret = .. }`. `Ok(None)`: a secret that is not
/// required is not there.
pub(super) fn find(
    at: &Entry,
    secrets: &Table,
    root: &Path,
    sources: &Sources,
) -> Result<Option<Secret>, NoKey> {
    let Some(table) = at.node.table() else { return Ok(None) };
    if let Some(entry) = table.get("secret") {
        let name = entry.node.text().unwrap_or_default();
        return match secrets.get(name) {
            Some(secret) => find(secret, &EMPTY, root, sources),
            None => Ok(None),
        };
    }
    let optional = table.truth("required") == Some(false);
    let found = if let Some(entry) = table.get("env") {
        let name = entry.node.text().unwrap_or_default();
        variable(sources, name).ok_or_else(|| {
            let message = format!("the environment variable `{name}` is not set");
            NoKey::new(&entry.node.place, message, "set it, or use a profile that needs no key")
        })
    } else if let Some(entry) = table.get("file") {
        let path = root.join(entry.node.text().unwrap_or_default());
        let text = std::fs::read_to_string(&path);
        text.map(|text| Secret::new(text.trim())).map_err(|error| {
            let message = format!("cannot read `{}`: {error}", path.display());
            NoKey::new(&entry.node.place, message, "it must hold the key and nothing else")
        })
    } else {
        return Ok(None);
    };
    match found {
        Err(_) if optional => Ok(None),
        found => found.map(Some),
    }
}

static EMPTY: Table = Table(Vec::new());

/// Checks that a place to find a key at names exactly one, and that a secret it names exists.
pub(super) fn check(at: &Entry, among: &[&str], secrets: &Table, problems: &mut Problems) {
    let Some(table) = at.node.table() else { return };
    let given = among.iter().filter(|key| table.get(key).is_some()).count();
    if given != 1 {
        let message = format!("`{}` must have exactly one of {}", at.key, names::list(among));
        problems.error("missing_field", &at.key_place, message);
    }
    let Some(secret) = table.get("secret") else { return };
    if let Some(name) = secret.node.text()
        && secrets.get(name).is_none()
    {
        let help = names::suggest(name, secrets.0.iter().map(|entry| entry.key.as_str()));
        let message = format!("there is no secret `{name}`");
        problems.error_help("unknown_secret", &secret.node.place, message, help);
    }
}
