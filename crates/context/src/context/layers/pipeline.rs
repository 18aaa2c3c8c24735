//! The pipeline: decides which layers run before the next model call, and applies their edits.
//!
//! Pure. It applies the edits to the view that it is given and returns them; the agent records them
//! before the view is sent.

use crate::context::layers::guard::{self, Reach};
use crate::context::layers::preset::Preset;
use crate::context::layers::summary::{Summary, SummaryRequest, Urgency};
use crate::context::layers::{Layer, Proposal, Spill, Surroundings, reactive, snip, window};
use crate::context::view::View;
use crate::context::{CompactionTrigger, ContextEdited};

/// An edit that was applied to the view and must still be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct AppliedEdit {
    /// Payload of the event that records it.
    pub edited: ContextEdited,
    /// Texts that must be stored before it is recorded.
    pub spills: Vec<Spill>,
}

/// Runs the layers of `preset` that need no model, in order; returns their edits.
pub fn run_cheap_layers(
    view: &mut View,
    preset: &Preset,
    around: &Surroundings<'_>,
) -> Vec<AppliedEdit> {
    let mut changes = Vec::new();
    for layer in &preset.layers {
        let proposals = layer.propose(view, around);
        if !proposals.is_empty() {
            changes.extend(apply_unless_larger(view, layer.name(), proposals));
        }
    }
    changes
}

/// Applies the proposals of a layer, all or none. A marker or a preview may be longer than the few
/// words that it replaces; the view then stays as it is.
fn apply_unless_larger(view: &mut View, layer: &str, proposals: Vec<Proposal>) -> Vec<AppliedEdit> {
    let mut after = view.clone();
    let changes = proposals.into_iter().filter_map(|one| apply(&mut after, layer, one)).collect();
    if after.chars() > view.chars() {
        return Vec::new();
    }
    *view = after;
    changes
}

/// Drops the middle of the view, as the model asked: `keep` of the newest messages stay. Returns
/// the edits.
pub fn run_snip(
    view: &mut View,
    preset: &Preset,
    around: &Surroundings<'_>,
    keep: usize,
) -> Vec<AppliedEdit> {
    let edit = preset.snip().and_then(|snip| snip.cut(view, around, keep.max(1)));
    edit.map_or_else(Vec::new, |edit| apply_unless_larger(view, snip::NAME, vec![edit.into()]))
}

/// Makes the view fit its window, whatever it holds; returns the edits.
pub fn run_guard(view: &mut View, preset: &Preset, around: &Surroundings<'_>) -> Vec<AppliedEdit> {
    shrink(view, preset, around, around.window.free_tokens(), Reach::All)
}

/// Makes the view fit this many tokens without a model, as far as `reach` allows; returns the
/// edits.
pub fn shrink(
    view: &mut View,
    preset: &Preset,
    around: &Surroundings<'_>,
    tokens: u64,
    reach: Reach,
) -> Vec<AppliedEdit> {
    if !preset.guard {
        return Vec::new();
    }
    let edits = guard::make_fit(view, around, tokens, reach);
    edits.into_iter().map(|edited| AppliedEdit { edited, spills: Vec::new() }).collect()
}

/// Applies a proposal of the layer of that name; `None` when the view refuses it.
pub fn apply(view: &mut View, layer: &str, proposal: Proposal) -> Option<AppliedEdit> {
    let Proposal { edit, spills } = proposal;
    let before_tokens = view.tokens();
    view.apply(&edit).ok()?;
    let after_tokens = view.tokens();
    let edited = ContextEdited { layer: layer.to_owned(), edit, before_tokens, after_tokens };
    Some(AppliedEdit { edited, spills })
}

