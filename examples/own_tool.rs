//! `cargo run --example own_tool`: a tool written in Rust, which agents call like a built-in tool.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use callsheet::{
    BadName, BoxFuture, Effect, Json, Launch, Name, Script, Scripted, Tool, ToolContext, ToolError,
    ToolOutput, ToolSpec, arguments,
};
use serde::Deserialize;

/// Counts the letters of a word.
struct Letters {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    word: String,
}

impl Letters {
    fn new() -> Result<Self, BadName> {
        let spec = ToolSpec {
            name: Name::new("letters")?,
            description: "Counts the letters of a word.".to_owned(),
            input_schema: Json::encode(&serde_json::json!({
                "type": "object",
                "properties": { "word": { "type": "string" } },
                "required": ["word"],
                "additionalProperties": false
            })),
            effect: Effect::Pure,
            reads_only: true,
        };
        Ok(Self { spec })
    }
}

impl Tool for Letters {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, input: Json, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Arguments { word } = arguments(&input)?;
            Ok(ToolOutput::ok(word.chars().count().to_string()))
        })
    }
}

const AGENTS: &str = r#"
version = 1

[agents.speller]
instructions = "You answer questions about words."
tools = ["letters"]

[permissions]
allow = ["letters"]

[tasks.count]
agent = "speller"
prompt = "How many letters has `actor`?"
"#;

const SCRIPT: &str = r#"
[[rules]]
turn = 1
calls = [{ tool = "letters", input = { word = "{{ prompt | find('`(.*)`') }}" } }]

[[rules]]
last_tool = "letters"
say = "`{{ last[0].input.word }}` has {{ last[0].text }} letters."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let model = Scripted::new(Script::parse(SCRIPT)?);
    let launch = Launch::text(AGENTS, directory.path()).model("default", model)?;
    let end = launch.tool(Letters::new()?).start().await?.wait().await;
    println!("{}", end.output("count")?.as_deref().unwrap_or("no answer"));
    Ok(())
}
