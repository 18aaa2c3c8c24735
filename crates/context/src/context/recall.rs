//! Recall: an agent's question about its own earlier conversation, and the page that answers it.
//!
//! Pure. The caller passes the messages in one by one, as the transcript has them. Only the page
//! and the few facts that its answer needs are kept.

use std::borrow::Cow;

use regex::Regex;

use crate::message::{Block, Json, Message, ResultContent};
use crate::own_tool::{self, OwnTool};

/// Most characters of one page. With the line that says how to continue it stays below 30,000,
/// where other tools begin to give previews and the presets begin to remove results.
pub const PAGE_CHARS: usize = 29_000;

/// Lines shown before and after a matching one: enough to see the context of the match.
const CONTEXT_LINES: usize = 2;

/// Most characters shown of a line that was found; the whole line can be read by its message.
const LINE_CHARS: usize = 300;

/// Subject of a query.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Whole messages.
    Messages,
    /// The result of the call of this id.
    Result(String),
    /// The lines that match.
    Lines(Regex),
}

/// A question, and the range of messages to search for its answer.
#[derive(Clone, Debug)]
pub struct Query {
    /// Subject of the query.
    pub wanted: Wanted,
    /// First message searched, from 0.
    pub from: u64,
    /// First message after the range.
    pub to: u64,
    /// First character of the answer that is given.
    pub offset: usize,
}

impl Query {
    /// Checks the arguments of a call and returns the query.
    ///
    /// # Errors
    /// Returns an error if they contradict each other, or name nothing to look for.
    pub fn of(asked: &own_tool::Recall) -> Result<Self, String> {
        let bad = |problem: &str| Err(problem.to_owned());
        let regex =
            |pattern: &str| Regex::new(pattern).map_err(|error| format!("`regex`: {error}"));
        let has_range = asked.from.is_some() || asked.to.is_some();
        let wanted = match (&asked.id, &asked.text, &asked.regex) {
            (Some(id), None, None) => Wanted::Result(id.clone()),
            (None, Some(text), None) if text.is_empty() => return bad("`text` is empty"),
            (None, Some(text), None) if text.contains('\n') => {
                return bad("`text` has several lines: lines are looked at one by one");
            }
            (None, Some(text), None) => Wanted::Lines(regex(&regex::escape(text))?),
            (None, None, Some(pattern)) => Wanted::Lines(regex(pattern)?),
            (None, None, None) if has_range => Wanted::Messages,
            (None, None, None) => return bad("one of `id`, `text`, `regex` and `from` is needed"),
            (Some(_), ..) | (_, Some(_), Some(_)) => {
                return bad("`id`, `text` and `regex` exclude each other");
            }
        };
        let (from, to) = (asked.from.unwrap_or(0), asked.to.unwrap_or(u64::MAX));
        if from >= to {
            return bad("the range is empty: `to` is the first message after it");
        }
        Ok(Self { wanted, from, to, offset: asked.offset })
    }
}

/// Reason why there is no answer, in words for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotThere {
    /// The range begins after the end of the conversation.
    #[error(
        "there is no message {from}: the conversation has {count} before this one, the first is 0"
    )]
    Message {
        /// First message asked for.
        from: u64,
        /// Number of messages that there are.
        count: u64,
    },
    /// No call of that id has a result.
    #[error("messages {from} to {to} hold no result of a call `{id}`")]
    Result {
        /// Id that was asked for.
        id: String,
        /// First message searched.
        from: u64,
        /// First message after the range.
        to: u64,
    },
    /// Several calls had that id.
    #[error("several results have the id `{id}`: say with `from` which of the messages {places:?}")]
    Ambiguous {
        /// Id that was asked for.
        id: String,
        /// Messages that hold a result of this id.
        places: Vec<u64>,
    },
    /// The answer has no such page.
    #[error("`offset` {offset} is behind the end: the answer has {chars} characters")]
    Offset {
        /// First character asked for.
        offset: usize,
        /// Number of characters of the answer.
        chars: usize,
    },
}

/// A page of a text that arrives in pieces.
#[derive(Clone, Debug)]
pub struct Page {
    offset: usize,
    text: String,
    /// Characters on the page.
    taken: usize,
    /// Characters before the page and on it, so far.
    seen: usize,
    has_more: bool,
}

