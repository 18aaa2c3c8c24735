//! The tutorials of docs/: their files are written, their commands typed in their order, and what they show is compared.
//!
//! A block `toml FILE` or `sh FILE` is a file. In a block `console`, a line after `$ ` is a command, a comment
//! `# exit code N` its exit code, and the lines below it are printed in this order; `...` stands for any lines. A line of
//! a block `text` was printed by then, unless the block is a conversation with a real model (`$ ` in it).

use crate::support::desk::Desk;

/// A walk through the pages: the folder where it is, and all that was printed.
struct Walk {
    desk: Desk,
    folder: String,
    said: String,
}

impl Walk {
    fn new() -> Self {
        Self { desk: Desk::empty(), folder: ".".to_owned(), said: String::new() }
    }

    fn read(&mut self, page: &str) {
        let path = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(path).expect(page);
        for block in page.split("\n```").skip(1).step_by(2) {
            let (kind, content) = block.split_once('\n').expect("a block");
            match kind.split_once(' ') {
                Some((_, file)) => {
                    self.desk.write(&format!("{}/{file}", self.folder), &format!("{content}\n"));
                }
                None if kind == "console" => self.type_in(content),
                None if kind == "text" && !content.starts_with("$ ") => self.has_said(content),
                None => {}
            }
        }
    }

    /// Types the commands of a block.
    fn type_in(&mut self, block: &str) {
        for part in format!("\n{block}").split("\n$ ").skip(1) {
            let (line, expected) = part.split_once('\n').unwrap_or((part, ""));
            let (line, comment) = line.split_once("  #").unwrap_or((line, ""));
            let code = comment.split_once("exit code ").map_or("0", |(_, code)| code.trim());
            if let Some(folder) = line.strip_prefix("cd ") {
                self.folder = format!("{}/{folder}", self.folder);
                continue;
            }
            // What follows is watched until it ends: here it has ended.
            let typed = line.replace(" tail -f", " tail");
            let done = self.desk.shell(&format!("cd {} && {typed}", self.folder));
            assert_eq!(done.code.to_string(), code, "{line}: {}{}", done.out, done.err);
            let said = format!("{}\n{}\n", done.out, done.err);
            in_order(line, &settled(expected), &settled(&said));
            self.said.push_str(&said);
        }
    }

    fn has_said(&self, block: &str) {
        let said = settled(&self.said);
        for line in
            settled(block).lines().filter(|line| !line.contains("...") && !line.contains('…'))
        {
            assert!(said.contains(line), "{line}\n{said}");
        }
    }
}

/// Checks that a command printed these lines in this order, where `...` stands for any lines.
fn in_order(command: &str, expected: &str, said: &str) {
    let mut rest = said;
    for line in expected.lines().filter(|line| !line.trim_matches([' ', '|', '.']).is_empty()) {
        let place = rest.find(line).unwrap_or_else(|| panic!("{command}: {line:?}\n{said}"));
        rest = &rest[place + line.len()..];
    }
}

/// A text without ids, folders, times, sizes and the widths of columns.
fn settled(text: &str) -> String {
    let varies = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
        (r"\b[0-9a-f]{8}\b", "ID"),
        (r"(?m)^[0-9a-f]{4} ", "ID "),
        (r"in /\S+", "in FOLDER"),
        (r"\d\d:\d\d(:\d\d\.\d+(\+\d+)?)?", "TIME"),
        (r"\d+(\.\d)? ?s\b", "TIME"),
        (r"(\d[\d.]*k?|N) (in|out|tokens in)\b", "N $2"),
        (r"\b\d+(\.\d+)?k\b", "N"),
        (r"\$\d+\.\d+", "MONEY"),
        (r", (\d+|N) B\b", ", N B"),
        (r" +", " "),
    ];
    varies.iter().fold(text.to_owned(), |text, (what, word)| {
        let what = regex::Regex::new(what).expect("an expression");
        what.replace_all(&text, *word).into_owned()
    })
}

#[test]
fn the_first_run_is_as_it_is_told() {
    Walk::new().read("first-run.md");
}

#[test]
fn a_graph_of_your_own_is_as_it_is_told() {
    Walk::new().read("your-graph.md");
}

#[test]
fn a_failure_and_what_follows_are_as_they_are_told() {
    Walk::new().read("when-it-fails.md");
}

#[test]
fn a_night_is_as_it_is_told() {
    let mut walk = Walk::new();
    walk.read("a-night.md");
    let notices = walk.desk.read("night/notices.jsonl");
    assert!(
        notices.contains("\"kind\":\"failed\"") && notices.contains("\"kind\":\"finished\""),
        "{notices}"
    );
}

#[test]
fn a_bill_is_as_it_is_told() {
    Walk::new().read("what-it-costs.md");
}

#[test]
fn a_team_works_as_its_page_shows() {
    Walk::new().read("teams.md");
}
