//! `check --connect`: one paid call to each model in use, and what is told of it.

use std::time::Duration;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, Done, lines};
use crate::support::provider::Provider;

/// A key that no output may have.
const KEY: &str = "key-0123456789abcdef";

/// A configuration with a provider and a model of these names and lines, and an agent that uses it.
fn part(name: &str, provider: &str, model: &str) -> String {
    format!(
        "[providers.{name}]\n{provider}\n[models.{name}]\nprovider = '{name}'\nmodel = 'model-{name}'\n\
         {model}\n[agents.{name}]\nmodel = '{name}'\ninstructions = 'Work.'\n\
         [tasks.{name}]\nagent = '{name}'\nprompt = 'go'\n"
    )
}

fn openai(provider: &Provider) -> String {
    let address = provider.url_for(Wire::OpenAi);
    format!("kind = 'openai'\nbase_url = '{address}'\napi_key = {{ env = 'KEY' }}")
}

fn anthropic(provider: &Provider) -> String {
    let address = provider.url_for(Wire::Anthropic);
    format!("kind = 'anthropic'\nbase_url = '{address}'\napi_key = {{ env = 'KEY' }}")
}

/// A workspace with these parts, and with time limits for a test.
fn desk(parts: &[String]) -> Desk {
    let desk = Desk::empty();
    let defaults = "[defaults.retry]\ninitial_interval = '1ms'\nmax_interval = '2ms'\n";
    desk.write("agents.toml", &format!("version = 1\n{defaults}{}", parts.concat()));
    desk.write("script.toml", "[[rules]]\nsay = 'x'\n");
    desk
}

/// Calls the program; the port of a server is the only part of an output that differs each time.
fn call(desk: &Desk, arguments: &[&str]) -> Done {
    let mut command = desk.command(arguments);
    let Done { code, out, err } = Done::of(command.env("KEY", KEY));
    assert!(!out.contains(KEY) && !err.contains(KEY), "{out}{err}");
    assert!(desk.runs().is_empty(), "a run was made");
    let plain = |text: String| {
        let ports = text.split("127.0.0.1:");
        let mut ports = ports.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
        let first = ports.next().unwrap_or_default().to_owned();
        ports.fold(first, |all, part| format!("{all}127.0.0.1:PORT{part}"))
    };
    Done { code, out: plain(out), err: plain(err) }
}

fn http(status: u16, headers: &[(&str, &str)], body: &str) -> Answer {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Answer::fault(Fault::Http { status, headers: headers.collect(), body: body.to_owned() })
}

