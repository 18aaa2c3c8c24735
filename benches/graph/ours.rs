//! callsheet on the same graph: a program of its own, with the scripted model.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::SLOTS;

/// Runs the graph as a program, as from a shell script.
pub(crate) fn run(needs: &[Vec<usize>], root: &Path) {
    std::fs::write(root.join("agents.toml"), agents_toml(needs)).expect("a file");
    std::fs::write(root.join("script.toml"), "[[rules]]\nsay = 'done'\n").expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
    command.arg("run").current_dir(root).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().expect("the program starts");
    assert!(status.success(), "{status}");
}

fn agents_toml(needs: &[Vec<usize>]) -> String {
    let mut text = format!(
        r#"
version = 1

[limits]
max_concurrency = {SLOTS}

[providers.offline]
kind = "scripted"
script = "script.toml"
rate_limit = {{ max_concurrency = {SLOTS} }}

[models.default]
provider = "offline"
model = "script"
context_window = 200_000

[agents.worker]
instructions = "Do your part."
"#
    );
    for (task, needs) in needs.iter().enumerate() {
        let names: String = needs.iter().map(|need| format!("'t{need}',")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "[tasks.t{task}]\nagent = 'worker'\nprompt = 'Do part {task}.'\ndepends_on = [{names}]"
        );
    }
    text
}
