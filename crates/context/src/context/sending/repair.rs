//! Repair: makes a conversation that was cut, damaged or written by others keep the rules.
//!
//! Pure. Each repair names the messages it changes and the rules they broke. Only empty text and
//! empty messages are left out: a result without its call becomes text, and a call without its
//! result gets one. A repaired conversation needs no further repair.

use std::collections::{HashMap, HashSet};

use crate::context::Edit;
use crate::context::layers::pipeline;
use crate::context::layers::pipeline::AppliedEdit;
use crate::context::sending::plain::result_as_text;
use crate::context::sending::validity::Invalid;
use crate::context::view::View;
use crate::context::view::rules::{Kind, Rule};
use crate::message::{Block, Json, Message, ResultContent, Role, ToolResult};

/// Layer name under which repairs are recorded.
pub const NAME: &str = "repair";

/// Text of the result given to a call that has none.
const NO_RESULT: &str = "no result: the conversation was interrupted before the call had one";

/// Text of the user message put before a conversation that the assistant begins.
const OPENING: &str = "(the beginning of the conversation is missing)";

/// One repair: a range of messages, and the messages that replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// First message that is changed.
    pub from: usize,
    /// First message after the range.
    pub to: usize,
    /// Messages in the place of the range.
    pub with: Vec<Message>,
    /// Breaches that were found in the range.
    pub found: Vec<Invalid>,
}

/// Returns the repairs that a conversation needs, in order; none when it keeps the rules. The role
/// of the last message is not checked: a recorded conversation may end with either side.
#[must_use]
pub fn repair(messages: &[Message]) -> Vec<Repair> {
    let mut drafts = alternate(messages);
    pair(&mut drafts);
    gather(drafts)
}

/// Applies the repairs to a conversation; messages that need none keep their bytes.
pub fn apply(messages: &mut Vec<Json>, repairs: &[Repair]) {
    for repair in repairs.iter().rev() {
        messages.splice(repair.from..repair.to, repair.with.iter().map(Json::encode));
    }
}

/// Repairs a view; returns the edits that are to be recorded.
pub fn repair_with(view: &mut View) -> Vec<AppliedEdit> {
    let decoded = view.slots().map(|slot| slot.entry.json.decode::<Message>());
    let Ok(messages) = decoded.collect::<Result<Vec<_>, _>>() else { return Vec::new() };
    let repairs = repair(&messages);
    let covers: Vec<(u64, u64)> = view.slots().map(|slot| (slot.from, slot.to)).collect();
    let mut changes = Vec::new();
    for repair in reachable(repairs, &messages, &covers) {
        let with = repair.with.iter().map(Json::encode).collect();
        let edit = Edit::Replace { from: covers[repair.from].0, to: covers[repair.to - 1].1, with };
        changes.extend(pipeline::apply(view, NAME, edit.into()));
    }
    changes
}

/// Widens the repairs to ranges that an edit can name: a slot that stands for no message of its own
/// is joined to the one before it.
fn reachable(repairs: Vec<Repair>, messages: &[Message], covers: &[(u64, u64)]) -> Vec<Repair> {
    let is_bare = |at: usize| covers.get(at).is_some_and(|(from, to)| from == to);
    let mut wide: Vec<Repair> = Vec::new();
    for repair in repairs {
        let mut from = repair.from;
        while from > 0 && is_bare(from) {
            from -= 1;
        }
        match wide.last_mut().filter(|last| last.to > from) {
            Some(last) => {
                last.with.extend_from_slice(&messages[last.to..repair.from]);
                last.with.extend(repair.with);
                last.to = repair.to;
            }
            None => {
                let with = messages[from..repair.from].iter().cloned().chain(repair.with).collect();
                wide.push(Repair { from, with, ..repair });
            }
        }
    }
    for repair in &mut wide {
        while is_bare(repair.to) {
            repair.with.push(messages[repair.to].clone());
            repair.to += 1;
        }
    }
    wide
}

/// A message of the repaired conversation, and the messages that it is made of.
#[derive(Debug)]
struct Draft {
    /// First message of the range that it stands for, and the first one after.
    from: usize,
    to: usize,
    /// Absent when nothing of the messages is left.
    message: Option<Message>,
    found: Vec<Invalid>,
}

impl Draft {
    fn note(&mut self, rule: Rule, reason: impl Into<String>) {
        let (message, reason) = (self.from as u64, reason.into());
        self.found.push(Invalid::Message { rule, message, reason });
    }
}

