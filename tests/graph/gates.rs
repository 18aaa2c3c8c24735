//! Questions to people: approvals of the plan, permissions and questions of agents, answered from other
//! terminals, with and without a process that drives the run.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::desk::{Desk, keys, wait};
use crate::support::pty::Terminal;

/// A gate with a task behind it, which writes who opened it.
const GATE: &str = r#"
[tasks.first]
run = "echo three"
[tasks.gate]
depends_on = ["first"]
[tasks.gate.approval]
message = "Publish {{ tasks.first.output | trim }}?"
show = ["tasks.first.output"]
[tasks.publish]
run = 'printf %s "$BY" > published'
env = { BY = "{{ tasks.gate.output.by }}" }
depends_on = ["gate"]
[tasks.other]
run = "touch other"
"#;

fn events(desk: &Desk, kind: &str) -> Vec<Value> {
    desk.json(&["tail", "--json"]).into_iter().filter(|event| event["type"] == kind).collect()
}

fn pending(desk: &Desk) -> Vec<Value> {
    desk.json(&["pending", "--json"])
}

fn id(row: &Value) -> String {
    row["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_gate_ends_the_run_as_waiting_and_opens_from_another_terminal() {
    let desk = Desk::commands(GATE);
    let run = desk.call(&["run"]);
    assert_eq!(run.code, 6, "{}", run.err);
    assert!(desk.path().join("other").exists() && !desk.path().join("published").exists());
    let rows = pending(&desk);
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    let id = id(row);
    assert_eq!(keys(row)[..8], ["id", "run", "task", "agent", "kind", "message", "since", "until"]);
    assert_eq!(
        (&row["task"], &row["agent"], &row["kind"], &row["message"], &row["until"]),
        (&json!("gate"), &Value::Null, &json!("approval"), &json!("Publish three?"), &Value::Null)
    );
    assert_eq!(row["shown"][0]["text"], "three");
    // The summary names what waits, and the commands.
    for told in ["gate asks (approval): Publish three?", &format!("callsheet approve {}", &id[..8])]
    {
        assert!(run.err.contains(told), "{}", run.err);
    }
    let ps = desk.json(&["ps", "--json"]);
    let of = |name: &str| ps.iter().find(|row| row["name"] == name).expect("a row").clone();
    assert_eq!(
        (&of("desk")["state"], &of("gate")["state"]),
        (&json!("waiting"), &json!("waiting"))
    );
    assert_eq!(of("gate")["waiting_for"], "you: Publish three?");
    assert!(of("desk")["waiting_for"].as_str().is_some_and(|w| w.starts_with("callsheet pending")));
    let listed = desk.good(&["pending"]);
    assert!(listed.contains("  | tasks.first.output:\n"), "{listed}");
    assert!(desk.good(&["graph"]).contains("approval"));
    // Nothing is asked twice, and nothing is answered by a resume alone.
    assert_eq!(desk.call(&["resume"]).code, 6);
    assert_eq!(events(&desk, "approval.asked").len(), 1);
    // Without an owner: a beginning of the id is enough.
    let approved = desk.call(&["approve", &id[..8]]);
    assert_eq!(approved.code, 0, "{}", approved.err);
    assert!(approved.err.contains("Publish three?") && approved.err.contains("callsheet resume"));
    assert_eq!(pending(&desk), [] as [Value; 0]);
    let late = desk.call(&["reject", &id]);
    assert_eq!(late.code, 1, "{}", late.err);
    assert!(late.err.contains("answered already: "), "{}", late.err);
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let [answered] = &events(&desk, "approval.answered")[..] else { panic!("one answer") };
    assert_eq!(desk.read("published"), answered["data"]["by"].as_str().expect("a person"));
    assert!(desk.read("published").contains('@'));
    let late = desk.call(&["approve", &id]);
    assert!(late.code == 1 && late.err.contains(&desk.read("published")), "{}", late.err);
    assert_eq!(desk.call(&["approve", "nothing"]).code, 1);
}

#[test]
fn a_rejected_gate_fails_with_its_reason_and_can_be_asked_again() {
    let desk = Desk::commands(GATE);
    assert_eq!(desk.call(&["run"]).code, 6);
    let first = id(&pending(&desk)[0]);
    assert_eq!(desk.call(&["reject", &first, "--reason", "not on a Friday"]).code, 0);
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 7, "{}", resumed.err);
    assert!(resumed.out.contains("not on a Friday"), "{}", resumed.out);
    assert!(!desk.path().join("published").exists());
    assert_eq!(desk.call(&["resume", "--retry-failed"]).code, 6);
    let second = id(&pending(&desk)[0]);
    assert_ne!(first, second);
    assert_eq!(desk.call(&["approve", &second]).code, 0);
    assert_eq!(desk.call(&["resume"]).code, 0);
}

