//! The facts of a conversation that its agent needs later: what people said that binds, what stands in
//! the files that it changed, how its test commands ended, and which values it met.
//!
//! Pure. Tools are known by their arguments, not by their names: a path with contents is a write, a
//! path with an old and a new text an edit, a `command` a line for a shell.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::score::{blocks, plain, result_text};
use crate::context::record::calls;
use crate::context::record::words::values;
use crate::message::Json;

/// Lengths in characters of a sentence that can bind: shorter ones have no subject, longer ones are
/// pasted text.
const SENTENCE_CHARS: std::ops::RangeInclusive<usize> = 12..=400;
/// Most characters of a command that counts as one of its own: a longer one is a script.
const COMMAND_CHARS: usize = 400;
/// Most characters of the line that tells how a command ended.
const END_CHARS: usize = 60;
/// Least characters of a line of a call that is looked for.
const LINE_CHARS: usize = 8;
/// Least characters of a line of a file that is looked for.
const FILE_LINE_CHARS: usize = 4;
/// Most different lines before a line: one that stands behind more is too common to say anything.
pub(super) const MOST_BEFORE: usize = 4;

/// Words by which a sentence obliges, forbids or limits.
static BINDS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(must|never|always|do not|don't|only|without|forbidden|required?|may not|should not|shall|rule)\b",
    )
});
/// A block of code in a message.
static FENCE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)```.*?```"));
/// A command that builds or tests.
static TESTS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"\b(pytest|runtests|unittest|tox|nox|jest|vitest|make|ctest|mvn|gradle)\b|\b(cargo|go|npm|yarn|pnpm|bin/?)\s*/?(test|run|build|check|clippy|nextest|vet)\b|python3? \S+\.py",
    )
});
/// A line that tells of success, a failure or an error.
static TELLS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b\w*(error|exception)\b|\bfail(ed|ures?|s)?\b|\bpass(ed)?\b|^OK\b|\bok\b|assert|panicked|test result",
    )
});
/// A line that only warns, or only repeats the exit code.
static NO_NEWS: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)warning|<returncode>|return ?code|exit (code|status)|^exit\b"));
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this file is valid")
}

/// The newest change of a file.
#[derive(Clone, Debug)]
pub(super) struct FileFact {
    /// Number of the message that changed it.
    pub(super) at: u64,
    /// Number of the change among all changes.
    pub(super) version: u64,
    /// The lines that it has there since; none where the call does not tell.
    pub(super) lines: Vec<String>,
}

/// The last run of a command.
#[derive(Clone, Debug)]
pub(super) struct RunFact {
    /// Number of the message with its result.
    pub(super) at: u64,
    /// Number of the run among all runs.
    pub(super) version: u64,
    /// Id of the call.
    pub(super) call: String,
    /// The line that tells how it ended.
    pub(super) end: String,
}

/// The conversation so far.
#[derive(Debug, Default)]
pub struct Facts {
    /// Number of messages.
    pub(super) messages: u64,
    /// Sentences that bind, each once, with the number of their message.
    pub(super) binding: Vec<(u64, String)>,
    known: HashSet<String>,
    /// The files that calls changed since the open request began, by path.
    pub(super) files: BTreeMap<String, FileFact>,
    /// The commands that test or build, run since then.
    pub(super) runs: BTreeMap<String, RunFact>,
    /// The commands without a result, by the id of the call.
    pending: HashMap<String, String>,
    /// The first message in whose results a value stood.
    pub(super) values: HashMap<String, u64>,
    /// The lines of calls, and those that stood before each.
    pub(super) written: HashSet<String>,
    pub(super) before: HashMap<String, HashSet<String>>,
    changes: u64,
}

impl Facts {
    /// Adds the next message of the conversation.
    pub fn push(&mut self, message: &Json) {
        let value = message.to_value();
        match &value["content"] {
            Value::String(text) if value["role"] == "user" => self.request(text),
            _ => {}
        }
        for block in blocks(&value) {
            match block["type"].as_str() {
                Some("text") if value["role"] == "user" => {
                    self.request(block["text"].as_str().unwrap_or_default());
                }
                Some("tool_result") => self.result(block),
                Some("tool_use") => self.call(block),
                _ => {}
            }
        }
        self.messages += 1;
    }

    /// Returns the values that a message cites, each once.
    pub(super) fn values_in(message: &Json) -> HashSet<String> {
        let value = message.to_value();
        values(&super::score::text(&value)).map(str::to_owned).collect()
    }

    fn request(&mut self, text: &str) {
        self.files.clear();
        self.runs.clear();
        let text = FENCE.replace_all(text, "\n");
        for sentence in sentences(&text) {
            let chars = sentence.chars().count();
            let binds = SENTENCE_CHARS.contains(&chars)
                && sentence.contains(' ')
                && !sentence.starts_with(['>', '<'])
                && !sentence.starts_with("-->")
                && BINDS.is_match(sentence);
            if binds && self.known.insert(sentence.to_owned()) {
                self.binding.push((self.messages, sentence.to_owned()));
            }
        }
    }