/// Repairs each message by itself, and makes user and assistant alternate, the user first.
fn alternate(messages: &[Message]) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let mut draft = clean(at, message);
        let last = drafts.iter().rposition(|draft| draft.message.is_some());
        let (Some(said), Some(last)) = (&draft.message, last) else {
            if draft.message.as_ref().is_some_and(speaks_too_soon) {
                draft.note(Rule::BeginsWithUser, "the assistant speaks first");
                let opening = Some(Message::user(OPENING));
                drafts.push(Draft { from: at, to: at, message: opening, found: Vec::new() });
            }
            drafts.push(draft);
            continue;
        };
        let is_twice = drafts[last].message.as_ref().is_some_and(|before| before.role == said.role);
        if !is_twice {
            drafts.push(draft);
            continue;
        }
        draft.note(Rule::RolesAlternate, "the same side speaks twice");
        for later in drafts.split_off(last + 1).into_iter().chain([draft]) {
            let into = &mut drafts[last];
            into.to = later.to;
            into.found.extend(later.found);
            if let (Some(into), Some(more)) = (&mut into.message, later.message) {
                into.content.extend(more.content);
                results_first(into);
            }
        }
    }
    drafts
}

fn speaks_too_soon(message: &Message) -> bool {
    let first = message.content.first().map(Kind::of);
    message.role == Role::Assistant && first != Some(Kind::Compaction)
}

/// Returns the draft of a message in which every breach of its own is repaired.
fn clean(at: usize, message: &Message) -> Draft {
    let mut draft = Draft { from: at, to: at + 1, message: None, found: Vec::new() };
    let role = message.role;
    let mut content = Vec::with_capacity(message.content.len());
    for block in &message.content {
        match (Kind::of(block), block) {
            (Kind::Blank, _) => draft.note(Rule::NoEmptyContent, "an empty text is left out"),
            (Kind::Broken, block) => {
                draft.note(Rule::WholeBlocks, "half a call or result is told in words");
                content.push(Block::Text(format!("[{}]", Json::encode(block).as_str())));
            }
            (Kind::Call, Block::ToolUse(call)) if role == Role::User => {
                draft.note(Rule::CallsAnswered, "a call of the user is told in words");
                let (name, input) = (&call.name, call.input.as_str());
                content.push(Block::Text(format!("[a call of `{name}`: {input}]")));
            }
            (Kind::Result | Kind::HollowResult, Block::ToolResult(result))
                if role == Role::Assistant =>
            {
                draft.note(Rule::ResultsAsked, "a result of the assistant is told in words");
                content.extend(result_as_text("unknown", result.clone()));
            }
            (Kind::HollowResult, Block::ToolResult(result)) => {
                draft.note(Rule::NoEmptyContent, "empty blocks of a result are left out");
                content.push(Block::ToolResult(filled(result)));
            }
            (_, block) => content.push(block.clone()),
        }
    }
    let mut message = Message { role, content };
    if results_first(&mut message) {
        draft.note(Rule::ResultsFirst, "results are put before the rest");
    }
    if message.content.is_empty() {
        draft.note(Rule::NoEmptyContent, "a message without content is left out");
    } else {
        draft.message = Some(message);
    }
    draft
}

/// Moves the results of a message before its other blocks; returns true if anything moved.
fn results_first(message: &mut Message) -> bool {
    let is_result = |block: &Block| matches!(block, Block::ToolResult(_));
    let is_sorted = message.content.is_sorted_by_key(|block| !is_result(block));
    message.content.sort_by_key(|block| !is_result(block));
    !is_sorted
}

/// Returns the result without its empty blocks.
fn filled(result: &ToolResult) -> ToolResult {
    let blocks = match &result.content {
        ResultContent::Blocks(json) => json.decode::<Vec<Block>>().unwrap_or_default(),
        ResultContent::Text(_) => Vec::new(),
    };
    let kept: Vec<_> = blocks.into_iter().filter(|block| Kind::of(block) != Kind::Blank).collect();
    let content = match kept.is_empty() {
        true => ResultContent::Text(String::new()),
        false => ResultContent::Blocks(Json::encode(&kept)),
    };
    ToolResult { content, ..result.clone() }
}

/// Gives every call a unique id and one result in the next message.
fn pair(drafts: &mut Vec<Draft>) {
    let calls = drafts.iter().flat_map(|draft| &draft.message).flat_map(Message::tool_calls);
    let given = calls.map(|call| call.id.clone()).collect();
    let mut ids = Ids { given, ..Ids::default() };
    // Calls of the previous message: id in the conversation, tool, and id after the repair.
    let mut open: Vec<(String, String, String)> = Vec::new();
    for draft in drafts.iter_mut() {
        let Some(message) = draft.message.take() else { continue };
        let message = match message.role {
            Role::User => answered(draft, message, std::mem::take(&mut open)),
            Role::Assistant => {
                let asked = with_own_ids(draft, message, &mut ids);
                open = asked.1;
                asked.0
            }
        };
        draft.message = Some(message);
    }
    if !open.is_empty() {
        let at = drafts.last().map_or(0, |draft| draft.to);
        let mut draft = Draft { from: at, to: at, message: None, found: Vec::new() };
        let message = Message { role: Role::User, content: Vec::new() };
        draft.message = Some(answered(&mut draft, message, open));
        drafts.push(draft);
    }
}

