//! The request body: parts that are already encoded, sent one after the other.
//!
//! Owns the grouping of parts into writes. It never parses them, and it never copies the whole
//! conversation: only small parts are copied together.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

/// Small parts are copied together up to this many bytes. That makes one write of most requests,
/// and limits the memory of each request under way.
const GATHER: usize = 64 * 1024;
/// A part of at least this many bytes is sent as it is: a write of its own costs less than the
/// copy.
const PASS: usize = 32 * 1024;

/// A body made of parts, of which the length is known.
#[derive(Debug)]
pub(crate) struct PartsBody {
    parts: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl PartsBody {
    pub(crate) fn new(parts: Vec<Bytes>) -> Self {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts: parts.into_iter(), left }
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        let first = self.parts.by_ref().find(|part| !part.is_empty())?;
        let chunk = if first.len() >= PASS { first } else { self.gather(&first) };
        self.left -= chunk.len() as u64;
        Some(chunk)
    }

    fn gather(&mut self, first: &Bytes) -> Bytes {
        let room = usize::try_from(self.left).unwrap_or(GATHER).min(GATHER);
        let mut gathered = BytesMut::with_capacity(room);
        gathered.extend_from_slice(first);
        while let Some(next) = self.parts.as_slice().first() {
            if next.len() >= PASS || gathered.len() + next.len() > GATHER {
                break;
            }
            gathered.extend_from_slice(next);
            self.parts.next();
        }
        gathered.freeze()
    }
}

impl http_body::Body for PartsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next_chunk().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_are_gathered_and_big_ones_pass_uncopied() {
        let small = Bytes::from(vec![b's'; 1000]);
        let big = Bytes::from(vec![b'b'; PASS]);
        let mut parts = vec![small.clone(); 100];
        parts.push(Bytes::new());
        parts.push(big.clone());
        parts.push(small);
        let whole = parts.concat();
        let mut body = PartsBody::new(parts);
        assert_eq!(body.left, whole.len() as u64);
        let chunks: Vec<Bytes> = std::iter::from_fn(|| body.next_chunk()).collect();
        let sizes: Vec<usize> = chunks.iter().map(Bytes::len).collect();
        assert_eq!(sizes, [65_000, 35_000, PASS, 1000]);
        assert_eq!(chunks[2].as_ptr(), big.as_ptr(), "the big part was copied");
        assert_eq!(chunks.concat(), whole);
        assert_eq!(body.left, 0);
    }
}
