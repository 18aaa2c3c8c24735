//! A simple command whose arguments are judged.

use super::words::Word;

/// A simple command that is inspected.
pub(super) struct Call<'w> {
    /// The name of the program without its folder.
    pub(super) name: &'w str,
    pub(super) arguments: &'w [Word],
    /// Its place among the commands of the reading.
    pub(super) at: usize,
    /// How many launchers stand around it.
    pub(super) depth: usize,
}