/// Returns the summary that is due, if one is, with the settings that put it into the view.
#[must_use]
pub fn summary_due(
    view: &View,
    preset: &Preset,
    around: &Surroundings<'_>,
    asked: Option<(CompactionTrigger, Option<String>)>,
) -> Option<(Summary, SummaryRequest)> {
    if let Some(window) = preset.layers.iter().find_map(Layer::window) {
        return Some((window.summary.clone(), window.due(view, around, asked)?));
    }
    let summary = summary(preset)?;
    match (&preset.reactive, asked) {
        (Some(reactive), Some((CompactionTrigger::Reactive, focus))) => {
            reactive.request(summary, view, around, focus)
        }
        (_, None) if pressure(view, preset, around).is_none() => None,
        (_, asked) => {
            let is_manual = matches!(asked, Some((CompactionTrigger::Manual, _)));
            let due = summary.due(view, around, asked)?;
            let mut layer = summary.clone();
            if is_manual {
                layer.say_after(&preset.compact_tool.compact_after);
            }
            Some((layer, due))
        }
    }
}

/// Returns the urgency of a summary that nobody asked for; `None` when none is due.
#[must_use]
pub fn pressure(view: &View, preset: &Preset, around: &Surroundings<'_>) -> Option<Urgency> {
    if let Some(window) = preset.layers.iter().find_map(Layer::window) {
        return window.pressure(view, around);
    }
    let folds = |layer: &Layer| matches!(layer, Layer::Collapse(fold) if fold.collapse);
    match preset.layers.iter().any(folds) {
        true => None,
        false => summary(preset)?.pressure(view, around),
    }
}

/// Returns true if a requested summary waits until a user speaks, because the preset acts on turns
/// only.
#[must_use]
pub fn waits_for_user(view: &View, preset: &Preset) -> bool {
    preset.layers.iter().any(|layer| layer.window().is_some())
        && window::begun_by_user(view).is_none()
}

/// Returns the summary settings of the preset, if it has any.
#[must_use]
pub fn summary(preset: &Preset) -> Option<&Summary> {
    preset.layers.iter().find_map(Layer::summary)
}

/// Makes a refused request shorter without a summary, when none can be had; returns the edits.
pub fn run_reactive(
    view: &mut View,
    preset: &Preset,
    around: &Surroundings<'_>,
) -> Vec<AppliedEdit> {
    let (Some(reactive), Some(summary)) = (&preset.reactive, summary(preset)) else {
        return Vec::new();
    };
    let fallback = reactive.fallback(summary, view, around.transcript);
    let trimmed = fallback.and_then(|edit| apply(view, reactive::NAME, edit.into()));
    let shed = shed(view, preset, around, 0);
    trimmed.into_iter().chain(shed).collect()
}

