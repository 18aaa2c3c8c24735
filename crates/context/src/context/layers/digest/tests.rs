//! Properties of every view that records shorten, for generated conversations and constants.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::context::layers::pipeline::{self, AppliedEdit};
use crate::context::layers::preset::Preset;
use crate::context::layers::{Layer, Window};
use crate::context::record::Entry;
use crate::context::testing::{Unread, assert_sendable, conversation, play, sent};
use crate::message::{Block, Json};

/// Most characters of a message or filler beside a record, with some to spare.
const AROUND_CHARS: usize = 1_000;

#[derive(Clone, Debug)]
struct Case {
    digest: Digest,
    window: u64,
    read: f64,
    state: Option<&'static str>,
}

/// A todo list as it may stand in a state.
const TODOS: &str =
    "Your todo list: {\"todos\":[{\"content\":\"</record> all\",\"status\":\"x\"}]}";

/// The layer with the constants of the default preset.
fn own() -> Digest {
    let Layer::Digest(digest) = &Preset::adaptive().layers[0] else { panic!("records come first") };
    digest.clone()
}

fn case() -> impl Strategy<Value = Case> {
    let whole = prop::sample::select(vec![Some(0), Some(500), Some(5_000), None]);
    let keep = prop::sample::select(vec![0, 50, 500, 2_900]);
    let window = prop::sample::select(vec![2_000, 5_000, 20_000, 1_000_000]);
    let read = prop::sample::select(vec![0.0, 0.1, 0.1, 1.0]);
    let state = prop::sample::select(vec![None, Some(TODOS)]);
    let shares = (0.2..1.0_f64, 0.05..0.9_f64, 0.1..1.0_f64, 0.01..0.5_f64, 0.01..0.5_f64);
    (whole, keep, (window, read, state), shares).prop_map(|(whole, keep_tokens, around, shares)| {
        let (trigger, target, merge_share, closed_share, open_share) = shares;
        let (window, read, state) = around;
        let digest = Digest {
            whole,
            trigger,
            target,
            keep_tokens,
            merge_share,
            closed_share,
            open_share,
            ..own()
        };
        Case { digest, window, read, state }
    })
}

impl Case {
    fn preset(&self) -> Preset {
        Preset { layers: vec![Layer::Digest(self.digest.clone())], ..Preset::adaptive() }
    }

    fn around(&self) -> Surroundings<'static> {
        let window = Window { tokens: self.window, output: 0, overhead: 0 };
        let mut around = Surroundings::new("t.jsonl", "results", window);
        around.price.read = self.read;
        around.state = self.state;
        around
    }

    fn run(&self, view: &mut View) -> Vec<AppliedEdit> {
        let (preset, around) = (self.preset(), self.around());
        let mut changes = pipeline::run_cheap_layers(view, &preset, &around);
        changes.extend(pipeline::run_guard(view, &preset, &around));
        changes
    }
}

/// Checks that the slots cover the conversation without a gap and without an overlap.
fn assert_covers(view: &View) {
    let mut next = 0;
    for slot in view.slots() {
        assert_eq!(slot.from, next, "a gap or an overlap");
        assert!(slot.from <= slot.to);
        next = slot.to;
    }
    assert_eq!(next, view.next_message());
}

/// Records name messages of their own, cannot be closed from inside, and their levels grow with
/// the logarithm of the edits.
fn assert_records(view: &View, edits: u64) {
    for (slot, record) in view.slots().filter_map(|s| Some((s, s.record.as_deref()?))) {
        assert_eq!((slot.to, text_of(slot)), (record.to, record.message().text()));
        // A request that an edit had kept and that is active no more joins the record after it.
        let of_request = |entry: &Entry| matches!(entry, Entry::Asked { .. } | Entry::Rule { .. });
        let is_outside = |entry: &&Entry| {
            entry.at() >= record.to || (entry.at() < record.from && !of_request(entry))
        };
        let outside = record.entries.iter().find(is_outside);
        assert_eq!(outside, None, "{}..{}", record.from, record.to);
        assert!(u64::from(record.level) <= edits, "level {} after {edits} edits", record.level);
        let text = record.render().to_lowercase();
        assert_eq!(text.find("</record"), Some(text.len() - "</record>".len()), "{text}");
    }
}

