//! Formats numbers and foreign texts for a log line.
//!
//! Pure. Owns rounding and shortening; knows no events.

use super::QUOTED;
use crate::policy::BreakerState;
use crate::printable;

/// Returns the first line that is not empty, at most `max` characters of it, escaped, with `…` if
/// more text follows.
pub(super) fn first_line(text: &str, max: usize) -> String {
    let text = text.trim();
    match text.split_once(['\n', '\r']) {
        Some((line, _)) if line.chars().nth(max).is_none() => format!("{} …", cut(line, max)),
        Some((line, _)) => cut(line, max),
        None => cut(text, max),
    }
}

/// How much of a failure's message or of another reason a line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasons {
    /// All of it: in files and pipes.
    Whole,
    /// Its beginning, with `…` if more follows: on a screen.
    Short,
}

/// Returns a reason for a line.
pub(super) fn reason(text: &str, reasons: Reasons) -> String {
    match reasons {
        Reasons::Whole => in_one_line(text),
        Reasons::Short => first_line(text, QUOTED),
    }
}

/// Returns a whole text as one line that is safe to show.
#[must_use]
pub fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    printable::line(&lines.collect::<Vec<_>>().join(" ")).into_owned()
}

/// Returns the last line that is not empty, at most `max` characters of it, escaped, after `…` if
/// lines precede it.
pub(super) fn last_line(text: &str, max: usize) -> String {
    let text = text.trim();
    match text.rsplit_once(['\n', '\r']) {
        Some((_, line)) => format!("… {}", cut(line.trim_start(), max)),
        None => cut(text, max),
    }
}

/// Returns at most `max` characters of a text as one line that is safe to show, with `…` if it is
/// longer.
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", printable::line(&text[..end])),
        None => printable::line(text).into_owned(),
    }
}

/// Formats a count with its noun: `1 task`, `2 tasks`.
pub(super) fn plural(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Formats a number of tokens: `210`, `1.2k`, `51k`, `1.3M`.
pub(super) fn tokens(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..10_000 => format!("{}.{}k", count / 1000, count % 1000 / 100),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// Formats a number of bytes: `2 B`, `2.1 kB`, `3.4 MB`.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1000 => format!("{count} B"),
        1000..1_000_000 => format!("{}.{} kB", count / 1000, count % 1000 / 100),
        _ => format!("{}.{} MB", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// Formats a duration given in milliseconds: `12 ms`, `2.0 s`, `3 min 20 s`.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// Returns a breaker's state in words.
pub(super) fn breaker(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half open",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0, 999, 1250, 51_999, 1_340_000].map(tokens),
            ["0", "999", "1.2k", "51k", "1.3M"]
        );
        assert_eq!([999, 2100, 3_400_000].map(bytes), ["999 B", "2.1 kB", "3.4 MB"]);
        assert_eq!([12, 2000, 200_000].map(duration), ["12 ms", "2.0 s", "3 min 20 s"]);
        assert_eq!((plural(1, "turn"), plural(0, "turn")), ("1 turn".into(), "0 turns".into()));
    }

    #[test]
    fn texts_are_cut_and_escaped() {
        assert_eq!(first_line("", 5), "");
        assert_eq!(first_line("  ab \r\n c", 5), "ab  …");
        assert_eq!(first_line("abcdef", 5), "abcde…");
        assert_eq!(first_line("abcdef\ng", 5), "abcde…");
        let long = format!("one\r\n\n  {}\x1b", "x".repeat(500));
        assert_eq!(reason(&long, Reasons::Whole), format!("one {}\\u{{1b}}", "x".repeat(500)));
        assert_eq!(reason(&long, Reasons::Short), "one …");
        assert_eq!(cut("a\tb\x1b[1m\u{9b}\u{202e}é", 99), "a b\\u{1b}[1m\\u{9b}\\u{202e}é");
    }
}
