//! Servers that answer in another way than the protocol says, on real sockets and both wires.

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use callsheet::message::{StopReason, Usage};
use callsheet::model::ErrorClass;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::providers::wire::{ask, call, client, endpoint, expected};
use crate::support::answer::{Answer, Fault};
use crate::support::asked::Wire;
use crate::support::provider::Provider;

/// A certificate for 127.0.0.1 that signs itself, and is valid for a hundred years.
const CERTIFICATE: &str = "MIIBmzCCAUCgAwIBAgIUUEYyQ3ZFVI7le9tlPGlOQ8vN6/IwCgYIKoZIzj0EAwIwGTEXMBUGA1UEAwwOY2FsbHNoZWV0IHRlc3QwIBcNMjYxMTIzMDgzNjQyWhgPMjEyNjEwMzAwODM2NDJaMBkxFzAVBgNVBAMMDmNhbGxzaGVldCB0ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAED910BuDchDJfOOb1UkoswxObHDKFGrt1ySBu1h5vZqB1D7BrX54Z0bUipb5WiptfC4FEDJ9Sm8M+lb7GHhcjBaNkMGIwHQYDVR0OBBYEFDGlpsC1JBSECyAIkZCbqYds3WytMB8GA1UdIwQYMBaAFDGlpsC1JBSECyAIkZCbqYds3WytMA8GA1UdEwEB/wQFMAMBAf8wDwYDVR0RBAgwBocEfwAAATAKBggqhkjOPQQDAgNJADBGAiEAtOqYrXLU6KYQtqee6n2bRvK1Q3n+/SXl3ARz+tIE0tECIQDBQy0teFTz/7HqS5LmISWeeryNH/1OXNN3UBrgZfhvEQ==";
/// Its key, which protects nothing.
const CERTIFICATE_KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgmXOLrb6VTeZSIHX43VhN01+GMmT2AdePZay++NRDk72hRANCAAQP3XQG4NyEMl845vVSSizDE5scMoUau3XJIG7WHm9moHUPsGtfnhnRtSKlvlaKm18LgUQMn1Kbwz6VvsYeFyMF";

/// Begins to offer TLS with the certificate to so many connections, one after the other, and returns the
/// port.
fn offer_tls(connections: usize) -> u16 {
    let decode = |text: &str| STANDARD.decode(text).expect("base64");
    let certificate = CertificateDer::from(decode(CERTIFICATE));
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(decode(CERTIFICATE_KEY)));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate and its key");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().take(connections) {
            let Ok(tls) = rustls::ServerConnection::new(Arc::clone(&config)) else { return };
            // Until the client refuses the certificate and closes.
            let _ = rustls::StreamOwned::new(tls, stream).read(&mut [0; 1024]);
        }
    });
    port
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_not_tried_again() {
    for wire in Wire::BOTH {
        let port = offer_tls(1);
        let model = client(wire, endpoint(format!("https://127.0.0.1:{port}/v1")));
        let error = call(&*model).await.expect_err("nobody signed it");
        assert_eq!(error.class, ErrorClass::Connection, "{error}");
        assert!(error.message.contains("certificate"), "{error}");
        assert!(!error.is_retryable(), "{error}");
    }
}

/// An answer of this status, content type and body.
fn http(status: u16, kind: &str, body: &str) -> Answer {
    let headers = vec![("content-type".to_owned(), kind.to_owned())];
    Answer::fault(Fault::Http { status, headers, body: body.to_owned() })
}

/// The path that a wire adds to `base_url`.
fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "/v1/messages",
        Wire::OpenAi => "/chat/completions",
    }
}

