//! The advice for verbs and flags that do not exist: what other programs call them, and which verb has them here.

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, CommandFactory};

use super::args::Arguments;
use crate::config::did_you_mean;

/// The most verbs that are named for a flag that they have: what more have is no pointer.
const MOST_VERBS: usize = 4;

/// Words of other programs, with what does the same here.
type Pointers = [(&'static [&'static str], &'static str)];

const DRY: &str = "`callsheet run --dry-run` prints what a run would do; `callsheet resume --explain` prints what a \
                   resume would do";

/// Verbs of other programs, as they are written here: small, with `-` between words.
const VERBS: &Pointers = &[
    (
        &["retry", "rerun", "restart"],
        "`callsheet resume RUN --retry-failed` reruns what failed; `--retry-failed TASK` one task",
    ),
    (
        &["stop", "kill", "abort", "terminate"],
        "`callsheet cancel RUN` ends a run, and RUN/TASK a task of it; Ctrl-C in its terminal, or SIGTERM to its process, \
         pauses it",
    ),
    (&["continue", "recover"], "`callsheet resume RUN` goes on where a run was stopped"),
    (&["list", "ls", "runs", "history"], "`callsheet ps -a` lists all runs"),
    (
        &["clean", "gc", "rm", "delete", "remove"],
        "`callsheet prune --keep N` removes old runs, and keeps what they cost",
    ),
    (
        &["validate", "lint", "verify"],
        "`callsheet check` finds mistakes, and `callsheet run` launches the graph",
    ),
    (
        &["exec", "execute", "start", "launch", "go", "up"],
        "`callsheet run` launches the graph, and `callsheet run TASK` a task with what it needs",
    ),
    (&["dry-run", "dryrun", "plan", "preview", "simulate"], DRY),
    (&["estimate", "forecast"], "`callsheet check --cost` prints what a run may cost"),
    (
        &["watch", "follow"],
        "`callsheet attach RUN` follows a run, and `callsheet tail -f` its logs",
    ),
    (&["inspect", "describe", "info", "get"], "`callsheet show RUN/TASK` shows one in full"),
    (&["diff", "changes"], "`callsheet show RUN --changes` prints what a run changed"),
    (&["output", "result"], "`callsheet show RUN/TASK --output` prints the output of a task"),
    (&["tree"], "`callsheet ps --tree` draws tasks and agents under their runs"),
    (&["dag", "draw"], "`callsheet graph` draws the tasks"),
    (&["new", "create"], "`callsheet init DIR` writes a first agents.toml"),
    (&["send", "tell", "message"], "`callsheet say RUN/@AGENT TEXT` sends a message to an agent"),
    (&["accept", "allow", "yes"], "`callsheet approve` approves what a run asks for"),
    (&["deny", "refuse", "no"], "`callsheet reject` rejects what a run asks for"),
    (&["bill", "usage", "spend"], "`callsheet cost` prints tokens and money"),
];

/// Flags of other programs, and of other verbs where more is to be said than which.
const FLAGS: &Pointers = &[
    (&["--dry-run", "--dryrun", "--dry", "--what-if", "--noop", "--explain"], DRY),
    (
        &["-d", "--detach", "--background", "--daemon", "--bg"],
        "`callsheet run --detach` (`-d`) goes on when the terminal closes",
    ),
    (
        &["--watch", "-w", "--follow"],
        "`callsheet attach RUN` follows a run, and `callsheet tail -f` its logs",
    ),
    (&["--config", "--config-file", "-c"], "the configuration file is named with `-f FILE`"),
    (&["--only", "--task", "--target"], "`callsheet run TASK` runs a task with what it needs"),
    (
        &["--var", "--param", "--arg", "-e", "-i"],
        "an input of the run is given as `--input NAME=VALUE`",
    ),
    (
        &["--jobs", "-j", "--parallel", "--concurrency", "--max-concurrency", "--workers"],
        "`callsheet run --set limits.max_concurrency=N` bounds how many work at the same time",
    ),
    (
        &["--budget", "--max-budget", "--max-usd"],
        "`callsheet run --max-cost USD` bounds what a run may cost",
    ),
    (
        &["--retry", "--rerun", "--retry-failed"],
        "`callsheet resume RUN --retry-failed` reruns what failed",
    ),
    (&["--resume", "--continue"], "`callsheet resume RUN` goes on where a run was stopped"),
];

/// Returns the advice for arguments that the parser refused, in place of its own where that would mislead.
pub(super) fn advice(error: &mut clap::Error) -> Option<String> {
    of_verb(error).or_else(|| of_flag(error))
}

fn find(pointers: &Pointers, word: &str) -> Option<&'static str> {
    pointers.iter().find(|(words, _)| words.contains(&word)).map(|(_, help)| *help)
}

