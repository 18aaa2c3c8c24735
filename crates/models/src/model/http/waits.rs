//! Reads how long a refusal asks to wait, as for the reset of a quota: from the fields of the error or from
//! its words.
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

/// A moment in words of a person: `regain access on 2026-12-01 at 00:00 UTC`.
static DAY: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?i)(?:access|again|resets?) on ([0-9-]{10}) at ([0-9]{2}:[0-9]{2}) UTC";
    Regex::new(pattern).expect("a pattern")
});

/// A length of time in words: `try again in 3 hours`, `resets in 1h30m`, `retry after 2 seconds`.
static LENGTH: LazyLock<Regex> = LazyLock::new(|| {
    let pattern =
        r"(?i)(?:again|resets?|retry) (?:in|after)\s+((?:[0-9.]{1,12}\s*[a-z]{1,8}[\s,]*)+)";
    Regex::new(pattern).expect("a pattern")
});

/// A number with a unit.
static PART: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"([0-9.]+)\s*([A-Za-z]+)").expect("a pattern"));

/// Returns the time to wait, as an error object or its message tells it. `now_ms` is the wall time since the
/// Unix epoch.
pub(super) fn time_named(error: &Value, message: &str, now_ms: i64) -> Option<Duration> {
    let left = of_fields(error, now_ms).or_else(|| of_words(message, now_ms))?;
    Some(left).filter(|left| !left.is_zero() && *left <= LONGEST)
}

fn of_words(message: &str, now_ms: i64) -> Option<Duration> {
    let moment = MOMENT.captures(message).and_then(|found| at(&found[1], now_ms));
    let day = || {
        let found = DAY.captures(message)?;
        at(&format!("{}T{}:00Z", &found[1], &found[2]), now_ms)
    };
    moment.or_else(day).or_else(|| length(&LENGTH.captures(message)?[1]))
}

fn of_fields(error: &Value, now_ms: i64) -> Option<Duration> {
    let seconds = error["resets_in_seconds"].as_f64();
    let left = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    left.or_else(|| match &error["resets_at"] {
        Value::String(text) => at(text, now_ms),
        Value::Number(number) => of_epoch(number.as_f64()?, now_ms),
        _ => None,
    })
    // OpenRouter repeats the headers of its own limits.
    .or_else(|| at(error["metadata"]["headers"]["X-RateLimit-Reset"].as_str()?, now_ms))
    // Google puts the time into a detail, `"retryDelay": "1.9s"`.
    .or_else(|| {
        let delays = error["details"].as_array()?.iter().map(|detail| &detail["retryDelay"]);
        length(delays.filter_map(Value::as_str).next()?)
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
            "ms" | "millisecond" | "milliseconds" => 0.001,
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
        Some(wait(error)?.as_secs())
    }

    fn wait(error: &Value) -> Option<Duration> {
        time_named(error, error["message"].as_str().unwrap_or_default(), NOW_MS)
    }

    #[test]
    fn resets_are_read_from_fields_and_words() {
        let message = |text: &str| seconds(&json!({"type": "x", "message": text}));
        assert_eq!(seconds(&json!({"resets_in_seconds": 90})), Some(90));
        assert_eq!(seconds(&json!({"resets_at": 1_767_225_660})), Some(60));
        assert_eq!(seconds(&json!({"resets_at": "2026-01-01T01:00:00Z"})), Some(3_600));
        assert_eq!(message("Claude AI usage limit reached|1767229200"), Some(3_600));
        assert_eq!(message("usage limit reached, resets at 2026-01-01T06:00:00Z."), Some(21_600));
        assert_eq!(message("Limit reached. Try again at 1767225601000"), Some(1));
        assert_eq!(message("Please try again in 3 hours and not before"), Some(10_800));
        assert_eq!(message("quota resets in 1h30m"), Some(5_400));
        assert_eq!(message("try again in 2 days, 4 minutes"), Some(173_040));
        let limits = "You have reached your specified API usage limits. You will regain access on \
                      2026-01-02 at 00:30 UTC.";
        assert_eq!(message(limits), Some(88_200));
    }

    #[test]
    fn short_waits_are_read_too() {
        let ms = |error: Value| wait(&error).map(|wait| wait.as_millis());
        let message = |text: &str| ms(json!({ "message": text }));
        assert_eq!(message("Limit 10, Used 10. Please try again in 1.8s. Visit us"), Some(1_800));
        assert_eq!(message("Please try again in 20ms."), Some(20));
        assert_eq!(message("Please retry after 2 seconds."), Some(2_000));
        assert_eq!(message("quota exceeded. Please retry in 58.6s."), Some(58_600));
        let delay = |text: &str| {
            let details =
                json!([{"@type": "x.QuotaFailure"}, {"@type": "x.RetryInfo", "retryDelay": text}]);
            ms(json!({"message": "no", "details": details}))
        };
        assert_eq!(
            (delay("1.9s"), delay("43200s"), delay("soon")),
            (Some(1_900), Some(43_200_000), None)
        );
        let reset = json!({"metadata": {"headers": {"X-RateLimit-Reset": "1767225601500"}}});
        assert_eq!(ms(reset), Some(1_500));
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
            assert_eq!(wait(&json!({ "message": text })), None, "{text}");
        }
        for value in [json!(-5), json!(1e300), json!(null), json!(["1767229200"])] {
            assert_eq!(wait(&json!({ "resets_at": value })), None);
            assert_eq!(wait(&json!({ "resets_in_seconds": value })), None);
            assert_eq!(wait(&json!({ "details": value })), None);
        }
    }
}
