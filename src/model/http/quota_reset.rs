//! Reads when a quota that is used up is reset: from the fields of an error's body or from its words.
//!
//! Pure. The services tell it in different places, and some not at all. The text is of a server: a time that
//! is not ahead, or further than [`LONGEST`], is not believed.

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;

/// The longest time that is believed: a month, the longest window of the public services.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// Numbers above this are milliseconds since the Unix epoch, not seconds: as seconds it is the year 5138.
const LARGEST_SECONDS: f64 = 100_000_000_000.0;

/// A moment in words: behind `reset at`, `resets at`, `try again at`, or behind the `|` that ends a message.
static MOMENT: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?i)(?:resets? (?:at|on)|again (?:at|after)|\|)\s*([0-9][0-9T:.+\-]*[0-9]Z?)";
    Regex::new(pattern).expect("a pattern")
});

/// A length of time in words: `try again in 3 hours`, `resets in 1h30m`.
static LENGTH: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?i)(?:again|resets?) (?:in|after)\s+((?:[0-9.]{1,12}\s*[a-z]{1,8}[\s,]*)+)";
    Regex::new(pattern).expect("a pattern")
});

/// A number with a unit.
static PART: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"([0-9.]+)\s*([A-Za-z]+)").expect("a pattern"));

/// Returns the time until the reset, as the body of an error tells it. `now_ms` is the wall time since the
/// Unix epoch.
pub(super) fn told(body: &[u8], now_ms: i64) -> Option<Duration> {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = if value["error"].is_object() { &value["error"] } else { &value };
    let left = of_fields(error, now_ms).or_else(|| {
        let text = error["message"].as_str().unwrap_or_default();
        let moment = MOMENT.captures(text).and_then(|found| at(&found[1], now_ms));
        moment.or_else(|| length(&LENGTH.captures(text)?[1]))
    })?;
    Some(left).filter(|left| !left.is_zero() && *left <= LONGEST)
}

fn of_fields(error: &Value, now_ms: i64) -> Option<Duration> {
    let seconds = error["resets_in_seconds"].as_f64();
    let left = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    left.or_else(|| match &error["resets_at"] {
        Value::String(text) => at(text, now_ms),
        Value::Number(number) => of_epoch(number.as_f64()?, now_ms),
        _ => None,
    })
}

/// Returns the time until a moment: seconds or milliseconds since the Unix epoch, or in the form of RFC 3339.
fn at(text: &str, now_ms: i64) -> Option<Duration> {
    if let Ok(number) = text.parse() {
        return of_epoch(number, now_ms);
    }
    let moment: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(moment.as_millisecond().saturating_sub(now_ms)).ok().map(Duration::from_millis)
}

#[expect(clippy::cast_precision_loss, reason = "times of today are far below 2^52 ms")]
fn of_epoch(number: f64, now_ms: i64) -> Option<Duration> {
    let seconds = if number > LARGEST_SECONDS { number / 1000.0 } else { number };
    Duration::try_from_secs_f64(seconds - now_ms as f64 / 1000.0).ok()
}

fn length(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    for part in PART.captures_iter(text) {
        let factor = match part[2].to_lowercase().as_str() {
            "d" | "day" | "days" => 86_400.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            // The sentence goes on.
            _ => break,
        };
        seconds += part[1].parse::<f64>().ok()? * factor;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// 2026-01-01T00:00:00Z.
    const NOW_MS: i64 = 1_767_225_600_000;

    fn seconds(error: &Value) -> Option<u64> {
        told(error.to_string().as_bytes(), NOW_MS).map(|left| left.as_secs())
    }

    #[test]
    fn resets_are_read_from_fields_and_words() {
        let message = |text: &str| seconds(&json!({"error": {"type": "x", "message": text}}));
        assert_eq!(seconds(&json!({"error": {"resets_in_seconds": 90}})), Some(90));
        assert_eq!(seconds(&json!({"error": {"resets_at": 1_767_225_660}})), Some(60));
        assert_eq!(seconds(&json!({"resets_at": "2026-01-01T01:00:00Z"})), Some(3_600));
        assert_eq!(message("Claude AI usage limit reached|1767229200"), Some(3_600));
        assert_eq!(message("usage limit reached, resets at 2026-01-01T06:00:00Z."), Some(21_600));
        assert_eq!(message("Limit reached. Try again at 1767225601000"), Some(1));
        assert_eq!(message("Please try again in 3 hours and not before"), Some(10_800));
        assert_eq!(message("quota resets in 1h30m"), Some(5_400));
        assert_eq!(message("try again in 2 days, 4 minutes"), Some(173_040));
    }

    #[test]
    fn what_is_no_time_ahead_is_not_believed() {
        let texts = [
            "try again in a while",
            "try again in 9 parsecs",
            "resets at 2025-01-01T00:00:00Z",
            "resets at 99999999999999999999999",
            "try again in 999999999999 days",
            "try again in ..... s",
            "resets at 06:00",
            "|12",
            "",
        ];
        for text in texts {
            assert_eq!(seconds(&json!({"error": {"message": text}})), None, "{text}");
        }
        for value in [json!(-5), json!(1e300), json!(null), json!(["1767229200"])] {
            assert_eq!(seconds(&json!({"error": {"resets_at": value}})), None);
            assert_eq!(seconds(&json!({"error": {"resets_in_seconds": value}})), None);
        }
        assert_eq!(told(b"<html>resets in 5 minutes", NOW_MS), None);
    }
}