#[test]
fn the_time_of_a_question_passes_also_while_no_process_runs() {
    for (on_timeout, code) in [("reject", 7), ("approve", 0), ("fail", 5)] {
        let gate = format!(
            "[tasks.gate.approval]\nmessage = 'go?'\ntimeout = '1s'\non_timeout = '{on_timeout}'\n"
        );
        let desk = Desk::commands(&gate);
        // Nobody answers: the process that drives a detached run does so itself, on time.
        assert_eq!(desk.call(&["run", "-d"]).code, 0);
        let answered = desk.wait_for_event("approval.answered", |_| true);
        assert_eq!(answered["data"]["by"], "timeout");
        let ended = desk.wait_for_event("run.completed", |_| true);
        let status = if code == 0 { "completed" } else { "failed" };
        assert_eq!(ended["data"]["status"], status, "{on_timeout}: {ended}");
        // One that a script waits for ends, and its time passes all the same.
        let desk = Desk::commands(&gate);
        assert_eq!(desk.call(&["run"]).code, 6);
        let row = pending(&desk).remove(0);
        assert!(row["until"].is_string(), "{row}");
        wait("the end of its time", || {
            let text = desk.good(&["pending"]);
            text.contains("its time is over").then_some(())
        });
        let late = desk.call(&["approve", &id(&row)]);
        assert!(late.code == 1 && late.err.contains("its `on_timeout` answers"), "{}", late.err);
        let resumed = desk.call(&["resume"]);
        assert_eq!(resumed.code, code, "{on_timeout}: {}", resumed.err);
        let [answered] = &events(&desk, "approval.answered")[..] else { panic!("one answer") };
        assert_eq!(answered["data"]["by"], "timeout");
    }
}

/// Many gates, and a task that works until a file is there, so that the run has an owner.
fn many_gates(count: usize) -> Desk {
    let mut tasks = String::from("[tasks.busy]\nrun = 'until test -e stop; do sleep 0.01; done'\n");
    for number in 0..count {
        tasks.push_str(&format!(
            "[tasks.gate-{number}]\napproval = {{ message = 'gate {number}?' }}\n\
             [tasks.after-{number}]\nrun = 'touch after-{number}'\ndepends_on = ['gate-{number}']\n"
        ));
    }
    Desk::commands(&format!("[limits]\nfail_fast = false\n{tasks}"))
}

#[test]
fn twenty_gates_are_answered_once_each_while_the_owner_is_killed_and_resumed() {
    const GATES: usize = 20;
    let desk = many_gates(GATES);
    let owner = desk.start(&["run"]);
    let ids: Vec<_> = wait("all gates", || {
        let rows = pending(&desk);
        (rows.len() == GATES).then(|| rows.iter().map(id).collect())
    });
    // Three people answer all gates, each in an order of their own and with an answer of their own.
    let answers: Vec<(String, usize, i32, String)> = std::thread::scope(|scope| {
        let person = |who: usize| {
            let (desk, ids) = (&desk, &ids);
            scope.spawn(move || {
                let mut given = Vec::new();
                for step in 0..GATES {
                    let id = &ids[(step * [1, 7, 19][who] + who * 5) % GATES];
                    let done = match who {
                        1 => desk.call(&["reject", id, "--reason", "no"]),
                        _ => desk.call(&["approve", id]),
                    };
                    given.push((id.clone(), who, done.code, done.err));
                }
                given
            })
        };
        let people: Vec<_> = (0..3).map(person).collect();
        let mut owner = owner;
        while !people.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            owner.signal("KILL");
            owner.end();
            owner = desk.start(&["resume"]);
            std::thread::sleep(std::time::Duration::from_millis(150));
        }
        desk.write("stop", "");
        owner.end();
        people.into_iter().flat_map(|person| person.join().expect("no panic")).collect()
    });
    wait("the end", || (desk.call(&["resume"]).code != 75).then_some(()));
    let mut recorded: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events(&desk, "approval.answered") {
        recorded.entry(id(&event["data"])).or_default().push(event["data"].clone());
    }
    assert_eq!(recorded.len(), GATES);
    for (id, records) in &recorded {
        assert_eq!(records.len(), 1, "{id} is answered once");
        let of_gate = answers.iter().filter(|(gate, ..)| gate == id);
        let (counted, late): (Vec<_>, Vec<_>) = of_gate.partition(|(_, _, code, _)| *code == 0);
        assert_eq!((counted.len(), late.len()), (1, 2), "{id}: {answers:?}");
        let by = records[0]["by"].as_str().expect("a person");
        for (_, _, code, err) in late {
            assert!(*code == 1 && err.contains(by), "the other is told of {by}: {err}");
        }
        let allowed = records[0]["allowed"] == true;
        assert_eq!(counted[0].1 == 1, !allowed, "the answer is that of the one who was told so");
    }
}

