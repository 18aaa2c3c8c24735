//! Reads and writes durations: `10s`, `5m`, `1m30s`, `250ms`.

use std::time::Duration;

/// The units with their milliseconds. `ms` stands before `m`, because the first unit that fits is
/// taken.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads one or more whole numbers, each with its unit. The units may be in any order, but each
/// only once. Returns `None` for any other text.
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut seen = [false; UNITS.len()];
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let at = UNITS.iter().position(|(unit, _)| rest.starts_with(unit))?;
        if std::mem::replace(&mut seen[at], true) {
            return None;
        }
        total = total.checked_add(count.checked_mul(UNITS[at].1)?)?;
        rest = &rest[UNITS[at].0.len()..];
    }
    seen.contains(&true).then(|| Duration::from_millis(total))
}

/// Writes a duration to the millisecond; [`parse`] reads it back.
pub fn text(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, size) in UNITS.iter().rev() {
        if left / size > 0 {
            text.push_str(&format!("{}{unit}", left / size));
        }
        left %= size;
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_and_their_combinations() {
        let ms = |text| parse(text).map(|d| d.as_millis());
        assert_eq!(ms("10s"), Some(10_000));
        assert_eq!(ms("5m"), Some(300_000));
        assert_eq!(ms("2h"), Some(7_200_000));
        assert_eq!(ms("250ms"), Some(250));
        assert_eq!(ms("1d"), Some(86_400_000));
        assert_eq!(ms("1m30s"), Some(90_000));
        assert_eq!(ms("0s"), Some(0));
        for bad in ["", "10", "s", "10 s", "-1s", "1.5s", "1s1s", "5x", "99999999999999999999s"] {
            assert_eq!(ms(bad), None, "{bad}");
        }
        for text in ["0s", "250ms", "10s", "5m", "1m30s", "2h", "1d2h3m4s5ms"] {
            assert_eq!(parse(text).map(super::text).as_deref(), Some(text));
        }
    }
}
