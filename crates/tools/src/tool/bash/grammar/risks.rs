//! Finds the arguments by which a known program runs another one or writes anywhere.
//!
//! Such an argument is noted, so that only a rule which spells it out allows it. What expansion may
//! turn into such an argument is an error, which makes the reading unclear.

use super::call::Call;
use super::options::holds;
use super::row::{Operands, Program};
use super::words::Word;
use super::{Parsed, Reader};

/// Options after which, alone, a program runs nothing.
const QUERIES: &str = "--version -V -v --help -h -l --list";

/// Options of `sqlite3` that take no value and do no harm.
const SQLITE_FLAGS: &str = "-readonly -safe -batch -bail -header -noheader -csv -json -column -line \
    -list -html -markdown -table -box -tabs -quote -ascii";

/// Words of SQL by which `sqlite3` opens or writes another file, or runs code.
const SQL_RISKS: &[&str] = &["attach", "writefile", "load_extension", "vacuum", "edit("];

pub(super) fn is_in(word: &Word, list: &str) -> bool {
    holds(list, &word.text)
}

pub(super) fn risk(name: &str, text: &str) -> String {
    format!("`{name} {text}` can run a command or write a file, and no rule spells it out")
}

/// Refuses a word that expansion may turn into an option.
pub(super) fn check_loose(name: &str, word: &Word) -> Parsed<()> {
    match word.loose || (!word.literal && word.text.starts_with('-')) {
        true => Err(format!("`{}` may expand to an option of `{name}`", word.text)),
        false => Ok(()),
    }
}

/// Notes the arguments that the table names.
///
/// # Errors
/// Returns why an argument may be one of these, or is no word that a rule can hold.
pub(super) fn check(
    reader: &mut Reader,
    call: &Call,
    name: &str,
    arguments: &[Word],
    program: &Program,
) -> Parsed<()> {
    if program.operands == Operands::Script {
        return script(reader, call, program);
    }
    let only_options =
        program.operands == Operands::Any && program.words.is_empty() && program.begins.is_empty();
    let mut operands = 0;
    for (at, word) in arguments.iter().enumerate() {
        check_loose(name, word)?;
        operands += usize::from(!word.text.starts_with('-'));
        match is_risky(program, &word.text, at, operands) {
            true if word.literal => {
                reader.caution(call.at, &word.text, risk(name, &word.text));
            }
            false if only_options && !program.inside || word.literal => {}
            false if is_certain(program, &word.text) => {}
            _ => return Err(risk(name, &word.text)),
        }
    }
    Ok(())
}

/// Looks at the options of an interpreter before its script: what stands behind is the script's.
fn script(reader: &mut Reader, call: &Call, program: &Program) -> Parsed<()> {
    if let [only] = call.arguments
        && is_in(only, QUERIES)
    {
        return Ok(());
    }
    for word in call.arguments {
        check_loose(call.name, word)?;
        let text = word.text.as_str();
        if text == "-" || text.starts_with('-') && !word.literal {
            break;
        } else if !text.starts_with('-') {
            return Ok(());
        } else if is_risky(program, text, 0, 0) {
            // It may take the place of the script.
            reader.caution(call.at, text, risk(call.name, text));
            return Ok(());
        } else if !holds(program.harmless, text) {
            return Err(format!("`{} {text}` is not understood", call.name));
        }
    }
    Err(format!("`{}` runs what it reads", call.name))
}

/// Returns true if what expansion makes of an operand is one that does no harm, whatever it is.
fn is_certain(program: &Program, text: &str) -> bool {
    let may_lead_out =
        text.contains(['$', '{', '~']) || text.starts_with('.') || text.contains("/.");
    program.is_strict()
        && program.words.is_empty()
        && program.operands == Operands::Any
        && !text.starts_with(['-', '@', '+'])
        && !(program.inside && may_lead_out)
}

