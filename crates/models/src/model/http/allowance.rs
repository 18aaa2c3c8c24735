//! Reads the headers in which providers tell what is left of their limits.

use std::time::Duration;

use reqwest::header::HeaderMap;

use crate::model::{Allowance, Remaining};

/// The limits of tokens that the Messages API tells; the smallest rest counts.
const TOKEN_LIMITS: [&str; 3] = ["tokens", "input-tokens", "output-tokens"];

/// Returns what the headers tell of the limits. `now_ms` is the wall time since the Unix epoch.
pub(super) fn allowance(headers: &HeaderMap, now_ms: i64) -> Allowance {
    let text = |name: String| headers.get(name)?.to_str().ok().map(str::trim);
    let anthropic = |limit: &str| {
        let left = text(format!("anthropic-ratelimit-{limit}-remaining"))?.parse().ok()?;
        let reset: jiff::Timestamp =
            text(format!("anthropic-ratelimit-{limit}-reset"))?.parse().ok()?;
        let resets_in = u64::try_from(reset.as_millisecond().saturating_sub(now_ms)).ok()?;
        Some(Remaining { left, resets_in: Duration::from_millis(resets_in) })
    };
    let openai = |limit: &str| {
        let left = text(format!("x-ratelimit-remaining-{limit}"))?.parse().ok()?;
        let resets_in = time(text(format!("x-ratelimit-reset-{limit}"))?)?;
        Some(Remaining { left, resets_in })
    };
    let tokens = TOKEN_LIMITS.into_iter().filter_map(anthropic).min_by_key(|rest| rest.left);
    Allowance {
        requests: anthropic("requests").or_else(|| openai("requests")),
        tokens: tokens.or_else(|| openai("tokens")),
    }
}

/// Reads a length of time like `6m0s`, `1.5s`, `20ms` or `30`, which are seconds.
fn time(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" | "" => 1.0,
            "ms" => 0.001,
            "us" | "µs" => 0.000_001,
            "ns" => 0.000_000_001,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * factor;
        rest = after;
    }
    // A number of this size is a date, in a form of its own.
    const LONGEST: f64 = 100.0 * 24.0 * 3_600.0;
    Duration::try_from_secs_f64(seconds).ok().filter(|_| !text.is_empty() && seconds < LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &str)]) -> Allowance {
        let headers = headers.iter().map(|(name, value)| {
            let name = reqwest::header::HeaderName::from_static(name);
            (name, value.parse().expect("a value"))
        });
        allowance(&headers.collect(), 1_795_500_000_000)
    }

    #[test]
    fn both_forms_are_read() {
        let rest = |left, ms| Some(Remaining { left, resets_in: Duration::from_millis(ms) });
        let at = jiff::Timestamp::from_millisecond(1_795_500_030_000).expect("a time").to_string();
        let found = read(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", &at),
            ("anthropic-ratelimit-tokens-remaining", "900"),
            ("anthropic-ratelimit-tokens-reset", &at),
            ("anthropic-ratelimit-input-tokens-remaining", "700"),
            ("anthropic-ratelimit-input-tokens-reset", &at),
        ]);
        assert_eq!((found.requests, found.tokens), (rest(49, 30_000), rest(700, 30_000)));
        let found = read(&[
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1m2.5s"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6ms"),
        ]);
        assert_eq!((found.requests, found.tokens), (rest(59, 62_500), rest(149_984, 6)));
    }

    #[test]
    fn what_cannot_be_read_is_nothing() {
        let odd = ["", "soon", "-1s", "1x", "1784500000000", "1e3", "s", "..s", "9999999h"];
        for reset in odd {
            let found = read(&[
                ("x-ratelimit-remaining-requests", "1"),
                ("x-ratelimit-reset-requests", reset),
            ]);
            assert_eq!(found, Allowance::default(), "{reset}");
        }
        for (left, reset) in
            [("-1", "2026-11-23T00:00:00Z"), ("1", "later"), ("1", "1999-01-01T00:00:00Z")]
        {
            let found = read(&[
                ("anthropic-ratelimit-requests-remaining", left),
                ("anthropic-ratelimit-requests-reset", reset),
            ]);
            assert_eq!(found, Allowance::default(), "{left} {reset}");
        }
    }
}
