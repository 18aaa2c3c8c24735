//! The writer of a stream that is read on while the disk takes what came before.

use std::io;

use tokio::task::JoinHandle;

use crate::store::{MEMORY_BYTES, StoreWriter};

/// The writer of a stream. What comes while a write is under way waits in the buffer of whoever reads.
pub(super) struct Writing {
    /// `None` while a write is under way. An error stays: what comes after it is dropped.
    writer: Option<io::Result<StoreWriter>>,
    under_way: Option<JoinHandle<(io::Result<StoreWriter>, Vec<u8>)>>,
    /// An empty buffer to read into while the other is written.
    spare: Vec<u8>,
}

impl Writing {
    pub(super) fn new(writer: StoreWriter) -> Self {
        Self { writer: Some(Ok(writer)), under_way: None, spare: Vec::new() }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Waits for the write that is under way. May be dropped and asked for again.
    pub(super) async fn done(&mut self) {
        if let Some(write) = &mut self.under_way {
            let written = write.await;
            let (writer, mut bytes) =
                written.unwrap_or_else(|error| (Err(io::Error::other(error)), Vec::new()));
            bytes.clear();
            (self.writer, self.under_way, self.spare) = (Some(writer), None, bytes);
        }
    }

    /// Takes all bytes out of the buffer and writes them, unless a write is under way.
    pub(super) fn write(&mut self, buffer: &mut Vec<u8>) {
        if buffer.is_empty() {
            return;
        }
        match self.writer.take() {
            None => {}
            Some(Ok(writer)) if !writer.stays_in_memory(buffer.len()) => {
                self.spare.reserve(MEMORY_BYTES);
                let bytes = std::mem::replace(buffer, std::mem::take(&mut self.spare));
                let write = move || (writer.write(&bytes), bytes);
                self.under_way = Some(tokio::task::spawn_blocking(write));
            }
            Some(writer) => {
                self.writer = Some(writer.and_then(|writer| writer.write(buffer)));
                buffer.clear();
            }
        }
    }

    /// Lays open what was written so far, unless a write is under way.
    pub(super) fn lay_open(&mut self) {
        match self.writer.take() {
            Some(Ok(writer)) => {
                let spare = std::mem::take(&mut self.spare);
                let lay_open = move || (Ok(writer.lay_open()), spare);
                self.under_way = Some(tokio::task::spawn_blocking(lay_open));
            }
            other => self.writer = other,
        }
    }

    /// Writes the rest, and returns the writer.
    pub(super) async fn finish(mut self, mut rest: Vec<u8>) -> io::Result<StoreWriter> {
        self.done().await;
        self.write(&mut rest);
        self.done().await;
        self.writer.unwrap_or_else(|| Err(io::Error::other("a write has not ended")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn what_comes_while_a_write_is_under_way_is_written_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("spool"), dir.path().join("results"));
        let mut writing = Writing::new(store.writer().named("open".to_owned()));
        let mut buffer = b"one\n".to_vec();
        writing.write(&mut buffer);
        assert!(buffer.is_empty() && !writing.is_under_way(), "it has room in memory");
        writing.lay_open();
        buffer.extend_from_slice(b"two\n");
        writing.write(&mut buffer);
        assert_eq!((buffer.as_slice(), writing.is_under_way()), (&b"two\n"[..], true));
        writing.done().await;
        assert_eq!(std::fs::read(dir.path().join("spool/open")).unwrap(), b"one\n");
        writing.write(&mut buffer);
        let large = vec![b'x'; MEMORY_BYTES];
        buffer.extend_from_slice(&large);
        writing.write(&mut buffer);
        assert!(buffer.is_empty() && writing.is_under_way(), "the disk takes it");
        let output = writing.finish(b"end".to_vec()).await.unwrap().finish(10).unwrap();
        let stored = std::fs::read(store.path_of(&output.stored.unwrap())).unwrap();
        assert_eq!(stored, [&b"one\ntwo\n"[..], &large, b"end"].concat());
    }
}
