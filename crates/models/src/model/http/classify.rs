//! Classifies the errors of providers: by status, type, code and words.
//!
//! Owns the forms of error objects and the classes that follow from the status; `words` has the table of
//! what services say. Also reads the headers about retries.

mod words;

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;

use self::words::{Meaning, Numbers};
use super::bounds::{TOKENS, WORDS_CHARS, beginning};
use super::values::tree;
use super::{now_ms, waits};
use crate::admission::LONGEST_PAUSE;
use crate::model::{ErrorClass, ModelError};

/// The most characters of a message that are kept at first. It is cut again once secrets are replaced:
/// one that stood at the final cut must be whole until then.
const MESSAGE_CHARS: usize = 4 * WORDS_CHARS;

/// Attempts after a call that the server could not read: the next answer of the model may be better, but a
/// model that slips again and again is paid for each time.
const SLIPS: u32 = 3;

/// The most errors within each other that are read: a gateway behind a gateway.
const DEPTH: usize = 3;

/// A provider's error object, in any of the known forms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    kind: String,
    code: String,
    /// Google's reason, in a detail.
    reason: String,
    message: String,
    /// llama.cpp gives the numbers in fields of their own.
    numbers: Numbers,
    /// True if Google says that the limit is that of a day.
    is_of_day: bool,
    /// The time that the error asks to wait.
    wait: Option<Duration>,
    /// The error of the service behind a gateway.
    cause: Option<Box<Self>>,
}

impl Refusal {
    /// Reads the body of an error response; text that is not JSON is the message itself.
    pub(crate) fn read(body: &[u8]) -> Self {
        match tree::<Value>(body) {
            Some(value) => {
                let found = Self::find(&value, DEPTH);
                found.unwrap_or_else(|| Self::text(&value.to_string(), DEPTH))
            }
            None => Self::text(&String::from_utf8_lossy(body), DEPTH),
        }
    }

    /// Returns the error object in a JSON text, if there is one and the text is not too large.
    pub(crate) fn find_in(json: &[u8]) -> Option<Self> {
        Self::find(&tree(json)?, DEPTH)
    }

    /// Returns the error object in `value`, if it has one: an object or a text under `error`, a flat object,
    /// or one of these in a list.
    fn find(value: &Value, depth: usize) -> Option<Self> {
        let value = match value {
            Value::Array(all) => all.first()?,
            value => value,
        };
        match value.get("error") {
            Some(error @ Value::Object(_)) => Some(Self::from_object(error, depth)),
            // xAI has the code beside the text.
            Some(Value::String(text)) => {
                let code = beginning(&plain(&value["code"]), WORDS_CHARS);
                Some(Self { code, ..Self::text(text, depth) })
            }
            _ if value["object"] == "error" || value["type"] == "error" => {
                Some(Self::from_object(value, depth))
            }
            _ if value.get("choices").is_none() => match value.get("message") {
                Some(_) => Some(Self::from_object(value, depth)),
                None => Some(Self::text(&plain(value.get("detail")?), depth)),
            },
            _ => None,
        }
    }

    fn from_object(error: &Value, depth: usize) -> Self {
        let word = |value: &Value| beginning(&plain(value), WORDS_CHARS);
        let details = error["details"].as_array().map_or(&[][..], Vec::as_slice);
        let kind = if error["type"].is_null() { &error["status"] } else { &error["type"] };
        let mut reasons = details.iter().filter_map(|detail| detail["reason"].as_str());
        let mut quotas = details
            .iter()
            .filter_map(|detail| detail["violations"].as_array())
            .flatten()
            .filter_map(|violation| violation["quotaId"].as_str());
        let count = |name: &str| error[name].as_u64().map(|count| count.min(TOKENS));
        let text = Self::text(&plain(&error["message"]), depth);
        let raw = &error["metadata"]["raw"];
        let behind = depth.checked_sub(1).filter(|_| !raw.is_null());
        let behind = behind.and_then(|depth| match raw {
            Value::String(raw) => match tree::<Value>(raw.as_bytes()) {
                Some(value) => Self::find(&value, depth),
                None => Some(Self::text(raw, depth)),
            },
            value => Self::find(value, depth),
        });
        Self {
            kind: word(kind),
            code: word(&error["code"]),
            reason: reasons.next().map_or_else(String::new, |text| beginning(text, WORDS_CHARS)),
            numbers: Numbers { have: count("n_prompt_tokens"), max: count("n_ctx") },
            is_of_day: quotas.any(|quota| quota.contains("PerDay")),
            wait: waits::time_named(error, &text.message, now_ms()),
            cause: behind.map(Box::new).or(text.cause),
            message: text.message,
        }
    }

