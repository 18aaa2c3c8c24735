//! Turns the bytes of a stream into a reply, without a socket.
//!
//! Owns the rule of what is kept when a stream ends early: the whole reply, the blocks that are
//! complete, or nothing.

use super::bounds;
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

    /// Returns true if the reply is complete, even if the stream ended or broke at this point.
    fn is_whole(&self) -> bool;

    /// Returns the tokens of the reply so far: as the provider counted them, or estimated.
    fn spent(&self) -> Usage;

    /// Returns the complete reply.
    fn finish(self) -> Reply;

    /// Returns the blocks that were complete before the stream broke, if there is text or a tool
    /// call among them.
    fn salvage(self, reason: &ModelError) -> Option<Reply>;
}

/// A stream that is being read into a reply.
pub(crate) struct Intake<A> {
    parser: sse::Parser,
    assembly: A,
    /// The bytes that have arrived.
    bytes: usize,
    is_done: bool,
}

impl<A: Assembly> Intake<A> {
    pub(crate) fn new(assembly: A) -> Self {
        Self { parser: sse::Parser::default(), assembly, bytes: 0, is_done: false }
    }

    /// Returns true if the reply is complete and nothing more needs to be read.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
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
        let Self { parser, assembly, is_done, .. } = self;
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
        let Self { parser, assembly, is_done, .. } = self;
        std::mem::take(parser).finish(|event| {
            if !*is_done {
                *is_done = assembly.take(event, deltas)? == Progress::Done;
            }
            Ok::<(), ModelError>(())
        })?;
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
