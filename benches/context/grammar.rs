//! English sentences from rules with alternatives, so that two sentences of one kind seldom agree.

use fastrand::Rng;

/// Values of places in a sentence, such as `{path}`; a rule stands for any other place.
pub(crate) type Places<'a> = &'a dyn Fn(&mut Rng, &str) -> Option<String>;

/// Returns a sentence or a text of this rule.
pub(crate) fn say(rng: &mut Rng, rule: &str, places: Places<'_>) -> String {
    let rules = [super::sentences::RULES, super::desk_sentences::RULES].concat();
    let text = expand(rng, &format!("{{{rule}}}"), &rules, places);
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    // A name at the beginning keeps its letters.
    if text.starts_with(|c: char| c.is_lowercase()) && !text.split(' ').next().is_some_and(is_name)
    {
        return first + chars.as_str();
    }
    text
}

fn is_name(word: &str) -> bool {
    word.contains(['_', '/', '.', '`', '='])
}

/// Chooses one of these.
pub(crate) fn pick<'a, T: ?Sized>(rng: &mut Rng, all: &[&'a T]) -> &'a T {
    all[rng.usize(..all.len())]
}

/// Returns true in so many of a hundred cases.
pub(crate) fn chance(rng: &mut Rng, percent: u8) -> bool {
    rng.u8(..100) < percent
}

/// Returns a size around a median: most are near it, a few are several times as large.
pub(crate) fn size(rng: &mut Rng, median: f64, most: f64) -> usize {
    let spread: f64 = (0..6).map(|_| rng.f64() - 0.5).sum();
    (median * (spread * 1.2).exp()).clamp(1.0, most) as usize
}

/// Replaces `{rule}` and `{place}` by their texts and `<one|other>` by one of its parts.
fn expand(rng: &mut Rng, text: &str, rules: &[(&str, &[&str])], places: Places<'_>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '<']) {
        out.push_str(&rest[..at]);
        let (inner, left) = enclosed(&rest[at..]);
        rest = left;
        if text.as_bytes().get(text.len() - left.len() - 1) == Some(&b'}') {
            match places(rng, inner) {
                Some(value) => out.push_str(&value),
                None => {
                    let rule = rules.iter().find(|(name, _)| *name == inner);
                    let (_, options) = rule.unwrap_or_else(|| panic!("no rule `{inner}`"));
                    let option = pick(rng, options);
                    out.push_str(&expand(rng, option, rules, places));
                }
            }
        } else {
            let options = options(inner);
            let option = pick(rng, &options);
            out.push_str(&expand(rng, option, rules, places));
        }
    }
    out + rest
}

/// Splits a text that begins with a bracket into what stands within the bracket, and the rest.
fn enclosed(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        depth += i32::from("{<".contains(c)) - i32::from("}>".contains(c));
        if depth == 0 {
            return (&text[1..at], &text[at + 1..]);
        }
    }
    panic!("a bracket is open in `{text}`");
}

/// Splits alternatives, but not those of an inner bracket.
fn options(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut all) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        depth += i32::from("{<".contains(c)) - i32::from("}>".contains(c));
        if c == '|' && depth == 0 {
            all.push(&text[from..at]);
            from = at + 1;
        }
    }
    all.push(&text[from..]);
    all
}
