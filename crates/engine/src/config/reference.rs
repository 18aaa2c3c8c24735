//! Makes the reference page of all keys from their declaration.

use std::collections::BTreeSet;

use super::raw::File;
use super::shape::{Built, Key, Keys, Kind, Section};

/// The beginning of the page.
const HEAD: &str = "# The keys of agents.toml

A key can be set in the file, in a profile, by a variable (`CALLSHEET_LIMITS__MAX_DEPTH=2`), and for \
one run by `--set limits.max_depth=2`; the later of these wins. A duration is a number and a unit, like `250ms`, `10s`, `5m`, `2h` \
or `1m30s`. Both bounds are allowed. `check` reports mistakes under the codes in the last column.
";

/// Returns the reference of all keys as Markdown: a table for each section.
#[must_use]
pub fn reference() -> String {
    let mut tables = String::new();
    section(&mut tables, "", "", File::KEYS);
    format!("{HEAD}\n{}{tables}", contents(&tables))
}

/// Returns the list of the sections of a page, each with a link to it. Sections below others are indented.
fn contents(page: &str) -> String {
    let titles = page.lines().filter_map(|line| line.strip_prefix("## "));
    let entry = |title: &str| {
        let anchor = anchor(title);
        let depth = title.replace(".NAME", "").matches('.').count();
        format!("{}- [{title}](#{anchor})\n", "  ".repeat(depth))
    };
    titles.map(entry).collect()
}