/// An agent that asks a person, and one whose command needs a permission.
const ASKING: &str = r#"
[agents.a]
instructions = "x"
tools = ["ask_person", "bash"]
[tasks.one]
agent = "a"
prompt = "colour"
[tasks.two]
agent = "a"
prompt = "command"
"#;

const SCRIPT: &str = r#"
[[rules]]
when = "prompt == 'colour'"
turn = 1
[[rules.calls]]
tool = "ask_person"
input = { question = "Which colour?\u001b[2J", choices = ["red", "blue"] }
[[rules]]
when = "prompt == 'command'"
turn = 1
[[rules.calls]]
tool = "bash"
input = { command = "touch done && echo \u001b[1mbold" }
[[rules]]
say = "{{ last[0].text }}"
"#;

fn asking() -> Desk {
    let desk = Desk::offline(&format!("[limits]\nmax_concurrency = 1\n{ASKING}"), SCRIPT);
    let rules = "default = 'ask'\nnon_interactive = 'pause'";
    desk.write("agents.toml", &desk.read("agents.toml").replace("default = \"allow\"", rules));
    desk
}

#[test]
fn agents_wait_for_people_without_a_slot_and_over_the_end_of_the_process() {
    let desk = asking();
    let run = desk.call(&["run"]);
    // Both have asked, although there is only one slot.
    assert_eq!(run.code, 6, "{}", run.err);
    let rows = pending(&desk);
    let of = |kind: &str| rows.iter().find(|row| row["kind"] == kind).expect("a row").clone();
    let (question, permission) = (of("question"), of("permission"));
    assert_eq!(question["choices"], json!(["red", "blue"]));
    assert_eq!(permission["effect"]["input"]["command"], "touch done && echo \u{1b}[1mbold");
    assert_eq!((&permission["task"], &permission["agent"]), (&json!("two"), &json!("two")));
    // What is shown is whole and steers no terminal.
    let shown = desk.call(&["pending"]);
    shown.assert_plain();
    for told in [
        "two wants to use bash:",
        "touch done && echo \\u{1b}[1mbold",
        "Which colour?\\u{1b}[2J",
        "choices: red | blue",
    ] {
        assert!(shown.out.contains(told), "{}", shown.out);
    }
    run.assert_plain();
    // A yes is no answer to a question in words, and words are none to one of yes or no.
    assert_eq!(desk.call(&["approve", &id(&question)]).code, 2);
    assert_eq!(desk.call(&["answer", &id(&permission), "yes"]).code, 2);
    let approved = desk.call(&["approve", &id(&permission)]);
    assert!(approved.code == 0 && approved.err.contains("touch done"), "{}", approved.err);
    assert!(!desk.path().join("done").exists(), "no process drives the run");
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 6, "{}", resumed.err);
    assert!(desk.path().join("done").exists());
    assert_eq!(desk.call(&["answer", &id(&question), "dark", "green"]).code, 0);
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(desk.good(&["show", "/one", "--output"]).contains("dark green"));
    assert_eq!(events(&desk, "approval.asked").len(), 2, "nothing is asked twice");
}

