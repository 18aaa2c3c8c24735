//! The kinds of values, with everything that the checks and the documentation need to know of them.

use std::fmt;

use serde::de::{DeserializeOwned, Error, IntoDeserializer};

use super::{Built, Keys};
use crate::config::diagnostic::Code;

/// A kind of values. The two integers of a number are its bounds, both included; the text is its
/// unit.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) enum Kind {
    /// Any value.
    Any,
    /// A string: its description, and the codes of the diagnostics that can be given at it.
    Text(&'static str, &'static [Code]),
    /// The value of an HTTP header: a string, or a table that gives the source of the value. It may
    /// be a key, so diagnostics do not show it.
    Header(Keys),
    /// One of the strings of the first list. The second list has words that are planned but
    /// refused; a word that ends in `:` stands for all words that begin with it.
    Words(fn() -> &'static [&'static str], &'static [&'static str]),
    /// `true` or `false`.
    Truth,
    /// This integer. The check accepts any value; the code that reads the key reports others.
    Only(i64),
    Whole(i64, i64, &'static str),
    Number(i64, i64, &'static str),
    /// A duration; zero is allowed.
    Pause,
    /// A duration above zero.
    Time,
    /// A count per duration, as `5/10s`.
    Rate,
    /// A size in bytes as `8GiB`, of at least so many MiB.
    Size(u64),
    List(&'static Self),
    /// A table from names that the user chooses to values of one kind.
    Map(&'static Form, &'static Self),
    Table(Keys),
    /// A table that gives the source of a key, never the key itself.
    Key(Keys),
    /// A whole configuration that is merged over the file.
    Profile,
    /// A value of one of these kinds. The check accepts any value; the code that reads the key
    /// reports the others.
    Either(&'static [Self]),
}

impl Kind {
    /// Returns a value of this kind as the file would write it; `None` if there is no short one.
    pub(in crate::config) fn example(&self) -> Option<String> {
        Some(match self {
            Self::Any | Self::Profile => return None,
            Self::Text(what, _) => format!("\"{}\"", example_of(what)),
            Self::Header(_) => "\"value\"".to_owned(),
            Self::Words(words, _) => format!("\"{}\"", words().first()?),
            Self::Truth => "true".to_owned(),
            Self::Only(n) => n.to_string(),
            Self::Whole(low, high, _) => 10.clamp(*low, *high).to_string(),
            Self::Number(low, _, _) => format!("{low}.5"),
            Self::Pause | Self::Time => "\"30s\"".to_owned(),
            Self::Rate => "\"5/10s\"".to_owned(),
            Self::Size(_) => "\"8GiB\"".to_owned(),
            Self::List(inner) => format!("[{}]", inner.example()?),
            Self::Map(_, inner) => format!("{{ name = {} }}", inner.example()?),
            Self::Table(keys) | Self::Key(keys) => {
                let keys = keys.iter().copied().flatten().filter(|key| key.built == Built::Yes);
                let plain = keys.filter_map(|key| {
                    let plain = !matches!(key.kind, Self::Table(_) | Self::Map(..) | Self::Key(_));
                    let example = key.example().filter(|_| plain)?;
                    Some((key.kind, format!("{} = {example}", key.name)))
                });
                let mut plain = plain.take(2);
                let (kind, first) = plain.next()?;
                // A price has two sides.
                let is_price =
                    |kind: &Self| matches!(kind, Self::Number(_, _, "USD per million tokens"));
                match plain.next().filter(|(other, _)| is_price(&kind) && is_price(other)) {
                    Some((_, second)) => format!("{{ {first}, {second} }}"),
                    None => format!("{{ {first} }}"),
                }
            }
            Self::Either(kinds) => return kinds.first()?.example(),
        })
    }
}

/// Returns an example of a text with this description.
fn example_of(what: &str) -> &'static str {
    match what {
        "template" => "Read {{ inputs.path }}",
        "expression" => "inputs.deep",
        "path" => "docs/style.md",
        "path or glob" => "docs/*.md",
        "host:port" => "crates.io:443",
        "permission rule" => "bash(git status*)",
        "name of a tool" => "read_file",
        "name of a variable" => "ANTHROPIC_API_KEY",
        _ if what.starts_with("name") => "name",
        _ => "text",
    }
}

/// The form of the names in a [`Kind::Map`].
#[derive(Debug)]
pub(in crate::config) struct Form {
    pub(in crate::config) what: &'static str,
    pub(in crate::config) pattern: &'static str,
    /// The pattern in words.
    pub(in crate::config) rule: &'static str,
}

pub(in crate::config) const NAMES: Form = Form {
    what: "name",
    pattern: "^[a-z0-9_-]+$",
    rule: "use one or more of a-z, 0-9, `_` and `-`",
};
pub(in crate::config) const WORDS: Form = Form {
    what: "word",
    pattern: "^[A-Za-z_][A-Za-z0-9_-]*$",
    rule: "use letters, digits, `_` and `-`, and a letter or `_` first",
};
pub(in crate::config) const VARIABLES: Form = Form {
    what: "variable",
    pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
    rule: "use letters, digits and `_`, and a letter or `_` first",
};
pub(in crate::config) const HEADERS: Form = Form {
    what: "header",
    pattern: "^[A-Za-z0-9._-]+$",
    rule: "use letters, digits, `-`, `_` and `.`",
};

/// The description of a string that is shown in one line: it has no control characters.
pub(in crate::config) const LINE: &str = "line";

/// The largest count: it fits a `u32`, so sums of two are far from overflow.
const MOST: i64 = u32::MAX as i64;
/// The largest size: 2^40 keeps every sum far from overflow.
const LARGEST: i64 = 1 << 40;

/// Declares kinds as constants.
macro_rules! kinds {
    ($($name:ident = $kind:expr;)+) => {
        $(pub(in crate::config) const $name: Kind = $kind;)+
    };
}

kinds! {
    TEXT = Kind::Text("string", &[]);
    NAME_OF_PEOPLE = Kind::Text(LINE, &["bad_value"]);
    TEXTS = Kind::List(&TEXT);
    TEMPLATE = Kind::Text("template", &[
        "bad_template", "missing_dependency", "not_built", "undefined_name", "unknown_task",
    ]);
    INPUT_TEMPLATE = Kind::Text("template", &[
        "bad_template", "not_built", "undefined_name", "unknown_task",
    ]);
    EXPRESSION = Kind::Text("expression", &[
        "bad_template", "missing_dependency", "not_built", "undefined_name", "unknown_task",
    ]);
    FILE = Kind::Text("path", &["unreadable_file"]);
    FILES = Kind::List(&Kind::Text("path or glob", &["unreadable_file", "no_match", "bad_value"]));
    COMMAND = Kind::List(&Kind::Text("string", &["unreadable_file", "bad_value"]));
    KEY_FILE = Kind::Text("path", &["missing_key"]);
    VARIABLE = Kind::Text("name of a variable", &["missing_key"]);
    AGENT = Kind::Text("name of an agent", &["unknown_agent"]);
    MODEL = Kind::Text("name of a model", &["unknown_model"]);
    MODELS = Kind::List(&MODEL);
    PROVIDER = Kind::Text("name of a provider", &["unknown_provider"]);
    SECRET = Kind::Text("name of a secret", &["unknown_secret"]);
    TASKS = Kind::List(&Kind::Text("name of a task", &["unknown_task"]));
    PERMISSIONS = Kind::List(&Kind::Text(
        "permission rule",
        &["bad_rule", "loose_rule", "unmatched_rule"],
    ));
    COUNT = Kind::Whole(1, MOST, "");
    COUNT_OR_NONE = Kind::Whole(0, MOST, "");
    MINUTES = Kind::Whole(1, MOST, "minutes");
    TURNS = Kind::Whole(1, MOST, "turns");
    SOME_MESSAGES = Kind::Whole(1, MOST, "messages");
    MESSAGES = Kind::Whole(0, LARGEST, "messages");
    RESULTS = Kind::Whole(0, LARGEST, "results");
    TOKENS = Kind::Whole(1, LARGEST, "tokens");
    // Below it no request with a tool and a reply fits.
    WINDOW = Kind::Whole(256, LARGEST, "tokens");
    TOKENS_OR_NONE = Kind::Whole(0, LARGEST, "tokens");
    CHARS = Kind::Whole(1, LARGEST, "characters");
    CHARS_OR_NONE = Kind::Whole(0, LARGEST, "characters");
    PERCENT = Kind::Whole(1, 100, "%");
    PERCENT_OR_NONE = Kind::Whole(0, 100, "%");
    SHARE = Kind::Number(0, 1, "");
    PRICE = Kind::Number(0, 1_000_000_000, "USD per million tokens");
}

/// Returns the kind of an enum whose variants are words, as serde writes them.
pub(in crate::config) const fn words_of<T: DeserializeOwned>(
    later: &'static [&'static str],
) -> Kind {
    Kind::Words(variants::<T>, later)
}

/// Returns the names of an enum's variants. serde's derive passes them to the error for an unknown
/// variant, here for the empty word.
fn variants<T: DeserializeOwned>() -> &'static [&'static str] {
    #[derive(Debug)]
    struct Expected(&'static [&'static str]);

    impl Error for Expected {
        fn custom<D: fmt::Display>(_: D) -> Self {
            Self(&[])
        }

        fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
            Self(expected)
        }
    }

    impl std::error::Error for Expected {}

    impl fmt::Display for Expected {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:?}", self.0)
        }
    }

    T::deserialize(IntoDeserializer::<Expected>::into_deserializer("")).err().map_or(&[], |e| e.0)
}
