//! Replay: sends a recorded conversation through the pipeline as if it happened live.
//!
//! Pure. No model is called: where a summary would be due, a record made without one stands in, and
//! the call that a live run would have made is listed.

use serde::Serialize;

use crate::context::ContextEdited;
use crate::context::layers::Surroundings;
use crate::context::layers::gather::gather_within;
use crate::context::layers::pipeline::{self, AppliedEdit};
use crate::context::layers::preset::Preset;
use crate::context::layers::summary::SummaryInput;
use crate::context::view::View;
use crate::message::Json;

/// A model call for a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SummaryCall {
    /// Tokens that the summariser reads.
    pub input_tokens: u64,
    /// Tokens that it writes.
    pub output_tokens: u64,
    /// True if the call begins like the last request, so that it reads that request's cache.
    pub shares_prefix: bool,
}

/// Changes of the view before one model call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Edits of the view, in order.
    pub edits: Vec<ContextEdited>,
    /// Calls for the summaries that were written.
    pub summary_calls: Vec<SummaryCall>,
}

/// A conversation that is replayed with a preset.
#[derive(Debug)]
pub struct Replay<'a> {
    preset: &'a Preset,
    around: Surroundings<'a>,
    view: View,
}

impl<'a> Replay<'a> {
    /// Begins with an empty conversation.
    #[must_use]
    pub fn new(preset: &'a Preset, around: Surroundings<'a>) -> Self {
        Self { preset, around, view: View::default() }
    }

    /// Appends the next message of the conversation.
    ///
    /// # Errors
    /// Returns an error if `json` is not a message.
    pub fn push(&mut self, json: Json) -> Result<(), serde_json::Error> {
        self.view.push(json)
    }

    /// Returns the view as it would be sent now.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Does what an agent does before it calls its model, and returns the changes.
    pub fn before_call(&mut self) -> Turn {
        let mut turn = Turn::default();
        turn.add(pipeline::run_cheap_layers(&mut self.view, self.preset, &self.around));
        if self.summarise(&mut turn) {
            turn.add(pipeline::run_cheap_layers(&mut self.view, self.preset, &self.around));
        }
        turn.add(pipeline::run_guard(&mut self.view, self.preset, &self.around));
        turn
    }

    /// Puts a record in the place of the summary that is due; returns true if one was.
    fn summarise(&mut self, turn: &mut Turn) -> bool {
        let due = pipeline::summary_due(&self.view, self.preset, &self.around, None);
        let Some((layer, due)) = due else { return false };
        // The record is at most as long as a summary may be, and shorter than the range that it
        // covers.
        let most = usize::try_from(due.max_tokens).unwrap_or(usize::MAX).saturating_mul(4);
        let most = most.min(due.covers_chars / 2);
        let text = match self.view.covered(due.from, due.to).next() {
            Some(_) => gather_within(&self.view, due.from, due.to, most).render(),
            // The messages of these turns are no longer in the view.
            None => due.parts(most).swap_remove(0),
        };
        let edit = layer.edit(&self.view, due.from, due.to, self.around.transcript, &text);
        turn.summary_calls.push(SummaryCall {
            input_tokens: self.around.tokens(due.input_chars()),
            output_tokens: self.around.tokens(text.chars().count()),
            shares_prefix: due.input == SummaryInput::SamePrefix,
        });
        turn.add(pipeline::apply(
            &mut self.view,
            crate::context::layers::summary::NAME,
            edit.into(),
        ));
        true
    }
}

impl Turn {
    fn add(&mut self, changes: impl IntoIterator<Item = AppliedEdit>) {
        self.edits.extend(changes.into_iter().map(|change| change.edited));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::context::layers::Window;

    const AROUND: Surroundings<'_> = Surroundings {
        transcript: "t.jsonl",
        results: "results",
        window: Window { tokens: 200_000, output: 0, overhead: 0 },
        tokens_per_char: 0.25,
        measured_room: None,
        price: crate::spec::RelativePrice { write: 1.25, read: 0.1, output: 5.0 },
        idle: std::time::Duration::ZERO,
        state: None,
    };

    /// A request, then calls, after so many words, whose results have these many characters.
    fn conversation(words: usize, sizes: &[usize]) -> Vec<Json> {
        let mut messages = vec![json!({"role": "user", "content": "the goal"})];
        for (n, size) in sizes.iter().enumerate() {
            let id = format!("t{n}");
            let call = json!({"type": "tool_use", "id": id, "name": "bash", "input": {"n": n}});
            let text = json!({"type": "text", "text": "and so on ".repeat(words)});
            messages.push(json!({"role": "assistant", "content": [text, call]}));
            let result =
                json!({"type": "tool_result", "tool_use_id": id, "content": "x".repeat(*size)});
            messages.push(json!({"role": "user", "content": [result]}));
        }
        messages.iter().map(Json::encode).collect()
    }

