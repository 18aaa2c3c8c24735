//! Classifies the errors of providers: by status first, then by type and code, then by patterns of
//! the message.
//!
//! Owns the table of error classes of both protocols, and the reading of the headers about retries.
//! A number in a message is read only where a pattern shows its meaning.

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::bounds::{TOKENS, WORDS_CHARS, beginning};
use super::values::tree;
use crate::admission::LONGEST_PAUSE;
use crate::model::{ErrorClass, ModelError};

/// The most characters of a message that are kept at first. It is cut again once secrets are replaced:
/// one that stood at the final cut must be whole until then.
const MESSAGE_CHARS: usize = 4 * WORDS_CHARS;

/// A provider's error object, in any of the known forms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    kind: String,
    code: String,
    message: String,
    /// llama.cpp gives the numbers in fields of their own.
    have: Option<u64>,
    max: Option<u64>,
}

impl Refusal {
    /// Reads the body of an error response; text that is not JSON is the message itself.
    pub(crate) fn read(body: &[u8]) -> Self {
        match tree::<Value>(body) {
            Some(value) => Self::find(&value).unwrap_or_else(|| Self::text(&value.to_string())),
            None => Self::text(&String::from_utf8_lossy(body)),
        }
    }

    /// Returns the error object in a JSON text, if there is one and the text is not too large.
    pub(crate) fn find_in(json: &[u8]) -> Option<Self> {
        Self::find(&tree(json)?)
    }

    /// Returns the error object in `value`, if it has one: an object or a text under `error`, or a
    /// flat object with `"object":"error"`.
    fn find(value: &Value) -> Option<Self> {
        match value.get("error") {
            Some(Value::Object(_)) => Some(Self::from_object(&value["error"])),
            Some(Value::String(text)) => Some(Self::text(text)),
            _ if value["object"] == "error" || value["type"] == "error" => {
                Some(Self::from_object(value))
            }
            _ if value.get("choices").is_none() => {
                let message = value.get("message").or_else(|| value.get("detail"))?;
                Some(Self::text(&plain(message)))
            }
            _ => None,
        }
    }

    fn from_object(error: &Value) -> Self {
        Self {
            kind: beginning(&plain(&error["type"]), WORDS_CHARS),
            code: beginning(&plain(&error["code"]), WORDS_CHARS),
            message: beginning(&plain(&error["message"]), MESSAGE_CHARS),
            have: error["n_prompt_tokens"].as_u64().map(|count| count.min(TOKENS)),
            max: error["n_ctx"].as_u64().map(|count| count.min(TOKENS)),
        }
    }

    fn text(text: &str) -> Self {
        Self { message: beginning(text, MESSAGE_CHARS), ..Self::default() }
    }

    /// Returns the error for the HTTP status that came with it; 200 for an error inside a stream.
    pub(crate) fn into_error(self, status: u16) -> ModelError {
        let class = self.classify(status);
        let message = match (self.message.is_empty(), self.kind.is_empty()) {
            (false, true) => self.message,
            (false, false) => format!("{}: {}", self.kind, self.message),
            (true, false) => self.kind,
            (true, true) => format!("the provider answered with status {status}"),
        };
        ModelError { status: Some(status), ..ModelError::new(class, message) }
    }

    fn classify(&self, status: u16) -> ErrorClass {
        let in_stream = (200..300).contains(&status);
        let status = if in_stream { self.implied_status() } else { status };
        match status {
            402 => ErrorClass::QuotaExhausted,
            401 | 403 => ErrorClass::Auth,
            404 => ErrorClass::Fatal,
            413 => ErrorClass::RequestBytes,
            400 | 429 if self.is_out_of_quota() => ErrorClass::QuotaExhausted,
            429 => self.request_over_limit().unwrap_or(ErrorClass::RateLimited),
            529 => ErrorClass::Overloaded,
            500.. if self.is("overloaded_error") => ErrorClass::Overloaded,
            // Early llama.cpp servers answer 500 to a prompt that is too long.
            500 if !in_stream => self.slot_overflow().unwrap_or(ErrorClass::ServerError),
            500.. if in_stream => self.pattern().unwrap_or(ErrorClass::ServerError),
            408 | 409 | 500.. => ErrorClass::ServerError,
            _ => self.pattern().unwrap_or(ErrorClass::Fatal),
        }
    }

    /// Returns true if the quota or the credit of the account is used up, not the limit of a minute.
    fn is_out_of_quota(&self) -> bool {
        let kinds = ["insufficient_quota", "usage_limit_reached", "billing_error"];
        let words = ["usage limit reached", "credit balance is too low"];
        let message = self.message.to_lowercase();
        kinds.iter().any(|kind| self.is(kind)) || words.iter().any(|part| message.contains(part))
    }

