//! Turns the bytes of a stream into a reply, without a socket.
//!
//! Owns the rule of what is kept when a stream ends early: the whole reply, the blocks that are
//! complete, or nothing.

use super::{Refusal, bounds, malformed};
use crate::message::Usage;
use crate::model::{DeltaSink, ErrorClass, ModelError, Reply, sse};

/// The state of the stream after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More events follow.
    More,
    /// The reply is complete.
    Done,
}

/// A reply that is assembled from events in the format of one protocol.
pub(crate) trait Assembly: Send {
    /// Takes an event. After an error the stream is of no more use.
    fn take(
        &mut self,
        event: sse::Event<'_>,
        deltas: DeltaSink<'_>,
    ) -> Result<Progress, ModelError>;

    /// Takes a reply that came as one JSON document. Returns `None` if the document is no reply.
    fn take_whole(
        &mut self,
        document: &[u8],
        deltas: DeltaSink<'_>,
    ) -> Option<Result<(), ModelError>>;

    /// Returns true if the reply is complete, even if the stream ended or broke at this point.
    fn is_whole(&self) -> bool;

    /// Returns the tokens of the reply so far: as the provider counted them, or estimated.
    fn spent(&self) -> Usage;

    /// Returns the bytes of the reply's contents so far. Signs of life alone are none.
    fn written(&self) -> usize;

    /// Returns the complete reply.
    fn finish(self) -> Reply;

    /// Returns the blocks that were complete before the stream broke, if there is text or a tool
    /// call among them.
    fn salvage(self, reason: &ModelError) -> Option<Reply>;
}

/// The form of a body, which its first byte shows: no line of an event stream begins with a brace.
/// The content type does not, because some servers label one as the other.
enum Form {
    Unknown,
    Events(sse::Parser),
    /// A JSON document: the whole reply of a server that does not stream, or an error.
    Document(Vec<u8>),
}

/// A stream that is being read into a reply.
pub(crate) struct Intake<A> {
    form: Form,
    assembly: A,
    /// The bytes that have arrived.
    bytes: usize,
    /// The bytes of a document that are no blanks: a server could send blanks for ever.
    solid: usize,
    is_done: bool,
}

impl<A: Assembly> Intake<A> {
    pub(crate) fn new(assembly: A) -> Self {
        Self { form: Form::Unknown, assembly, bytes: 0, solid: 0, is_done: false }
    }

    /// Returns true if the reply is complete and nothing more needs to be read.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns true if the body is a JSON document.
    pub(crate) fn is_document(&self) -> bool {
        matches!(self.form, Form::Document(_))
    }

    /// Returns the tokens of the reply so far: as the provider counted them, or estimated.
    pub(crate) fn spent(&self) -> Usage {
        self.assembly.spent()
    }

    /// Returns the bytes of the reply's contents so far.
    pub(crate) fn written(&self) -> usize {
        match &self.form {
            Form::Document(_) => self.solid,
            Form::Unknown | Form::Events(_) => self.assembly.written(),
        }
    }

    /// Takes the next bytes and returns the number of events that they completed.
    pub(crate) fn feed(
        &mut self,
        chunk: &[u8],
        deltas: DeltaSink<'_>,
    ) -> Result<usize, ModelError> {
        let mut events = 0;
        self.bytes += chunk.len();
        bounds::within(self.bytes, bounds::REPLY_BYTES, "it is")?;
        if let Form::Unknown = self.form {
            match chunk.trim_ascii_start().first() {
                None => return Ok(0),
                Some(b'{') => self.form = Form::Document(Vec::new()),
                Some(_) => self.form = Form::Events(sse::Parser::default()),
            }
        }
        let Self { form, assembly, is_done, .. } = self;
        let parser = match form {
            Form::Events(parser) => parser,
            Form::Document(document) => {
                bounds::within(self.bytes, sse::MAX_EVENT_BYTES, "it is")?;
                document.extend_from_slice(chunk);
                self.solid += chunk.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
                return Ok(0);
            }
            Form::Unknown => return Ok(0),
        };
        parser.feed(chunk, |event| {
            events += 1;
            if !*is_done {
                *is_done = assembly.take(event, deltas)? == Progress::Done;
            }
            Ok::<(), ModelError>(())
        })?;
        Ok(events)
    }

    /// Takes the end of the stream. Returns an error if the reply is not complete then.
    pub(crate) fn end(&mut self, deltas: DeltaSink<'_>) -> Result<(), ModelError> {
        let Self { form, assembly, is_done, .. } = self;
        match form {
            Form::Unknown => {}
            Form::Events(parser) => {
                let parser = std::mem::take(parser);
                let may_be_cut = parser.is_amid_line();
                parser.finish(|event| {
                    if !*is_done && (!may_be_cut || is_entire(event.data)) {
                        *is_done = assembly.take(event, deltas)? == Progress::Done;
                    }
                    Ok::<(), ModelError>(())
                })?;
            }
            Form::Document(document) => {
                if let Some(refusal) = Refusal::find_in(document) {
                    return Err(refusal.into_error(200));
                }
                let taken = assembly.take_whole(document, deltas);
                return taken.unwrap_or_else(|| Err(no_reply(document)));
            }
        }
        match self.is_done || self.assembly.is_whole() {
            true => Ok(()),
            false => Err(ModelError::new(
                ErrorClass::Connection,
                "the stream ended before the reply was whole",
            )),
        }
    }

    /// Returns the reply, or the part of it that is kept; `read` is the result of reading the
    /// stream.
    pub(crate) fn close(self, read: Result<(), ModelError>) -> Result<Reply, ModelError> {
        match read {
            Err(error) if !self.assembly.is_whole() => {
                let spent = Some(self.assembly.spent()).filter(|spent| *spent != Usage::default());
                let error = ModelError { usage: spent.map(Box::new), ..error };
                // Nothing of a reply that passed a bound is worth keeping.
                let is_sound = error.class != ErrorClass::ReplyTooLarge;
                let kept = is_sound.then(|| self.assembly.salvage(&error)).flatten();
                kept.ok_or(error)
            }
            Ok(()) | Err(_) => Ok(self.assembly.finish()),
        }
    }
}

/// Returns true if the data of an event without a line end are not cut: both protocols send JSON
/// objects, and OpenAI one word more.
fn is_entire(data: &[u8]) -> bool {
    data.trim_ascii() == b"[DONE]" || serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok()
}

/// Creates the error for a document that is neither a reply nor an error.
fn no_reply(document: &[u8]) -> ModelError {
    match serde_json::from_slice::<serde::de::IgnoredAny>(document) {
        // It may have been cut.
        Err(error) if error.is_eof() => {
            ModelError::new(ErrorClass::Connection, "the reply ended before it was whole")
        }
        Err(error) => malformed(format!("the reply cannot be read: {error}")),
        Ok(_) => ModelError {
            status: Some(200),
            ..ModelError::new(ErrorClass::Fatal, "the server answered with JSON that is no reply")
        },
    }
}

#[cfg(test)]
impl<A: Assembly> Intake<A> {
    /// Returns the reply to a stream that arrives in these chunks and then ends.
    pub(crate) fn replay<'c>(
        assembly: A,
        chunks: impl IntoIterator<Item = &'c [u8]>,
    ) -> Result<Reply, ModelError> {
        let mut intake = Self::new(assembly);
        let mut sink = |_: crate::model::Delta<'_>| {};
        let read = || {
            for chunk in chunks {
                intake.feed(chunk, &mut sink)?;
                if intake.is_done() {
                    return Ok(());
                }
            }
            intake.end(&mut sink)
        };
        let read = read();
        intake.close(read)
    }
}
