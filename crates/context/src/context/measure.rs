//! The measure: the expected size of a request in tokens, before it is sent.
//!
//! Pure. The size of a request is the provider's last count, less an estimate of the text that was
//! removed since, plus an estimate of the text that was added. The estimate knows scripts but no
//! model, so it is multiplied by the model's ratio: tokens that the provider counted in whole
//! requests, for each estimated token. Everything here follows from recorded events, so that a
//! rebuilt agent measures as before.

mod estimate;

use serde::Deserialize;
use serde_json::Value;

pub use self::estimate::estimate;
use crate::id::Name;
use crate::message::media::Attachment;
use crate::message::{Block, Json, Message, ResultContent};

/// Characters for each token in English text and code, as the providers' documentation says: for
/// sizes that need no provider's count.
pub const CHARS_PER_TOKEN: u64 = 4;

/// Tokens around a message: OpenAI documents three, other templates have a few more.
const MESSAGE_TOKENS: u64 = 4;
/// Tokens around a call or a result, most of them for the id that joins the two.
const CALL_TOKENS: u64 = 12;
/// Tokens of an image of the largest size that is not scaled down, 1.15 megapixels at 750 pixels a
/// token, as Anthropic documents it; OpenAI documents less.
const IMAGE_TOKENS: u64 = 1_600;

/// Tokens of a page of a PDF: its text and its image, in the middle of the range that the Messages API's
/// documentation gives (1,500 to 3,000 of text; the image as any other).
const PAGE_TOKENS: u64 = 3_000;

/// Characters of base64 that count as one page of a PDF: 60 kB, a page of text with a figure. The
/// provider's own count corrects the estimate after the first call.
const PAGE_DATA: usize = 80_000;

/// Lowest believable ratio of counted to estimated tokens. Even for the scripts on which
/// vocabularies differ most the estimate is within it; a lower count is not of the whole request.
const LEAST_RATIO: f64 = 0.4;
/// Highest believable ratio: a factor of two for the script, a quarter more for the tokenizer.
const MOST_RATIO: f64 = 2.5;
/// Factor by which an estimate of new text may be too low once the ratio is known: for the scripts
/// that the ratio was found with, the estimate is up to a fifth too low.
const MARGIN: f64 = 1.25;
/// Factor by which an estimate may be too low while no request was counted: newer tokenizers count
/// 1.3 times as much, and the margin of 1.25 comes on top.
const UNKNOWN_MARGIN: f64 = 1.6;
/// Smallest estimate of a request, in tokens, whose report changes the ratio. Where there are
/// tools, providers add some hundreds of unseen tokens, which weigh too much in smaller requests.
const TELLING_TOKENS: u64 = 1_000;
/// Number of newest reports whose median is the ratio: a single wrong report does not move it.
const REPORTS: usize = 3;

/// Returns the estimated tokens of a message: of the text that the model reads, not of its JSON.
#[must_use]
pub fn message_tokens(message: &Message) -> u64 {
    MESSAGE_TOKENS + blocks_tokens(&message.content)
}

fn blocks_tokens(blocks: &[Block]) -> u64 {
    let tokens = |block: &Block| match block {
        Block::Text(text) => estimate(text),
        Block::ToolUse(call) => CALL_TOKENS + estimate(&call.name) + estimate(call.input.as_str()),
        Block::ToolResult(result) => CALL_TOKENS + result_tokens(&result.content),
        Block::Other(json) => other_tokens(json),
    };
    blocks.iter().map(tokens).sum()
}

/// Returns the estimated tokens of a tool result's content.
#[must_use]
pub fn result_tokens(content: &ResultContent) -> u64 {
    match content {
        ResultContent::Text(text) => estimate(text),
        ResultContent::Blocks(json) => match json.decode::<Vec<Block>>() {
            Ok(blocks) => blocks_tokens(&blocks),
            Err(_) => estimate(json.as_str()),
        },
    }
}

