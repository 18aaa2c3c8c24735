//! Leaves out of a text what differs each time although nothing has changed: times, durations, ids of processes and
//! requests, addresses in memory, names of temporary files.
//!
//! Pure, one pass. Plain numbers stay, because progress is told in them.

/// The parts of a text that are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// Times only.
    Times,
    /// Everything that this module knows.
    All,
}

/// The fewest characters of the id of a request: a short number may tell of progress.
const LEAST_ID: usize = 6;

/// The mark that stands for a part that was left out: no text has it.
const MARK: &[u8] = &[0xff];

/// The seconds since the Unix epoch that count as a time: those of 2023 to 2030, so that few other numbers do.
const SECONDS: std::ops::Range<u64> = 1_700_000_000..1_900_000_000;

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

const UNITS: [&[u8]; 21] = [
    b"ns",
    b"us",
    b"\xc2\xb5s",
    b"\xce\xbcs",
    b"ms",
    b"s",
    b"sec",
    b"secs",
    b"second",
    b"seconds",
    b"min",
    b"mins",
    b"minute",
    b"minutes",
    b"h",
    b"hr",
    b"hrs",
    b"hour",
    b"hours",
    b"millis",
    b"milliseconds",
];

/// Gives the text to `out` piece by piece, with a mark in the place of each part that is left out.
pub(super) fn normalised(text: &str, parts: Parts, out: &mut impl FnMut(&[u8])) {
    let bytes = text.as_bytes();
    let (mut from, mut at) = (0, 0);
    while at < bytes.len() {
        let begins = begins_word(bytes, at);
        let end = match bytes[at] {
            b'0'..=b'9' if begins => number(bytes, at, parts),
            b'A' | b'D' | b'F' | b'J' | b'M' | b'N' | b'O' | b'S' if begins => named_day(bytes, at),
            b'r' | b'R' | b't' | b'T' | b'c' | b'C' if begins && parts == Parts::All => {
                request(bytes, at)
            }
            b'/' if parts == Parts::All => temporary(bytes, at),
            _ => None,
        };
        match end {
            Some((kept, end)) => {
                out(&bytes[from..kept]);
                out(MARK);
                (from, at) = (end, end);
            }
            // The rest of a number is no number of its own.
            None if bytes[at].is_ascii_digit() => at = digits(bytes, at),
            None => at += 1,
        }
    }
    out(&bytes[from..]);
}

fn begins_word(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    before.is_none_or(|b| !b.is_ascii_alphanumeric() && b != b'_' && b < 0x80)
}

/// Returns the end of the digits that begin here.
fn digits(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |n| at + n)
}

/// Returns the end of exactly so many digits.
fn exactly(bytes: &[u8], at: usize, least: usize, most: usize) -> Option<usize> {
    let end = digits(bytes, at.min(bytes.len()));
    (least..=most).contains(&(end.saturating_sub(at))).then_some(end)
}

fn is(bytes: &[u8], at: usize, any: &[u8]) -> bool {
    bytes.get(at).is_some_and(|b| any.contains(b))
}

fn ends_word(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_none_or(|b| !b.is_ascii_alphanumeric() && *b != b'_')
}

