//! The table of hostile replies: what the server writes, and how the program must end.

use super::server::{Kind, Part};

/// A reply of the server.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The protocols that it is tried on.
    on: On,
    pub(super) reply: Box<dyn Fn(Kind) -> Vec<Part> + Send + Sync>,
    /// The exit codes that are right.
    pub(super) codes: &'static [i32],
    /// What the summary of the run says.
    pub(super) says: &'static str,
    /// True if a plain answer follows the results of the reply's tool calls.
    pub(super) then: bool,
}

#[derive(Clone, Copy)]
enum On {
    Both,
    Only(Kind),
}

impl Case {
    pub(super) fn kinds(&self) -> Vec<Kind> {
        match self.on {
            On::Both => Kind::BOTH.to_vec(),
            On::Only(kind) => vec![kind],
        }
    }

    fn then(mut self) -> Self {
        self.then = true;
        self
    }

    fn says(mut self, says: &'static str) -> Self {
        self.says = says;
        self
    }
}

/// The provider failed: exit code 3.
const PROVIDER: &[i32] = &[3];
const DONE: &[i32] = &[0];
const FAILED: &[i32] = &[1];
/// Whether the odd parts of a reply are skipped or refused is the protocol's.
const EITHER: &[i32] = &[0, 1, 3];

const GIB: usize = 1 << 30;

fn raw(name: &'static str, reply: impl Into<Vec<u8>>, codes: &'static [i32]) -> Case {
    let bytes = reply.into();
    parts(name, vec![Part::Bytes(bytes)], codes)
}

fn parts(name: &'static str, parts: Vec<Part>, codes: &'static [i32]) -> Case {
    let reply = Box::new(move |_| parts.clone());
    Case { name, on: On::Both, reply, codes, says: "", then: false }
}

/// A reply of a status and a body of JSON.
fn status(name: &'static str, status: u16, more: &str, body: &str, codes: &'static [i32]) -> Case {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{more}\r\n"
    );
    raw(name, head + body, codes)
}

/// A stream of these parts after the head.
fn stream(name: &'static str, mut body: Vec<Part>, codes: &'static [i32]) -> Case {
    body.insert(0, Part::Bytes(HEAD.to_vec()));
    parts(name, body, codes)
}

/// A stream of one text.
fn lines(name: &'static str, body: impl Into<Vec<u8>>, codes: &'static [i32]) -> Case {
    stream(name, vec![Part::Bytes(body.into())], codes)
}

/// A stream that differs by the protocol.
fn wired(
    name: &'static str,
    body: impl Fn(Kind) -> Vec<Part> + Send + Sync + 'static,
    codes: &'static [i32],
) -> Case {
    let reply = Box::new(move |kind| {
        let mut all = vec![Part::Bytes(HEAD.to_vec())];
        all.extend(body(kind));
        all
    });
    Case { name, on: On::Both, reply, codes, says: "", then: false }
}

/// A stream of one protocol, of these events.
fn only(kind: Kind, name: &'static str, events: &[&str], codes: &'static [i32]) -> Case {
    let text: String = events.iter().map(|event| data(event)).collect();
    Case { on: On::Only(kind), ..lines(name, text, codes) }
}

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn data(event: &str) -> String {
    format!("data: {event}\n\n")
}

fn bytes(text: String) -> Part {
    Part::Bytes(text.into_bytes())
}

/// The beginning of a stream.
fn start(kind: Kind) -> String {
    match kind {
        Kind::Anthropic => data(
            r#"{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}"#,
        ),
        Kind::OpenAi => data(r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}]}"#),
    }
}

/// The end of a stream; `usage` is the value of that field.
fn end_with(kind: Kind, stop: &str, usage: &str) -> String {
    match kind {
        Kind::Anthropic => {
            let event = format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":{stop}}},"usage":{usage}}}"#
            );
            data(&event) + &data(r#"{"type":"message_stop"}"#)
        }
        Kind::OpenAi => {
            let stop = stop.replace("end_turn", "stop").replace("tool_use", "tool_calls");
            let stop =
                format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":{stop}}}]}}"#);
            let usage = format!(r#"{{"choices":[],"usage":{usage}}}"#);
            data(&stop) + &data(&usage) + &data("[DONE]")
        }
    }
}

fn end(kind: Kind, stop: &str) -> String {
    end_with(kind, &format!("\"{stop}\""), "{}")
}

/// The beginning and the end of a block of text.
fn open_text(kind: Kind, index: usize) -> String {
    match kind {
        Kind::Anthropic => data(&format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"text","text":""}}}}"#
        )),
        Kind::OpenAi => String::new(),
    }
}

fn close(kind: Kind, index: usize) -> String {
    match kind {
        Kind::Anthropic => data(&format!(r#"{{"type":"content_block_stop","index":{index}}}"#)),
        Kind::OpenAi => String::new(),
    }
}

/// A delta of text, which is the inside of a JSON string.
fn text_delta(kind: Kind, index: usize, text: &str) -> String {
    match kind {
        Kind::Anthropic => data(&format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"text_delta","text":"{text}"}}}}"#
        )),
        Kind::OpenAi => {
            data(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#))
        }
    }
}