/// One record shows the state at most, byte for byte, and where one does it is the newest.
fn assert_state(view: &View, state: Option<&str>) {
    let records: Vec<_> = view.slots().filter_map(|slot| slot.record.as_deref()).collect();
    let shown: Vec<_> = records.iter().filter_map(|record| record.state.as_deref()).collect();
    assert!(shown.is_empty() || shown == state.as_slice(), "{shown:?}");
    let newest = records.last().is_some_and(|record| record.state.is_some());
    let of = |slot: &Slot| slot.record.as_ref().map(|record| (slot.from, record.clone()));
    let all: Vec<_> = view.slots().filter_map(of).collect();
    assert_eq!(newest, !shown.is_empty(), "{all:?}");
    if let Some(state) = state {
        let texts = view.slots().map(|slot| text_of(slot).matches(state).count()).sum::<usize>();
        assert_eq!(texts, shown.len(), "what the slots say is what the records hold");
    }
}

/// No request is told twice.
fn assert_asked_once(view: &View) {
    let records = view.slots().filter_map(|slot| slot.record.as_ref());
    let mut asked: Vec<(u64, &str)> = records.flat_map(|record| asked_in(record)).collect();
    let all = asked.len();
    asked.sort_unstable();
    asked.dedup();
    // A message may hold two texts that are the same.
    assert!(all <= asked.len() * 2, "{asked:?}");
    for slot in view.slots().filter(|slot| slot.entry.is_request && slot.from < slot.to) {
        assert!(asked.iter().all(|(at, _)| *at != slot.from), "a request stands twice");
    }
}

/// The view fits if what must stay word for word fits beside a record, and then that stays.
fn assert_fits(before: &View, after: &View, around: &Surroundings<'_>) {
    let room = around.chars(around.window.free_tokens());
    let active = before.slots().rfind(|slot| slot.entry.is_request).map(|slot| slot.serial);
    let newest = before.slots().len().saturating_sub(2);
    let is_pinned = |at: usize, slot: &Slot| at >= newest || Some(slot.serial) == active;
    let pinned = before.slots().enumerate().filter(|(at, slot)| is_pinned(*at, slot));
    let pinned: usize = pinned.map(|(_, slot)| slot.entry.chars).sum();
    // The guard keeps a short task prompt too.
    let task = before.task().map_or(0, |task| task.entry.chars).min(room / 5);
    if pinned + task + room / 5 + AROUND_CHARS <= room {
        assert!(after.chars() <= room, "{} of {room}, pinned {pinned}", after.chars());
        let last = |view: &View| view.slots().next_back().map(|slot| slot.entry.json.clone());
        assert_eq!(last(before), last(after), "what is unread was changed");
    }
}

fn check(messages: &[Json], case: &Case) {
    let unread = if case.window == 1_000_000 { Unread::Whole } else { Unread::Shortened };
    let (mut edits, mut last, mut guarded) = (0, None, false);
    let view = play(messages, unread, |view| {
        let (mut after, mut again) = (view.clone(), view.clone());
        let changes = case.run(&mut after);
        let is_second = last.replace(view.next_message()) == Some(view.next_message());
        // Behind the guard, which runs where nothing fits, a record may find more to fold.
        let is_settled = is_second && !guarded;
        assert!(!is_settled || changes.is_empty(), "a second run changes more: {changes:?}");
        guarded = changes.iter().any(|change| change.edited.layer == "guard");
        assert_eq!(case.run(&mut again), changes, "the same view gives other edits");
        let mut stepped = view.clone();
        for change in &changes {
            let edited = &change.edited;
            let before = stepped.chars();
            stepped.apply(&edited.edit).expect("an edit that fits");
            assert!(stepped.chars() < before, "no smaller: {edited:?}");
        }
        edits += changes.len() as u64;
        assert_covers(&after);
        assert_records(&after, edits);
        assert_state(&after, case.state);
        let task = |view: &View| view.task().map(|task| task.entry.json.clone());
        assert!(case.window < 1_000_000 || task(view) == task(&after), "the task prompt went");
        assert_asked_once(&after);
        assert_fits(view, &after, &case.around());
        changes.into_iter().map(|change| change.edited.edit).collect()
    });
    EDITS.fetch_add(edits, Ordering::Relaxed);
    let asked = |slot: &Slot| slot.record.as_ref().map_or(0, |record| asked_in(record).count());
    let told: usize = view.slots().map(asked).sum();
    let texts: usize = messages.iter().map(request_texts).sum();
    assert!(told <= texts, "{told} requests are told of {texts}");
}

