//! Finds what a simple command starts and writes by its arguments: launchers, shells, and options.
//!
//! The knowledge stands in the tables of `options`; here are the rules that apply them, and the few
//! programs whose arguments are a language of their own. Whatever is not certain is an error, which
//! makes the reading unclear.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::call::{Call, is_called, spellings};
use super::options::{
    AWK, AWK_RISKS, COMPARISONS, FIND_RISKS, FIND_RUNS, GIT, GIT_EVERY, GIT_FLAGS, GIT_GETTERS,
    GIT_REMOTE, GIT_SCOPES, LAUNCHERS, Launcher, MOVERS, OTHER_SHELLS, PLAIN, REFUSED, SED_FLAGS,
    SHELLS, SSH, TEE_FLAGS, XARGS, holds, programs,
};
use super::risks::{check, check_loose, curl, database, is_in, risk};
use super::words::Word;
use super::{Parsed, Reader, Reading, may_set, scripts};

/// Judges a program by its own function.
type Judge = fn(&mut Reader, &Call) -> Parsed<()>;

/// Programs that run another one which their words name, as long as a rule spells out that they do.
const CARRIERS: &str = "uv poetry pipenv conda bundle npm npx pnpm yarn docker podman";

/// Programs that run a module by `-m`, which may be that of a program.
const MODULE_RUNNERS: &str = "python";

/// Programs whose arguments no table can describe.
const JUDGES: &[(&str, Judge)] = &[
    (SHELLS, shell),
    (OTHER_SHELLS, shell),
    ("ssh", |_, call| ssh(call)),
    ("xargs", xargs),
    ("find", find),
    ("git", git),
    ("curl", curl),
    ("sqlite sqlite3 psql mysql mariadb", database),
    ("sed", |_, call| sed(call)),
    ("awk mawk nawk", |_, call| awk(call)),
    ("test [", |_, call| test(call)),
    ("printf", |_, call| printf(call)),
    ("read", |_, call| read(call)),
    ("tee", tee),
    ("dd", dd),
];

/// Adds the commands that a command starts and the files that it writes by its arguments.
///
/// # Errors
/// Returns why no rule for a certain command may allow the command.
pub(super) fn inspect(reader: &mut Reader, words: &[Word], depth: usize) -> Parsed<()> {
    let [first, arguments @ ..] = words else { return Ok(()) };
    let name = first.text.rsplit('/').next().unwrap_or_default();
    // Most lines consist of programs that no table names.
    if !spellings(name).any(|name| NAMES.contains(name)) {
        return Ok(());
    }
    let is = |names: &str| is_called(name, names);
    if let Some((_, reason)) = REFUSED.iter().find(|(names, _)| is(names)) {
        return Err(format!("`{name}` {reason}"));
    }
    reader.moves |= is(MOVERS);
    let at = reader.reading.commands.len().saturating_sub(1);
    let call = Call { name, arguments, at, depth };
    if let Some(program) = programs().find(|program| is(program.names)) {
        check(reader, &call, name, arguments, program)?;
    }
    carried(reader, &call)?;
    if let Some(launcher) = LAUNCHERS.iter().find(|launcher| is(launcher.names)) {
        reader.command(launch(&call, launcher)?.command, depth + 1);
    }
    match JUDGES.iter().find(|(names, _)| is(names)) {
        Some((_, judge)) => judge(reader, &call),
        None => Ok(()),
    }
}

/// Judges the words behind the name of a program that another one runs by it: `uv run pytest`.
fn carried(reader: &mut Reader, call: &Call) -> Parsed<()> {
    let is_module = is_called(call.name, MODULE_RUNNERS);
    if !is_module && !is_called(call.name, CARRIERS) {
        return Ok(());
    }
    for (at, word) in call.arguments.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| call.arguments.get(at));
        let runs = |word: &Word| word.text.starts_with('-') && word.text.ends_with('m');
        if is_module && !before.is_some_and(runs) {
            continue;
        }
        let name = word.text.rsplit('/').next().unwrap_or_default();
        if let Some(program) = programs().find(|program| is_called(name, program.names)) {
            check(reader, call, name, &call.arguments[at + 1..], program)?;
        }
        if is_module {
            break;
        }
    }
    Ok(())
}

/// The names that the tables judge.
static NAMES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let tables = [MOVERS].into_iter().chain(programs().map(|program| program.names));
    let tables = tables.chain(LAUNCHERS.iter().map(|launcher| launcher.names));
    let tables = tables.chain(JUDGES.iter().map(|(names, _)| *names));
    let tables = tables.chain(REFUSED.iter().map(|(names, _)| *names));
    tables.flat_map(|names| names.split(' ')).collect()
});

