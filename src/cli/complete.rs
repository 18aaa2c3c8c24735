//! Completions of the command line: the shell asks the program itself, so that runs, tasks and
//! agents are completed from what is there.
//!
//! Prints nothing but candidates: a word that stands for nothing has none.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap_complete::engine::{PathCompleter, ValueCompleter as _};
use clap_complete::env::{CompleteEnv, Shells};
use clap_complete::{ArgValueCompleter, CompletionCandidate};

use super::locate::{Project, default_file, workflow_of};
use super::questions;
use super::short_id::ShortIds;
use super::times::Times;
use crate::config;
use crate::exit::Exit;
use crate::id::Name;
use crate::journal::source::RecordedRun;
use crate::plan::TaskState;
use crate::run_state::RunState;
use crate::show::log_line::cut;

/// The variable by which the shell asks for candidates. Its value is the name of the shell.
const ASKED_BY: &str = "CALLSHEET_COMPLETE";

/// The most runs that are listed: a person reads a screen of them, the newest first.
const MOST_RUNS: usize = 40;

/// The most characters of the help of a candidate: what fits beside one in a row of a terminal.
const WIDEST_HELP: usize = 80;

/// The name of the program in the scripts.
const PROGRAM: &str = "callsheet";

/// Prints candidates if the shell asks for them. Returns `None` if it does not.
pub(super) fn answer(arguments: &[OsString], command: impl Fn() -> clap::Command) -> Option<Exit> {
    std::env::var_os(ASKED_BY)?;
    let environment = CompleteEnv::with_factory(|| with_plain_paths(command())).var(ASKED_BY);
    let here = std::env::current_dir().ok();
    match environment.try_complete(arguments, here.as_deref()) {
        Ok(true) => Some(Exit::Done),
        Ok(false) => None,
        Err(_) => Some(Exit::Usage),
    }
}

/// Returns a command whose arguments that are paths offer those names only that no shell reads as more than a
/// name: what a shell is offered stands on the command line without quotes.
fn with_plain_paths(command: clap::Command) -> clap::Command {
    let plain = |word: &OsStr| -> Vec<_> {
        PathCompleter::any()
            .complete(word)
            .into_iter()
            .filter(|one| is_plain(one.get_value()))
            .collect()
    };
    let with_paths = move |arg: clap::Arg| {
        use clap::ValueHint::{AnyPath, DirPath, ExecutablePath, FilePath};
        let is_path = matches!(arg.get_value_hint(), AnyPath | DirPath | ExecutablePath | FilePath);
        match is_path && arg.get::<ArgValueCompleter>().is_none() {
            true => arg.add(ArgValueCompleter::new(plain)),
            false => arg,
        }
    };
    command.mut_args(with_paths).mut_subcommands(with_plain_paths)
}

/// Returns true for a word in which no shell finds more than a name of a run, a task, an agent, a question or a
/// file: no blank, no expansion, no quote, no operator, and no beginning of an option or of a home.
fn is_plain(word: &OsStr) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./@~[]".contains(&byte);
    let word = word.as_encoded_bytes();
    word.iter().all(|byte| is_of_name(*byte)) && !word.starts_with(b"-") && !word.starts_with(b"~")
}

/// Returns the script that makes a shell ask the program for candidates.
pub(super) fn script(shell: clap_complete::Shell) -> Option<String> {
    let mut script = Vec::new();
    if shell == clap_complete::Shell::Bash {
        // Bash would split `RUN/@AGENT` into words at the `@`, the mark of a host name.
        script.extend_from_slice(b"COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}\n");
    }
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string())?;
    completer.write_registration(ASKED_BY, PROGRAM, PROGRAM, PROGRAM, &mut script).ok()?;
    let script = String::from_utf8(script).ok()?;
    match shell {
        clap_complete::Shell::Bash => without_globbing(&script),
        _ => Some(script),
    }
}

/// Returns the script of bash in which what the program offers is taken as it is: the script splits it without
/// quotes, so that a name with a pattern in it would become that of a file which it matches, whatever that name holds.
/// `None` if the script has another form than the one that is known.
fn without_globbing(script: &str) -> Option<String> {
    let function = format!("_clap_complete_{PROGRAM}");
    let registered = format!("-F {function} ");
    let count = script.matches(&registered).count();
    (count > 0 && script.contains(&format!("{function}() {{"))).then(|| {
        let own = format!("_{PROGRAM}_as_it_is");
        let wrapped = format!(
            "{own}() {{\n    local before=$-\n    set -f\n    {function} \"$@\"\n    local status=$?\n    \
             [[ $before == *f* ]] || set +f\n    return $status\n}}\n"
        );
        wrapped + &script.replace(&registered, &format!("-F {own} "))
    })
}

/// Completes the id of a run, or the name of its workflow.
pub(super) fn runs() -> ArgValueCompleter {
    completer(|here, word| here.runs(word))
}

