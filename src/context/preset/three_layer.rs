//! The preset `three-layer`: clear, then summarise, then the `compact` tool.

use super::{CompactTool, Preset};
use crate::context::layer::limit::Limit;
use crate::context::layer::micro::KeepUnit;
use crate::context::layer::summary::{Form, Pace, Quote, Reading, SummaryInput};
use crate::context::layer::{Layer, Micro, Summary};

/// What the summariser is told.
const PROMPT: &str = "Summarize this conversation for continuity. Include: 1) What was \
    accomplished, 2) Current state, 3) Key decisions made. Be concise but preserve critical \
    details.";

/// What is added to it when somebody said what to preserve.
pub(super) const FOCUS: &str = " Pay special attention to preserving details about: {focus}.";

/// What stands between the parts of an input that is cut.
pub(super) const CUT: &str = "... {n} messages left out ...\n";

impl Preset {
    /// Clear, then summarise, then the `compact` tool.
    #[must_use]
    pub fn three_layer() -> Self {
        Self::guarded(
            "three-layer",
            vec![
                Layer::Micro(Micro {
                    keep_recent: 3,
                    keep_unit: KeepUnit::Blocks,
                    micro_min_chars: 100,
                    micro_text: "[Previous: used {tool}]".to_owned(),
                    preserve_tools: Vec::new(),
                }),
                Layer::Summary(Summary {
                    limit: Limit::Tokens { threshold: 50_000 },
                    reading: Reading {
                        summary_input_chars: 80_000,
                        summary_head_chars: 20_000,
                        summary_cut: CUT.to_owned(),
                    },
                    summary_input: SummaryInput::Alone,
                    summary_quote: Quote::Bare,
                    pace: Pace::default(),
                    summary_max_tokens: 2_000,
                    summary_auto: true,
                    summary_form: Form::Plain,
                    summary_system: String::new(),
                    summary_prompt: PROMPT.to_owned(),
                    summary_focus: FOCUS.to_owned(),
                    summary_text: "[Conversation compressed. Transcript: {path}]\n\n{summary}"
                        .to_owned(),
                    summary_reply: "Understood. I have the context from the summary. Continuing."
                        .to_owned(),
                }),
            ],
        )
    }
}

/// The tool as it was first worded.
pub(super) fn compact_tool() -> CompactTool {
    CompactTool {
        compact_description: "Trigger manual conversation compression.".to_owned(),
        compact_focus: "What to preserve in the summary".to_owned(),
        compact_answer: "Compressing...".to_owned(),
        compact_after: String::new(),
    }
}
