//! The scripted model: replies from a script, so that a plan runs without a key and without a
//! network.
//!
//! Everything around it is real: requests, tools, child agents, records. It never invents a reply:
//! if no rule matches, the call fails.

use std::path::Path;
use std::sync::Arc;

use super::script::{Scene, Script, ScriptError, ScriptReply};
use super::{BoxFuture, Delta, DeltaSink, ErrorClass, Model, ModelError, Reply, Request};
use crate::context::measure::CHARS_PER_TOKEN;
use crate::context::provider::server::ContextReport;
use crate::message::{Block, Json, Usage};

/// A model that replies by a script.
#[derive(Clone, Debug)]
pub struct Scripted {
    script: Arc<Script>,
    /// The name of its file, for messages.
    file: Option<Arc<str>>,
}

impl Scripted {
    /// Creates a model that uses this script for every agent.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self { script: script.into(), file: None }
    }

    /// Names the file of the script in errors.
    #[must_use]
    pub fn of_file(self, file: &Path) -> Self {
        Self { file: file.file_name().map(|name| name.to_string_lossy().into()), ..self }
    }

    fn play(&self, request: &Request) -> Result<ScriptReply, ScriptError> {
        let Request { agent, agent_id, turn, .. } = request;
        let (agent, agent_id, turn) = (agent.as_str(), agent_id.as_str(), *turn);
        if self.script.reads_nothing() {
            // Then the request is not parsed.
            let (system, messages, tools) = Default::default();
            return self.script.reply(&Scene { agent, agent_id, turn, system, messages, tools });
        }
        let (system, messages) = (&request.system(), &request.messages());
        let tools = &if request.no_calls { Vec::new() } else { offered(request) };
        self.script.reply(&Scene { agent, agent_id, turn, system, messages, tools })
    }
}

impl Model for Scripted {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let reply = self.play(&request).map_err(|error| {
                let message = match &self.file {
                    Some(file) => format!("script {file}: {error}"),
                    None => format!("script: {error}"),
                };
                ModelError::new(ErrorClass::Fatal, message)
            })?;
            let usage = usage(&request, &reply);
            if !reply.delay.is_zero() {
                tokio::time::sleep(reply.delay).await;
            }
            // Scripted blocks arrive whole, so each is one delta.
            for block in &reply.message.content {
                match block {
                    Block::Text(text) => deltas(Delta::Text(text)),
                    Block::ToolUse(call) => deltas(Delta::Tool(&call.name)),
                    Block::ToolResult(_) | Block::Other(_) => deltas(Delta::Alive),
                }
            }
            let context = ContextReport::default();
            Ok(Reply { context, ..Reply::new(reply.message, reply.stop, usage) })
        })
    }
}

/// Returns the names of the tools in the default head.
fn offered(request: &Request) -> Vec<String> {
    let head: Option<serde_json::Value> = serde_json::from_slice(&request.head.0).ok();
    let tools = head.as_ref().and_then(|head| head["tools"].as_array());
    let names = tools.into_iter().flatten().filter_map(|tool| tool["name"].as_str());
    names.map(str::to_owned).collect()
}

fn usage(request: &Request, reply: &ScriptReply) -> Usage {
    let sent: u64 = request.pieces.iter().map(|piece| chars(&piece.bytes)).sum();
    Usage {
        input: (chars(&request.head.0) + sent) / CHARS_PER_TOKEN,
        output: chars(Json::encode(&reply.message).as_ref()) / CHARS_PER_TOKEN,
        ..Usage::default()
    }
}

/// Counts the characters in UTF-8 bytes: every byte except a continuation byte begins one.
fn chars(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| (**byte & 0xC0) != 0x80).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::provider::server::ContextWork;
    use crate::context::sending::validity::{self, Rules};
    use crate::context::view::View;
    use crate::id::{AgentId, Name};
    use crate::message::{Message, StopReason};
    use crate::model::{Head, Rendering};

    fn request(model: &Scripted, turn: u32, text: &str) -> Request {
        let head = r#"{"system":"be brief","tools":[{"name":"glob"}]}"#;
        let (view, message) = (View::default(), Json::encode(&Message::user(text)));
        let sendable = validity::check(&view, Some(&message), &Rules::default());
        let sendable = sendable.expect("a question");
        Request {
            agent: Name::new("helper").expect("a name"),
            agent_id: AgentId::from_text("task/helper-1"),
            turn,
            head: Head(head.into()),
            pieces: Rendering::default().render(&sendable, model, &[]),
            max_output_tokens: 100,
            context: ContextWork::Nothing,
            no_calls: false,
            answer_schema: None,
        }
    }

    fn scripted(script: &str) -> Scripted {
        Scripted::new(Script::parse(script).expect("a script"))
    }

    #[tokio::test(start_paused = true)]
    async fn it_streams_the_reply_and_reports_its_size() {
        let model = scripted(
            r#"
            [[rules]]
            turn = 1
            say = "{{ agent_id }} {{ system }} {{ tools | join }} {{ prompt }}"
            calls = [{ tool = "glob", input = { pattern = "*" } }]
            delay_ms = 60000
            "#,
        );
        let mut seen = Vec::new();
        let before = tokio::time::Instant::now();
        let mut sink = |delta: Delta<'_>| seen.push(format!("{delta:?}"));
        let reply = model.call(request(&model, 1, "héllo"), &mut sink).await.expect("a reply");
        assert_eq!(before.elapsed().as_secs(), 60);
        assert_eq!(reply.message.text(), "task/helper-1 be brief glob héllo");
        assert_eq!(reply.stop, StopReason::ToolUse);
        assert_eq!(seen, [r#"Text("task/helper-1 be brief glob héllo")"#, r#"Tool("glob")"#]);
        let sent = r#"{"system":"be brief","tools":[{"name":"glob"}]}"#.chars().count()
            + r#"{"role":"user","content":[{"type":"text","text":"héllo"}]}"#.chars().count();
        assert_eq!(reply.usage.input, (sent / 4) as u64);
        assert!(reply.usage.output > 0);
    }

    #[tokio::test]
    async fn without_a_rule_the_call_fails_for_good() {
        let model = scripted("[[rules]]\nturn = 1\nsay = 'x'");
        let error = model.call(request(&model, 2, "hi"), &mut |_| {}).await.expect_err("no rule");
        assert_eq!(error.class, ErrorClass::Fatal);
        assert!(!error.is_retryable());
        assert!(error.message.contains("agent `helper` in turn 2"), "{error}");
    }
}
