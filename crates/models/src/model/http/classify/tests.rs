//! Tests of the classification of errors, with the bodies that services answer.

use super::*;

fn class(status: u16, body: &str) -> ErrorClass {
    Refusal::read(body.as_bytes()).into_error(status).class
}

fn anthropic(kind: &str, message: &str) -> String {
    serde_json::json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
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
        (404, "not_found_error", ErrorClass::NotFound),
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
    let low =
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.";
    assert_eq!(class(400, &anthropic("invalid_request_error", low)), ErrorClass::QuotaExhausted);
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
        (openai("", "RESOURCE_EXHAUSTED", "x"), ErrorClass::RateLimited),
        (openai("invalid_request_error", "tool_use_failed", "x"), ErrorClass::ServerError),
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

fn plus(input: u64, limit: u64) -> ErrorClass {
    ErrorClass::ContextPlusOutput { input: Some(input), limit: Some(limit) }
}

fn at_most(max: u64) -> ErrorClass {
    ErrorClass::ContextTokens { have: None, max: Some(max) }
}

/// An error object with a message only.
fn said(message: &str) -> String {
    openai("invalid_request_error", Value::Null, message)
}

/// Refusals as services answer them: status, body, class.
fn refusals() -> Vec<(u16, String, ErrorClass)> {
    use ErrorClass::{Auth, Fatal, NotFound, QuotaExhausted, RateLimited, ServerError};
    let google = |code: u16, status: &str, message: &str, details: Value| {
        serde_json::json!([{"error": {"code": code, "message": message, "status": status, "details": details}}])
            .to_string()
    };
    let quota = |id: &str, delay: &str| {
        serde_json::json!([
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": id}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
        ])
    };
    let plan = "You exceeded your current quota, please check your plan and billing details.";
    let flat = |body: Value| body.to_string();
    let json = |body: &str| body.to_owned();
    let code = |code: &str, message: &str| openai("invalid_request_error", code, message);
    let routed = |raw: Value| {
        let error = serde_json::json!({"message": "Provider returned error", "code": 400,
            "metadata": {"raw": raw, "provider_name": "Some"}});
        serde_json::json!({ "error": error }).to_string()
    };
    let inner = said(
        "This model's maximum context length is 262144 tokens. However, your messages resulted in 262897 tokens. Please reduce the length of the messages.",
    );
    let lm_studio = "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5000 >= n_ctx: 4096). Try to load the model with a larger context length";
    let keep = "Trying to keep the first 6269 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.";
    let credits = "Your team 1f0c has either used all available credits or reached its monthly spending limit. To continue making API requests, please purchase more credits.";
    vec![
        // Too long.
        (
            400,
            google(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
                Value::Null,
            ),
            tokens(1_196_265, 1_048_575),
        ),
        (
            400,
            google(
                400,
                "INVALID_ARGUMENT",
                "The input token count exceeds the maximum number of tokens allowed 1048576.",
                Value::Null,
            ),
            at_most(1_048_576),
        ),
        (
            400,
            flat(
                serde_json::json!({"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}),
            ),
            tokens(537_812, 131_072),
        ),
        (400, flat(serde_json::json!({ "error": lm_studio })), BARE),
        (400, flat(serde_json::json!({ "error": keep })), BARE),
        (400, said("prompt too long; exceeded max context length by 10 tokens"), BARE),
        (
            400,
            flat(serde_json::json!({"error": "the input length exceeds the context length"})),
            BARE,
        ),
        (
            400,
            said(
                "The input (100000 tokens) is longer than the model's context length (32768 tokens).",
            ),
            tokens(100_000, 32_768),
        ),
        (
            400,
            said(
                "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 40000 tokens: 36000 tokens from the input messages and 4000 tokens for the completion.",
            ),
            tokens(36_000, 32_768),
        ),
        (
            400,
            said(
                "The decoder prompt (length 40000) is longer than the maximum model length of 32768. Make sure that `max_model_len` is no smaller than the number of text tokens.",
            ),
            tokens(40_000, 32_768),
        ),
        (
            400,
            said(
                "You passed 33000 input tokens and requested 1000 output tokens. However, the model's context length is only 32768 tokens, resulting in a maximum input length of 31768 tokens.",
            ),
            tokens(33_000, 32_768),
        ),
        (
            400,
            said(
                "You passed 32000 input tokens and requested 1000 output tokens. However, the model's context length is only 32768 tokens, resulting in a maximum input length of 31768 tokens.",
            ),
            plus(32_000, 32_768),
        ),
        (
            400,
            said(
                "'max_tokens' is too large: 8192. This model's maximum context length is 4096 tokens and your request has 100 input tokens (8192 > 4096 - 100).",
            ),
            plus(100, 4_096),
        ),
        (400, said("max_tokens must be at least 1, got -186."), BARE),
        (
            400,
            said(
                "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
            ),
            at_most(262_144),
        ),
        (400, said("invalid params, context window exceeds limit (2013)"), BARE),
        (400, code("1261", "Prompt exceeds max length"), BARE),
        (400, said("Prompt exceeds max length"), BARE),
        (
            400,
            said(
                "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
            ),
            at_most(129_024),
        ),
        (
            400,
            flat(
                serde_json::json!({"message": "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}),
            ),
            BARE,
        ),
        (413, said("Please reduce the length of the messages or completion."), BARE),
        (
            400,
            code(
                "model_max_prompt_tokens_exceeded",
                "prompt token count of 140000 exceeds the limit of 128000",
            ),
            tokens(140_000, 128_000),
        ),
        (
            400,
            said("prompt token count of 140000 exceeds the limit of 128000"),
            tokens(140_000, 128_000),
        ),
        (
            422,
            flat(
                serde_json::json!({"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and 1000 `max_new_tokens`", "error_type": "validation"}),
            ),
            plus(4_000, 4_097),
        ),
        (
            422,
            flat(
                serde_json::json!({"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000"}),
            ),
            tokens(2_000, 1_024),
        ),
        (
            400,
            said("Prompt length (8193) exceeds maximum input length (8192). Set log level to info"),
            tokens(8_193, 8_192),
        ),
        (
            400,
            said(
                "The sum of prompt length (5000.0), query length (0) should not exceed max_num_tokens (4096)",
            ),
            BARE,
        ),
        (400, routed(Value::String(inner.clone())), tokens(262_897, 262_144)),
        (400, routed(serde_json::from_str(&inner).expect("JSON")), tokens(262_897, 262_144)),
        (400, routed(Value::String("Input is too long for requested model.".to_owned())), BARE),
        (
            400,
            said(
                "This endpoint's maximum context length is 262000 tokens. However, you requested about 263390 tokens (658 of text input, 732 of tool input, 262000 in the output). Please reduce the length of either one",
            ),
            plus(1_390, 262_000),
        ),
        (
            400,
            said(
                "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (66000 in the messages, 4000 in the completion).",
            ),
            tokens(66_000, 65_536),
        ),
        (
            400,
            said(
                "This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt contains at least 4097 input tokens",
            ),
            BARE,
        ),
        (
            400,
            said(
                "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            ),
            tokens(40_000, 32_768),
        ),
        (
            400,
            code(
                "context_length_exceeded",
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
            ),
            BARE,
        ),
        (200, said("Your input exceeds the context window of this model."), BARE),
        (400, said("prompt is too long: 214291 tokens > 200000 maximum"), tokens(214_291, 200_000)),
        (
            400,
            said(
                "input length and `max_tokens` exceed context limit: 186433 + 20000 > 200000, decrease",
            ),
            plus(186_433, 200_000),
        ),
        (
            400,
            flat(
                serde_json::json!({"message": "Input Tokens Exceeded: Number of input tokens exceeds maximum length"}),
            ),
            BARE,
        ),
        (
            400,
            flat(
                serde_json::json!({"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"}),
            ),
            BARE,
        ),
        (400, said("litellm.ContextWindowExceededError: litellm.BadRequestError: 'a b'"), BARE),
        (400, said("the server says context_length_exceeded"), BARE),
        (
            400,
            said(
                "litellm.BadRequestError: AnthropicException - {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 22 tokens > 20 maximum\"}}",
            ),
            tokens(22, 20),
        ),
        (400, said("the request exceeds the available context size. try increasing it"), BARE),
        (
            413,
            openai(
                "tokens",
                "rate_limit_exceeded",
                "Request too large for model `m` in organization `o` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 10101, please reduce your message size and try again.",
            ),
            tokens(10_101, 6_000),
        ),
        // The quota or the credit is used up.
        (
            400,
            anthropic(
                "invalid_request_error",
                "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
            ),
            QuotaExhausted,
        ),
        (
            400,
            anthropic(
                "invalid_request_error",
                "Your credit balance is too low to access the Anthropic API.",
            ),
            QuotaExhausted,
        ),
        (
            400,
            code("billing_hard_limit_reached", "Billing hard limit has been reached"),
            QuotaExhausted,
        ),
        (429, said("Billing hard limit has been reached"), QuotaExhausted),
        (
            429,
            openai(
                "billing_not_active",
                "billing_not_active",
                "Your account is not active, please check your billing details on our website.",
            ),
            QuotaExhausted,
        ),
        (
            429,
            said("Your account is not active, please check your billing details on our website."),
            QuotaExhausted,
        ),
        (
            429,
            openai(
                "",
                "429",
                &format!("litellm.RateLimitError: RateLimitError: OpenAIException - {plan}"),
            ),
            QuotaExhausted,
        ),
        (
            403,
            flat(
                serde_json::json!({"code": "The caller does not have permission", "error": credits}),
            ),
            QuotaExhausted,
        ),
        (
            429,
            flat(serde_json::json!({"code": "Some resource has been exhausted", "error": credits})),
            QuotaExhausted,
        ),
        (
            403,
            openai(
                "",
                403,
                "Key limit exceeded (daily limit). Manage it using https://example.com",
            ),
            QuotaExhausted,
        ),
        (
            400,
            openai(
                "budget_exceeded",
                "400",
                "Budget has been exceeded! Current cost: 10.2, Max budget: 10.0",
            ),
            QuotaExhausted,
        ),
        (
            400,
            said("Budget has been exceeded! Current cost: 10.2, Max budget: 10.0"),
            QuotaExhausted,
        ),
        (
            429,
            code("1113", "Insufficient balance or no resource package. Please recharge."),
            QuotaExhausted,
        ),
        (400, said("insufficient balance (1008)"), QuotaExhausted),
        (
            400,
            code("Arrearage", "Access denied, please make sure your account is in good standing."),
            QuotaExhausted,
        ),
        (
            429,
            openai(
                "exceeded_current_quota_error",
                Value::Null,
                "Your account is suspended, please check your plan and billing details",
            ),
            QuotaExhausted,
        ),
        (
            429,
            said("Usage limit reached for 5 hour. Your limit will reset at 2026-12-01 12:34:56"),
            QuotaExhausted,
        ),
        (
            429,
            google(
                429,
                "RESOURCE_EXHAUSTED",
                plan,
                quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "43200s"),
            ),
            QuotaExhausted,
        ),
        // The key is wrong.
        (
            400,
            flat(
                serde_json::json!({"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***. You can obtain an API key from https://example.com."}),
            ),
            Auth,
        ),
        (
            400,
            google(
                400,
                "INVALID_ARGUMENT",
                "API key not valid. Please pass a valid API key.",
                serde_json::json!([{"reason": "API_KEY_INVALID"}]),
            ),
            Auth,
        ),
        (400, said("API key not valid. Please pass a valid API key."), Auth),
        (400, said("Invalid API key provided"), Auth),
        // The model is missing.
        (400, code("model_not_found", "The requested model 'gpt-x' does not exist."), NotFound),
        (400, said("The model `gpt-x` does not exist or you do not have access to it."), NotFound),
        (400, openai("invalid_model", "1500", "Invalid model: small"), NotFound),
        (400, said("Invalid model: small"), NotFound),
        (
            400,
            flat(
                serde_json::json!({"code": "Client specified an invalid argument", "error": "Model not found: grok-x"}),
            ),
            NotFound,
        ),
        (400, said("some/model is not a valid model ID"), NotFound),
        (400, said("Model Not Exist"), NotFound),
        (400, code("1211", "Unknown Model, please check the model code."), NotFound),
        (400, said("Unknown model: x"), NotFound),
        (400, said("The provided model identifier is invalid."), NotFound),
        (400, said("The requested model is not supported."), NotFound),
        // Others.
        (
            400,
            openai(
                "invalid_request_error",
                "tool_use_failed",
                "Failed to call a function. Please adjust your prompt.",
            ),
            ServerError,
        ),
        (
            200,
            said(
                "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
            ),
            ServerError,
        ),
        (500, said("tools param requires --jinja flag"), Fatal),
        (
            400,
            anthropic(
                "invalid_request_error",
                "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
            ),
            ErrorClass::Pairing,
        ),
        (
            400,
            said(
                "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            ),
            ErrorClass::Pairing,
        ),
        (
            400,
            anthropic(
                "invalid_request_error",
                "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified",
            ),
            ErrorClass::ThinkingChanged,
        ),
        // Near misses, which are what they were.
        (
            429,
            google(
                429,
                "RESOURCE_EXHAUSTED",
                plan,
                quota("GenerateRequestsPerMinutePerProjectPerModel", "1.9s"),
            ),
            RateLimited,
        ),
        (
            429,
            said(
                "Rate limit reached for gpt-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.",
            ),
            RateLimited,
        ),
        (429, said("Too many tokens, please wait before trying again."), RateLimited),
        (400, said("Too many tokens, please wait before trying again."), Fatal),
        (400, said("Range of max_tokens should be [1, 8192]"), Fatal),
        (
            400,
            said(
                "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens for m",
            ),
            Fatal,
        ),
        (400, said("The tool `find` does not exist"), Fatal),
        (
            400,
            said(
                "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead.",
            ),
            Fatal,
        ),
        (
            400,
            said("Unsupported value: 'temperature' does not support 0.2 with this model."),
            Fatal,
        ),
        (
            400,
            said("messages.0.content: bad value \"prompt is too long: 5 tokens > 1 maximum\""),
            Fatal,
        ),
        (400, said("messages.0.content: You have reached your specified API usage limits."), Fatal),
        (400, said("bad value 'Your credit balance is too low'"), Fatal),
        (400, said("\"Incorrect API key provided\" is no name of a tool"), Fatal),
        (
            400,
            said(
                "Invalid arguments of a call: {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"prompt is too long\"}}",
            ),
            Fatal,
        ),
        (
            400,
            said(&format!(
                "bad content: {} your input exceeds the context window",
                "x ".repeat(300)
            )),
            Fatal,
        ),
        (500, said("prompt is too long: 5 tokens > 1 maximum"), ServerError),
        (503, json("Your credit balance is too low"), ServerError),
        (401, said("Your input exceeds the context window of this model."), Auth),
        (429, said("prompt is too long: 5 tokens > 1 maximum"), RateLimited),
        (529, said("usage limit reached"), ErrorClass::Overloaded),
    ]
}

#[test]
fn what_services_answer_is_understood() {
    let wrong: Vec<String> = refusals()
        .into_iter()
        .map(|(status, body, expected)| (class(status, &body), expected, body))
        .filter(|(found, expected, _)| found != expected)
        .map(|(found, expected, body)| format!("{found:?}, not {expected:?}: {body}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_sentence_of_the_table_has_an_example() {
    fn all(refusal: &Refusal) -> Vec<String> {
        let behind = refusal.cause.as_ref().map(|cause| all(cause)).unwrap_or_default();
        std::iter::once(refusal.message.clone()).chain(behind).collect()
    }
    let bodies = refusals().into_iter().map(|(_, body, _)| Refusal::read(body.as_bytes()));
    let messages: Vec<String> = bodies.flat_map(|refusal| all(&refusal)).collect();
    let unsaid = words::unsaid(&messages);
    assert!(unsaid.is_empty(), "{}", unsaid.join("\n"));
}

#[test]
fn waits_are_told_with_the_error() {
    let wait = |status, body: &str| Refusal::read(body.as_bytes()).into_error(status).retry_after;
    let ms = |ms| Some(Duration::from_millis(ms));
    assert_eq!(wait(429, &said("Limit 10, Used 10. Please try again in 1.8s.")), ms(1_800));
    assert_eq!(
        wait(200, &openai("rate_limit_error", 429, "Please retry after 2 seconds.")),
        ms(2_000)
    );
    // A rate limit of two days is none; the quota of a month may be.
    assert_eq!(wait(429, &said("Please try again in 2 days.")), None);
    let quota = openai("insufficient_quota", Value::Null, "Please try again in 2 days.");
    assert_eq!(wait(429, &quota), ms(172_800_000));
    for status in [400, 401, 500] {
        assert_eq!(wait(status, &said("Please try again in 30 minutes.")), None, "{status}");
    }
    // The service behind a gateway knows it best.
    let raw = said("Please try again in 3s.");
    let body = serde_json::json!({"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": raw}}});
    let error = Refusal::read(body.to_string().as_bytes()).into_error(429);
    assert_eq!(error.retry_after, ms(3_000));
    assert_eq!(error.message, "Provider returned error: Please try again in 3s.");
    assert_eq!(error.class, ErrorClass::RateLimited);
}

#[test]
fn a_slip_of_the_model_is_tried_a_few_times() {
    let body = openai("invalid_request_error", "tool_use_failed", "Failed to call a function.");
    for status in [200, 400] {
        let error = Refusal::read(body.as_bytes()).into_error(status);
        assert!(error.is_retryable(), "{status}");
        assert_eq!(error.most_attempts, Some(SLIPS));
    }
    let error = Refusal::read(said("bad").as_bytes()).into_error(400);
    assert_eq!((error.is_retryable(), error.most_attempts), (false, None));
}

#[test]
fn errors_within_errors_end_somewhere() {
    let mut body = said("Your input exceeds the context window of this model.");
    for _ in 0..40 {
        body =
            serde_json::json!({"error": {"message": "no", "metadata": {"raw": body}}}).to_string();
        if body.len() > 60_000 {
            break;
        }
    }
    assert_eq!(class(400, &body), ErrorClass::Fatal);
    assert_eq!(class(400, "[]"), ErrorClass::Fatal);
    assert_eq!(class(400, "[[[[]]]]"), ErrorClass::Fatal);
}
