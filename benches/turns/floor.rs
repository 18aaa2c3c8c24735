//! The floor: the same work as a plain loop over reqwest, as a careful program would write it.
//!
//! No actors, no retries, no limits; one task an agent. The journal, if there is one, commits in
//! groups.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::task::JoinSet;

use crate::group::Journal;
use crate::work::{MAX_TOKENS, PROMPT, SYSTEM};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    system: &'a str,
    tools: [Tool<'a>; 1],
    messages: &'a [Message],
    max_tokens: u64,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Vec<Block>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text { text: String },
    ToolUse { id: String, name: String, input: Box<RawValue> },
    ToolResult { tool_use_id: String, content: String },
}

/// The fields of a stream event that are read.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    ContentBlockStart {
        content_block: Start,
    },
    ContentBlockDelta {
        delta: Delta,
    },
    ContentBlockStop,
    MessageStop,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Start {
    Text,
    ToolUse { id: String, name: String },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Delta {
    TextDelta { text: String },
    InputJsonDelta { partial_json: String },
}

#[derive(Deserialize)]
struct Input {
    path: String,
}

/// The data that the agents share.
struct Shared {
    client: reqwest::Client,
    url: String,
    root: std::path::PathBuf,
    schema: Box<RawValue>,
    journal: Option<Journal>,
}

/// Runs so many agents through their turns. Returns the number of syncs of the journal; 0 without a
/// journal.
pub(crate) fn run(agents: usize, url: &str, root: &Path, journal: Option<&Path>) -> usize {
    // reqwest builds no client without a crypto provider, although nothing is encrypted here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (journal, writer) = journal.map(Journal::start).unzip();
    let shared = Arc::new(Shared {
        client: reqwest::Client::builder().no_proxy().build().expect("a client"),
        url: format!("{url}/v1/messages"),
        root: root.to_owned(),
        schema: to_raw_value(&serde_json::json!({
            "type": "object",
            "properties": { "path": { "type": "string", "description": "The file." } },
            "required": ["path"],
            "additionalProperties": false
        }))
        .expect("JSON"),
        journal,
    });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut running = JoinSet::new();
        for agent in 0..agents {
            let shared = shared.clone();
            running.spawn(async move { work(&shared, agent).await });
        }
        running.join_all().await;
    });
    drop(runtime);
    drop(shared);
    writer.map_or(0, |writer| writer.join().expect("the writer does not panic"))
}

async fn work(shared: &Shared, agent: usize) {
    let mut messages =
        vec![Message { role: "user", content: vec![Block::Text { text: PROMPT.to_owned() }] }];
    loop {
        let content = call(shared, &messages).await;
        let reply = Message { role: "assistant", content };
        shared.record(agent, &reply).await;
        let mut results = Vec::new();
        for block in &reply.content {
            let Block::ToolUse { id, name, input } = block else { continue };
            assert_eq!(name, "read_file");
            let input: Input = serde_json::from_str(input.get()).expect("arguments");
            let path = shared.root.join(input.path);
            let content = tokio::fs::read_to_string(path).await.expect("the file");
            results.push(Block::ToolResult { tool_use_id: id.clone(), content });
        }
        messages.push(reply);
        if results.is_empty() {
            return;
        }
        let results = Message { role: "user", content: results };
        shared.record(agent, &results).await;
        messages.push(results);
    }
}

/// Posts the conversation and reads the reply's stream to its end.
async fn call(shared: &Shared, messages: &[Message]) -> Vec<Block> {
    let body = Body {
        model: "bench",
        stream: true,
        system: SYSTEM,
        tools: [Tool {
            name: "read_file",
            description: "Reads a text file.",
            input_schema: &shared.schema,
        }],
        messages,
        max_tokens: MAX_TOKENS,
    };
    let body = serde_json::to_vec(&body).expect("JSON");
    let request = shared.client.post(&shared.url).header("content-type", "application/json");
    let mut response = request.body(body).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let (mut lines, mut blocks, mut open) = (Vec::new(), Vec::new(), String::new());
    while let Some(chunk) = response.chunk().await.expect("the stream") {
        lines.extend_from_slice(&chunk);
        let mut from = 0;
        while let Some(end) = lines[from..].iter().position(|byte| *byte == b'\n') {
            if let Some(data) = lines[from..from + end].strip_prefix(b"data: ") {
                take(serde_json::from_slice(data).expect("an event"), &mut blocks, &mut open);
            }
            from += end + 1;
        }
        lines.drain(..from);
    }
    blocks
}

fn take(event: Event, blocks: &mut Vec<Block>, open: &mut String) {
    match event {
        Event::ContentBlockStart { content_block: Start::Text } => {
            blocks.push(Block::Text { text: String::new() });
        }
        Event::ContentBlockStart { content_block: Start::ToolUse { id, name } } => {
            blocks.push(Block::ToolUse { id, name, input: Box::default() });
        }
        Event::ContentBlockDelta { delta: Delta::TextDelta { text } } => open.push_str(&text),
        Event::ContentBlockDelta { delta: Delta::InputJsonDelta { partial_json } } => {
            open.push_str(&partial_json);
        }
        Event::ContentBlockStop => match blocks.last_mut() {
            Some(Block::Text { text }) => *text = std::mem::take(open),
            Some(Block::ToolUse { input, .. }) => {
                *input = RawValue::from_string(std::mem::take(open)).expect("arguments");
            }
            Some(Block::ToolResult { .. }) | None => panic!("no block is open"),
        },
        Event::MessageStop | Event::Other => {}
    }
}

impl Shared {
    /// Makes a message durable, if there is a journal.
    async fn record(&self, agent: usize, message: &Message) {
        #[derive(Serialize)]
        struct Record<'a> {
            agent: usize,
            message: &'a Message,
        }
        let Some(journal) = &self.journal else { return };
        let mut line = serde_json::to_vec(&Record { agent, message }).expect("JSON");
        line.push(b'\n');
        journal.append(line).await;
    }
}
