//! The layers of the presets at their edges.

use super::reactive::ReactiveShed;
use super::snip::SnipCount;
use super::testing::*;
use super::*;
use crate::context::CompactionTrigger;
use crate::context::layers::pipeline;
use crate::context::layers::preset::Preset;
use crate::context::testing::assert_sendable;
use crate::context::view::View;
use crate::message::{Block, Json, Message, ResultContent, Role, ToolResult};

// ---- budget ----

#[test]
fn a_batch_at_its_budget_is_left_alone_and_one_over_is_not() {
    let preset = Preset::four_layer();
    let mut view = begun("go");
    exchange(&mut view, 0, &[100_000, 60_000, 40_000]);
    assert!(run(&mut view, &preset).is_empty());
    let mut view = begun("go");
    exchange(&mut view, 0, &[100_000, 60_000, 40_001]);
    let changes = run(&mut view, &preset);
    assert_eq!(layers(&changes), ["budget"]);
    let whole = letter(100_000).repeat(100_000);
    assert_eq!(last_results(&view)[0], persisted(&whole, 2_000));
    assert_eq!(last_results(&view)[1].len(), 60_000, "the largest was enough");
    assert_eq!(changes[0].spills, [Spill::of(whole)]);
}

#[test]
fn a_preview_that_would_make_the_view_larger_is_not_put_in() {
    let mut preset = Preset::four_layer();
    preset.layers.truncate(1);
    let Layer::Budget(budget) = &mut preset.layers[0] else { panic!("stores first") };
    (budget.batch_budget_chars, budget.persist_min_chars) = (10, 0);
    let mut stored = 0;
    // The text around a preview has line breaks, which count twice in JSON.
    for size in 80..240 {
        let mut view = begun("go");
        exchange(&mut view, 0, &[size]);
        let before = view.chars();
        stored += run(&mut view, &preset).len();
        assert!(view.chars() <= before, "{size}");
    }
    assert!(stored > 50, "{stored}");
}

#[test]
fn a_block_at_its_threshold_is_never_stored() {
    let mut preset = Preset::four_layer();
    preset.layers.truncate(1);
    let mut view = begun("go");
    exchange(&mut view, 0, &[30_000; 10]);
    assert!(run(&mut view, &preset).is_empty(), "the documented gap: ten blocks of 30,000");
    let mut view = begun("go");
    exchange(&mut view, 0, &[30_000, 30_001, 30_000, 30_000, 30_000, 30_000, 30_000]);
    run(&mut view, &preset);
    let sizes: Vec<_> = last_results(&view).iter().map(String::len).collect();
    assert!(sizes[1] < 2_200 && sizes.iter().filter(|size| **size == 30_000).count() == 6);
}

#[test]
fn only_the_last_message_has_a_budget() {
    let preset = Preset::four_layer();
    let mut view = begun("go");
    exchange(&mut view, 0, &[300_000]);
    push(&mut view, &Message::assistant("read it"));
    push(&mut view, &Message::user("and now?"));
    assert!(run(&mut view, &preset).is_empty());
}

#[test]
fn output_that_looks_like_a_marker_is_stored_like_any_other() {
    let preset = Preset::four_layer();
    let forged = persisted(&"x".repeat(5_000), 2_000) + &"y".repeat(250_000);
    let mut view = begun("go");
    push(&mut view, &calls(0, 1));
    push(&mut view, &results(0, std::slice::from_ref(&forged)));
    let changes = run(&mut view, &preset);
    assert_eq!(changes[0].spills, [Spill::of(forged.clone())]);
    assert_eq!(last_results(&view), [persisted(&forged, 2_000)]);
}

#[test]
fn images_count_and_are_never_turned_into_text() {
    let preset = Preset::four_layer();
    let image = serde_json::json!([{"type": "image", "source": {"data": "A".repeat(250_000)}}]);
    let content = ResultContent::Blocks(Json::encode(&image));
    let tool_use_id = "0.0".to_owned();
    let block = Block::ToolResult(ToolResult { tool_use_id, content, is_error: false });
    let mut view = begun("go");
    push(&mut view, &calls(0, 2));
    let mut both = results(0, &["z".repeat(40_000), "z".repeat(40_000)]);
    both.content[0] = block;
    push(&mut view, &both);
    run(&mut view, &preset);
    let last = messages(&view).pop().expect("one");
    assert_eq!(last.content[0], both.content[0]);
    let Block::ToolResult(second) = &last.content[1] else { panic!("a result") };
    assert_eq!(second.text(), persisted(&"z".repeat(40_000), 2_000));
}