    fn call(&mut self, block: &Value) {
        let input = &block["input"];
        for (path, texts) in calls::changes(input) {
            let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
            let lines = lines.filter(|line| line.chars().count() >= FILE_LINE_CHARS);
            let lines = lines.map(str::to_owned).collect();
            self.changes += 1;
            let fact = FileFact { at: self.messages, version: self.changes, lines };
            self.files.insert(path, fact);
        }
        if let Some(command) = calls::command(input)
            && command.chars().count() < COMMAND_CHARS
            && !command.contains("<<")
            && TESTS.is_match(command)
        {
            let id = block["id"].as_str().unwrap_or_default();
            self.pending.insert(id.to_owned(), command.trim().to_owned());
        }
        let text = plain(input);
        let lines: Vec<_> = text.split('\n').map(str::trim).collect();
        let is_long = |line: &&&str| line.chars().count() >= LINE_CHARS;
        self.written.extend(lines.iter().filter(is_long).map(|line| (*line).to_owned()));
        for pair in lines.windows(2) {
            if let [first, second] = pair
                && is_long(&second)
            {
                self.before.entry((*second).to_owned()).or_default().insert((*first).to_owned());
            }
        }
    }

    fn result(&mut self, block: &Value) {
        let text = result_text(block);
        for value in values(&text) {
            if !self.values.contains_key(value) {
                self.values.insert(value.to_owned(), self.messages);
            }
        }
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        let Some(command) = self.pending.remove(id) else { return };
        if let Some(end) = end_of(&text) {
            self.changes += 1;
            let (at, version, call) = (self.messages, self.changes, id.to_owned());
            self.runs.insert(command, RunFact { at, version, call, end });
        }
    }
}

/// Returns the sentences and lines of a text.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mut ends = rest.char_indices().zip(rest.chars().skip(1));
            let end = ends.find(|((_, c), next)| ".!?".contains(*c) && next.is_whitespace());
            let (sentence, left) = rest.split_at(end.map_or(rest.len(), |((at, _), _)| at + 1));
            rest = left;
            Some(sentence.trim())
        })
    })
}

/// Returns the line of a result that tells how a command ended: the last one that tells of success or a
/// failure, else the last one.
fn end_of(result: &str) -> Option<String> {
    let lines: Vec<_> = result.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tells = |line: &&&str| TELLS.is_match(line) && !NO_NEWS.is_match(line);
    let plain = |line: &&&str| !line.starts_with('<');
    let found = lines.iter().rev().find(tells);
    let found = found.or_else(|| lines.iter().rev().find(plain)).or(lines.last());
    found.map(|line| line.chars().take(END_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(messages: &[Value]) -> Facts {
        let mut facts = Facts::default();
        messages.iter().for_each(|message| facts.push(&Json::encode(message)));
        facts
    }

    fn call(id: &str, input: Value) -> Value {
        let block = json!({"type": "tool_use", "id": id, "name": "x", "input": input});
        json!({"role": "assistant", "content": [block]})
    }

    fn result(id: &str, text: &str) -> Value {
        let block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
        json!({"role": "user", "content": [block]})
    }

    #[test]
    fn what_people_say_is_split_into_sentences_and_kept_if_it_binds() {
        let text = "Fix the parser. You must not touch lib/! It is late.\n- Never push, e.g. to main.\n\
                    ```\nnever code\n```\n> must be quoted";
        let found = facts(&[json!({"role": "user", "content": text})]).binding;
        let found: Vec<_> = found.iter().map(|(_, sentence)| sentence.as_str()).collect();
        assert_eq!(found, ["You must not touch lib/!", "- Never push, e.g."]);
    }

    #[test]
    fn the_newest_text_of_a_file_and_the_last_end_of_a_command_count() {
        let write = json!({"path": "a.rs", "content": "fn main() {}\n}"});
        let edit = json!({"file_path": "a.rs", "old_string": "fn main", "new_string": "fn other"});
        let shell = json!({"command": "cat > b.py <<'EOF'\nprint(12345)\nEOF"});
        let test = json!({"command": "cargo test"});
        let found = facts(&[
            json!({"role": "user", "content": "go"}),
            call("1", write),
            call("2", edit),
            call("3", shell),
            call("4", test.clone()),
            result("4", "running\ntest result: FAILED. 1 failed\nexit code 101"),
            call("5", test),
            result("5", "test result: ok. 3 passed in 20.5 s, build 4711 of 1.2.3."),
        ]);
        assert_eq!(found.files["a.rs"].lines, ["fn main", "fn other"]);
        assert_eq!(found.files["b.py"].lines, ["print(12345)"]);
        let run = &found.runs["cargo test"];
        assert_eq!((run.at, run.call.as_str()), (7, "5"));
        assert!(run.end.starts_with("test result: ok."), "{}", run.end);
        let mut values: Vec<_> = found.values.keys().map(String::as_str).collect();
        values.sort_unstable();
        assert_eq!(values, ["1.2.3", "101", "4711"]);
        // A new request closes the one before.
        let mut found = found;
        found.push(&Json::encode(&json!({"role": "user", "content": "next"})));
        assert!(found.files.is_empty() && found.runs.is_empty());
    }
}