/// Returns the size of a message in characters. An image counts as four characters for each token
/// that it costs, as in the documented estimate, because its bytes are not text.
#[must_use]
pub fn message_chars(json: &Json) -> usize {
    let chars = json.as_str().chars().count();
    if !json.as_str().contains("\"base64\"") {
        return chars;
    }
    let mut attached = Vec::new();
    note_attached(&json.to_value(), &mut attached);
    attached.iter().fold(chars, |chars, (data, tokens)| chars - data + 4 * *tokens as usize)
}

/// Returns the estimated tokens of a PDF with this much data in base64.
fn document_tokens(data: usize) -> u64 {
    PAGE_TOKENS * (data / PAGE_DATA).max(1) as u64
}

/// Collects the length of the data of each image and PDF in a value, with its tokens.
fn note_attached(value: &Value, attached: &mut Vec<(usize, u64)>) {
    match value {
        Value::Object(fields) => {
            let source = fields.get("source").filter(|source| source["type"] == "base64");
            let data = source.and_then(|source| source["data"].as_str());
            let tokens = |data: &str| match fields.get("type").and_then(Value::as_str) {
                Some("image") => Some(IMAGE_TOKENS),
                Some("document") => Some(document_tokens(data.len())),
                _ => None,
            };
            match data.and_then(|data| Some((data.len(), tokens(data)?))) {
                Some(one) => attached.push(one),
                None => fields.values().for_each(|field| note_attached(field, attached)),
            }
        }
        Value::Array(items) => items.iter().for_each(|item| note_attached(item, attached)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the estimated tokens of any other block. The signature of thinking and the bytes of an
/// image do not count, because the model does not read them as text.
fn other_tokens(json: &Json) -> u64 {
    #[derive(Deserialize)]
    struct Other {
        r#type: String,
        thinking: Option<String>,
    }
    match json.decode::<Other>() {
        Ok(Other { r#type, .. }) if r#type == "image" => IMAGE_TOKENS,
        Ok(Other { r#type, .. }) if r#type == "document" => match Attachment::read(json) {
            Some(document) => document_tokens(document.data.len()),
            None => estimate(json.as_str()),
        },
        Ok(Other { thinking: Some(thinking), .. }) => estimate(&thinking),
        _ => estimate(json.as_str()),
    }
}

/// Size of an agent's messages, in estimated tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Tokens that the messages hold now.
    pub held: u64,
    /// Tokens that edits have removed so far.
    pub removed: u64,
}

impl Extent {
    /// Notes that a message of `before` tokens has `after` tokens now.
    pub fn change(&mut self, before: u64, after: u64) {
        self.held = self.held - before + after;
        self.removed += before.saturating_sub(after);
    }

    /// Notes that messages of this many tokens were removed.
    pub fn remove(&mut self, tokens: u64) {
        self.change(tokens, 0);
    }
}

/// The provider's count of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Report {
    tokens: f64,
    /// Estimated size of the whole request: head and messages.
    extent: Extent,
}

/// A report that cannot be of the whole request: the server cut the request without saying so, or
/// it counts only the part that its cache did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Tokens that the server reported.
    pub reported: u64,
    /// Tokens that the request was expected to hold.
    pub expected: u64,
}

/// Source of the size of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowOrigin {
    /// `context_window` of the model.
    Configured,
    /// The provider named a smaller window when it refused a request.
    Refusal,
}

impl std::fmt::Display for WindowOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Configured => "its `context_window`",
            Self::Refusal => "the provider's refusal",
        })
    }
}

/// A model's window, input and output together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSize {
    /// Size in tokens.
    pub tokens: u64,
    /// Source of the size.
    pub origin: WindowOrigin,
}

/// One agent's measure of its requests.
#[derive(Clone, Debug, Default)]
pub struct Measure {
    model: Option<Name>,
    /// Estimated tokens before the messages: system prompt and tools.
    head: u64,
    /// Size of the request that is under way.
    sent: Option<Extent>,
    last: Option<Report>,
    doubted: Option<(Report, Doubt)>,
    /// Counted tokens for each estimated token in the newest reports, oldest first.
    ratios: Vec<f64>,
    told_window: Option<u64>,
}

