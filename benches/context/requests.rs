//! What people write to an agent that works on a project.

use super::coder::Coder;
use super::grammar::{chance, pick};
use super::hands::Hands;
use super::outputs;

/// Makes the system prompt.
pub(crate) fn system(coder: &mut Coder, hands: Hands) -> String {
    let tools = match hands {
        Hands::Shell => "You have one tool, `bash`; each call runs in a new shell.",
        Hands::Tools => {
            "Use Read, Edit, Write, Grep, Glob, Bash and TodoWrite; independent calls go together."
        }
    };
    let who = pick(
        &mut coder.rng,
        &["an engineer", "a coding agent", "a careful developer", "an assistant for software"],
    );
    format!(
        "You are {who} in the repository at {}. {tools} Report in a few sentences when you are done.",
        coder.project.root
    )
}

/// Adds a request: a text of paragraphs, lists and quotations, or one line.
pub(crate) fn ask(coder: &mut Coder, number: usize, is_small: bool) {
    if is_small {
        let rule = if chance(&mut coder.rng, 45) { "mind" } else { "small" };
        let mut text = coder.sentence(rule);
        if chance(&mut coder.rng, 20) {
            text = format!("{text} {}", coder.sentence("rule"));
        }
        return coder.talk.ask(&text);
    }
    let next = if number > 0 { coder.sentence("next") } else { String::new() };
    let mut text = format!("{next}{}", coder.sentence("symptom"));
    let sentences = coder.rng.usize(1..6);
    let ruled = if chance(&mut coder.rng, 60) { coder.rng.usize(..sentences) } else { sentences };
    for at in 0..sentences {
        let rule = if at == ruled {
            "rule"
        } else {
            pick(&mut coder.rng, &["aside", "symptom", "wish", "aside"])
        };
        let sentence = coder.sentence(rule);
        let end = if sentence.ends_with(['.', '?']) { "" } else { "." };
        let gap = if chance(&mut coder.rng, 15) { "\n\n" } else { " " };
        text.push_str(&format!("{gap}{sentence}{end}"));
    }
    if chance(&mut coder.rng, 30) {
        text.push_str(&fence(coder));
    }
    if chance(&mut coder.rng, 20) {
        let quoted = [coder.sentence("symptom"), coder.sentence("rule")];
        text.push_str(&format!("\n\nThey wrote:\n> {}\n> {}", quoted[0], quoted[1]));
    }
    if chance(&mut coder.rng, 45) {
        text.push_str(&list(coder));
    }
    let goal = coder.sentence("goal");
    text.push_str(&format!("\n\n{goal}."));
    coder.talk.ask(&text);
}

fn list(coder: &mut Coder) -> String {
    let head = pick(
        &mut coder.rng,
        &["A few things:", "What I care about:", "Notes", "Keep in mind:", "Before you start"],
    );
    let is_numbered = coder.rng.bool();
    let mut text = format!("\n\n{head}\n");
    for at in 1..=coder.rng.usize(2..6) {
        let rule = if chance(&mut coder.rng, 50) { "rule" } else { "wish" };
        let sentence = coder.sentence(rule);
        let mark = if is_numbered { format!("{at}.") } else { "-".to_owned() };
        text.push_str(&format!("{mark} {sentence}\n"));
    }
    text.truncate(text.trim_end().len());
    text
}

fn fence(coder: &mut Coder) -> String {
    let at = coder.rng.usize(..coder.project.files.len());
    let file = &coder.project.files[at];
    let lines = match coder.rng.bool() {
        true => outputs::traceback(&mut coder.rng, &coder.project, file),
        false => {
            let from = coder.rng.usize(..file.lines.len());
            file.lines[from..].iter().take(12).cloned().collect()
        }
    };
    format!("\n\n```\n{}\n```", lines.join("\n"))
}
