//! The words for an evaluation that failed: the expression at fault, and what was there.
//!
//! Pure. The values of the evaluation give the types, so that a message never holds a value: values may be long.

use std::ops::Range;

use minijinja::{Error, ErrorKind};

use super::fault::Failing;
use super::walk::Walk;
use super::{Roots, Type, Typed, missing};
use crate::template::{TemplateError, bounds, foreign, syntax};

/// The most characters of an expression that a message shows.
const EXPRESSION_CHARS: usize = 120;

/// The forms of a text of the template language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::template) enum Form {
    /// Text with tags.
    Template,
    /// An expression, without braces.
    Expression,
}

/// Returns the words for an error, if there are better ones than those of the language: what was missing, or the
/// expression at fault with what it was given.
pub(in crate::template) fn words(
    form: Form,
    text: &str,
    known: &Roots,
    error: &Error,
) -> Option<String> {
    let told = TemplateError::from(error);
    let at = told.range.clone().filter(|_| is_of_values(error.kind()));
    let (found, failing) = walked(form, text, known, at).ok()?;
    missing(&found, &told).or_else(|| Some(failing?.told(error)))
}

/// Returns true if an error of this kind comes from the values: not from the text, and not from a bound.
fn is_of_values(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    !matches!(kind, K::UndefinedError | K::SyntaxError | K::OutOfFuel | K::WriteFailure)
}

/// Finds the types in a text, and the expression at these bytes.
fn walked(
    form: Form,
    text: &str,
    known: &Roots,
    at: Option<Range<usize>>,
) -> Result<(Typed, Option<Failing>), TemplateError> {
    foreign(|| {
        bounds::check_depth(text, form == Form::Expression)?;
        let mut walk = Walk::new(text, known).seeking(at);
        let of = match form {
            Form::Template => {
                let parsed = minijinja::machinery::parse(text, "", syntax())?;
                walk.assigned(std::slice::from_ref(&parsed));
                walk.statement(&parsed);
                Type::Text
            }
            Form::Expression => walk.expression(&minijinja::machinery::parse_expr(text)?),
        };
        let failing = walk.failing.take();
        Ok((Typed { of, misfits: walk.misfits }, failing))
    })
}

impl Failing {
    fn told(&self, error: &Error) -> String {
        let written = short(&self.written);
        let why = match (error.kind(), error.detail()) {
            // These say nothing more of it.
            (ErrorKind::InvalidOperation | ErrorKind::BadSerialization, Some(why)) => {
                why.to_owned()
            }
            (kind, Some(why)) => format!("{kind}: {why}"),
            (kind, None) => kind.to_string(),
        };
        if self.takes.is_empty() {
            return match (why.strip_suffix(" is not iterable"), &self.of) {
                (Some(_), of) if *of != Type::Unknown => {
                    format!("`{written}` is {of}, not a list")
                }
                _ => format!("`{written}`: {why}"),
            };
        }
        let takes = self.takes.iter().filter(|(_, of)| *of != Type::Unknown);
        let takes: Vec<_> =
            takes.map(|(value, of)| format!("`{}` is {of}", short(value))).collect();
        let takes = takes.join(" and ");
        // The language says the same with names of its own for the kinds of values.
        let is_kinds = why.starts_with("tried to use ") && !why.contains("undefined");
        match (takes.is_empty(), is_kinds) {
            (true, _) => format!("`{written}`: {why}"),
            (false, true) => format!("`{written}` has no result: {takes}{}", self.advice()),
            (false, false) => format!("`{written}`: {why}; {takes}"),
        }
    }

    /// Returns how a sum of a text and a number is written.
    fn advice(&self) -> &'static str {
        let has = |kind: &Type| {
            self.takes.iter().any(|(_, of)| match of {
                Type::OneOf(all) => all.contains(kind),
                one => one == kind,
            })
        };
        match has(&Type::Text) && has(&Type::Number) {
            true => "; `| int` makes a number of a text, and `~` joins texts",
            false => "",
        }
    }
}

/// Returns the beginning of an expression, in one line.
fn short(written: &str) -> String {
    let line = written.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXPRESSION_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