impl Measure {
    /// Sets the model and the head of the next requests, in estimated tokens. A change of the model
    /// forgets all reports, because another model counts in its own way.
    pub fn begin_with(&mut self, model: &Name, head: u64) {
        if self.model.as_ref() != Some(model) {
            *self = Self { model: Some(model.clone()), ..Self::default() };
        }
        self.head = head;
    }

    /// Notes that a request with these messages was sent.
    pub fn request(&mut self, messages: Extent) {
        self.sent = Some(self.whole(messages));
    }

    /// Takes the provider's count of the request that was sent last; zero is no report.
    pub fn report(&mut self, tokens: u64) {
        let Some(extent) = self.sent.take() else { return };
        let (counted, estimated) = (float(tokens), float(extent.held));
        if tokens == 0 || extent.held == 0 {
            return;
        }
        let report = Report { tokens: counted.min(MOST_RATIO * estimated), extent };
        // After a doubted report, the next one that continues from it is believed: then the context
        // did become smaller, as when a provider drops the thinking of earlier turns.
        let bases = [self.last, self.doubted.map(|(report, _)| report)];
        let mut floors = bases.into_iter().flatten().map(|base| self.floor(base, extent));
        let goes_on = self.last.is_none() || floors.any(|floor| counted >= floor);
        if counted < LEAST_RATIO * estimated || !goes_on {
            let expected = whole_tokens(self.expected(extent));
            self.doubted = Some((report, Doubt { reported: tokens, expected }));
            return;
        }
        if extent.held >= TELLING_TOKENS {
            self.ratios.drain(..(self.ratios.len() + 1).saturating_sub(REPORTS));
            self.ratios.push(report.tokens / estimated);
        }
        (self.last, self.doubted) = (Some(report), None);
    }

    /// Takes the numbers that a refusal named: the tokens of the request, and those of the window.
    /// Of several windows named, the smallest holds.
    pub fn refused(&mut self, tokens: Option<u64>, window: Option<u64>) {
        self.report(tokens.unwrap_or(0));
        self.told_window = self.told_window.into_iter().chain(window).min();
    }

    /// Returns the expected tokens of a request with these messages.
    #[must_use]
    pub fn size(&self, messages: Extent) -> u64 {
        whole_tokens(self.expected(self.whole(messages)))
    }

    /// Returns the expected tokens of the head: system prompt and tools.
    #[must_use]
    pub fn overhead(&self) -> u64 {
        whole_tokens(float(self.head) * self.ratio())
    }

    /// Returns the most tokens that a request with these messages can hold, with the margins for
    /// the parts that no provider has counted.
    #[must_use]
    pub fn at_most(&self, messages: Extent) -> u64 {
        let now = self.whole(messages);
        let Some(last) = self.last else {
            return whole_tokens(float(now.held) * UNKNOWN_MARGIN);
        };
        let (removed, added) = since(last.extent, now);
        let each = last.tokens / float(last.extent.held);
        let kept = float(last.extent.held) - removed;
        // The removed text may have had fewer tokens than its share, but only within the margin.
        let left = (last.tokens - removed * each / MARGIN).min(kept * each * MARGIN);
        let margin = if self.ratios.is_empty() { UNKNOWN_MARGIN } else { MARGIN };
        // New text may be of another sort than the view: a ratio below 1, found with markers and
        // paths, says little of prose. So it is taken half of the way back.
        let ratio = self.ratio();
        let ratio = if ratio < 1.0 { ratio.sqrt() } else { ratio };
        whole_tokens(left + added * ratio * margin)
    }

    /// Returns the tokens that the request holds by the lowest believable ratio.
    #[must_use]
    pub fn at_least(&self, messages: Extent) -> u64 {
        (float(self.whole(messages).held) * LEAST_RATIO) as u64
    }

    /// Returns the estimated tokens to which the messages must shrink so that their request holds
    /// at most `limit` tokens; their present size if it already does.
    #[must_use]
    pub fn fitting_tokens(&self, messages: Extent, limit: u64) -> u64 {
        let shrunk = |held| Extent { held, removed: messages.removed + (messages.held - held) };
        let (mut fits, mut beyond) = (0, messages.held + 1);
        while fits + 1 < beyond {
            let held = fits + (beyond - fits) / 2;
            match self.at_most(shrunk(held)) <= limit {
                true => fits = held,
                false => beyond = held,
            }
        }
        fits
    }

