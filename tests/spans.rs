//! The spans of diagnostics, as a subscriber of the embedding program sees them.

use std::io;
use std::sync::Arc;

use callsheet::{Launch, Script, Scripted};
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

/// The lines that a subscriber wrote.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

const AGENTS: &str = r#"
version = 1
name = "traced"
[agents.reader]
tools = ["glob"]
[tasks.look]
agent = "reader"
prompt = "Look."
"#;

const SCRIPT: &str = r#"
[[rules]]
turn = 1
say = "I look."
calls = [{ tool = "glob", input = { pattern = "*" } }]
[[rules]]
say = "done"
"#;

#[tokio::test]
async fn a_run_an_agent_a_turn_and_a_call_have_spans() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(lines.clone())
        .with_span_events(FmtSpan::CLOSE)
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let model = Scripted::new(Script::parse(SCRIPT).expect("a script"));
    let launch = Launch::text(AGENTS, directory.path()).model("default", model).expect("a name");
    let run = launch.start().await.expect("a run");
    let id = run.id().to_string();
    let end = run.wait().await;
    assert_eq!(end.output("look").expect("it is short").as_deref(), Some("done"));
    let text = String::from_utf8(lines.0.lock().clone()).expect("text");
    let run = format!("invoke_workflow{{run_id={id} gen_ai.workflow.name=\"traced\"}}:");
    let agent = "invoke_agent{task_id=look gen_ai.agent.id=look gen_ai.agent.name=reader}";
    let count = |spans: &str| {
        text.lines().filter(|line| line.contains(&format!("{run}{agent}{spans}"))).count()
    };
    let model = "gen_ai.request.model=default gen_ai.usage.input_tokens=";
    assert_eq!(count(&format!(":chat{{turn=1 {model}")), 1, "{text}");
    assert_eq!(count(&format!(":chat{{turn=2 {model}")), 1, "{text}");
    assert_eq!(count(":execute_tool{gen_ai.tool.name=\"glob\" gen_ai.tool.call.id="), 1, "{text}");
}