    fn is(&self, word: &str) -> bool {
        self.kind == word || self.code == word
    }

    /// Returns the status that a type or code inside a stream stands for.
    fn implied_status(&self) -> u16 {
        let words = [self.kind.as_str(), self.code.as_str()];
        let of_word = words.iter().find_map(|word| {
            Some(match *word {
                "invalid_request_error" | "BadRequestError" | "context_length_exceeded" => 400,
                "exceed_context_size_error" => 400,
                "authentication_error" | "invalid_api_key" => 401,
                "billing_error" | "usage_limit_reached" => 402,
                "permission_error" => 403,
                "not_found_error" | "model_not_found" => 404,
                "request_too_large" => 413,
                "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" => 429,
                "overloaded_error" => 529,
                "api_error" | "server_error" | "timeout_error" | "conflict_error" => 500,
                _ => return None,
            })
        });
        let of_code = || self.code.parse().ok().filter(|code| (400..600).contains(code));
        // A request that was accepted and then failed for an unknown reason had a temporary
        // failure, unless its message says otherwise.
        of_word.or_else(of_code).unwrap_or(500)
    }

    /// Returns the class that follows from the message of a 4xx, or of an error inside a stream.
    fn pattern(&self) -> Option<ErrorClass> {
        if self.is("request_too_large") {
            return Some(ErrorClass::RequestBytes);
        }
        if PATTERNS.pairing.is_match(&self.message) {
            return Some(ErrorClass::Pairing);
        }
        if PATTERNS.thinking.is_match(&self.message) {
            return Some(ErrorClass::ThinkingChanged);
        }
        self.context_plus_output().or_else(|| self.context_tokens())
    }

    fn context_plus_output(&self) -> Option<ErrorClass> {
        let (input, limit) = if let Some([input, limit]) = numbers(&PATTERNS.sum, &self.message) {
            (input, limit)
        } else if let Some([limit, asked, output]) = numbers(&PATTERNS.requested, &self.message) {
            (asked.saturating_sub(output), limit)
        } else {
            let [limit, input] = numbers(&PATTERNS.output_too_large, &self.message)?;
            (input, limit)
        };
        // A smaller output limit helps only if the input alone fits.
        Some(match input < limit {
            true => ErrorClass::ContextPlusOutput { input: Some(input), limit: Some(limit) },
            false => ErrorClass::ContextTokens { have: Some(input), max: Some(limit) },
        })
    }

    fn context_tokens(&self) -> Option<ErrorClass> {
        if let Some([have, max]) = numbers(&PATTERNS.prompt_too_long, &self.message) {
            return Some(ErrorClass::ContextTokens { have: Some(have), max: Some(max) });
        }
        if let Some([max, have]) = numbers(&PATTERNS.resulted, &self.message) {
            return Some(ErrorClass::ContextTokens { have: Some(have), max: Some(max) });
        }
        let said = PATTERNS.too_long.is_match(&self.message)
            || self.is("context_length_exceeded")
            || self.is("prompt_too_long");
        let bare = || ErrorClass::ContextTokens { have: self.have, max: self.max };
        self.slot_overflow().or_else(|| said.then(bare))
    }

    /// Returns the class if llama.cpp reports that the prompt does not fit the slot.
    fn slot_overflow(&self) -> Option<ErrorClass> {
        let said = self.is("exceed_context_size_error") || PATTERNS.slot.is_match(&self.message);
        let in_text = numbers(&PATTERNS.slot_numbers, &self.message);
        let in_text = |at: usize| in_text.map(|pair: [u64; 2]| pair[at]);
        said.then(|| ErrorClass::ContextTokens {
            have: self.have.or_else(|| in_text(0)),
            max: self.max.or_else(|| in_text(1)),
        })
    }

    /// Returns the class of a 429 about one request that is larger than the limit of a minute.
    /// Waiting does not help then, so it is not a rate limit.
    fn request_over_limit(&self) -> Option<ErrorClass> {
        let [max, have] = numbers(&PATTERNS.over_minute, &self.message)?;
        (have > max).then_some(ErrorClass::ContextTokens { have: Some(have), max: Some(max) })
    }
}