/// Replaces the times in a text.
fn timeless(text: &str) -> String {
    fn word(word: &str) -> &str {
        let is_time = word.contains('.') && word.parse::<f64>().is_ok();
        if is_time { "T" } else { word }
    }
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_model_in_use_is_called_once_and_told_of() {
    let fine = Provider::start(|_: &Asked| Answer::text("yes")).await;
    fine.describe(json!({
        "max_input_tokens": 100_000,
        "capabilities": { "context_management": { "clear_tool_uses_20250919": { "supported": true } } },
    }));
    let reply = json!({
        "choices": [{ "message": { "role": "assistant", "content": "yes" }, "finish_reason": "stop" }],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 1,
            "prompt_tokens_details": { "cached_tokens": 4 },
        },
    });
    let limits = [
        ("content-type", "application/json"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-remaining-tokens", "4000"),
        ("x-ratelimit-reset-tokens", "6ms"),
    ];
    let limited = Provider::script(vec![http(200, &limits, &reply.to_string())]).await;
    let refusing = Provider::script(vec![Answer::fault(Fault::BadKey)]).await;
    let missing = json!({ "error": { "type": "not_found_error", "message": "model: model-gone" } });
    let json_type = [("content-type", "application/json")];
    let unknown = Provider::script(vec![http(404, &json_type, &missing.to_string())]).await;
    let slow = Provider::script(vec![Answer::fault(Fault::StallBeforeHead)]).await;
    let silent = Provider::script(vec![Answer::text("yes").with(Fault::NoUsage)]).await;
    let tired = Provider::script(vec![
        Answer::fault(Fault::ServerError),
        Answer::text("yes").with(Fault::NoUsage),
    ])
    .await;
    let broken = Provider::script(vec![Answer::fault(Fault::ServerError)]).await;
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("http://{}/v1", listener.local_addr().expect("an address"))
    };
    let price = "cost_per_mtok = { input = 1.0, output = 2.0 }";
    let mut parts = vec![
        part("fine", &anthropic(&fine), "capabilities = 'probe'\nprices = 'builtin'"),
        part("limited", &openai(&limited), price),
        part("refused", &anthropic(&refusing), ""),
        part("gone", &anthropic(&unknown), ""),
        part("slow", &format!("{}\nrequest_timeout = '300ms'", openai(&slow)), ""),
        part("silent", &openai(&silent), ""),
        part("tired", &anthropic(&tired), ""),
        part("broken", &openai(&broken), ""),
        part("nobody", &format!("kind = 'openai'\nbase_url = '{nobody}'"), ""),
        part("script", "kind = 'scripted'\nscript = 'script.toml'", ""),
    ];
    // A model that no agent uses is not called.
    let idle = format!("[models.idle]\nprovider = 'fine'\nmodel = 'idle'\n{price}\n");
    parts.push(idle);
    let text = parts.concat().replace("model-fine", "claude-haiku-4-5");
    let desk = desk(&[text]);
    let plain = call(&desk, &["check"]);
    assert_eq!((plain.code, fine.count() + limited.count()), (0, 0), "no network: {}", plain.err);

    let done = call(&desk, &["check", "--connect"]);
    assert_eq!(done.code, 3, "{}", done.err);
    assert_snapshot!(timeless(&done.err), @"note: this makes 9 paid calls of a few tokens each: broken, fine, gone, limited, nobody, refused, silent, slow, tired");
    let (_, told) = done.out.split_once("no mistakes\n").expect("checked first");
    assert_snapshot!(timeless(told), @r#"
    prices of model fine: built in, of 2026-10-24: $1 input, $5 output a million tokens (https://platform.claude.com/docs/en/about-claude/pricing)
    no price of models broken, gone, nobody, refused, silent, slow, tired: their cost is not counted; `cost_per_mtok` has a price, and `prices = "builtin"` those of known models
    broken/broken (model-broken): server_error: server_error: The server had an error.; `callsheet explain server_error` says what to do
    fine/fine (claude-haiku-4-5): answers, first token after T s of T s; tokens reported: 46 in, 0 of them cached, 10 out; capabilities: context_editing; price built in, of 2026-10-24
    gone/gone (model-gone): invalid_request: not_found_error: model: model-gone (404 from POST http://127.0.0.1:PORT/v1/messages); `callsheet explain invalid_request` says what to do
    limited/limited (model-limited): answers, first token after T s of T s; tokens reported: 12 in, 4 of them cached, 1 out; left of its limits: 59 requests, 4000 tokens; price in the file
    nobody/nobody (model-nobody): connection: no connection to http://127.0.0.1:PORT: client error (Connect): tcp connect error: Connection refused (os error 111); `callsheet explain connection` says what to do
    refused/refused (model-refused): auth: authentication_error: invalid x-api-key; `callsheet explain auth` says what to do
    script/script (model-script): not asked: no network is needed for its answers
    silent/silent (model-silent): answers, first token after T s of T s; no tokens reported: costs and sizes are estimates; no price
    slow/slow (model-slow): idle_timeout: no answer in time from http://127.0.0.1:PORT; `callsheet explain idle_timeout` says what to do
    tired/tired (model-tired): answers, first token after T s of T s; no tokens reported: costs and sizes are estimates; no price
    "#);
    let counts = [&fine, &limited, &refusing, &unknown, &slow, &silent].map(Provider::count);
    assert_eq!((counts, tired.count(), broken.count()), ([1; 6], 2, 2));
    let request = &fine.requests()[0].json();
    assert_eq!((request["max_tokens"].as_u64(), &request["tools"]), (Some(16), &Value::Null));

    let done = call(&desk, &["check", "--connect", "--json"]);
    assert_eq!(done.code, 3, "{}", done.err);
    let told = lines(&done.out);
    let of = |name: &str| {
        let mut told = told.iter().map(|line| &line["connection"]);
        told.find(|told| told["name"] == name).cloned().expect(name)
    };
    let found = of("limited");
    let took = Duration::from_millis(found["took_ms"].as_u64().expect("a time"));
    assert!(took < Duration::from_secs(60) && found["first_token_ms"].is_u64(), "{found}");
    assert_eq!((&found["provider"], &found["model"]), (&json!("limited"), &json!("model-limited")));
    assert_eq!(found["left"], json!({ "requests": 59, "tokens": 4000 }));
    assert_eq!(found["usage"]["cache_read"], 4);
    assert_eq!((&found["price"]["input"], &found["price"]["checked"]), (&json!(1.0), &Value::Null));
    assert_eq!(of("fine")["capabilities"], json!(["context_editing"]));
    assert_eq!(of("fine")["price"]["checked"], "2026-10-24");
    assert_eq!(of("silent")["usage"], Value::Null);
    assert_eq!(
        (&of("refused")["status"], &of("refused")["error"]["kind"]),
        (&json!("failed"), &json!("auth"))
    );
    assert_eq!(of("script")["status"], "skipped");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_called_before_all_is_right() {
    let provider = Provider::start(|_: &Asked| Answer::text("yes")).await;
    let one = || part("one", &anthropic(&provider), "");
    let wrong = desk(&[one(), "[limits]\nmax_depht = 1\n".to_owned()]);
    assert_eq!(call(&wrong, &["check", "--connect"]).code, 2);
    let keyless = desk(&[one().replace("'KEY'", "'NO_KEY'")]);
    assert_eq!(call(&keyless, &["check", "--connect"]).code, 2);
    let untrusted = desk(&[one(), "[sandbox]\nnetwork = true\n".to_owned()]);
    let refused = call(&untrusted, &["check", "--connect"]);
    assert!(refused.code == 2 && refused.err.contains("needs_trust"), "{}", refused.err);
    assert_eq!(call(&untrusted, &["check", "--trust"]).code, 2, "a flag without a meaning");
    assert_eq!(provider.count(), 0);
    let trusted = call(&untrusted, &["check", "--connect", "--trust"]);
    assert_eq!((trusted.code, provider.count()), (0, 1), "{}", trusted.err);
    // Thinking with a budget needs room for it.
    let thinking = "thinking = { type = 'enabled', budget = 2000 }";
    let thinking = desk(&[part("one", &anthropic(&provider), thinking)]);
    assert_eq!(call(&thinking, &["check", "--connect"]).code, 0);
    assert_eq!(provider.requests()[1].json()["max_tokens"], 2016);
    assert!(trusted.err.contains("note: this makes 1 paid call of a few tokens: one"));
    let commands = Desk::commands("[tasks.t]\nrun = 'true'\n");
    let done = call(&commands, &["check", "--connect"]);
    assert_eq!(done.code, 0);
    assert!(done.err.contains("note: no model in use is called"), "{}", done.err);
}
