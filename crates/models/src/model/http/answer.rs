//! The error that an answer without a reply means.
//!
//! Owns the words about answers that no provider gives: a web page, a redirect, an unknown path. They
//! mostly mean a wrong address, so they name it. `classify` reads the error objects of providers.

use std::fmt;
use std::time::Duration;

use bytes::BytesMut;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Response, Url};
use tokio::time::timeout;

use super::bounds::{self, WORDS_CHARS};
use super::classify::{Refusal, retry_after, should_retry};
use super::{allowance, now_ms};
use crate::admission::LONGEST_PAUSE;
use crate::model::{ErrorClass, ModelError};

/// The most bytes that are read of an error's body. Error objects are far smaller, and a proxy's
/// web page is cut.
const ERROR_BYTES: usize = 64 * 1024;
/// The most characters that are told of a title, a text or an address at first. The message is cut again
/// once secrets are replaced: one that stood at the final cut must be whole until then.
const TOLD_CHARS: usize = 4 * WORDS_CHARS;

/// A request as it is told to people: without the query and the user of its address, which may be secret.
pub(super) struct Asked {
    method: &'static str,
    address: Url,
    /// The path that the protocol adds to `base_url`.
    path: &'static str,
}

impl Asked {
    pub(super) fn new(method: &'static str, address: &Url, path: &'static str) -> Self {
        Self { method, address: tellable(address.clone()), path }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.address)
    }
}

