//! Makes the reference page of all keys from their declaration.

use std::collections::BTreeSet;

use super::raw::File;
use super::shape::{Built, Key, Keys, Kind, Section};

/// The beginning of the page.
const HEAD: &str = "# The keys of agents.toml

A key can be set in the file, in a profile, by a variable (`CALLSHEET_LIMITS__MAX_DEPTH=2`), and some \
by flags; the later of these wins. A duration is a number and a unit, like `250ms`, `10s`, `5m`, `2h` \
or `1m30s`. Both bounds are allowed. `check` reports mistakes under the codes in the last column.
";

/// Returns the reference of all keys as Markdown: a table for each section.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    section(&mut page, "", "", File::KEYS);
    page
}

/// Writes the table of a section, and then the sections below it.
fn section(page: &mut String, path: &str, about: &str, keys: Keys) {
    let (title, point) = match path {
        "" => ("The top level".to_owned(), ""),
        path if path.starts_with('[') => (format!("`[{path}]`\n\n{about}"), ""),
        path => (format!("`[{path}]`\n\n{about}"), "."),
    };
    page.push_str(&format!("\n## {title}\n\n"));
    page.push_str("| key | type | bounds | unit | default | example | meaning | diagnostics |\n");
    page.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    let keys = || keys.iter().copied().flatten();
    keys().for_each(|key| page.push_str(&row(key)));
    for key in keys().filter(|key| key.built == Built::Yes) {
        let path = format!("{path}{point}{}", key.name);
        match key.kind {
            Kind::Table(inner) | Kind::Key(inner) => section(page, &path, &key.text(), inner),
            Kind::Map(_, Kind::Table(inner)) => {
                section(page, &format!("{path}.NAME"), &key.text(), inner);
            }
            Kind::List(Kind::Table(inner)) => {
                section(page, &format!("[{path}]"), &key.text(), inner);
            }
            _ => {}
        }
    }
}

fn row(key: &Key) -> String {
    let later = match key.built {
        Built::Yes => "",
        Built::Later | Built::Idle => " Not available in this version.",
    };
    let (bounds, unit) = bounds(&key.kind);
    let value = || key.default_value().map(|value| format!("`{value}`"));
    let codes: Vec<String> = codes(key).iter().map(|code| format!("`{code}`")).collect();
    let cells = [
        format!("`{}`", key.name),
        type_of(&key.kind),
        bounds,
        unit.to_owned(),
        key.absent.map(str::to_owned).or_else(value).unwrap_or_default(),
        example(key),
        key.text() + later,
        codes.join(", "),
    ];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

/// Returns the key with a value, as a line of the file; empty for a table of its own.
fn example(key: &Key) -> String {
    let is_section = matches!(key.kind, Kind::Map(_, Kind::Table(_)) | Kind::Profile);
    match key.kind.example().filter(|_| key.built == Built::Yes && !is_section) {
        Some(example) => format!("`{} = {example}`", key.name),
        None => String::new(),
    }
}

fn type_of(kind: &Kind) -> String {
    match kind {
        Kind::Any => "anything".to_owned(),
        Kind::Text(what, _) => (*what).to_owned(),
        Kind::Header(_) => "printable ASCII, or a table as of `api_key`".to_owned(),
        Kind::Words(words, _) => {
            words().iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
        }
        Kind::Truth => "true or false".to_owned(),
        Kind::Only(_) | Kind::Whole(..) => "integer".to_owned(),
        Kind::Number(..) => "number".to_owned(),
        Kind::Pause | Kind::Time => "duration".to_owned(),
        Kind::Rate => "count per duration".to_owned(),
        Kind::Size(_) => "size".to_owned(),
        Kind::List(inner) => format!("array: {}", type_of(inner)),
        Kind::Map(form, inner) => format!("table: {} to {}", form.what, type_of(inner)),
        Kind::Table(_) | Kind::Key(_) | Kind::Profile => "table".to_owned(),
        Kind::Either(kinds) => kinds.iter().map(type_of).collect::<Vec<_>>().join(" or "),
    }
}

/// Returns the bounds and the unit of a value that is, or may be, a number.
fn bounds(kind: &Kind) -> (String, &'static str) {
    match kind {
        Kind::Only(n) => (n.to_string(), ""),
        Kind::Time => ("above 0".to_owned(), ""),
        Kind::Size(low) => (format!("{low}MiB or more"), ""),
        Kind::Whole(low, high, unit) | Kind::Number(low, high, unit) => {
            (format!("{low} to {high}"), unit)
        }
        Kind::Either(kinds) => kinds.first().map(bounds).unwrap_or_default(),
        _ => (String::new(), ""),
    }
}

/// Returns the codes of all diagnostics.
pub fn diagnostic_codes() -> BTreeSet<&'static str> {
    fn add(keys: Keys, all: &mut BTreeSet<&'static str>) {
        for key in keys.iter().copied().flatten() {
            all.extend(codes(key));
            match key.kind {
                Kind::Table(inner) | Kind::Key(inner) => add(inner, all),
                Kind::Map(_, Kind::Table(inner)) => add(inner, all),
                _ => {}
            }
        }
    }
    // These are given at the file as a whole, or at many keys.
    let mut all = BTreeSet::from([
        "bad_toml",
        "more_mistakes",
        "needs_trust",
        "not_a_configuration",
        "unreadable_file",
    ]);
    add(File::KEYS, &mut all);
    all
}