/// Returns true if the tables say what a program can do by its arguments.
pub(in crate::tool::bash) fn is_known(name: &str) -> bool {
    is_called(name, PLAIN) || spellings(name).any(|name| NAMES.contains(name))
}

/// The arguments of a launcher.
struct Launch<'w> {
    /// Its options, with their values.
    options: Vec<(&'static str, &'w str)>,
    /// The words of the command; empty if it runs none.
    command: &'w [Word],
}

/// Parts the options of a launcher from its command.
fn launch<'w>(call: &Call<'w>, launcher: &Launcher) -> Parsed<Launch<'w>> {
    let mut launch = Launch { options: Vec::new(), command: call.arguments };
    let unknown = |text: &str| format!("`{} {text}` is not understood", call.name);
    while let [word, rest @ ..] = launch.command {
        let text = word.text.as_str();
        if !word.literal {
            return Err(unknown(text));
        }
        if launch.options.is_empty() && holds(launcher.queries, text) {
            return Ok(Launch { command: &[], ..launch });
        }
        if !text.starts_with('-') {
            break;
        }
        launch.command = rest;
        if text == "--" {
            break;
        }
        if is_flags(text, launcher.flags) {
            continue;
        }
        let (option, joined) = launcher
            .values
            .split(' ')
            .find_map(|option| Some((option, joined_value(text, option)?)))
            .ok_or_else(|| unknown(text))?;
        let value = match (joined, rest) {
            ("", [value, rest @ ..]) if value.literal => {
                launch.command = rest;
                value.text.as_str()
            }
            ("", _) => return Err(unknown(text)),
            (joined, _) => joined,
        };
        launch.options.push((option, value));
    }
    for _ in 0..launcher.operands {
        if let [word, rest @ ..] = launch.command {
            if !word.literal || word.text.starts_with('-') {
                return Err(unknown(&word.text));
            }
            launch.command = rest;
        }
    }
    Ok(launch)
}

/// Returns true if the text is one of the flags, or short flags joined.
fn is_flags(text: &str, flags: &str) -> bool {
    let is_flag = |c: char| {
        flags.split(' ').any(|flag| flag.strip_prefix('-').is_some_and(|flag| flag.chars().eq([c])))
    };
    holds(flags, text) || text.len() > 1 && text.chars().skip(1).all(is_flag)
}

/// Returns the value that is joined to the option in the text, empty if the text is the option.
fn joined_value<'t>(text: &'t str, option: &str) -> Option<&'t str> {
    let value = text.strip_prefix(option).filter(|_| !option.is_empty())?;
    match option.starts_with("--") && !value.is_empty() {
        true => value.strip_prefix('=').filter(|value| !value.is_empty()),
        false => Some(value),
    }
}

/// Replaces the words in which a program puts arguments of its own.
fn with_unknown(words: &[Word]) -> Vec<Word> {
    let replace = |word: &Word| match word.text.contains("{}") {
        true => Word::unknown(&word.text),
        false => word.clone(),
    };
    words.iter().map(replace).collect()
}

fn xargs(reader: &mut Reader, call: &Call) -> Parsed<()> {
    let launch = launch(call, &XARGS)?;
    let mut command = with_unknown(launch.command);
    if command.is_empty() {
        return Ok(());
    }
    let has = |options: &str| launch.options.iter().any(|(option, _)| holds(options, option));
    if !has("-I") {
        // What it reads stands behind the words: a rule without arguments must not match.
        command.push(Word::unknown("{}"));
    } else if has("-L -n") || launch.options.iter().any(|(o, v)| *o == "-I" && *v != "{}") {
        return Err("`xargs -I` is understood only with `{}`".to_owned());
    }
    reader.command(&command, call.depth + 1);
    Ok(())
}

fn find(reader: &mut Reader, call: &Call) -> Parsed<()> {
    let mut rest = call.arguments;
    while let [word, after @ ..] = rest {
        check_loose(call.name, word)?;
        rest = after;
        if is_in(word, FIND_RISKS) {
            reader.caution(call.at, &word.text, risk(call.name, &word.text));
        }
        if !is_in(word, FIND_RUNS) {
            continue;
        }
        let ends = |at: &usize| match after[*at].text.as_str() {
            ";" => true,
            "+" => *at > 0 && after[*at - 1].text == "{}",
            _ => false,
        };
        let end = (0..after.len()).find(ends).ok_or("the command of `find -exec` does not end")?;
        let command = &after[..end];
        // If this `-exec` is the value of an option, the true one may hide among its words; and a
        // word that expands to `;` may end the command.
        let hides = |word: &Word| {
            is_in(word, FIND_RUNS)
                || is_in(word, FIND_RISKS)
                || !word.literal && (word.loose || word.text.starts_with(['-', ';', '+']))
        };
        if command.is_empty() || command.iter().any(hides) {
            return Err("the command of `find -exec` is not certain".to_owned());
        }
        // The program may run in each folder that is found.
        reader.moves |= word.text == "-execdir";
        reader.command(&with_unknown(command), call.depth + 1);
        rest = &after[end + 1..];
    }
    Ok(())
}