/// Returns an address without the parts that may be secret.
fn tellable(mut url: Url) -> Url {
    url.set_query(None);
    url.set_fragment(None);
    // Only addresses without a host have no user to remove.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// Returns the error that a response without a reply means.
pub(super) async fn refused(
    mut response: Response,
    patience: Duration,
    asked: &Asked,
) -> ModelError {
    let body = beginning(&mut response, ERROR_BYTES, patience).await;
    let headers = response.headers();
    with_waits(judge(response.status().as_u16(), headers, &body, asked), headers)
}

/// Returns an error with what the headers of its answer and its own words say about another attempt.
pub(super) fn with_waits(error: ModelError, headers: &HeaderMap) -> ModelError {
    let told = allowance::allowance(headers, now_ms());
    let used_up = [told.requests, told.tokens].into_iter().flatten().filter(|rest| rest.left == 0);
    let is_limit = error.status == Some(429);
    // These limits are of a minute to a day: what is further away is not believed, as with `Retry-After`.
    let is_near = |wait: &Duration| is_limit && *wait <= LONGEST_PAUSE;
    let reset = used_up.map(|rest| rest.resets_in).filter(is_near).max();
    let left = [told.requests, told.tokens].into_iter().flatten().map(|rest| rest.left).min();
    let error = ModelError { limit_left: left, ..error };
    let (in_headers, in_body) = (retry_after(headers, now_ms()), error.retry_after);
    match error.class {
        // Headers tell of the limit of a minute. Whether a quota is waited for is for the settings to say.
        ErrorClass::QuotaExhausted => ModelError {
            retry_after: in_body.or(in_headers).or(reset),
            should_retry: None,
            ..error
        },
        _ => ModelError {
            retry_after: in_headers.or(in_body).or(reset),
            should_retry: should_retry(headers),
            ..error
        },
    }
}

/// Returns the error that a web page means, which comes in place of a reply with the status of one. `first` is its
/// beginning, which was read already.
pub(super) async fn page(
    first: &[u8],
    response: &mut Response,
    patience: Duration,
    asked: &Asked,
) -> ModelError {
    let mut body = BytesMut::from(&first[..first.len().min(ERROR_BYTES)]);
    body.extend_from_slice(&beginning(response, ERROR_BYTES - body.len(), patience).await);
    judge(response.status().as_u16(), response.headers(), &body, asked)
}

fn judge(status: u16, headers: &HeaderMap, body: &[u8], asked: &Asked) -> ModelError {
    let is_unknown = matches!(status, 404 | 405);
    let page = is_page(headers, body);
    let error = match Refusal::find_in(body) {
        Some(refusal) => {
            let error = refusal.into_error(status);
            return match is_unknown {
                // A server that has no model of this name says so in the same way as one that has no
                // such path.
                true => {
                    let message = format!("{} ({status} from {asked})", error.message);
                    ModelError { message, ..error }
                }
                false => error,
            };
        }
        None if status < 400 => ModelError::new(ErrorClass::Fatal, ""),
        None => Refusal::read(body).into_error(status),
    };
    let is_blank = body.trim_ascii().is_empty();
    if status >= 400 && !is_unknown && !page && !is_blank {
        return ModelError { status: Some(status), ..error };
    }
    let mut message = format!("the server answered {status} to {asked} ");
    message.push_str(&match moved(status, headers, asked) {
        Some(to) => {
            format!("with a redirect to {to}, which is not followed: it would take the key there")
        }
        None if page => match title(body) {
            Some(title) => format!("with a web page, \"{title}\""),
            None => "with a web page".to_owned(),
        },
        None if is_blank => "with an empty body".to_owned(),
        None => format!(
            "with something else: {}",
            bounds::beginning(&String::from_utf8_lossy(body), TOLD_CHARS)
        ),
    });
    message.push_str("; expected an event stream");
    if status < 400 || is_unknown {
        let path = asked.path;
        message.push_str(&format!(". Is `base_url` right? It is what stands before `{path}`"));
        if page && status < 400 {
            message.push_str("; a proxy or a login page may answer in place of the provider");
        }
    }
    ModelError { status: Some(status), message, ..error }
}

/// Returns true if a body is a web page.
pub(super) fn is_page(headers: &HeaderMap, body: &[u8]) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let begins = |word: &[u8]| {
        let body = body.trim_ascii_start();
        body.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    kind.get(..9).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/html"))
        || begins(b"<!doctype html")
        || begins(b"<html")
}

/// Returns the title of a web page on one line.
fn title(page: &[u8]) -> Option<String> {
    let page = String::from_utf8_lossy(page);
    let lower = page.to_ascii_lowercase();
    let start = lower.find("<title")?;
    let start = start + lower[start..].find('>')? + 1;
    let end = start + lower[start..].find("</title")?;
    let words: Vec<&str> = page[start..end].split_whitespace().collect();
    let title = bounds::beginning(&words.join(" "), TOLD_CHARS);
    Some(title).filter(|title| !title.is_empty())
}

/// Returns the address that a redirect leads to.
fn moved(status: u16, headers: &HeaderMap, asked: &Asked) -> Option<String> {
    let to = headers.get(LOCATION).filter(|_| (300..400).contains(&status))?;
    let to = asked.address.join(to.to_str().ok()?).ok()?;
    Some(bounds::beginning(tellable(to).as_str(), TOLD_CHARS))
}

/// Returns the beginning of a body: the bytes that arrive within `patience`, at most `most` of
/// them.
pub(super) async fn beginning(
    response: &mut Response,
    most: usize,
    patience: Duration,
) -> BytesMut {
    let mut body = BytesMut::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = most.saturating_sub(body.len());
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() >= room {
                break;
            }
        }
    };
    // After the time limit the bytes that have arrived must be enough.
    let _ = timeout(patience, read).await;
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(status: u16, header: Option<(&'static str, &str)>, body: &str) -> ModelError {
        let url = Url::parse("http://me:pw@models.example/v1/v1/messages?key=abc").expect("a URL");
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().expect("a value"));
        }
        judge(status, &headers, body.as_bytes(), &Asked::new("POST", &url, "/v1/messages"))
    }

    #[test]
    fn the_reset_of_a_limit_is_believed_for_a_day() {
        let wait = |seconds: i64| {
            let at = jiff::Timestamp::from_millisecond(now_ms() + seconds * 1_000).expect("a time");
            let pairs = [
                ("anthropic-ratelimit-requests-remaining", "0".to_owned()),
                ("anthropic-ratelimit-requests-reset", at.to_string()),
            ];
            let pairs = pairs.map(|(name, value)| {
                let name = reqwest::header::HeaderName::from_static(name);
                (name, value.parse().expect("a value"))
            });
            let error = ModelError::new(ErrorClass::RateLimited, "slow");
            let error = ModelError { status: Some(429), ..error };
            with_waits(error, &pairs.into_iter().collect()).retry_after
        };
        assert!(wait(3_600).is_some_and(|wait| wait.as_secs() > 3_000));
        assert_eq!(wait(2 * 86_400), None);
        assert_eq!(wait(72 * 365 * 86_400), None);
    }

    #[test]
    fn an_answer_of_another_kind_is_told_with_its_address() {
        let page = "\n<!DOCTYPE html><head><Title class=x> Not\n Found </title></head>";
        let error = error_of(404, None, page);
        let address = "http://models.example/v1/v1/messages";
        let hint = ". Is `base_url` right? It is what stands before `/v1/messages`";
        assert_eq!(
            error.message,
            format!(
                "the server answered 404 to POST {address} with a web page, \"Not Found\"; \
                 expected an event stream{hint}"
            )
        );
        assert_eq!((error.class, error.status), (ErrorClass::NotFound, Some(404)));
        let error = error_of(200, Some(("content-type", "Text/HTML; charset=x")), "hello");
        let start = format!("the server answered 200 to POST {address} with a web page; ");
        let other = "; a proxy or a login page may answer in place of the provider";
        let hints = format!("{hint}{other}");
        assert!(error.message.starts_with(&start) && error.message.ends_with(&hints), "{error}");
        let error = error_of(404, None, "");
        assert!(error.message.contains("404 to POST http") && error.message.contains("empty body"));
        let error = error_of(404, None, r#"{"detail":"Not Found"}"#);
        assert_eq!(error.message, format!("Not Found (404 from POST {address})"));
        let error = error_of(404, None, "404 page not found");
        assert!(error.message.contains("something else: 404 page not found;"), "{error}");
    }

    #[test]
    fn a_redirect_is_told_without_what_may_be_secret() {
        let to = Some(("location", "https://u:p@other.example/x?token=1"));
        let error = error_of(308, to, "moved");
        assert!(error.message.contains("a redirect to https://other.example/x, which"), "{error}");
        let error = error_of(301, Some(("location", "/v1/messages")), "");
        assert!(error.message.contains(" to http://models.example/v1/messages, which"), "{error}");
        assert!(error_of(302, None, "").message.contains("302 to POST"));
    }

    #[test]
    fn an_error_that_may_pass_says_no_word_about_the_address_settings() {
        let error = error_of(502, None, "<html><title>502 Bad Gateway</title></html>");
        assert_eq!(error.class, ErrorClass::ServerError);
        assert!(error.message.contains("web page, \"502 Bad Gateway\""), "{error}");
        assert!(!error.message.contains("base_url"), "{error}");
        assert_eq!(error_of(503, None, "no healthy upstream").message, "no healthy upstream");
        assert_eq!(error_of(429, None, "<html>slow</html>").class, ErrorClass::RateLimited);
    }
}
