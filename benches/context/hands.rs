//! The tools of an agent: how each says what it does, and what it gets back.

use fastrand::Rng;
use serde_json::json;

use super::grammar::{chance, pick};
use super::outputs::Output;
use super::project::Project;
use super::talk::Call;

/// Most characters of a result for a shell: the middle of a longer one is left out.
const SHELL_CHARS: usize = 10_000;

/// Tools of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hands {
    /// One tool for shell commands.
    Shell,
    /// A tool for each kind of work, and several calls in a turn.
    Tools,
}

/// What an agent does in one call.
#[derive(Debug)]
pub(crate) enum Act {
    List {
        folder: String,
    },
    Find {
        name: String,
    },
    Read {
        file: usize,
        from: usize,
        lines: usize,
    },
    Write {
        path: String,
        lines: Vec<String>,
    },
    /// An edit that was made at this line, or that found its place missing.
    Edit {
        path: String,
        at: Option<usize>,
        old: Vec<String>,
        new: Vec<String>,
    },
    Run {
        command: String,
        output: Output,
    },
    Todo {
        items: Vec<(String, &'static str)>,
    },
}

impl Hands {
    /// Returns the call that does this.
    pub(crate) fn call(self, rng: &mut Rng, project: &Project, act: Act) -> Call {
        match self {
            Self::Shell => {
                let (command, (output, code)) = in_shell(rng, project, act);
                let is_prefixed = chance(rng, 25);
                let prefix =
                    if is_prefixed { format!("cd {} && ", project.root) } else { String::new() };
                let input = json!({"command": format!("{prefix}{command}")});
                Call::new("bash", input, wrapped(&output, code))
            }
            Self::Tools => by_tool(rng, project, act),
        }
    }
}

/// Puts what a command printed into the tags of a shell tool.
fn wrapped(output: &str, code: u8) -> String {
    let chars = output.chars().count();
    if chars <= SHELL_CHARS {
        return format!("<returncode>{code}</returncode>\n<output>\n{output}\n</output>");
    }
    let head: String = output.chars().take(SHELL_CHARS / 2).collect();
    let tail: String = output.chars().skip(chars - SHELL_CHARS / 2).collect();
    format!(
        "<returncode>{code}</returncode>\n<output_head>\n{head}\n</output_head>\n<elided_chars>\n{} characters elided\n\
         </elided_chars>\n<output_tail>\n{tail}\n</output_tail>",
        chars - SHELL_CHARS
    )
}

fn listed(rng: &mut Rng, project: &Project, folder: &str) -> Vec<String> {
    let files = project.files.iter().filter(|file| file.path.starts_with(folder));
    let listed = files.map(|file| {
        let bytes: usize = file.lines.iter().map(|line| line.len() + 1).sum();
        (bytes, file.path.clone())
    });
    let is_long = chance(rng, 50);
    let line = |(bytes, path)| {
        if is_long { format!("-rw-r--r-- 1 dev dev {bytes:>7} {path}") } else { path }
    };
    listed.map(line).collect()
}

fn in_shell(rng: &mut Rng, project: &Project, act: Act) -> (String, Output) {
    match act {
        Act::List { folder } => {
            let command = match rng.u8(..3) {
                0 => format!("ls -R {folder}"),
                1 => format!("find {folder} -type f | head -n 100"),
                _ => format!("ls -l {folder}/*"),
            };
            (command, (listed(rng, project, &folder).join("\n"), 0))
        }
        Act::Find { name } => {
            let command = match rng.u8(..3) {
                0 => format!("grep -rn \"{name}\" ."),
                1 => format!("grep -rn '{name}' --include='*' . | head -n 40"),
                _ => format!("rg -n {name}"),
            };
            let mut found = project.found(&name);
            found.truncate(40);
            let code = u8::from(found.is_empty());
            (command, (found.join("\n"), code))
        }
        Act::Read { file, from, lines } => {
            let file = &project.files[file];
            let to = file.lines.len().min(from + lines);
            let shown = &file.lines[from..to];
            match rng.u8(..4) {
                0 if from == 0 && to == file.lines.len() => {
                    (format!("cat {}", file.path), (shown.join("\n"), 0))
                }
                1 => {
                    let numbered = shown.iter().enumerate();
                    let numbered =
                        numbered.map(|(at, line)| format!("{:>6}\t{line}", from + at + 1));
                    let command = format!("nl -ba {} | sed -n '{},{to}p'", file.path, from + 1);
                    (command, (numbered.collect::<Vec<_>>().join("\n"), 0))
                }
                _ => (format!("sed -n '{},{to}p' {}", from + 1, file.path), (shown.join("\n"), 0)),
            }
        }
        Act::Write { path, lines } => {
            let mark = pick(rng, &["EOF", "END", "PY", "EOL"]);
            let text = lines.join("\n");
            let command = match rng.bool() {
                true => format!("cat <<'{mark}' > {path}\n{text}\n{mark}"),
                false => format!("cat > {path} << '{mark}'\n{text}\n{mark}"),
            };
            (command, (String::new(), 0))
        }
        Act::Edit { path, at, old, new } => {
            let is_line =
                old.len() == 1 && new.len() == 1 && !old[0].contains(['/', '\'', '&', '[', '*']);
            if is_line && !new[0].contains(['/', '\'', '&']) {
                let command = format!("sed -i 's/{}/{}/' {path}", old[0].trim(), new[0].trim());
                return (command, (String::new(), 0));
            }
            let (old, new) = (old.join("\n"), new.join("\n"));
            let mut lines = vec!["python3 - <<'PY'".to_owned(), format!("path = \"{path}\"")];
            lines.push("text = open(path).read()".to_owned());
            lines.push(format!("old = '''{old}'''\nnew = '''{new}'''"));
            lines.push("assert old in text".to_owned());
            lines.push(format!("open('{path}', 'w').write(text.replace(old, new, 1))\nPY"));
            let output = match at {
                Some(_) => (String::new(), 0),
                None => ("Traceback (most recent call last):\n  File \"<stdin>\", line 5, in <module>\nAssertionError".to_owned(), 1),
            };
            (lines.join("\n"), output)
        }
        Act::Run { command, output } => (command, output),
        Act::Todo { items } => {
            let lines = items.into_iter().map(|(text, status)| {
                format!("- [{}] {text}", if status == "completed" { "x" } else { " " })
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            (format!("cat > plan.md <<'EOF'\n{text}\nEOF"), (String::new(), 0))
        }
    }
}

fn by_tool(rng: &mut Rng, project: &Project, act: Act) -> Call {
    let absolute = |path: &str| {
        if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", project.root) }
    };
    match act {
        Act::List { folder } => {
            let input = json!({"pattern": format!("{folder}/**/*")});
            let listed = project.files.iter().filter(|file| file.path.starts_with(&folder));
            let listed = listed.map(|file| absolute(&file.path)).collect::<Vec<_>>();
            Call::new("Glob", input, listed.join("\n"))
        }
        Act::Find { name } => {
            let input = json!({"pattern": name, "path": project.root, "output_mode": "content", "-n": true});
            let mut found = project.found(&name);
            found.truncate(60);
            let found =
                if found.is_empty() { "No matches found".to_owned() } else { found.join("\n") };
            Call::new("Grep", input, found)
        }
        Act::Read { file, from, lines } => {
            let file = &project.files[file];
            let shown = file.lines.iter().enumerate().skip(from).take(lines);
            let shown = shown.map(|(at, line)| format!("{:>6}→{line}", at + 1));
            let mut input = json!({"file_path": absolute(&file.path)});
            if from > 0 || lines < file.lines.len() {
                input["offset"] = json!(from + 1);
                input["limit"] = json!(lines);
            }
            Call::new("Read", input, shown.collect::<Vec<_>>().join("\n"))
        }
        Act::Write { path, lines } => {
            let path = absolute(&path);
            let input = json!({"file_path": path, "content": lines.join("\n")});
            Call::new("Write", input, format!("File created successfully at: {path}"))
        }
        Act::Edit { path, at, old, new } => {
            let path = absolute(&path);
            let input = json!({"file_path": path, "old_string": old.join("\n"), "new_string": new.join("\n")});
            let Some(at) = at else {
                let text = format!(
                    "<tool_use_error>String to replace not found in file.\nString: {}</tool_use_error>",
                    old.join("\n")
                );
                return Call { is_error: true, ..Call::new("Edit", input, text) };
            };
            let shown = new.iter().enumerate().map(|(n, line)| format!("{:>6}→{line}", at + n + 1));
            let shown = shown.collect::<Vec<_>>().join("\n");
            Call::new(
                "Edit",
                input,
                format!(
                    "The file {path} has been updated. Here's the result of running `cat -n` on a snippet of the edited file:\n{shown}"
                ),
            )
        }
        Act::Run { command, output: (text, code) } => {
            let described = format!(
                "{} {}",
                pick(rng, &["Run", "Check", "Try"]),
                command.split(' ').next().unwrap_or_default()
            );
            let input = json!({"command": command, "description": described});
            let text = if code == 0 { text } else { format!("Exit code {code}\n{text}") };
            Call { is_error: code != 0, ..Call::new("Bash", input, text) }
        }
        Act::Todo { items } => {
            let todos = items.into_iter().map(|(text, status)| {
                json!({"content": text, "status": status, "activeForm": format!("Working: {text}")})
            });
            let input = json!({"todos": todos.collect::<Vec<_>>()});
            Call::new(
                "TodoWrite",
                input,
                "Todos have been modified successfully. Ensure that you continue to use the todo list.",
            )
        }
    }
}
