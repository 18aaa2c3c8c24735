//! Drives the shipped survey script by hand: a small loop plays the agents over a real directory,
//! and the shipped check judges the report.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use callsheet::message::{Block, Message, ResultContent, Role, StopReason, ToolResult};
use callsheet::model::script::{Scene, Script};
use callsheet::template;
use serde_json::{Value, json};

const AGENTS: &str = include_str!("../../agents.toml");
const SCRIPT: &str = include_str!("../../scripts/survey.toml");
const CHECK: &str = include_str!("../../scripts/check.sh");

/// The part of the older results that the model can see.
#[derive(Clone, Copy)]
enum View {
    Whole,
    /// As the `three-layer` preset does it, unseen results included.
    LastThreeResults,
}

struct Stage {
    script: Script,
    root: PathBuf,
    view: View,
    /// Every child that was started: its part and the files it read.
    children: Vec<(String, Vec<String>)>,
    /// The most children that were asked for in one turn.
    widest: usize,
}

impl Stage {
    fn new(root: &Path, view: View) -> Self {
        let script = Script::parse(SCRIPT).expect("the shipped script");
        Self { script, root: root.to_owned(), view, children: Vec::new(), widest: 0 }
    }

    /// Surveys and reports, as the tasks of agents.toml do.
    fn run(&mut self, path: &str) -> String {
        let file: Value = toml::from_str(AGENTS).expect("the shipped agents.toml");
        assert_eq!(file["tasks"]["check"]["run"], "sh scripts/check.sh");
        let prompt = |task: &str, values: &Value| {
            let prompt = file["tasks"][task]["prompt"].as_str().expect("a prompt");
            template::render(prompt, values).expect("rendered")
        };
        let mut values = json!({"inputs": {"path": path}});
        let (survey, stop) = self.agent("surveyor", &prompt("survey", &values));
        assert_eq!(stop, StopReason::EndTurn, "{survey}");
        values["tasks"] = json!({"survey": {"output": survey}});
        let prompt = prompt("report", &values);
        self.agent("writer", &prompt).0
    }

    fn agent(&mut self, agent: &str, prompt: &str) -> (String, StopReason) {
        let mut messages = vec![Message::user(prompt)];
        for turn in 1..=200 {
            let view = self.view(&messages);
            let scene =
                Scene { agent, agent_id: agent, turn, system: "", messages: &view, tools: &[] };
            let reply = self.script.reply(&scene).expect("a reply");
            let text = reply.message.text();
            let calls: Vec<_> = reply.message.tool_calls().cloned().collect();
            if calls.is_empty() {
                return (text, reply.stop);
            }
            self.widest =
                self.widest.max(calls.iter().filter(|call| call.name == "delegate").count());
            let mut content = Vec::new();
            for call in calls {
                let (text, is_error) = match self.tool(&call.name, &call.input.to_value()) {
                    Ok(text) => (text, false),
                    Err(text) => (text, true),
                };
                let content_text = ResultContent::Text(text);
                content.push(Block::ToolResult(ToolResult {
                    tool_use_id: call.id,
                    content: content_text,
                    is_error,
                }));
            }
            messages.push(reply.message);
            messages.push(Message { role: Role::User, content });
        }
        panic!("{agent} does not end");
    }

    fn view(&self, messages: &[Message]) -> Vec<Message> {
        let mut view = messages.to_vec();
        if matches!(self.view, View::Whole) {
            return view;
        }
        let names: BTreeMap<String, String> = messages
            .iter()
            .flat_map(Message::tool_calls)
            .map(|call| (call.id.clone(), call.name.clone()))
            .collect();
        let blocks = view.iter_mut().flat_map(|message| &mut message.content);
        let mut results: Vec<&mut ToolResult> = blocks
            .filter_map(|block| match block {
                Block::ToolResult(result) => Some(result),
                _ => None,
            })
            .collect();
        let older = results.len().saturating_sub(3);
        for result in &mut results[..older] {
            if result.text().chars().count() > 100 {
                let text = format!("[Previous: used {}]", names[&result.tool_use_id]);
                result.content = ResultContent::Text(text);
            }
        }
        view
    }

