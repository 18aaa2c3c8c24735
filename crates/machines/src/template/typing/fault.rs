//! The expression at which an evaluation failed. Plain data: the walk finds it, and `failing` puts it into words.

use super::Type;

/// An expression whose evaluation failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failing {
    /// The expression, as the text writes it.
    pub(super) written: String,
    /// The type of its value, as far as it has one.
    pub(super) of: Type,
    /// The values that it takes, as the text writes them, with their types.
    pub(super) takes: Vec<(String, Type)>,
}