#[test]
fn a_permission_is_only_good_for_what_was_shown() {
    let write = r#"
[[rules]]
turn = 1
[[rules.calls]]
tool = "write_file"
input = { path = "notes", content = "new\n" }
[[rules]]
say = "done"
"#;
    let desk = Desk::offline(
        "[agents.a]\ninstructions = 'x'\ntools = ['write_file']\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n",
        write,
    );
    let rules = "default = 'ask'\nnon_interactive = 'pause'";
    desk.write("agents.toml", &desk.read("agents.toml").replace("default = \"allow\"", rules));
    desk.write("notes", "old\n");
    assert_eq!(desk.call(&["run"]).code, 6);
    let shown = desk.good(&["pending"]);
    assert!(shown.contains("-old") && shown.contains("+new"), "{shown}");
    let first = id(&pending(&desk)[0]);
    assert_eq!(desk.call(&["approve", &first]).code, 0);
    desk.write("notes", "changed by somebody\n");
    assert_eq!(desk.call(&["resume"]).code, 6, "it would do something else now");
    assert_eq!(desk.read("notes"), "changed by somebody\n");
    let second = id(&pending(&desk)[0]);
    assert_ne!(first, second);
    assert!(desk.good(&["pending"]).contains("-changed by somebody"));
    assert_eq!(desk.call(&["reject", &second, "--reason", "keep it"]).code, 0);
    assert_eq!(desk.call(&["resume"]).code, 0);
    assert_eq!(desk.read("notes"), "changed by somebody\n");
    let told = desk.good(&["show", "/@one", "--transcript"]);
    assert!(told.contains("the person who was asked said no. The reason: keep it"), "{told}");
}

#[test]
fn a_question_at_a_terminal_goes_away_when_another_terminal_answers() {
    let desk = asking();
    let terminal = Terminal::start(&desk, 130, &["run"]);
    terminal.until("allow? [");
    let rows = pending(&desk);
    let of = |kind: &str| id(rows.iter().find(|row| row["kind"] == kind).expect("a row"));
    assert_eq!(desk.call(&["approve", &of("permission")]).code, 0);
    let shown = terminal.until("answered: yes");
    assert!(shown.contains("two: "), "{shown}");
    wait("the command", || desk.path().join("done").exists().then_some(()));
    // The run stays for the other one, and says so.
    terminal.until("waits for you: one (answer ");
    assert_eq!(desk.call(&["answer", &of("question"), "red"]).code, 0);
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
}

#[test]
fn a_gate_is_answered_at_the_terminal_of_its_run() {
    let desk = Desk::commands(
        "[tasks.gate.approval]\nmessage = 'deploy?'\n\
         [tasks.other.approval]\nmessage = 'and publish?'\n\
         [tasks.last.approval]\nmessage = 'and tell?'\n\
         [tasks.after]\nrun = 'touch deployed'\ndepends_on = ['gate']\n\
         when = 'tasks.gate.output.approved'\n\
         [tasks.publish]\nrun = 'touch published'\ndepends_on = ['other']\n",
    );
    let mut terminal = Terminal::start(&desk, 130, &["run"]);
    let shown = terminal.until("approve? [");
    assert!(shown.contains("gate asks for an approval:\n  | deploy?\n"), "{shown}");
    // What is typed before a question is asked does not count, so each answer waits for its question.
    for (answer, asked) in [("a\n", 2), ("\n", 3), ("y\n", 4)] {
        terminal.types(answer);
        wait("the next question", || {
            (terminal.written().matches("approve? [").count() == asked).then_some(())
        });
    }
    assert!(terminal.written().contains("  | and publish?"));
    wait("the command", || desk.path().join("deployed").exists().then_some(()));
    terminal.types("n because it is Sunday\n");
    terminal.until("  | and tell?");
    // Somebody else answers: the question leaves the screen.
    let rows = pending(&desk);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(desk.call(&["approve", &id(&rows[0])]).code, 0);
    let (_, shown) = terminal.end();
    assert!(shown.contains("it is Sunday"), "{shown}");
    assert!(!desk.path().join("published").exists());
    let answers = desk.json(&["tail", "--json"]);
    let answers = answers.iter().filter(|event| event["type"] == "approval.answered");
    let answers: Vec<_> = answers.map(|event| event["data"].clone()).collect();
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert_eq!(
        (&answers[1]["allowed"], &answers[1]["text"]),
        (&json!(false), &json!("it is Sunday"))
    );
}

