//! Drafts and records of one turn with tools, for the tests of this crate and of those above it.

use crate::event::{Draft, Event, Record};
use crate::id::{AgentId, CallKey, Name};
use crate::message::{Json, StopReason, Usage, UsageSource};
use crate::turn::{
    AgentSpawned, Effect, ModelResponded, Program, ToolFinished, ToolIntended, ToolStatus,
    TurnStarted,
};

/// The reply of a model with two calls.
pub const REPLY: &str = r#"{"role":"assistant","content":[{"type":"text","text":"Looking."},{"type":"tool_use","id":"t0","name":"read_file","input":{"path" : "src/a.rs"}},{"type":"tool_use","id":"t1","name":"bash","input":{"command":"ls"}}]}"#;

/// Returns an event of the agent `work/helper-1`.
#[must_use]
pub fn draft(event: impl Into<Event>) -> Draft {
    let task = Name::new("work").expect("a name");
    Draft::agent(&task, &AgentId::from_text("work/helper-1"), event)
}

/// Returns the start of that agent.
#[must_use]
pub fn spawned(prompt: &str) -> Draft {
    let agent = Name::new("helper").expect("a name");
    let program = Program::Model { agent, prompt: prompt.into() };
    draft(AgentSpawned { depth: 1, ..AgentSpawned::main(program) })
}

/// Returns the reply [`REPLY`].
#[must_use]
pub fn responded(turn: u32) -> Draft {
    draft(ModelResponded {
        unsettled: None,
        turn,
        model: Name::new("default").expect("a name"),
        message: Json::parse(REPLY.to_owned()).expect("JSON"),
        stop: StopReason::ToolUse,
        usage: Usage { input: 1234, output: 210, cache_read: 0, cache_write: 0 },
        usage_source: UsageSource::Reported,
        cost_usd: None,
        context: crate::context::provider::server::ContextReport::default(),
        repeats: None,
    })
}

/// Returns the announcement of a call.
#[must_use]
pub fn intended(turn: u32, index: u32, name: &str, input: &str) -> Draft {
    draft(ToolIntended {
        key: key(index),
        turn,
        index,
        id: format!("t{index}"),
        name: name.to_owned(),
        input: Json::parse(input.to_owned()).expect("JSON"),
        effect: Effect::Pure,
    })
}

/// Returns the end of a call.
#[must_use]
pub fn finished(turn: u32, index: u32, status: ToolStatus, text: &str) -> Draft {
    let text = Json::encode(text);
    let block = format!(r#"{{"type":"tool_result","tool_use_id":"t{index}","content":{text:?}}}"#);
    draft(ToolFinished {
        took_ms: 12,
        ..ToolFinished::new(
            key(index),
            turn,
            index,
            "read_file",
            status,
            Json::parse(block).expect("JSON"),
        )
    })
}

/// Returns a key of a call.
#[must_use]
pub fn key(index: u32) -> CallKey {
    let run: crate::id::RunId = crate::id::RunId::from(uuid::Uuid::now_v7());
    CallKey::derive(run, &AgentId::from_text("a"), 1, index, "bash", "{}")
}

/// Returns the beginning of a turn of an agent.
#[must_use]
pub fn turn(agent: &str, turn: u32) -> Draft {
    let task = Name::new("work").expect("a name");
    Draft::agent(&task, &AgentId::from_text(agent), TurnStarted::new(turn, None))
}

/// Returns a draft as a record of the first epoch.
#[must_use]
pub fn record(seq: u64, draft: Draft) -> Record {
    let Draft { task, agent, event } = draft;
    Record { seq, epoch: 1, ts_ms: 1_794_967_445_123, task, agent, event }
}

/// Returns words for the log of an agent, which are those of `show::log_line` in the program.
#[must_use]
pub fn log_text(record: &Record) -> String {
    format!("{} {}\n", record.seq, record.event.kind())
}
