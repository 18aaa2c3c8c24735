//! "Did you mean": the nearest of the names that would have been right.

/// The nearest of `known` to `written`, if one is near enough to be a slip of the hand.
pub(super) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A third of the letters: two in a word of six or seven, one in a short word.
    let most = (written.chars().count() / 3).max(1);
    let distance = |name: &&'a str| {
        let lower = written.to_ascii_lowercase().replace('-', "_");
        strsim::damerau_levenshtein(&lower, &name.to_ascii_lowercase().replace('-', "_"))
    };
    let ranked = known.into_iter().map(|name| (distance(&name), name));
    ranked.filter(|(d, _)| *d <= most).min_by_key(|(d, _)| *d).map(|(_, name)| name)
}

/// A suggestion for a wrong name: the nearest right one, or what there is.
pub(super) fn suggest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(written, known.iter().copied()) {
        Some(name) => Some(format!("did you mean `{name}`?")),
        None if known.is_empty() => None,
        None => Some(format!("there is {}", list(&known))),
    }
}

/// `a`, `b` and `c`, each in backticks.
pub(super) fn list(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [one] => format!("`{one}`"),
        [many @ .., last] => format!("`{}` and `{last}`", many.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["prompt", "depends_on", "agent", "run"];
        assert_eq!(nearest("promt", known), Some("prompt"));
        assert_eq!(nearest("depend_on", known), Some("depends_on"));
        assert_eq!(nearest("depends-on", known), Some("depends_on"));
        assert_eq!(nearest("rnu", known), Some("run"));
        assert_eq!(nearest("schedule", known), None);
        assert_eq!(suggest("schedule", ["a", "b"]).as_deref(), Some("there is `a` and `b`"));
        assert_eq!(suggest("x", []), None);
    }
}
