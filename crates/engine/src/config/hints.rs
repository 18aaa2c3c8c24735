//! What a mistake was probably meant to be: the words of help for values, for texts that are not TOML, and for
//! templates.
//!
//! Pure. Each function looks at one mistake that others found.

use super::names;
use crate::template::{self, TemplateError};

/// A message and a piece of advice in place of those of a parser.
type Advice = (String, String);

/// Returns the duration that a text means which is none: `5 minutes` is `5m`.
pub(super) fn duration(text: &str) -> Option<String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = match unit.trim().to_lowercase().as_str() {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => "ms",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// Returns the integer that a text means: `"20"` is `20`, `"200k"` is `200_000`.
pub(super) fn whole(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let (number, zeros) = match text.chars().last()? {
        'k' => (&text[..text.len() - 1], "_000"),
        'm' => (&text[..text.len() - 1], "_000_000"),
        _ => (text.as_str(), ""),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let plain = number.replace('_', "");
    (is_number(&plain) && plain.len() < 18).then(|| format!("{number}{zeros}"))
}

/// Returns a name as this format writes names: `allowedTools` is `allowed_tools`.
pub(super) fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out.replace('-', "_")
}

/// Returns what is wrong with a text that is not TOML, from the byte at which the parser stopped.
pub(super) fn not_toml(text: &str, at: usize) -> Option<Advice> {
    let advice = |message: &str, help: &str| Some((message.to_owned(), help.to_owned()));
    let before = text.get(..at)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let rest = &text[at..start + line.len().max(at - start)];
    if text.trim_start().starts_with('{') {
        return advice(
            "this is JSON, and the file is TOML",
            "write `version = 1` first, and tables like `[tasks.build]`",
        );
    }
    if line.trim_start().starts_with("[[tasks") || line.trim_start().starts_with("[[agents") {
        let table = if line.contains("[[tasks") { "tasks" } else { "agents" };
        let help = format!("they are written as `[{table}.NAME]`, each with a name of its own");
        return Some((format!("`{table}` is no array"), help));
    }
    let curly = |c: char| "\u{201c}\u{201d}\u{2018}\u{2019}".contains(c);
    if rest.trim_start().starts_with(curly) {
        return advice("curly quotes", "write straight ones: `\"` or `'`");
    }
    let control = rest.chars().next().filter(|c| c.is_control() && !"\t\r\n".contains(*c));
    if let Some(control) = control {
        let message = format!("a control character, U+{:04X}", u32::from(control));
        return Some((message, "remove it, or write it as an escape like `\\u0001`".to_owned()));
    }
    let is_yaml = |line: &str| {
        let line = line.trim_start();
        let key = line.split_once(':').map(|(key, rest)| (key.trim(), rest));
        let is_word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        let is_key = key.is_some_and(|(key, rest)| {
            !key.is_empty()
                && key.chars().all(is_word)
                && (rest.is_empty() || rest.starts_with(' '))
        });
        line.starts_with("---") || line.starts_with("- ") || is_key
    };
    if is_yaml(line) {
        return advice(
            "this is YAML, and the file is TOML",
            "write `key = value`, and tables like `[tasks.build]`",
        );
    }
    None
}

/// Returns what is wrong with an expression that cannot be parsed; `key` is where it stands.
pub(super) fn expression(key: &str, text: &str, error: &TemplateError) -> Option<Advice> {
    let trimmed = text.trim();
    let inner = trimmed.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    if let Some(inner) = inner.or_else(|| trimmed.contains("{{").then_some("")) {
        let help = match inner.trim() {
            "" => "write the names alone, like `inputs.deep`".to_owned(),
            inner => format!("write `{inner}`"),
        };
        return Some((format!("`{key}` is an expression: leave out the braces"), help));
    }
    let bare = without_texts(text);
    for (sign, word) in [("&&", "and"), ("||", "or")] {
        if bare.contains(sign) {
            return Some((format!("`{sign}` is no operator"), format!("write `{word}`")));
        }
    }
    let single = bare.char_indices().any(|(at, c)| {
        let near = |c: Option<char>| c.is_some_and(|c| "=<>!".contains(c));
        c == '=' && !near(bare[..at].chars().next_back()) && !near(bare[at + 1..].chars().next())
    });
    if single && !bare.contains('(') {
        return Some(("`=` compares nothing".to_owned(), "comparison is written `==`".to_owned()));
    }
    if bare.contains('!') && !bare.contains("!=") {
        return Some(("`!` is no operator".to_owned(), "write `not`".to_owned()));
    }
    filter(error)
}

/// Returns what is wrong with a template that cannot be parsed.
pub(super) fn template(error: &TemplateError) -> Option<Advice> {
    for (ends, opens, closes) in
        [("expected end of variable block", "{{", "}}"), ("expected end of block", "{%", "%}")]
    {
        if error.message.contains(ends) {
            let message = format!("not a valid template: {}", error.message);
            return Some((message, format!("close `{opens}` with `{closes}`")));
        }
    }
    filter(error)
}

/// Returns the advice for a filter or a test that does not exist.
fn filter(error: &TemplateError) -> Option<Advice> {
    let (kind, name) = error.message.strip_prefix("there is no ")?.split_once(" `")?;
    let name = name.strip_suffix('`')?;
    let near = match kind {
        "filter" => names::nearest(name, template::filters()),
        "test" => names::nearest(name, template::tests()),
        _ => None,
    }?;
    Some((format!("not a valid template: {}", error.message), format!("did you mean `{near}`?")))
}

/// Returns an expression with spaces in place of its texts.
fn without_texts(text: &str) -> String {
    let mut quote = None;
    let blank = |c: char| match quote {
        Some(open) => {
            if c == open {
                quote = None;
            }
            ' '
        }
        None if c == '"' || c == '\'' => {
            quote = Some(c);
            ' '
        }
        None => c,
    };
    text.chars().map(blank).collect()
}

#[cfg(test)]
mod tests;
