//! The answers that the loopback provider gives: a reply, its pace, and its faults.
//!
//! Knows no wire format; `render` does.

use std::sync::Arc;
use std::time::Duration;

use callsheet::message::Usage;
use serde_json::Value;
use tokio::sync::Barrier;

/// One block of a reply.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Text.
    Text(String),
    /// A tool call; without an id it gets one of its own.
    Tool { id: Option<String>, name: String, input: Value },
    /// A thinking block with its signature; the OpenAI wire sends it as `reasoning_content`.
    Thinking { text: String, signature: String },
    /// A summary amid a reply, which comes in a delta; without a content it failed.
    Compaction { content: Option<String> },
    /// A block that comes whole, as this JSON.
    Whole(String),
}

/// A fault of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// 429; the text is the value of `retry-after`, if any.
    RateLimited(Option<String>),
    /// 429 that no waiting helps.
    NoQuota,
    /// 529 (503 on the OpenAI wire).
    Overloaded,
    /// 500.
    ServerError,
    /// 400: the prompt is too long.
    TooLong { have: u64, max: u64 },
    /// 400: prompt and output limit together are too long.
    TooLongWithOutput { input: u64, output: u64, max: u64 },
    /// 400: a tool call without its result.
    Pairing,
    /// 413.
    TooManyBytes,
    /// 401.
    BadKey,
    /// An answer of the test's own: status, headers, body.
    Http { status: u16, headers: Vec<(String, String)>, body: String },
    /// A stream that is packed with gzip; the text is base64 of its bytes.
    Packed(&'static str),
    /// The request is read and nothing is answered.
    StallBeforeHead,
    /// The status line and the headers come, and nothing more.
    StallBeforeFirstByte,
    /// The stream stops at this place; the connection stays open.
    Stall(FaultAt),
    /// The connection is cut at this place.
    Cut(FaultAt),
    /// A data line that is not JSON comes at this place, and the stream goes on.
    Junk(FaultAt),
    /// An error object comes at this place after the 200.
    ErrorEvent(FaultAt),
    /// A delta names a block that never began.
    WrongIndex,
    /// Every block or call has index 0.
    DuplicateIndex,
    /// A reply without a block.
    Empty,
    /// The model refuses, with this explanation.
    Refusal(String),
    /// The last call is cut in its arguments by the output limit.
    CutByLimit,
    /// Pings, comments, and unknown events, deltas and fields everywhere.
    Noise,
    /// The last event of the wire (`message_stop`, `[DONE]`) is missing.
    NoEnd,
    /// No token counts are reported.
    NoUsage,
    /// Windows line ends.
    Crlf,
}

/// The place in the stream at which a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultAt {
    /// Amid the first block.
    InFirstBlock,
    /// After the first block has completed, amid the second.
    InSecondBlock,
}

/// A scripted reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) parts: Vec<Part>,
    /// The stop reason in Anthropic's words; absent: what the parts suggest.
    pub(crate) stop: Option<String>,
    /// The token counts; absent: estimated from the bytes.
    pub(crate) usage: Option<Usage>,
    /// The report on context editing.
    pub(crate) applied: Vec<Value>,
    /// The report on each time that the context was read.
    pub(crate) iterations: Vec<Value>,
    pub(crate) fault: Option<Fault>,
    /// The most characters in one delta; zero: the whole text in one.
    pub(crate) delta_chars: usize,
    /// The bytes of one chunk of the HTTP body; zero: as they come.
    pub(crate) chunk_bytes: usize,
    /// The pause before the first event.
    pub(crate) first_pause: Duration,
    /// The pause between events; zero: everything in one write.
    pub(crate) pause: Duration,
    /// Answers that wait for each other before the first byte.
    pub(crate) gate: Option<Arc<Barrier>>,
}

impl Answer {
    /// A reply of one text block.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::default().and_text(text)
    }

    /// A reply of one tool call.
    pub(crate) fn tool(name: &str, input: Value) -> Self {
        Self::default().and_tool(name, input)
    }

    /// An answer that is only a fault.
    pub(crate) fn fault(fault: Fault) -> Self {
        Self::default().with(fault)
    }

    /// With one more text block.
    pub(crate) fn and_text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// With one more tool call.
    pub(crate) fn and_tool(mut self, name: &str, input: Value) -> Self {
        self.parts.push(Part::Tool { id: None, name: name.to_owned(), input });
        self
    }

    /// With one more thinking block.
    pub(crate) fn and_thinking(mut self, text: &str, signature: &str) -> Self {
        self.parts.push(Part::Thinking { text: text.to_owned(), signature: signature.to_owned() });
        self
    }

    /// With one more block, which comes whole.
    pub(crate) fn and_whole(mut self, block: &str) -> Self {
        self.parts.push(Part::Whole(block.to_owned()));
        self
    }

    /// With this fault.
    pub(crate) fn with(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// With this stop reason.
    pub(crate) fn stopping(mut self, stop: &str) -> Self {
        self.stop = Some(stop.to_owned());
        self
    }

    /// With these token counts.
    pub(crate) fn costing(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// With texts cut into deltas of so many characters, and a pause before each event.
    pub(crate) fn paced(mut self, delta_chars: usize, pause: Duration) -> Self {
        self.delta_chars = delta_chars;
        self.pause = pause;
        self
    }

    /// With a body in HTTP chunks of so many bytes.
    pub(crate) fn chunked(mut self, chunk_bytes: usize) -> Self {
        self.chunk_bytes = chunk_bytes;
        self
    }

    /// With a pause before the first event.
    pub(crate) fn after(mut self, first_pause: Duration) -> Self {
        self.first_pause = first_pause;
        self
    }

    /// Held back until all answers with the same barrier are due.
    pub(crate) fn together(mut self, barrier: &Arc<Barrier>) -> Self {
        self.gate = Some(Arc::clone(barrier));
        self
    }
}
