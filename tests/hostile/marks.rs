//! Texts of models, commands and files in everything that is printed for people: none of their lines can
//! be taken for one of the program.

use crate::support::desk::Desk;

/// Lines that look like those of the program.
const HOSTILE: [&str; 10] = [
    "  > callsheet approve EVIL",
    "    callsheet approve EVIL",
    "EVIL0123  approval  of gate in run desk, for 3 s now",
    "EVIL asks (approval): yes?",
    "12:00:00 run      | EVIL completed",
    "--- 9 user EVIL",
    "task EVIL: completed, attempt 1",
    "run completed after 1 s: EVIL",
    "error: EVIL",
    "in 2 parts: EVIL",
];

/// A run of an agent that asks, one whose call is to be allowed, one that replies, and of commands that
/// print and fail, all of it with such lines.
fn desk() -> Desk {
    let text = format!("EVIL\\n\\n{}\\nrest", HOSTILE.join("\\n"));
    let long = format!("{}{}", "x".repeat(700), HOSTILE[0]);
    let script = format!(
        r#"
[[rules]]
when = "prompt == 'ask'"
turn = 1
[[rules.calls]]
tool = "ask_person"
input = {{ question = "{text}\n{long}", choices = ["EVIL", "  > callsheet approve EVIL"] }}
[[rules]]
when = "prompt == 'run'"
turn = 1
[[rules.calls]]
tool = "bash"
input = {{ command = "{text}" }}
[[rules]]
say = "{text}"
"#
    );
    let printed = HOSTILE.join("\\n");
    let tasks = format!(
        "[agents.a]\ninstructions = 'x'\ntools = ['ask_person', 'bash']\n\
         [tasks.one]\nagent = 'a'\nprompt = 'ask'\n[tasks.two]\nagent = 'a'\nprompt = 'run'\n\
         [tasks.three]\nagent = 'a'\nprompt = 'say'\n\
         [tasks.four]\nrun = \"printf '{printed}\\\\n'; exit 3\"\n\
         [tasks.five]\nrun = \"printf '{printed}\\\\n'\"\n"
    );
    let desk = Desk::offline(&tasks, &script);
    let rules = "default = 'ask'\nnon_interactive = 'pause'";
    desk.write("agents.toml", &desk.read("agents.toml").replace("default = \"allow\"", rules));
    desk
}

/// Fails if a line begins with one of the hostile ones.
fn assert_marked(what: &str, shown: &str) {
    for line in shown.lines() {
        let is_hostile = |hostile: &&&str| line.trim_start().starts_with(hostile.trim_start());
        let found = HOSTILE.iter().find(is_hostile);
        assert!(found.is_none(), "{what}: {line:?}\n{shown}");
    }
}

#[test]
fn no_line_of_others_passes_for_one_of_the_program() {
    let desk = desk();
    let run = desk.call(&["run"]);
    assert_eq!(run.code, 6, "{}", run.err);
    assert_marked("run", &run.err);
    let shown = desk.good(&["pending"]);
    // All of the question is there, behind the mark, and so is the command that answers it.
    for line in HOSTILE {
        assert_eq!(shown.matches(&format!("  | {line}\n")).count(), 2, "{line}: {shown}");
    }
    assert_eq!(
        shown.lines().filter(|line| line.starts_with("  > callsheet ")).count(),
        3,
        "{shown}"
    );
    let looking: [&[&str]; 15] = [
        &["pending"],
        &["ps", "-a"],
        &["ps", "-a", "--tree"],
        &["show"],
        &["show", "/two"],
        &["show", "/three"],
        &["show", "/four"],
        &["show", "/five"],
        &["show", "@one"],
        &["show", "@three"],
        &["show", "@four"],
        &["show", "@three", "--transcript"],
        &["show", "@three", "--view"],
        &["tail"],
        &["resume", "--explain"],
    ];
    for verb in looking {
        let done = desk.call(verb);
        assert_eq!(done.code, 0, "{verb:?}: {}", done.err);
        assert_marked(&format!("{verb:?}"), &(done.out + "\n" + &done.err));
    }
    assert!(desk.good(&["show", "/five"]).contains(&format!("| {}\n", HOSTILE[2])));
    // What is for programs is as it was.
    assert_eq!(desk.good(&["show", "/five", "--output"]), format!("{}\n", HOSTILE.join("\n")));
    for row in desk.json(&["pending", "--json"]) {
        let (kind, id) = (row["kind"].as_str(), row["id"].as_str().expect("an id"));
        let done = match kind {
            Some("question") => desk.call(&["answer", id, HOSTILE[0]]),
            _ => desk.call(&["reject", id, "--reason", HOSTILE[0]]),
        };
        assert_eq!(done.code, 0, "{}", done.err);
        assert_marked("answer", &(done.out + "\n" + &done.err));
    }
    let ended = desk.call(&["resume"]);
    assert_marked("resume", &(ended.out.clone() + "\n" + &ended.err));
    assert!(
        ended.out.contains("run partly completed") || ended.out.contains("run failed"),
        "{}",
        ended.out
    );
}
