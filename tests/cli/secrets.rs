//! Keys and secrets stay where they are: not in commands, not in records, not in outputs.

use std::process::Stdio;

use super::desk::Desk;

const SECRET: &str = "s3cr3t-0123456789";

#[test]
fn a_secret_reaches_neither_commands_nor_records() {
    let agents = r#"
[secrets]
TOKEN = { env = "DESK_TOKEN" }
[agents.worker]
instructions = "Work."
tools = ["bash", "read_file"]
[tasks.job]
agent = "worker"
prompt = "go"
[tasks.command]
run = 'cat note.txt'
"#;
    let script = r#"
[[rules]]
turn = 1
calls = [
  { tool = "bash", input = { command = 'echo "[$DESK_TOKEN]"' } },
  { tool = "read_file", input = { path = "note.txt" } },
]
[[rules]]
say = "{{ last[0].text | trim }} {{ last[1].text | trim }}"
"#;
    let desk = Desk::offline(agents, script);
    desk.write("note.txt", &format!("the token is {SECRET}\n"));
    let mut command = desk.command(&["run", "-v"]);
    let done = command.env("DESK_TOKEN", SECRET).stdin(Stdio::null()).output().expect("runs");
    assert!(done.status.success(), "{done:?}");
    let said = desk.good(&["show", "/job"]);
    assert!(said.contains("[] the token is [redacted]"), "{said}");
    assert!(desk.good(&["show", "/command"]).contains("the token is [redacted]"));
    let mut files = vec![desk.runs().remove(0)];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(&path).expect("a folder").map(|e| e.expect("one").path()),
            );
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            assert!(!text.contains(SECRET), "{}", path.display());
        }
    }
}