fn shell(reader: &mut Reader, call: &Call) -> Parsed<()> {
    let name = call.name;
    let [first, rest @ ..] = call.arguments else {
        return Err(format!("`{name}` runs what it reads"));
    };
    let unknown = || Err(format!("`{name} {}` is not understood", first.text));
    let Some(letters) = first.text.strip_prefix('-') else {
        let file = first.text.rsplit('/').next().unwrap_or_default();
        // The script would be the input, by the name of its descriptor.
        let is_input = file == "stdin" || file.bytes().all(|b| b.is_ascii_digit());
        return match first.literal && !first.text.starts_with('+') && !is_input {
            true => Ok(()),
            false => unknown(),
        };
    };
    let known = letters.contains('c') && letters.chars().all(|c| "celux".contains(c));
    match rest {
        [text, ..] if first.literal && known && text.literal && holds(SHELLS, name) => {
            if text.text.starts_with(['-', '+']) {
                return unknown();
            }
            reader.text(&text.text, call.depth + 1);
            Ok(())
        }
        _ => unknown(),
    }
}

/// Allows `ssh` for one command. It joins the words, and a shell on the host reads them again.
fn ssh(call: &Call) -> Parsed<()> {
    let command = launch(call, &SSH)?.command;
    if command.is_empty() {
        return Ok(());
    }
    let words: Vec<_> = command.iter().map(|word| word.text.as_str()).collect();
    let mut host = Reader::default();
    host.text(&words.join(" "), call.depth + 1);
    let Reading { commands, writes, unclear, cautions } = host.reading;
    let one = commands.len() == 1 && writes.is_empty() && cautions.is_empty() && unclear.is_none();
    match one && command.iter().all(|word| word.literal) {
        true => Ok(()),
        false => Err("the host reads more than one certain command".to_owned()),
    }
}

fn git(reader: &mut Reader, call: &Call) -> Parsed<()> {
    let mut rest = call.arguments;
    let (subcommand, arguments) = loop {
        rest = match rest {
            [] => return Ok(()),
            [flag, rest @ ..] if flag.literal && is_in(flag, GIT_FLAGS) => rest,
            [option, folder, rest @ ..]
                if option.text == "-C" && !folder.loose && !folder.splits =>
            {
                rest
            }
            [subcommand, arguments @ ..] => break (subcommand, arguments),
        };
    };
    let text = subcommand.text.as_str();
    if !subcommand.literal {
        return Err(format!("the subcommand `git {text}` is not certain"));
    }
    if text == "config" {
        return git_config(arguments);
    }
    let Some(program) = GIT.iter().find(|program| holds(program.names, text)) else {
        return Err(format!("`git {text}` is not known to be harmless; it may be an alias"));
    };
    let name = format!("git {text}");
    let remote = |word: &Word| !word.literal || word.text.contains("::");
    if holds(GIT_REMOTE, text) && arguments.iter().any(remote) {
        return Err(format!("the address of a repository of `{name}` is not certain"));
    }
    let options = match program.words.is_empty() {
        true => before_operands(arguments),
        false => arguments,
    };
    check(reader, call, &name, options, &GIT_EVERY)?;
    check(reader, call, &name, options, program)
}

/// Returns the words before a `--` that surely ends the options, because it is no option's value.
fn before_operands(arguments: &[Word]) -> &[Word] {
    let may_take = |word: &Word| word.text.starts_with('-') || word.loose;
    let ends = |at: &usize| {
        arguments[*at].text == "--" && at.checked_sub(1).is_none_or(|at| !may_take(&arguments[at]))
    };
    &arguments[..(0..arguments.len()).find(ends).unwrap_or(arguments.len())]
}

/// Allows `git config` only with an option that reads.
fn git_config(arguments: &[Word]) -> Parsed<()> {
    let rest = match arguments {
        [scope, rest @ ..] if is_in(scope, GIT_SCOPES) => rest,
        all => all,
    };
    match rest {
        [getter, names @ ..] if is_in(getter, GIT_GETTERS) => {
            match names.iter().find(|name| !name.literal || name.text.starts_with('-')) {
                None => Ok(()),
                Some(option) => Err(risk("git config", &option.text)),
            }
        }
        _ => Err("`git config` can write".to_owned()),
    }
}

