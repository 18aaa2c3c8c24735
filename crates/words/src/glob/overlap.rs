//! Whether two path patterns may match one path.
//!
//! Pure, and careful: what it cannot decide counts as an overlap. A pattern whose last name is plain may be a folder:
//! it stands for all that lies below too. One with a dot in it, like `a.rs` or `conf.d`, is one only for a pattern that
//! names it by a name of its own: `**/*.md` does not lie below it.

/// The most alternatives that the braces of a pattern may stand for. One with more may match anything.
const MOST_ALTERNATIVES: usize = 256;

/// A part of a path between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `**`: any number of names.
    Names,
    /// One name.
    Name(Vec<Sign>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// `*`: any number of characters.
    Many,
    /// `?`, or a class of characters.
    One,
    /// This character.
    Is(char),
}

/// A pattern of paths, read once to be compared with many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    /// Its alternatives; `None` if there are too many.
    alternatives: Option<Vec<Vec<Part>>>,
}

impl PathPattern {
    /// Reads a pattern. Any text is one.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let read = |texts: Vec<String>| texts.iter().map(|text| parts(text)).collect();
        Self { alternatives: alternatives(text).map(read) }
    }

    /// Returns true if a path may match both patterns.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (&self.alternatives, &other.alternatives) else {
            return true;
        };
        one.iter().any(|one| other.iter().any(|other| paths_meet(one, other)))
    }
}

/// Returns the patterns without braces for which a pattern stands; `None` if there are too many.
fn alternatives(text: &str) -> Option<Vec<String>> {
    let (mut open, mut done) = (vec![text.to_owned()], Vec::new());
    while let Some(text) = open.pop() {
        let Some((before, choices, after)) = first_braces(&text) else {
            done.push(text);
            continue;
        };
        open.extend(choices.iter().map(|choice| format!("{before}{choice}{after}")));
        if open.len() + done.len() > MOST_ALTERNATIVES {
            return None;
        }
    }
    Some(done)
}

/// Splits a pattern at its first pair of braces.
fn first_braces(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    let mut is_escaped = false;
    let plain = text.char_indices().filter(|(_, sign)| {
        let is_plain = !is_escaped;
        is_escaped = is_plain && *sign == '\\';
        is_plain && *sign != '\\'
    });
    let plain: Vec<(usize, char)> = plain.collect();
    let begin = plain.iter().find(|(_, sign)| *sign == '{')?.0;
    let (mut level, mut from, mut choices) = (0_usize, begin + 1, Vec::new());
    for (at, sign) in plain.into_iter().skip_while(|(at, _)| *at < begin) {
        match sign {
            '{' => level += 1,
            '}' if level == 1 => {
                choices.push(text.get(from..at)?);
                return Some((text.get(..begin)?, choices, text.get(at + 1..)?));
            }
            '}' => level -= 1,
            ',' if level == 1 => {
                choices.push(text.get(from..at)?);
                from = at + 1;
            }
            _ => {}
        }
    }
    None
}

fn parts(text: &str) -> Vec<Part> {
    let names = text.split('/').filter(|name| !name.is_empty() && *name != ".");
    let last = names.clone().next_back();
    let parts = names.map(|name| if name == "**" { Part::Names } else { Part::Name(signs(name)) });
    let is_folder =
        text.ends_with('/') || last.is_none_or(|last| !last.contains(['.', '*', '?', '[']));
    parts.chain(is_folder.then_some(Part::Names)).collect()
}

fn signs(name: &str) -> Vec<Sign> {
    let mut signs = Vec::new();
    let mut rest = name.chars();
    while let Some(sign) = rest.next() {
        signs.push(match sign {
            '*' => Sign::Many,
            '?' => Sign::One,
            '[' => {
                let mut class = rest.clone();
                // A bracket that stands first is one of the class.
                let _first = class.next();
                match class.any(|sign| sign == ']') {
                    true => rest = class,
                    false => rest = "".chars(),
                }
                Sign::One
            }
            '\\' => Sign::Is(rest.next().unwrap_or('\\')),
            sign => Sign::Is(sign),
        });
    }
    signs
}

/// Returns true if some sequence fits two patterns. `wide` says which items stand for any number of them.
fn meet<T>(
    one: &[T],
    other: &[T],
    wide: impl Fn(&T) -> bool,
    fits: impl Fn(&T, &T) -> bool,
) -> bool {
    // Whether the first `at` items of `one` can meet what was taken of `other`.
    let mut row: Vec<bool> = vec![false; one.len() + 1];
    row[0] = true;
    for at in 0..one.len() {
        row[at + 1] = row[at] && wide(&one[at]);
    }
    for of_other in other {
        let mut next = vec![row[0] && wide(of_other)];
        for (at, of_one) in one.iter().enumerate() {
            let stays = (wide(of_other) && row[at + 1]) || (wide(of_one) && next[at]);
            let takes = match (wide(of_one), wide(of_other)) {
                (true, true) => row[at] || row[at + 1] || next[at],
                (true, false) => row[at + 1],
                (false, true) => next[at],
                (false, false) => row[at] && fits(of_one, of_other),
            };
            next.push(stays || takes);
        }
        row = next;
    }
    row[one.len()]
}

/// Returns true if a path may match both, or if one may lie below the other.
fn paths_meet(one: &[Part], other: &[Part]) -> bool {
    parts_meet(one, other) || lies_below(one, other) || lies_below(other, one)
}