/// Ids of a conversation's calls.
#[derive(Default)]
struct Ids {
    /// Ids as they came.
    given: HashSet<String>,
    /// Ids given out so far.
    used: HashSet<String>,
    /// Number of calls with each repeated id.
    counts: HashMap<String, u32>,
}

impl Ids {
    /// Returns the id, or a new one when an earlier call already has it.
    fn own(&mut self, id: &str) -> String {
        if self.used.insert(id.to_owned()) {
            return id.to_owned();
        }
        let count = self.counts.entry(id.to_owned()).or_insert(1);
        loop {
            *count += 1;
            let own = format!("{id}-{count}");
            if !self.given.contains(&own) && self.used.insert(own.clone()) {
                return own;
            }
        }
    }
}

fn with_own_ids(
    draft: &mut Draft,
    mut message: Message,
    ids: &mut Ids,
) -> (Message, Vec<(String, String, String)>) {
    let mut open = Vec::new();
    for block in &mut message.content {
        let Block::ToolUse(call) = block else { continue };
        let own = ids.own(&call.id);
        if own != call.id {
            draft.note(Rule::IdsUnique, format!("the second call `{}` becomes `{own}`", call.id));
        }
        let given = std::mem::replace(&mut call.id, own.clone());
        open.push((given, call.name.clone(), own));
    }
    (message, open)
}

/// Returns the user message with one result for each open call: results that answer no call become
/// text, and calls without a result get one.
fn answered(
    draft: &mut Draft,
    message: Message,
    mut open: Vec<(String, String, String)>,
) -> Message {
    let (mut results, mut rest) = (Vec::new(), Vec::new());
    for block in message.content {
        let Block::ToolResult(mut result) = block else {
            rest.push(block);
            continue;
        };
        match open.iter().position(|(given, ..)| *given == result.tool_use_id) {
            Some(at) => {
                let own = open.remove(at).2;
                if own != result.tool_use_id {
                    draft.note(Rule::IdsUnique, format!("its result answers `{own}`"));
                }
                result.tool_use_id = own;
                results.push(Block::ToolResult(result));
            }
            None => {
                let id = &result.tool_use_id;
                let reason = format!("a result that answers no call (`{id}`) is told in words");
                draft.note(Rule::ResultsAsked, reason);
                rest.extend(result_as_text("unknown", result));
            }
        }
    }
    for (_, tool, id) in open {
        draft.note(Rule::CallsAnswered, format!("the call `{id}` of `{tool}` had no result"));
        let content = ResultContent::Text(NO_RESULT.to_owned());
        results.push(Block::ToolResult(ToolResult { tool_use_id: id, content, is_error: true }));
    }
    results.extend(rest);
    Message { role: Role::User, content: results }
}