    fn tool(&mut self, name: &str, input: &Value) -> Result<String, String> {
        let text = |key: &str| input[key].as_str().unwrap_or_default().to_owned();
        match name {
            "glob" => {
                assert_eq!(text("pattern"), "**/*");
                let mut files = Vec::new();
                walk(&self.root.join(text("path")), &text("path"), &mut files);
                files.sort();
                Ok(if files.is_empty() { "(no files)".to_owned() } else { files.join("\n") })
            }
            "read_file" => {
                let (_, read) = self.children.last_mut().expect("only children read");
                read.push(text("path"));
                let offset = input.get("offset").map_or(1, |at| at.as_u64().expect("a number"));
                let offset = usize::try_from(offset).expect("small");
                read_file(&self.root.join(text("path")), offset)
            }
            "write_file" => {
                fs::write(self.root.join(text("path")), text("content")).expect("written");
                Ok("ok".to_owned())
            }
            "delegate" => {
                self.children.push((text("description"), Vec::new()));
                let (answer, stop) = self.agent(&text("agent"), &text("prompt"));
                assert_eq!(stop, StopReason::EndTurn);
                let agent = text("agent");
                Ok(json!({"status": "completed", "agent": agent, "text": answer}).to_string())
            }
            other => Err(format!("unknown tool: {other}")),
        }
    }

    fn check(&self, path: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(CHECK).current_dir(&self.root).env("INPUT_PATH", path);
        shell.output().expect("a shell")
    }

    fn report(&self) -> String {
        fs::read_to_string(self.root.join("report.md")).expect("a report")
    }
}

fn walk(dir: &Path, name: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let file_name = entry.file_name().into_string().expect("UTF-8");
        if file_name.starts_with('.') {
            continue;
        }
        let name = if name == "." { file_name } else { format!("{name}/{file_name}") };
        if entry.path().is_dir() {
            walk(&entry.path(), &name, files);
        } else {
            files.push(name);
        }
    }
}

fn read_file(path: &Path, offset: usize) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|_| "binary file".to_owned())?;
    if text.is_empty() {
        return Ok("(empty file)".to_owned());
    }
    let lines: Vec<&str> = text.split_inclusive('\n').skip(offset - 1).collect();
    let mut shown = lines[..lines.len().min(2000)].concat();
    if lines.len() > 2000 {
        shown.push_str(&format!("... ({} more lines)", lines.len() - 2000));
    }
    Ok(shown)
}

