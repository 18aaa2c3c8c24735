//! Outcomes: the lines of a result that tell how a call ended.
//!
//! Pure. They come from the exit code and from the lines that count or name an error, never from a
//! word alone: `0 failed` is no failure.

use std::sync::LazyLock;

use regex::Regex;

use super::entry::Deed;

/// Most characters of a line of an outcome.
const LINE_CHARS: usize = 160;
/// Most lines of a result that stands whole as its outcome.
const SHORT_LINES: usize = 2;
/// Hexadecimal digits of the hash of a result: enough to see that it is not the same.
const HASH_DIGITS: usize = 8;

static EXIT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:return_?code|return code|exit(?:ed with)?(?: code| status)?)\D{0,4}?(-?\d{1,4})\b",
    )
});
/// A line that names an error.
static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b\w*(error|exception)\b|\bfail(ed|ures?|s|ing)?\b|panicked|\bassert|\bdenied\b|not found|no such",
    )
});
/// A line that says that there were none.
static NO_ERROR: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)\b(0|no)\s+(errors?|fail(ed|ures?)|warnings?)\b"));
/// A line that counts what passed and failed.
static COUNT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b\d+\s+(tests?|passed|failed|failures?|errors?|passing|failing|ok|skipped)\b|test result|\btests?:?\s+\d",
    )
});
/// A line that tells of success.
static SUCCESS: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\bpass(ed)?\b|\bok\b"));
static WARNING: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)warning"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this file is valid")
}

/// Returns the lines that tell how a call ended, in the order of the result. `checks` is true if the
/// call tests, builds or runs something, whatever else it does.
#[must_use]
pub fn outcome(deed: Deed, checks: bool, result: &str, is_error: bool) -> Vec<String> {
    let lines: Vec<&str> = result.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let exit = exit_code(&lines);
    let has_failed = is_error || exit.as_deref().is_some_and(|code| code != "0");
    let content: Vec<&str> = lines.iter().copied().filter(|line| !is_frame(line)).collect();
    let mut told: Vec<String> = match deed {
        _ if checks || has_failed => telling(&content),
        Deed::Write | Deed::Edit => match content.iter().find(|line| is_error_line(line)) {
            Some(line) => vec![short(line)],
            None => Vec::new(),
        },
        Deed::Todo | Deed::Check => Vec::new(),
        Deed::Command | Deed::Other if content.len() <= SHORT_LINES => {
            content.iter().map(|line| short(line)).collect()
        }
        Deed::Command | Deed::Other => vec![size(result, content.len())],
    };
    if let Some(code) = exit.filter(|code| code != "0" || checks) {
        told.insert(0, format!("exit {code}"));
    } else if is_error && !told.iter().any(|line| is_error_line(line)) {
        told.insert(0, "error".to_owned());
    }
    told
}

/// Returns the first of the lines that says most of an outcome: what is compared with the next run.
#[must_use]
pub fn headline(outcome: &[String]) -> Option<&String> {
    let counts = |line: &&String| COUNT.is_match(line);
    outcome
        .iter()
        .rfind(counts)
        .or_else(|| outcome.iter().rfind(|line| is_error_line(line)))
        .or(outcome.last())
}

fn is_error_line(line: &str) -> bool {
    ERROR.is_match(line) && !NO_ERROR.is_match(line) && !WARNING.is_match(line)
}

/// Returns the last error, the last count, the last line that tells of either or of success, and the
/// last line. In the order of the result, each once.
fn telling(lines: &[&str]) -> Vec<String> {
    let last = |tells: &dyn Fn(&str) -> bool| lines.iter().rposition(|line| tells(line));
    let no_warning = |line: &str| !WARNING.is_match(line);
    let error = last(&is_error_line);
    let count = last(&|line| COUNT.is_match(line) && no_warning(line));
    let any = last(&|line| {
        (ERROR.is_match(line) || SUCCESS.is_match(line)) && no_warning(line) && !is_exit(line)
    });
    let mut places: Vec<usize> = [error, count, any].into_iter().flatten().collect();
    places.extend(last(&no_warning));
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|at| short(lines[at])).collect()
}

/// Returns the exit code that a result tells in its first or last lines.
fn exit_code(lines: &[&str]) -> Option<String> {
    let ends = lines.iter().take(2).chain(lines.iter().rev().take(2));
    let mut codes = ends.filter(|line| is_exit(line)).filter_map(|line| EXIT.captures(line));
    codes.next().map(|found| found[1].to_owned())
}

/// Returns true if a line tells nothing but an exit code.
fn is_exit(line: &str) -> bool {
    EXIT.is_match(line) && line.len() < 60
}

/// Returns true if a line is a frame around a result: a tag alone, or an exit code.
fn is_frame(line: &str) -> bool {
    is_exit(line) || (line.starts_with('<') && line.ends_with('>') && !line.contains(' '))
}

/// Returns the size and the hash of a result: enough to see that a file has not changed.
fn size(result: &str, lines: usize) -> String {
    let hash = blake3::hash(result.as_bytes()).to_hex();
    format!("{lines} lines, hash {}", &hash[..HASH_DIGITS])
}

fn short(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(deed: Deed, result: &str) -> Vec<String> {
        outcome(deed, deed == Deed::Check, result, false)
    }

    #[test]
    fn success_is_no_failure_because_a_word_occurs() {
        let passed =
            "running 3 tests\ntest a ... ok\ntest result: ok. 3 passed; 0 failed; 0 ignored";
        let found = found_in(Deed::Check, passed);
        assert_eq!(found, ["test result: ok. 3 passed; 0 failed; 0 ignored"]);
        let failed = "test a ... FAILED\nthread 'a' panicked at src/lib.rs:3:5\n\
                      test result: FAILED. 2 passed; 1 failed\nwarning: 2 errors in build script\nexit code 101";
        let found = found_in(Deed::Check, failed);
        assert_eq!(found, ["exit 101", "test result: FAILED. 2 passed; 1 failed"]);
        assert_eq!(
            headline(&found).map(String::as_str),
            Some("test result: FAILED. 2 passed; 1 failed")
        );
    }

    #[test]
    fn an_outcome_tells_by_what_the_call_does() {
        let tagged = "<returncode>1</returncode>\n<output>\nTraceback:\n  File \"a.py\"\nValueError: bad\n</output>";
        for (deed, result, expected) in [
            (Deed::Command, tagged, vec!["exit 1", "ValueError: bad"]),
            (Deed::Command, "<returncode>0</returncode>\n<output>\n42\n</output>", vec!["42"]),
            (Deed::Write, "wrote 3 lines", vec![]),
            (
                Deed::Edit,
                "Error: old_string was not found",
                vec!["Error: old_string was not found"],
            ),
            (Deed::Check, "", vec![]),
            (Deed::Check, "building\ndone", vec!["done"]),
            (Deed::Todo, "1 open", vec![]),
        ] {
            assert_eq!(found_in(deed, result), expected, "{result}");
        }
        let read = found_in(Deed::Other, "one\ntwo\nthree");
        assert!(read[0].starts_with("3 lines, hash "), "{read:?}");
        assert_ne!(read, found_in(Deed::Other, "one\ntwo\nfour"));
        assert_eq!(outcome(Deed::Other, false, "no", true), ["error", "no"]);
    }
}
