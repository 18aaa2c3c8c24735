//! `cargo run --example answer_questions`: a person of your own, who answers questions and reads what models say.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use callsheet::{
    AgentId, ApprovalKind, Asker, BoxFuture, Cursor, Delta, Event, Launch, Parts, PersonsAnswer,
    Question, RunEnd, Script, Scripted, Update, Watcher,
};

/// Allows what changes notes, and nothing else.
#[derive(Debug)]
struct Editor;

impl Asker for Editor {
    fn ask(&self, question: Question) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let is_note = question.change.is_some_and(|change| change.path.ends_with(".md"));
            println!("{} asks for {}: {is_note}", question.agent, question.tool);
            is_note
        })
    }

    fn who(&self) -> String {
        "the editor".to_owned()
    }
}

/// Prints the text of replies as it comes.
#[derive(Debug)]
struct Screen;

impl Watcher for Screen {
    fn arrived(&self, agent: &AgentId, delta: Delta<'_>) {
        if let Delta::Text(text) = delta {
            println!("{agent} says: {text}");
        }
    }

    fn ended(&self, _agent: &AgentId) {}
}

const AGENTS: &str = r#"
version = 1

[agents.writer]
instructions = "You write notes."
tools = ["write_file"]

[permissions]
default = "ask"

[tasks.note]
agent = "writer"
prompt = "Note that it rained."

[tasks.publish]
depends_on = ["note"]
approval = { message = "Publish the note?" }
"#;

const SCRIPT: &str = r#"
[[rules]]
turn = 1
calls = [{ tool = "write_file", input = { path = "rain.md", content = "It rained." } }]

[[rules]]
say = "It is written."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let model = Scripted::new(Script::parse(SCRIPT)?);
    let launch = Launch::text(AGENTS, directory.path()).model("default", model)?;
    let run = launch.asker(Editor).watcher(Screen).start().await?;
    let client = run.client();
    let mut updates = client.updates(Cursor::START, Parts::None)?;
    let end = tokio::spawn(run.wait());
    while let Some(update) = updates.next().await? {
        // A question to the asker is recorded too; gates and questions of agents come only this way.
        let Update::Record(record) = update else { continue };
        let Event::ApprovalAsked(asked) = &record.event else { continue };
        if asked.kind != ApprovalKind::Permission {
            println!("{}", asked.message);
            let (id, by) = (asked.id.clone(), "the editor".to_owned());
            let answer = PersonsAnswer { id, allowed: true, text: None, by };
            client.answer(answer).await?;
        }
    }
    let is_completed = matches!(end.await?, RunEnd::Completed(_));
    println!("{} {is_completed}", std::fs::read_to_string(directory.path().join("rain.md"))?);
    Ok(())
}