    /// Returns true if a provider has counted a request of this agent.
    #[must_use]
    pub fn is_calibrated(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the window of the model: `configured`, or a smaller one that a refusal named.
    #[must_use]
    pub fn window(&self, configured: u64) -> WindowSize {
        match self.told_window {
            Some(tokens) if tokens < configured => {
                WindowSize { tokens, origin: WindowOrigin::Refusal }
            }
            _ => WindowSize { tokens: configured, origin: WindowOrigin::Configured },
        }
    }

    /// Returns the counted tokens for each estimated token. Before the third report the larger
    /// ratio counts, and 1 is the least after only one.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        // It is asked for many times a turn.
        match self.ratios[..] {
            [] => 1.0,
            [one] => one.max(1.0),
            [one, other] => one.max(other),
            [a, b, c, ..] => a.min(b).max(a.max(b).min(c)),
        }
    }

    /// Returns the last report with what was expected, if it was not believed.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubted.map(|(_, doubt)| doubt)
    }

    fn whole(&self, messages: Extent) -> Extent {
        Extent { held: self.head + messages.held, ..messages }
    }

    fn expected(&self, now: Extent) -> f64 {
        let Some(last) = self.last else { return float(now.held) };
        let (removed, added) = since(last.extent, now);
        let left = last.tokens * (1.0 - removed / float(last.extent.held));
        left + added * self.ratio()
    }

    /// Returns the least tokens that a request can hold which continues an earlier one, within the
    /// margin. Where scripts change this can be too high; then the report is believed one turn
    /// later.
    fn floor(&self, base: Report, now: Extent) -> f64 {
        let (removed, added) = since(base.extent, now);
        let each = base.tokens / float(base.extent.held);
        let kept = float(base.extent.held) - removed;
        let stayed = (base.tokens - removed * each * MARGIN).max(kept * each / MARGIN);
        stayed + added * each.min(self.ratio()) / MARGIN
    }
}

