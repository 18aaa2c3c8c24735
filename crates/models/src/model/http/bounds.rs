//! The bounds on what a provider's server may send: a reply that passes one is refused and not asked
//! for again.

use crate::message::Usage;
use crate::model::{ErrorClass, ModelError};

/// The most bytes of a whole reply on the wire. The longest outputs of the public services are 128,000
/// tokens, and an event for each of them has about 200 bytes: 26 MB.
pub(crate) const REPLY_BYTES: usize = 64 << 20;
/// The most bytes of a reply's contents: texts, thinking, names, ids and arguments together. 128,000
/// tokens of 5 bytes are 640 KB, and no provider takes back more than 32 MB in a request.
pub(crate) const CONTENT_BYTES: usize = 8 << 20;
/// The most bytes of the arguments of one call: six times what fits into 128,000 tokens.
pub(crate) const ARGUMENT_BYTES: usize = 4 << 20;
/// The most tool calls in a reply. OpenAI takes 128 tools in a request, and models seldom make more than
/// 20 calls at once; each needs a record and a result.
pub(crate) const CALLS: usize = 256;
/// The most blocks in a reply, calls included. A text with citations has the most blocks, some hundred.
pub(crate) const BLOCKS: usize = 1024;
/// The most tokens that a count is believed to have: a hundred times the largest context window, which
/// has ten million. A larger count is taken for this one, so that sums stay far from 2^64.
pub(crate) const TOKENS: u64 = 1_000_000_000;
/// The most characters of a text about a reply: an error, a refusal, the reason of its end. It is enough
/// for any provider's sentence, and a whole web page does not get into the journal.
pub(crate) const WORDS_CHARS: usize = 1000;

/// The contents that a reply has had so far.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    content: usize,
    blocks: usize,
    calls: usize,
}

impl Bounds {
    /// Counts so many more bytes of content.
    pub(crate) fn content(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.content += bytes;
        within(self.content, CONTENT_BYTES, "its contents are")
    }

    /// Counts one more block.
    pub(crate) fn block(&mut self) -> Result<(), ModelError> {
        self.blocks += 1;
        few(self.blocks, BLOCKS, "content blocks")
    }

    /// Counts one more tool call.
    pub(crate) fn call(&mut self) -> Result<(), ModelError> {
        self.calls += 1;
        few(self.calls, CALLS, "tool calls")
    }

    /// Returns the bytes of content so far.
    pub(crate) fn written(&self) -> usize {
        self.content
    }

    /// Returns an estimate of the tokens so far: the bytes divided by four, rounded up.
    pub(crate) fn tokens(&self) -> u64 {
        self.content.div_ceil(4) as u64
    }

    /// Returns the tokens of a reply that broke: those that the server counted when so many had come by our
    /// estimate, and the estimate of what came since. A server that counts no output counts at the end only.
    pub(crate) fn spent(&self, counted: Usage, at: u64) -> Usage {
        let since =
            if counted.output == 0 { self.tokens() } else { self.tokens().saturating_sub(at) };
        Usage { output: counted.output.saturating_add(since), ..counted }
    }
}

/// Checks the size of a part of a reply.
pub(crate) fn within(bytes: usize, most: usize, what: &str) -> Result<(), ModelError> {
    match bytes <= most {
        true => Ok(()),
        false => Err(refused(format!("{what} longer than {} MiB", most >> 20))),
    }
}

fn few(count: usize, most: usize, what: &str) -> Result<(), ModelError> {
    match count <= most {
        true => Ok(()),
        false => Err(refused(format!("it has more than {most} {what}"))),
    }
}

/// Creates the error for a reply that passes a bound.
pub(crate) fn refused(why: impl std::fmt::Display) -> ModelError {
    let message = format!("the reply was refused: {why}");
    ModelError { status: Some(200), ..ModelError::new(ErrorClass::ReplyTooLarge, message) }
}

/// Returns a text about a reply, or its beginning if it is longer than [`WORDS_CHARS`].
pub(crate) fn shorten(text: &str) -> String {
    beginning(text, WORDS_CHARS)
}

/// Returns a text, or so many characters of its beginning if it is longer.
pub(crate) fn beginning(text: &str, chars: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_a_refusal_for_good() {
        let mut bounds = Bounds::default();
        assert!(bounds.content(CONTENT_BYTES).is_ok());
        assert_eq!(bounds.tokens(), CONTENT_BYTES as u64 / 4);
        let mut errors = vec![bounds.content(1).expect_err("too long")];
        errors.extend((0..=CALLS).find_map(|_| bounds.call().err()));
        errors.extend((0..=BLOCKS).find_map(|_| bounds.block().err()));
        let messages: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "the reply was refused: its contents are longer than 8 MiB",
                "the reply was refused: it has more than 256 tool calls",
                "the reply was refused: it has more than 1024 content blocks",
            ]
        );
        assert!(errors.iter().all(|error| !error.is_retryable()));
    }
}
