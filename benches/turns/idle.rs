//! The memory of an idle agent: many agents whose model never answers.

use std::fmt::Write;

use callsheet::event::Event;
use callsheet::model::{BoxFuture, DeltaSink, Model, ModelError, Reply, Request};
use callsheet::run::Launch;

use crate::measure;

struct Silent;

impl Model for Silent {
    fn call<'a>(
        &'a self,
        _: Request,
        _: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(std::future::pending())
    }
}

/// The measured process: prints its memory in kB when all agents wait.
pub(crate) fn run(agents: &str, ground: &str) {
    let agents: usize = agents.parse().expect("a number of agents");
    let mut text = format!(
        "version = 1\n[limits]\nmax_concurrency = {agents}\n[agents.idler]\ninstructions = \"Wait.\"\n"
    );
    for agent in 0..agents {
        let _ = write!(text, "[tasks.wait-{agent}]\nagent = \"idler\"\nprompt = \"Wait.\"\n");
    }
    let directory = crate::work::directory(ground);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let launch = Launch::text(text, &directory).model("default", Silent);
        let run = launch.expect("a name").start().await;
        let run = run.unwrap_or_else(|error| panic!("{error}"));
        let mut events = run.follow().expect("the journal");
        let mut waiting = 0;
        while waiting < agents {
            let record = events.next().await.expect("the journal").expect("the run goes on");
            waiting += usize::from(matches!(record.event, Event::ModelRequested(_)));
        }
        println!("{}", measure::own_memory_kb());
    });
    // The agents never end.
    std::process::exit(0);
}