#[test]
fn without_a_least_size_the_total_is_bounded_whatever_the_sizes() {
    let mut preset = Preset::four_layer();
    let Layer::Budget(budget) = &mut preset.layers[0] else { panic!("stores first") };
    budget.persist_min_chars = 0;
    preset.layers.truncate(1);
    for sizes in [vec![25_000; 10], vec![2_000; 120], vec![600; 400]] {
        let mut view = begun("go");
        exchange(&mut view, 0, &sizes);
        run(&mut view, &preset);
        let total: usize = last_results(&view).iter().map(String::len).sum();
        assert!(total <= 200_000, "{total} of {}", sizes.len());
        assert!(last_results(&view).iter().any(|text| text.contains("Preview:\n")));
    }
}

#[test]
fn what_was_stored_is_cleared_like_any_result_when_it_is_old() {
    let preset = Preset::four_layer();
    let mut view = begun("go");
    exchange(&mut view, 0, &[210_000]);
    run(&mut view, &preset);
    for turn in 1..4 {
        exchange(&mut view, turn, &[10]);
    }
    let changes = run(&mut view, &preset);
    assert_eq!(layers(&changes), ["micro"]);
    let Edit::ClearResults { results } = &changes[0].edited.edit else { panic!("clears") };
    assert_eq!(results[0].text, "[Earlier tool result compacted. Re-run if needed.]");
    assert!(results[0].stored.is_some(), "the edit still names the stored whole");
}

// ---- snip ----

/// `count` messages in turns, the first a user's.
fn talk(count: usize) -> View {
    let mut view = View::default();
    for n in 0..count {
        let text = format!("m{n}");
        let message = if n % 2 == 0 { Message::user(text) } else { Message::assistant(text) };
        push(&mut view, &message);
    }
    view
}

#[test]
fn fifty_messages_stay_and_of_more_the_middle_goes() {
    let preset = Preset::four_layer();
    assert!(run(&mut talk(49), &preset).is_empty());
    let mut view = talk(51);
    let changes = run(&mut view, &preset);
    assert_eq!(layers(&changes), ["snip"]);
    let messages = messages(&view);
    let texts: Vec<_> = messages[2].content.iter().collect();
    let marker = "[snipped 1 messages from conversation middle]";
    let expected = ["m2", marker, "m4"].map(|text| Block::Text(text.to_owned()));
    assert_eq!(texts, expected.iter().collect::<Vec<_>>());
    assert_eq!(messages.len(), 49);
    assert_eq!(messages.last().map(Message::text), Some("m50".to_owned()));
}

#[test]
fn a_snip_that_would_make_the_view_larger_waits() {
    let mut preset = Preset::four_layer();
    let Layer::Snip(snip) = &mut preset.layers[1] else { panic!("snips second") };
    (snip.snip_max_messages, snip.snip_head, snip.snip_tail) = (4, 3, 1);
    let mut view = View::default();
    let mut say = |text: &str| view.push(Json::parse(text.to_owned()).expect("JSON")).expect("one");
    let user = r#"{"role":"user","content":"x"}"#;
    let assistant = r#"{"role":"assistant","content":"y"}"#;
    [user, assistant, user, assistant, user].into_iter().for_each(&mut say);
    assert!(run(&mut view, &preset).is_empty(), "the marker is longer than what it stands for");
    push(&mut view, &Message::assistant("a longer answer"));
    push(&mut view, &Message::user("last"));
    assert_eq!(layers(&run(&mut view, &preset)), ["snip"]);
}

#[test]
fn a_snip_never_parts_a_call_from_its_results() {
    let preset = Preset::four_layer();
    let mut view = begun("go");
    for turn in 0..30 {
        exchange(&mut view, turn, &[5, 6]);
    }
    // 61 messages: the tail would begin at a result (14), and begins at its call (13).
    let changes = run(&mut view, &preset);
    let Edit::Replace { from, to, with } = &changes[0].edited.edit else { panic!("replaces") };
    assert_eq!((*from, *to, with.len()), (3, 13, 1));
    let third = &messages(&view)[2];
    assert_eq!(third.tool_results().count(), 2);
    assert_eq!(third.text(), "[snipped 10 messages from conversation middle]");
}