impl Page {
    /// Creates the page that begins at the character `offset`.
    #[must_use]
    pub fn at(offset: usize) -> Self {
        Self { offset, text: String::new(), taken: 0, seen: 0, has_more: false }
    }

    /// Adds the next piece of the text.
    pub fn push(&mut self, piece: &str) {
        for c in piece.chars() {
            if self.seen < self.offset {
                self.seen += 1;
            } else if self.taken < PAGE_CHARS {
                self.text.push(c);
                self.taken += 1;
                self.seen += 1;
            } else {
                self.has_more = true;
                return;
            }
        }
    }

    /// Returns true if no further piece would change the page.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.has_more
    }

    /// Returns the page. A page that is not the whole text ends with a line that says which part it
    /// is.
    ///
    /// # Errors
    /// Returns an error if the text ends before the page begins.
    pub fn finish(mut self) -> Result<String, NotThere> {
        let (offset, end) = (self.offset, self.seen);
        if self.taken == 0 && offset > 0 {
            return Err(NotThere::Offset { offset, chars: end });
        }
        if self.has_more {
            self.text.push_str(&format!("\n[characters {offset} to {end}; next: offset {end}]"));
        } else if offset > 0 {
            self.text.push_str(&format!("\n[characters {offset} to {end}: the end]"));
        }
        Ok(self.text)
    }
}

/// An answer in the making.
#[derive(Debug)]
pub struct Recall {
    query: Query,
    page: Page,
    count: u64,
    /// Calls of the latest message that has any: id and tool.
    calls: Vec<(String, String)>,
    /// Messages that hold a result of the wanted id.
    places: Vec<u64>,
}

impl Recall {
    /// Begins an answer.
    #[must_use]
    pub fn new(query: Query) -> Self {
        let page = Page::at(query.offset);
        Self { query, page, count: 0, calls: Vec::new(), places: Vec::new() }
    }

    /// Reads the conversation's next message.
    ///
    /// # Errors
    /// Returns an error if `json` is not a message. Whole messages are copied without this check.
    pub fn take(&mut self, json: &str) -> Result<(), serde_json::Error> {
        let number = self.count;
        self.count += 1;
        let is_in_range = (self.query.from..self.query.to).contains(&number);
        if let Wanted::Messages = self.query.wanted {
            if is_in_range {
                for piece in [&format!("{{\"n\":{number},\"message\":"), json, "}\n"] {
                    self.page.push(piece);
                }
            }
            return Ok(());
        }
        let message = Message::read(json)?;
        if is_in_range {
            self.look_into(number, &message);
        }
        if message.tool_calls().next().is_some() {
            let calls = message.tool_calls().map(|call| (call.id.clone(), call.name.clone()));
            self.calls = calls.collect();
        }
        Ok(())
    }

    fn look_into(&mut self, number: u64, message: &Message) {
        match &self.query.wanted {
            Wanted::Messages => {}
            Wanted::Result(id) => {
                for result in message.tool_results().filter(|r| r.tool_use_id == *id) {
                    self.places.push(number);
                    self.page.push(match &result.content {
                        ResultContent::Text(text) => text,
                        ResultContent::Blocks(blocks) => blocks.as_str(),
                    });
                }
            }
            Wanted::Lines(regex) => {
                for (what, text) in parts(message, &self.calls) {
                    let lines = matching_lines(regex, &text);
                    if !lines.is_empty() {
                        self.page.push(&format!("message {number}, {what}\n{lines}"));
                    }
                }
            }
        }
    }

