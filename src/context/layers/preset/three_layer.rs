//! The preset `three-layer`: clear, then summarise, then the `compact` tool.

use serde::{Deserialize, Serialize};

use super::{CompactTool, Preset};
use crate::context::layers::limit::Limit;
use crate::context::layers::micro::{KeepUnit, MicroTest};
use crate::context::layers::summary::{Form, Pace, Quote, Reading, SummaryInput};
use crate::context::layers::{Layer, Micro, Summary};

/// What the summariser is told.
const PROMPT: &str = "Summarize this conversation for continuity. Include: 1) What was \
    accomplished, 2) Current state, 3) Key decisions made. Be concise but preserve critical \
    details.";

/// The same, shortened.
const SHORT_PROMPT: &str = "Summarize this conversation for continuity.";

/// What is added to it when somebody said what to preserve.
pub(super) const FOCUS: &str = " Pay special attention to preserving details about: {focus}.";

/// What stands between the parts of an input that is cut.
pub(super) const CUT: &str = "... {n} messages left out ...\n";

impl Preset {
    /// Clear, then summarise, then the `compact` tool.
    #[must_use]
    pub fn three_layer() -> Self {
        Self::three_layer_as(Variant::default())
    }

    /// The same as one of its forms has it.
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

/// The forms in which the design was written down. They differ in few points; the summary stands in
/// its message in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// With annotations.
    #[default]
    Annotated,
    /// The short one.
    Short,
    /// In TypeScript.
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

/// The tool as it was first worded.
pub(super) fn compact_tool() -> CompactTool {
    CompactTool {
        compact_description: "Trigger manual conversation compression.".to_owned(),
        compact_focus: "What to preserve in the summary".to_owned(),
        compact_answer: "Compressing...".to_owned(),
        compact_after: String::new(),
    }
}