#[tokio::test]
async fn an_answer_from_a_wrong_address_names_the_address() {
    let page = "<!doctype html><html><title>Welcome</title></html>";
    for wire in Wire::BOTH {
        // A page says what it is by its content too.
        let kinds = [(200, "text/html"), (404, "text/html"), (200, "application/json"), (200, "")];
        for (status, kind) in kinds {
            let answer = http(status, kind, page);
            let provider = Provider::script(vec![answer]).await;
            let base = provider.url_for(wire);
            let error = call(&*client(wire, endpoint(base.clone()))).await.expect_err("a page");
            let message = format!(
                "the server answered {status} to POST {base}{path} with a web page, \"Welcome\"; \
                 expected an event stream. Is `base_url` right? It is what stands before `{path}`{others}",
                path = path(wire),
                others = match status {
                    200 => "; a proxy or a login page may answer in place of the provider",
                    _ => "",
                }
            );
            assert_eq!(error.message, message);
            let class = if status == 404 { ErrorClass::NotFound } else { ErrorClass::Fatal };
            assert_eq!((error.class, error.status), (class, Some(status)));
            assert!(!error.is_retryable() && provider.count() == 1);
        }
        // A proxy whose server is away for a moment.
        let error = ask(wire, http(502, "text/html", page)).await.expect_err("a page");
        assert_eq!((error.class, error.is_retryable()), (ErrorClass::ServerError, true));
        assert!(error.message.contains("502 to POST") && !error.message.contains("<html"));
    }
}

#[tokio::test]
async fn a_redirect_is_named_and_not_followed() {
    for wire in Wire::BOTH {
        for status in [301, 302, 303, 307, 308] {
            let elsewhere = Provider::script(vec![Answer::text("stolen")]).await;
            let location = format!("{}/v1/messages", elsewhere.base_url());
            let headers = vec![("location".to_owned(), location.clone())];
            let fault = Fault::Http { status, headers, body: String::new() };
            let error = ask(wire, Answer::fault(fault)).await.expect_err("a redirect");
            assert!(error.message.contains(&format!("a redirect to {location}")), "{error}");
            assert!(!error.is_retryable() && elsewhere.count() == 0);
        }
    }
}

/// A reply with a text and a call as one document: the answer to a request without `stream`.
fn document(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => {
            r#"{"id":"m","type":"message","role":"assistant","model":"m","content":[
            {"type":"text","text":"Looking at it."},
            {"type":"tool_use","id":"toolu_1_1","name":"bash","input":{"command":"ls -l"}}],
            "stop_reason":"tool_use","stop_sequence":null,
            "usage":{"input_tokens":40,"cache_read_input_tokens":60,"output_tokens":9}}"#
        }
        Wire::OpenAi => {
            r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":
            {"role":"assistant","content":"Looking at it.","refusal":null,"tool_calls":[{"id":"call_1_1",
            "type":"function","function":{"name":"bash","arguments":"{\"command\":\"ls -l\"}"}}]},
            "finish_reason":"tool_calls"}],"usage":{"prompt_tokens":100,"completion_tokens":9,
            "prompt_tokens_details":{"cached_tokens":60}}}"#
        }
    }
}

#[tokio::test]
async fn a_reply_that_is_not_streamed_is_read_whole() {
    for wire in Wire::BOTH {
        for kind in ["application/json", "text/plain", "text/event-stream"] {
            let answer = http(200, kind, &format!("\n {}\n", document(wire)));
            let reply = ask(wire, answer).await.expect(kind);
            assert_eq!(reply.message, expected(wire), "{kind}");
            assert_eq!(reply.stop, StopReason::ToolUse);
            let usage = Usage { input: 40, output: 9, cache_read: 60, cache_write: 0 };
            assert_eq!(reply.usage, usage);
        }
        let half = &document(wire)[..200];
        let error = ask(wire, http(200, "application/json", half)).await.expect_err("half of it");
        assert_eq!((error.class, error.is_retryable()), (ErrorClass::Connection, true), "{error}");
        let other = http(200, "application/json", r#"{"models":[]}"#);
        let error = ask(wire, other).await.expect_err("no reply");
        assert_eq!((error.class, error.status), (ErrorClass::Fatal, Some(200)));
        let said = "the server answered with JSON that is no reply (200 from POST http://";
        assert!(error.message.starts_with(said) && error.message.contains(path(wire)), "{error}");
    }
}

/// The beginning of an answer whose last events are missing: it has text, and says why it stopped.
fn unfinished(wire: Wire, stop: &str) -> String {
    match wire {
        Wire::Anthropic => format!(
            "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
             {{\"type\":\"text\",\"text\":\"so\"}}}}\n\ndata: {{\"type\":\"content_block_stop\",\
             \"index\":0}}\n\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":{stop}}},\
             \"usage\":{{\"input_tokens\":5,\"output_tokens\":2}}}}"
        ),
        Wire::OpenAi => format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"so\"}},\"finish_reason\":\
             {stop}}}],\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":2}}}}"
        ),
    }
}

