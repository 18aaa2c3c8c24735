//! The input of a summariser: the covered messages, as they were sent or as text, whole or
//! shortened.
//!
//! Pure. A cut is made between messages, never within the JSON of one; a message that is too long
//! by itself gets its long texts cut and stays a message.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::context::layers::shorten::{self, LEAST_CHARS};
use crate::context::layers::template::fill;
use crate::context::view::{self, Slot, Speaker, Standing, Turn, View};
use crate::message::{Block, Json, Message, Role};
use crate::own_tool::OwnTool;

/// Most parts in which a long conversation is read: each part costs a call. From a longer
/// conversation the middle is left out.
const MOST_PARTS: usize = 8;

/// Tools whose calls steer the agent's own context and are not worth remembering.
const CONTROL_TOOLS: [&str; 2] = [OwnTool::Compact.name(), OwnTool::Snip.name()];

/// The messages that a summary covers, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Material(Vec<MaterialMessage>);

/// Limits on the text that a summariser reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Most characters. From a longer text the middle is left out.
    pub summary_input_chars: usize,
    /// Number of these characters for the beginning, which holds the goal, but at most a third; the
    /// rest is for the newest messages. With all of them for the beginning there is no tail.
    pub summary_head_chars: usize,
    /// Text in the place of the middle; `{n}` is the number of messages left out.
    pub summary_cut: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MaterialMessage {
    json: Json,
    role: Role,
    chars: usize,
    /// True if the message only asks the model to continue.
    is_prompt: bool,
    /// Speaker, if the message is a turn and is read as plain text.
    speaker: Option<Speaker>,
}

impl Material {
    /// Collects the messages in a range of the view.
    #[must_use]
    pub fn of(view: &View, from: u64, to: u64) -> Self {
        let line = |slot: &Slot| {
            let entry = &slot.entry;
            let is_prompt = entry.is_prompt && slot.standing == Standing::Verbatim;
            let (json, speaker) = (entry.json.clone(), None);
            MaterialMessage { json, role: entry.role, chars: entry.chars, is_prompt, speaker }
        };
        Self(view.covered(from, to).map(line).collect())
    }