/// Returns the codes of the diagnostics that can be given at a key.
pub(super) fn codes(key: &Key) -> BTreeSet<&'static str> {
    let mut all: BTreeSet<_> = key.codes.iter().copied().collect();
    match (key.built, key.kind) {
        (Built::Yes, kind) => add_codes(&kind, &mut all),
        // A rate is checked although it is not available yet.
        (_, Kind::Rate) => all.extend(["bad_value", "not_built"]),
        (Built::Later | Built::Idle, _) => drop(all.insert("not_built")),
    }
    all
}

/// Adds the codes of the diagnostics that a value of a kind can cause.
fn add_codes(kind: &Kind, all: &mut BTreeSet<&'static str>) {
    let own: &[&str] = match kind {
        Kind::Any | Kind::Only(_) => return,
        Kind::Either(kinds) => return kinds.iter().for_each(|kind| add_codes(kind, all)),
        Kind::Truth | Kind::List(_) => &[],
        Kind::Text(_, codes) => codes,
        Kind::Words(_, []) | Kind::Whole(..) | Kind::Number(..) => &["bad_value"],
        Kind::Rate | Kind::Size(_) => &["bad_value"],
        Kind::Header(_) => &["bad_value", "literal_key", "missing_field", "missing_key"],
        Kind::Words(..) => &["bad_value", "not_built"],
        Kind::Pause | Kind::Time => &["bad_duration"],
        Kind::Map(..) => &["bad_name"],
        Kind::Key(_) => &["literal_key", "unknown_key"],
        Kind::Table(_) | Kind::Profile => &["unknown_key"],
    };
    all.extend(own.iter().chain(&["wrong_type"]));
    if let Kind::List(inner) | Kind::Map(_, inner) = kind {
        add_codes(inner, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_all_there_is_to_say_of_a_key() {
        let page = reference();
        let rows = [
            "| `max_children` | integer | 1 to 4294967295 |  | `20` | `max_children = 10` | The delegated children that are \
             at work at once. | `bad_value`, `wrong_type` |",
            "| `max_spawn_rate` | count per duration |  |  |  |  | The most children that may be started \
             in a time, like `\"5/10s\"`. Not available in this version. | `bad_value`, `not_built` |",
            "| `idle_timeout` | duration | above 0 |  | `\"2m\"` | `idle_timeout = \"30s\"` |",
            "| `trigger` | number | 0 to 1 |  | that of the preset | `trigger = 0.5` |",
            "| `whole` | integer | 1 to 1099511627776 | tokens | that of the preset | `whole = 10` |",
            "| `depends_on` | array: name of a task |  |  | `[]` | `depends_on = [\"name\"]` |",
            "| `output` | `text` or `raw` or `json` or `jsonl` |  |  | `\"text\"` | `output = \"text\"` |",
        ];
        for row in rows {
            assert!(page.contains(row), "{row}");
        }
    }

    #[test]
    fn the_page_in_the_documentation_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/agents-toml.md");
        if std::env::var_os("CALLSHEET_WRITE_DOCS").is_some() {
            std::fs::write(path, reference()).expect("written");
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        let same = page == reference();
        assert!(same, "stale: CALLSHEET_WRITE_DOCS=1 cargo test --lib reference writes {path}");
    }

    #[test]
    fn every_key_has_a_row_and_a_meaning() {
        fn check(page: &str, section: &str, keys: Keys) -> usize {
            let title = match section {
                "" => "\n## The top level\n".to_owned(),
                section => format!("\n## `[{section}]`\n"),
            };
            let rows = page.split(&title).nth(1).unwrap_or_else(|| panic!("no section {section}"));
            let rows = rows.split("\n## ").next().unwrap_or_default();
            let point = if section.is_empty() { "" } else { "." };
            let mut count = 0;
            for key in keys.iter().copied().flatten() {
                assert!(key.text().ends_with('.'), "{section} {}: {}", key.name, key.doc);
                assert!(rows.contains(&format!("\n| `{}` | ", key.name)), "{section} {}", key.name);
                let path = format!("{section}{point}{}", key.name);
                count += 1;
                count += match key.kind {
                    _ if key.built != Built::Yes => 0,
                    Kind::Table(inner) | Kind::Key(inner) => check(page, &path, inner),
                    Kind::Map(_, Kind::Table(inner)) => check(page, &format!("{path}.NAME"), inner),
                    _ => 0,
                };
            }
            count
        }
        assert!(check(&reference(), "", File::KEYS) > 200, "all of them");
    }
}
