//! The preset `three-layer`: clears, then summarises; with the `compact` tool.

use serde::{Deserialize, Serialize};

use super::{CompactTool, Preset};
use crate::context::layers::limit::Limit;
use crate::context::layers::micro::{KeepUnit, MicroTest};
use crate::context::layers::summary::{Form, Pace, Quote, Reading, SummaryInput};
use crate::context::layers::{Layer, Micro, Summary};

/// Instruction to the summariser.
const PROMPT: &str = "Summarize this conversation for continuity. Include: 1) What was \
    accomplished, 2) Current state, 3) Key decisions made. Be concise but preserve critical \
    details.";

/// The shortened instruction.
const SHORT_PROMPT: &str = "Summarize this conversation for continuity.";

/// Text added to the instruction when something to preserve was named.
pub(super) const FOCUS: &str = " Pay special attention to preserving details about: {focus}.";

/// Text between the parts of an input that is cut.
pub(super) const CUT: &str = "... {n} messages left out ...\n";

impl Preset {
    /// Returns the preset: clear, then summarise, with the `compact` tool.
    #[must_use]
    pub fn three_layer() -> Self {
        Self::three_layer_as(Variant::default())
    }

    /// Returns the preset in one of its forms.
    #[must_use]
    pub fn three_layer_as(variant: Variant) -> Self {
        Self::guarded(
            "three-layer",
            vec![
                Layer::Micro(Micro {
                    keep_recent: 3,
                    keep_unit: KeepUnit::Blocks,
                    micro_test: variant.test(),
                    micro_min_chars: 100,
                    micro_text: "[Previous: used {tool}]".to_owned(),
                    preserve_tools: Vec::new(),
                }),
                Layer::Summary(Summary {
                    limit: Limit::Tokens { threshold: 50_000 },
                    reading: Reading {
                        summary_input_chars: 80_000,
                        summary_head_chars: 80_000,
                        summary_cut: CUT.to_owned(),
                    },
                    summary_keeps_task: false,
                    summary_input: SummaryInput::Alone,
                    summary_quote: Quote::Bare,
                    pace: Pace::default(),
                    summary_max_tokens: 2_000,
                    summary_auto: true,
                    summary_form: Form::Plain,
                    summary_system: String::new(),
                    summary_prompt: variant.prompt().to_owned(),
                    summary_focus: FOCUS.to_owned(),
                    summary_text: variant.text().to_owned(),
                    summary_reply: variant.reply().to_owned(),
                }),
            ],
        )
    }
}

/// Form in which the design was written down. The forms differ in few points; in all of them the
/// summary stands in its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// The annotated form.
    #[default]
    Annotated,
    /// The short form.
    Short,
    /// The form in TypeScript.
    TypeScript,
}

impl Variant {
    fn prompt(self) -> &'static str {
        match self {
            Self::Annotated => PROMPT,
            Self::Short | Self::TypeScript => SHORT_PROMPT,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Annotated => "[Conversation compressed. Transcript: {path}]\n\n{summary}",
            Self::Short => "[Compressed]\n\n{summary}",
            Self::TypeScript => "[Conversation compressed. Transcript: {path}]",
        }
    }

    fn reply(self) -> &'static str {
        match self {
            Self::Annotated | Self::TypeScript => {
                "Understood. I have the context from the summary. Continuing."
            }
            Self::Short => "Understood. Continuing.",
        }
    }

    fn test(self) -> MicroTest {
        match self {
            Self::Annotated => MicroTest::Text,
            Self::Short => MicroTest::Length,
            Self::TypeScript => MicroTest::None,
        }
    }
}

/// Returns the texts of the tool as it was first worded.
pub(super) fn compact_tool() -> CompactTool {
    CompactTool {
        compact_description: "Trigger manual conversation compression.".to_owned(),
        compact_focus: "What to preserve in the summary".to_owned(),
        compact_answer: "Compressing...".to_owned(),
        compact_after: String::new(),
    }
}