/// The beginning of a call; `id` and `name` are JSON values.
fn open_call(kind: Kind, index: usize, id: &str, name: &str) -> String {
    match kind {
        Kind::Anthropic => data(&format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":{id},"name":{name},"input":{{}}}}}}"#
        )),
        Kind::OpenAi => data(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{index},"id":{id},"type":"function","function":{{"name":{name},"arguments":""}}}}]}}}}]}}"#
        )),
    }
}

/// A fragment of a call's arguments, which is the inside of a JSON string.
fn arguments(kind: Kind, index: usize, text: &str) -> String {
    match kind {
        Kind::Anthropic => data(&format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{text}"}}}}"#
        )),
        Kind::OpenAi => data(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{index},"function":{{"arguments":"{text}"}}}}]}}}}]}}"#
        )),
    }
}

fn call(kind: Kind, index: usize, id: &str, name: &str, input: &str) -> String {
    let input = input.replace('\\', "\\\\").replace('"', "\\\"");
    open_call(kind, index, id, name) + &arguments(kind, index, &input) + &close(kind, index)
}

/// A whole reply of calls.
fn calls(kind: Kind, calls: &[(&str, &str, &str)]) -> Vec<Part> {
    calls_costing(kind, calls, "{}")
}

fn calls_costing(kind: Kind, calls: &[(&str, &str, &str)], usage: &str) -> Vec<Part> {
    let all = calls.iter().enumerate();
    let all: String = all.map(|(at, (id, name, input))| call(kind, at, id, name, input)).collect();
    vec![bytes(start(kind) + &all + &end_with(kind, "\"tool_use\"", usage))]
}

/// A whole reply of a text.
fn says(kind: Kind, text: &str, stop: &str) -> Vec<Part> {
    let text = open_text(kind, 0) + &text_delta(kind, 0, text) + &close(kind, 0);
    vec![bytes(start(kind) + &text + &end(kind, stop))]
}

/// The plain reply that ends a run.
pub(super) fn done(kind: Kind) -> Vec<Part> {
    let mut all = vec![Part::Bytes(HEAD.to_vec())];
    all.extend(says(kind, "done", "end_turn"));
    all
}

