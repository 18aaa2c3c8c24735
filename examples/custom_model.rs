//! `cargo run --example custom_model`: a model of your own; this one answers in capital letters.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use callsheet::{
    BoxFuture, Delta, DeltaSink, Launch, Message, Model, ModelError, Reply, Request, StopReason,
    Usage,
};

/// Repeats the last message in capital letters.
struct Echo;

impl Model for Echo {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let heard = request.messages().pop().map(|message| message.text());
            let said = heard.unwrap_or_default().to_uppercase();
            deltas(Delta::Text(&said));
            Ok(Reply::new(Message::assistant(said), StopReason::EndTurn, Usage::default()))
        })
    }
}

const AGENTS: &str = r#"
version = 1

[agents.canyon]
model = "echo"
instructions = "You answer whoever calls."

[tasks.first]
agent = "canyon"
prompt = "hello"

[tasks.second]
agent = "canyon"
depends_on = ["first"]
prompt = "{{ tasks.first.output }}, again"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let launch = Launch::text(AGENTS, directory.path()).model("echo", Echo)?;
    let end = launch.start().await?.wait().await;
    println!("{}", end.output("second")?.as_deref().unwrap_or("no answer"));
    Ok(())
}
