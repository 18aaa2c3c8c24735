//! The writing of one summary: what is asked, call by call, until there is a summary or the reason why there is
//! none.
//!
//! Pure. An actor makes each call that a [`Step`] names, and tells its end. The rules:
//!
//! - A provider that writes summaries itself is asked first; if it turns out that it cannot, a model is.
//! - On the prefix of the agent's requests, the messages are sent as the agent sent them, with the instruction at
//!   the end, so that the provider's cache holds them. If that is too long, the oldest exchanges are left out or
//!   the largest message is cut.
//! - Otherwise the messages are read as text, in parts that fit the window, each with the summary of the parts
//!   before. If a part is too long, all parts are made smaller, and it begins again.
//! - A reply whose stream broke is asked for once more. What is no summary, or frees too little, ends it.

use super::error::{ErrorClass, ModelError};
use crate::context::layers::summary::{Form, Material, SummaryRequest};
use crate::context::provider::compaction_block::summary_text;
use crate::message::{Block, Json, Message, StopReason};

/// Most characters of a summary for each token that it was allowed: twice as many as prose has, so
/// that only a reply of a provider that ignores the limit is refused.
const MAX_CHARS_PER_TOKEN: u64 = 8;

/// Characters that a token is assumed to have when a request is made to fit: fewer than text and
/// code have on average.
const CHARS_PER_TOKEN: u64 = 3;

/// Most retries of a call whose stream broke: as many as of one that failed.
const STREAM_RETRIES: u32 = 1;

/// Most times that a request that is too long is made smaller. Each time a third is removed if the
/// provider does not say how much is too much, so that about an eighth is left at the end.
const MOST_CUTS: u32 = 5;

/// The reason why there is no summary when even that does not help.
const TOO_LONG: &str = "what it is to read is too long, however much is left out";

/// The content of a summary.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// A text that a model wrote for a prompt of callsheet.
    Text(String),
    /// A block that the provider made, which stands in the view unchanged.
    Block {
        /// The block.
        summary: Block,
        /// The text in the block.
        text: String,
    },
}

impl Written {
    /// Returns the text of the summary.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Block { text, .. } => text,
        }
    }
}

/// The reason why the calls gave no summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoText {
    /// The reply cannot be used as a summary.
    Unusable(&'static str),
    /// The summary would make the context no smaller, or not enough.
    FreesTooLittle,
    /// The model failed.
    Model(String),
}

/// What is done next for a summary.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask the provider to write it itself. The request holds about so many tokens.
    ByProvider(u64),
    /// Send these messages behind the front of the agent's requests.
    OnPrefix(Vec<Json>),
    /// Send this message alone.
    Alone(Json),
    /// Send the last request again.
    Again,
    /// There is a summary, or none.
    End(Result<Written, NoText>),
}

/// How a summary can be written.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// True if the provider may be able to write it itself.
    pub by_provider: bool,
    /// True if it is written on the prefix of the agent's requests.
    pub on_prefix: bool,
    /// Tokens of the window of the model that writes it.
    pub window: u64,
    /// Most tokens of a reply of that model.
    pub max_output_tokens: u64,
}

/// Who reads what.
#[derive(Debug)]
enum Way {
    ByProvider,
    OnPrefix(Material),
    InParts {
        /// Most characters of a part.
        part: usize,
        /// The parts, and how many of them were read.
        texts: Vec<String>,
        read: usize,
        /// The summary of those.
        so_far: Option<String>,
    },
}

/// The writing of one summary.
#[derive(Debug)]
pub struct Writing {
    due: SummaryRequest,
    means: Means,
    way: Way,
    /// How often what is read was made smaller.
    cuts: u32,
    /// Retries of the call under way.
    retries: u32,
}

