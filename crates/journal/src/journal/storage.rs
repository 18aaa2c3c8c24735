//! The storage of a journal: the few operations that a disk must offer.

use std::io;

/// The storage of a journal. A simulated disk in the tests implements it too.
pub trait Storage: Send {
    /// Writes at the end, with one write. Returns the number of bytes written.
    ///
    /// # Errors
    /// Returns an error if nothing could be written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Makes all written bytes durable.
    ///
    /// # Errors
    /// Returns an error if they may not be durable; the storage is not synced again after that.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts everything from `len` bytes on.
    ///
    /// # Errors
    /// Returns an error if the end could not be cut.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// Returns an error if the length cannot be read.
    fn len(&self) -> io::Result<u64>;

    /// Returns true if nothing has been written yet.
    ///
    /// # Errors
    /// Returns an error if the length cannot be read.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Tells if the written bytes can still be found by name: a file that was removed accepts
    /// writes, but they are lost.
    ///
    /// # Errors
    /// Returns an error if that cannot be found out.
    fn presence(&self) -> io::Result<Presence>;

    /// Returns the number of bytes that the disk can still take.
    ///
    /// # Errors
    /// Returns an error if that number cannot be read.
    fn free(&self) -> io::Result<u64>;

    /// Keeps this many bytes of the disk in reserve; 0 releases the reserve.
    ///
    /// # Errors
    /// Returns an error if there is not that much space; then nothing is kept.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;
}

/// The file that is found under the journal's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The journal that is being written.
    Kept,
    /// There is no file.
    Removed,
    /// There is another file.
    Replaced,
}