fn of_verb(error: &mut clap::Error) -> Option<String> {
    let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let word = verb.to_lowercase().replace('_', "-");
    if let Some(help) = find(VERBS, &word) {
        // It proposes verbs that only look alike.
        error.remove(ContextKind::SuggestedSubcommand);
        return Some(help.to_owned());
    }
    let has_own = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(proposed)) => !proposed.is_empty(),
        Some(_) => true,
        None => false,
    };
    // It knows no letters that changed their places.
    let command = Arguments::command();
    let names = command.get_subcommands().flat_map(clap::Command::get_name_and_visible_aliases);
    let near = did_you_mean(&word, names);
    (!has_own && !near.is_empty()).then_some(near)
}

fn of_flag(error: &mut clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = flag.clone();
    // An argument that exists is refused for another reason.
    if error.kind() != clap::error::ErrorKind::UnknownArgument {
        return None;
    }
    // It proposes to hand the flag on as a value, which no verb wants.
    let is_no_value = |value: &ContextValue| value.to_string().contains("as a value");
    if error.get(ContextKind::Suggested).is_some_and(is_no_value) {
        error.remove(ContextKind::Suggested);
    }
    if let Some(help) = find(FLAGS, &flag) {
        // It proposes flags that only look alike.
        if error.remove(ContextKind::SuggestedArg).is_some() {
            // It shows the usage of that flag.
            error.remove(ContextKind::Usage);
        }
        error.remove(ContextKind::Suggested);
        return Some(help.to_owned());
    }
    let is_new = error.get(ContextKind::SuggestedArg).is_none();
    is_new.then(|| of_other_verbs(&flag)).flatten()
}

/// Returns the verbs that have a flag.
fn of_other_verbs(flag: &str) -> Option<String> {
    let is_it = |arg: &Arg| {
        let long = arg.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long));
        let short = arg.get_short().is_some_and(|short| flag == format!("-{short}"));
        !arg.is_hide_set() && (long || short)
    };
    let command = Arguments::command();
    let verbs = command.get_subcommands().filter(|verb| verb.get_arguments().any(is_it));
    let verbs: Vec<_> = verbs.map(|verb| format!("`callsheet {}`", verb.get_name())).collect();
    let is_pointer = (1..=MOST_VERBS).contains(&verbs.len());
    is_pointer.then(|| format!("`{flag}` is a flag of {}", verbs.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advised(arguments: &[&str]) -> String {
        let all = std::iter::once("callsheet").chain(arguments.iter().copied());
        let parsed = <Arguments as clap::Parser>::try_parse_from(all);
        let mut error = parsed.expect_err("refused");
        let help = advice(&mut error).unwrap_or_default();
        format!("{error}{help}")
    }

    #[test]
    fn no_pointer_stands_for_what_exists() {
        let command = Arguments::command();
        let names = command.get_subcommands().flat_map(clap::Command::get_name_and_visible_aliases);
        let names: Vec<_> = names.collect();
        for word in VERBS.iter().flat_map(|(words, _)| *words) {
            assert!(!names.contains(word), "{word}");
        }
    }

    #[test]
    fn what_is_pointed_to_exists() {
        let command = Arguments::command();
        for (_, help) in VERBS.iter().chain(FLAGS) {
            for code in help.split('`').skip(1).step_by(2) {
                let mut words = code.split(' ');
                if words.next() != Some("callsheet") {
                    continue;
                }
                let verb = words.next().expect("a verb");
                let verb = command.find_subcommand(verb).unwrap_or_else(|| panic!("{code}"));
                for flag in words.filter_map(|word| word.strip_prefix("--")) {
                    let has = verb.get_arguments().any(|arg| arg.get_long() == Some(flag));
                    assert!(has, "{code}");
                }
            }
        }
    }

    #[test]
    fn words_of_others_have_an_answer() {
        for (arguments, says) in [
            (&["dry-run"][..], "`callsheet run --dry-run`"),
            (&["dry_run"], "`callsheet run --dry-run`"),
            (&["exec"], "`callsheet run` launches"),
            (&["rnu"], "did you mean `run`?"),
            (&["run", "--explain"], "`callsheet resume --explain`"),
            (&["check", "-d"], "`callsheet run --detach` (`-d`)"),
            (&["check", "--keep-going"], "`--keep-going` is a flag of `callsheet run`"),
            (&["run", "-j", "4"], "limits.max_concurrency=N"),
            (&["run", "--dry-rum"], "--dry-run"),
        ] {
            let told = advised(arguments);
            assert!(told.contains(says), "{arguments:?}: {told}");
            assert!(!told.contains("as a value"), "{told}");
        }
        assert!(!advised(&["run", "--explain"]).contains("--plan"));
    }
}
