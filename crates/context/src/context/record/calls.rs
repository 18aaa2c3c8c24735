//! Calls: what a call does, read from its arguments.
//!
//! Pure. Tools are known by the shape of their arguments, not by their names: a path with contents is
//! a write, a path with an old and a new text an edit, a `command` a line for a shell.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::entry::{Deed, PATHS, Part, Work};
use crate::message::ToolCall;

/// Least characters of an argument that stands on a line of its own, as a piece that can be told apart
/// and found again; shorter ones stand in the line of their call.
const LINE_CHARS: usize = super::words::LINE_CHARS;
/// Most characters of a number, a list or a table that stands in the line of its call.
const MOST_JSON: usize = 40;
/// Most characters of a command that counts as one of its own: a longer one is a script.
const COMMAND_CHARS: usize = 400;

/// A command that builds or tests.
static CHECKS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"\b(pytest|runtests|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|make|ninja|ctest|mvn|gradlew?|tsc|ruff|mypy|eslint)\b|\b(cargo|go|npm|yarn|pnpm|bun|deno|dotnet|swift|mix|rake|bin/?)\s*/?(test|run|build|check|clippy|nextest|vet|t|lint)\b|python3? \S+\.py|(^|[\s;&/])\S*(test|check|build)\S*\.sh\b",
    )
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this file is valid")
}

/// A command that changes files in place, and a script that opens one to write it.
static IN_PLACE: LazyLock<Regex> = LazyLock::new(|| {
    let sed = r"\bsed\s+(?:-[A-Za-z]*\s+)*-i\S*\s+(?:'[^']*'|\x22[^\x22]*\x22|\S+)\s+(\S+)";
    let open = r"open\(\s*['\x22]([^'\x22]+)['\x22]\s*,\s*['\x22][wa]";
    regex(&format!("(?s){sed}|{open}"))
});
/// A path, as far as it can be told from a word of a command.
static PATH: LazyLock<Regex> = LazyLock::new(|| regex(r"^[\w./+-]{3,}$"));
/// The beginning of a here-document: its mark, and the file that it goes into, before or behind.
static HERE: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"(?:>+\s*(\S+)\s*)?<<-?\s*['"]?(\w+)['"]?(?:\s*>+\s*(\S+))?[^\n]*\n"#)
});

/// Arguments that hold the whole text of a file.
const WHOLE: [&str; 4] = ["content", "contents", "file_text", "text"];
/// Arguments that hold the old text of an edit.
const OLD: [&str; 3] = ["old_string", "old_str", "search"];
/// Arguments that hold the new text of an edit.
const NEW: [&str; 3] = ["new_string", "new_str", "replace"];

/// Returns true if an argument holds text of a file.
fn is_contents(key: &str) -> bool {
    WHOLE.contains(&key) || OLD.contains(&key) || NEW.contains(&key)
}

/// Returns the first of these arguments that is a text.
fn first<'a>(input: &'a Value, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| input[*key].as_str())
}

/// Returns the call as it stands in a record, before it has an outcome.
#[must_use]
pub fn work_of(at: u64, call: &ToolCall) -> Work {
    let input = call.input.to_value();
    let (deed, paths) = deed_of(&input);
    let is_change = matches!(deed, Deed::Write | Deed::Edit);
    let (arguments, parts) = arguments_of(&input, is_change, call.input.as_str());
    Work { at, tool: call.name.clone(), deed, paths, arguments, parts, ..Work::default() }
}

/// Returns what a call does, and the files that it changes.
fn deed_of(input: &Value) -> (Deed, Vec<String>) {
    let changes = changes(input);
    let is_edit = changes.iter().all(|(_, texts)| texts.len() != 1);
    let paths: Vec<String> = changes.into_iter().map(|(path, _)| path).collect();
    let deed = match command(input) {
        _ if !paths.is_empty() => {
            if is_edit {
                Deed::Edit
            } else {
                Deed::Write
            }
        }
        Some(command) if is_check(command) => Deed::Check,
        Some(_) => Deed::Command,
        None if input["todos"].is_array() => Deed::Todo,
        None => Deed::Other,
    };
    (deed, paths)
}

/// Returns true if a command tests or builds, and is no script.
#[must_use]
pub fn is_check(command: &str) -> bool {
    command.chars().count() < COMMAND_CHARS && !command.contains("<<") && CHECKS.is_match(command)
}

/// Returns true if a call tests, builds or runs a program, whatever else it does.
#[must_use]
pub fn checks(work: &Work) -> bool {
    work.parts.iter().any(|part| part.key.is_empty() && CHECKS.is_match(&part.text))
}