impl Writing {
    /// Begins a summary; returns the first step too.
    pub fn begin(due: SummaryRequest, means: Means) -> (Self, Step) {
        let mut writing = Self { due, means, way: Way::ByProvider, cuts: 0, retries: 0 };
        let step = match means.by_provider {
            true => Step::ByProvider(tokens(writing.due.covers_chars)),
            false => writing.by_model(),
        };
        (writing, step)
    }

    /// Returns the most tokens that the summary may have.
    pub fn max_tokens(&self) -> u64 {
        self.due.max_tokens.min(self.means.max_output_tokens)
    }

    /// Takes in a reply.
    pub fn replied(&mut self, message: &Message, stop: &StopReason) -> Step {
        if let Way::ByProvider = self.way {
            let most_chars = self.due.covers_chars.saturating_sub(self.due.least_gain);
            return Step::End(usable_block(message, stop, most_chars));
        }
        if let StopReason::Interrupted(_) = stop {
            if self.retries == STREAM_RETRIES {
                return unusable("the stream broke");
            }
            self.retries += 1;
            return Step::Again;
        }
        let text = match usable(message, stop, self.max_tokens(), self.due.form) {
            Ok(text) => text,
            Err(none) => return Step::End(Err(none)),
        };
        match &mut self.way {
            Way::InParts { read, so_far, .. } => {
                (*read, *so_far) = (*read + 1, Some(text));
                self.ask()
            }
            Way::ByProvider | Way::OnPrefix(_) => self.written(text),
        }
    }

    /// Takes in that a call failed for good.
    pub fn failed(&mut self, error: &ModelError) -> Step {
        let over = match error.class {
            ErrorClass::ContextTokens { have, max } => {
                have.zip(max).map(|(have, max)| (have, have.saturating_sub(max)))
            }
            // The output limit does not fit beside the input.
            ErrorClass::ContextPlusOutput { .. } | ErrorClass::RequestBytes => None,
            ErrorClass::Unsupported(_) => {
                return match self.way {
                    Way::ByProvider => self.by_model(),
                    Way::OnPrefix(_) | Way::InParts { .. } => {
                        unusable("the provider cannot do this")
                    }
                };
            }
            _ => return Step::End(Err(NoText::Model(error.to_string()))),
        };
        self.too_long(over)
    }

    /// Makes what is read smaller. `over` has the tokens of the request, and how many of them are too many, if the
    /// provider said so.
    fn too_long(&mut self, over: Option<(u64, u64)>) -> Step {
        let is_smaller = match &mut self.way {
            Way::ByProvider => false,
            Way::OnPrefix(material) => material.shed(excess(material, over)),
            Way::InParts { part, .. } => {
                *part = match over {
                    Some((have, over)) if have > over => scaled(*part, have - over, have) / 10 * 9,
                    _ => *part / 3 * 2,
                };
                true
            }
        };
        if !is_smaller || self.cuts == MOST_CUTS {
            return unusable(TOO_LONG);
        }
        self.cuts += 1;
        if let Way::InParts { part, .. } = self.way {
            self.way = self.parts(part);
        }
        self.ask()
    }

    /// Begins to have a model write it.
    fn by_model(&mut self) -> Step {
        self.way = match self.means.on_prefix {
            true => self.prefix(),
            false => {
                let instruction = self.due.whole_instruction().chars().count();
                // Space for two summaries: the one to write, and that of the parts before, which a later
                // part is sent with.
                let free_tokens = self.means.window.saturating_sub(2 * self.max_tokens());
                let free_chars = whole(free_tokens.saturating_mul(CHARS_PER_TOKEN));
                self.parts(free_chars.saturating_sub(instruction))
            }
        };
        self.ask()
    }

    fn prefix(&self) -> Way {
        let mut material = self.due.material.clone();
        // The agent itself has just sent as much, but this model's window may be smaller.
        let beside = self.max_tokens() + tokens(self.due.whole_instruction().len());
        let over = (self.due.prefix_tokens + beside).saturating_sub(self.means.window);
        if over > 0 {
            material.shed(scaled(material.chars(), over, self.due.prefix_tokens));
        }
        Way::OnPrefix(material)
    }

