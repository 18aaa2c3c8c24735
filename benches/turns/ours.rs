//! The same work done by callsheet: the same agents as tasks of one run.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use callsheet::run::Launch;

use crate::work::{MAX_TOKENS, PROMPT, SYSTEM, batches};

/// Makes the configuration of so many agents, all at work at the same time.
fn agents_toml(agents: usize, url: &str) -> String {
    let mut text = format!(
        r#"
version = 1

[limits]
max_concurrency = {agents}

[providers.loopback]
kind = "anthropic"
base_url = "{url}"
rate_limit = {{ max_concurrency = {agents} }}

[models.default]
provider = "loopback"
model = "bench"
context_window = 200_000
max_output_tokens = {MAX_TOKENS}

[compaction]
preset = "off"                     # what is sent is the whole conversation, as the floor sends it

[agents.reader]
instructions = "{SYSTEM}"
tools = ["read_file"]
"#
    );
    for agent in 0..agents {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[tasks.read-{agent}]\nagent = \"reader\"\nprompt = \"{PROMPT}\"\n");
    }
    text
}

/// Runs in this process. Returns the number of syncs.
pub(crate) fn as_library(agents: usize, url: &str, root: &Path) -> usize {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let end = runtime.block_on(async {
        let run = Launch::text(agents_toml(agents, url), root).start().await;
        run.unwrap_or_else(|error| panic!("{error}")).wait().await
    });
    for agent in 0..agents {
        let task = format!("read-{agent}");
        let output = end.output(&task).expect("it is short");
        assert_eq!(output.as_deref(), Some("The report is read."), "{task}: {end:?}");
    }
    batches(&root.join(".transcripts"))
}

/// Runs as a program of its own, as from a shell script. Returns the number of syncs.
pub(crate) fn as_program(agents: usize, url: &str, root: &Path) -> usize {
    std::fs::write(root.join("agents.toml"), agents_toml(agents, url)).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
    command.arg("run").current_dir(root).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().expect("the program starts");
    assert!(status.success(), "{status}");
    batches(&root.join(".transcripts"))
}
