//! The text of a question to a person, and the meaning of the answers.
//!
//! Pure. The call may be hostile: all of it is shown, and nothing in it can hide another part, by
//! padding, by escapes, or by marks that turn the reading direction.

use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::id::AgentId;
use crate::message::Json;
use crate::permission::Rule;
use crate::person::{AskedCall, Question};
use crate::printable::{MARK, is_hidden};
use crate::tool::basis::Script;
use crate::turn::question::{ApprovalAsked, ApprovalKind};

/// The longest run of blanks that is shown as it is; longer ones are counted.
const BLANKS: usize = 8;

/// The most blank lines in a row that are shown as they are.
const BLANK_LINES: usize = 2;

/// Returns the answers that a person can give to a question, each with what it covers.
#[must_use]
pub fn choices(question: &Question) -> String {
    let tool = safe(&question.tool);
    let rule = match &question.rule {
        Some(rule) => format!(", r always what the rule `{}` is about", safe(rule)),
        None => String::new(),
    };
    format!(
        "y yes, n no (n REASON tells the agent why), a always exactly this{rule}, t every {tool} in this run, w why, \
         then enter; enter alone asks again"
    )
}

/// Returns the reason that stands behind a no, as in `n the tests first` or `no, because it is Sunday`.
#[must_use]
pub fn reason_of_no(line: &str) -> Option<String> {
    let (_, reason) = no_of(line)?;
    let reason = reason.trim_start_matches([',', ':', ';', '.', '-', ' ', '\t']).trim();
    let reason = match reason.strip_prefix("because") {
        Some(rest) if rest.is_empty() || rest.starts_with(' ') => rest.trim(),
        Some(_) | None => reason,
    };
    (!reason.is_empty()).then(|| reason.to_owned())
}

/// Parts the word for a no from what stands behind it.
fn no_of(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let end = line.find(|c: char| !c.is_alphanumeric()).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    // `n't` and `no_x` are no words for it.
    let ends = |c: char| c.is_whitespace() || ",:;.-".contains(c);
    (matches!(word, "n" | "N" | "no" | "No" | "NO") && (rest.is_empty() || rest.starts_with(ends)))
        .then_some((word, rest))
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes, this call.
    Yes,
    /// No.
    No,
    /// Yes, and this very call again in this run.
    Always,
    /// Yes, and every call that the rule fits in this run.
    Rule,
    /// Yes, and every call of this tool in this run.
    Tool,
    /// Says why it is asked.
    Why,
    /// Anything else: it is asked again.
    Unclear,
}

impl Answer {
    /// Reads what a person typed.
    #[must_use]
    pub fn read(line: &str) -> Self {
        match line.trim() {
            "y" | "Y" | "yes" => Self::Yes,
            line if no_of(line).is_some() => Self::No,
            "a" | "always" => Self::Always,
            "r" | "rule" => Self::Rule,
            "t" | "tool" => Self::Tool,
            "w" | "why" => Self::Why,
            _ => Self::Unclear,
        }
    }
}

/// The calls that a person has allowed for the rest of a run.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    tools: Vec<String>,
    rules: Vec<(String, Rule)>,
    calls: Vec<Call>,
}

/// A call that a person has allowed to be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    tool: String,
    /// The arguments as the model wrote them.
    input: String,
    /// Where its paths lead.
    texts: Vec<String>,
    /// The files that it runs: with another content it is another call.
    scripts: Vec<Script>,
}

impl Call {
    fn of(question: &Question) -> Self {
        let Question { tool, input, texts, scripts, .. } = question.clone();
        Self { tool, input: input.as_str().to_owned(), texts, scripts }
    }
}

impl Remembered {
    /// Remembers an answer.
    pub fn note(&mut self, question: &Question, answer: Answer) {
        match answer {
            Answer::Tool => self.tools.push(question.tool.clone()),
            Answer::Always => self.calls.push(Call::of(question)),
            Answer::Rule => {
                let rule = question.rule.as_deref().and_then(|rule| Rule::parse(rule).ok());
                self.rules.extend(rule.map(|rule| (question.tool.clone(), rule)));
            }
            Answer::Yes | Answer::No | Answer::Why | Answer::Unclear => {}
        }
    }