fn write(root: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// Makes a tree of everything that is easy to miscount: names with spaces and quotes, an empty
/// file, a last line without its line end, blank lines at the end, files longer than one page,
/// bytes that are not text.
fn awkward_tree(root: &Path) -> (usize, usize) {
    write(root, "my tree/main file.rs", "a\nb\n");
    write(root, "my tree/it's \"quoted\" <&>.txt", "1\n2\n3");
    write(root, "my tree/empty", "");
    write(root, "my tree/blank.c", "x\n\n\n\n");
    write(root, "my tree/long/page.txt", "line\n".repeat(2000));
    write(root, "my tree/long/pages.txt", "line\n".repeat(4501));
    write(root, "my tree/long/ends.txt", format!("{}... (7 more linesx)", "é\n".repeat(10)));
    write(root, "my tree/bytes.bin", [0xff, 0xfe, 0, 1]);
    write(root, "my tree/.hidden/x", "not\nseen\n");
    (7, 2 + 3 + 4 + 2000 + 4501 + 11)
}

fn wide_tree(root: &Path) -> (usize, usize) {
    let mut lines = 0;
    for n in 0..300 {
        write(root, &format!("lib/m{}/f{n}.py", n % 40), "x = 1\n".repeat(n));
        lines += n;
    }
    (300, lines)
}

fn figure(report: &str, name: &str) -> usize {
    let line = report.lines().find_map(|line| line.strip_prefix(&format!("- {name}: ")));
    line.and_then(|line| line.parse().ok()).expect("a figure")
}

#[test]
fn the_report_has_the_true_totals_of_different_trees() {
    type Tree = fn(&Path) -> (usize, usize);
    let trees: [(&str, Tree); 2] = [("my tree", awkward_tree), ("lib/", wide_tree)];
    for (path, tree) in trees {
        for view in [View::Whole, View::LastThreeResults] {
            let root = tempfile::tempdir().expect("a folder");
            let (files, lines) = tree(root.path());
            let mut stage = Stage::new(root.path(), view);
            let said = stage.run(path);
            let report = stage.report();
            assert_eq!((figure(&report, "Files"), figure(&report, "Lines")), (files, lines));
            assert!(said.contains(&format!("{files} files, {lines} lines")), "{said}");
            let check = stage.check(path);
            let talk = String::from_utf8_lossy(&check.stderr);
            assert!(check.status.success(), "{talk}\n{report}");
            assert!(stage.children.len() >= 6 && stage.children.len() <= 100);
            assert!(stage.widest >= 6, "{}", stage.widest);
            assert!(stage.children.iter().all(|(_, read)| !read.is_empty()));
        }
    }
}

#[test]
fn own_sources_are_surveyed_and_the_report_is_left_out() {
    let root = tempfile::tempdir().expect("a folder");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut names = Vec::new();
    walk(&own, "crates", &mut names);
    for name in &names {
        let from = own.parent().expect("a folder").join(name);
        write(root.path(), name, fs::read(from).expect("a source file"));
    }
    write(root.path(), "report.md", "an older report\n");
    let mut stage = Stage::new(root.path(), View::Whole);
    stage.run(".");
    assert_eq!(figure(&stage.report(), "Files"), names.len());
    let check = stage.check(".");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

#[test]
fn the_check_finds_every_wrong_figure() {
    let root = tempfile::tempdir().expect("a folder");
    awkward_tree(root.path());
    let mut stage = Stage::new(root.path(), View::Whole);
    stage.run("my tree");
    let right = stage.report();
    let wrong = [
        (right.replace("- Files: 7", "- Files: 8"), "8 files"),
        (right.replace("- Lines: 6521", "- Lines: 6520"), "6520 lines"),
        (right.replace("\n2 my tree/main file.rs", "\n3 my tree/main file.rs"), "has 2 lines"),
        (right.replace("\n0 my tree/empty", ""), "7 files and lists 6"),
        (
            right.replace("\n0 my tree/empty", "").replace("- Files: 7", "- Files: 6"),
            "empty is left out",
        ),
        (right.replace("\n0 my tree/empty", "\n0 my tree/gone"), "no file my tree/gone"),
        (right.replace("\n0 my tree/empty", "\n2 my tree/main file.rs"), "lines"),
        (right.replace("Parts not read: 0", "Parts not read: 1"), "not read"),
    ];
    for (report, reason) in wrong {
        assert_ne!(report, right, "{reason}");
        write(root.path(), "report.md", report);
        let check = stage.check("my tree");
        assert_eq!(check.status.code(), Some(1), "{reason}");
        let talk = String::from_utf8_lossy(&check.stderr).into_owned();
        assert!(talk.contains(reason), "{talk} lacks {reason}");
    }
    fs::remove_file(root.path().join("report.md")).expect("removed");
    assert_eq!(stage.check("my tree").status.code(), Some(1));
}

#[test]
fn an_unreadable_directory_ends_in_a_refusal() {
    let script = Script::parse(SCRIPT).expect("the shipped script");
    let mut messages = vec![Message::user("Survey it.\nDirectory: nowhere")];
    let scene = |messages: &[Message], turn| {
        let scene =
            Scene { agent: "surveyor", agent_id: "s", turn, system: "", messages, tools: &[] };
        script.reply(&scene).expect("a reply")
    };
    let reply = scene(&messages, 1);
    let id = reply.message.tool_calls().next().expect("a call").id.clone();
    messages.push(reply.message);
    let content = ResultContent::Text("no such directory".to_owned());
    let result = ToolResult { tool_use_id: id, content, is_error: true };
    messages.push(Message { role: Role::User, content: vec![Block::ToolResult(result)] });
    let reply = scene(&messages, 2);
    assert_eq!(reply.stop, StopReason::Refusal(None));
    assert!(reply.message.text().contains("no such directory"));
}
