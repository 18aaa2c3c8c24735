//! Reads what a call does from its arguments.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// A command that changes files in place, and a script that opens one to write it.
static IN_PLACE: LazyLock<Regex> = LazyLock::new(|| {
    let sed = r"\bsed\s+(?:-[A-Za-z]*\s+)*-i\S*\s+(?:'[^']*'|\x22[^\x22]*\x22|\S+)\s+(\S+)";
    let open = r"open\(\s*['\x22]([^'\x22]+)['\x22]\s*,\s*['\x22][wa]";
    super::regex(&format!("(?s){sed}|{open}"))
});
/// A path, as far as it can be told from a word of a command.
static PATH: LazyLock<Regex> = LazyLock::new(|| super::regex(r"^[\w./+-]{3,}$"));
/// The beginning of a here-document: its mark, and the file that it goes into, before or behind.
static HERE: LazyLock<Regex> = LazyLock::new(|| {
    super::regex(r#"(?:>+\s*(\S+)\s*)?<<-?\s*['"]?(\w+)['"]?(?:\s*>+\s*(\S+))?[^\n]*\n"#)
});

/// Returns the first of these arguments that is a text.
fn first<'a>(input: &'a Value, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| input[*key].as_str())
}

/// Returns the command of a call for a shell.
pub(super) fn command(input: &Value) -> Option<&str> {
    first(input, &["command", "cmd", "script"])
}

/// Returns the files that a call changes, each with the texts that stand or stood there: of an edit the
/// old and the new one. Without texts where the call does not tell them.
pub(super) fn changes(input: &Value) -> Vec<(String, Vec<String>)> {
    if let Some(path) = first(input, &["file_path", "path", "filename", "notebook_path"]) {
        let of_edit = |edit: &Value| {
            let old = first(edit, &["old_string", "old_str", "search"])?;
            let new = first(edit, &["new_string", "new_str", "replace"])?;
            Some(vec![old.to_owned(), new.to_owned()])
        };
        let of_edits = || {
            let edits = input["edits"].as_array()?;
            Some(edits.iter().filter_map(of_edit).flatten().collect())
        };
        let whole = || {
            first(input, &["content", "contents", "file_text", "text"])
                .map(|text| vec![text.to_owned()])
        };
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