    /// Takes a text as the message; a gateway may have put the object of the service into it.
    fn text(text: &str, depth: usize) -> Self {
        let message = beginning(text, MESSAGE_CHARS);
        let wait = waits::time_named(&Value::Null, &message, now_ms());
        let cause = depth.checked_sub(1).and_then(|depth| Self::find(&passed_on(text)?, depth));
        Self { message, wait, cause: cause.map(Box::new), ..Self::default() }
    }

    /// Returns the error for the HTTP status that came with it; 200 for an error inside a stream.
    pub(crate) fn into_error(self, status: u16) -> ModelError {
        let (class, wait) = (self.classify(status), self.wait());
        let is_slip = self.means() == Some(Meaning::BadCall) && class == ErrorClass::ServerError;
        let cause = self.cause.map(|cause| cause.message).unwrap_or_default();
        let message = match (self.message.is_empty(), self.kind.is_empty()) {
            (false, true) => self.message,
            (false, false) => format!("{}: {}", self.kind, self.message),
            (true, false) => self.kind,
            (true, true) => format!("the provider answered with status {status}"),
        };
        let message = match cause.is_empty() || message.contains(&cause) {
            true => message,
            false => beginning(&format!("{message}: {cause}"), MESSAGE_CHARS),
        };
        let longest = match class {
            ErrorClass::QuotaExhausted => Duration::MAX,
            ErrorClass::RateLimited | ErrorClass::Overloaded => LONGEST_PAUSE,
            _ => Duration::ZERO,
        };
        ModelError {
            status: Some(status),
            retry_after: wait.filter(|wait| *wait <= longest),
            most_attempts: is_slip.then_some(SLIPS),
            ..ModelError::new(class, message)
        }
    }

    /// Returns the time to wait: that of the service, which knows it best, if it tells one.
    fn wait(&self) -> Option<Duration> {
        self.cause.as_ref().and_then(|cause| cause.wait()).or(self.wait)
    }

    fn classify(&self, status: u16) -> ErrorClass {
        let in_stream = (200..300).contains(&status);
        let status = if in_stream { self.implied_status() } else { status };
        if let Some(class) = self.class_named(status, in_stream) {
            return class;
        }
        match status {
            402 => ErrorClass::QuotaExhausted,
            401 | 403 => ErrorClass::Auth,
            404 => ErrorClass::NotFound,
            413 => ErrorClass::RequestBytes,
            429 => ErrorClass::RateLimited,
            529 => ErrorClass::Overloaded,
            500.. if self.is("overloaded_error") => ErrorClass::Overloaded,
            408 | 409 | 500.. => ErrorClass::ServerError,
            _ if self.is("request_too_large") => ErrorClass::RequestBytes,
            _ => ErrorClass::Fatal,
        }
    }

    /// Returns the class that the type, the code or the words tell, of the service before the gateway.
    fn class_named(&self, status: u16, in_stream: bool) -> Option<ErrorClass> {
        let behind = self.cause.as_ref().and_then(|cause| cause.class_named(status, in_stream));
        behind.or_else(|| self.class_named_itself(status, in_stream))
    }