    /// Returns true if no further message would change the answer.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_past = self.count >= self.query.to;
        match self.query.wanted {
            Wanted::Messages | Wanted::Lines(_) => is_past || self.page.is_full(),
            // A second result of the same id makes the query ambiguous, so the search never stops
            // early.
            Wanted::Result(_) => is_past,
        }
    }

    /// Returns the answer.
    ///
    /// # Errors
    /// Returns an error if there is no answer.
    pub fn finish(self) -> Result<String, NotThere> {
        let Query { wanted, from, to, offset } = self.query;
        let to = to.min(self.count);
        if from >= self.count {
            return Err(NotThere::Message { from, count: self.count });
        }
        match wanted {
            Wanted::Result(id) if self.places.is_empty() => {
                return Err(NotThere::Result { id, from, to });
            }
            Wanted::Result(id) if self.places.len() > 1 => {
                return Err(NotThere::Ambiguous { id, places: self.places });
            }
            Wanted::Lines(_) if offset == 0 && self.page.seen == 0 => {
                return Ok(format!("No line of the messages {from} to {to} matches."));
            }
            Wanted::Messages | Wanted::Result(_) | Wanted::Lines(_) => {}
        }
        self.page.finish()
    }
}

/// Returns the texts of a message that are searched, each with its description. Calls of `recall`
/// and their results are skipped, because they only repeat other messages.
fn parts<'a>(message: &'a Message, calls: &[(String, String)]) -> Vec<(String, Cow<'a, str>)> {
    let tool_of = |id: &str| {
        let call = calls.iter().find(|(known, _)| known == id);
        call.map_or("unknown", |(_, tool)| tool.as_str())
    };
    let is_own = |tool: &str| OwnTool::named(tool) == Some(OwnTool::Recall);
    let mut parts = Vec::new();
    for block in &message.content {
        match block {
            Block::Text(text) => {
                parts.push((message.role.as_str().to_owned(), Cow::Borrowed(text.as_str())));
            }
            Block::ToolUse(call) if is_own(&call.name) => {}
            Block::ToolUse(call) => {
                let what = format!("call {} of {}", call.id, call.name);
                arguments(&what, &call.input, &mut parts);
            }
            Block::ToolResult(result) if is_own(tool_of(&result.tool_use_id)) => {}
            Block::ToolResult(result) => {
                let id = &result.tool_use_id;
                let text = match &result.content {
                    ResultContent::Text(text) => text.as_str(),
                    ResultContent::Blocks(blocks) => blocks.as_str(),
                };
                parts.push((format!("result {id} of {}", tool_of(id)), text.into()));
            }
            Block::Other(json) => parts.push(("other".to_owned(), json.as_str().into())),
        }
    }
    parts
}