const LIST: (&str, &str, &str) = ("\"c1\"", "\"glob\"", r#"{"pattern":"*"}"#);

fn deep(open: &str, close: &str) -> String {
    open.repeat(100_000) + "1" + &close.repeat(100_000)
}

pub(super) fn cases(elsewhere: &str) -> Vec<Case> {
    let mut all = transport(elsewhere);
    all.extend(refusals());
    all.extend(streams());
    all.extend(floods());
    all.extend(odd_calls());
    all.extend(odd_replies());
    all.extend(of_anthropic());
    all.extend(of_openai());
    all
}

/// Replies that repeat the head of the request, with the key and the header in it.
pub(super) fn echoes() -> Vec<Case> {
    let json = r#"{"error":{"type":"<ECHO>","message":"<ECHO>"}}"#;
    // Chunked by the end of the connection: the length of an echo is not known here.
    let closed = |name, status: u16, body: &str, codes| {
        let head = format!(
            "HTTP/1.1 {status} <ECHO>\r\nx-echo: <ECHO>\r\ncontent-type: application/json\r\n\r\n"
        );
        raw(name, head + body, codes)
    };
    vec![
        closed("an echo in an error", 400, json, PROVIDER),
        closed("an echo in a refused key", 401, json, PROVIDER),
        closed("an echo in a rate limit", 429, json, PROVIDER),
        closed("an echo in a web page", 502, "<html><title><ECHO></title></html>", PROVIDER),
        closed("an echo in a reply without a stream", 200, json, PROVIDER),
        closed("an echo far behind", 500, &format!("{}<ECHO>", "x".repeat(600)), PROVIDER),
        lines("an echo in an event", data(json), PROVIDER),
        lines(
            "an echo in nonsense",
            data(r#"{"type":"content_block_stop","index":"<ECHO>","choices":"<ECHO>"}"#),
            PROVIDER,
        ),
        wired("an echo in a text", |kind| says(kind, "<ECHO>", "end_turn"), DONE),
        wired(
            "an echo in a call",
            |kind| calls(kind, &[("\"<ECHO>\"", "\"<ECHO>\"", r#"{"pattern":"<ECHO>"}"#)]),
            DONE,
        )
        .then(),
        wired(
            "an echo in the reason to stop",
            |kind| {
                let text = open_text(kind, 0) + &text_delta(kind, 0, "x") + &close(kind, 0);
                vec![bytes(start(kind) + &text + &end_with(kind, "\"<ECHO>\"", "{}"))]
            },
            DONE,
        ),
        wired(
            "an echo in pieces",
            |kind| {
                let pieces: String =
                    super::KEY.chars().map(|c| text_delta(kind, 0, &c.to_string())).collect();
                vec![bytes(
                    start(kind)
                        + &open_text(kind, 0)
                        + &pieces
                        + &close(kind, 0)
                        + &end(kind, "end_turn"),
                )]
            },
            DONE,
        ),
    ]
}

/// Below the messages: sockets, status lines, headers, framing, redirects.
fn transport(elsewhere: &str) -> Vec<Case> {
    let moved = |to: &str| format!("location: {to}\r\n");
    let plain = |head: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{head}\r\n\r\n")
    };
    let whole = open_text(Kind::Anthropic, 0);
    vec![
        raw("nothing at all", "", PROVIDER),
        parts("silence", vec![Part::Stall], PROVIDER).says("idle_timeout"),
        raw("no status line", "BOGUS\r\n\r\n", PROVIDER),
        raw("http of 1991", "<html>hello</html>", PROVIDER),
        raw("a preface of http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", PROVIDER),
        raw("a banner of ssh", "SSH-2.0-OpenSSH_9.9\r\n", PROVIDER),
        status("status 999", 999, "", "<b>no</b>", PROVIDER),
        raw("status 1000", "HTTP/1.1 1000 X\r\ncontent-length: 0\r\n\r\n", PROVIDER),
        raw("status 0", "HTTP/1.1 000 X\r\ncontent-length: 0\r\n\r\n", PROVIDER),
        raw("status 101", "HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", PROVIDER),
        status("status 204", 204, "", "", PROVIDER),
        status("status 206", 206, "", "{}", PROVIDER),
        parts(
            "200,000 interim responses",
            vec![Part::Repeat(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), 200_000)],
            PROVIDER,
        ),
        parts(
            "endless headers",
            vec![
                Part::Bytes(b"HTTP/1.1 200 OK\r\n".to_vec()),
                Part::Repeat(b"x-a: b\r\n".to_vec(), GIB / 8),
            ],
            PROVIDER,
        ),
        parts(
            "an endless header",
            vec![Part::Bytes(b"HTTP/1.1 200 OK\r\nx-a: ".to_vec()), Part::Repeat(vec![b'a'], GIB)],
            PROVIDER,
        ),
        raw("a header with a NUL", plain("x-a: b\0c"), PROVIDER),
        raw("a header of escapes", plain("x-a: \x1b[2J\r\ncontent-length: 0"), PROVIDER),
        raw("a negative length", plain("content-length: -1"), PROVIDER),
        raw("a length of 2^64", plain("content-length: 18446744073709551616"), PROVIDER),
        raw("two lengths", plain("content-length: 5\r\ncontent-length: 6"), PROVIDER),
        raw("a body that is cut", plain("content-length: 5000") + &whole, PROVIDER),
        raw(
            "a chunk of 2^68 bytes",
            plain("transfer-encoding: chunked") + "fffffffffffffffff\r\nx",
            PROVIDER,
        ),
        raw("a chunk of zz bytes", plain("transfer-encoding: chunked") + "zz\r\nx", PROVIDER),
        parts(
            "endless chunks",
            vec![
                Part::Bytes(plain("transfer-encoding: chunked").into_bytes()),
                Part::Repeat(b"4\r\n: x\n\r\n".to_vec(), GIB / 9),
            ],
            PROVIDER,
        ),
        parts(
            "an endless extension of a chunk",
            vec![
                Part::Bytes((plain("transfer-encoding: chunked") + "4;").into_bytes()),
                Part::Repeat(vec![b'a'], GIB),
            ],
            PROVIDER,
        ),
        parts(
            "endless trailers",
            vec![
                Part::Bytes((plain("transfer-encoding: chunked") + "0\r\n").into_bytes()),
                Part::Repeat(b"x-a: b\r\n".to_vec(), GIB / 8),
            ],
            PROVIDER,
        ),
        raw("an unknown coding", plain("transfer-encoding: gzip, chunked") + "0\r\n\r\n", PROVIDER),
        parts(
            "a bomb of gzip",
            vec![
                Part::Bytes(plain("content-encoding: gzip").into_bytes()),
                Part::Bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec()),
                Part::Repeat(b"\xec\xc0\x81\x00".to_vec(), 1 << 20),
            ],
            PROVIDER,
        ),
        status("a redirect to another host", 307, &moved(elsewhere), "", PROVIDER),
        status("a redirect for good", 301, &moved(elsewhere), "", PROVIDER),
        status("a redirect with GET", 303, &moved(elsewhere), "", PROVIDER),
        status("a redirect to a file", 302, &moved("file:///etc/passwd"), "", PROVIDER),
        status("a redirect to itself", 308, &moved("?again"), "", PROVIDER),
        status("an address of another", 200, &moved(elsewhere), "{}", PROVIDER),
    ]
}

/// Statuses of errors, with their bodies and headers.
fn refusals() -> Vec<Case> {
    let error = |message: &str| format!(r#"{{"error":{{"type":"x","message":"{message}"}}}}"#);
    let wait = |value: &str| format!("retry-after: {value}\r\n");
    let slow =
        |name, header: &str| status(name, 429, header, &error("slow"), PROVIDER).says("rate_limit");
    let endless = |status: u16| {
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n\r\n");
        vec![Part::Bytes(head.into_bytes()), Part::Repeat(b"no ".to_vec(), GIB / 3)]
    };
    vec![
        parts("a refused key and a gigabyte", endless(401), PROVIDER).says("auth"),
        parts("a server error and a gigabyte", endless(500), PROVIDER).says("server_error"),
        parts("a reply without a stream and a gigabyte", endless(200), PROVIDER),
        status("an error of depth 100,000", 500, "", &deep("[", "]"), PROVIDER),
        status("an error of objects in objects", 500, "", &deep(r#"{"error":"#, "}"), PROVIDER),
        status(
            "an error of escapes",
            400,
            "",
            &error(&"\\u001b[2J\\u202e".repeat(9_000)),
            PROVIDER,
        ),
        status(
            "an error of wrong types",
            400,
            "",
            r#"{"error":{"type":[],"message":{},"code":1e99}}"#,
            PROVIDER,
        ),
        status("an error that is null", 503, "", r#"{"error":null}"#, PROVIDER),
        raw(
            "an error in Latin-1",
            b"HTTP/1.1 500 \xe9\r\ncontent-length: 2\r\n\r\n\xe9\xff".to_vec(),
            PROVIDER,
        ),
        slow("wait 10^18 seconds", &wait("1000000000000000000")),
        slow("wait 2^64 seconds", &wait("18446744073709551616")),
        slow("wait a year", &wait("31536000")),
        slow("wait less than nothing", &wait("-5")),
        slow("wait until the year 9999", &wait("Fri, 31 Dec 9999 23:59:59 GMT")),
        slow("wait until the year 99999", &wait("Fri, 31 Dec 99999 23:59:59 GMT")),
        slow("wait for no number", &wait("NaN")),
        slow("wait for infinity", &wait("inf")),
        slow("wait 1e300 milliseconds", "retry-after-ms: 1e300\r\n"),
        slow("wait until noon", &wait(&"noon ".repeat(9_000))),
        status(
            "always try again",
            400,
            "x-should-retry: true\r\nretry-after: 1e18\r\n",
            &error("x"),
            PROVIDER,
        ),
        status("too large", 413, "", &error("x"), FAILED),
        status(
            "a window of nothing",
            400,
            "",
            &error("prompt is too long: 18446744073709551615 tokens > 0 maximum"),
            FAILED,
        ),
        status(
            "a window of 10^30",
            400,
            "",
            &error(&format!("prompt is too long: 1{0} tokens > 1{0} maximum", "0".repeat(30))),
            FAILED,
        ),
        status(
            "room of 2^64",
            400,
            "",
            &error("exceed context limit: 0 + 18446744073709551615 > 18446744073709551615"),
            FAILED,
        ),
    ]
}

/// The framing of events, and values that are no events.
fn streams() -> Vec<Case> {
    let utf16: Vec<u8> = "data: {}\n\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    vec![
        lines("a stream of nothing", "", PROVIDER),
        lines("only comments", ": x\n\n".repeat(100), PROVIDER),
        lines("events without data", "event: message_stop\n\n", PROVIDER),
        lines("data without an end", "data: {\"type\":\"message_stop\"}", EITHER),
        lines("a web page", "<!doctype html><title>Sign in</title>\n\n", PROVIDER),
        lines("JSON that is cut", "data: {\"type\":\n\n", PROVIDER),
        lines("JSON without quotes", "data: {type: message_stop}\n\n", PROVIDER),
        lines(
            "bytes that are no UTF-8",
            b"data: {\"type\":\"\xff\xfe\",\"choices\":\"\xc3\"}\n\n".to_vec(),
            PROVIDER,
        ),
        lines("UTF-16", utf16, PROVIDER),
        stream("NUL bytes", vec![Part::Repeat(vec![0], 1 << 20)], PROVIDER),
        lines("null", "data: null\n\n", PROVIDER),
        lines("an array", "data: []\n\n", PROVIDER),
        lines("a number", "data: 7\n\n", PROVIDER),
        lines("a number of 10^6 digits", format!("data: 1{}\n\n", "0".repeat(1_000_000)), PROVIDER),
        lines("a text", "data: \"x\"\n\n", PROVIDER),
        lines("arrays 100,000 deep", data(&deep("[", "]")), PROVIDER),
        lines("objects 100,000 deep", data(&deep(r#"{"type":"#, "}")), PROVIDER),
        lines(
            "a later event 100,000 deep",
            data(&format!(r#"{{"type":"later","choices":null,"x":{}}}"#, deep("[", "]"))),
            PROVIDER,
        ),
        lines(
            "keys twice",
            data(r#"{"type":"message_stop","type":"error","choices":[],"choices":7}"#),
            PROVIDER,
        ),
        lines(
            "an error after the start",
            data(r#"{"error":{"type":"overloaded_error","message":"x"}}"#),
            PROVIDER,
        ),
        lines(
            "an error of a megabyte",
            data(&format!(r#"{{"type":"error","error":{{"message":"{}"}}}}"#, "x".repeat(1 << 20))),
            PROVIDER,
        ),
        lines(
            "an error of wrong types",
            data(r#"{"type":"error","error":7,"choices":7}"#),
            PROVIDER,
        ),
        stream(
            "silence amid a stream",
            vec![Part::Bytes(b"data: ".to_vec()), Part::Stall],
            PROVIDER,
        )
        .says("idle_timeout"),
        stream("a drip without an end", vec![Part::Drip(b": x\n".to_vec())], PROVIDER)
            .says("idle_timeout"),
        stream(
            "a line without an end",
            vec![Part::Bytes(b"data: ".to_vec()), Part::Repeat(vec![b'x'], GIB)],
            PROVIDER,
        )
        .says("longer than"),
        stream(
            "an event without an end",
            vec![Part::Repeat(
                b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".to_vec(),
                GIB / 61,
            )],
            PROVIDER,
        )
        .says("longer than"),
        stream(
            "comments without an end",
            vec![Part::Repeat(
                b": xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\n".to_vec(),
                GIB / 61,
            )],
            PROVIDER,
        )
        .says("longer than"),
        stream(
            "zeros in a value",
            vec![
                Part::Bytes(b"data: {\"type\":\"later\",\"choices\":null,\"x\":[".to_vec()),
                Part::Repeat(b"0,".to_vec(), 3 << 20),
                Part::Bytes(b"0]}\n\n".to_vec()),
            ],
            PROVIDER,
        ),
    ]
}

/// Replies that are right in form and too large, or slow to read.
fn floods() -> Vec<Case> {
    let kilobyte = "x".repeat(1_024);
    vec![
        wired(
            "a gigabyte of text",
            {
                let kilobyte = kilobyte.clone();
                move |kind| {
                    let delta = text_delta(kind, 0, &kilobyte);
                    vec![
                        bytes(start(kind) + &open_text(kind, 0)),
                        Part::Repeat(delta.into(), GIB / 1_024),
                    ]
                }
            },
            PROVIDER,
        )
        .says("longer than"),
        wired(
            "arguments of a gigabyte",
            move |kind| {
                let delta = arguments(kind, 0, &kilobyte);
                let open = open_call(kind, 0, "\"c\"", "\"glob\"");
                vec![bytes(start(kind) + &open), Part::Repeat(delta.into(), GIB / 1_024)]
            },
            PROVIDER,
        )
        .says("longer than"),
        wired(
            "100,000 calls",
            |kind| {
                let one = |at: usize| {
                    call(kind, at, &format!("\"c{at}\""), "\"glob\"", r#"{"pattern":"*"}"#)
                };
                let all: String = (0..100_000).map(one).collect();
                vec![bytes(start(kind) + &all + &end(kind, "tool_use"))]
            },
            PROVIDER,
        )
        .says("more than"),
        wired(
            "a call in fragments of one byte",
            |kind| {
                let fragment = arguments(kind, 0, " ");
                let open = open_call(kind, 0, "\"c\"", "\"glob\"")
                    + &arguments(kind, 0, r#"{\"pattern\":\"*\""#);
                let end = arguments(kind, 0, "}") + &close(kind, 0) + &end(kind, "tool_use");
                vec![bytes(start(kind) + &open), Part::Repeat(fragment.into(), 20_000), bytes(end)]
            },
            DONE,
        )
        .then(),
    ]
}

/// Tool calls that no tool can take.
fn odd_calls() -> Vec<Case> {
    let of = |name, call: (&'static str, &'static str, &'static str)| {
        wired(name, move |kind| calls(kind, &[call]), DONE).then()
    };
    let input = |name, input: &'static str| of(name, ("\"c\"", "\"glob\"", input));
    let usage = |name, usage: &'static str| {
        wired(name, move |kind| calls_costing(kind, &[LIST], usage), DONE).then()
    };
    vec![
        of("an unknown tool", ("\"c\"", "\"rm_rf\"", "{}")),
        of("a name of control characters", ("\"c\"", r#""gl\u0000ob\u001b[2J\u202e""#, "{}")),
        of("a name of blanks", ("\"c\"", "\"  \"", "{}")),
        of("an id of control characters", (r#""\u001b]0;x\u0007\n""#, "\"glob\"", "{}")),
        of("an empty id", ("\"\"", "\"glob\"", "{}")),
        wired(
            "a name of a megabyte",
            |kind| {
                let name = format!("\"{}\"", "n".repeat(1 << 20));
                calls(kind, &[("\"c\"", name.as_str(), "{}")])
            },
            DONE,
        )
        .then(),
        wired(
            "an id of a megabyte",
            |kind| {
                let id = format!("\"{}\"", "i".repeat(1 << 20));
                calls(kind, &[(id.as_str(), "\"glob\"", "{}")])
            },
            DONE,
        )
        .then(),
        wired("ids twice", |kind| calls(kind, &[LIST, ("\"c2\"", "\"glob\"", "{}"), LIST]), EITHER)
            .then(),
        wired(
            "200 calls",
            |kind| {
                let ids: Vec<String> = (0..200).map(|at| format!("\"c{at}\"")).collect();
                let all: Vec<_> = ids.iter().map(|id| (id.as_str(), LIST.1, LIST.2)).collect();
                calls(kind, &all)
            },
            DONE,
        )
        .then(),
        wired(
            "arguments 100,000 deep",
            |kind| {
                let input = format!(r#"{{"pattern":{}}}"#, deep("[", "]"));
                calls(kind, &[("\"c\"", "\"glob\"", input.as_str())])
            },
            DONE,
        )
        .then(),
        wired(
            "arguments 120 deep",
            |kind| {
                let input = format!(r#"{{"pattern":{}1{}}}"#, "[".repeat(120), "]".repeat(120));
                calls(kind, &[("\"c\"", "\"glob\"", input.as_str())])
            },
            DONE,
        )
        .then(),
        input("arguments that are cut", r#"{"pattern":"#),
        input("arguments that are a list", "[1,2]"),
        input("arguments that are a number", "1e400"),
        input("arguments that are null", "null"),
        input("arguments that close too much", "}}}}]]]]"),
        input("arguments of wrong types", r#"{"pattern":{"a":[null]},"path":7}"#),
        input("arguments twice", r#"{"pattern":"*","pattern":"/etc/*"}"#),
        input("a path out of here", r#"{"pattern":"../../../../etc/*"}"#),
        usage(
            "usage of 2^64-1",
            r#"{"input_tokens":18446744073709551615,"output_tokens":18446744073709551615,"cache_read_input_tokens":18446744073709551615,"cache_creation_input_tokens":18446744073709551615,"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615,"prompt_tokens_details":{"cached_tokens":18446744073709551615}}"#,
        ),
        usage(
            "usage below zero",
            r#"{"input_tokens":-1,"output_tokens":-9223372036854775808,"prompt_tokens":-1,"completion_tokens":-5,"prompt_tokens_details":{"cached_tokens":-1}}"#,
        ),
        usage(
            "usage in fractions",
            r#"{"input_tokens":1.5,"output_tokens":0.1,"prompt_tokens":1.5,"completion_tokens":2.5}"#,
        ),
        usage(
            "usage of 1e308",
            r#"{"input_tokens":1e308,"output_tokens":1e308,"prompt_tokens":1e308,"completion_tokens":1e308}"#,
        ),
        usage(
            "usage in words",
            r#"{"input_tokens":"many","output_tokens":[],"prompt_tokens":"many","completion_tokens":{}}"#,
        ),
        usage("usage of null", "null"),
        usage("usage that is a list", "[1,2]"),
        usage(
            "more cached than read",
            r#"{"input_tokens":1,"cache_read_input_tokens":5,"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":5}}"#,
        ),
    ]
}

/// Texts, ends and orders that no model gives.
fn odd_replies() -> Vec<Case> {
    let stop = |name, stop: &'static str, codes| {
        wired(
            name,
            move |kind| {
                let text = open_text(kind, 0) + &text_delta(kind, 0, "x") + &close(kind, 0);
                vec![bytes(start(kind) + &text + &end_with(kind, stop, "{}"))]
            },
            codes,
        )
    };
    vec![
        wired(
            "a text of escapes",
            |kind| says(kind, r"\u001b[2J\u001b]0;x\u0007\u202e\u0000", "end_turn"),
            DONE,
        ),
        wired("half a character", |kind| says(kind, r"\ud800", "end_turn"), EITHER),
        wired("a blank text", |kind| says(kind, r"\n \t", "end_turn"), FAILED).says("empty_answer"),
        wired("calls without a call", |kind| says(kind, " ", "tool_use"), FAILED),
        stop("no reason to stop", "null", DONE),
        stop("an empty reason to stop", "\"\"", DONE),
        stop("an unknown reason to stop", "\"\\u001b[2J\"", DONE),
        stop("a number as a reason to stop", "7", EITHER),
        wired(
            "a reason of a megabyte",
            |kind| {
                let reason = format!("\"{}\"", "r".repeat(1 << 20));
                let text = open_text(kind, 0) + &text_delta(kind, 0, "x") + &close(kind, 0);
                vec![bytes(start(kind) + &text + &end_with(kind, &reason, "{}"))]
            },
            DONE,
        ),
        wired(
            "two replies in one",
            |kind| {
                let mut twice = says(kind, "one", "end_turn");
                twice.extend(says(kind, "two", "end_turn"));
                twice
            },
            DONE,
        ),
        wired(
            "a flood after the end",
            |kind| {
                let mut all = says(kind, "one", "end_turn");
                all.push(Part::Repeat(b": x\n\n".to_vec(), GIB / 5));
                all
            },
            DONE,
        ),
        wired(
            "cut for ever",
            |kind| {
                let text = open_text(kind, 0) + &text_delta(kind, 0, "x") + &close(kind, 0);
                vec![bytes(start(kind) + &text + &open_call(kind, 1, "\"c\"", "\"glob\""))]
            },
            &[1, 3, 4],
        ),
        wired("calls for ever", |kind| calls(kind, &[LIST]), &[4]),
        wired(
            "a limit that is reached for ever",
            |kind| {
                says(kind, "x", "max_tokens").into_iter().chain(says(kind, "x", "length")).collect()
            },
            &[0, 1, 3, 4],
        ),
    ]
}

/// Blocks and events of the Messages API.
fn of_anthropic() -> Vec<Case> {
    const KIND: Kind = Kind::Anthropic;
    let wired = |name, body: fn() -> Vec<Part>, codes| Case {
        on: On::Only(KIND),
        ..wired(name, move |_| body(), codes)
    };
    let block = |index: &str, block: &str| {
        format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
    };
    const STOP: &str = r#"{"type":"message_stop"}"#;
    const TEXT: &str = r#"{"type":"text","text":""}"#;
    let first = block("0", TEXT);
    vec![
        wired("100,000 blocks", || {
            let one = |at| open_text(KIND, at) + &close(KIND, at);
            vec![bytes((0..100_000).map(one).collect::<String>() + &end(KIND, "end_turn"))]
        }, PROVIDER).says("more than"),
        wired("many open blocks and one that grows", || {
            let open: String = (0..900).map(|at| open_text(KIND, at)).collect();
            let delta = text_delta(KIND, 0, "x");
            vec![bytes(open), Part::Repeat(delta.into(), 50_000), bytes(end(KIND, "end_turn"))]
        }, DONE),
        wired("a gigabyte of thinking", || {
            let open = data(r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#);
            let delta = format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"thinking_delta","thinking":"{}"}}}}"#, "x".repeat(1_024));
            vec![bytes(open), Part::Repeat(data(&delta).into(), GIB / 1_024)]
        }, PROVIDER).says("longer than"),
        wired("a gigabyte of a later block", || {
            let open = data(r#"{"type":"content_block_start","index":0,"content_block":{"type":"later","x":""}}"#);
            let delta = format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"later_delta","x":"{}"}}}}"#, "x".repeat(1_024));
            vec![bytes(open), Part::Repeat(data(&delta).into(), GIB / 1_024)]
        }, PROVIDER).says("longer than"),
        wired("a later block 100,000 deep", || {
            let open = format!(r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"later","x":{}}}}}"#, deep("[", "]"));
            vec![bytes(data(&open) + &close(KIND, 0) + &end(KIND, "end_turn"))]
        }, EITHER),
        wired("an input 100,000 deep in one piece", || {
            let open = format!(r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"c","name":"glob","input":{{"pattern":{}}}}}}}"#, deep("[", "]"));
            vec![bytes(data(&open) + &close(KIND, 0) + &end(KIND, "tool_use"))]
        }, DONE).then(),
        only(KIND, "a negative index", &[&block("-1", TEXT), STOP], PROVIDER),
        only(KIND, "an index of 2^64-1", &[&block("18446744073709551615", TEXT), STOP], FAILED),
        only(KIND, "an index in words", &[&block("\"0\"", TEXT), STOP], PROVIDER),
        only(KIND, "a block that is null", &[&block("0", "null"), STOP], EITHER),
        only(KIND, "a block that is a number", &[&block("0", "7"), STOP], EITHER),
        only(KIND, "a block of no type", &[&block("0", "{}"), STOP], EITHER),
        only(KIND, "a block of a wrong type", &[&block("0", r#"{"type":7}"#), STOP], EITHER),
        only(KIND, "a result as a block", &[&block("0", r#"{"type":"tool_result","tool_use_id":"c","content":"x"}"#), STOP], EITHER),
        only(KIND, "a block twice", &[&first, &first], PROVIDER),
        only(KIND, "a delta for nothing", &[r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"x"}}"#], PROVIDER),
        only(KIND, "a delta of another type", &[&first, r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"x"}}"#], PROVIDER),
        only(KIND, "an end before the start", &[STOP, &first], FAILED).says("empty_answer"),
        only(KIND, "a message of wrong types", &[r#"{"type":"message_start","message":[{"usage":7}]}"#, STOP], EITHER),
        only(KIND, "an end of wrong types", &[&first, r#"{"type":"message_delta","delta":{"stop_reason":[]},"usage":{"output_tokens":{}}}"#, STOP], EITHER),
        only(KIND, "edits of 2^64-1", &[&first, r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"context_management":{"applied_edits":[{"type":"x","cleared_input_tokens":18446744073709551615},{"type":"x","cleared_input_tokens":18446744073709551615}]},"usage":{"input_tokens":5}}"#, STOP], DONE),
        only(KIND, "readings of 2^64-1", &[&first, r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":18446744073709551615,"iterations":[{"type":"compaction","input_tokens":18446744073709551615},{"type":"message","input_tokens":18446744073709551615,"cache_read_input_tokens":18446744073709551615}]}}"#, STOP], DONE),
        only(KIND, "a refusal of a megabyte", &[&format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"refusal","stop_details":{{"explanation":"{}"}}}}}}"#, "no ".repeat(350_000)), STOP], FAILED).says("refusal"),
        only(KIND, "a pause for ever", &[&block("0", r#"{"type":"text","text":"x"}"#), r#"{"type":"content_block_stop","index":0}"#, r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn"}}"#, STOP], &[1, 3, 4]),
        only(KIND, "a full window for ever", &[&block("0", r#"{"type":"text","text":"x"}"#), r#"{"type":"content_block_stop","index":0}"#, r#"{"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded"}}"#, STOP], &[1, 3, 4]),
        only(KIND, "a summary that nobody asked for", &[&block("0", r#"{"type":"compaction","content":"x"}"#), r#"{"type":"content_block_stop","index":0}"#, r#"{"type":"message_delta","delta":{"stop_reason":"compaction"}}"#, STOP], &[0, 1, 3, 4]),
        only(KIND, "an empty name", &[&block("0", r#"{"type":"tool_use","id":"c","name":"","input":{}}"#), STOP], DONE).then(),
        only(KIND, "a call of wrong types", &[&block("0", r#"{"type":"tool_use","id":7,"name":[],"input":"x"}"#), STOP], EITHER),
    ]
}

/// Chunks of chat completions.
fn of_openai() -> Vec<Case> {
    const KIND: Kind = Kind::OpenAi;
    const FINISH: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let delta = |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#);
    let calls = |calls: &str| delta(&format!(r#"{{"tool_calls":[{calls}]}}"#));
    let wired = |name, body: fn() -> Vec<Part>, codes| Case {
        on: On::Only(KIND),
        ..wired(name, move |_| body(), codes)
    };
    vec![
        wired("the name in every fragment", || {
            let fragment = |text: &str| data(&format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"function":{{"name":"glob","arguments":"{text}"}}}}]}}}}]}}"#
            ));
            let padding = Part::Repeat(fragment("        ").into(), 30_000);
            vec![bytes(fragment(r#"{\"pattern\":\"*\""#)), padding, bytes(fragment("}") + &end(KIND, "tool_use"))]
        }, DONE).then(),
        wired("100,000 calls in one chunk", || {
            let one = |at| format!(r#"{{"index":{at},"id":"c{at}","function":{{"name":"glob","arguments":"{{}}"}}}}"#);
            let all = (0..100_000).map(one).collect::<Vec<_>>().join(",");
            vec![bytes(data(&format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{all}]}}}}]}}"#)))]
        }, PROVIDER).says("more than"),
        wired("a gigabyte of a refusal", || {
            let delta = format!(r#"{{"choices":[{{"delta":{{"refusal":"{}"}}}}]}}"#, "no".repeat(512));
            vec![Part::Repeat(data(&delta).into(), GIB / 1_024)]
        }, PROVIDER).says("longer than"),
        only(KIND, "choices that are a number", &[r#"{"choices":7}"#], PROVIDER),
        only(KIND, "a delta that is a list", &[&delta("[]"), FINISH], EITHER),
        only(KIND, "a content of numbers", &[&delta(r#"{"content":[1,{"text":7},null]}"#), FINISH], EITHER),
        only(KIND, "a content of objects", &[&delta(r#"{"content":{"text":"x"}}"#), FINISH], EITHER),
        only(KIND, "calls that are a text", &[&delta(r#"{"tool_calls":"x"}"#), FINISH], PROVIDER),
        only(KIND, "a call without a beginning", &[&calls(r#"{"index":3,"function":{"arguments":"{}"}}"#)], PROVIDER),
        only(KIND, "a call of an empty name", &[&calls(r#"{"index":0,"id":"c","function":{"name":"","arguments":"{}"}}"#), FINISH], DONE).then(),
        only(KIND, "an index of 2^64", &[&calls(r#"{"index":18446744073709551616,"id":"c","function":{"name":"glob"}}"#), FINISH], PROVIDER),
        only(KIND, "a negative index of a call", &[&calls(r#"{"index":-1,"id":"c","function":{"name":"glob"}}"#), FINISH], PROVIDER),
        only(KIND, "arguments as an object", &[&calls(r#"{"index":0,"id":"c","function":{"name":"glob","arguments":{"pattern":"*"}}}"#), FINISH], DONE).then(),
        only(KIND, "ids that are numbers", &[&calls(r#"{"index":0,"id":7,"function":{"name":"glob"}}"#), FINISH], PROVIDER),
        only(KIND, "only other choices", &[r#"{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]}"#, "[DONE]"], FAILED),
        only(KIND, "done at once", &["[DONE]"], FAILED).says("empty_answer"),
        only(KIND, "a usage in every chunk", &[r#"{"choices":[],"usage":{"prompt_tokens":1}}"#, r#"{"choices":[],"usage":{"prompt_tokens":"x"}}"#, &delta(r#"{"content":"x"}"#), FINISH], DONE),
        only(KIND, "details of wrong types", &[&delta(r#"{"content":"x"}"#), FINISH, r#"{"choices":[],"usage":{"prompt_tokens":5,"prompt_tokens_details":[7]}}"#, "[DONE]"], DONE),
    ]
}
