//! Time stamps of records: milliseconds since the Unix epoch, and their RFC 3339 text in UTC.
//!
//! Only [`now_ms`] reads the clock.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

/// Length in bytes of a stamp, such as `2026-11-18T02:14:05.123Z`.
pub const LEN: usize = 24;

/// A stamp always shows milliseconds.
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// The last millisecond that [`Timestamp`] can hold: ten hours before the end of the year 9999, so
/// that it has a local time in every zone.
const MAX_MS: i64 = 253_402_207_200_000;

/// Returns the current time in milliseconds since the Unix epoch.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(MAX_MS)
}

/// Appends the text of a time. A time outside the years 1970 to 9999 becomes the nearest time
/// inside.
pub fn write(ms: i64, out: &mut Vec<u8>) {
    let time = Timestamp::from_millisecond(ms.clamp(0, MAX_MS)).expect("within the bounds");
    PRINTER.print_timestamp(&time, out).expect("memory takes every byte");
}

/// Returns the text of a time.
#[must_use]
pub fn text(ms: i64) -> String {
    let mut out = Vec::with_capacity(LEN);
    write(ms, &mut out);
    String::from_utf8(out).expect("digits and marks are ASCII")
}

/// Reads a time that [`write()`] wrote. Returns `None` for a text of another shape.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != LEN || (bytes[10], bytes[19], bytes[23]) != (b'T', b'.', b'Z') {
        return None;
    }
    usual(bytes).or_else(|| text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond))
}

/// Reads a stamp of a day that every month has, which is nearly each. A journal has one on each line.
fn usual(bytes: &[u8]) -> Option<i64> {
    if (bytes[4], bytes[7], bytes[13], bytes[16]) != (b'-', b'-', b':', b':') {
        return None;
    }
    let number = |from: usize, to: usize| {
        bytes[from..to].iter().try_fold(0, |sum: i64, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let milliseconds = number(20, 23)?;
    let is_usual = (1970..9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=28).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    // A year counts from March here, so that the leap day is its last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // The days from the first of March of the year 0 to the beginning of 1970.
    let days = days - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    is_usual.then_some(seconds * 1_000 + milliseconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments() {
        for (ms, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (MAX_MS, "9999-12-30T22:00:00.000Z"),
        ] {
            assert_eq!(text(ms), shown);
            assert_eq!(parse(shown), Some(ms));
        }
        assert_eq!(text(-5), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "2026-11-18T02:14:05Z",
            "2026-11-18T02:14+05.123Z",
            "2026-11-1 T02:14:05.123Z",
            "2026-13-18T02:14:05.123Z",
            "2026-11-18 02:14:05.123Z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_survives(ms in 0..=MAX_MS) {
            prop_assert_eq!(parse(&text(ms)), Some(ms));
        }
    }
}