/// Returns the short arguments with their keys, and the long ones. The only argument of a call
/// needs no key; what a change writes is never short.
fn arguments_of(input: &Value, is_change: bool, json: &str) -> (String, Vec<Part>) {
    let Value::Object(fields) = input else {
        return (String::new(), vec![Part::whole("", json.to_owned())]);
    };
    if let Some((_, Value::String(text))) = fields.iter().next().filter(|_| fields.len() == 1) {
        return (String::new(), vec![Part::whole("", text.clone())]);
    }
    let (mut short, mut parts) = (Vec::new(), Vec::new());
    for (key, value) in fields {
        let is_main = matches!(key.as_str(), "command" | "cmd" | "script");
        match value {
            Value::String(text) if is_main => {
                parts.push(Part::whole("", text.clone()));
            }
            Value::String(text)
                if text.chars().take(LINE_CHARS).count() < LINE_CHARS
                    && !text.contains('\n')
                    && !(is_change && is_contents(key)) =>
            {
                short.push(format!("{key}={text}"));
            }
            Value::String(text) => parts.push(Part::whole(key, text.clone())),
            value => {
                let json = value.to_string();
                if json.len() <= MOST_JSON {
                    short.push(format!("{key}={json}"));
                } else {
                    // The texts in a list or a table stand as lines, so that they can be read.
                    parts.push(Part::whole(key, flat(value)));
                }
            }
        }
    }
    (short.join(" "), parts)
}

/// Returns the texts in a value: long ones on lines of their own, short ones and numbers behind their
/// keys.
fn flat(value: &Value) -> String {
    fn gather(key: &str, value: &Value, lines: &mut Vec<String>) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| gather(key, value, lines)),
            Value::Object(fields) => {
                fields.iter().for_each(|(key, value)| gather(key, value, lines));
            }
            Value::String(text)
                if key.is_empty() || text.chars().take(LINE_CHARS).count() == LINE_CHARS =>
            {
                lines.push(text.clone());
            }
            Value::String(text) => lines.push(format!("{key}: {text}")),
            value => lines.push(format!("{key}: {value}")),
        }
    }
    let mut lines = Vec::new();
    gather("", value, &mut lines);
    lines.join("\n")
}

/// Returns the command of a call for a shell.
#[must_use]
pub fn command(input: &Value) -> Option<&str> {
    first(input, &["command", "cmd", "script"])
}

/// Returns the files that a call changes, each with the texts that stand or stood there: of an edit the
/// old and the new one. Without texts where the call does not tell them.
#[must_use]
pub fn changes(input: &Value) -> Vec<(String, Vec<String>)> {
    if let Some(path) = first(input, &PATHS) {
        let of_edit = |edit: &Value| {
            let old = first(edit, &OLD)?;
            let new = first(edit, &NEW)?;
            Some(vec![old.to_owned(), new.to_owned()])
        };
        let of_edits = || {
            let edits = input["edits"].as_array()?;
            Some(edits.iter().filter_map(of_edit).flatten().collect())
        };
        let whole = || first(input, &WHOLE).map(|text| vec![text.to_owned()]);
        if let Some(texts) = of_edit(input).or_else(of_edits).or_else(whole) {
            return vec![(path.to_owned(), texts)];
        }
    }
    command(input).map(of_command).unwrap_or_default()
}

/// Returns the files that a command writes by here-documents or changes in place.
fn of_command(command: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for begin in HERE.captures_iter(command) {
        let (Some(path), Some(mark), Some(whole)) =
            (begin.get(1).or(begin.get(3)), begin.get(2), begin.get(0))
        else {
            continue;
        };
        let body = command[whole.end()..].lines();
        let body: Vec<_> = body.take_while(|line| line.trim() != mark.as_str()).collect();
        found.push((path.as_str().to_owned(), vec![body.join("\n")]));
    }
    for change in IN_PLACE.captures_iter(command) {
        let Some(path) = change.get(1).or(change.get(2)) else { continue };
        let path = path.as_str().trim_matches(['\'', '"']);
        if PATH.is_match(path) && !found.iter().any(|(known, _)| known == path) {
            found.push((path.to_owned(), Vec::new()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_known_by_the_arguments() {
        let text = |text: &str| text.to_owned();
        for (input, expected) in [
            (json!({"path": "a", "content": "x"}), vec![(text("a"), vec![text("x")])]),
            (
                json!({"path": "a", "edits": [{"old_str": "x", "new_str": "y"}]}),
                vec![(text("a"), vec![text("x"), text("y")])],
            ),
            (json!({"path": "a"}), vec![]),
            (json!({"command": "cat a"}), vec![]),
            (
                json!({"command": "cat > a.py <<'END'\none\ntwo\nEND\ncat <<END >> b.py\nx\nEND"}),
                vec![(text("a.py"), vec![text("one\ntwo")]), (text("b.py"), vec![text("x")])],
            ),
            (json!({"command": "sed -i 's/a/b/' src/x.py"}), vec![(text("src/x.py"), vec![])]),
            (json!({"cmd": "python -c \"open('o.txt', 'w')\""}), vec![(text("o.txt"), vec![])]),
            (json!("text"), vec![]),
        ] {
            assert_eq!(changes(&input), expected, "{input}");
        }
    }
}
