//! A simple command whose arguments are judged, and the names by which its program goes.

use super::options::holds;
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

/// Returns the names by which a table may list a program. macOS prefixes the GNU tools with a `g`:
/// `gfind`, `gsed`; and a name may end in a version: `python3.12`, `gcc-12`.
pub(super) fn spellings(name: &str) -> impl Iterator<Item = &str> {
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let unversioned = unversioned.strip_suffix('-').unwrap_or(unversioned);
    let bare = name.strip_prefix('g');
    let unversioned = Some(unversioned).filter(|unversioned| *unversioned != name);
    std::iter::once(name).chain(bare).chain(unversioned)
}

/// Returns true if a program goes by one of the names.
pub(in crate::tool::bash) fn is_called(name: &str, names: &str) -> bool {
    spellings(name).any(|name| holds(names, name))
}
