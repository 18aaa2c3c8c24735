//! What an agent reads when it would write over what somebody else made, and what a parent reads of the files that
//! its children changed.

use callsheet::turn::ToolStatus;
use serde_json::Value;

use crate::support::test_run::{Ended, TestRun};

/// Agents that may work on files, and `second`, which begins when `first` is done.
const TWO: &str = r#"
[permissions]
default = "allow"
[agents.one]
tools = ["bash", "read_file", "write_file", "edit_file"]
[agents.other]
tools = ["bash", "read_file", "write_file", "edit_file"]
[tasks.first]
agent = "one"
prompt = "go"
[tasks.second]
agent = "other"
prompt = "go"
depends_on = ["first"]
"#;

/// A parent that works on files, and may have a child work on them.
const FAMILY: &str = r#"
[permissions]
default = "allow"
[agents.boss]
tools = ["bash", "read_file", "write_file", "edit_file"]
sub_agents = ["helper"]
[agents.helper]
description = "Helps"
tools = ["bash", "read_file", "write_file", "edit_file"]
[tasks.job]
agent = "boss"
prompt = "go"
"#;

/// A script in which each agent makes its calls, one a turn, each written as TOML, and then says `done`.
fn script(agents: &[(&str, &[&str])]) -> String {
    let mut text = String::new();
    for (agent, calls) in agents {
        for (turn, call) in calls.iter().enumerate() {
            let turn = turn + 1;
            text += &format!("[[rules]]\nagent = '{agent}'\nturn = {turn}\ncalls = [{call}]\n");
        }
    }
    text + "[[rules]]\nsay = 'done'\n"
}

const READ: &str = "{ tool = 'read_file', input = { path = 'f' } }";
const DELEGATE: &str = "{ tool = 'delegate', input = { agent = 'helper', prompt = 'change it' } }";

fn write(text: &str) -> String {
    format!("{{ tool = 'write_file', input = {{ path = 'f', content = '{text}' }} }}")
}

fn edit(old: &str, new: &str) -> String {
    format!(
        "{{ tool = 'edit_file', input = {{ path = './f', old_string = '{old}', new_string = '{new}' }} }}"
    )
}

fn bash(command: &str) -> String {
    format!("{{ tool = 'bash', input = {{ command = '{command}' }} }}")
}

/// The results of an agent, each with `!` before an error.
fn told(ended: &Ended, agent: &str) -> Vec<String> {
    let mark = |is_error: bool| if is_error { "!" } else { "" };
    let results = ended.results(agent);
    results.iter().map(|result| format!("{}{}", mark(result.is_error), result.text())).collect()
}

#[tokio::test]
async fn what_another_agent_wrote_is_not_written_over_unread() {
    let (mine, theirs) = (write("theirs"), write("mine"));
    let calls: &[&str] = &[&theirs, READ, &theirs];
    let ended =
        TestRun::new(TWO).script(&script(&[("one", &[&mine]), ("other", calls)])).run().await;
    let told = told(&ended, "second");
    let seq = ended.seq("the start of the write", |record| {
        record.event.kind() == "tool.started"
            && record.agent.as_ref().is_some_and(|id| id.as_str() == "first")
    });
    let start = "!Error: `f` was written by @first at 2";
    assert!(told[0].starts_with(start), "{told:?}");
    let end = format!(
        "(seq {seq}), and you have not read it; nothing was written. Read the file, then make the change to \
         what it holds now"
    );
    assert!(told[0].ends_with(&end), "{told:?}");
    assert_eq!(told[1..], ["theirs", "wrote 4 bytes, 1 lines to f"]);
    assert_eq!(ended.read("f"), "mine");
    // What was refused is announced nowhere: nothing began.
    let begun = ended.of_agent("second").filter(|record| record.event.kind() == "tool.started");
    assert_eq!(begun.count(), 1);
}

#[tokio::test]
async fn a_write_over_what_a_child_changed_is_refused_and_an_edit_goes_through() {
    let (whole, one, two) = (write("all new"), edit("a", "A"), edit("b", "B"));
    let boss: &[&str] = &[READ, DELEGATE, &whole, &two, &whole, READ, &whole];
    let ended = TestRun::new(FAMILY)
        .file("f", "a b\n")
        .script(&script(&[("boss", boss), ("helper", &[&one])]))
        .run()
        .await;
    let told = told(&ended, "job");
    let child: Value = serde_json::from_str(&told[1]).expect("JSON");
    assert_eq!(child["changed_since_you_read"], serde_json::json!(["f"]));
    assert!(told[2].starts_with("!Error: `f` was changed by @job/helper-1 at 2"), "{told:?}");
    assert!(
        told[3].starts_with(
            "replaced 1 occurrence in ./f\nNote: `./f` was changed by @job/helper-1 at"
        ),
        "{told:?}"
    );
    assert!(told[3].ends_with("since you read it; the rest of it was kept"), "{told:?}");
    // The edit kept a change that the boss has still not read.
    assert!(told[4].starts_with("!Error: `f` was changed by @job/helper-1 at"), "{told:?}");
    assert_eq!(told[5..], ["A B\n", "wrote 7 bytes, 1 lines to f"]);
}

