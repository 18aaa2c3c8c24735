//! The preset `four-layer`: budget, snip, clear, summarise; reactive when a request is refused.

use super::{CompactTool, Preset, three_layer};
use crate::context::layer::limit::Limit;
use crate::context::layer::micro::KeepUnit;
use crate::context::layer::persist::Persist;
use crate::context::layer::reactive::{Reactive, ReactiveInput, ReactiveShed};
use crate::context::layer::snip::SnipCount;
use crate::context::layer::summary::{Form, Pace, Quote, Reading, SummaryInput};
use crate::context::layer::{Budget, Layer, Micro, Snip, Summary};

/// What the summariser is told.
const PROMPT: &str = "Summarize this conversation so that work can continue. Preserve: 1) the \
    current goal, 2) key findings and decisions, 3) files read or changed, 4) remaining work, \
    5) user constraints. Be compact but concrete.";

/// What stands in the place of a result that was stored.
pub(super) const PERSISTED: &str =
    "<persisted-output>\nFull output: {path}\nPreview:\n{preview}\n</persisted-output>";

impl Preset {
    /// Store, snip, clear, summarise.
    #[must_use]
    pub fn four_layer() -> Self {
        let persist = Persist { preview_chars: 2_000, persisted_text: PERSISTED.to_owned() };
        let layers = vec![
            Layer::Budget(Budget {
                batch_budget_chars: 200_000,
                persist_min_chars: 30_000,
                persist: persist.clone(),
            }),
            Layer::Snip(Snip {
                snip_max_messages: 50,
                snip_head: 3,
                snip_tail: 47,
                snip_text: "[snipped {n} messages from conversation middle]".to_owned(),
                snip_count: SnipCount::Removed,
            }),
            Layer::Micro(Micro {
                keep_recent: 3,
                keep_unit: KeepUnit::Blocks,
                micro_min_chars: 120,
                micro_text: "[Earlier tool result compacted. Re-run if needed.]".to_owned(),
                preserve_tools: Vec::new(),
            }),
            Layer::Summary(Summary {
                limit: Limit::Chars { threshold_chars: 50_000 },
                reading: Reading {
                    summary_input_chars: 80_000,
                    summary_head_chars: 20_000,
                    summary_cut: three_layer::CUT.to_owned(),
                },
                summary_input: SummaryInput::Alone,
                summary_quote: Quote::Bare,
                pace: Pace::default(),
                summary_max_tokens: 2_000,
                summary_auto: true,
                summary_form: Form::Plain,
                summary_system: String::new(),
                summary_prompt: PROMPT.to_owned(),
                summary_focus: three_layer::FOCUS.to_owned(),
                summary_text: "[Compacted]\n\n{summary}".to_owned(),
                summary_reply: String::new(),
            }),
        ];
        Self {
            reactive: Some(Reactive {
                reactive_tail: 5,
                reactive_input: ReactiveInput::All,
                reactive_text: "[Reactive compact]\n\n{summary}".to_owned(),
                reactive_fallback:
                    "Earlier conversation was trimmed after a prompt-too-long error.".to_owned(),
                reactive_shed: ReactiveShed::Largest,
                persist,
            }),
            compact_tool: CompactTool {
                compact_description: "Summarize earlier conversation to free context space."
                    .to_owned(),
                compact_focus: "What to preserve in the summary".to_owned(),
                compact_answer: "[Compacted. History summarized.]".to_owned(),
                compact_after: "[Compacted. Continue with summarized context.]".to_owned(),
            },
            ..Self::guarded("four-layer", layers)
        }
    }
}