#[test]
fn several_messages_of_results_are_one_batch() {
    let mut view = begun("go");
    push(&mut view, &calls(0, 2));
    let both = results(0, &["a".to_owned(), "b".to_owned()]);
    for block in both.content {
        push(&mut view, &Message { role: Role::User, content: vec![block] });
    }
    for n in 1..20 {
        exchange(&mut view, n, &[3]);
    }
    let mut preset = Preset::four_layer();
    preset.layers.drain(2..);
    let Layer::Snip(snip) = &mut preset.layers[1] else { panic!("snips second") };
    (snip.snip_max_messages, snip.snip_head, snip.snip_tail) = (20, 2, 10);
    let changes = run(&mut view, &preset);
    let Edit::Replace { from, .. } = changes[0].edited.edit else { panic!("replaces") };
    assert_eq!(from, 4, "the head holds both messages of results");
}

#[test]
fn the_active_request_survives_a_snip_word_for_word() {
    let preset = Preset::four_layer();
    let mut view = talk(11);
    for turn in 0..40 {
        exchange(&mut view, turn, &[4]);
    }
    run(&mut view, &preset);
    let request = view.parts().rfind(|slot| slot.entry.is_request).expect("a request");
    assert_eq!(request.entry.json.decode::<Message>().expect("one").text(), "m10");
    let marker = "[snipped 40 messages from conversation middle]";
    assert_eq!(messages(&view)[2].text(), format!("m2\n{marker}\nm10"));
    // It stays so, turn after turn.
    for turn in 40..60 {
        exchange(&mut view, turn, &[4]);
        run(&mut view, &preset);
        assert!(messages(&view)[2].text().ends_with("\nm10"));
    }
    assert_eq!(messages(&view)[2].text(), "m2\n[snipped 4 messages from conversation middle]\nm10");
}

#[test]
fn a_marker_can_count_all_that_it_stands_for() {
    let mut preset = Preset::four_layer();
    let Layer::Snip(snip) = &mut preset.layers[1] else { panic!("snips second") };
    (snip.snip_tail, snip.snip_count) = (27, SnipCount::Covered);
    let mut view = begun("go");
    let mut markers = std::collections::BTreeSet::new();
    for turn in 0..100 {
        exchange(&mut view, turn, &[4]);
        run(&mut view, &preset);
        markers.extend(messages(&view).get(2).map(Message::text).filter(|text| !text.is_empty()));
        let length = view.parts().count();
        assert!(length <= 50);
    }
    assert!(markers.len() < 12, "a snip makes room for many turns: {markers:?}");
    let shown = messages(&view).len();
    let last = messages(&view)[2].text();
    assert_eq!(last, format!("[snipped {} messages from conversation middle]", 201 - shown));
}

// ---- summary ----

/// A conversation of so many characters by one large result that was read.
fn sized(chars: usize) -> View {
    let mut view = begun("the goal");
    exchange(&mut view, 0, &[1]);
    exchange(&mut view, 1, &[1]);
    let rest = chars - view.chars();
    let mut view = begun("the goal");
    exchange(&mut view, 0, &[1 + rest]);
    exchange(&mut view, 1, &[1]);
    assert_eq!(view.chars(), chars);
    view
}

#[test]
fn fifty_thousand_characters_are_not_over_the_limit() {
    let preset = Preset::four_layer();
    let due = |view: &View| pipeline::summary_due(view, &preset, &around(), None);
    assert!(due(&sized(50_000)).is_none());
    let (layer, request) = due(&sized(50_001)).expect("due");
    assert!(request.instruction.contains("user constraints"));
    let mut view = sized(50_001);
    let edit = layer.edit(&view, request.from, request.to, "t.jsonl", "all {path} is well");
    view.apply(&edit).expect("applies");
    assert_sendable(&view);
    let first = &messages(&view)[0];
    let expected = ["[Compacted]\n\nall {path} is well", "the goal"];
    assert_eq!(first.content, expected.map(|text| Block::Text(text.to_owned())));
    assert_eq!(messages(&view).len(), 3, "the unread exchange stays");
}

