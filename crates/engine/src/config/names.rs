//! Suggestions for wrong names: "did you mean", with the nearest known name.

use super::diagnostic::{Code, Place, Problems};

/// Reports a name that does not exist; `code` is `unknown_` followed by the kind of thing.
pub(super) fn report_unknown<'a>(
    code: Code,
    written: &str,
    place: &Place,
    known: impl IntoIterator<Item = &'a str>,
    problems: &Problems,
) {
    if problems.is_full() {
        return;
    }
    let message = format!("there is no {} `{written}`", code.trim_start_matches("unknown_"));
    problems.error(code, place, message, suggest(written, known));
}

/// The longest name in bytes that is compared: comparing takes the product of the lengths.
const LONGEST: usize = 100;

/// The most names that one is compared with, and the most that are listed.
const MOST_KNOWN: usize = 1_000;
const MOST_LISTED: usize = 100;

/// Returns the name in `known` that is nearest to `written`, if it is near enough for a typing
/// error.
pub(super) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if written.len() > LONGEST {
        return None;
    }
    // A third of the letters may differ: two in a word of six or seven, one in a short word.
    let most = (written.chars().count() / 3).max(1);
    let distance = |name: &&'a str| {
        let lower = written.to_ascii_lowercase().replace('-', "_");
        strsim::damerau_levenshtein(&lower, &name.to_ascii_lowercase().replace('-', "_"))
    };
    let known = known.into_iter().filter(|name| name.len() <= LONGEST).take(MOST_KNOWN);
    let ranked = known.map(|name| (distance(&name), name));
    ranked.filter(|(d, _)| *d <= most).min_by_key(|(d, _)| *d).map(|(_, name)| name)
}

/// Returns the help for a wrong name: the nearest known name; empty if none is near.
pub fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, known).map(|name| format!("did you mean `{name}`?")).unwrap_or_default()
}

/// Returns the help for a wrong name: the nearest known name, or else all known names; empty if
/// there are none.
pub fn suggest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = did_you_mean(written, known.iter().copied());
    if !near.is_empty() || known.is_empty() { near } else { format!("there is {}", list(&known)) }
}

/// Writes names as a list: `a`, `b` and `c`, each in backticks.
pub(super) fn list(names: &[&str]) -> String {
    match names {
        [first @ .., _] if first.len() > MOST_LISTED => {
            let (shown, rest) = names.split_at(MOST_LISTED);
            format!("`{}` and {} more", shown.join("`, `"), rest.len())
        }
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
        assert_eq!(suggest("schedule", ["a", "b"]), "there is `a` and `b`");
        assert_eq!(suggest("x", []), "");
    }
}