    /// Collects the texts of these turns.
    #[must_use]
    pub fn of_turns<'a>(turns: impl Iterator<Item = &'a Turn>) -> Self {
        let line = |turn: &Turn| {
            let message = match turn.speaker {
                Speaker::Assistant => Message::assistant(turn.text()),
                Speaker::User | Speaker::System => Message::user(turn.text()),
            };
            let (json, role) = (Json::encode(&message), message.role);
            let chars = json.as_str().chars().count();
            MaterialMessage { json, role, chars, is_prompt: false, speaker: Some(turn.speaker) }
        };
        Self(turns.map(line).collect())
    }

    /// Returns the size in characters.
    #[must_use]
    pub fn chars(&self) -> usize {
        self.0.iter().map(|line| line.chars + 1).sum()
    }

    /// Returns the conversation with the instruction as the user's last words. Everything before it
    /// is as it was sent, so that it is read from the cache.
    #[must_use]
    pub fn conversation(&self, instruction: &str) -> Vec<Json> {
        let side_by_side =
            |a: &MaterialMessage, b: &MaterialMessage| (a.role, b.role) == (Role::User, Role::User);
        let mut said: Vec<Vec<&Json>> = self
            .0
            .chunk_by(side_by_side)
            .map(|l| l.iter().map(|line| &line.json).collect())
            .collect();
        let instruction = Json::encode(&Message::user(instruction));
        match said.last_mut() {
            Some(last) if self.0.last().is_some_and(|line| line.role == Role::User) => {
                last.push(&instruction);
            }
            _ => said.push(vec![&instruction]),
        }
        let message = |said: Vec<&Json>| match said.as_slice() {
            [one] => (*one).clone(),
            several => Json::encode(&view::joined(several.iter().copied())),
        };
        said.into_iter().map(message).collect()
    }

    /// Returns the messages as text, one a line, in parts of at most `part` characters; the middle
    /// is left out when there is more text than is read.
    #[must_use]
    pub fn texts(&self, reading: &Reading, part: usize) -> Vec<String> {
        let part = part.max(LEAST_CHARS);
        let limit = reading.summary_input_chars.min(part.saturating_mul(MOST_PARTS));
        let most = (part / 2).min(limit / 3).max(LEAST_CHARS);
        let lines: Vec<_> = self.0.iter().map(|line| cut(line, most)).collect();
        let total: usize = lines.iter().map(|line| line.chars + 1).sum();
        // When the head may be everything that is read, there is no tail.
        let is_head_only = reading.summary_head_chars >= reading.summary_input_chars;
        let head = if is_head_only { limit } else { reading.summary_head_chars.min(limit / 3) };
        let gap = match total > limit {
            true => middle(&lines, limit, head),
            false => lines.len()..lines.len(),
        };
        let n = gap.len().to_string();
        let marker = (!gap.is_empty()).then(|| fill(&reading.summary_cut, &[("n", &n)]));
        let text = |line: &MaterialMessage| format!("{}\n", line.text());
        let (head, tail) = (lines[..gap.start].iter(), lines[gap.end..].iter());
        let pieces = head.map(text).chain(marker).chain(tail.map(text));
        joined(pieces, part)
    }

    /// Returns the material without messages that only steer the agent's own context: orders that
    /// were given once must not come back as if they were new.
    #[must_use]
    pub fn without_control(&self) -> Self {
        let mut control: Vec<String> = Vec::new();
        let kept = self.0.iter().filter(|line| !line.is_prompt).filter_map(|line| {
            let names_one = CONTROL_TOOLS.iter().any(|name| line.json.as_str().contains(name));
            if control.is_empty() && !names_one {
                return Some(line.clone());
            }
            let mut message = line.json.decode::<Message>().ok()?;
            let of_call = |block: &Block| match block {
                Block::ToolUse(call) => CONTROL_TOOLS.contains(&call.name.as_str()),
                Block::ToolResult(result) => control.contains(&result.tool_use_id),
                Block::Text(_) | Block::Other(_) => false,
            };
            let before = message.content.len();
            let (gone, kept): (Vec<_>, Vec<_>) = message.content.into_iter().partition(of_call);
            control = gone
                .into_iter()
                .filter_map(|block| match block {
                    Block::ToolUse(call) => Some(call.id),
                    _ => None,
                })
                .collect();
            message.content = kept;
            if message.content.len() == before {
                return Some(line.clone());
            }
            (!message.content.is_empty()).then(|| line.with(&message))
        });
        Self(kept.collect())
    }

    /// Makes the conversation smaller by about `chars` characters, so that it can still be sent:
    /// the oldest exchanges after the first message are removed, and where one message has most of
    /// the size, its long texts are cut. Returns false when nothing more can be removed.
    pub fn shed(&mut self, chars: usize) -> bool {
        let before = self.chars();
        let goal = before.saturating_sub(chars.max(1));
        while self.chars() > goal {
            let total = self.chars();
            let largest = (0..self.0.len()).max_by_key(|at| self.0[*at].chars);
            let Some(largest) = largest else { break };
            let dominates = self.0[largest].chars * 2 > total;
            // The first message and the newest exchange are worth most, so they stay longest.
            let oldest = self.oldest_exchange();
            if let Some(oldest) = oldest.clone().filter(|_| !dominates) {
                self.0.drain(oldest);
                continue;
            }
            let line = &self.0[largest];
            // The marker for the part that is cut takes some characters too.
            let most = line.chars.saturating_sub(total - goal + LEAST_CHARS).max(line.chars / 4);
            let shorter = cut(line, most.max(LEAST_CHARS));
            if shorter.chars < line.chars {
                self.0[largest] = shorter;
            } else if let Some(oldest) = oldest {
                self.0.drain(oldest);
            } else {
                break;
            }
        }
        self.chars() < before
    }

    /// Returns the first words of the assistant and the answers to them, if the assistant has
    /// spoken again since.
    fn oldest_exchange(&self) -> Option<Range<usize>> {
        let speaks = |at: &usize| {
            let before = at.checked_sub(1).map(|before| self.0[before].role);
            self.0[*at].role == Role::Assistant && before != Some(Role::Assistant)
        };
        let mut begins = (0..self.0.len()).filter(speaks);
        Some(begins.next()?..begins.next()?)
    }
}

impl MaterialMessage {
    /// Returns the text that a summariser reads.
    fn text(&self) -> String {
        match (self.speaker, self.json.decode::<Message>()) {
            (Some(speaker), Ok(message)) => format!("{}: {}", speaker.as_str(), message.text()),
            (None, _) | (_, Err(_)) => self.json.as_str().to_owned(),
        }
    }

    fn with(&self, message: &Message) -> Self {
        let json = Json::encode(message);
        Self { chars: json.as_str().chars().count(), json, ..self.clone() }
    }
}

