//! The preset `adaptive`: a chain of records that is edited when prices make it pay, and summaries
//! on request.

use super::{Preset, production, three_layer};
use crate::context::layers::attachments::Recovery;
use crate::context::layers::digest::Economy;
use crate::context::layers::summary::{
    Form, Pace, Quote, RECORD_TEXT, Reading, SummaryInput, sections,
};
use crate::context::layers::{Digest, Layer, Summary};

/// Largest share of the room for messages that a view may fill.
const TRIGGER: f64 = 0.9;

/// Share of the room that an edit forced by `TRIGGER` must reach.
const TARGET: f64 = 0.6;

impl Preset {
    /// Returns the default preset: a chain of records that is edited when prices make it pay,
    /// without waiting for a model. A model writes a summary only where somebody asks for one, a
    /// provider has refused a request, or the configuration sets a `soft_trigger`.
    #[must_use]
    pub fn adaptive() -> Self {
        let digest = Digest {
            economy: Economy::Balanced,
            whole: None,
            trigger: TRIGGER,
            target: TARGET,
            keep_tokens: 800,
            whole_share: 0.34,
            closed_share: 0.26,
            open_share: 0.5,
            open_target: 0.75,
            merge_share: 0.55,
        };
        let summary = Summary {
            limit: production::limit(),
            summary_auto: false,
            summary_keeps_task: true,
            summary_input: SummaryInput::SamePrefix,
            reading: Reading {
                summary_input_chars: 600_000,
                summary_head_chars: 150_000,
                summary_cut: three_layer::CUT.to_owned(),
            },
            summary_system: String::new(),
            summary_max_tokens: 8_000,
            summary_prompt: sections::PROMPT.to_owned(),
            summary_focus: sections::FOCUS.to_owned(),
            summary_form: Form::Tagged,
            summary_quote: Quote::Lines,
            summary_text: RECORD_TEXT.to_owned(),
            summary_reply: String::new(),
            pace: Pace {
                trigger: Some(TRIGGER),
                target: Some(TARGET),
                // Attempts in order: the summary, then half of the size, then a quarter, then an
                // eighth.
                reactive_retries: 4,
                ..Pace::default()
            },
        };
        Self {
            compact_tool: production::compact_tool(),
            unchanged_stub: true,
            recovery: Some(Recovery::default()),
            ..Self::guarded("adaptive", vec![Layer::Digest(digest), Layer::Summary(summary)])
        }
    }
}