/// Adds the arguments of a call, with strings unescaped from their JSON.
fn arguments(what: &str, input: &Json, parts: &mut Vec<(String, Cow<'_, str>)>) {
    let serde_json::Value::Object(fields) = input.to_value() else {
        return parts.push((what.to_owned(), input.as_str().to_owned().into()));
    };
    for (key, value) in fields {
        let text = match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        parts.push((format!("{what}, {key}"), text.into()));
    }
}

/// Returns the matching lines with some around them, as `number:line` and `number-line`.
fn matching_lines(regex: &Regex, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let hits = lines.iter().enumerate().filter(|(_, line)| regex.is_match(line));
    let (mut out, mut shown) = (String::new(), 0);
    for (hit, _) in hits {
        let first = shown.max(hit.saturating_sub(CONTEXT_LINES));
        let last = (hit + CONTEXT_LINES).min(lines.len() - 1);
        for (number, line) in (first + 1..).zip(&lines[first..=last]) {
            let found = regex.find(line).map(|found| found.start());
            let mark = if found.is_some() { ':' } else { '-' };
            out.push_str(&format!("{number}{mark}{}\n", cut(line, found.unwrap_or_default())));
        }
        shown = last + 1;
    }
    out
}

/// Returns a line, or the part of a long one around the byte `place`.
fn cut(line: &str, place: usize) -> Cow<'_, str> {
    if line.chars().nth(LINE_CHARS).is_none() {
        return line.into();
    }
    let before = line[..place].char_indices().rev().take(LINE_CHARS / 3).last();
    let begin = before.map_or(place, |(at, _)| at);
    let end = line[begin..].char_indices().nth(LINE_CHARS).map_or(line.len(), |(at, _)| begin + at);
    let dots = |cut: bool| if cut { "..." } else { "" };
    format!("{}{}{}", dots(begin > 0), &line[begin..end], dots(end < line.len())).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::{Role, ToolCall, ToolResult};

    fn call(id: &str, tool: &str, input: &serde_json::Value) -> Json {
        let (id, name, input) = (id.to_owned(), tool.to_owned(), Json::encode(input));
        let content = vec![Block::ToolUse(ToolCall { id, name, input })];
        Json::encode(&Message { role: Role::Assistant, content })
    }

    fn answer(id: &str, text: &str) -> Json {
        let content = ResultContent::Text(text.to_owned());
        let result = ToolResult { tool_use_id: id.to_owned(), content, is_error: false };
        Json::encode(&Message { role: Role::User, content: vec![Block::ToolResult(result)] })
    }

    fn conversation() -> Vec<Json> {
        let edit = serde_json::json!({"path": "a.rs", "content": "let a = \"b\";\nlet c = 1;"});
        vec![
            Json::encode(&Message::user("find the needle")),
            call("t0", "read_file", &serde_json::json!({"path": "hay"})),
            answer("t0", "1\n2\n3\nneedle one\n5\n6\nNeedle two\n8\n9\n10\n11\nneedle three"),
            call("t1", "write_file", &edit),
            answer("t1", "written"),
            call("t2", OwnTool::Recall.name(), &serde_json::json!({"text": "needle"})),
            answer("t2", "needle needle"),
            call("t1", "read_file", &serde_json::json!({"path": "x"})),
            answer("t1", "again"),
        ]
    }

    fn ask(query: Query, messages: &[Json]) -> Result<String, NotThere> {
        let mut recall = Recall::new(query);
        for json in messages {
            if recall.is_complete() {
                break;
            }
            recall.take(json.as_str()).expect("a message");
        }
        recall.finish()
    }

    fn query(wanted: Wanted) -> Query {
        Query { wanted, from: 0, to: u64::MAX, offset: 0 }
    }

    fn lines(pattern: &str) -> Wanted {
        Wanted::Lines(Regex::new(pattern).expect("an expression"))
    }

    fn result(id: &str) -> Wanted {
        Wanted::Result(id.to_owned())
    }

    #[test]
    fn a_search_names_messages_lines_and_what_is_around() {
        let all = conversation();
        let found = ask(query(lines("needle")), &all).expect("found");
        assert_eq!(
            found,
            "message 0, user\n1:find the needle\n\
             message 2, result t0 of read_file\n\
             2-2\n3-3\n4:needle one\n5-5\n6-6\n10-10\n11-11\n12:needle three\n"
        );
        let found = ask(query(lines("(?i)^NEEDLE (one|two)")), &all).expect("found");
        assert_eq!(found.matches(':').count(), 2, "{found}");
        assert_eq!(found.lines().count(), 9, "lines that two matches share stand once: {found}");
        let found = ask(query(lines(&regex::escape("a = \"b\";"))), &all).expect("found");
        let expected =
            "message 3, call t1 of write_file, content\n1:let a = \"b\";\n2-let c = 1;\n";
        assert_eq!(found, expected, "as it was meant, without the escapes of JSON");
        let narrow = Query { from: 1, to: 2, ..query(lines("needle")) };
        assert_eq!(ask(narrow, &all).expect("none"), "No line of the messages 1 to 2 matches.");
    }

    #[test]
    fn a_long_line_is_cut_around_the_match() {
        let line = format!("{}needle{}", "é".repeat(5_000), "x".repeat(5_000));
        let found = ask(query(lines("needle")), &[answer("t", &line)]).expect("found");
        let shown = found.lines().nth(1).expect("a line");
        assert!(shown.starts_with("1:...é") && shown.ends_with("x..."), "{shown}");
        assert!(shown.contains("éneedlex") && shown.chars().count() < LINE_CHARS + 10);
    }

    #[test]
    fn a_result_is_given_as_it_was_or_the_reason_why_not() {
        let all = conversation();
        assert_eq!(ask(query(result("t2")), &all).as_deref(), Ok("needle needle"));
        let places = vec![4, 8];
        let twice = NotThere::Ambiguous { id: "t1".to_owned(), places };
        assert_eq!(ask(query(result("t1")), &all), Err(twice));
        let later = Query { from: 5, ..query(result("t1")) };
        assert_eq!(ask(later, &all).as_deref(), Ok("again"));
        let none = NotThere::Result { id: "t9".to_owned(), from: 0, to: 9 };
        assert_eq!(ask(query(result("t9")), &all), Err(none));
        let behind = Query { from: 9, ..query(Wanted::Messages) };
        assert_eq!(ask(behind, &all), Err(NotThere::Message { from: 9, count: 9 }));
        let blocks = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":[{"type":"image", "x":1}]}]}"#;
        let blocks = [Json::parse(blocks.to_owned()).expect("JSON")];
        let verbatim = r#"[{"type":"image", "x":1}]"#;
        assert_eq!(ask(query(result("b")), &blocks).as_deref(), Ok(verbatim));
    }

    /// All pages of an answer, put together, and how many there were.
    fn pages(wanted: &Wanted, messages: &[Json]) -> (String, usize) {
        let (mut whole, mut offset, mut count) = (String::new(), 0, 0);
        loop {
            let page = ask(Query { offset, ..query(wanted.clone()) }, messages).expect("a page");
            assert!(page.chars().count() < 30_000);
            count += 1;
            let (text, note) = match page.rsplit_once("\n[characters ") {
                Some((text, note)) => (text, Some(note)),
                None => (page.as_str(), None),
            };
            whole.push_str(text);
            let Some((_, next)) = note.and_then(|note| note.split_once("; next: offset ")) else {
                return (whole, count);
            };
            offset = next.trim_end_matches(']').parse().expect("a number");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_byte_can_be_had(
            texts in prop::collection::vec(("[a-zé\"\n\\[\\]\u{1F600}]{0,40}", 1_usize..800), 1..10),
        ) {
            let texts: Vec<_> = texts.iter().map(|(text, times)| text.repeat(*times)).collect();
            let mut all = vec![Json::encode(&Message::user("go"))];
            for (at, text) in texts.iter().enumerate() {
                all.push(call(&format!("t{at}"), "dump", &serde_json::json!({ "n": at })));
                all.push(answer(&format!("t{at}"), text));
            }
            let (whole, count) = pages(&Wanted::Messages, &all);
            let lines: Vec<_> = whole.lines().collect();
            prop_assert_eq!(lines.len(), all.len());
            for (number, (line, json)) in lines.iter().zip(&all).enumerate() {
                prop_assert_eq!(*line, format!("{{\"n\":{number},\"message\":{}}}", json.as_str()));
            }
            prop_assert_eq!(count, whole.chars().count().div_ceil(PAGE_CHARS));
            for (at, text) in texts.iter().enumerate() {
                prop_assert_eq!(&pages(&result(&format!("t{at}")), &all).0, text);
            }
        }
    }

    fn problem(input: &serde_json::Value) -> String {
        let query = Json::encode(input).decode().map_err(|error| error.to_string());
        query.and_then(|asked| Query::of(&asked)).expect_err("it is wrong")
    }

    #[test]
    fn a_wrong_recall_is_told_what_is_wrong() {
        for (input, expected) in [
            (serde_json::json!({}), "one of `id`, `text`, `regex` and `from` is needed"),
            (
                serde_json::json!({"id": "a", "text": "b"}),
                "`id`, `text` and `regex` exclude each other",
            ),
            (
                serde_json::json!({"text": "a", "regex": "b"}),
                "`id`, `text` and `regex` exclude each other",
            ),
            (serde_json::json!({"text": ""}), "`text` is empty"),
            (
                serde_json::json!({"text": "a\nb"}),
                "`text` has several lines: lines are looked at one by one",
            ),
            (
                serde_json::json!({"from": 3, "to": 3}),
                "the range is empty: `to` is the first message after it",
            ),
            (serde_json::json!({"from": -1}), "invalid value: integer `-1`, expected u64"),
            (serde_json::json!({"regex": "("}), "`regex`: regex parse error"),
            (serde_json::json!({"range": 1}), "unknown field `range`"),
        ] {
            let problem = problem(&input);
            assert!(problem.starts_with(expected), "{problem}");
        }
        let range = own_tool::Recall { to: Some(2), ..own_tool::Recall::default() };
        let query = Query::of(&range).expect("a range");
        assert_eq!((query.from, query.to), (0, 2));
    }
}