/// Returns the messages that are left out when there is room for only `limit` characters, of which
/// `for_head` are for the first messages.
fn middle(lines: &[MaterialMessage], limit: usize, for_head: usize) -> Range<usize> {
    let take = |lines: &mut dyn Iterator<Item = &MaterialMessage>, room: usize| {
        let mut left = room;
        let fitting = lines.take_while(|line| {
            let fits = line.chars < left;
            left = left.saturating_sub(line.chars + 1);
            fits
        });
        fitting.count()
    };
    let head = take(&mut lines.iter(), for_head);
    let tail = take(&mut lines[head..].iter().rev(), limit - for_head);
    head..lines.len() - tail
}

/// Joins pieces to texts of at most `most` characters each; a piece that is longer gets a text of
/// its own.
fn joined(pieces: impl Iterator<Item = String>, most: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut chars = 0;
    for piece in pieces {
        let more = piece.chars().count();
        if chars + more > most && chars > 0 {
            texts.push(String::new());
            chars = 0;
        }
        chars += more;
        if let Some(text) = texts.last_mut() {
            text.push_str(&piece);
        }
    }
    texts
}

/// Returns the message with its long texts cut to about `most` characters, if it has more.
fn cut(line: &MaterialMessage, most: usize) -> MaterialMessage {
    if line.chars <= most {
        return line.clone();
    }
    let Ok(mut message) = line.json.decode::<Message>() else { return line.clone() };
    shorten::message(&mut message, most, "");
    line.with(&message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ResultContent, ToolCall, ToolResult};

    fn reading(summary_input_chars: usize) -> Reading {
        let summary_cut = "... {n} messages left out ...\n".to_owned();
        Reading { summary_input_chars, summary_head_chars: summary_input_chars / 3, summary_cut }
    }

    fn call(id: &str, tool: &str) -> Block {
        let input = Json::encode(&serde_json::json!({ "path": "src/a.rs" }));
        Block::ToolUse(ToolCall { id: id.to_owned(), name: tool.to_owned(), input })
    }

    fn answer(id: &str, text: &str) -> Block {
        let content = ResultContent::Text(text.to_owned());
        Block::ToolResult(ToolResult { tool_use_id: id.to_owned(), content, is_error: false })
    }

    fn exchange(view: &mut View, calls: Vec<Block>, answers: Vec<Block>) {
        let calls = Message { role: Role::Assistant, content: calls };
        let answers = Message { role: Role::User, content: answers };
        view.push(Json::encode(&calls)).expect("a message");
        view.push(Json::encode(&answers)).expect("a message");
    }

    fn conversation(sizes: &[usize]) -> Material {
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        for (turn, size) in sizes.iter().enumerate() {
            let id = turn.to_string();
            let text = format!("{turn}:{}", "x".repeat(*size));
            exchange(&mut view, vec![call(&id, "dump")], vec![answer(&id, &text)]);
        }
        Material::of(&view, 0, view.next_message())
    }

    fn messages(material: &Material) -> Vec<Message> {
        material.conversation("Sum up.").iter().map(|json| json.decode().expect("one")).collect()
    }

    /// Calls are answered in the next message, roles alternate, the user is first and last.
    fn assert_sendable(messages: &[Message]) {
        let mut open: Vec<String> = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let role = if at % 2 == 0 { Role::User } else { Role::Assistant };
            assert_eq!(message.role, role, "message {at}");
            let answers: Vec<_> = message.tool_results().map(|r| r.tool_use_id.clone()).collect();
            assert_eq!(answers, open, "message {at}");
            open = message.tool_calls().map(|call| call.id.clone()).collect();
        }
        assert!(messages.len() % 2 == 1 && open.is_empty());
    }

    #[test]
    fn the_instruction_is_the_last_that_the_user_says() {
        let material = conversation(&[10, 20]);
        let sent = material.conversation("Sum up.");
        assert_eq!(sent.len(), 5);
        assert_eq!(sent[..4], material.0[..4].iter().map(|l| l.json.clone()).collect::<Vec<_>>());
        let (last, whole) = (sent[4].as_str(), material.0[4].json.as_str());
        let common = last.bytes().zip(whole.bytes()).take_while(|(a, b)| a == b).count();
        assert_eq!(common, whole.len() - "]}".len(), "its blocks stay byte for byte");
        assert_sendable(&messages(&material));
        assert_eq!(messages(&Material::default())[0].text(), "Sum up.");
    }

    #[test]
    fn a_long_text_loses_its_middle_between_messages() {
        let material = conversation(&[1_000; 60]);
        let texts = material.texts(&reading(12_000), 100_000);
        let [text] = texts.as_slice() else { panic!("one part") };
        assert!(text.chars().count() < 12_100, "{}", text.chars().count());
        assert!(text.contains("the goal") && text.contains("59:x"), "{text}");
        assert!(text.contains(" messages left out ..."));
        let lines = text.lines().filter(|line| !line.starts_with("... "));
        assert!(lines.clone().all(|line| Message::read(line).is_ok()), "no cut amid the JSON");
        assert!(lines.count() > 8);
        assert_eq!(
            conversation(&[1_000; 3]).texts(&reading(80_000), 100_000)[0].lines().count(),
            7
        );
    }

    #[test]
    fn a_conversation_longer_than_the_window_is_read_in_parts() {
        let material = conversation(&[1_000; 40]);
        let texts = material.texts(&reading(usize::MAX), 10_000);
        assert!(texts.len() > 3 && texts.len() <= MOST_PARTS, "{}", texts.len());
        assert!(texts.iter().all(|text| text.chars().count() <= 10_000));
        assert!(texts[0].contains("the goal") && texts[texts.len() - 1].contains("39:x"));
        assert!(texts.iter().flat_map(|text| text.lines()).all(|line| Message::read(line).is_ok()));
        // However long it is, the number of calls is bounded, and both ends are read.
        let texts = conversation(&[1_000; 2_000]).texts(&reading(usize::MAX), 10_000);
        assert!(texts.len() <= MOST_PARTS + 1);
        assert!(texts[0].contains("the goal") && texts[texts.len() - 1].contains("1999:x"));
    }

    #[test]
    fn one_giant_message_is_cut_and_stays_a_message() {
        let material = conversation(&[10, 500_000, 10]);
        let texts = material.texts(&reading(usize::MAX), 9_000);
        assert_eq!(texts.len(), 1);
        assert!(texts[0].contains("characters left out ...]") && texts[0].contains("2:x"));
        assert!(texts[0].lines().all(|line| Message::read(line).is_ok()));
    }

    #[test]
    fn the_oldest_exchanges_leave_until_enough_is_freed() {
        let mut material = conversation(&[1_000; 20]);
        let before = material.chars();
        assert!(material.shed(5_000));
        let freed = before - material.chars();
        assert!((5_000..7_000).contains(&freed), "{freed}");
        let left = messages(&material);
        assert_sendable(&left);
        assert_eq!(left[0].text(), "the goal");
        assert!(left[2].tool_results().next().expect("a result").text().starts_with("5:"));
    }

    #[test]
    fn one_group_that_dominates_is_cut_and_there_is_an_end() {
        let mut material = conversation(&[100, 100_000, 100]);
        assert!(material.shed(60_000));
        assert_eq!(material.0.len(), 7, "nothing but the giant one had to give");
        assert!(material.chars() < 45_000, "{}", material.chars());
        let mut rounds = 0;
        while material.shed(1_000_000) {
            assert_sendable(&messages(&material));
            rounds += 1;
            assert!(rounds < 50, "it ends");
        }
        assert!(material.chars() < 1_500, "{}", material.chars());
        assert_sendable(&messages(&material));
        assert!(!Material::default().shed(10));
    }

    #[test]
    fn images_and_long_inputs_give_way_too() {
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        let input = Json::encode(&serde_json::json!({ "path": "a", "content": "z".repeat(9_000) }));
        let write = ToolCall { id: "w".to_owned(), name: "write_file".to_owned(), input };
        let image =
            Json::encode(&serde_json::json!([{ "type": "image", "data": "i".repeat(9_000) }]));
        let content = ResultContent::Blocks(image);
        let seen = ToolResult { tool_use_id: "w".to_owned(), content, is_error: false };
        exchange(&mut view, vec![Block::ToolUse(write)], vec![Block::ToolResult(seen)]);
        let mut material = Material::of(&view, 0, 3);
        while material.shed(100_000) {}
        assert!(material.chars() < 1_200, "{}", material.chars());
        assert_sendable(&messages(&material));
        assert!(
            messages(&material)[1].tool_calls().any(|call| call.input.to_value()["path"] == "a")
        );
    }

    #[test]
    fn orders_to_the_context_are_left_out() {
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        let calls = vec![call("1", "compact"), call("2", "dump")];
        exchange(
            &mut view,
            calls,
            vec![answer("1", "Compressing..."), answer("2", "a compact list")],
        );
        exchange(&mut view, vec![call("3", "compact")], vec![answer("3", "Compressing...")]);
        view.push(Json::encode(&Message::assistant("Well, "))).expect("a message");
        view.push_continuation(Json::encode(&Message::user("Continue."))).expect("a message");
        let text =
            Material::of(&view, 0, 7).without_control().texts(&reading(80_000), 80_000).concat();
        assert!(!text.contains("Compressing") && !text.contains("\"compact\""), "{text}");
        assert!(!text.contains("Continue."));
        assert!(text.contains("a compact list") && text.contains("the goal"), "{text}");
    }
}