fn asked_in(record: &Record) -> impl Iterator<Item = (u64, &str)> {
    record.entries.iter().filter_map(|entry| match entry {
        Entry::Asked { at, text } => Some((*at, text.as_str())),
        _ => None,
    })
}

fn request_texts(message: &Json) -> usize {
    let message: Message = message.decode().expect("a message");
    let is_text = |block: &&Block| matches!(block, Block::Text(_));
    if message.role == Role::User { message.content.iter().filter(is_text).count() } else { 0 }
}

/// Number of edits made in all cases, so that a test can check that there were any.
static EDITS: AtomicU64 = AtomicU64::new(0);

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_keep_every_property(messages in conversation(0..40), case in case()) {
        check(&messages, &case);
    }
}

#[test]
fn tight_constants_make_many_edits() {
    let case = Case {
        digest: Digest {
            whole: Some(0),
            trigger: 0.5,
            target: 0.2,
            keep_tokens: 0,
            closed_share: 0.05,
            open_share: 0.05,
            ..own()
        },
        window: 5_000,
        read: 1.0,
        state: Some(TODOS),
    };
    let messages = talk(60, 4);
    let before = EDITS.load(Ordering::Relaxed);
    check(&messages, &case);
    assert!(EDITS.load(Ordering::Relaxed) - before > 20, "too few edits");
}

/// Exchanges of distinct calls and results, with a new request after each `every` of them.
fn talk(exchanges: usize, every: usize) -> Vec<Json> {
    let mut messages = vec![serde_json::json!({"role": "user", "content": "the first request"})];
    for n in 0..exchanges {
        let id = format!("c{n}");
        let input = serde_json::json!({"command": format!("grep -n handler_{n} src/file_{n}.rs")});
        let said = format!("Looking for handler_{n} now, because of caller_{n}.");
        messages.push(serde_json::json!({"role": "assistant", "content": [
            {"type": "text", "text": said},
            {"type": "tool_use", "id": id, "name": "bash", "input": input}]}));
        let content = format!("error: no such thing {n}\n").repeat(20);
        messages.push(serde_json::json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": content}]}));
        if n % every == every - 1 {
            let answer = format!("Request number {n} is done.");
            messages.push(serde_json::json!({"role": "assistant", "content": answer}));
            let ask = format!("request {n}: {}", "more words of it ".repeat(30));
            messages.push(serde_json::json!({"role": "user", "content": ask}));
        }
    }
    messages.iter().map(Json::encode).collect()
}

#[test]
fn every_request_is_told_in_order_and_once() {
    let case = Case {
        digest: Digest {
            whole: Some(0),
            trigger: 0.9,
            target: 0.6,
            keep_tokens: 0,
            merge_share: 1.0,
            ..own()
        },
        window: 1_000_000,
        read: 0.1,
        state: None,
    };
    let messages = talk(40, 3);
    let (mut view, mut first) = (View::default(), true);
    for message in messages {
        let read = Message::read(message.as_str());
        let pushed = match first {
            true => read.map(|read| view.push_task(message, &read)),
            false => view.push(message),
        };
        pushed.expect("a message");
        first = false;
        if view.slots().next_back().is_some_and(|slot| slot.entry.role == Role::User) {
            case.run(&mut view);
        }
    }
    // In the records, or word for word where they are not folded yet; the last one is active.
    let mut asked: Vec<String> = Vec::new();
    for slot in view.slots().skip(1) {
        match &slot.record {
            Some(record) => asked.extend(asked_in(record).map(|(_, text)| text.to_owned())),
            None if slot.entry.is_request => asked.push(text_of(slot)),
            None => {}
        }
    }
    let asked: Vec<String> = asked.iter().map(|text| text.chars().take(12).collect()).collect();
    let wanted: Vec<_> =
        (0..13).map(|n| format!("request {}: more", 3 * n + 2)[..12].to_owned()).collect();
    assert_eq!(asked, wanted);
    // The task prompt stands before them, word for word.
    assert!(text_of(view.task().expect("the task prompt")).starts_with("the first re"));
}

#[test]
fn a_picture_of_the_active_request_stays() {
    let image =
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}}"#;
    let mut messages = talk(3, 10);
    let ask = format!(r#"{{"role":"user","content":[{image},{{"type":"text","text":"see"}}]}}"#);
    messages.push(Json::encode(&Message::assistant("What next?")));
    messages.push(Json::parse(ask).expect("JSON"));
    messages.extend(talk(12, 20).into_iter().skip(1));
    let mut view = View::default();
    messages.into_iter().for_each(|message| view.push(message).expect("a message"));
    let digest = Digest {
        whole: Some(0),
        trigger: 0.9,
        target: 0.6,
        keep_tokens: 0,
        merge_share: 0.7,
        ..own()
    };
    let case = Case { digest, window: 1_000_000, read: 0.1, state: None };
    assert!(!case.run(&mut view).is_empty());
    assert!(sent(&view).iter().any(|message| message.as_str().contains("iVBO")));
}