/// The patterns of error messages, with groups for the numbers.
struct Patterns {
    prompt_too_long: Regex,
    sum: Regex,
    requested: Regex,
    output_too_large: Regex,
    resulted: Regex,
    slot: Regex,
    slot_numbers: Regex,
    over_minute: Regex,
    too_long: Regex,
    pairing: Regex,
    thinking: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let regex = |pattern: &str| Regex::new(pattern).expect("the pattern is a constant and tested");
    Patterns {
        prompt_too_long: regex(r"(?i)prompt is too long: ([\d,]+) tokens > ([\d,]+) maximum"),
        sum: regex(r"(?i)exceed context limit: ([\d,]+) \+ [\d,]+ > ([\d,]+)"),
        requested: regex(
            r"(?is)maximum context length is ([\d,]+) tokens.*you requested ([\d,]+) tokens \([^)]*?([\d,]+) in the completion\)",
        ),
        // Newer vLLM: `... is too large: 8192. This model's maximum context length is 4096 tokens
        // and your request has 100 input tokens`.
        output_too_large: regex(
            r"(?is)maximum context length is ([\d,]+) tokens and your request has ([\d,]+) input tokens",
        ),
        resulted: regex(
            r"(?is)maximum context length is ([\d,]+) tokens.*resulted in ([\d,]+) tokens",
        ),
        slot: regex(r"(?i)exceeds the available context size"),
        slot_numbers: regex(
            r"(?i)\(([\d,]+) tokens\) exceeds the available context size \(([\d,]+) tokens\)",
        ),
        over_minute: regex(r"(?is)request too large for .*limit:? ([\d,]+), requested:? ([\d,]+)"),
        too_long: regex(
            r"(?i)context_length_exceeded|maximum context length|exceed_context_size_error|exceeds the available context size|ContextWindowExceededError|prompt is too long|prompt_too_long|input is too long|exceed context limit|must be at least 1, got -|too many tokens",
        ),
        pairing: regex(
            r"(?i)`tool_use` ids were found without `tool_result` blocks|unexpected `tool_use_id` found in `tool_result` blocks|must be followed by tool messages responding to each 'tool_call_id'|messages with role 'tool' must be a response to a prece+ding message with 'tool_calls'",
        ),
        thinking: regex(
            r"(?i)`thinking` or `redacted_thinking` blocks.*cannot be modified|`thinking` block\. the block is bound to a different conversation",
        ),
    }
});

/// Returns the numbers that the groups of `pattern` find in `text`.
fn numbers<const N: usize>(pattern: &Regex, text: &str) -> Option<[u64; N]> {
    let found = pattern.captures(text)?;
    let mut all = [0; N];
    for (at, number) in all.iter_mut().enumerate() {
        let digits = found.get(at + 1)?.as_str().replace(',', "");
        *number = digits.parse::<u64>().ok()?.min(TOKENS);
    }
    Some(all)
}

/// Returns a field that is a text, a number or missing as text.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the time that the provider asks to wait: `retry-after-ms`, else `retry-after` in decimal
/// seconds or as an HTTP date. Only a time above zero counts, up to [`LONGEST_PAUSE`]; a longer one is
/// taken for a mistake, and the usual pause is made. `now_ms` is the wall time since the Unix epoch.
pub(crate) fn retry_after(headers: &HeaderMap, now_ms: i64) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str, unit: f64| {
        let seconds = text.parse::<f64>().ok()? / unit;
        Duration::try_from_secs_f64(seconds).ok()
    };
    let date = |text: &str| {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
        u64::try_from(at.saturating_sub(now_ms)).ok().map(Duration::from_millis)
    };
    let in_ms = text("retry-after-ms").and_then(|text| number(text, 1000.0));
    let wait = in_ms.or_else(|| {
        let text = text("retry-after")?;
        number(text, 1.0).or_else(|| date(text))
    });
    wait.filter(|wait| !wait.is_zero() && *wait <= LONGEST_PAUSE)
}

