//! Reads keys and other secrets, and defines a type that does not print them.

use std::fmt;

use super::diagnostic::{NO_HELP, Place, Problems};
use super::raw::{self, KeySource};
use super::shape::Field;
use super::tree::Written;
use super::{Setting, Sources, names};

/// A text that must not be printed or logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text itself: for requests and for redaction, never for a log.
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

/// The reason why a key, or the value of a header, could not be read.
#[derive(Debug)]
pub(super) struct NoKey {
    pub(super) place: Place,
    pub(super) message: String,
    pub(super) help: &'static str,
}

/// Returns the value of a variable; an empty one counts as not set.
pub(super) fn variable(sources: &Sources, name: &str) -> Option<Secret> {
    let value = sources.environment.get(name).filter(|value| !value.trim().is_empty())?;
    Some(Secret::new(value.trim()))
}

/// Returns the value of a variable that must be set, never `Ok(None)`.
pub(super) fn of_variable(
    sources: &Sources,
    name: &str,
    place: &Place,
    help: &'static str,
) -> Result<Option<Secret>, NoKey> {
    let message = || format!("the environment variable `{name}` is not set");
    let none = || NoKey { place: place.clone(), message: message(), help };
    variable(sources, name).ok_or_else(none).map(Some)
}

/// Reads the key of a provider, or the value of a header, from its source. Returns `Ok(None)` if there is no source, or if a
/// secret is missing that is not required.
pub(super) fn of_source(key: &KeySource, setting: Setting<'_>) -> Result<Option<Secret>, NoKey> {
    let Some(name) = key.secret.as_deref() else { return find(&key.env, &key.file, setting) };
    let secret = setting.raw.secrets.get(name).and_then(|entry| entry.value.as_ref());
    secret.map_or(Ok(None), |secret| of_secret(secret, setting))
}

/// Reads the text of an entry of `[secrets]`, with the same results as [`of_source`].
pub(super) fn of_secret(
    secret: &raw::Secret,
    setting: Setting<'_>,
) -> Result<Option<Secret>, NoKey> {
    match find(&secret.env, &secret.file, setting) {
        Err(_) if !*secret.required => Ok(None),
        found => found,
    }
}

fn find(
    env: &Field<Option<String>>,
    file: &Field<Option<String>>,
    setting: Setting<'_>,
) -> Result<Option<Secret>, NoKey> {
    if let Some((name, place)) = env.placed() {
        let help = "set it, or use a profile that needs no key";
        return of_variable(setting.sources, name, place, help);
    }
    let Some((file, place)) = file.placed() else { return Ok(None) };
    let path = setting.root.join(file);
    match setting.shelf.open(&path, place, setting.problems) {
        Ok(read) => Ok(read.map(|read| Secret::new(read.text.trim()))),
        Err(error) => {
            let message = format!("cannot read `{}`: {error}", path.display());
            let help = "it must hold the key and nothing else";
            Err(NoKey { place: place.clone(), message, help })
        }
    }
}

/// Reports an error unless the source of a key or of a header says exactly one place that exists.
pub(super) fn check_source(name: &str, key: &KeySource, at: &Written, setting: Setting<'_>) {
    let KeySource { env, secret, file } = key;
    let given = [("env", env.is_set()), ("secret", secret.is_set()), ("file", file.is_set())];
    check_one(name, at, &given, setting.problems);
    if let Some((secret, place)) = secret.placed() {
        setting.raw.secrets.must_have("unknown_secret", secret, place, setting.problems);
    }
}

/// Reports an error unless exactly one of the sources of the secret `name` is given.
pub(super) fn check_one(name: &str, at: &Written, given: &[(&str, bool)], problems: &Problems) {
    if given.iter().filter(|(_, is_given)| *is_given).count() != 1 {
        let among: Vec<&str> = given.iter().map(|(key, _)| *key).collect();
        let message = format!("`{name}` must have exactly one of {}", names::list(&among));
        problems.error("missing_field", &at.key, message, NO_HELP);
    }
}
