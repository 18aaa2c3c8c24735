//! Conversations of an agent at work, made from a seed: several tasks, one after the other.

use callsheet::message::Json;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::tree::{self, Tree};

/// Most lines of a file that one read shows, from its beginning.
const READ_LINES: usize = 160;
/// Most lines that a search shows.
const FOUND_LINES: usize = 40;

/// A conversation and the system prompt under which it was held.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// The system prompt.
    pub(crate) system: String,
    /// Its messages, in Anthropic form, from a request to the last report.
    pub(crate) messages: Vec<Json>,
}

impl Conversation {
    /// Makes a conversation of about so many tokens, four characters each. The same seed always
    /// gives the same conversation.
    pub(crate) fn at_work(seed: u64, tokens: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let tree = Tree::grown(&mut rng);
        let mut work = Work { rng, tree, messages: Vec::new(), chars: 0, calls: 0, done: vec![] };
        while work.chars / 4 < tokens {
            work.task(tokens * 4);
        }
        let system = "You are a careful engineer. You work in the repository at /srv/shop. You \
                      read before you change anything, and you run the tests after it.";
        Self { system: system.to_owned(), messages: work.messages }
    }

    /// Returns its size in tokens, four characters each.
    pub(crate) fn tokens(&self) -> usize {
        self.messages.iter().map(|json| json.as_str().chars().count()).sum::<usize>() / 4
    }
}

/// A tool call and its result.
struct Call {
    tool: &'static str,
    input: Value,
    result: String,
}

impl Call {
    fn bash(command: &str, result: String) -> Self {
        Self { tool: "bash", input: json!({"command": command}), result }
    }
}

/// The task that the agent works on.
#[derive(Debug)]
struct Task {
    /// The files that it is about, the most important first.
    files: Vec<usize>,
    test: String,
    test_command: String,
    /// A script that shows the fault, line by line.
    script: Vec<String>,
    /// The files that the agent has read, and the line from which it read each.
    read: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct Work {
    rng: Rng,
    tree: Tree,
    messages: Vec<Json>,
    chars: usize,
    calls: usize,
    /// The files of the tasks before.
    done: Vec<usize>,
}

impl Work {
    /// Makes one task from its request to its report, or until there are that many characters.
    fn task(&mut self, most_chars: usize) {
        let mut task = self.ask();
        self.list(&task);
        self.search(&task);
        self.read(&mut task);
        self.reproduce(&task);
        for _ in 0..self.rng.usize(6..26) {
            if self.chars >= most_chars {
                break;
            }
            match self.rng.u8(..20) {
                0..=4 => self.read(&mut task),
                5..=7 => self.search(&task),
                8..=12 => self.edit(&task),
                13..=16 => self.test(&task),
                17 | 18 => self.reproduce(&task),
                _ => self.list(&task),
            }
        }
        self.test(&task);
        let said = self.remarks(&task, 4);
        self.push("assistant", json!([{"type": "text", "text": said}]));
        self.done.extend(task.files);
    }

    fn ask(&mut self) -> Task {
        let rng = &mut self.rng;
        let area = rng.usize(..self.tree.files.len() / 8) * 8;
        let mut files: Vec<usize> = (0..3).map(|_| area + rng.usize(..8)).collect();
        files.push(rng.usize(..self.tree.files.len()));
        let test = format!("test_{}", tree::symbol(rng));
        let file = &self.tree.files[files[0]];
        let test_path = file.path.replace("src/", "tests/test_");
        let test_command = format!("python -m pytest {test_path} -k {test} -x -q");
        let from = file.path.trim_start_matches("src/").trim_end_matches(".py").replace('/', ".");
        let name = self.tree.symbol(rng, files[0]).to_owned();
        let mut script = vec![format!("from {from} import {name}")];
        let lines = rng.usize(4..12);
        script.extend((0..lines).map(|_| {
            let call = tree::statement(rng, &file.symbols);
            call.trim().trim_end_matches(':').to_owned()
        }));
        script.push(format!("print({name}({}))", tree::noun(rng)));
        let mut request = format!(
            "`{name}` in {} {}. {} Please find out why and correct it; `{test_command}` must pass.",
            file.path,
            tree::trouble(rng),
            self.tree.remark(rng, files[1])
        );
        if let Some(before) = rng.choice(&self.done) {
            let path = &self.tree.files[*before].path;
            request.push_str(&format!(" It may have to do with what you did in {path}."));
        }
        self.push("user", json!(request));
        Task { files, test, test_command, script, read: Vec::new() }
    }

    /// Chooses a file of the task; now and then a file of an earlier task.
    fn file(&mut self, task: &Task) -> usize {
        if self.rng.u8(..10) == 0
            && let Some(before) = self.rng.choice(&self.done)
        {
            return *before;
        }
        // The first file is the most likely.
        let last = task.files.len();
        task.files[self.rng.usize(..last).min(self.rng.usize(..last))]
    }

    fn list(&mut self, task: &Task) {
        let file = self.file(task);
        let folder = self.tree.files[file].path.rsplit_once('/').map_or("src", |(dir, _)| dir);
        let folder = if self.rng.u8(..4) == 0 { "src" } else { folder };
        let paths = self.tree.files.iter().filter(|file| file.path.starts_with(folder));
        let listed = paths.map(|file| {
            let size: usize = file.lines.iter().map(|line| line.len() + 1).sum();
            format!("-rw-r--r-- 1 dev dev {size:>6} {}", file.path)
        });
        let call = Call::bash(
            &format!("cd /srv/shop && find {folder} -name '*.py' -exec ls -l {{}} +"),
            listed.collect::<Vec<_>>().join("\n"),
        );
        self.turn(task, vec![call]);
    }

