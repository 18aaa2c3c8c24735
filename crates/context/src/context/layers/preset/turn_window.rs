//! The preset `turn-window`: shows the last turns in the system prompt, then summarises.

use super::{CompactTool, Preset, three_layer};
use crate::context::layers::limit::Limit;
use crate::context::layers::summary::{Form, Pace, Quote, Reading, SummaryInput};
use crate::context::layers::{Layer, Summary, TurnWindow};

/// Instruction to the summariser.
const PROMPT: &str = "Summarize this conversation for continuity. Include: 1) What was \
    accomplished, 2) Current state, 3) Key decisions.";

impl Preset {
    /// Returns the preset: the last turns in the system prompt, then a summary.
    #[must_use]
    pub fn turn_window() -> Self {
        let summary = Summary {
            limit: Limit::Tokens { threshold: 50_000 },
            summary_auto: true,
            reading: Reading {
                summary_input_chars: 80_000,
                summary_head_chars: 80_000,
                summary_cut: three_layer::CUT.to_owned(),
            },
            summary_keeps_task: false,
            summary_input: SummaryInput::Alone,
            summary_system: String::new(),
            summary_max_tokens: 2_000,
            summary_prompt: PROMPT.to_owned(),
            summary_focus: three_layer::FOCUS.to_owned(),
            summary_form: Form::Plain,
            summary_quote: Quote::Bare,
            summary_text: "[Conversation compressed. Transcript: {path}]\n\n{summary}".to_owned(),
            summary_reply: String::new(),
            pace: Pace::default(),
        };
        let window = TurnWindow {
            keep_recent: 3,
            turn_chars: 500,
            turn_text: "[{role}]: {text}\n".to_owned(),
            window_text: "\n<conversation-context>\n{turns}</conversation-context>".to_owned(),
            summary,
        };
        Self {
            compact_tool: CompactTool {
                compact_description: "Trigger manual conversation compression to free up context \
                                      space."
                    .to_owned(),
                compact_focus: "What to preserve in summary".to_owned(),
                compact_answer: "Compression triggered. Context will be summarized.".to_owned(),
                compact_after: String::new(),
            },
            ..Self::guarded("turn-window", vec![Layer::Window(window)])
        }
    }
}