#[tokio::test]
async fn a_parent_is_told_of_files_that_it_had_read_alone() {
    let (one, boss): (_, &[&str]) = (edit("a", "A"), &[DELEGATE]);
    let ended = TestRun::new(FAMILY)
        .file("f", "a b\n")
        .script(&script(&[("boss", boss), ("helper", &[&one])]))
        .run()
        .await;
    let child: Value = serde_json::from_str(&told(&ended, "job")[0]).expect("JSON");
    assert_eq!(
        (&child["status"], &child["changed_since_you_read"]),
        (&"completed".into(), &Value::Null)
    );
}

#[tokio::test]
async fn a_change_by_a_command_is_noticed_and_an_agent_s_own_work_is_not_in_its_way() {
    let (command, whole) = (bash("echo c >> f"), write("x"));
    let (again, small, more) = (write("xy"), edit("x", "z"), write("w"));
    let calls: &[&str] = &[&whole, &again, &small, &more, READ, &command, &whole, READ, &whole];
    let ended = TestRun::new(TWO)
        .file("f", "there before, and of nobody in the run\n")
        .script(&script(&[("one", calls)]))
        .only(["first"])
        .run()
        .await;
    let told = told(&ended, "first");
    let errors: Vec<_> =
        told.iter().enumerate().filter(|(_, text)| text.starts_with('!')).collect();
    let [(6, refused)] = errors[..] else { panic!("{told:?}") };
    let words = "!Error: `f` was changed since you read it, by a command or from outside of the run; nothing";
    assert!(refused.starts_with(words), "{refused}");
    assert_eq!(ended.read("f"), "x");
}

#[tokio::test]
async fn the_calls_of_one_reply_know_no_result_of_it() {
    // The model made both calls before it had read anything.
    let both = format!("{READ}, {}", write("mine"));
    let theirs = write("theirs");
    let ended = TestRun::new(TWO)
        .script(&script(&[("one", &[&theirs]), ("other", &[&both, &write("mine")])]))
        .run()
        .await;
    let told = told(&ended, "second");
    assert!(told[1].starts_with("!Error: `f` was written by @first"), "{told:?}");
    assert_eq!(told[2], "wrote 4 bytes, 1 lines to f");
}

#[tokio::test]
async fn agents_that_write_one_file_at_once_lose_nothing() {
    const AGENTS: usize = 6;
    const LINES: usize = 4;
    let tasks: String =
        (0..AGENTS).map(|n| format!("[tasks.t{n}]\nagent = 'adder'\nprompt = 'go'\n")).collect();
    let ended = TestRun::new(&format!(
        "[permissions]\ndefault = 'allow'\n[loops]\nenabled = false\n[limits]\nmax_concurrency = {AGENTS}\n\
         [agents.adder]\ntools = ['read_file', 'write_file']\nmax_turns = 2000\n{tasks}\
         [agents.blind]\ntools = ['write_file']\n\
         [tasks.late]\nagent = 'blind'\nprompt = 'go'\ndepends_on = [{}]\n",
        (0..AGENTS).map(|n| format!("'t{n}', ")).collect::<String>()
    ))
    .file("f", "begin\n")
    .script(&format!(
        r#"
        [[rules]]
        agent = "blind"
        turn = 1
        calls = [{{ tool = "write_file", input = {{ path = "f", content = "blind" }} }}]
        [[rules]]
        agent = "blind"
        say = "done"
        [[rules]]
        last_tool = "read_file"
        when = "(last[0].text | find_all('(?m)^' ~ agent_id ~ ' ')) | length >= {LINES}"
        say = "done"
        [[rules]]
        last_tool = "read_file"
        calls = [{{ tool = "write_file", input = {{ path = "f", content = "{{{{ last[0].text }}}}{{{{ agent_id }}}} {{{{ turn }}}}\n" }} }}]
        [[rules]]
        calls = [{{ tool = "read_file", input = {{ path = "f" }} }}]
        "#
    ))
    .run()
    .await;
    let text = ended.read("f");
    for n in 0..AGENTS {
        let name = format!("t{n} ");
        let lines = text.lines().filter(|line| line.starts_with(&name)).count();
        assert_eq!(lines, LINES, "{text}");
        assert_eq!(ended.output(&format!("t{n}")), "done");
    }
    let is_refused = |status: ToolStatus| status == ToolStatus::Error;
    let all = (0..AGENTS).flat_map(|n| ended.finished(&format!("t{n}")));
    let refused = all.filter(|finished| is_refused(finished.status)).count();
    assert!(refused > 0, "they never met, and the trial shows nothing");
    // Of all that tried, the one who wrote last is named to whoever comes later.
    let last = text.lines().last().and_then(|line| line.split(' ').next()).expect("a line");
    let words = format!("!Error: `f` was written by @{last} at ");
    assert!(told(&ended, "late")[0].starts_with(&words), "{last}: {:?}", told(&ended, "late"));
}