    fn search(&mut self, task: &Task) {
        let file = self.file(task);
        let name = self.tree.symbol(&mut self.rng, file).to_owned();
        let mut found = self.tree.found(&name);
        found.truncate(FOUND_LINES);
        if found.is_empty() {
            found.push("no matches".to_owned());
        }
        let input = json!({"pattern": name, "path": "src"});
        self.turn(task, vec![Call { tool: "grep", input, result: found.join("\n") }]);
    }

    fn read(&mut self, task: &mut Task) {
        let files = 1 + usize::from(self.rng.u8(..6) == 0);
        let calls = (0..files).map(|_| {
            let file = self.file(task);
            let lines = &self.tree.files[file].lines;
            let from = self.rng.usize(..lines.len().saturating_sub(READ_LINES) + 1);
            task.read.push((file, from));
            let shown = &lines[from..lines.len().min(from + READ_LINES)];
            let path = &self.tree.files[file].path;
            let input = json!({"path": path, "offset": from + 1, "limit": READ_LINES});
            Call { tool: "read_file", input, result: shown.join("\n") }
        });
        let calls = calls.collect::<Vec<_>>();
        self.turn(task, calls);
    }

    /// Changes a few lines of a file that was read, most likely the latest.
    fn edit(&mut self, task: &Task) {
        let rng = &mut self.rng;
        let reads = task.read.len();
        let (file, from) = task.read[rng.usize(..reads).max(rng.usize(..reads))];
        let changed = &mut self.tree.files[file];
        let at = rng.usize(from..changed.lines.len().min(from + READ_LINES));
        let to = changed.lines.len().min(at + rng.usize(1..5));
        let old = changed.lines[at..to].to_vec();
        let mut new = old.clone();
        let added = rng.usize(1..5);
        new.extend((0..added).map(|_| tree::statement(rng, &changed.symbols)));
        if rng.bool() {
            new.remove(0);
        }
        let input = json!({
            "path": changed.path,
            "old_string": old.join("\n"),
            "new_string": new.join("\n"),
        });
        let result = if rng.u8(..8) == 0 {
            format!("Error: old_string was not found in {}; read the file again", changed.path)
        } else {
            changed.lines.splice(at..to, new);
            format!("{} was changed at line {}", changed.path, at + 1)
        };
        self.turn(task, vec![Call { tool: "edit_file", input, result }]);
    }

    fn test(&mut self, task: &Task) {
        let mut result = "============ test session starts ============\n".to_owned();
        let path = self.tree.files[task.files[0]].path.replace("src/", "tests/test_");
        for _ in 0..self.rng.usize(3..40) {
            result.push_str(&format!("{path}::test_{} PASSED\n", tree::symbol(&mut self.rng)));
        }
        if self.rng.u8(..3) > 0 {
            result.push_str(&format!("{path}::{} FAILED\n", task.test));
            result.push_str(&self.traceback(task));
        }
        let call = Call::bash(&format!("cd /srv/shop && {}", task.test_command), result);
        self.turn(task, vec![call]);
    }

    /// Runs the script with another line of it replaced each time.
    fn reproduce(&mut self, task: &Task) {
        let mut script = task.script.clone();
        let at = self.rng.usize(1..script.len());
        let symbols = &self.tree.files[task.files[0]].symbols;
        script[at] = tree::statement(&mut self.rng, symbols).trim().to_owned();
        let command = format!("cd /srv/shop && python - <<'END'\n{}\nEND", script.join("\n"));
        let result = if self.rng.u8(..4) == 0 {
            format!("{} {}", tree::noun(&mut self.rng), self.rng.u16(..))
        } else {
            self.traceback(task)
        };
        self.turn(task, vec![Call::bash(&command, result)]);
    }

    fn traceback(&mut self, task: &Task) -> String {
        let mut text = "Traceback (most recent call last):\n".to_owned();
        for _ in 0..self.rng.usize(2..9) {
            let file = self.file(task);
            let name = self.tree.symbol(&mut self.rng, file);
            let file = &self.tree.files[file];
            let at = self.rng.usize(..file.lines.len());
            let (path, line) = (&file.path, file.lines[at].trim());
            text.push_str(&format!(
                "  File \"/srv/shop/{path}\", line {at}, in {name}\n    {line}\n"
            ));
        }
        let (noun, trouble) = (tree::noun(&mut self.rng), tree::trouble(&mut self.rng));
        text + &format!("ValueError: {noun} {trouble}")
    }

    fn remarks(&mut self, task: &Task, most: usize) -> String {
        let remarks = (0..self.rng.usize(1..=most)).map(|_| {
            let file = self.file(task);
            self.tree.remark(&mut self.rng, file)
        });
        remarks.collect::<Vec<_>>().join(" ")
    }

    /// Adds a reply with these calls, and their results.
    fn turn(&mut self, task: &Task, calls: Vec<Call>) {
        let said = self.remarks(task, 3);
        let mut reply = vec![json!({"type": "text", "text": said})];
        let mut results = Vec::new();
        for Call { tool, input, result } in calls {
            self.calls += 1;
            let id = format!("call_{}", self.calls);
            reply.push(json!({"type": "tool_use", "id": id, "name": tool, "input": input}));
            results.push(json!({"type": "tool_result", "tool_use_id": id, "content": result}));
        }
        self.push("assistant", json!(reply));
        self.push("user", json!(results));
    }

    fn push(&mut self, role: &str, content: Value) {
        let json = Json::encode(&json!({"role": role, "content": content}));
        self.chars += json.as_str().chars().count();
        self.messages.push(json);
    }
}