/// Returns the estimated tokens that were removed from a request and those that were added since.
/// Text that was added and removed in between counts as removed from the earlier request.
fn since(then: Extent, now: Extent) -> (f64, f64) {
    let removed = now.removed.saturating_sub(then.removed).min(then.held);
    let added = (now.held + removed).saturating_sub(then.held);
    (float(removed), float(added))
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn float(tokens: u64) -> f64 {
    tokens as f64
}

/// Rounds up to whole tokens; less than a millionth of a token is a rounding error.
fn whole_tokens(tokens: f64) -> u64 {
    (tokens - 1e-6).max(0.0).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Role, ToolCall, ToolResult};

    fn held(held: u64) -> Extent {
        Extent { held, removed: 0 }
    }

    /// A measure whose head is estimated at 1,000 tokens.
    fn measure() -> Measure {
        let mut measure = Measure::default();
        measure.begin_with(&Name::new("m").expect("a name"), 1_000);
        measure
    }

    /// Sends messages of this extent, of which the provider counts so much.
    fn send(measure: &mut Measure, extent: Extent, counted: u64) {
        measure.request(extent);
        measure.report(counted);
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 0.001
    }

    #[test]
    fn a_constant_ratio_is_found_within_three_reports() {
        for ratio in [0.45, 0.6, 1.0, 1.5, 2.4] {
            let mut measure = measure();
            for turn in 1..=10 {
                let extent = held(turn * 4_000);
                if turn > 3 {
                    assert!(near(measure.ratio(), ratio), "{ratio}: {}", measure.ratio());
                    let (size, real) =
                        (measure.size(extent), whole_tokens(float(1_000 + extent.held) * ratio));
                    assert!(size.abs_diff(real) <= 1, "{ratio}: {size}, {real}");
                    assert!(measure.at_most(extent) >= real);
                }
                send(&mut measure, extent, whole_tokens(float(1_000 + extent.held) * ratio));
                assert_eq!(measure.doubt(), None);
            }
        }
    }

    #[test]
    fn before_the_first_report_the_margin_is_wide_and_the_larger_ratio_counts() {
        let mut measure = measure();
        assert_eq!((measure.size(held(9_000)), measure.at_most(held(9_000))), (10_000, 16_000));
        send(&mut measure, held(1_000), 1_200);
        assert_eq!(measure.size(held(1_000)), 1_200, "what was counted is exact");
        assert!(near(measure.ratio(), 1.0), "one low report is not enough");
        assert_eq!(measure.size(held(1_000 + 400)), 1_600);
        send(&mut measure, held(3_000), 3_200);
        assert!(near(measure.ratio(), 0.8));
        send(&mut measure, held(5_000), 9_000);
        assert!(near(measure.ratio(), 0.8), "one report that is off does not move it");
        assert_eq!(measure.size(held(5_000)), 9_000, "but it was counted");
    }

    #[test]
    fn what_a_provider_adds_unseen_does_not_pass_for_a_ratio() {
        let mut measure = Measure::default();
        send(&mut measure, held(200), 500);
        assert_eq!(measure.size(held(10_200)), 500 + 10_000);
        assert_eq!(measure.at_most(held(10_200)), 500 + 16_000);
        send(&mut measure, held(10_200), 10_500);
        assert!(near(measure.ratio(), 10_500.0 / 10_200.0), "{}", measure.ratio());
    }

    #[test]
    fn the_ratio_never_leaves_its_bounds_and_zero_is_no_report() {
        let mut measure = measure();
        for (turn, counted) in [(1, 900_000), (2, 0), (3, 1), (4, u64::MAX), (5, 30), (6, 700_000)]
        {
            send(&mut measure, held(turn * 1_000), counted);
            assert!((LEAST_RATIO..=MOST_RATIO).contains(&measure.ratio()), "{}", measure.ratio());
        }
        let mut silent = self::measure();
        send(&mut silent, held(9_000), 0);
        assert_eq!((silent.at_most(held(9_000)), silent.doubt()), (16_000, None));
    }

    #[test]
    fn what_was_taken_out_is_taken_off() {
        let mut measure = measure();
        send(&mut measure, held(9_000), 12_000);
        // Half of the messages went, 100 tokens stand in their place.
        let edited = Extent { held: 4_600, removed: 4_500 };
        assert_eq!(measure.size(edited), 12_000 - 5_400 + 120);
        // They may have been lighter than the rest, by a fifth.
        assert_eq!(measure.at_most(edited), 12_000 - 4_320 + 150);
        // Nearly all went: then the rest may be heavier, by a quarter.
        let cleared = Extent { held: 0, removed: 9_000 };
        assert_eq!((measure.size(cleared), measure.at_most(cleared)), (1_200, 1_500));
        send(&mut measure, edited, 6_000);
        assert_eq!(measure.size(edited), 6_000, "exact again");
        assert_eq!(measure.doubt(), None);
    }

    #[test]
    fn a_server_that_cuts_in_silence_is_not_believed() {
        // The window of the server is 4,096; the agent's is larger.
        let mut measure = measure();
        for turn in 1..=20 {
            let extent = held(turn * 800);
            let real = 1_000 + extent.held;
            send(&mut measure, extent, real.min(4_096));
            assert_eq!(measure.doubt().is_some(), real > 4_800, "{real}");
            assert!(near(measure.ratio(), 1.0), "{}", measure.ratio());
            assert!(measure.size(extent) >= real - 800, "{real}: {}", measure.size(extent));
        }
        // A report that counts only the part that the cache did not have.
        let mut measure = self::measure();
        send(&mut measure, held(9_000), 10_000);
        for turn in 1..=5 {
            send(&mut measure, held(9_000 + turn * 500), 500);
            let expected = 10_000 + turn * 500;
            assert_eq!(measure.doubt(), Some(Doubt { reported: 500, expected }));
        }
        assert_eq!(measure.size(held(12_000)), 13_000);
        // And one whose first report is far too small.
        let mut measure = self::measure();
        send(&mut measure, held(9_000), 3_900);
        assert_eq!(measure.doubt(), Some(Doubt { reported: 3_900, expected: 10_000 }));
        assert_eq!(measure.at_most(held(9_000)), 16_000);
    }

    #[test]
    fn a_context_that_did_become_smaller_is_believed_at_the_second_report() {
        // The provider drops the thinking of earlier turns when a new request comes.
        let mut measure = measure();
        send(&mut measure, held(9_000), 10_000);
        send(&mut measure, held(9_500), 8_000);
        assert!(measure.doubt().is_some());
        assert_eq!(measure.size(held(9_500)), 10_500);
        send(&mut measure, held(10_000), 8_500);
        assert_eq!((measure.doubt(), measure.size(held(10_000))), (None, 8_500));
    }

    #[test]
    fn the_room_is_the_most_that_fits() {
        let mut measure = measure();
        let check = |measure: &Measure, now: Extent, limit: u64| {
            let room = measure.fitting_tokens(now, limit);
            let shrunk = |held| Extent { held, removed: now.removed + now.held - held };
            assert!(room <= now.held);
            assert!(room == 0 || measure.at_most(shrunk(room)) <= limit, "{room} for {limit}");
            assert!(room == now.held || measure.at_most(shrunk(room + 1)) > limit, "{room}");
            room
        };
        assert_eq!(check(&measure, held(9_000), 8_000), 4_000);
        assert_eq!(check(&measure, held(9_000), 100), 0);
        send(&mut measure, held(9_000), 15_000);
        assert_eq!(check(&measure, held(9_000), 15_000), 9_000);
        for limit in [0, 1_000, 5_000, 10_000, 14_999, 30_000] {
            check(&measure, held(9_000), limit);
            check(&measure, Extent { held: 12_000, removed: 4_000 }, limit);
        }
    }

    #[test]
    fn a_refusal_tells_size_and_window() {
        let mut measure = measure();
        assert_eq!(measure.window(200_000).origin, WindowOrigin::Configured);
        measure.request(held(9_000));
        measure.refused(Some(15_000), Some(8_192));
        assert_eq!(measure.size(held(9_000)), 15_000);
        let window = WindowSize { tokens: 8_192, origin: WindowOrigin::Refusal };
        assert_eq!(measure.window(200_000), window);
        assert_eq!(measure.window(4_096).origin, WindowOrigin::Configured);
        measure.begin_with(&Name::new("other").expect("a name"), 500);
        assert_eq!(measure.size(held(9_000)), 9_500, "another model counts in its own way");
        assert_eq!(measure.window(200_000).tokens, 200_000);
    }

    #[test]
    fn a_message_is_what_the_model_reads_of_it() {
        let text = "one line\nand \"another\"\n".repeat(50);
        let result = |content| {
            let result = ToolResult { tool_use_id: "c".to_owned(), content, is_error: false };
            Message { role: Role::User, content: vec![Block::ToolResult(result)] }
        };
        let plain = message_tokens(&Message::user(text.as_str()));
        assert_eq!(plain, MESSAGE_TOKENS + estimate(&text));
        let answer = message_tokens(&result(ResultContent::Text(text)));
        assert_eq!(answer, plain + CALL_TOKENS);
        let data = "iVBORw0KGgoAAAANSUhEUgAA".repeat(4_000);
        let image = serde_json::json!({
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": data},
        });
        let image = result(ResultContent::Blocks(Json::encode(&[image])));
        assert_eq!(message_tokens(&image), MESSAGE_TOKENS + CALL_TOKENS + IMAGE_TOKENS);
        let thinking = |signature: &str| {
            let block =
                serde_json::json!({"type": "thinking", "thinking": "so", "signature": signature});
            let content = vec![Block::Other(Json::encode(&block))];
            message_tokens(&Message { role: Role::Assistant, content })
        };
        assert_eq!(thinking("x"), thinking(&data));
        let input = Json::encode(&serde_json::json!({"path": "src/main.rs"}));
        let call = ToolCall { id: "c".to_owned(), name: "read_file".to_owned(), input };
        let call = Message { role: Role::Assistant, content: vec![Block::ToolUse(call)] };
        assert!((20..40).contains(&message_tokens(&call)), "{}", message_tokens(&call));
    }
}