/// Returns true if a pattern names, by a name for each, the last name of another one and more below it.
fn lies_below(one: &[Part], top: &[Part]) -> bool {
    let meets = |pair: (&Part, &Part)| match pair {
        (Part::Name(one), Part::Name(top)) => names_meet(one, top),
        (Part::Names, _) | (_, Part::Names) => false,
    };
    one.len() > top.len() && one.iter().zip(top).all(meets)
}

fn parts_meet(one: &[Part], other: &[Part]) -> bool {
    // Most pairs of patterns differ in their first plain names.
    for pair in one.iter().zip(other) {
        match pair {
            (Part::Name(one), Part::Name(other)) if names_meet(one, other) => {}
            (Part::Name(_), Part::Name(_)) => return false,
            (Part::Names, _) | (_, Part::Names) => break,
        }
    }
    let fits = |one: &Part, other: &Part| match (one, other) {
        (Part::Name(one), Part::Name(other)) => names_meet(one, other),
        (Part::Names, _) | (_, Part::Names) => true,
    };
    meet(one, other, |part| *part == Part::Names, fits)
}

fn names_meet(one: &[Sign], other: &[Sign]) -> bool {
    let fits = |one: &Sign, other: &Sign| match (one, other) {
        (Sign::Is(one), Sign::Is(other)) => one == other,
        _ => true,
    };
    // Most names have no sign but characters, and differ soon.
    let is_plain = |sign: &Sign| matches!(sign, Sign::Is(_));
    let pairs = one.iter().zip(other).take_while(|(one, other)| is_plain(one) && is_plain(other));
    let plain = pairs.clone().count();
    if !pairs.clone().all(|(one, other)| one == other) {
        return false;
    }
    let (one, other) = (&one[plain..], &other[plain..]);
    if one.is_empty() && other.is_empty() {
        return true;
    }
    meet(one, other, |sign| *sign == Sign::Many, fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glob::{Wildcards, compile};

    fn overlap(one: &str, other: &str) -> bool {
        PathPattern::read(one).overlaps(&PathPattern::read(other))
    }

    #[test]
    fn patterns_overlap_where_a_path_may_match_both() {
        for (one, other, expected) in [
            ("src/a.rs", "src/a.rs", true),
            ("src/a.rs", "./src//a.rs", true),
            ("src/a.rs", "src/b.rs", false),
            ("src", "src/api/a.rs", true),
            ("src/", "srca", false),
            ("src/**", "src/api/**", true),
            ("src/**", "docs/**", false),
            ("**", "docs", true),
            ("**/*.rs", "src/a.py", false),
            ("**/*.rs", "src/a.rs", true),
            ("**/*.rs", "src", true),
            // Folders, by whatever name.
            (".", "src/a.rs", true),
            ("./.", "src", true),
            ("src/.", "src/a.rs", true),
            (".github", ".github/workflows/ci.yml", true),
            ("src/v1.2", "src/v1.2/a", true),
            ("src/v1.2", "src/*/a", true),
            ("src/v1.2/", "src/**/a", true),
            ("src/v1.2", "src/v1.3/a", false),
            ("src/a.rs", "docs/**", false),
            // A brace that is escaped is one of the name.
            ("src/\\{a\\}.rs", "src/?a?.rs", true),
            ("src/\\{a,b\\}", "src/a", false),
            ("src/*.rs", "src/*.py", false),
            ("src/a*", "src/*b", true),
            ("src/a*c", "src/ab", false),
            ("src/?", "src/ab", false),
            ("src/[ab]", "src/c", true),
            ("src/[]a]x", "src/bx", true),
            ("{src,docs}/a", "docs/a", true),
            ("{src,docs}/a", "tests/a", false),
            ("{src,docs/{en,de}}/a", "docs/de/a", true),
            ("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "zzz", true),
            ("*/x/*", "a/**/b", true),
            ("a/*/c", "a/b/d", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
            assert_eq!(overlap(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_path_that_matches_both_is_an_overlap() {
        let pieces = ["a", "b", "ab", "*", "?", "**", "a*", "*b", "{a,b}", "[ab]"];
        let pairs = pieces.iter().flat_map(|a| pieces.iter().map(move |b| format!("{a}/{b}")));
        let patterns = pieces.iter().map(|piece| (*piece).to_owned()).chain(pairs);
        let compiled = |text: String| {
            let glob = compile(&text, Wildcards::WithinName).expect("a glob");
            (text, glob)
        };
        let patterns: Vec<_> = patterns.map(compiled).collect();
        let names = ["a", "b", "ab", "bb"];
        let two = names.iter().flat_map(|a| names.iter().map(move |b| format!("{a}/{b}")));
        let paths: Vec<_> = names.iter().map(|name| (*name).to_owned()).chain(two).collect();
        let (mut met, mut apart) = (0, 0);
        for (one, of_one) in &patterns {
            for (other, of_other) in &patterns {
                let both = |path: &&String| of_one.is_match(path) && of_other.is_match(path);
                match (paths.iter().find(both), overlap(one, other)) {
                    (Some(path), false) => panic!("`{path}` matches `{one}` and `{other}`"),
                    (Some(_), true) => met += 1,
                    (None, false) => apart += 1,
                    (None, true) => {}
                }
            }
        }
        assert!(met > 200 && apart > 200, "{met} {apart}");
    }
}
