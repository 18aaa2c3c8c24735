//! `explain`: prints what a diagnostic, a failure or an exit code means and what to do.
//!
//! The texts are those of the documentation page `docs/codes.md`.

use super::{args, complain, say};
use crate::config::suggest;
use crate::exit::Exit;

/// The page, with a section of the third level for each code.
const PAGE: &str = include_str!("../../docs/codes.md");

pub(super) fn run(verb: &args::ExplainCode) -> Exit {
    let Some(code) = &verb.code else {
        let codes: Vec<_> = sections().map(|(code, _)| format!("{code}\n")).collect();
        return say(&codes.concat());
    };
    // As `check` prints it: error[unknown_key].
    let code = code.trim_start_matches("error").trim_start_matches("warning");
    let code = code.trim_matches(['[', ']', '`', ':']);
    match sections().find(|(name, _)| *name == code) {
        Some((name, text)) => say(&format!("{name}\n\n{}\n", plain(text))),
        None => {
            complain(&format!("error: there is no code `{code}`"));
            let help = suggest(code, sections().map(|(name, _)| name));
            complain(&format!("help: {help}"));
            Exit::Failed
        }
    }
}

/// Returns each code with the text of its section.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.split("\n### ").skip(1).filter_map(|section| {
        let (title, text) = section.split_once('\n')?;
        let text = text.split("\n## ").next().unwrap_or_default();
        Some((title.trim().trim_matches('`'), text.trim()))
    })
}

/// Returns Markdown as text for a terminal: the fences of code blocks become an indentation.
fn plain(markdown: &str) -> String {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in markdown.lines() {
        match line.starts_with("```") {
            true => is_code = !is_code,
            false if is_code => lines.push(format!("    {line}").trim_end().to_owned()),
            false => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn every_code_is_explained_once() {
        let codes: Vec<_> = sections().map(|(code, _)| code).collect();
        let set: BTreeSet<_> = codes.iter().copied().collect();
        assert_eq!(set.len(), codes.len(), "a code has two sections");
        for (code, text) in sections() {
            assert!(text.len() > 60, "{code}: {text}");
        }
        let mut wanted: BTreeSet<_> = crate::config::diagnostic_codes().into_iter().collect();
        wanted.extend(FailureKind::ALL.iter().map(|kind| kind.as_str()));
        let exits = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "70", "74", "75", "130", "143"];
        wanted.extend(exits);
        let missing: Vec<_> = wanted.difference(&set).collect();
        assert!(missing.is_empty(), "not explained: {missing:?}");
    }
}
