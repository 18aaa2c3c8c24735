//! Repair: makes a conversation that was cut, damaged or written by others keep the rules.
//!
//! Pure. Each repair names what it changes and what was wrong; nothing that was said is left out
//! but empty texts: a result without its call is told in words, a call without its result is
//! answered. A repaired conversation needs no repair.

use std::collections::{HashMap, HashSet};

use crate::context::Edit;
use crate::context::layers::pipeline;
use crate::context::layers::pipeline::AppliedEdit;
use crate::context::sending::plain::result_as_text;
use crate::context::sending::validity::Invalid;
use crate::context::view::View;
use crate::context::view::rules::{Kind, Rule};
use crate::message::{Block, Json, Message, ResultContent, Role, ToolResult};

/// The layer name under which repairs are recorded.
pub const NAME: &str = "repair";

/// What answers a call that has no result.
const NO_RESULT: &str = "no result: the conversation was interrupted before the call had one";

/// What stands before a conversation that the assistant begins.
const OPENING: &str = "(the beginning of the conversation is missing)";

/// One change: a range of messages, and what stands in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The first message that is changed.
    pub from: usize,
    /// The first message after those.
    pub to: usize,
    /// What stands in their place.
    pub with: Vec<Message>,
    /// What was wrong.
    pub found: Vec<Invalid>,
}

/// The repairs that a conversation needs, in order; none when it keeps the rules. Who speaks last
/// is left alone: a recorded conversation may end with either side.
#[must_use]
pub fn repair(messages: &[Message]) -> Vec<Repair> {
    let mut drafts = alternate(messages);
    pair(&mut drafts);
    gather(drafts)
}

/// Puts the repairs of a conversation in place; messages that need none keep their bytes.
pub fn apply(messages: &mut Vec<Json>, repairs: &[Repair]) {
    for repair in repairs.iter().rev() {
        messages.splice(repair.from..repair.to, repair.with.iter().map(Json::encode));
    }
}

/// Repairs a view; gives the changes that are to be recorded.
pub fn mend(view: &mut View) -> Vec<AppliedEdit> {
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

/// The repairs with their ranges widened to what an edit can name: a slot that stands for no
/// message of its own goes with the one before it.
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

/// A message of the repaired conversation and what it is made of.
#[derive(Debug)]
struct Draft {
    /// The messages that it stands for.
    from: usize,
    to: usize,
    /// Absent when they said nothing.
    message: Option<Message>,
    found: Vec<Invalid>,
}

impl Draft {
    fn note(&mut self, rule: Rule, reason: impl Into<String>) {
        let (message, reason) = (self.from as u64, reason.into());
        self.found.push(Invalid::Message { rule, message, reason });
    }
}

/// Repairs each message by itself, and makes user and assistant take turns from the user on.
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

/// What is left of a message when all that it breaks by itself is repaired.
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

/// Puts the results of a message before the rest; tells whether anything moved.
fn results_first(message: &mut Message) -> bool {
    let is_result = |block: &Block| matches!(block, Block::ToolResult(_));
    let is_sorted = message.content.is_sorted_by_key(|block| !is_result(block));
    message.content.sort_by_key(|block| !is_result(block));
    !is_sorted
}

/// The result without its empty blocks.
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

/// Gives every call one result in the next message and an id of its own.
fn pair(drafts: &mut Vec<Draft>) {
    let calls = drafts.iter().flat_map(|draft| &draft.message).flat_map(Message::tool_calls);
    let given = calls.map(|call| call.id.clone()).collect();
    let mut ids = Ids { given, ..Ids::default() };
    // Each call of the message before: its id, its tool, and the id that it has from now on.
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

/// The ids of a conversation's calls.
#[derive(Default)]
struct Ids {
    /// As they came.
    given: HashSet<String>,
    /// As they are from now on.
    used: HashSet<String>,
    /// How many calls had each id that was repeated.
    counts: HashMap<String, u32>,
}

impl Ids {
    /// The id as it is, or another one when a call before has it already.
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

/// The user message with one result for each open call: those that answer none are told in words,
/// and calls without a result get one.
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

/// Joins what was changed side by side to one repair. What was only put in between belongs to the
/// message before it, or after it at the beginning: a repair always stands for something.
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
            let edits = mend(&mut view);
            prop_assert_eq!(left(&sent(&view)), Vec::<String>::new());
            prop_assert!(mend(&mut view).is_empty());
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
        assert_eq!(mend(&mut view).len(), 1);
        assert_eq!(left(&sent(&view)), Vec::<String>::new());
    }
}