#[tokio::test]
async fn a_reply_without_its_last_event_is_whole_once_it_says_why_it_stopped() {
    for (wire, stop) in [(Wire::Anthropic, "\"end_turn\""), (Wire::OpenAi, "\"stop\"")] {
        // The last line, the last event, and the blank line after it may be missing.
        for end in ["", "\n", "\n\n", "\n\n: bye"] {
            let body = unfinished(wire, stop) + end;
            let reply = ask(wire, http(200, "text/event-stream", &body)).await.expect("a reply");
            assert_eq!((reply.message.text().as_ref(), &reply.stop), ("so", &StopReason::EndTurn));
            assert_eq!((reply.usage.input, reply.usage.output), (5, 2), "{wire:?} {end:?}");
        }
        let body = unfinished(wire, "null") + "\n\n";
        match ask(wire, http(200, "text/event-stream", &body)).await {
            Ok(reply) => assert!(matches!(reply.stop, StopReason::Interrupted(_)), "{reply:?}"),
            Err(error) => assert_eq!(error.class, ErrorClass::Connection),
        }
    }
}

/// Streams with the text `packed` and counts of 7 and 3 tokens.
const PACKED_MESSAGE: &str = "H4sIAAAAAAACA42QzwrCMAzG7z6F5NyD4kHoy5S4BhmbaVlTmIy+u9tc56qInvLvyy/hsyio9wPI3RNouFEIeCUTBDsBlWvQA8Sc1OyjGHENcQB9VuCibDvHlNJuZ0tw5ViIxVxaVzUrvmZLPeiDKufTlWVPqJ+Ec9AAP8mWWsGC/OyUxFW2cD1WDVn442/nN/BPefYv89fj06bpCIPjUUZsjcSOIamXr282ntJ3/PzHOH4Aio/0Ib4BAAA=";
const PACKED_CHUNKS: &str = "H4sIAAAAAAACA2XMsQrCMBRG4T1PIf+cQXAQMuuqD1BKCcnVhrb3huYWhJJ3Ny5dXM+BL3r17rQjjJICFbhuR+JIH7izRaRZPVzbwkqscMg+TBRRLV6JUxmHlXwRbqeoZNS+GhP/0N5iK/5NPyuvsmQdVCbi9q626UueSZPwUS/1cLrb83HvjfkCb988jqsAAAA=";

#[tokio::test]
async fn a_packed_body_is_unpacked_and_not_asked_for() {
    for (wire, packed) in [(Wire::Anthropic, PACKED_MESSAGE), (Wire::OpenAi, PACKED_CHUNKS)] {
        let provider = Provider::script(vec![Answer::fault(Fault::Packed(packed))]).await;
        let reply = call(&*client(wire, endpoint(provider.url_for(wire)))).await.expect("a reply");
        assert_eq!((reply.message.text().as_ref(), reply.stop), ("packed", StopReason::EndTurn));
        assert_eq!((reply.usage.input, reply.usage.output), (7, 3));
        assert_eq!(provider.requests()[0].header("accept-encoding"), Some("identity"));
        // Damaged or cut, it is a connection that broke.
        let cut = Fault::Packed(&packed[..packed.len() / 8 * 4]);
        let error = ask(wire, Answer::fault(cut)).await.expect_err("half of it");
        assert_eq!((error.class, error.is_retryable()), (ErrorClass::Connection, true), "{error}");
    }
}
