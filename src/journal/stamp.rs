//! Time stamps of records: milliseconds since the Unix epoch, and their RFC 3339 text in UTC.
//!
//! A stamp is written once per batch and read once per record, so both directions are plain
//! arithmetic. Only [`now_ms`] reads the clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Length in bytes of a stamp, such as `2026-11-18T02:14:05.123Z`.
pub const LEN: usize = 24;

const DAY_MS: i64 = 86_400_000;

/// The last millisecond of the year 9999: the text has only four digits for the year.
const MAX_MS: i64 = 253_402_300_799_999;

/// Returns the current time in milliseconds since the Unix epoch.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(MAX_MS)
}

/// Appends the text of a time. A time outside the years 1970 to 9999 becomes the nearest time
/// inside.
pub fn write(ms: i64, out: &mut Vec<u8>) {
    let ms = ms.clamp(0, MAX_MS);
    let (year, month, day) = civil(ms / DAY_MS);
    let rest = ms % DAY_MS;
    digits(out, year, 4);
    for (mark, value, width) in [
        (b'-', month, 2),
        (b'-', day, 2),
        (b'T', rest / 3_600_000, 2),
        (b':', rest / 60_000 % 60, 2),
        (b':', rest / 1000 % 60, 2),
        (b'.', rest % 1000, 3),
    ] {
        out.push(mark);
        digits(out, value, width);
    }
    out.push(b'Z');
}

/// Returns the text of a time.
#[must_use]
pub fn text(ms: i64) -> String {
    let mut out = Vec::with_capacity(LEN);
    write(ms, &mut out);
    String::from_utf8(out).expect("digits and marks are ASCII")
}

/// Reads a time that [`write()`] wrote. Returns `None` for any other text.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != LEN {
        return None;
    }
    for (at, mark) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.')] {
        if bytes[at] != mark {
            return None;
        }
    }
    let number = |from: usize, to: usize| {
        bytes[from..to].iter().try_fold(0i64, |sum, byte| match byte {
            b'0'..=b'9' => Some(sum * 10 + i64::from(byte - b'0')),
            _ => None,
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fits = (1..=12).contains(&month) && (1..=31).contains(&day);
    if bytes[23] != b'Z' || !fits || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = (hour * 60 + minute) * 60 + second;
    Some(days(year, month, day) * DAY_MS + seconds * 1000 + number(20, 23)?)
}

/// Appends `value` with at least `width` digits.
fn digits(out: &mut Vec<u8>, value: i64, width: u32) {
    for place in (0..width).rev() {
        let digit = value / 10i64.pow(place) % 10;
        out.push(b'0' + u8::try_from(digit).expect("a remainder of ten is one digit"));
    }
}

// Both directions count years from March and eras of 400 years, so that the leap day is the last
// of its year: Hinnant, "chrono-compatible low-level date algorithms".

/// Returns the date (year, month, day) of a day counted from 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Returns the day of a date, counted from 1970-01-01.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
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
            (MAX_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(text(ms), shown);
            assert_eq!(parse(shown), Some(ms));
        }
        assert_eq!(text(-5), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in
            ["", "2026-11-18T02:14:05Z", "2026-13-18T02:14:05.123Z", "2026-11-18 02:14:05.123Z"]
        {
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