/// Joins adjacent changed drafts into one repair. An inserted draft, which stands for no message,
/// is joined to the message before it, or after it at the beginning: a repair never has an empty
/// range.
fn gather(drafts: Vec<Draft>) -> Vec<Repair> {
    let mut repairs: Vec<Repair> = Vec::new();
    let mut whole: Option<Draft> = None;
    for draft in drafts {
        let is_changed = !draft.found.is_empty() || draft.from == draft.to;
        if !is_changed {
            whole = Some(draft);
            continue;
        }
        let mut repair =
            Repair { from: draft.from, to: draft.to, with: Vec::new(), found: draft.found };
        if draft.from == draft.to
            && let Some(before) = whole.take()
        {
            repair.from = before.from;
            repair.with.extend(before.message);
        }
        repair.with.extend(draft.message);
        match repairs.last_mut() {
            Some(last) if last.to == repair.from => {
                last.to = repair.to;
                last.with.extend(repair.with);
                last.found.extend(repair.found);
            }
            _ => repairs.push(repair),
        }
        whole = None;
    }
    repairs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::context::testing::{conversation, damaged, refusals, sent, view_of};

    fn decoded(messages: &[Json]) -> Vec<Message> {
        messages.iter().map(|message| message.decode().expect("a message")).collect()
    }

    /// The refusals that a repair answers for: who speaks last is not its matter.
    fn left(messages: &[Json]) -> Vec<String> {
        let mut left = if messages.is_empty() { Vec::new() } else { refusals(messages) };
        left.retain(|refusal| !refusal.starts_with("the last message"));
        left
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_damaged_is_repaired_once(messages in damaged(0..6)) {
            let mut repaired = messages.clone();
            let repairs = repair(&decoded(&messages));
            apply(&mut repaired, &repairs);
            prop_assert_eq!(left(&repaired), Vec::<String>::new());
            prop_assert_eq!(repair(&decoded(&repaired)), Vec::new(), "repaired twice");
            prop_assert_eq!(repairs.is_empty(), repaired == messages);
            prop_assert!(repairs.iter().all(|repair| repair.from < repair.to));
            prop_assert!(repairs.iter().all(|repair| !repair.found.is_empty()));
        }

        #[test]
        fn a_view_is_repaired_by_edits(messages in damaged(0..6)) {
            let mut view = view_of(&messages);
            let edits = repair_with(&mut view);
            prop_assert_eq!(left(&sent(&view)), Vec::<String>::new());
            prop_assert!(repair_with(&mut view).is_empty());
            let mut rebuilt = view_of(&messages);
            for change in &edits {
                rebuilt.apply(&change.edited.edit).expect("applies");
            }
            prop_assert_eq!(sent(&rebuilt), sent(&view));
        }

        #[test]
        fn what_is_sound_is_left_alone(messages in conversation(0..8)) {
            prop_assert_eq!(repair(&decoded(&messages)), Vec::new());
        }
    }

    fn repaired(messages: &[&str]) -> (Vec<String>, Vec<u8>) {
        let parse = |text: &&str| Json::parse((*text).to_owned()).expect("JSON");
        let mut list: Vec<Json> = messages.iter().map(parse).collect();
        let repairs = repair(&decoded(&list));
        apply(&mut list, &repairs);
        let found = repairs.iter().flat_map(|repair| &repair.found);
        let rules = found.map(|invalid| invalid.rule() as u8).collect();
        (list.iter().map(|json| json.as_str().to_owned()).collect(), rules)
    }

    const ASK: &str = r#"{"role":"user","content":"go"}"#;
    const CALL: &str =
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"t","input":{}}]}"#;
    const ANSWER: &str =
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}"#;

    #[test]
    fn a_transcript_that_ends_amid_a_call_is_completed() {
        let (list, rules) = repaired(&[ASK, CALL]);
        assert_eq!((list.len(), rules), (3, vec![4]));
        assert_eq!(&list[..2], [ASK, CALL]);
        assert!(list[2].contains(r#""tool_use_id":"c""#) && list[2].contains("is_error"));
    }

    #[test]
    fn a_result_without_its_call_is_told_in_words() {
        let (list, rules) = repaired(&[ASK, r#"{"role":"assistant","content":"so"}"#, ANSWER]);
        assert_eq!(rules, [5]);
        assert!(list[2].contains("[the result of a call of `unknown`: x]"), "{}", list[2]);
    }

    #[test]
    fn neighbours_of_one_side_are_one_message() {
        let aside = r#"{"role":"user","content":"and more"}"#;
        let (list, rules) = repaired(&[ASK, CALL, aside, ANSWER]);
        assert_eq!(rules, [2]);
        assert!(list[2].starts_with(r#"{"role":"user","content":[{"type":"tool_result""#));
        assert!(list[2].ends_with(r#"{"type":"text","text":"and more"}]}"#));
    }

    #[test]
    fn repeated_ids_become_different_ones_with_their_results() {
        let (list, rules) = repaired(&[ASK, CALL, ANSWER, CALL, ANSWER]);
        assert_eq!(rules, [7, 7]);
        assert_eq!(&list[1..3], [CALL, ANSWER]);
        assert_eq!(list[3], CALL.replace(r#""c""#, r#""c-2""#));
        assert_eq!(list[4], ANSWER.replace(r#""c""#, r#""c-2""#));
    }

    #[test]
    fn the_user_begins() {
        let (list, rules) = repaired(&[CALL, ANSWER]);
        assert_eq!((list.len(), rules), (3, vec![1]));
        assert_eq!(&list[1..], [CALL, ANSWER]);
    }

    #[test]
    fn slots_that_stand_for_nothing_are_repaired_too() {
        let parse = |text: &str| Json::parse(text.to_owned()).expect("JSON");
        let mut view = view_of(&[ASK, CALL, ANSWER, CALL, ANSWER].map(parse));
        let with = vec![parse(ASK), parse(CALL), parse(ANSWER)];
        view.apply(&Edit::Replace { from: 0, to: 3, with }).expect("applies");
        view.apply(&Edit::Replace { from: 0, to: 3, with: vec![parse(ASK), parse(CALL)] })
            .expect("applies");
        assert_eq!(repair_with(&mut view).len(), 1);
        assert_eq!(left(&sent(&view)), Vec::<String>::new());
    }
}