    /// Each turn, with the messages that it would send.
    fn turns(preset: &Preset, messages: &[Json]) -> Vec<(Turn, Vec<Json>)> {
        let mut replay = Replay::new(preset, AROUND);
        let mut turns = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            if number % 2 == 1 {
                let turn = replay.before_call();
                turns.push((turn, replay.view().slots().map(|s| s.entry.json.clone()).collect()));
            }
            replay.push(message.clone()).expect("a message");
        }
        turns
    }

    #[test]
    fn until_its_first_edit_a_view_is_the_conversation() {
        let messages = conversation(1, &[200; 6]);
        for (number, (turn, view)) in turns(&Preset::off(), &messages).into_iter().enumerate() {
            assert_eq!(turn, Turn::default());
            assert_eq!(view, messages[..=2 * number]);
        }
        for (number, (turn, view)) in
            turns(&Preset::three_layer(), &messages).into_iter().enumerate()
        {
            assert_eq!(turn.edits.is_empty(), number < 4, "turn {number}");
            assert_eq!(view == messages[..=2 * number], number < 4, "turn {number}");
        }
    }

    #[test]
    fn a_view_depends_only_on_what_came_before_it() {
        let preset = Preset::three_layer();
        let whole = turns(&preset, &conversation(1, &[9_000; 40]));
        let part = turns(&preset, &conversation(1, &[9_000; 30]));
        assert_eq!(whole[..part.len()], part);
    }

    #[test]
    fn a_digest_stands_in_for_a_summary_and_the_call_is_listed() {
        let preset = Preset::three_layer();
        let all = turns(&preset, &conversation(1_000, &[9_000; 40]));
        let with: Vec<_> = all.iter().filter(|(turn, _)| !turn.summary_calls.is_empty()).collect();
        let (turn, view) = with.first().expect("a summary");
        let call = turn.summary_calls[0];
        assert!(!call.shares_prefix);
        // 80,000 characters are read at most, and 2,000 tokens written.
        assert!((15_000..=20_100).contains(&call.input_tokens), "{call:?}");
        assert!((1..=2_000).contains(&call.output_tokens), "{call:?}");
        assert_eq!(turn.edits.last().expect("an edit").layer, "summary");
        let whole: String = view.iter().map(|message| message.as_str().to_owned()).collect();
        assert!(whole.contains("Transcript: t.jsonl") && whole.contains("the goal"), "{whole}");
    }

    /// The ids of the calls in a message.
    fn calls(message: &Json) -> Vec<String> {
        let value = message.to_value();
        let blocks = value["content"].as_array().into_iter().flatten();
        let calls = blocks.filter(|block| block["type"] == "tool_use");
        calls.map(|call| call["id"].as_str().expect("an id").to_owned()).collect()
    }

    /// The calls of the last six messages that do not stand in the view before a reply.
    fn lost_calls(preset: &Preset, messages: &[Json], tokens: u64) -> Vec<String> {
        let around = Surroundings { window: Window { tokens, output: 0, overhead: 0 }, ..AROUND };
        let (mut replay, mut lost) = (Replay::new(preset, around), Vec::new());
        let mut summaries = 0;
        for (number, message) in messages.iter().enumerate() {
            if number % 2 == 1 {
                summaries += replay.before_call().summary_calls.len();
                let view = replay.view();
                let stand: Vec<_> = view.slots().flat_map(|slot| calls(&slot.entry.json)).collect();
                let newest = &messages[number.saturating_sub(6)..number];
                lost.extend(newest.iter().flat_map(calls).filter(|call| !stand.contains(call)));
                assert!(view.tokens() <= tokens, "{} of {tokens} tokens", view.tokens());
            }
            replay.push(message.clone()).expect("a message");
        }
        assert!(summaries > 3, "{summaries}");
        lost
    }

    #[test]
    fn under_production_the_calls_of_the_last_six_messages_stand() {
        let preset = Preset::production();
        let messages = conversation(150, &[1_500, 300, 2_500, 900].repeat(30));
        assert_eq!(lost_calls(&preset, &messages, 20_000), [""; 0]);
        // It is the tail of the summary that keeps them.
        let none = json!({"summary_tail": 0}).as_object().cloned().unwrap_or_default();
        let without = preset.clone().with_constants(&none).expect("a constant");
        assert!(!lost_calls(&without, &messages, 20_000).is_empty());
        // Messages that fill half of the view do not stay for their number.
        let large = conversation(1, &[100_000; 24]);
        assert!(!lost_calls(&preset, &large, 50_000).is_empty());
    }
}