#[test]
fn a_notification_command_is_told_of_the_question_and_cannot_hold_up_the_run() {
    let desk = Desk::commands(
        "[tasks.gate.approval]\nmessage = 'go?'\nnotify = { command = ['sh', 'tell.sh'] }\n\
         [tasks.bad.approval]\nmessage = 'too?'\nnotify = { command = ['false'] }\n",
    );
    desk.write("tell.sh", "cat > told.json");
    let run = desk.call(&["run"]);
    assert_eq!(run.code, 6, "{}", run.err);
    assert!(run.err.contains("a notification command did not work"), "{}", run.err);
    let told: Value = serde_json::from_str(&desk.read("told.json")).expect("JSON");
    assert_eq!((&told["task"], &told["message"]), (&json!("gate"), &json!("go?")));
    assert!(pending(&desk).iter().any(|row| row["id"] == told["id"]));
}

#[test]
fn each_item_of_a_list_can_have_a_gate_of_its_own() {
    let desk = Desk::commands(
        "[limits]\nfail_fast = false\n\
         [tasks.gate]\nforeach = \"['red', 'blue']\"\nmin_success = 0.5\n\
         approval = { message = 'paint it {{ item }}?', show = ['instance.index'] }\n\
         [tasks.paint]\nrun = 'printf %s \"$WHO\" > painted'\ndepends_on = ['gate']\n\
         env = { WHO = \"{% for g in tasks.gate.outputs %}{{ g.key }} {{ g.state }},{% endfor %}\" }\n",
    );
    assert_eq!(desk.call(&["run"]).code, 6);
    let rows = pending(&desk);
    let messages: Vec<_> = rows.iter().map(|row| &row["message"]).collect();
    assert_eq!(messages, ["paint it red?", "paint it blue?"]);
    assert_eq!(rows[1]["task"], "gate[1]");
    assert_eq!(desk.call(&["reject", &id(&rows[0])]).code, 0);
    assert_eq!(desk.call(&["approve", &id(&rows[1])]).code, 0);
    let resumed = desk.call(&["resume"]);
    assert_eq!(desk.read("painted"), "red failed,blue completed,", "{}", resumed.err);
}

#[test]
fn the_command_of_an_own_tool_is_shown_to_whoever_answers() {
    let desk = Desk::offline(
        "[tools.publish]\ndescription = 'x'\ncommand = ['touch', '{{ args.what }}.done']\n\
         input_schema = { type = 'object', properties = { what = { type = 'string' } } }\n\
         [agents.a]\ninstructions = 'x'\ntools = ['publish']\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n",
        "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'publish'\ninput = { what = 'all' }\n\
         [[rules]]\nsay = 'done'\n",
    );
    let rules = "default = 'ask'\nnon_interactive = 'pause'";
    desk.write("agents.toml", &desk.read("agents.toml").replace("default = \"allow\"", rules));
    let run = desk.call(&["run"]);
    assert_eq!(run.code, 6, "{}", run.err);
    let shown = desk.good(&["pending"]);
    assert!(shown.contains("touch all.done"), "{shown}");
    assert_eq!(desk.call(&["approve", &id(&pending(&desk)[0])]).code, 0);
    assert_eq!(desk.call(&["resume"]).code, 0);
    assert!(desk.path().join("all.done").exists());
}

#[test]
fn a_permission_that_nobody_gives_in_time_is_denied_and_the_record_says_by_what() {
    let desk = asking();
    let rules = "non_interactive = 'pause'\nask_timeout = '1s'";
    desk.write(
        "agents.toml",
        &desk.read("agents.toml").replace("non_interactive = 'pause'", rules),
    );
    assert_eq!(desk.call(&["run"]).code, 6);
    let rows = pending(&desk);
    let permission = rows.iter().find(|row| row["kind"] == "permission").expect("a row");
    let question = rows.iter().find(|row| row["kind"] == "question").expect("a row");
    assert!(permission["until"].is_string() && question["until"].is_null(), "{rows:?}");
    wait("its time", || {
        let resumed = desk.call(&["resume"]);
        assert_eq!(resumed.code, 6, "{}", resumed.err);
        (pending(&desk).len() == 1).then_some(())
    });
    let answered = events(&desk, "approval.answered");
    assert_eq!((answered.len(), &answered[0]["data"]["by"]), (1, &json!("timeout")));
    assert!(!desk.path().join("done").exists());
    // Its time may be over while a process ends: the next one tells the agent.
    assert_eq!(desk.call(&["resume"]).code, 6);
    let told = desk.good(&["show", "/@two", "--transcript"]);
    assert!(told.contains("nobody answered in time"), "{told}");
}
