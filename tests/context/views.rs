//! Views of generated conversations: the rules that every preset must keep in any conversation.

use callsheet::context::layers::pipeline;
use callsheet::context::layers::preset::{Preset, Variant};
use callsheet::context::layers::{Surroundings, Window};
use callsheet::context::view::View;
use callsheet::context::{CompactionTrigger, Edit};
use proptest::prelude::*;

use crate::support::conversations::{Unread, conversation, play};

/// Number of cases: enough to meet every pair of steps in a test that takes seconds.
fn cases() -> ProptestConfig {
    ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() }
}

fn around() -> Surroundings<'static> {
    let window = Window { tokens: 200_000, output: 8_000, overhead: 0 };
    Surroundings::new("t.jsonl", "results", window)
}

/// Returns the edits of the layers that need no model.
fn cheap(view: &View, preset: &Preset) -> Vec<Edit> {
    let changes = pipeline::run_cheap_layers(&mut view.clone(), preset, &around());
    changes.into_iter().map(|change| change.edited.edit).collect()
}

/// Returns the edits of a turn: those of the cheap layers, then the summary that is due or
/// requested.
fn all(view: &View, preset: &Preset, asked: Option<CompactionTrigger>) -> Vec<Edit> {
    let mut view = view.clone();
    let mut edits = cheap(&view, preset);
    for edit in &edits {
        view.apply(edit).expect("applies");
    }
    let asked = asked.map(|trigger| (trigger, None));
    let due = pipeline::summary_due(&view, preset, &around(), asked);
    if let Some((layer, due)) = due {
        let edit = layer.edit(&view, due.from, due.to, "t.jsonl", "what {summary} was {done}");
        // As in a run: a summary that makes nothing shorter is none.
        let before = view.chars();
        view.apply(&edit).expect("applies");
        edits.extend((view.chars() + 200 < before).then_some(edit));
    }
    edits
}

/// A preset whose limits are so low that short conversations meet them.
fn small(preset: Preset) -> Preset {
    let low = serde_json::json!({
        "batch_budget_chars": 3_000, "persist_min_chars": 500, "preview_chars": 100,
        "snip_max_messages": 12, "snip_tail": 5, "threshold": 1_500, "threshold_chars": 6_000,
        "notes_file": "n.md", "idle_minutes": 0, "target_chars": 4_000, "fit_preview_chars": 50,
    });
    let known = preset.constants();
    let low = low.as_object().expect("a table").clone();
    let own = low.into_iter().filter(|(name, _)| known.contains_key(name)).collect();
    preset.with_constants(&own).expect("its constants")
}

/// Presets whose documented rule may clear results of a large batch before the model has read them.
fn unread(preset: &Preset) -> Unread {
    match preset.name.as_str() {
        "off" => Unread::Whole,
        _ => Unread::Shortened,
    }
}

fn presets() -> impl Strategy<Value = Preset> {
    // `adaptive` has properties of its own.
    let names = Preset::NAMES.iter().filter(|name| **name != "adaptive");
    let own = [Preset::four_layer_improved(), Preset::three_layer_as(Variant::Short)];
    let all: Vec<_> = names.map(|name| Preset::named(name).expect("a preset")).chain(own).collect();
    let small = all.clone().into_iter().map(small);
    prop::sample::select(all.into_iter().chain(small).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn cheap_layers_keep_every_property(preset in presets(), said in conversation(0..40)) {
        play(&said, unread(&preset), |view| cheap(view, &preset));
    }

    #[test]
    fn summaries_keep_every_property(preset in presets(), said in conversation(0..40)) {
        let preset = small(preset);
        let mut last = 0;
        play(&said, unread(&preset), |view| {
            // A summary a turn: what is over the limit after one is not read yet.
            let is_first = std::mem::replace(&mut last, view.next_message()) != last;
            if is_first { all(view, &preset, None) } else { cheap(view, &preset) }
        });
    }

    #[test]
    fn refused_requests_keep_every_property(
        preset in presets(),
        said in conversation(0..40),
        refused in prop::collection::vec(prop::bool::weighted(0.2), 100),
    ) {
        let mut last = 0;
        play(&said, unread(&preset), |view| {
            let is_first = std::mem::replace(&mut last, view.next_message()) != last;
            let is_refused = is_first && refused.get(last as usize).copied().unwrap_or_default();
            let asked = is_refused.then_some(CompactionTrigger::Reactive);
            if is_first { all(view, &preset, asked) } else { cheap(view, &preset) }
        });
    }
}