/// Returns true if a rule must hold a word to allow it. The rule holds the whole of it: `--output=x`.
fn is_risky(program: &Program, text: &str, at: usize, operands: usize) -> bool {
    let option = text.split('=').next().unwrap_or_default();
    let long = option.strip_prefix("--").filter(|long| !long.is_empty());
    let names = |cluster: &str| cluster.contains(|c| program.letters.contains(c));
    let begins = |start: &str| !start.is_empty() && text.starts_with(start);
    if holds(program.words, option) || long.is_some_and(|long| is_long(program, long)) {
        return true;
    }
    program.begins.split(' ').any(begins)
        || match (long, text.strip_prefix('-')) {
            (Some(_), _) => false,
            (None, Some(cluster)) => names(cluster),
            (None, None) => match program.operands {
                Operands::Any | Operands::Script => false,
                Operands::Bundle => {
                    at == 0
                        && (names(text) || program.is_strict() && cluster(program, text).is_none())
                }
                Operands::One => operands > 1,
                Operands::NoAssignments => text.contains('='),
            },
        }
        || program.is_strict() && !is_free(program, text)
}

/// Returns true if a word is no option, or one that is listed as harmless, and leads nowhere that counts.
fn is_free(program: &Program, text: &str) -> bool {
    let leads_out = |path: &str| {
        program.inside && (path.starts_with(['/', '~']) || path.split('/').any(|part| part == ".."))
    };
    let Some(letters) = text.strip_prefix('-').filter(|rest| !matches!(*rest, "" | "-")) else {
        return !leads_out(text);
    };
    let (option, value) = text.split_once('=').unwrap_or((text, ""));
    let begins = |start: &str| !start.is_empty() && text.starts_with(start);
    if holds(program.free, option) || program.free_begins.split(' ').any(begins) {
        return !leads_out(value);
    }
    cluster(program, letters).is_some_and(|value| !leads_out(value))
}

/// Returns the value of joined letters that all are harmless, empty if there is none.
fn cluster<'t>(program: &Program, letters: &'t str) -> Option<&'t str> {
    for (at, letter) in letters.char_indices() {
        let (_, after) =
            program.free_letters.split_once(letter).filter(|_| letter.is_ascii_alphanumeric())?;
        if after.starts_with(':') {
            return letters.get(at + 1..);
        }
    }
    Some("")
}

/// Returns true if a long option, or what it is short for, is in the table.
fn is_long(program: &Program, long: &str) -> bool {
    !holds(program.harmless, long) && program.long.split(' ').any(|risk| risk.starts_with(long))
}

/// Notes addresses of files, in the spellings that curl expands, and a format that writes.
pub(super) fn curl(reader: &mut Reader, call: &Call) -> Parsed<()> {
    for word in call.arguments {
        let text = word.text.to_ascii_lowercase();
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let is_made = scheme.contains(['{', '[']);
        if text.contains("file:") || text.contains("%output") || is_made {
            reader.caution(call.at, &word.text, risk(call.name, &word.text));
        }
    }
    Ok(())
}

/// Allows a client of a database only with a text that its arguments hold, and in it no command of
/// the client, because these start shells.
pub(super) fn database(reader: &mut Reader, call: &Call) -> Parsed<()> {
    if let [only] = call.arguments
        && is_in(only, QUERIES)
    {
        return Ok(());
    }
    let is_sqlite = call.name.starts_with("sqlite");
    let text_options: &[&str] =
        if call.name == "psql" { &["-c", "--command"] } else { &["-e", "--execute"] };
    let (mut given, mut operands) = (false, 0);
    for word in call.arguments {
        check_loose(call.name, word)?;
        let text = word.text.to_ascii_lowercase();
        let is_option = text.starts_with('-');
        operands += usize::from(!is_option);
        if is_sqlite && is_option && !is_in(word, SQLITE_FLAGS) {
            return Err(risk(call.name, &word.text));
        }
        given |= match is_sqlite {
            true => operands > 1,
            false => text_options.iter().any(|option| word.text.starts_with(option)),
        };
        let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
        let commands = match is_sqlite {
            true => {
                let mut lines = text.lines().map(str::trim_start);
                operands > 1 && lines.any(|line| line.starts_with('.')) || has(SQL_RISKS)
            }
            false => has(&["\\", "system", "pager", "tee ", "source ", "edit"]),
        };
        match commands {
            true if word.literal => {
                reader.caution(call.at, &word.text, risk(call.name, &word.text));
            }
            false if word.literal || operands <= 1 && is_sqlite => {}
            _ => return Err(risk(call.name, &word.text)),
        }
    }
    match given {
        true => Ok(()),
        false => Err(format!("`{}` runs what it reads", call.name)),
    }
}
