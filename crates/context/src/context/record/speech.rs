//! What people and the agent say: sentences that bind, decisions, questions.
//!
//! Pure. Sentences are chosen by common English words for obligation, decision, finding and plan;
//! where a text has none of them, its request still stands as the active one, and its names do in
//! the record.

use std::sync::LazyLock;

use regex::Regex;

/// Lengths in characters of a sentence that can bind: shorter ones have no subject, longer ones are
/// pasted text.
const BINDING_CHARS: std::ops::RangeInclusive<usize> = 12..=400;
/// Lengths in characters of a sentence that can decide.
const DECIDING_CHARS: std::ops::RangeInclusive<usize> = 20..=400;
/// Most characters of a sentence of the agent that stay.
const SAID_CHARS: usize = 160;

/// Words by which a sentence obliges, forbids, limits or excepts.
static BINDS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(must|never|always|do not|don't|dont|only|without|forbidden|required?|requires|may not|should not|shouldn't|shall|rules?|cannot|can't|mustn't|except|unless|at most|at least|no more than|instead of|rather than|prefer|avoid|ensure|make sure|keep|leave)\b",
    )
});
/// Words by which the agent decides, finds out or plans.
static DECIDES: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(decid\w*|chose|choose|because|cause[ds]?|found|finding|turns out|confirm\w*|verif\w*|instead|therefore|thus|so that|must|plan|fix(ed|es)|works?|worked|fails?|failed|passe[sd]|root cause|bug|issue is|problem|wrong|done|complete[ds]?|remain(s|ing)|todo|left to do)\b",
    )
});
static FENCE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)```.*?(```|\z)"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this file is valid")
}

/// Returns the sentences of a person's text that bind, word for word.
#[must_use]
pub fn binding(text: &str) -> Vec<String> {
    let text = FENCE.replace_all(text, "\n");
    let binds = |sentence: &&str| {
        BINDING_CHARS.contains(&sentence.chars().count())
            && sentence.contains(' ')
            && !sentence.starts_with(['>', '<'])
            && BINDS.is_match(sentence)
    };
    sentences(&text).filter(binds).map(str::to_owned).collect()
}

/// Returns the sentences in which the agent decides, finds out or plans, shortened.
#[must_use]
pub fn deciding(text: &str) -> Vec<String> {
    let text = FENCE.replace_all(text, "\n");
    let decides = |sentence: &&str| {
        DECIDING_CHARS.contains(&sentence.chars().count())
            && sentence.contains(' ')
            && DECIDES.is_match(sentence)
    };
    sentences(&text).filter(decides).map(|sentence| shortened(sentence, SAID_CHARS)).collect()
}

/// Returns the last question of a text.
#[must_use]
pub fn question(text: &str) -> Option<String> {
    let text = FENCE.replace_all(text, "\n");
    let is_question = |sentence: &&str| sentence.ends_with(['?', '？']) && sentence.contains(' ');
    sentences(&text).filter(is_question).last().map(|sentence| shortened(sentence, SAID_CHARS))
}

/// Returns the sentences and lines of a text: a sentence ends at a full stop, an exclamation mark or
/// a question mark with a space behind it, a line at its end.
pub fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mut ends = rest.char_indices().zip(rest.chars().skip(1));
            let is_end = |c: char, next: char| {
                (".!?".contains(c) && next.is_whitespace()) || "。！？".contains(c)
            };
            let end = ends.find(|((_, c), next)| is_end(*c, *next));
            let (sentence, left) =
                rest.split_at(end.map_or(rest.len(), |((at, c), _)| at + c.len_utf8()));
            rest = left;
            Some(sentence.trim())
        })
    });
    lines.filter(|sentence| !sentence.is_empty())
}

/// Returns the beginning of a text as one line.
#[must_use]
pub fn shortened(text: &str, most_chars: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > most_chars {
            break;
        }
    }
    match line.char_indices().nth(most_chars) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_say_is_kept_if_it_binds() {
        let text = "Fix the parser. You must not touch lib/! It is late.\n- Never push to main.\n\
                    ```\nnever code\n```\n> must be quoted\nUse at most 3 crates。永远不要";
        let expected =
            ["You must not touch lib/!", "- Never push to main.", "Use at most 3 crates。"];
        assert_eq!(binding(text), expected);
    }

    #[test]
    fn decisions_and_questions_are_told_from_talk() {
        let text =
            "Let me look at it. The bug is in parse_all.\n```\nmust not\n```\nShall I push it?";
        assert_eq!(deciding(text), ["The bug is in parse_all."]);
        assert_eq!(question(text).as_deref(), Some("Shall I push it?"));
        assert_eq!(question("Done."), None);
        let long = format!("It fails {}", "word ".repeat(60));
        assert!(deciding(&long)[0].ends_with("..."));
    }
}