/// Returns the anchor of the section with a title.
pub(super) fn anchor(title: &str) -> String {
    let is_letter = |c: &char| c.is_alphanumeric() || *c == '-' || *c == '_';
    title.to_lowercase().replace(' ', "-").chars().filter(is_letter).collect()
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
    match key.example().filter(|_| key.built == Built::Yes && !is_section) {
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
    use toml::{Table, Value};

    use super::*;
    use crate::config::tests::Workspace;

    /// A file in which everything is there that the examples name.
    const AROUND: &str = r#"version = 1
inputs.path.default = "docs"
inputs.deep = { type = "boolean", default = true }
inputs.files = { type = "array", default = ["a"] }
secrets.name.env = "HOME"
providers.name = { kind = "scripted", script = "offline/model.toml" }
providers.real.kind = "anthropic"
models.name = { provider = "name", model = "x", fallbacks = [], cost_per_mtok = { input = 1, output = 1 } }
models.other = { provider = "name", model = "y" }
agents.name = { model = "name", instructions = "I" }
tools.name = { description = "D", command = ["./scripts/tool"] }
tasks.name = { agent = "name", prompt = "P" }
"#;

    /// The keys that must stand beside a key, as lines of its table.
    fn beside(path: &str, key: &str) -> &'static str {
        match (path, key) {
            ("tasks", "approval" | "workflow" | "run") => "",
            (
                "tasks",
                "env" | "stdin" | "cwd" | "capture" | "idempotent" | "idempotency_key" | "checks",
            ) => "run = 'x'",
            ("tasks", "foreach_as" | "foreach_key" | "max_concurrency" | "min_success") => {
                "agent = 'name'\nprompt = 'P'\nforeach = 'inputs.files'"
            }
            ("tasks", "context" | "context_budget") => {
                "agent = 'name'\nprompt = 'P'\ndepends_on = ['name']"
            }
            ("tasks", "loop") => "agent = 'name'\nprompt = 'P'\noutput = 'json'",
            ("tasks", "exclusive") => "agent = 'name'\nprompt = 'P'\npaths = ['src']",
            ("tasks", _) => "agent = 'name'\nprompt = 'P'",
            ("agents", "model") => "",
            ("agents", "instructions_file") => "model = 'name'",
            ("agents", _) => "model = 'name'",
            ("providers", "service") => "api_key = { env = 'HOME' }",
            ("providers", "kind") => "",
            ("providers", "script") => "kind = 'scripted'",
            ("providers", _) => "kind = 'openai'\nbase_url = 'https://x.example/v1'",
            ("models", "capabilities") => "provider = 'real'\nmodel = 'x'",
            ("models", _) => "provider = 'name'\nmodel = 'x'\ncontext_window = 200000",
            ("tools", _) => "description = 'D'\ncommand = ['./scripts/tool']",
            ("secrets", "file") => "",
            ("secrets", "env") => "",
            ("secrets", _) => "env = 'HOME'",
            ("inputs", "default") => "",
            ("inputs", "pattern") => "default = 'A-1'",
            ("inputs", _) => "default = 'a'",
            ("notify.webhook", "url") => "",
            ("notify.webhook", _) => "url = 'https://x.example/hook'",
            ("tasks.approval", "message") => "",
            ("tasks.approval", "on_timeout") => "message = 'M'\ntimeout = '1h'",
            ("tasks.approval", _) => "message = 'M'",
            ("tasks.checks", "agent") => "prompt = 'P'",
            ("tasks.checks", "prompt") => "agent = 'name'",
            ("tasks.checks", "run") => "",
            ("tasks.checks", _) => "run = 'x'",
            ("tasks.loop", "until") => "max_iterations = 2",
            ("tasks.loop", "max_iterations") => "until = 'output'",
            ("models.cost_per_mtok", "input") => "output = 1.0",
            ("models.cost_per_mtok", "output") => "input = 1.0",
            ("models.cost_per_mtok", _) => "input = 1.0\noutput = 1.0",
            _ => "",
        }
    }

    /// Puts a table into another at a path of keys, in which `NAME` is a new entry; `[]` is the first of an array.
    fn put(into: &mut Table, path: &[&str], entry: Table) {
        let Some((first, rest)) = path.split_first() else {
            into.extend(entry);
            return;
        };
        let (first, is_array) = match first.strip_suffix("[]") {
            Some(first) => (first, true),
            None => (*first, false),
        };
        let name = if first == "NAME" { "new" } else { first };
        let inner = into.entry(name).or_insert_with(|| Table::new().into());
        if is_array {
            *inner = Value::Array(vec![entry.into()]);
        } else {
            put(inner.as_table_mut().expect("a table"), rest, entry);
        }
    }

    /// Calls `each` with the path of each table of keys, and its keys.
    fn tables(path: &str, keys: Keys, each: &mut impl FnMut(&str, &Key)) {
        for key in keys.iter().copied().flatten().filter(|key| key.built == Built::Yes) {
            each(path, key);
            let point = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{point}{}", key.name);
            match key.kind {
                Kind::Table(inner) | Kind::Key(inner) => tables(&path, inner, each),
                Kind::Map(_, Kind::Table(inner)) => tables(&format!("{path}.NAME"), inner, each),
                Kind::List(Kind::Table(inner)) => tables(&format!("{path}[]"), inner, each),
                _ => {}
            }
        }
    }

    #[test]
    fn every_example_is_valid_for_its_key() {
        let workspace = Workspace::new();
        workspace.write("offline/model.toml", "[[rules]]\nsay = 'done'\n");
        workspace.write("docs/style.md", "# Style\n");
        workspace.write("scripts/tool", "#!/bin/sh\n");
        workspace.write("workflows/tests.toml", "version = 1\n[tasks.x]\nrun = 'make test'\n");
        workspace
            .write(".agents/skills/name/SKILL.md", "---\nname: name\ndescription: D\n---\nX\n");
        let environment = [("HOME", "/x"), ("ANTHROPIC_API_KEY", "k")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (mut count, mut wrong) = (0, Vec::new());
        tables("", File::KEYS, &mut |path, key| {
            let Some(example) = key.example().filter(|_| !super::example(key).is_empty()) else {
                return;
            };
            let section = path.replace(".NAME", "").replace("[]", "");
            let mut text = format!("{}\n", beside(&section, key.name));
            let mut entry: Table = text.parse().expect("lines");
            text = format!("{} = {example}\n", key.name);
            entry.extend(text.parse::<Table>().unwrap_or_else(|e| panic!("{text}: {e}")));
            let mut file: Table = AROUND.parse().expect("a file");
            let path: Vec<&str> = path.split('.').filter(|step| !step.is_empty()).collect();
            if let ["tasks", "NAME", _, ..] = &path[..] {
                let own = match path[2] {
                    "approval" => "",
                    "checks[]" => "run = 'x'",
                    _ => "agent = 'name'\nprompt = 'P'\noutput = 'json'",
                };
                put(&mut file, &path[..2], own.parse().expect("lines"));
            }
            if let ["tasks", "NAME", "approval", _, ..] = &path[..] {
                let own = "message = 'M'".parse().expect("lines");
                put(&mut file, &path[..3], own);
            }
            if let [section @ ("models" | "providers" | "agents"), "NAME", _, ..] = &path[..] {
                let own = beside(section, "").parse().expect("lines");
                put(&mut file, &path[..2], own);
            }
            if let ["notify", "webhook", _, ..] = &path[..] {
                let own = beside("notify.webhook", "").parse().expect("lines");
                put(&mut file, &path[..2], own);
            }
            put(&mut file, &path, entry);
            let mut sources = workspace.sources();
            sources.environment.extend(environment.clone());
            let text = toml::to_string(&file).expect("TOML");
            let found = workspace.problems(&text, &sources);
            let errors: Vec<_> = found.iter().filter(|line| !line.contains(" warning ")).collect();
            if !errors.is_empty() {
                wrong.push(format!("{section}.{} = {example}: {errors:?}", key.name));
            }
            count += 1;
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(count > 200, "{count}");
    }

    #[test]
    fn the_page_has_contents() {
        let page = reference();
        let sections = page.lines().filter(|line| line.starts_with("## ")).count();
        let entries = page.lines().filter(|line| line.trim_start().starts_with("- [")).count();
        assert_eq!(entries, sections);
        assert!(page.contains(
            "\n- [`[tasks.NAME]`](#tasksname)\n  - [`[tasks.NAME.retry]`](#tasksnameretry)\n"
        ));
    }

    #[test]
    fn a_row_says_all_there_is_to_say_of_a_key() {
        let page = reference();
        let rows = [
            "| `max_children` | integer | 1 to 4294967295 |  | `20` | `max_children = 10` | The delegated children that run \
             at the same time. | `bad_value`, `wrong_type` |",
            "| `max_spawn_rate` | count per duration |  |  | `\"60/1m\"` | `max_spawn_rate = \"5/10s\"` | The most children \
             that begin in a time, like `\"5/10s\"`. Those beyond it wait.",
            "| `idle_timeout` | duration | above 0 |  | `\"2m\"` | `idle_timeout = \"30s\"` |",
            "| `trigger` | number | 0 to 1 |  | from the preset | `trigger = 0.5` |",
            "| `whole` | integer | 1 to 1099511627776 | tokens | from the preset | `whole = 10` |",
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
