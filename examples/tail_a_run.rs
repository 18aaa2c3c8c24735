//! `cargo run --example tail_a_run`: follows a run, event by event, while it works.
//!
//! The events come from the journal, so any other process can follow the run in the same way.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use callsheet::{Launch, Script, Scripted};

const AGENTS: &str = r#"
version = 1

[agents.poet]
instructions = "You write one line after the other."

[tasks.verse]
agent = "poet"
prompt = "Two lines about rain."
"#;

const SCRIPT: &str = r#"
[[rules]]
turn = 1
say = "It rains on the roof,"
stop = "max_tokens"

[[rules]]
say = " and the roof holds."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let model = Scripted::new(Script::parse(SCRIPT)?);
    let run = Launch::text(AGENTS, directory.path()).model("default", model)?.start().await?;
    let mut events = run.follow()?;
    let end = tokio::spawn(run.wait());
    while let Some(record) = events.next().await? {
        let who = record.agent.as_ref().map_or("-", |agent| agent.as_str());
        println!("{:2} {who:5} {}", record.seq, record.event.kind());
    }
    println!("{}", end.await?.output("verse")?.as_deref().unwrap_or("no answer"));
    Ok(())
}
