//! What a journal is kept on: the few things that a disk must be able to do.

use std::io;

/// What a journal is kept on. A simulated disk implements it too.
pub trait Storage: Send {
    /// Writes at the end, with one write, and says how much was taken.
    ///
    /// # Errors
    /// When nothing could be written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// When it may not be durable; it is not called again after that.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts everything from `len` bytes on.
    ///
    /// # Errors
    /// When the end could not be cut.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// How many bytes there are.
    ///
    /// # Errors
    /// When that cannot be told.
    fn len(&self) -> io::Result<u64>;

    /// Whether there is nothing yet.
    ///
    /// # Errors
    /// When that cannot be told.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Whether what is written can still be found: a file that has lost its name would take it and
    /// lose it.
    ///
    /// # Errors
    /// When that cannot be told.
    fn presence(&self) -> io::Result<Presence>;

    /// How many more bytes the disk would take.
    ///
    /// # Errors
    /// When that cannot be told.
    fn free(&self) -> io::Result<u64>;

    /// Keeps this much of the disk aside, in bytes; 0 gives back what was.
    ///
    /// # Errors
    /// When there is not that much; nothing is kept then.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;
}

/// What stands where the journal is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The journal that is written.
    Kept,
    /// Nothing.
    Removed,
    /// Something else.
    Replaced,
}
