//! `cargo run --example fan_out`: an agent delegates parts of its work to children and joins their
//! answers.
//!
//! The three children work at the same time. The parent reads their answers in the order of its
//! calls.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use callsheet::{Launch, Script, Scripted};

const AGENTS: &str = r#"
version = 1

[agents.editor]
instructions = "You have every chapter summarised by a reader of its own, and join the lines."
sub_agents = ["reader"]

[agents.reader]
description = "Summarises one chapter in one line"
instructions = "You summarise one chapter in one line."

[permissions]
allow = ["delegate"]

[tasks.summary]
agent = "editor"
prompt = "Summarise: arrival, storm, harbour"
"#;

const SCRIPT: &str = r#"
[[rules]]
agent = "editor"
turn = 1

[[rules.calls]]
tool = "delegate"
for_each = "['arrival', 'storm', 'harbour']"
as = "chapter"
input = { agent = "reader", prompt = "Chapter: {{ chapter }}" }

[[rules]]
agent = "editor"
say = "{% for result in last %}{{ (result.text | from_json).text }}\n{% endfor %}"

[[rules]]
agent = "reader"
say = "{{ prompt | find('Chapter: (.*)') }}, in one line"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let model = Scripted::new(Script::parse(SCRIPT)?);
    let launch = Launch::text(AGENTS, directory.path()).model("default", model)?;
    let end = launch.start().await?.wait().await;
    println!("{}", end.output("summary")?.as_deref().unwrap_or("no answer"));
    Ok(())
}
