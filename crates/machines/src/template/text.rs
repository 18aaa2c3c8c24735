//! The text of a value in a template: strings as they are, all other values as JSON.
//!
//! MiniJinja writes `True` and `None`, which no shell, program or model expects beside JSON. A value
//! that is none has no text: it is most often a part of an output that is missing.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, Value as Cell, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::meter;

/// Returns the text of a value.
///
/// # Errors
/// Returns an error if the value is none, or undefined.
pub(super) fn of(value: &Cell) -> Result<Cow<'_, str>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Cow::Borrowed(text));
    }
    match value.kind() {
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::None => {
            let message = "the value is none, which has no text: `| default('...')` gives it one";
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
        ValueKind::Bool | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            let text = serde_json::to_string(value);
            let bad = |e: serde_json::Error| Error::new(ErrorKind::BadSerialization, e.to_string());
            text.map(Cow::Owned).map_err(bad)
        }
        _ => Ok(Cow::Owned(value.to_string())),
    }
}

/// `value | string`: the text of a value.
pub(super) fn string(value: Cell) -> Result<String, Error> {
    of(&value).map(Cow::into_owned)
}

/// `a ~ b`: the texts of two values.
pub(super) fn concat(left: Cell, right: Cell) -> Result<String, Error> {
    Ok(of(&left)?.into_owned() + &*of(&right)?)
}

/// `value | default(other)`: `other` if the value is undefined or none; with `true` after it, also if
/// the value is empty, zero or false.
pub(super) fn default(value: Cell, rest: Rest<Cell>) -> Result<Cell, Error> {
    let (other, also_empty) = match rest.as_slice() {
        [] => (Cell::from(""), false),
        [other] => (other.clone(), false),
        [other, also_empty] => (other.clone(), also_empty.is_true()),
        _ => return Err(Error::from(ErrorKind::TooManyArguments)),
    };
    let is_missing = value.is_undefined() || value.is_none();
    Ok(if is_missing || (also_empty && !value.is_true()) { other } else { value })
}

/// `list | join(between, attribute)`: the texts of the items, or of an attribute of each.
pub(super) fn join(
    state: &mut State<'_, '_>,
    list: Cell,
    between: Option<String>,
    attribute: Option<Cell>,
    named: Kwargs,
) -> Result<String, Error> {
    let between = between.or(named.get("d")?).unwrap_or_default();
    let attribute = attribute.or(named.get("attribute")?);
    named.assert_all_used()?;
    let list = match attribute {
        Some(attribute) => {
            let named = Kwargs::from_iter([("attribute", attribute)]);
            state.apply_filter("map", &[list, Cell::from(named)])?
        }
        None => state.apply_filter("list", &[list])?,
    };
    let mut text = String::new();
    for (at, item) in list.try_iter()?.enumerate() {
        if at > 0 {
            text.push_str(&between);
        }
        text.push_str(&of(&item)?);
        meter::fits(text.len())?;
    }
    Ok(text)
}
