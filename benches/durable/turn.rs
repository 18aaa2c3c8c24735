//! The events of one turn, as an agent records them.

use callsheet::event::Event;
use callsheet::id::{AgentId, CallKey, Name, RunId};
use callsheet::message::{Json, StopReason, Usage};
use callsheet::turn::{
    Effect, ModelRequested, ModelResponded, ToolFinished, ToolIntended, ToolStatus, TurnStarted,
};
use serde_json::json;

/// Makes the events of a turn that replies with this text and calls one tool, which gives that
/// result: before its model call, before its tool and after it.
pub(crate) fn turn_of(
    run: RunId,
    id: &AgentId,
    turn: u32,
    reply: &str,
    result: &str,
) -> [Vec<Event>; 3] {
    let model = Name::new("default").expect("a name");
    let call = format!("call-{turn}");
    let key = CallKey::derive(run, id, turn, 0, "read_file", "{}");
    let input = json!({ "path": "notes.txt" });
    let message = json!({ "role": "assistant", "content": [
        { "type": "text", "text": reply },
        { "type": "tool_use", "id": call, "name": "read_file", "input": input },
    ]});
    let block = json!({ "type": "tool_result", "tool_use_id": call, "content": result });
    let requested = ModelRequested {
        most_tokens: 0,
        turn,
        attempt: 1,
        model: model.clone(),
        stands_in_for: None,
        messages: turn as usize,
        bytes: reply.len() + result.len(),
        head_tokens: 1_000,
        expected_tokens: 2_000,
        most_usd: None,
    };
    let responded = ModelResponded {
        unsettled: None,
        turn,
        model,
        message: Json::encode(&message),
        stop: StopReason::ToolUse,
        usage: Usage::default(),
        usage_source: Default::default(),
        cost_usd: None,
        context: Default::default(),
        repeats: None,
    };
    let intended = ToolIntended {
        key: key.clone(),
        turn,
        index: 0,
        id: call,
        name: "read_file".to_owned(),
        input: Json::encode(&input),
        effect: Effect::Pure,
    };
    let finished = ToolFinished {
        file: Some(Box::new(callsheet::turn::FileUse::read(
            "/work/src/lib.rs".to_owned(),
            "0".repeat(64),
            false,
        ))),
        took_ms: 1,
        ..ToolFinished::new(key, turn, 0, "read_file", ToolStatus::Ok, Json::encode(&block))
    };
    [
        vec![TurnStarted::new(turn, None).into(), requested.into()],
        vec![responded.into(), intended.into()],
        vec![finished.into()],
    ]
}
