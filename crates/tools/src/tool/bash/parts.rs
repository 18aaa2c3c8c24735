//! Finds the texts by which a permission rule may name a command: the whole, and each part of it.
//!
//! For rules that ask or deny. It looks at the text and is not a shell: it ignores quotes, so that it
//! also finds a command hidden in a quoted argument. What may be allowed is decided by `grammar`.

use std::collections::HashSet;

/// Shell words that stand before a command and are not part of it.
const LEADING_WORDS: [&str; 10] =
    ["if", "then", "elif", "else", "while", "until", "do", "time", "!", "{"];

/// Returns the command and its parts, trimmed, without empty texts and repetitions. A part that
/// begins with assignments also appears without them.
pub(super) fn parts(command: &str) -> Vec<String> {
    // A line that continues on the next is one line.
    let joined = command.replace("\\\n", " ");
    let of_part = |part| {
        let part = bare(part);
        [part, without_assignments(part)]
    };
    let mut known = HashSet::new();
    let texts = std::iter::once(command.trim()).chain(split(&joined).into_iter().flat_map(of_part));
    let texts = texts.filter(|text| !text.is_empty() && known.insert(*text));
    texts.map(str::to_owned).collect()
}

/// Splits at `&&`, `||`, `;`, `|`, `&`, line ends and the begin of a substitution.
fn split(command: &str) -> Vec<&str> {
    let bytes = command.as_bytes();
    let (mut parts, mut from) = (Vec::new(), 0);
    for (at, byte) in bytes.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let next = bytes.get(at + 1);
        let ends = match byte {
            b';' | b'|' | b'\n' | b'`' => true,
            // In `2>&1` and `&>file` the `&` redirects and splits nothing.
            b'&' => !matches!(before, Some(b'>' | b'<')) && next != Some(&b'>'),
            b'(' => matches!(before, Some(b'$' | b'<' | b'>')),
            _ => false,
        };
        if ends {
            parts.push(&command[from..at]);
            from = at + 1;
        }
    }
    parts.push(&command[from..]);
    parts
}

/// Strips the brackets and shell words around a command.
fn bare(part: &str) -> &str {
    let mut part = part.trim();
    let (mut opened, mut closed) = (part.matches('(').count(), part.matches(')').count());
    loop {
        // A closing bracket belongs to the command if the command opens it.
        let inner = if let Some(inner) = part.strip_prefix('(') {
            opened -= 1;
            inner.trim_start()
        } else if let Some(inner) = without_leading_word(part) {
            inner.trim_start()
        } else if let Some(inner) = part.strip_suffix(')').filter(|_| closed > opened) {
            closed -= 1;
            inner.trim_end()
        } else {
            return part;
        };
        part = inner;
    }
}

fn without_leading_word(part: &str) -> Option<&str> {
    let ends = |rest: &&str| rest.is_empty() || rest.starts_with(char::is_whitespace);
    LEADING_WORDS.iter().find_map(|word| part.strip_prefix(word).filter(ends))
}

/// Strips the `NAME=value` assignments before a command.
fn without_assignments(mut command: &str) -> &str {
    loop {
        let word = command.split_whitespace().next().unwrap_or_default();
        let name = word.split_once('=').map_or("", |(name, _)| name);
        let assigns = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        if !assigns {
            return command;
        }
        command = command[word.len()..].trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, expected: &[&str]) {
        assert_eq!(parts(command), expected, "{command}");
    }

    #[test]
    fn a_command_is_seen_whole_and_in_parts() {
        check("ls", &["ls"]);
        check("  ", &[]);
        check("cd x && rm -rf y", &["cd x && rm -rf y", "cd x", "rm -rf y"]);
        check("a||b;c|d & e\nf", &["a||b;c|d & e\nf", "a", "b", "c", "d", "e", "f"]);
        check("rm \\\n -rf y", &["rm \\\n -rf y", "rm   -rf y"]);
    }

    #[test]
    fn redirections_do_not_split() {
        check("make 2>&1", &["make 2>&1"]);
        check("make &>log", &["make &>log"]);
    }

    #[test]
    fn commands_inside_others_are_seen() {
        check("echo $(rm -rf y)", &["echo $(rm -rf y)", "echo $", "rm -rf y"]);
        check("echo `rm -rf y`", &["echo `rm -rf y`", "echo", "rm -rf y"]);
        check("(cd x; rm -rf y)", &["(cd x; rm -rf y)", "cd x", "rm -rf y"]);
        check(
            "if true; then rm -rf y; fi",
            &["if true; then rm -rf y; fi", "true", "rm -rf y", "fi"],
        );
        check("A=1 B='x' rm -rf y", &["A=1 B='x' rm -rf y", "rm -rf y"]);
        check("python -c 'print(1)'", &["python -c 'print(1)'"]);
    }
}