    fn class_named_itself(&self, status: u16, in_stream: bool) -> Option<ErrorClass> {
        let refused = matches!(status, 400 | 422) || (in_stream && status >= 500);
        let too_long = refused || status == 413;
        let denied = refused || matches!(status, 402 | 403 | 429);
        // At Google the words are the same for the limit of a minute and that of a day.
        if self.is("RESOURCE_EXHAUSTED") {
            let class =
                if self.is_of_day { ErrorClass::QuotaExhausted } else { ErrorClass::RateLimited };
            return denied.then_some(class);
        }
        let found = words::of_message(&self.message);
        let numbers = found.map(|(_, numbers)| numbers).unwrap_or_default();
        let numbers = Numbers {
            have: self.numbers.have.or(numbers.have),
            max: self.numbers.max.or(numbers.max),
        };
        match self.means()? {
            Meaning::TooLong => too_long.then(|| overflow(numbers)),
            Meaning::SlotTooSmall => (too_long || status == 500).then(|| overflow(numbers)),
            Meaning::OverMinute => {
                let is_over = numbers.have > numbers.max;
                (is_over && matches!(status, 413 | 429)).then(|| overflow(numbers))
            }
            Meaning::Quota => denied.then_some(ErrorClass::QuotaExhausted),
            Meaning::Key => (refused || status == 403).then_some(ErrorClass::Auth),
            Meaning::Model => refused.then_some(ErrorClass::NotFound),
            Meaning::BadCall => refused.then_some(ErrorClass::ServerError),
            Meaning::Pairing => refused.then_some(ErrorClass::Pairing),
            Meaning::Thinking => refused.then_some(ErrorClass::ThinkingChanged),
            Meaning::Never => (status == 500 && !in_stream).then_some(ErrorClass::Fatal),
        }
    }

    /// Returns the meaning of the code, the type or the reason, or else of the words.
    fn means(&self) -> Option<Meaning> {
        let codes = [&self.code, &self.kind, &self.reason];
        let of_code = codes.into_iter().find_map(|code| words::of_code(code));
        of_code.or_else(|| words::of_message(&self.message).map(|(meaning, _)| meaning))
    }

    fn is(&self, word: &str) -> bool {
        self.kind == word || self.code == word
    }

    /// Returns the status that a type or code inside a stream stands for.
    fn implied_status(&self) -> u16 {
        let words = [self.kind.as_str(), self.code.as_str()];
        let of_word = words.iter().find_map(|word| {
            Some(match *word {
                "invalid_request_error" | "BadRequestError" | "INVALID_ARGUMENT" => 400,
                "context_length_exceeded" | "exceed_context_size_error" | "tool_use_failed" => 400,
                "authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => 401,
                "billing_error" | "usage_limit_reached" => 402,
                "permission_error" | "PERMISSION_DENIED" => 403,
                "not_found_error" | "model_not_found" | "NOT_FOUND" => 404,
                "request_too_large" => 413,
                "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" => 429,
                "RESOURCE_EXHAUSTED" | "ThrottlingException" | "too_many_requests" => 429,
                "overloaded_error" => 529,
                "api_error" | "server_error" | "timeout_error" | "conflict_error" => 500,
                "INTERNAL" | "UNAVAILABLE" | "DEADLINE_EXCEEDED" => 500,
                _ => return None,
            })
        });
        let of_code = || self.code.parse().ok().filter(|code| (400..600).contains(code));
        // A request that was accepted and then failed for an unknown reason had a temporary
        // failure, unless its message says otherwise.
        of_word.or_else(of_code).unwrap_or(500)
    }
}

/// Returns the class of a request that does not fit. A smaller output limit helps only if the input alone
/// fits.
fn overflow(numbers: Numbers) -> ErrorClass {
    let Numbers { have, max } = numbers;
    match (have, max) {
        (Some(input), Some(limit)) if input < limit => {
            ErrorClass::ContextPlusOutput { input: have, limit: max }
        }
        _ => ErrorClass::ContextTokens { have, max },
    }
}

/// Returns the body of the service that a gateway passes on at the end of its own message, as LiteLLM does:
/// `litellm.BadRequestError: OpenAIException - {...}`.
fn passed_on(message: &str) -> Option<Value> {
    let at = message.find('{')?;
    let before = message[..at].trim_end_matches(['b', '\'', '"', '[']).trim_end();
    let is_gateway = before.len() < 200
        && before.ends_with(" -")
        && (before.contains("Exception") || before.contains("Error code"));
    let json = &message[at..];
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let value = values.next().filter(|_| is_gateway)?.ok()?;
    // What is nested too deep is not read.
    tree(value.to_string().as_bytes())
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
mod tests;