/// Returns the part to leave out that begins with the number here: the place up to which the text is kept, and the
/// end of the part.
fn number(bytes: &[u8], at: usize, parts: Parts) -> Option<(usize, usize)> {
    let end = digits(bytes, at);
    let whole = |end| (at, end);
    if let Some(end) =
        date(bytes, at).or_else(|| clock(bytes, at)).or_else(|| epoch(bytes, at, end))
    {
        return Some(whole(end));
    }
    if bytes[..at].ends_with(b"sleep ") {
        let pause = fraction(bytes, end);
        return Some(whole(pause + usize::from(is(bytes, pause, b"smhd"))));
    }
    if parts == Parts::Times {
        return None;
    }
    if end == at + 1 && bytes[at] == b'0' && is(bytes, end, b"xX") {
        let hex = bytes[end + 1..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
        return (hex >= 6).then(|| whole(end + 1 + hex));
    }
    if is_process(bytes, at, end) {
        return Some(whole(end));
    }
    duration(bytes, at).filter(|end| !tells_progress(bytes, at, *end)).map(whole)
}

/// A date, with the time of day if one follows: `2026-11-24T10:11:12.5Z`, `2026/11/24 10:11`, `20261124T101112Z`,
/// `24/Nov/2026:10:11:12 +0000`.
fn date(bytes: &[u8], at: usize) -> Option<usize> {
    let end = digits(bytes, at);
    let day = match end - at {
        4 if is(bytes, end, b"-/") => {
            let month = exactly(bytes, end + 1, 2, 2)?;
            let separator = bytes[end];
            is(bytes, month, &[separator]).then(|| exactly(bytes, month + 1, 2, 2))??
        }
        8 if is(bytes, end, b"T_-") => {
            let time = exactly(bytes, end + 1, 6, 6)?;
            return Some(zone(bytes, fraction(bytes, time)));
        }
        1 | 2 if is(bytes, end, b"/- ") && is_month(bytes, end + 1) => {
            let month = end + 4;
            is(bytes, month, b"/- ").then(|| exactly(bytes, month + 1, 4, 4))??
        }
        _ => return None,
    };
    let time = is(bytes, day, b"T _:-").then(|| clock(bytes, day + 1)).flatten();
    Some(time.unwrap_or(day))
}

/// A time of day, with its zone: `10:11:12.5Z`, `9:05 PM`. Without seconds it must stand alone, because `10:12` in
/// `a.rs:10:12` is a place.
fn clock(bytes: &[u8], at: usize) -> Option<usize> {
    let hour = exactly(bytes, at, 1, 2)?;
    let minute = is(bytes, hour, b":").then(|| exactly(bytes, hour + 1, 2, 2))??;
    let in_day = number_of(bytes, at, hour) < 24 && number_of(bytes, hour + 1, minute) < 60;
    if !in_day || (at > 0 && bytes[at - 1] == b':' && !follows_date(bytes, at)) {
        return None;
    }
    match is(bytes, minute, b":").then(|| exactly(bytes, minute + 1, 2, 2)).flatten() {
        Some(second) if is(bytes, second, b":") => None,
        Some(second) if ends_word(bytes, second) || is(bytes, second, b"Z") => {
            Some(zone(bytes, fraction(bytes, second)))
        }
        Some(_) => None,
        None if is(bytes, minute, b":") => None,
        None => (at == 0 || is(bytes, at - 1, b" \t\n[(T")).then(|| zone(bytes, minute)),
    }
}

/// Returns true if the colon before this place follows a year, as in `24/Nov/2026:10:11:12`.
fn follows_date(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[..at - 1];
    before.len() >= 5 && before[before.len() - 4..].iter().all(u8::is_ascii_digit)
}

fn number_of(bytes: &[u8], from: usize, to: usize) -> u64 {
    let digits = bytes[from..to].iter().map(|b| u64::from(b - b'0'));
    digits.fold(0, |number, digit| number.saturating_mul(10).saturating_add(digit))
}

fn fraction(bytes: &[u8], at: usize) -> usize {
    let end = if is(bytes, at, b".,") { digits(bytes, at + 1) } else { at };
    if end > at + 1 { end } else { at }
}

fn zone(bytes: &[u8], at: usize) -> usize {
    if is(bytes, at, b"Z") {
        return at + 1;
    }
    let words: [&[u8]; 6] = [b" UTC", b" GMT", b" AM", b" PM", b" am", b" pm"];
    if let Some(word) = words.iter().find(|word| bytes[at..].starts_with(word)) {
        return at + word.len();
    }
    let sign = at + usize::from(is(bytes, at, b" "));
    if is(bytes, sign, b"+-") {
        if let Some(end) = exactly(bytes, sign + 1, 4, 4) {
            return end;
        }
        if let Some(hour) = exactly(bytes, sign + 1, 2, 2).filter(|hour| is(bytes, *hour, b":"))
            && let Some(end) = exactly(bytes, hour + 1, 2, 2)
        {
            return end;
        }
    }
    at
}

/// A Unix time in seconds or milliseconds.
fn epoch(bytes: &[u8], at: usize, end: usize) -> Option<usize> {
    let seconds = match end - at {
        10 => number_of(bytes, at, end),
        13 => number_of(bytes, at, end) / 1_000,
        _ => return None,
    };
    let after = fraction(bytes, end);
    (SECONDS.contains(&seconds) && ends_word(bytes, after)).then_some(after)
}

/// A day with the name of its month: `Nov 27 11:47`, `Nov 27 2026`.
fn named_day(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    if !is_month(bytes, at) || !is(bytes, at + 3, b" ") {
        return None;
    }
    let spaces = |at: usize| bytes[at..].iter().take_while(|b| **b == b' ').count() + at;
    let day = spaces(at + 3);
    let day = exactly(bytes, day, 1, 2)?;
    let next = spaces(day + usize::from(is(bytes, day, b",")));
    if let Some(end) = clock(bytes, next) {
        return Some((at, end));
    }
    let year = exactly(bytes, next, 4, 4)?;
    Some((at, clock(bytes, spaces(year)).unwrap_or(year)))
}

fn is_month(bytes: &[u8], at: usize) -> bool {
    bytes.get(at..at + 3).is_some_and(|word| MONTHS.contains(&word))
}

/// Returns true if the number is that of a process: `pid 1234`, `pid=1234`, `sshd[1234]:`.
fn is_process(bytes: &[u8], at: usize, end: usize) -> bool {
    if at > 1 && bytes[at - 1] == b'[' && bytes[end..].starts_with(b"]:") {
        return bytes[at - 2].is_ascii_alphabetic();
    }
    let mut before = at;
    while before > 0 && at - before < 3 && b" :=#".contains(&bytes[before - 1]) {
        before -= 1;
    }
    before >= 3 && before < at && bytes[before - 3..before].eq_ignore_ascii_case(b"pid")
}

/// A duration: `0.35s`, `12 ms`, `1m23s`, `2 minutes`.
fn duration(bytes: &[u8], at: usize) -> Option<usize> {
    let number = fraction(bytes, digits(bytes, at));
    let unit = number + usize::from(is(bytes, number, b" "));
    let letters = bytes[unit.min(bytes.len())..].iter();
    let end = unit + letters.take_while(|b| b.is_ascii_alphabetic() || **b >= 0x80).count();
    let letters = &bytes[unit.min(bytes.len())..end.min(bytes.len())];
    // `m` alone may be a metre.
    if letters == b"m" || letters == b"h" {
        let rest = end + usize::from(is(bytes, end, b" "));
        if bytes.get(rest).is_some_and(u8::is_ascii_digit)
            && let Some(end) = duration(bytes, rest)
        {
            return Some(end);
        }
    }
    (UNITS.contains(&letters) && ends_word(bytes, end)).then_some(end)
}

/// Returns true if a duration is the time that is left: it tells of progress.
fn tells_progress(bytes: &[u8], at: usize, end: usize) -> bool {
    let before = bytes[at.saturating_sub(12)..at].to_ascii_lowercase();
    let before = String::from_utf8_lossy(&before);
    let before = before.trim_end_matches([' ', ':', '=', '~']);
    let after = bytes[end..(end + 12).min(bytes.len())].to_ascii_lowercase();
    let after = String::from_utf8_lossy(&after);
    ["eta", "remaining", "left"]
        .iter()
        .any(|word| before.ends_with(word) || after.trim_start().starts_with(word))
}

/// The id of a request, which servers make up for each: `request_id: 7f3a-91`, `X-Request-ID=...`, `req_01abc`.
fn request(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let is_part = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'-' || **b == b'_';
    let token = |from: usize| {
        let end = from + bytes[from..].iter().take_while(is_part).count();
        let is_id = end - from >= LEAST_ID && bytes[from..end].iter().any(u8::is_ascii_digit);
        is_id.then_some((from, end))
    };
    if bytes[at..].starts_with(b"req_") {
        return token(at);
    }
    let begins = |from: usize, word: &[u8]| {
        bytes.get(from..from + word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    let words: [&[u8]; 3] = [b"request", b"trace", b"correlation"];
    let word = words.into_iter().find(|word| begins(at, word))?;
    let id = at + word.len();
    let id = id + usize::from(is(bytes, id, b"-_ "));
    if !begins(id, b"id") {
        return None;
    }
    let after = id + b"id".len();
    let marks = bytes[after..].iter().take_while(|b| b" :=\"'".contains(b)).count();
    (1..=4).contains(&marks).then(|| token(after + marks))?
}

/// The name of a temporary file or folder below `/tmp`, if it looks as if a program had made it up.
fn temporary(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let name = at + b"/tmp/".len();
    if !bytes[at..].starts_with(b"/tmp/") {
        return None;
    }
    let is_end = |b: &u8| !b.is_ascii_alphanumeric() && !b"._-".contains(b);
    let end = bytes[name..].iter().position(is_end).map_or(bytes.len(), |n| name + n);
    let word = &bytes[name..end];
    let is_made_up = word.starts_with(b"tmp")
        || word.starts_with(b"callsheet")
        || word.starts_with(b".tmp")
        || (word.len() >= 8
            && word.iter().any(u8::is_ascii_digit)
            && word.iter().any(u8::is_ascii_uppercase));
    is_made_up.then_some((name, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> String {
        let mut out = Vec::new();
        normalised(text, Parts::All, &mut |bytes| out.extend_from_slice(bytes));
        String::from_utf8_lossy(&out).replace('\u{fffd}', "*")
    }

    #[test]
    fn what_differs_each_time_is_left_out() {
        for (text, wanted) in [
            ("2026-11-24T10:11:12.345Z ok", "* ok"),
            ("at 2026-11-24 10:11:12 +0100 done", "at * done"),
            ("2026/11/24", "*"),
            ("[24/Nov/2026:10:11:12 +0000] GET", "[*] GET"),
            ("log-20261124T101112Z.txt", "log-*.txt"),
            ("[10:11:12] go", "[*] go"),
            ("at 9:05 PM", "at *"),
            ("drwx 2 me 4096 Nov 27 11:47 .", "drwx 2 me 4096 * ."),
            ("Fri Nov 27 11:53:07 UTC 2026", "Fri * 2026"),
            ("ts=1795778000 ms=1795778000123", "ts=* ms=*"),
            ("finished in 0.35s", "finished in *"),
            ("took 12 ms, 1m23s, 2 minutes", "took *, *, *"),
            ("pid 4711, PID=12 sshd[99]: x", "pid *, PID=* sshd[*]: x"),
            ("at 0x7ffeee12 and 0x1", "at * and 0x1"),
            ("/tmp/tmp.Xy12/a /tmp/callsheet-77/b", "/tmp/*/a /tmp/*/b"),
            ("X-Request-Id: 7f3a-91ce req_01Ab", "X-Request-Id: * *"),
            (r#"{"request_id":"a1b2c3d4"}"#, r#"{"request_id":"*"}"#),
            ("trace id=99887766aa", "trace id=*"),
            ("sleep 2.5m; sleep 10", "sleep *; sleep *"),
        ] {
            assert_eq!(all(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_tells_of_progress_or_names_something_stays() {
        for text in [
            "41 % of 100",
            "src/a.rs:10:12: error",
            "a.rs:10:12",
            "12:34:56:78",
            "eta 35s",
            "ETA: 35 s",
            "35s remaining",
            "downloaded 1650000000 bytes",
            "v1.2.3",
            "item[3]",
            "page 3 of 7",
            "5m tall",
            "/tmp/report.txt",
            "deadbeef0123",
            "request id 17",
            "request 99887766 of this table",
            "trace idle: 1234567",
            "May I go",
            "é10:11:12é",
        ] {
            assert_eq!(all(text), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in ".{0,80}") {
            all(&text);
        }

        /// The pieces are those of the text, in order.
        #[test]
        fn what_has_no_digits_stays(text in "[a-zA-Z /:.\n-]{0,60}") {
            prop_assert_eq!(all(&text), text);
        }
    }
}
