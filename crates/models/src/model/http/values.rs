//! Reads parts of a reply whose form may be wrong, and checks that they can be kept.

use std::cell::Cell;
use std::fmt;

use crate::message::Json;
use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::value::RawValue;

use super::bounds::TOKENS;

/// The most arrays and objects within each other in a part of a reply that is kept: a record has some
/// more around it, and readers of JSON commonly stop at 128.
const DEPTH: usize = 100;

/// The most values in a part of a reply that is kept. As a tree, each takes up to 80 bytes, while its
/// text may have two.
const VALUES: usize = 100_000;

/// Reads a count of tokens: a fraction is cut, a count below zero is zero, one above [`TOKENS`] is that,
/// and anything but a number is no count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
#[expect(clippy::cast_precision_loss, reason = "the bound is far below 2^52")]
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let raw = Box::<RawValue>::deserialize(from)?;
    let number = raw.get().parse::<f64>().ok();
    Ok(number.map(|number| number.clamp(0.0, TOKENS as f64) as u64))
}

/// Reads a part of a reply whose form may be wrong; then it counts as absent.
pub(crate) fn lenient<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw = Box::<RawValue>::deserialize(from)?;
    Ok(tree(raw.get().as_bytes()))
}

/// Reads a JSON document; `None` if it has another form or cannot be kept.
pub(crate) fn tree<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    let json = std::str::from_utf8(json).ok().filter(|json| is_recordable(json))?;
    serde_json::from_str(json).ok()
}

/// Returns true if a text is JSON that readers of records can read: nested at most [`DEPTH`] deep, of at
/// most [`VALUES`] values, and with numbers of a common size.
pub(crate) fn is_recordable(text: &str) -> bool {
    let mut reader = serde_json::Deserializer::from_str(text);
    let skim = Skim { depth: DEPTH, left: &Cell::new(VALUES) };
    skim.deserialize(&mut reader).and_then(|()| reader.end()).is_ok()
}

/// Reads a value and keeps nothing of it.
struct Skim<'a> {
    /// The depth that the value may have.
    depth: usize,
    /// The number of values that may follow.
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Skim<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| D::Error::custom("too many values"))?);
        from.deserialize_any(self)
    }
}

impl Skim<'_> {
    fn inner<E: Error>(&self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("nested too deep"))?;
        Ok(Self { depth, ..*self })
    }
}

impl<'de> Visitor<'de> for Skim<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.inner()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(self.inner()?)?;
        }
        Ok(())
    }
}

/// Returns an object with the members of another one added at its end.
pub(crate) fn with_extra(object: &Json, extra: Option<&Json>) -> String {
    let own = object.as_str();
    let inner = extra.and_then(|extra| extra.as_str().strip_prefix('{')?.strip_suffix('}'));
    match (own.strip_suffix('}'), inner.filter(|inner| !inner.trim().is_empty())) {
        (Some(open), Some(inner)) => format!("{open},{inner}}}"),
        _ => own.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_form_are_clamped() {
        #[derive(Deserialize)]
        struct In {
            #[serde(default, deserialize_with = "count")]
            n: Option<u64>,
        }
        for (json, expected) in [
            ("{}", None),
            (r#"{"n":null}"#, None),
            (r#"{"n":"7"}"#, None),
            (r#"{"n":[7]}"#, None),
            (r#"{"n":7}"#, Some(7)),
            (r#"{"n":7.9}"#, Some(7)),
            (r#"{"n":-7}"#, Some(0)),
            (r#"{"n":18446744073709551615}"#, Some(TOKENS)),
            (r#"{"n":1e999999}"#, Some(TOKENS)),
            (r#"{"n":-1e999999}"#, Some(0)),
        ] {
            let read: In = serde_json::from_str(json).expect(json);
            assert_eq!(read.n, expected, "{json}");
        }
    }

    #[test]
    fn what_is_deep_or_has_many_values_is_not_kept() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(is_recordable(&list(VALUES - 1)) && is_recordable(&nested(DEPTH)));
        for bad in [&list(VALUES), &nested(DEPTH + 1), "[1e400]", "[", "[] []", ""] {
            assert!(!is_recordable(bad), "{}", bad.len());
        }
    }
}
