//! The keys of `[compaction]`: its own, and the constants of the presets.

use crate::config::strategy::STRATEGIES;
use crate::context::strategy::LEAST_TRIGGER_TOKENS;

use super::{COUNT, Field, HOOKS, RECOVERY, SHARE, Shape, TEXTS, TOKENS, key, later};

/// The presets.
pub(in crate::config) const PRESETS: [&str; 6] =
    ["adaptive", "production", "four-layer", "turn-window", "three-layer", "off"];

/// A number that may be 0.
const ANY: Shape = Shape::Integer(0, 1 << 40);

/// The keys that are no constants of a preset.
const OWN: [Field; 17] = [
    key("preset", Shape::Word(&PRESETS, &[])),
    key("improved", Shape::Truth),
    key("variant", Shape::Word(&["annotated", "short", "typescript"], &[])),
    key("layers", TEXTS),
    key("model", Shape::Text),
    later("pin"),
    later("prompt_file"),
    key("keep_recent_results", ANY),
    key("strategy", Shape::Word(&STRATEGIES, &[])),
    key(
        "context_editing",
        Shape::Table(&[
            key("trigger", TOKENS),
            key("keep", ANY),
            key("clear_at_least", ANY),
            key("exclude_tools", TEXTS),
            key("clear_tool_inputs", Shape::Any),
            key("keep_thinking", Shape::Any),
        ]),
    ),
    key(
        "server",
        Shape::Table(&[
            key("trigger", Shape::Integer(LEAST_TRIGGER_TOKENS.cast_signed(), 1 << 40)),
            key("pause", Shape::Truth),
            key("instructions", Shape::Text),
        ]),
    ),
    key("max_concurrency", COUNT),
    key("summary_timeout", Shape::Time),
    key("unchanged_stub", Shape::Truth),
    key("recovery", Shape::Table(RECOVERY)),
    key("hooks", Shape::Table(HOOKS)),
    key(
        "circuit_breaker",
        Shape::Table(&[
            key("failure_threshold", COUNT),
            key("cooldown", Shape::Pause),
            key("min_headroom_gain", SHARE),
        ]),
    ),
];

/// The constants of the presets, each by the name that it has there.
pub(in crate::config) const CONSTANTS: [Field; 71] = [
    // When something is done.
    key("threshold", TOKENS),
    key("threshold_chars", TOKENS),
    key("threshold_percent", Shape::Integer(1, 100)),
    key("output_reserve", ANY),
    key("safety_buffer", ANY),
    key("target_chars", ANY),
    key("target_percent", Shape::Integer(0, 100)),
    key("trigger", SHARE),
    key("soft_trigger", SHARE),
    key("target", SHARE),
    // Digest.
    key("whole", TOKENS),
    key("keep_tokens", TOKENS),
    key("merge_share", SHARE),
    // The pace of summaries.
    key("summary_spacing", COUNT),
    key("refill_limit", COUNT),
    key("on_refill", Shape::Word(&["digest", "stop"], &[])),
    key("reactive_retries", Shape::Integer(0, 16)),
    // Budget, and what stands in the place of a stored result.
    key("batch_budget_chars", ANY),
    key("persist_min_chars", ANY),
    key("preview_chars", ANY),
    key("persisted_text", Shape::Text),
    // Snip.
    key("snip_max_messages", ANY),
    key("snip_head", ANY),
    key("snip_tail", COUNT),
    key("snip_text", Shape::Text),
    key("snip_count", Shape::Word(&["removed", "covered"], &[])),
    // Micro.
    key("keep_recent", ANY),
    key("keep_unit", Shape::Word(&["blocks", "turns"], &[])),
    key("micro_test", Shape::Word(&["text", "length", "none"], &[])),
    key("micro_min_chars", ANY),
    key("micro_text", Shape::Text),
    key("preserve_tools", TEXTS),
    key("micro_saved_text", Shape::Text),
    key("clear_min_gain_percent", Shape::Integer(0, 100)),
    key("idle_minutes", COUNT),
    key("fit_preview_chars", ANY),
    // Turn window.
    key("turn_chars", ANY),
    key("turn_text", Shape::Text),
    key("window_text", Shape::Text),
    // Collapse and notes.
    key("collapse", Shape::Truth),
    key("collapse_span", COUNT),
    key("collapse_keep", COUNT),
    key("collapse_text", Shape::Text),
    key("notes_file", Shape::Text),
    key("notes_text", Shape::Text),
    // Summary.
    key("summary_input_chars", TOKENS),
    key("summary_head_chars", ANY),
    key("summary_cut", Shape::Text),
    key("summary_max_tokens", TOKENS),
    key("summary_system", Shape::Text),
    key("summary_prompt", Shape::Text),
    key("summary_focus", Shape::Text),
    key("summary_text", Shape::Text),
    key("summary_reply", Shape::Text),
    key("summary_auto", Shape::Truth),
    key("summary_keeps_task", Shape::Truth),
    key("summary_form", Shape::Word(&["plain", "tagged"], &[])),
    key("summary_input", Shape::Word(&["alone", "same_prefix"], &[])),
    key("summary_quote", Shape::Word(&["bare", "json", "lines"], &[])),
    // Reactive.
    key("reactive_tail", ANY),
    key("reactive_input", Shape::Word(&["all", "replaced"], &[])),
    key("reactive_text", Shape::Text),
    key("reactive_fallback", Shape::Text),
    key("reactive_shed", Shape::Word(&["largest", "half"], &[])),
    // The system prompt and the tools.
    key("system_addition", Shape::Text),
    key("snip_description", Shape::Text),
    key("snip_keep", Shape::Text),
    key("compact_description", Shape::Text),
    key("compact_focus", Shape::Text),
    key("compact_answer", Shape::Text),
    key("compact_after", Shape::Text),
];

/// The whole section.
pub(super) static COMPACTION: &[Field] = &all();

const fn all() -> [Field; OWN.len() + CONSTANTS.len()] {
    let mut all = [OWN[0]; OWN.len() + CONSTANTS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < OWN.len() { OWN[at] } else { CONSTANTS[at - OWN.len()] };
        at += 1;
    }
    all
}