/// Completes RUN, RUN/TASK and RUN/@AGENT.
pub(super) fn parts() -> ArgValueCompleter {
    completer(|here, word| match word.split_once(['/', '@']) {
        None => {
            let newest = here.has_runs().then(|| "@".to_owned());
            here.runs(word).into_iter().chain(newest.map(CompletionCandidate::new)).collect()
        }
        Some((run, _)) => {
            let state = here.state(run);
            let tasks = state.tasks().map(|(task, _)| format!("{run}/{task}"));
            let at = if run.is_empty() && word.starts_with('@') { "@" } else { "/@" };
            let agents = state.agents().keys().map(|agent| format!("{run}{at}{agent}"));
            tasks.chain(agents).map(CompletionCandidate::new).collect()
        }
    })
}

/// Completes the ids of open questions.
pub(super) fn questions() -> ArgValueCompleter {
    completer(|here, _| {
        let pending = questions::of_all(&here.0);
        let shown = pending.iter().map(|one| {
            let message = one.question.asked.message.lines().next().unwrap_or_default();
            CompletionCandidate::new(questions::short_id(one.id(), &pending))
                .help(Some(help(message).into()))
        });
        shown.collect()
    })
}

/// Completes the agents of the newest run.
pub(super) fn agents() -> ArgValueCompleter {
    completer(|here, _| here.state("").agents().keys().map(candidate).collect())
}

/// Completes the tasks of the newest run.
pub(super) fn tasks_of_run() -> ArgValueCompleter {
    completer(|here, _| here.state("").tasks().map(|(name, _)| candidate(name)).collect())
}

/// Completes the tasks of the newest run that can begin again.
pub(super) fn failed_tasks() -> ArgValueCompleter {
    completer(|here, _| {
        let state = here.state("");
        let is_left = |state: TaskState| {
            matches!(state, TaskState::Failed | TaskState::Cancelled | TaskState::Skipped)
        };
        let left = state.tasks().filter(|(_, task)| is_left(task.state));
        left.map(|(name, _)| candidate(name)).collect()
    })
}

/// Completes the tasks of the configuration file.
pub(super) fn tasks_of_file() -> ArgValueCompleter {
    completer(|here, _| here.names("tasks"))
}

/// Completes the profiles of the configuration file.
pub(super) fn profiles() -> ArgValueCompleter {
    completer(|here, _| here.names("profiles"))
}

/// Completes the models of the configuration file.
pub(super) fn models() -> ArgValueCompleter {
    completer(|here, _| here.names("models"))
}

/// Returns a completer that offers those of the candidates that begin with the word so far.
fn completer(
    all: impl Fn(&Here, &str) -> Vec<CompletionCandidate> + Send + Sync + 'static,
) -> ArgValueCompleter {
    ArgValueCompleter::new(move |word: &OsStr| {
        let word = word.to_string_lossy();
        let all = all(&Here::of_command_line(), &word);
        // A file or a record of somebody else holds any name.
        let fits = |text: &OsStr| text.to_string_lossy().starts_with(&*word) && is_plain(text);
        all.into_iter().filter(|candidate| fits(candidate.get_value())).collect()
    })
}

/// Returns what a shell shows beside a candidate.
fn help(text: &str) -> String {
    cut(text, WIDEST_HELP)
}

fn candidate(name: &impl ToString) -> CompletionCandidate {
    CompletionCandidate::new(name.to_string())
}

/// The project in which the command line is being written.
struct Here(Project);

impl Here {
    /// Reads the flags that tell where the configuration and the runs are.
    fn of_command_line() -> Self {
        let words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").collect();
        let value = |names: &[&str]| {
            let at = words.iter().position(|word| names.iter().any(|name| word == name))?;
            words.get(at + 1).map(PathBuf::from)
        };
        let file = value(&["-f", "--file"]).unwrap_or_else(default_file);
        Self(Project::new(file, value(&["--state-dir"]), Times::new(false)))
    }

    fn has_runs(&self) -> bool {
        !self.0.runs().is_empty()
    }

    /// Returns the newest runs by their short ids, and by their whole ids where the word is the
    /// beginning of one.
    fn runs(&self, word: &str) -> Vec<CompletionCandidate> {
        let runs = self.0.runs();
        let short = ShortIds::of_runs(runs.iter().map(|run| run.name()));
        let whole = |run: &RecordedRun| run.name().starts_with(word) && !word.is_empty();
        let shown = runs.iter().take(MOST_RUNS).map(|run| {
            let id = run.name();
            let text = if whole(run) { id.clone() } else { short.of(&id) };
            let workflow = workflow_of(run).map(|name| help(&name).into());
            CompletionCandidate::new(text).help(workflow)
        });
        shown.collect()
    }

    /// Returns the state of a run, or of the newest one; an empty state if there is none.
    fn state(&self, run: &str) -> RunState {
        let run = self.0.find(Some(run).filter(|run| !run.is_empty()));
        run.map_or_else(|_| RunState::default(), |run| run.state(|_| {}).0)
    }

    /// Returns the names of a table of the configuration file.
    fn names(&self, table: &str) -> Vec<CompletionCandidate> {
        // What the check refuses as a name is none.
        let names = config::names_of(&self.0.sources(), table).into_iter();
        names.filter(|name| Name::new(name).is_ok()).map(CompletionCandidate::new).collect()
    }
}