    fn parts(&self, part: usize) -> Way {
        Way::InParts { part, texts: self.due.parts(part), read: 0, so_far: None }
    }

    /// Returns the next call of the way that was chosen.
    fn ask(&mut self) -> Step {
        self.retries = 0;
        match &mut self.way {
            Way::ByProvider => Step::ByProvider(tokens(self.due.covers_chars)),
            Way::OnPrefix(material) => {
                Step::OnPrefix(material.conversation(&self.due.whole_instruction()))
            }
            Way::InParts { texts, read, so_far, .. } => match texts.get(*read) {
                Some(text) => {
                    let prompt = Message::user(self.due.prompt(text, so_far.as_deref()));
                    Step::Alone(Json::encode(&prompt))
                }
                None => {
                    let text = so_far.take().unwrap_or_default();
                    self.written(text)
                }
            },
        }
    }

    fn written(&self, text: String) -> Step {
        let is_enough = text.chars().count() + self.due.least_gain <= self.due.covers_chars;
        Step::End(if is_enough { Ok(Written::Text(text)) } else { Err(NoText::FreesTooLittle) })
    }
}

fn unusable(reason: &'static str) -> Step {
    Step::End(Err(NoText::Unusable(reason)))
}

/// Returns how many characters must be removed: the share of the tokens that the provider named and
/// a tenth of everything, because the estimate is not exact; or a third if it named none.
fn excess(material: &Material, over: Option<(u64, u64)>) -> usize {
    let chars = material.chars();
    match over {
        Some((have, over)) => scaled(chars, over, have) + chars / 10,
        None => chars / 3,
    }
}

/// Estimates the tokens of so many characters, too many rather than too few.
fn tokens(chars: usize) -> u64 {
    chars as u64 / CHARS_PER_TOKEN
}

/// Returns the share of `chars` that `part` is of `all`.
fn scaled(chars: usize, part: u64, all: u64) -> usize {
    let scaled = chars as u128 * u128::from(part) / u128::from(all.max(1));
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

fn whole(tokens: u64) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX)
}

/// Takes the provider's summary from a reply to a request that asked for nothing else.
fn usable_block(
    message: &Message,
    stop: &StopReason,
    most_chars: usize,
) -> Result<Written, NoText> {
    let found = message.content.iter().find_map(|block| Some((block, summary_text(block)?)));
    let reason = match (stop, found) {
        (StopReason::Compaction, Some((_, text))) if text.chars().count() >= most_chars => {
            return Err(NoText::FreesTooLittle);
        }
        (StopReason::Compaction, Some((summary, text))) => {
            return Ok(Written::Block { summary: summary.clone(), text });
        }
        (StopReason::MaxTokens, _) => "it was cut",
        (StopReason::Refusal(_), _) => "the model refused",
        (StopReason::ToolUse, _) => "the model called a tool",
        (StopReason::ContextWindowExceeded, _) => "the context window had no room for it",
        _ => "it has no text",
    };
    Err(NoText::Unusable(reason))
}

/// Takes the summary from a reply. A reply without text is a failure, whatever its stop reason, and
/// so is one that is longer than it was allowed to be. A tool call in the reply is never run.
fn usable(
    message: &Message,
    stop: &StopReason,
    max_tokens: u64,
    form: Form,
) -> Result<String, NoText> {
    if let StopReason::Refusal(_) = stop {
        return Err(NoText::Unusable("the model refused"));
    }
    let text = message.text();
    if text.trim().is_empty() {
        return Err(NoText::Unusable("it has no text"));
    }
    if text.chars().count() as u64 > max_tokens.saturating_mul(MAX_CHARS_PER_TOKEN) {
        return Err(NoText::Unusable("it is longer than it may be"));
    }
    form.read(&text).ok_or(NoText::Unusable("nothing in it is a summary"))
}

#[cfg(test)]
mod tests;