    /// Returns true if an earlier answer allows the call.
    #[must_use]
    pub fn allows(&self, question: &Question) -> bool {
        // The same rule must ask, because another one may ask for another reason, and it must fit
        // every part of the call: a command that only begins with an allowed one is another command.
        let by_rule = |(tool, rule): &(String, Rule)| {
            let is_asking = question.rule.as_deref() == Some(rule.to_string().as_str());
            is_asking
                && *tool == question.tool
                && rule.covers_all(&question.tool, &question.subject)
        };
        self.tools.contains(&question.tool)
            || self.rules.iter().any(by_rule)
            || self.calls.contains(&Call::of(question))
    }
}

/// Returns the lines of a question: who wants what, and all of what it would do.
#[must_use]
pub fn lines(question: &Question) -> Vec<String> {
    let Question { agent, tool, input, texts, change, subject, .. } = question;
    let mut lines = vec![format!("{} wants to use {}:", safe(agent.as_str()), safe(tool))];
    match (change, texts.as_slice()) {
        (Some(change), _) => {
            lines.push(marked(&safe(&change.path)));
            if let [_, .., place] = texts.as_slice() {
                lines.push(marked(&format!("which leads to {}", safe(place))));
            }
            lines.extend(diff(change.before.as_deref(), &change.after));
        }
        (None, texts) => {
            lines.extend(arguments(input));
            if let Some(command) = subject.whole.as_deref().filter(|text| !is_among(input, text)) {
                lines.push("as the command:".to_owned());
                lines.extend(block(command));
            }
            let (whole, parts) = texts.split_first().map_or(("", texts), |(w, rest)| (w, rest));
            if parts.len() > 1 && parts.iter().any(|part| part != whole) {
                lines.push(format!("in {} parts:", parts.len()));
                for (number, part) in (1..).zip(parts) {
                    let mut part = block(part);
                    if let Some(first) = part.first_mut() {
                        *first = marked(&format!("{number}. {}", bare(first)));
                    }
                    lines.extend(part);
                }
            }
        }
    }
    if !question.scripts.is_empty() {
        lines.push("it runs these files, with the content that they have now:".to_owned());
        let line =
            |script: &Script| marked(&format!("{} ({})", safe(&script.path), script.short_hash()));
        lines.extend(question.scripts.iter().map(line));
    }
    if !question.unbound.is_empty() {
        lines.push("not bound, so it may be different when the command runs:".to_owned());
        lines.extend(question.unbound.iter().map(|what| marked(&safe(what))));
    }
    lines
}

/// Returns true if a text is one of the arguments of a call.
fn is_among(input: &Json, text: &str) -> bool {
    let Value::Object(fields) = input.to_value() else { return false };
    fields.values().any(|value| value.as_str().is_some_and(|value| value.trim() == text))
}

/// Returns all arguments of a call: a text as it is, anything else as JSON.
fn arguments(input: &Json) -> Vec<String> {
    let Value::Object(fields) = input.to_value() else { return block(input.as_str()) };
    let mut lines = Vec::new();
    for (name, value) in &fields {
        let shown = match value {
            Value::String(text) => block(text),
            other => block(&other.to_string()),
        };
        match shown.as_slice() {
            // The only argument needs no name.
            _ if fields.len() == 1 => lines.extend(shown),
            [one] => lines.push(marked(&format!("{}: {}", safe(name), bare(one)))),
            several => {
                lines.push(marked(&format!("{}:", safe(name))));
                lines.extend(several.iter().map(|line| marked(&format!("  {}", bare(line)))));
            }
        }
    }
    lines
}

/// Returns the reason for the question.
#[must_use]
pub fn reason(question: &Question) -> String {
    match &question.rule {
        Some(rule) => format!("the rule `{}` asks about it", safe(rule)),
        None => "no rule of [permissions] allows it".to_owned(),
    }
}

/// Returns a line of a call: nothing of it stands where it could pass for a line of the question.
fn marked(line: &str) -> String {
    let mark = if line.is_empty() { MARK.trim_end() } else { MARK };
    format!("  {mark}{line}")
}

/// Returns a line of a call without its mark.
fn bare(line: &str) -> &str {
    line.strip_prefix("  ").and_then(|line| line.strip_prefix(MARK)).unwrap_or_default()
}

