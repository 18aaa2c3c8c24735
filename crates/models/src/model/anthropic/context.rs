//! Writes context editing and compaction into requests, and reads which of them a model supports.
//!
//! Owns the names of the betas and of the edits. Decides nothing: `context::provider::strategy` does.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::provider::server::{
    AfterSummary, ClearInputs, ClearToolUses, Compact, ContextWork, KeepThinking, ServerEdit,
};
use crate::model::Piece;
use crate::spec::capability::{Capabilities, Capability, ModelFacts};

const EDITING_BETA: &str = "context-management-2025-06-27";
const THRESHOLD_BETA: &str = "compact-2026-01-12";
pub(super) const ON_DEMAND_BETA: &str = "compact-2026-09-04";

/// The fields of a request about its context, and the betas that they need.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ContextFields {
    /// The text that follows `"max_tokens":N` in the body; empty if there is none.
    pub(super) body: String,
    /// The values of the header `anthropic-beta`.
    pub(super) betas: Vec<&'static str>,
}

/// The beginning of a conversation: a summary by the provider, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Conversation,
    /// The provider wrote the summary during a reply.
    Summary,
    /// The provider wrote the summary on demand. It is signed and replaces the messages that it
    /// covers.
    SignedSummary,
}

impl Opening {
    fn of(pieces: &[Piece]) -> Self {
        #[derive(Deserialize)]
        struct First {
            content: Vec<Value>,
        }
        // Only a summary can make the first message one of the assistant, so no other message is
        // parsed.
        let first = pieces.first().filter(|p| p.bytes.starts_with(br#"{"role":"assistant""#));
        let first = first.and_then(|piece| serde_json::from_slice::<First>(&piece.bytes).ok());
        match first.as_ref().and_then(|first| first.content.first()) {
            Some(block) if block["type"] != "compaction" => Self::Conversation,
            Some(block) if block["signature"].is_string() => Self::SignedSummary,
            Some(_) => Self::Summary,
            None => Self::Conversation,
        }
    }
}

/// Returns the fields and betas for this work on a conversation of these pieces.
pub(super) fn fields(work: &ContextWork, pieces: &[Piece]) -> ContextFields {
    let opening = Opening::of(pieces);
    let mut fields = ContextFields::default();
    match opening {
        Opening::Conversation => {}
        Opening::Summary => fields.betas.push(THRESHOLD_BETA),
        Opening::SignedSummary => fields.betas.push(ON_DEMAND_BETA),
    }
    let mut need = |beta| {
        if !fields.betas.contains(&beta) {
            fields.betas.push(beta);
        }
    };
    match work {
        ContextWork::Nothing => {}
        // A signed summary and an edit cannot be combined: the API would not accept the edit's own
        // summary after it.
        ContextWork::Edit(_) if opening == Opening::SignedSummary => {}
        ContextWork::Edit(edits) => {
            edits.iter().for_each(|edit| need(beta(edit)));
            let edits = edits.iter().map(EditOut::of).collect();
            fields.body = member("context_management", &ManagementOut { edits });
        }
        ContextWork::Summarise { instructions } => {
            need(ON_DEMAND_BETA);
            let instructions = instructions.as_deref();
            fields.body = member("compaction", &SummariseOut { r#type: "summarize", instructions });
        }
    }
    fields
}

fn beta(edit: &ServerEdit) -> &'static str {
    match edit {
        ServerEdit::ClearThinking(_) | ServerEdit::ClearToolUses(_) => EDITING_BETA,
        ServerEdit::Compact(_) => THRESHOLD_BETA,
    }
}

/// Renders a further member of an object that already has one.
fn member<T: Serialize>(key: &str, value: &T) -> String {
    format!(",\"{key}\":{}", crate::message::Json::encode(value).as_str())
}

#[derive(Serialize)]
struct ManagementOut<'a> {
    edits: Vec<EditOut<'a>>,
}

#[derive(Serialize)]
struct SummariseOut<'a> {
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

/// A count with its unit.
#[derive(Serialize)]
struct CountOut {
    r#type: &'static str,
    value: u64,
}

/// An edit; an absent field has the provider's default.
#[derive(Serialize)]
struct EditOut<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger: Option<CountOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clear_at_least: Option<CountOut>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    exclude_tools: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    clear_tool_inputs: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_after_compaction: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

impl<'a> EditOut<'a> {
    fn bare(kind: &'static str) -> Self {
        Self {
            r#type: kind,
            trigger: None,
            keep: None,
            clear_at_least: None,
            exclude_tools: &[],
            clear_tool_inputs: None,
            pause_after_compaction: None,
            instructions: None,
        }
    }

    fn of(edit: &'a ServerEdit) -> Self {
        match edit {
            ServerEdit::ClearThinking(keep) => Self::clear_thinking(*keep),
            ServerEdit::ClearToolUses(clear) => Self::clear_tool_uses(clear),
            ServerEdit::Compact(compact) => Self::compact(compact),
        }
    }

    fn clear_thinking(keep: KeepThinking) -> Self {
        let keep = match keep {
            KeepThinking::All => Value::from("all"),
            KeepThinking::Turns(value) => {
                serde_json::json!({"type": "thinking_turns", "value": value})
            }
        };
        Self { keep: Some(keep), ..Self::bare("clear_thinking_20251015") }
    }

    fn clear_tool_uses(clear: &'a ClearToolUses) -> Self {
        Self {
            trigger: Some(input_tokens(clear.trigger_tokens)),
            keep: Some(serde_json::json!({"type": "tool_uses", "value": clear.keep})),
            clear_at_least: clear.clear_at_least.map(input_tokens),
            exclude_tools: &clear.exclude_tools,
            clear_tool_inputs: match &clear.inputs {
                ClearInputs::Keep => None,
                ClearInputs::All => Some(Value::from(true)),
                ClearInputs::Of(tools) => Some(Value::from(tools.as_slice())),
            },
            ..Self::bare("clear_tool_uses_20250919")
        }
    }

    fn compact(compact: &'a Compact) -> Self {
        Self {
            trigger: Some(input_tokens(compact.trigger_tokens)),
            pause_after_compaction: Some(compact.after == AfterSummary::Pause),
            instructions: compact.instructions.as_deref(),
            ..Self::bare("compact_20260112")
        }
    }
}

fn input_tokens(value: u64) -> CountOut {
    CountOut { r#type: "input_tokens", value }
}

/// Returns the capability that this work needs.
pub(super) fn needed(work: &ContextWork) -> Option<Capability> {
    match work {
        ContextWork::Nothing => None,
        ContextWork::Summarise { .. } => Some(Capability::CompactOnDemand),
        ContextWork::Edit(edits) => Some(match edits.iter().any(is_compaction) {
            true => Capability::CompactThreshold,
            false => Capability::ContextEditing,
        }),
    }
}

fn is_compaction(edit: &ServerEdit) -> bool {
    matches!(edit, ServerEdit::Compact(_))
}

/// Returns true if the refusal of a request with such fields is about the fields: the message names
/// a field, an edit or the header, and reports no defect of a block in the conversation.
pub(super) fn is_about_fields(message: &str) -> bool {
    const NAMES: [&str; 6] = [
        "context_management",
        "compaction",
        "compact_20260112",
        "clear_tool_uses_20250919",
        "clear_thinking_20251015",
        "anthropic-beta",
    ];
    // Error codes about a block in the conversation.
    const DEFECTS: [&str; 4] = [
        "compaction_block_misplaced",
        "compaction_signature_invalid",
        "compaction_content_mismatch",
        "compaction_nothing_to_summarize",
    ];
    NAMES.iter().any(|name| message.contains(name))
        && !DEFECTS.iter().any(|code| message.contains(code))
}

/// Reads the facts about a model from the response of the Models API.
pub(super) fn facts(model: &Value) -> ModelFacts {
    let all = &model["capabilities"];
    let management = &all["context_management"];
    let supported = |at: &Value| at == &Value::Bool(true) || at["supported"] == true;
    let found = [
        (Capability::ContextEditing, &management["clear_tool_uses_20250919"]),
        (Capability::CompactThreshold, &management["compact_20260112"]),
        (Capability::CompactOnDemand, &all["compaction"]["summarize"]),
    ];
    let found = found.into_iter().filter(|(_, at)| supported(at));
    let capabilities: Capabilities = found.map(|(capability, _)| capability).collect();
    // Zero means unknown in the API's own examples.
    let max_input_tokens = model["max_input_tokens"].as_u64().filter(|tokens| *tokens > 0);
    ModelFacts { capabilities, max_input_tokens }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn piece(text: &str) -> Piece {
        Piece { bytes: Bytes::from(text.to_owned()), mark_at: None, blocks: 1 }
    }

    fn body(fields: &ContextFields) -> Value {
        serde_json::from_str(&format!("{{\"max_tokens\":1{}}}", fields.body)).expect("JSON")
    }

    fn editing() -> ContextWork {
        ContextWork::Edit(
            vec![
                ServerEdit::ClearThinking(KeepThinking::Turns(1)),
                ServerEdit::ClearToolUses(ClearToolUses {
                    trigger_tokens: 100_000,
                    keep: 3,
                    clear_at_least: Some(5_000),
                    exclude_tools: vec!["web_search".to_owned()],
                    inputs: ClearInputs::Of(vec!["bash".to_owned()]),
                }),
            ]
            .into(),
        )
    }

    fn threshold(after: AfterSummary) -> ContextWork {
        let compact = Compact { trigger_tokens: 150_000, after, instructions: None };
        ContextWork::Edit(vec![ServerEdit::Compact(compact)].into())
    }

    #[test]
    fn edits_are_written_as_the_api_reads_them() {
        let fields = fields(&editing(), &[]);
        assert_eq!(fields.betas, [EDITING_BETA]);
        let expected = json!({"max_tokens": 1, "context_management": {"edits": [
            {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
            {
                "type": "clear_tool_uses_20250919",
                "trigger": {"type": "input_tokens", "value": 100_000},
                "keep": {"type": "tool_uses", "value": 3},
                "clear_at_least": {"type": "input_tokens", "value": 5_000},
                "exclude_tools": ["web_search"],
                "clear_tool_inputs": ["bash"],
            },
        ]}});
        assert_eq!(body(&fields), expected);
        let fields = super::fields(&threshold(AfterSummary::Pause), &[]);
        assert_eq!(fields.betas, [THRESHOLD_BETA]);
        let expected = json!({"max_tokens": 1, "context_management": {"edits": [{
            "type": "compact_20260112",
            "trigger": {"type": "input_tokens", "value": 150_000},
            "pause_after_compaction": true,
        }]}});
        assert_eq!(body(&fields), expected);
    }

    #[test]
    fn a_summary_is_asked_for_at_the_top_level() {
        let work = ContextWork::Summarise { instructions: Some("names \"too\"".into()) };
        let fields = fields(&work, &[]);
        assert_eq!(fields.betas, [ON_DEMAND_BETA]);
        let compaction = json!({"type": "summarize", "instructions": "names \"too\""});
        assert_eq!(body(&fields)["compaction"], compaction);
        let bare = super::fields(&ContextWork::Summarise { instructions: None }, &[]);
        assert_eq!(body(&bare)["compaction"], json!({"type": "summarize"}));
        assert_eq!(super::fields(&ContextWork::Nothing, &[]), ContextFields::default());
    }

    #[test]
    fn a_summary_in_front_brings_its_beta_and_bars_edits_if_it_is_signed() {
        let signed = r#"{"role":"assistant","content":[{"type":"compaction","content":"s","signature":"x"}]}"#;
        let unsigned = r#"{"role":"assistant","content":[{"type":"compaction","content":"s"}]}"#;
        let quoted =
            r#"{"role":"user","content":[{"type":"text","text":"x","a":{"type":"compaction"}}]}"#;
        let betas = |work: &ContextWork, first: &str| fields(work, &[piece(first)]).betas;
        assert_eq!(betas(&ContextWork::Nothing, signed), [ON_DEMAND_BETA]);
        assert_eq!(betas(&ContextWork::Nothing, unsigned), [THRESHOLD_BETA]);
        assert!(betas(&ContextWork::Nothing, quoted).is_empty());
        assert_eq!(betas(&editing(), unsigned), [THRESHOLD_BETA, EDITING_BETA]);
        let with_signed = fields(&threshold(AfterSummary::GoOn), &[piece(signed)]);
        assert_eq!((with_signed.body.as_str(), with_signed.betas), ("", vec![ON_DEMAND_BETA]));
        let again = ContextWork::Summarise { instructions: None };
        assert_eq!(betas(&again, signed), [ON_DEMAND_BETA]);
    }

    #[test]
    fn only_what_names_a_field_is_about_it() {
        for about in [
            "context_management: Extra inputs are not permitted",
            "Unexpected value(s) `compact-2026-09-04` for the `anthropic-beta` header",
            "compaction: Extra inputs are not permitted",
        ] {
            assert!(is_about_fields(about), "{about}");
        }
        for other in ["max_tokens: too large", "compaction_block_misplaced: messages.0", ""] {
            assert!(!is_about_fields(other), "{other}");
        }
    }

    #[test]
    fn support_is_read_from_the_models_api() {
        let model = json!({"max_input_tokens": 1_000_000, "capabilities": {
            "compaction": {"supported": true, "summarize": {"supported": true}},
            "context_management": {
                "clear_tool_uses_20250919": {"supported": true},
                "compact_20260112": {"supported": false},
            },
        }});
        let found = facts(&model);
        assert_eq!(found.max_input_tokens, Some(1_000_000));
        assert!(found.capabilities.has(Capability::ContextEditing));
        assert!(found.capabilities.has(Capability::CompactOnDemand));
        assert!(!found.capabilities.has(Capability::CompactThreshold));
        for nothing in [json!({}), json!(null), json!({"max_input_tokens": 0, "capabilities": []})]
        {
            assert_eq!(facts(&nothing), ModelFacts::default(), "{nothing}");
        }
    }
}
