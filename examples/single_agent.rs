//! `cargo run --example single_agent`: one agent with one prompt.
//!
//! The model follows a script, so that the example needs no key and no network.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use callsheet::{Launch, Script, Scripted};

const AGENTS: &str = r#"
version = 1

[agents.greeter]
instructions = "You greet people in one sentence."

[tasks.greet]
agent = "greeter"
prompt = "Greet Ada."
"#;

const SCRIPT: &str = r#"
[[rules]]
say = "Good morning, {{ prompt | find('Greet (\\w+)') }}."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let model = Scripted::new(Script::parse(SCRIPT)?);
    let launch = Launch::text(AGENTS, directory.path()).model("default", model)?;
    let end = launch.start().await?.wait().await;
    println!("{}", end.output("greet")?.as_deref().unwrap_or("no answer"));
    Ok(())
}
