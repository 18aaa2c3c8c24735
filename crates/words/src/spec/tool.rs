//! The tools of a configuration: commands that agents call by a name, with arguments of their own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::id::Name;
use crate::schema::Schema;
use crate::spec::OnUnknown;

/// A tool that is a command.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandTool {
    /// The tool's name.
    pub name: Name,
    /// Description of the tool for the model.
    pub description: String,
    /// The program, and templates of its arguments in which `args` is what the model gave. A path
    /// is relative to the workspace root.
    pub command: Vec<String>,
    /// The schema of `args`, of type `object`.
    pub input_schema: Schema,
    /// True if a call that was cut short may simply run again.
    pub idempotent: bool,
    /// What becomes of a call whose outcome nobody knows; `None`: what the task says.
    pub on_unknown: Option<OnUnknown>,
    /// Time limit of a call.
    pub timeout: Duration,
    /// Longest output that a model reads whole.
    pub max_output_bytes: usize,
    /// Folder in which the command runs, relative to the workspace root; empty for the root.
    pub folder: PathBuf,
    /// Environment variables of the command, beside those of all commands.
    pub env: BTreeMap<String, String>,
}

/// Programs that execute a text that they are given, without the numbers of their versions.
const INTERPRETERS: [&str; 18] = [
    "ash", "bash", "bun", "dash", "deno", "fish", "ksh", "lua", "node", "nu", "perl", "php",
    "pwsh", "python", "pypy", "ruby", "sh", "zsh",
];

/// Programs that run the program which their arguments name.
const RUNNERS: [&str; 9] =
    ["env", "ionice", "nice", "nohup", "setsid", "stdbuf", "sudo", "time", "timeout"];

/// Options of interpreters whose value is code.
const CODE: [&str; 6] = ["-p", "-r", "-E", "--command", "--eval", "--print"];

/// Returns true if a program executes text that it is given.
fn interprets(program: &str) -> bool {
    let name = name_of(program);
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

/// Returns the places in a command of the texts that its program may execute as code: the values of
/// `-c` and the like.
pub fn places_of_code(command: &[String]) -> impl Iterator<Item = usize> {
    let is_run = command.first().is_some_and(|program| RUNNERS.contains(&name_of(program)));
    let among = if is_run { command.len() } else { 1 };
    let interpreter = command.iter().take(among).position(|word| interprets(word));
    let is_code = |word: &String| {
        // `-lc` is `-l` and `-c`.
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        CODE.contains(&word.as_str())
            || letters.is_some_and(|letters| letters.ends_with(['c', 'e']))
    };
    let after = interpreter.map_or(command.len(), |interpreter| interpreter + 1);
    let options = command.iter().enumerate().skip(after);
    options.filter(move |(_, word)| is_code(word)).map(|(at, _)| at + 1)
}

/// Returns the words of a command that name a file of code, as far as they are paths: the program,
/// and the first argument of an interpreter.
pub fn code_files(command: &[String]) -> impl Iterator<Item = &str> {
    let program = command.first().map(String::as_str);
    let is_option = |word: &&String| word.starts_with('-');
    let script = command.iter().skip(1).find(|word| !is_option(word)).map(String::as_str);
    let script = script.filter(|_| program.is_some_and(interprets));
    program.filter(|program| program.contains('/')).into_iter().chain(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_commands() {
        for (command, code, files) in [
            ("cargo test -p x", vec![], vec![]),
            ("./bin/x -c y", vec![], vec!["./bin/x"]),
            ("sh -c x", vec![2], vec!["x"]),
            ("/bin/bash -euo pipefail -e -lc x", vec![4, 5], vec!["/bin/bash", "pipefail"]),
            ("python3.12 tools/count.py x", vec![], vec!["tools/count.py"]),
            ("python3 -c x", vec![2], vec!["x"]),
            ("node --eval x", vec![2], vec!["x"]),
            ("timeout 5 sh -c x", vec![4], vec![]),
            ("grep -e sh -c x", vec![], vec![]),
            ("", vec![], vec![]),
        ] {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            assert_eq!(places_of_code(&words).collect::<Vec<_>>(), code, "{command}");
            assert_eq!(code_files(&words).collect::<Vec<_>>(), files, "{command}");
        }
    }
}