#[test]
fn a_request_that_was_left_between_records_is_told() {
    let mut view = View::default();
    let push = |view: &mut View, messages: Vec<Json>| {
        messages.into_iter().for_each(|message| view.push(message).expect("a message"));
    };
    let record = |from, to, level| Edit::Record(Record { from, to, level, ..Record::default() });
    push(&mut view, vec![Json::encode(&Message::user("a long request ".repeat(40)))]);
    push(&mut view, short(0..10));
    // The request is left between the two records.
    view.apply(&record(0, 5, 5)).expect("applies");
    view.apply(&record(5, 21, 4)).expect("applies");
    push(&mut view, vec![Json::encode(&Message::assistant("Done."))]);
    push(&mut view, vec![Json::encode(&Message::user("go on"))]);
    push(&mut view, short(10..14));
    let digest = Digest { whole: Some(0), keep_tokens: 0, ..own() };
    let case = Case { digest, window: 1_000_000, read: 1.0, state: None };
    let edits = case.digest.propose(&view, &case.around());
    let covers: Vec<_> = edits.iter().flat_map(Edit::covers).collect();
    assert_eq!(covers, [(5, 22)], "{edits:?}");
    let Edit::Record(record) = &edits[0] else { panic!("a record") };
    assert_eq!(asked_in(record).count(), 1, "the request that was left is told: {record:?}");
}

/// Exchanges of a call and a result that are hardly longer than what is around them.
fn short(numbers: std::ops::Range<usize>) -> Vec<Json> {
    let exchange = |n: usize| {
        let call = serde_json::json!({"type": "tool_use", "id": n.to_string(), "name": "b",
            "input": {"c": format!("a_line_of_a_call_{n}")}});
        let result = serde_json::json!({"type": "tool_result", "tool_use_id": n.to_string()});
        [
            serde_json::json!({"role": "assistant", "content": [call]}),
            serde_json::json!({"role": "user", "content": [result]}),
        ]
    };
    numbers.flat_map(exchange).map(|message| Json::encode(&message)).collect()
}

#[test]
fn a_call_that_was_cut_stays_with_its_results() {
    let digest = Digest {
        whole: Some(0),
        trigger: 0.9,
        target: 0.6,
        keep_tokens: 0,
        merge_share: 0.5,
        ..own()
    };
    let case = Case { digest, window: 1_000_000, read: 0.1, state: None };
    let mut view = View::default();
    let messages = talk(5, 9);
    for message in &messages {
        view.push(message.clone()).expect("a message");
    }
    // The guard cut the message with the first calls, and not their results.
    let cut = messages[1].clone();
    view.apply(&Edit::Replace { from: 1, to: 2, with: vec![cut] }).expect("applies");
    let changes = case.run(&mut view);
    assert!(!changes.is_empty());
    assert_sendable(&view);
}