/// Returns the lines of a text, each made safe, indented and marked.
#[must_use]
pub fn block(text: &str) -> Vec<String> {
    let (mut lines, mut blank) = (Vec::new(), 0);
    let flush = |lines: &mut Vec<String>, blank: &mut usize| {
        match *blank {
            0..=BLANK_LINES => lines.extend(std::iter::repeat_n(marked(""), *blank)),
            many => lines.push(marked(&format!("[{many} blank lines]"))),
        }
        *blank = 0;
    };
    // Not by `lines`: a carriage return before a newline belongs to the command.
    for line in text.split_terminator('\n') {
        if line.trim().is_empty() && !line.contains('\r') {
            blank += 1;
            continue;
        }
        flush(&mut lines, &mut blank);
        lines.push(marked(&safe(line)));
    }
    lines
}

/// Returns a text that shows all its characters: blanks are counted where they could push the rest
/// out of sight, and characters that steer a terminal or hide are escaped.
#[must_use]
pub fn safe(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c: char| !is_blank(c)).unwrap_or(rest.len());
        let blanks = rest[..end].chars().count();
        if blanks > BLANKS {
            // Writing to a string cannot fail.
            let _ = write!(out, " [{blanks} blanks] ");
            rest = &rest[end..];
            continue;
        }
        // A blank that is none of the keyboard's would pass for one, and names another file.
        match c {
            '\t' => out.push(' '),
            ' ' => out.push(c),
            c if is_blank(c) || is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{2800}' | '\u{3164}' | '\u{ffa0}' | '\u{115f}' | '\u{1160}')
}

/// The time for a search for the smallest difference, which grows with the square of the changes. A
/// larger difference that shows all of them is found at once.
const DIFF: Duration = Duration::from_millis(500);

/// Returns the changed lines of a file with three lines around them.
fn diff(before: Option<&str>, after: &str) -> Vec<String> {
    let Some(before) = before else {
        let mut lines = vec!["  (a new file, or one that is no text)".to_owned()];
        let after = after.split_terminator('\n');
        lines.extend(after.map(|line| marked(&format!("+{}", safe(line)))));
        return lines;
    };
    let changes = TextDiff::configure().timeout(DIFF).diff_lines(before, after);
    let mut lines = Vec::new();
    for group in changes.grouped_ops(3) {
        if let (Some(first), Some(last)) = (group.first(), group.last()) {
            let (from, to) = (first.old_range().start + 1, last.old_range().end);
            lines.push(format!("  @@ lines {from} to {to} @@"));
        }
        for change in group.iter().flat_map(|op| changes.iter_changes(op)) {
            let mark = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            let line = safe(change.value().trim_end_matches('\n'));
            lines.push(marked(&format!("{mark}{line}")));
        }
    }
    if lines.is_empty() {
        lines.push("  (the content stays as it is)".to_owned());
    }
    lines
}

