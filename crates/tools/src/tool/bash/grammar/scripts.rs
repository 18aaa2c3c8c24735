//! Decides which `sed` scripts can neither write a file nor run a command.
//!
//! It knows a small part of the language of `sed`, the same in GNU and BSD.

use std::str::Chars;

/// Characters between which the parts of a substitution may stand.
const DELIMITERS: &str = "/|,#@:%!_";

/// Returns true if the script only prints, deletes, ends and substitutes.
pub(super) fn is_plain_sed(script: &str) -> bool {
    let mut rest = script.chars();
    loop {
        skip(&mut rest, " \t\n;");
        if rest.as_str().is_empty() {
            return true;
        }
        if command(&mut rest).is_none() {
            return false;
        }
        skip(&mut rest, " \t");
        if !matches!(rest.next(), None | Some(';' | '\n')) {
            return false;
        }
    }
}

/// Consumes one command with its addresses; `None` if it is not known.
fn command(rest: &mut Chars) -> Option<()> {
    address(rest)?;
    skip(rest, " \t");
    if rest.as_str().starts_with(',') {
        skip(rest, ", \t");
        address(rest)?;
    }
    skip(rest, " \t!");
    match rest.next()? {
        'p' | 'd' | 'q' | '=' => Some(()),
        's' => {
            let delimiter = rest.next().filter(|c| DELIMITERS.contains(*c))?;
            delimited(rest, delimiter, Part::Pattern)?;
            delimited(rest, delimiter, Part::Replacement)?;
            skip(rest, "gpiI0123456789");
            Some(())
        }
        _ => None,
    }
}

/// Consumes a line number, `$`, a pattern, or nothing.
fn address(rest: &mut Chars) -> Option<()> {
    match rest.clone().next()? {
        '$' => rest.next().map(drop),
        '/' => {
            rest.next();
            delimited(rest, '/', Part::Pattern)
        }
        _ => {
            skip(rest, "0123456789");
            Some(())
        }
    }
}

/// A part of a substitution.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Pattern,
    Replacement,
}

/// Consumes the text up to the delimiter. `None` if it does not end on its line, or if it may end
/// elsewhere: BSD does not end a pattern inside `[...]`, and GNU does.
fn delimited(rest: &mut Chars, delimiter: char, part: Part) -> Option<()> {
    let mut brackets = 0_usize;
    loop {
        match rest.next()? {
            c if c == delimiter => return (brackets == 0).then_some(()),
            '\n' => return None,
            '\\' => drop(rest.next().filter(|c| *c != '\n')?),
            '[' if part == Part::Pattern => {
                // A `]` at the begin of a class is a member of it.
                if rest.as_str().trim_start_matches('^').starts_with(']') {
                    return None;
                }
                brackets += 1;
            }
            ']' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
    }
}

fn skip(rest: &mut Chars, any: &str) {
    while rest.clone().next().is_some_and(|c| any.contains(c)) {
        rest.next();
    }
}