/// Returns the value of the header `x-should-retry`.
pub(crate) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    headers.get("x-should-retry")?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(status: u16, body: &str) -> ErrorClass {
        Refusal::read(body.as_bytes()).into_error(status).class
    }

    fn anthropic(kind: &str, message: &str) -> String {
        serde_json::json!({"type": "error", "error": {"type": kind, "message": message}})
            .to_string()
    }

    fn openai(kind: &str, code: impl Into<Value>, message: &str) -> String {
        let code = code.into();
        serde_json::json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
            .to_string()
    }

    fn tokens(have: u64, max: u64) -> ErrorClass {
        ErrorClass::ContextTokens { have: Some(have), max: Some(max) }
    }

    const BARE: ErrorClass = ErrorClass::ContextTokens { have: None, max: None };

    #[test]
    fn the_status_speaks_first() {
        let cases = [
            (400, "invalid_request_error", ErrorClass::Fatal),
            (401, "authentication_error", ErrorClass::Auth),
            (402, "billing_error", ErrorClass::QuotaExhausted),
            (403, "permission_error", ErrorClass::Auth),
            (404, "not_found_error", ErrorClass::Fatal),
            (408, "", ErrorClass::ServerError),
            (409, "conflict_error", ErrorClass::ServerError),
            (413, "request_too_large", ErrorClass::RequestBytes),
            (429, "rate_limit_error", ErrorClass::RateLimited),
            (500, "api_error", ErrorClass::ServerError),
            (502, "", ErrorClass::ServerError),
            (503, "unavailable_error", ErrorClass::ServerError),
            (504, "timeout_error", ErrorClass::ServerError),
            (529, "overloaded_error", ErrorClass::Overloaded),
            (307, "", ErrorClass::Fatal),
        ];
        for (status, kind, expected) in cases {
            // A number or words that look like another class must not change the class.
            let body = anthropic(kind, "214291 tokens, 529 of them, were overloaded");
            assert_eq!(class(status, &body), expected, "{status} {kind}");
            assert_eq!(class(status, "<html>429 prompt</html>"), class(status, ""), "{status}");
        }
    }

    #[test]
    fn too_long_is_told_with_its_numbers() {
        let kind = "invalid_request_error";
        let body = anthropic(kind, "prompt is too long: 214291 tokens > 200000 maximum");
        assert_eq!(class(400, &body), tokens(214_291, 200_000));
        let sum = |input| {
            format!(
                "input length and `max_tokens` exceed context limit: {input} + 20000 > 200000, \
                 decrease input length or `max_tokens` and try again"
            )
        };
        let plus =
            |input, limit| ErrorClass::ContextPlusOutput { input: Some(input), limit: Some(limit) };
        assert_eq!(class(400, &anthropic(kind, &sum(186_433))), plus(186_433, 200_000));
        assert_eq!(class(400, &anthropic(kind, &sum(210_000))), tokens(210_000, 200_000));

        let front = "This model's maximum context length is 8192 tokens. However, ";
        let code = "context_length_exceeded";
        let text = format!(
            "{front}your messages resulted in 9001 tokens. Please reduce the length of the messages."
        );
        assert_eq!(class(400, &openai(kind, code, &text)), tokens(9001, 8192));
        let text = format!(
            "{front}you requested 9192 tokens (5192 in the messages, 4000 in the completion). Please reduce the length of the messages or completion."
        );
        assert_eq!(class(400, &openai(kind, code, &text)), plus(5192, 8192));
        let flat = serde_json::json!({"object": "error", "message": text, "type": "BadRequestError", "param": null, "code": 400});
        assert_eq!(class(400, &flat.to_string()), plus(5192, 8192));
        let text = "'max_tokens' is too large: 8192. This model's maximum context length is 4096 tokens and your request has 100 input tokens (8192 > 4096 - 100).";
        assert_eq!(class(400, &openai("BadRequestError", 400, text)), plus(100, 4096));
        let text = format!("prompt is too long: {} tokens > 8 maximum", u64::MAX);
        assert_eq!(class(400, &anthropic(kind, &text)), tokens(TOKENS, 8));
        let text = "max_tokens must be at least 1, got -186.";
        assert_eq!(class(400, &openai("BadRequestError", 400, text)), BARE);
    }

    #[test]
    fn other_servers_words_for_too_long_are_known() {
        let llama = r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#;
        for status in [400, 500, 200] {
            assert_eq!(class(status, llama), tokens(14_429, 8192), "{status}");
        }
        let text = "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it";
        assert_eq!(class(400, &openai("", 400, text)), tokens(14_429, 8192));
        let text = "litellm.ContextWindowExceededError: prompt is too long: 11 tokens > 10 maximum";
        assert_eq!(class(400, &openai("", "400", text)), tokens(11, 10));
        for text in [
            "Input is too long for requested model.",
            "capability_rejected: prompt_too_long",
            "too many tokens",
        ] {
            assert_eq!(class(400, &anthropic("invalid_request_error", text)), BARE, "{text}");
            assert_eq!(class(500, &anthropic("api_error", text)), ErrorClass::ServerError);
            assert_eq!(class(429, &anthropic("", text)), ErrorClass::RateLimited);
        }
    }

    #[test]
    fn a_minute_limit_below_the_request_is_no_rate_limit() {
        let text = |requested| {
            format!(
                "Request too large for gpt-x in organization o on tokens per min (TPM): \
                 Limit 30000, Requested {requested}. Visit https://example.com."
            )
        };
        let body = |requested| openai("tokens", "rate_limit_exceeded", &text(requested));
        assert_eq!(class(429, &body(45_000)), tokens(45_000, 30_000));
        assert_eq!(class(429, &body(20_000)), ErrorClass::RateLimited);
        let body = openai("insufficient_quota", "insufficient_quota", "You exceeded your quota");
        assert_eq!(class(429, &body), ErrorClass::QuotaExhausted);
        let low = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.";
        assert_eq!(
            class(400, &anthropic("invalid_request_error", low)),
            ErrorClass::QuotaExhausted
        );
        let body = openai("usage_limit_reached", Value::Null, "The usage limit has been reached");
        assert_eq!(class(429, &body), ErrorClass::QuotaExhausted);
        assert_eq!(class(200, &body), ErrorClass::QuotaExhausted);
    }

    #[test]
    fn our_own_defects_are_told_apart() {
        let texts = [
            "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following",
            "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        ];
        for text in texts {
            assert_eq!(
                class(400, &openai("invalid_request_error", Value::Null, text)),
                ErrorClass::Pairing
            );
        }
        for text in [
            "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified",
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block.",
        ] {
            let body = anthropic("invalid_request_error", text);
            assert_eq!(class(400, &body), ErrorClass::ThinkingChanged, "{text}");
        }
    }

    #[test]
    fn an_error_inside_a_stream_is_known_by_its_type() {
        let cases = [
            (anthropic("overloaded_error", "Overloaded"), ErrorClass::Overloaded),
            (anthropic("rate_limit_error", "x"), ErrorClass::RateLimited),
            (anthropic("api_error", "x"), ErrorClass::ServerError),
            (anthropic("authentication_error", "x"), ErrorClass::Auth),
            (anthropic("invalid_request_error", "x"), ErrorClass::Fatal),
            (anthropic("later_error", "x"), ErrorClass::ServerError),
            (openai("server_error", Value::Null, "x"), ErrorClass::ServerError),
            (openai("", 429, "slow down"), ErrorClass::RateLimited),
            (openai("", "503", "loading"), ErrorClass::ServerError),
            (openai("", Value::Null, "maximum context length"), BARE),
        ];
        for (body, expected) in cases {
            assert_eq!(class(200, &body), expected, "{body}");
        }
    }

    #[test]
    fn the_message_is_kept_short_and_never_empty() {
        let message = |body: &str| Refusal::read(body.as_bytes()).into_error(500).message;
        assert_eq!(message(""), "the provider answered with status 500");
        assert_eq!(message(r#"{"error":"model not loaded"}"#), "model not loaded");
        assert_eq!(message(r#"{"detail":[{"loc":1}]}"#), r#"[{"loc":1}]"#);
        assert_eq!(message(&anthropic("api_error", "Internal")), "api_error: Internal");
        assert_eq!(message(&"ä".repeat(5000)).chars().count(), MESSAGE_CHARS + 3);
    }

    #[test]
    fn the_wait_is_read_from_each_header() {
        let wait = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            retry_after(&headers, 1_445_412_470_000)
        };
        let s = Duration::from_secs_f64;
        assert_eq!(wait("retry-after-ms", "1500"), Some(s(1.5)));
        assert_eq!(wait("retry-after", "0.25"), Some(s(0.25)));
        assert_eq!(wait("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), Some(s(10.0)));
        let day = LONGEST_PAUSE.as_secs();
        assert_eq!(wait("retry-after", &day.to_string()), Some(LONGEST_PAUSE));
        let more = (day + 1).to_string();
        for none in [
            "0",
            "-3",
            "NaN",
            "inf",
            "soon",
            "1e18",
            "18446744073709551616",
            &more,
            "Wed, 21 Oct 2015 07:27:00 GMT",
            "Fri, 31 Dec 9999 23:59:59 GMT",
        ] {
            assert_eq!(wait("retry-after", none), None, "{none}");
        }
        let mut both = HeaderMap::new();
        both.insert("retry-after-ms", "20".parse().unwrap());
        both.insert("retry-after", "9".parse().unwrap());
        assert_eq!(retry_after(&both, 0), Some(Duration::from_millis(20)));
        both.insert("x-should-retry", "false".parse().unwrap());
        assert_eq!(should_retry(&both), Some(false));
        assert_eq!(should_retry(&HeaderMap::new()), None);
    }
}