/// Returns all of a recorded question in lines that are safe to show; `effect` is all that the call would do, if the
/// question is about a call.
#[must_use]
pub fn lines_of_asked(asked: &ApprovalAsked, who: &str, effect: Option<AskedCall>) -> Vec<String> {
    if let Some(effect) = effect {
        return lines(&effect.asked_by(AgentId::from_text(who)));
    }
    let mut lines = block(&asked.message);
    if asked.kind == ApprovalKind::Permission {
        // Without its record nobody knows all of the call.
        lines.push("  (all that it would do is not recorded, or its record is lost)".to_owned());
    }
    for shown in &asked.shown {
        // A text that is written out names itself: the whole of a plan that is to be approved.
        if serde_json::from_str::<String>(&shown.expression).is_err() {
            lines.extend(block(&format!("{}:", safe(&shown.expression))));
        }
        let text = shown.text.lines().map(|line| format!("  {line}\n"));
        lines.extend(block(&text.collect::<String>()));
        if shown.left_out > 0 {
            lines.push(format!("  [{} bytes more]", shown.left_out));
        }
    }
    if !asked.choices.is_empty() {
        let choices: Vec<_> = asked.choices.iter().map(|choice| safe(choice)).collect();
        lines.push(format!("  choices: {}", choices.join(" | ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::id::AgentId;
    use crate::permission::{Deed, Subject};
    use crate::tool::Change;

    fn bash(texts: &[&str]) -> Question {
        Question {
            agent: AgentId::from_text("survey/reader-1"),
            tool: "bash".to_owned(),
            input: Json::encode(&serde_json::json!({"command": texts.first()})),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            scripts: Vec::new(),
            unbound: Vec::new(),
            subject: Subject {
                deeds: texts
                    .iter()
                    .skip(usize::from(texts.len() > 1))
                    .map(|text| Deed {
                        tool: "bash".to_owned(),
                        texts: vec![(*text).to_owned()],
                        ..Deed::default()
                    })
                    .collect(),
                ..Subject::default()
            },
            rule: None,
            change: None,
        }
    }

    #[test]
    fn a_command_is_shown_whole_with_its_parts() {
        let question = bash(&["cd sub && rm -rf build", "cd sub", "rm -rf build"]);
        assert_snapshot!(lines(&question).join("\n"), @r"
        survey/reader-1 wants to use bash:
          | cd sub && rm -rf build
        in 2 parts:
          | 1. cd sub
          | 2. rm -rf build
        ");
        assert_snapshot!(lines(&bash(&["ls", "ls"])).join("\n"), @r"
        survey/reader-1 wants to use bash:
          | ls
        ");
    }

    #[test]
    fn what_a_command_runs_is_shown_with_what_is_not_bound() {
        let script = |path: &str| Script { path: path.to_owned(), hash: "7".repeat(64) };
        let question = Question {
            scripts: vec![script("Makefile"), script("\u{202e}x")],
            unbound: vec!["cargo: what it reads".to_owned(), "x\nEVIL: y".to_owned()],
            ..bash(&["make && cargo test"])
        };
        assert_snapshot!(lines(&question).join("\n"), @r"
        survey/reader-1 wants to use bash:
          | make && cargo test
        it runs these files, with the content that they have now:
          | Makefile (777777777777)
          | \u{202e}x (777777777777)
        not bound, so it may be different when the command runs:
          | cargo: what it reads
          | x\u{a}EVIL: y
        ");
    }

    #[test]
    fn a_tool_of_the_file_is_shown_with_its_command() {
        let command = "cargo test -p 'a b'";
        let whole = Some(command.to_owned());
        let question = Question {
            tool: "cargo_test".to_owned(),
            input: Json::encode(&serde_json::json!({"package": "a b"})),
            subject: Subject { whole, ..Subject::default() },
            ..bash(&[command, "'a b'"])
        };
        assert_snapshot!(lines(&question).join("\n"), @r"
        survey/reader-1 wants to use cargo_test:
          | a b
        as the command:
          | cargo test -p 'a b'
        ");
    }

    #[test]
    fn nothing_hides_in_a_command() {
        let padded = format!(
            "ls{}; touch hidden{}\u{1b}[2K\u{202e}x\u{200b}y\r",
            " ".repeat(450),
            "\n".repeat(40)
        );
        assert_snapshot!(lines(&bash(&[&padded])).join("\n"), @r"
        survey/reader-1 wants to use bash:
          | ls [450 blanks] ; touch hidden
          | [39 blank lines]
          | \u{1b}[2K\u{202e}x\u{200b}y\u{d}
        ");
        let blank = format!("ls{}rm x", "\u{3164}".repeat(300));
        assert_snapshot!(lines(&bash(&[&blank])).join("\n"), @r"
        survey/reader-1 wants to use bash:
          | ls [300 blanks] rm x
        ");
    }

    #[test]
    fn a_write_is_shown_as_its_difference() {
        let with = |before: Option<&str>, after: &str| {
            let change = Change {
                path: "src/a.rs".to_owned(),
                before: before.map(str::to_owned),
                after: after.to_owned(),
            };
            let tool = "write_file".to_owned();
            lines(&Question { tool, change: Some(change), ..bash(&["src/a.rs"]) }).join("\n")
        };
        let before: String = (1..=9).map(|n| format!("line {n}\n")).collect();
        assert_snapshot!(with(Some(&before), &before.replace("line 5", "line five")), @r"
        survey/reader-1 wants to use write_file:
          | src/a.rs
          @@ lines 2 to 8 @@
          |  line 2
          |  line 3
          |  line 4
          | -line 5
          | +line five
          |  line 6
          |  line 7
          |  line 8
        ");
        assert_snapshot!(with(None, "new\n\x1b[31mred\n"), @r"
        survey/reader-1 wants to use write_file:
          | src/a.rs
          (a new file, or one that is no text)
          | +new
          | +\u{1b}[31mred
        ");
        assert_snapshot!(with(Some("same\n"), "same\n"), @r"
        survey/reader-1 wants to use write_file:
          | src/a.rs
          (the content stays as it is)
        ");
    }

    #[test]
    fn large_changes_are_shown_in_bounded_time() {
        let text = |offset: usize| -> String {
            (0..60_000).map(|n| format!("{}\n", (n * 7919 + offset) % 65_537)).collect()
        };
        let began = std::time::Instant::now();
        let shown = diff(Some(&text(1)), &(text(30_000) + "evil\n"));
        assert!(shown.iter().any(|line| line == "  | +evil"));
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }

    #[test]
    fn other_tools_show_their_arguments() {
        let question = Question {
            tool: "delegate".to_owned(),
            input: Json::encode(&serde_json::json!({"agent": "b", "prompt": "x"})),
            ..bash(&[])
        };
        assert_snapshot!(lines(&question).join("\n"), @r"
        survey/reader-1 wants to use delegate:
          | agent: b
          | prompt: x
        ");
        assert_eq!(reason(&question), "no rule of [permissions] allows it");
    }

    #[test]
    fn what_is_remembered_allows_no_more_than_was_shown() {
        let mut remembered = Remembered::default();
        let git = |text: &str| Question { rule: Some("bash(git *)".to_owned()), ..bash(&[text]) };
        // This very call, and not what the rule that asked is about.
        remembered.note(&git("git --version"), Answer::Always);
        assert!(remembered.allows(&git("git --version")));
        assert!(!remembered.allows(&git("git push")));
        // The rule, and only where it fits all parts of a call.
        remembered.note(&git("git --version"), Answer::Rule);
        assert!(remembered.allows(&git("git push")));
        let two = Question {
            rule: Some("bash(git *)".to_owned()),
            ..bash(&["git a; rm", "git a", "rm"])
        };
        assert!(!remembered.allows(&two));
        let forced =
            Question { rule: Some("bash(* --force)".to_owned()), ..git("git push --force") };
        assert!(!remembered.allows(&forced), "another rule asks");
        // The same path with another content is another call.
        let write = |content: &str| Question {
            tool: "write_file".to_owned(),
            input: Json::encode(&serde_json::json!({"path": "a.sh", "content": content})),
            ..bash(&["a.sh"])
        };
        remembered.note(&write("ok"), Answer::Always);
        assert!(remembered.allows(&write("ok")) && !remembered.allows(&write("evil")));
        // Without a rule there is none to remember.
        remembered.note(&bash(&["ls"]), Answer::Rule);
        assert!(!remembered.allows(&bash(&["ls"])));
        remembered.note(&bash(&["x"]), Answer::Tool);
        assert!(remembered.allows(&bash(&["anything"])) && !remembered.allows(&write("evil")));
        assert!(choices(&git("x")).contains("r always what the rule `bash(git *)` is about"));
        assert!(!choices(&bash(&["x"])).contains(" r "));
    }

    #[test]
    fn only_clear_answers_count() {
        for (line, answer) in [
            ("y\n", Answer::Yes),
            (" yes ", Answer::Yes),
            ("n", Answer::No),
            ("n because", Answer::No),
            ("no, not on a Sunday", Answer::No),
            ("not now", Answer::Unclear),
            ("n't", Answer::Unclear),
            ("y because", Answer::Unclear),
            ("a", Answer::Always),
            ("r", Answer::Rule),
            ("t", Answer::Tool),
            ("w", Answer::Why),
            ("", Answer::Unclear),
            ("yy", Answer::Unclear),
            ("ok", Answer::Unclear),
        ] {
            assert_eq!(Answer::read(line), answer, "{line:?}");
        }
    }

    #[test]
    fn a_no_may_have_a_reason() {
        for (line, reason) in [
            ("n\n", None),
            ("no", None),
            ("no, ", None),
            ("n because\n", None),
            ("n because it is Sunday\n", Some("it is Sunday")),
            ("no, use the script", Some("use the script")),
            ("N: first the tests", Some("first the tests")),
            ("n no network here", Some("no network here")),
            ("y use the script", None),
            ("nothing", None),
        ] {
            assert_eq!(reason_of_no(line).as_deref(), reason, "{line:?}");
        }
    }
}