/// Stores the largest results from a message on, as the preset does for a refused request; returns
/// the edits.
pub fn shed(
    view: &mut View,
    preset: &Preset,
    around: &Surroundings<'_>,
    from: u64,
) -> Vec<AppliedEdit> {
    let reactive = preset.reactive.as_ref();
    let proposal = reactive.and_then(|reactive| reactive.shed(view, around, from));
    proposal.and_then(|proposal| apply(view, reactive::NAME, proposal)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::layers::Window;
    use crate::context::layers::micro::KeepUnit;
    use crate::message::{Block, Json, Message, ResultContent, Role, ToolCall, ToolResult};

    fn around() -> Surroundings<'static> {
        let window = Window { tokens: 200_000, output: 8_000, overhead: 0 };
        Surroundings::new("t.jsonl", "results", window)
    }

    fn cheap(view: &mut View, preset: &Preset) -> Vec<AppliedEdit> {
        run_cheap_layers(view, preset, &around())
    }

    fn due(
        view: &View,
        asked: Option<(CompactionTrigger, Option<String>)>,
    ) -> Option<SummaryRequest> {
        summary_due(view, &Preset::three_layer(), &around(), asked).map(|(_, due)| due)
    }

    fn exchange(view: &mut View, turn: usize, sizes: &[usize]) {
        let id = |n: usize| format!("{turn}.{n}");
        let calls = (0..sizes.len()).map(|n| {
            let input = Json::encode(&serde_json::json!({}));
            Block::ToolUse(ToolCall { id: id(n), name: "bash".to_owned(), input })
        });
        let calls = Message { role: Role::Assistant, content: calls.collect() };
        let results = sizes.iter().enumerate().map(|(n, size)| {
            let content = ResultContent::Text("y".repeat(*size));
            Block::ToolResult(ToolResult { tool_use_id: id(n), content, is_error: false })
        });
        let results = Message { role: Role::User, content: results.collect() };
        view.push(Json::encode(&calls)).expect("a message");
        view.push(Json::encode(&results)).expect("a message");
    }

    fn texts(view: &View) -> Vec<String> {
        let messages = view.slots().map(|slot| slot.entry.json.decode::<Message>().expect("one"));
        let results =
            messages.flat_map(|m| m.tool_results().map(ToolResult::text).collect::<Vec<_>>());
        results.collect()
    }

    #[test]
    fn clearing_follows_the_documented_rule() {
        let preset = Preset::three_layer();
        let mut view = View::default();
        view.push(Json::encode(&Message::user("go"))).expect("a message");
        for (turn, size) in [101, 100, 101, 101].into_iter().enumerate() {
            exchange(&mut view, turn, &[size]);
        }
        let edits = cheap(&mut view, &preset);
        assert_eq!(edits.len(), 1);
        assert!(edits[0].edited.after_tokens < edits[0].edited.before_tokens);
        assert_eq!(texts(&view)[0], "[Previous: used bash]");
        assert_eq!(texts(&view)[1].len(), 100);
        exchange(&mut view, 9, &[7]);
        assert!(cheap(&mut view, &preset).is_empty(), "100 characters stay for ever");
        exchange(&mut view, 10, &[7, 7]);
        assert_eq!(cheap(&mut view, &preset).len(), 1);
        assert_eq!(texts(&view)[2], "[Previous: used bash]");
        assert_eq!(texts(&view)[3], "[Previous: used bash]");
    }

    #[test]
    fn turns_can_be_kept_instead_of_blocks() {
        let mut preset = Preset::three_layer();
        let Layer::Micro(micro) = &mut preset.layers[0] else { panic!("clears first") };
        (micro.keep_unit, micro.keep_recent) = (KeepUnit::Turns, 1);
        let mut view = View::default();
        view.push(Json::encode(&Message::user("go"))).expect("a message");
        exchange(&mut view, 0, &[200, 200]);
        exchange(&mut view, 1, &[200, 200]);
        cheap(&mut view, &preset);
        let cleared = texts(&view).iter().filter(|text| text.starts_with('[')).count();
        assert_eq!(cleared, 2);
    }

    #[test]
    fn a_summary_keeps_what_is_unread_and_the_request() {
        let preset = Preset::three_layer();
        let Layer::Summary(layer) = &preset.layers[1] else { panic!("summarises last") };
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        for turn in 0..8 {
            exchange(&mut view, turn, &[30_000]);
        }
        assert!(layer.limit.is_over(&view, &around()));
        let request = due(&view, None).expect("due");
        assert_eq!((request.from, request.to), (0, 15));
        let [text] = &request.parts(usize::MAX)[..] else { panic!("one part") };
        assert!(
            request.prompt(text, None).chars().count() < layer.reading.summary_input_chars + 400
        );
        let edit = layer.edit(&view, request.from, request.to, "t.jsonl", "done so far");
        view.apply(&edit).expect("applies");
        let messages: Vec<Message> =
            view.slots().map(|slot| slot.entry.json.decode().expect("one")).collect();
        let roles: Vec<_> = messages.iter().map(|m| m.role).collect();
        use Role::{Assistant as A, User as U};
        assert_eq!(roles, [U, A, U, A, U]);
        assert_eq!(
            messages[0].text(),
            "[Conversation compressed. Transcript: t.jsonl]\n\ndone so far"
        );
        assert_eq!(messages[2].text(), "the goal");
        assert_eq!(messages[4].tool_results().count(), 1);
        assert!(due(&view, None).is_none());
    }

    #[test]
    fn a_large_unread_tail_is_not_summarised_again_and_again() {
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        exchange(&mut view, 0, &[100]);
        exchange(&mut view, 1, &[300_000]);
        assert!(due(&view, None).is_none());
        let asked = Some((CompactionTrigger::Manual, Some("names".to_owned())));
        let request = due(&view, asked).expect("asked for");
        assert!(request.instruction.ends_with("preserving details about: names."));
    }
}
