//! Checks a tree against the schema: unknown keys, wrong types, values out of range.
//!
//! Looks at one value at a time; whether names exist is checked where they are resolved.

use super::diagnostic::{Diagnostic, Place, Problems, Severity};
use super::duration;
use super::names;
use super::raw::{Entry, Node, Raw, Table};
use super::schema::{Built, FILE_ONLY, Field, KEY, Keys, ROOT, Shape};
use crate::id::Name;

/// Checks the tree of a file.
pub(super) fn file(table: &Table, problems: &mut Problems) {
    fields(table, ROOT, "", problems);
}

/// Checks what is laid over a file: a profile, variables, flags.
pub(super) fn overlay(table: &Table, at: &str, problems: &mut Problems) {
    for entry in table.0.iter().filter(|entry| FILE_ONLY.contains(&entry.key.as_str())) {
        let message = format!("`{}` can only be set at the top of the file", entry.key);
        problems.error("bad_value", &entry.key_place, message);
    }
    fields(table, ROOT, at, problems);
}

fn fields(table: &Table, known: &'static [Field], at: &str, problems: &mut Problems) {
    for entry in &table.0 {
        let path = join(at, &entry.key);
        match known.iter().find(|field| field.key == entry.key) {
            None => unknown(entry, known, at, problems),
            Some(field) => match (field.built, rated(entry, field, problems)) {
                (Built::Later, true) => {
                    let message = format!("`{path}` is not available in this version");
                    problems.error("not_built", &entry.key_place, message);
                }
                (Built::Later, false) => {}
                (Built::Yes, _) => value(&entry.node, field.shape, &path, problems),
            },
        }
    }
}

/// Whether a key that is not built yet is at least written well; the only one with a form of its
/// own is a rate.
fn rated(entry: &Entry, field: &Field, problems: &mut Problems) -> bool {
    if !matches!(field.shape, Shape::Rate) {
        return true;
    }
    let good = entry.node.text().is_some_and(|text| {
        text.split_once('/').is_some_and(|(count, time)| {
            count.parse::<u32>().is_ok_and(|n| n > 0)
                && duration::parse(time).is_some_and(|d| !d.is_zero())
        })
    });
    if !good {
        let message = format!("`{}` must be a count per time", entry.key);
        let help = Some("write it like `5/10s`".to_owned());
        problems.error_help("bad_value", &entry.node.place, message, help);
    }
    good
}

fn unknown(entry: &Entry, known: &[Field], at: &str, problems: &mut Problems) {
    let place = if at.is_empty() { "at the top level".to_owned() } else { format!("in [{at}]") };
    let message = format!("unknown key `{}` {place}", entry.key);
    let near = names::nearest(&entry.key, known.iter().map(|field| field.key));
    let help = near.map(|name| format!("did you mean `{name}`?"));
    problems.error_help("unknown_key", &entry.key_place, message, help);
}

fn value(node: &Node, shape: Shape, path: &str, problems: &mut Problems) {
    let mut wrong = |want: &str| {
        let message = format!("`{path}` must be {want}, not {}", node.kind());
        problems.error("wrong_type", &node.place, message);
    };
    match (shape, &node.raw) {
        (Shape::Any, _) => {}
        (Shape::Text, _) => {
            if node.text().is_none() {
                wrong("a string");
            }
        }
        (Shape::Word(built, later), _) => match node.text() {
            None => wrong("a string"),
            Some(text) => word(text, built, later, path, &node.place, problems),
        },
        (Shape::Truth, Raw::Truth(_)) => {}
        (Shape::Truth, _) => wrong("true or false"),
        (Shape::Integer(low, high), Raw::Integer(n)) => {
            if !(low..=high).contains(n) {
                let message = format!("`{path}` must be from {low} to {high}");
                problems.error("bad_value", &node.place, message);
            }
        }
        (Shape::Integer(..), _) => wrong("an integer"),
        (Shape::Number(low, high), _) => match node.number() {
            None => wrong("a number"),
            Some(n) if !(low..=high).contains(&n) => {
                let message = format!("`{path}` must be from {low} to {high}");
                problems.error("bad_value", &node.place, message);
            }
            Some(_) => {}
        },
        (Shape::Pause | Shape::Time | Shape::Rate, _) => time(node, shape, path, problems),
        (Shape::List(inner), Raw::List(items)) => {
            for (n, item) in items.iter().enumerate() {
                value(item, *inner, &format!("{path}[{n}]"), problems);
            }
        }
        (Shape::List(_), _) => wrong("an array"),
        (Shape::Table(known), Raw::Table(table)) => fields(table, known, path, problems),
        (Shape::Key, Raw::Table(table)) => fields(table, KEY, path, problems),
        (Shape::Key, _) => literal_key(node, path, problems),
        (Shape::Map(keys, inner), Raw::Table(table)) => {
            for entry in &table.0 {
                map_key(entry, keys, problems);
                value(&entry.node, *inner, &join(path, &entry.key), problems);
            }
        }
        (Shape::Profile, Raw::Table(table)) => overlay(table, path, problems),
        (Shape::Table(_) | Shape::Map(..) | Shape::Profile, _) => wrong("a table"),
    }
}

