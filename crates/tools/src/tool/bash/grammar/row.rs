//! A row of the tables of programs: the arguments that a rule must spell out.

/// A program, or a subcommand of git, with the arguments that no rule may allow.
pub(super) struct Program {
    pub(super) names: &'static str,
    /// Letters of short options. Any of them in a word that begins with one `-` counts, because
    /// short options can be joined.
    pub(super) letters: &'static str,
    /// Long options without `--`. Each prefix of one counts.
    pub(super) long: &'static str,
    /// Harmless long options that are a prefix of one in `long`; for an interpreter, the options that
    /// may stand before its script.
    pub(super) harmless: &'static str,
    /// Whole words, up to a `=`.
    pub(super) words: &'static str,
    /// Beginnings of words.
    pub(super) begins: &'static str,
    /// Options that do no harm, up to a `=`. If there are any, every other option counts.
    pub(super) free: &'static str,
    /// Beginnings of such options.
    pub(super) free_begins: &'static str,
    /// Letters of such options, which can be joined; a `:` stands behind one that takes a value.
    pub(super) free_letters: &'static str,
    /// True if a path that leads out of the folder counts, as an operand or a value.
    pub(super) inside: bool,
    pub(super) operands: Operands,
}

/// The words of a program that are no options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operands {
    /// They do no harm.
    Any,
    /// The first one holds short options if it begins without `-`.
    Bundle,
    /// The second one is a file that is written.
    One,
    /// One with `=` sets a variable, whose value is run as a command.
    NoAssignments,
    /// The first one is a script, and what stands behind it is its own; without one, the program
    /// runs what it reads.
    Script,
}

/// A row without content.
pub(super) const PROGRAM: Program = Program {
    names: "",
    letters: "",
    long: "",
    harmless: "",
    words: "",
    begins: "",
    free: "",
    free_begins: "",
    free_letters: "",
    inside: false,
    operands: Operands::Any,
};

impl Program {
    /// Returns true if only the listed options do no harm.
    pub(super) fn is_strict(&self) -> bool {
        [self.free, self.free_begins, self.free_letters].iter().any(|list| !list.is_empty())
    }
}