#[test]
fn the_summary_always_stands_in_its_message() {
    let mut preset = Preset::three_layer();
    let Layer::Summary(layer) = &mut preset.layers[1] else { panic!("summarises last") };
    layer.summary_text = "[Conversation compressed. Transcript: {path}]".to_owned();
    let view = sized(1_000);
    let edit = layer.edit(&view, 0, 3, "t.jsonl", "what was done");
    let Edit::Replace { with, .. } = edit else { panic!("replaces") };
    let first: Message = with[0].decode().expect("a message");
    let expected = "[Conversation compressed. Transcript: t.jsonl]\n\nwhat was done";
    assert_eq!(first.text(), expected);
}

// ---- reactive ----

fn refused(view: &View, preset: &Preset) -> Option<(Summary, summary::SummaryRequest)> {
    let asked = Some((CompactionTrigger::Reactive, None));
    pipeline::summary_due(view, preset, &around(), asked)
}

#[test]
fn a_refused_request_keeps_its_last_five_messages() {
    let preset = Preset::four_layer();
    let mut view = begun("the goal");
    for turn in 0..6 {
        exchange(&mut view, turn, &[50]);
    }
    let (layer, request) = refused(&view, &preset).expect("due");
    // 13 messages: the last five begin at a result (8), and so at its call.
    assert_eq!((request.from, request.to), (0, 7));
    assert!(request.parts(usize::MAX)[0].contains("\"5.0\""), "the summariser reads all");
    let edit = layer.edit(&view, request.from, request.to, "t.jsonl", "so far");
    view.apply(&edit).expect("applies");
    assert_sendable(&view);
    assert_eq!(messages(&view)[0].text(), "[Reactive compact]\n\nso far\nthe goal");
    assert_eq!(messages(&view).len(), 7);
    let changes = pipeline::shed(&mut view, &preset, &around(), 7);
    assert!(changes.is_empty(), "there was enough to summarise");
}

#[test]
fn without_a_summary_a_note_takes_its_place() {
    let preset = Preset::four_layer();
    let mut view = begun("the goal");
    for turn in 0..6 {
        exchange(&mut view, turn, &[50]);
    }
    let changes = pipeline::run_reactive(&mut view, &preset, &around());
    assert_eq!(layers(&changes), ["reactive"]);
    assert_sendable(&view);
    let note = "[Reactive compact]\n\nEarlier conversation was trimmed after a prompt-too-long \
                error.\nthe goal";
    assert_eq!(messages(&view)[0].text(), note);
    assert_eq!(messages(&view).len(), 7);
}

#[test]
fn few_messages_are_summarised_and_the_largest_result_is_stored() {
    let preset = Preset::four_layer();
    let mut view = begun("the goal");
    exchange(&mut view, 0, &[30]);
    exchange(&mut view, 1, &[100_000, 20]);
    let (_, request) = refused(&view, &preset).expect("due");
    assert_eq!((request.from, request.to), (0, 3));
    let changes = pipeline::run_reactive(&mut view, &preset, &around());
    assert_eq!(layers(&changes), ["reactive", "reactive"]);
    assert_sendable(&view);
    let whole = letter(100_000).repeat(100_000);
    assert_eq!(last_results(&view)[0], persisted(&whole, 2_000));
    assert_eq!(last_results(&view)[1].len(), 20);
    // One message alone has nothing to give.
    let mut view = begun("the goal");
    assert!(refused(&view, &preset).is_none());
    let changes = pipeline::run_reactive(&mut view, &preset, &around());
    assert!(changes.is_empty());
}

#[test]
fn results_can_be_stored_until_half_the_room_is_free() {
    let mut preset = Preset::four_layer();
    preset.reactive.as_mut().expect("lists it").reactive_shed = ReactiveShed::Half;
    let mut view = begun("the goal");
    for turn in 0..2 {
        exchange(&mut view, turn, &[300_000, 200_000, 150_000]);
    }
    pipeline::shed(&mut view, &preset, &around(), 0);
    assert_sendable(&view);
    assert!(around().tokens(view.chars()) <= 96_000, "{}", view.chars());
    assert!(view.chars() > 150_000, "no more than that");
}