fn word(
    text: &str,
    built: &'static [&'static str],
    later: &'static [&'static str],
    path: &str,
    place: &Place,
    problems: &mut Problems,
) {
    if built.contains(&text) {
        return;
    }
    let fits = |word: &str| text == word || (word.ends_with(':') && text.starts_with(word));
    if later.iter().any(|word| fits(word)) {
        let message = format!("`{path} = \"{text}\"` is not available in this version");
        let help = Some(format!("available: {}", names::list(built)));
        problems.error_help("not_built", place, message, help);
        return;
    }
    let message = format!("`{text}` is not a value of `{path}`");
    let help = match names::nearest(text, built.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("use one of {}", names::list(built)),
    };
    problems.error_help("bad_value", place, message, Some(help));
}

fn time(node: &Node, shape: Shape, path: &str, problems: &mut Problems) {
    let help = Some("write a number and a unit, like `250ms`, `10s`, `5m`, `2h` or `1m30s`".into());
    let Some(text) = node.text() else {
        let message = format!("`{path}` must be a duration, not {}", node.kind());
        return problems.error_help("wrong_type", &node.place, message, help);
    };
    match duration::parse(text) {
        None => {
            let message = format!("`{text}` is not a duration");
            problems.error_help("bad_duration", &node.place, message, help);
        }
        Some(time) if time.is_zero() && matches!(shape, Shape::Time) => {
            let message = format!("`{path}` must be longer than nothing");
            problems.error("bad_duration", &node.place, message);
        }
        Some(_) => {}
    }
}

/// A key written into the file: said without showing it.
fn literal_key(node: &Node, path: &str, problems: &mut Problems) {
    let message = format!("`{path}` must say where the key is found, not hold it");
    let help = Some("write `{ env = \"NAME_OF_A_VARIABLE\" }`".to_owned());
    let found = Diagnostic::new("literal_key", Severity::Error, &node.place, message, help);
    problems.push(found.masked());
}

fn map_key(entry: &Entry, keys: Keys, problems: &mut Problems) {
    let text = entry.key.as_str();
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (good, rule) = match keys {
        Keys::Names => (Name::new(text).is_ok(), "use one or more of a-z, 0-9, `_` and `-`"),
        Keys::Words => (
            text.starts_with(first) && text.chars().all(|c| rest(c) || c == '-'),
            "use letters, digits, `_` and `-`, and a letter or `_` first",
        ),
        Keys::Variables => (
            text.starts_with(first) && text.chars().all(rest),
            "use letters, digits and `_`, and a letter or `_` first",
        ),
        Keys::Headers => (
            !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)),
            "use letters, digits, `-`, `_` and `.`",
        ),
    };
    if !good {
        let message = format!("`{text}` is not a name");
        problems.error_help("bad_name", &entry.key_place, message, Some(rule.to_owned()));
    }
    if keys == Keys::Headers
        && entry.node.text().is_some_and(|value| value.chars().any(|c| !(' '..='~').contains(&c)))
    {
        let message = format!("the value of the header `{text}` must be printable ASCII");
        let found = Diagnostic::new("bad_value", Severity::Error, &entry.node.place, message, None);
        problems.push(found.masked());
    }
}

fn join(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}