fn sed(call: &Call) -> Parsed<()> {
    let (mut scripts, mut operands) = (Vec::new(), Vec::new());
    let mut rest = call.arguments;
    while let [word, after @ ..] = rest {
        rest = after;
        check_loose(call.name, word)?;
        let text = word.text.as_str();
        let Some(letters) = text.strip_prefix('-') else {
            operands.push(word);
            continue;
        };
        let (letters, script) = match letters.strip_suffix('e') {
            Some(letters) => (letters, true),
            None => (letters, false),
        };
        let known = letters.chars().all(|c| "nErsu".contains(c)) || holds(SED_FLAGS, text);
        // Some versions take every word after the first operand as a file.
        if !known || text == "-" || !operands.is_empty() {
            return Err(risk(call.name, text));
        }
        if script {
            let [value, after @ ..] = rest else { return Err(risk(call.name, text)) };
            scripts.push(value);
            rest = after;
        }
    }
    if scripts.is_empty() {
        scripts.extend(operands.first());
    }
    match scripts.iter().find(|script| !script.literal || !scripts::is_plain_sed(&script.text)) {
        None => Ok(()),
        Some(script) => Err(risk(call.name, &script.text)),
    }
}

fn awk(call: &Call) -> Parsed<()> {
    let [program, operands @ ..] = launch(call, &AWK)?.command else { return Ok(()) };
    if !program.literal || AWK_RISKS.iter().any(|part| program.text.contains(part)) {
        return Err(risk(call.name, &program.text));
    }
    for word in operands {
        check_loose(call.name, word)?;
        // Some versions take options after the program too.
        if word.text.starts_with('-') && word.text != "-" {
            return Err(risk(call.name, &word.text));
        }
    }
    Ok(())
}

/// Allows `test` if bash cannot take a word for `-v` or `-R`: it evaluates the word after them as a
/// variable, and with it a command in an index.
fn test(call: &Call) -> Parsed<()> {
    let words = match call.arguments {
        [words @ .., last] if call.name == "[" && last.text == "]" => words,
        words => words,
    };
    let words = match words {
        [not, words @ ..] if not.text == "!" => words,
        words => words,
    };
    for word in words {
        let evaluates = is_in(word, "-v -R");
        if evaluates || word.splits || (!word.literal && word.text.starts_with('-')) {
            return Err(format!("`{}` in a test can be evaluated", word.text));
        }
    }
    let is_unary = |word: &Word| word.literal && word.text.len() == 2 && word.text.starts_with('-');
    let compares = |word: &Word| word.literal && is_in(word, COMPARISONS);
    match words {
        words if !words.iter().any(|word| word.loose) => Ok(()),
        [_] => Ok(()),
        [operator, _] if is_unary(operator) => Ok(()),
        [_, operator, _] if compares(operator) => Ok(()),
        _ => Err("an expansion in a test can be an operator".to_owned()),
    }
}

/// Refuses a `printf` that sets a variable, by `-v` or by the format `%n`.
fn printf(call: &Call) -> Parsed<()> {
    let Some(format) = call.arguments.first() else { return Ok(()) };
    let conversions = format.text.replace("%%", "");
    let counts = conversions.split('%').skip(1).any(|conversion| {
        let conversion = conversion.trim_start_matches(|c| "-+ #0123456789.*'lhjztL".contains(c));
        conversion.starts_with('n')
    });
    match format.literal && !format.text.starts_with('-') && !counts {
        true => Ok(()),
        false => Err("the format of `printf` can set a variable".to_owned()),
    }
}

/// Allows `read` of variables that have no meaning for programs.
fn read(call: &Call) -> Parsed<()> {
    let names = match call.arguments {
        [option, names @ ..] if option.text == "-r" => names,
        names => names,
    };
    match !names.is_empty() && names.iter().all(|name| name.literal && may_set(&name.text)) {
        true => Ok(()),
        false => Err("`read` is understood only with names in small letters".to_owned()),
    }
}

fn tee(reader: &mut Reader, call: &Call) -> Parsed<()> {
    let mut options = true;
    for word in call.arguments {
        let text = word.text.as_str();
        match options && text.starts_with('-') {
            true if word.literal && text == "--" => options = false,
            true if word.literal && holds(TEE_FLAGS, text) => {}
            true => return Err(format!("`tee {text}` is not understood")),
            false => reader.write(word)?,
        }
    }
    Ok(())
}

fn dd(reader: &mut Reader, call: &Call) -> Parsed<()> {
    for word in call.arguments {
        if !word.literal {
            return Err(risk("dd", &word.text));
        }
        if let Some(file) = word.text.strip_prefix("of=") {
            reader.write(&Word::literal(file))?;
        }
    }
    Ok(())
}
