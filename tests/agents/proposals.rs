//! Agents that propose tasks: what they may, what a person is asked, and what a restart keeps.

use crate::support::desk::Desk;

/// An agent that proposes this plan, and then says what became of it.
fn desk(plan: &str, permissions: &str) -> Desk {
    let desk = Desk::offline(
        "[agents.planner]\nmodel = 'default'\ninstructions = 'x'\ntools = ['propose_tasks']\n\
         sub_agents = ['reader']\n[agents.reader]\nmodel = 'default'\ninstructions = 'x'\n\
         [agents.other]\nmodel = 'default'\ninstructions = 'x'\n\
         [tasks.early]\nrun = 'echo one two'\n\
         [tasks.plan]\nagent = 'planner'\nprompt = 'plan'\ndepends_on = ['early']\n",
        &format!(
            "[[rules]]\nagent = 'planner'\nturn = 1\n[[rules.calls]]\ntool = 'propose_tasks'\n\
             input = {{ tasks = '''{{% raw %}}{plan}{{% endraw %}}''' }}\n\
             [[rules]]\nagent = 'planner'\nsay = 'planned'\n\
             [[rules]]\nagent = 'reader'\nsay = 'read: {{{{ prompt }}}}'\n\
             [[rules]]\nsay = 'x'\n"
        ),
    );
    let text = desk.read("agents.toml");
    desk.write("agents.toml", &format!("{text}{permissions}"));
    desk
}

const PLAN: &str = r#"
[tasks.each]
agent = "reader"
prompt = "{{ item }}"
foreach = "tasks.early.output | trim | split(' ')"
depends_on = ["early"]
[tasks.sum]
agent = "reader"
prompt = "after {{ tasks.plan.output }}: {{ tasks.each.outputs | length }}"
depends_on = ["plan", "each"]
"#;

pub(crate) fn allowing(plan: &str) -> Desk {
    let desk = desk(plan, "");
    let text =
        desk.read("agents.toml").replace("[permissions]\n", "[permissions]\nplan = 'allow'\n");
    desk.write("agents.toml", &text);
    desk
}

/// The result of the call that proposed tasks.
fn told(desk: &Desk) -> String {
    let events = desk.json(&["tail", "--json"]);
    let mut results = events.iter().filter(|event| {
        event["data"]["name"] == "propose_tasks" && event["type"] == "tool.finished"
    });
    results.next().map(|event| event["data"].to_string()).unwrap_or_default()
}

fn run_id(desk: &Desk) -> String {
    let run = desk.runs().remove(0);
    run.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn proposed_tasks_wait_for_a_person_and_run_like_written_ones() {
    let desk = desk(PLAN, "");
    let run = desk.call(&["run"]);
    assert_eq!(run.code, 6, "{}{}", run.out, run.err);
    let rows = desk.json(&["pending", "--json"]);
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert!(row.to_string().contains("foreach"), "{row}");
    let shown = desk.call(&["pending"]).out;
    for text in ["plan wants to use propose_tasks", "[tasks.each]", "foreach = "] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let id = row["id"].as_str().expect("an id");
    assert_eq!(desk.call(&["approve", id]).code, 0);
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}{}", resumed.out, resumed.err);
    let sum = desk.call(&["show", &format!("{}/sum", run_id(&desk))]);
    assert!(sum.out.contains("after planned: 2"), "{}{}", sum.out, sum.err);
    assert!(desk.good(&["graph", &run_id(&desk)]).contains("sum"));
    // A fork before the end has the tasks too, each once.
    let events = desk.json(&["tail", "--json"]);
    let added = events.iter().filter(|event| event["type"] == "plan.extended").count();
    assert_eq!(added, 1);
    let last = events.iter().rposition(|event| event["type"] == "task.started").expect("one");
    let seq = events[last]["seq"].to_string();
    let fork = desk.call(&["fork", &format!("{}@{seq}", run_id(&desk))]);
    assert_eq!(fork.code, 0, "{}{}", fork.out, fork.err);
}

#[test]
fn a_later_process_has_the_proposed_tasks() {
    let desk = desk(
        "[tasks.x]\nrun = \"test -e go\"\n[tasks.y]\nrun = \"touch made\"\ndepends_on = [\"x\"]\n",
        "",
    );
    assert_eq!(desk.call(&["run"]).code, 6);
    let id = desk.json(&["pending", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(desk.call(&["approve", &id]).code, 0);
    let failed = desk.call(&["resume"]);
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    assert!(failed.out.contains("x      failed"), "{}", failed.out);
    desk.write("go", "");
    let retried = desk.call(&["resume", "--retry-failed"]);
    assert_eq!(retried.code, 0, "{}{}", retried.out, retried.err);
    assert!(desk.path().join("made").exists());
}

#[test]
fn a_person_who_says_no_is_told_to_the_agent() {
    let desk = desk(PLAN, "");
    assert_eq!(desk.call(&["run"]).code, 6);
    let id = desk.json(&["pending", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(desk.call(&["reject", &id, "--reason", "too dear"]).code, 0);
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}{}", resumed.out, resumed.err);
    assert!(told(&desk).contains("too dear"), "{}", told(&desk));
    assert!(!desk.good(&["graph", &run_id(&desk)]).contains("sum"));
}

#[test]
fn a_file_may_allow_plans_but_not_more_than_the_agent_may_delegate() {
    let desk = allowing(PLAN);
    let run = desk.call(&["run"]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    for more in [
        "[tasks.x]\nrun = \"touch made\"\n",
        "[tasks.x]\nagent = \"other\"\nprompt = \"x\"\n",
        "[tasks.x]\nagent = \"reader\"\nprompt = \"x\"\noutput_file = \"made\"\n",
        "[tasks.x]\nagent = \"reader\"\nprompt = \"x\"\nalways = true\n",
        "[tasks.x]\nagent = \"reader\"\nprompt = \"x\"\n[[tasks.x.checks]]\nrun = \"touch made\"\n",
    ] {
        let desk = allowing(more);
        let run = desk.call(&["run"]);
        assert_eq!(run.code, 6, "{more}: {}{}", run.out, run.err);
        assert!(!desk.path().join("made").exists(), "{more}");
    }
    let desk = allowing(PLAN);
    desk.write("agents.toml", &desk.read("agents.toml").replace("plan = 'allow'", "plan = 'deny'"));
    assert_eq!(desk.call(&["run"]).code, 0);
    assert!(told(&desk).contains("denies plans"), "{}", told(&desk));
}

#[test]
fn what_nobody_was_asked_about_costs_no_more_than_delegations() {
    let long: String = (0..5)
        .map(|n| {
            format!(
                "[tasks.t{n}]\nagent = \"reader\"\nprompt = \"{{{{ item }}}}\"\n\
                 foreach = \"range(1000) | list\"\n"
            )
        })
        .collect();
    let again = "[tasks.x]\nagent = \"reader\"\nprompt = \"x\"\noutput = \"json\"\n\
                 loop = { until = \"false\", max_iterations = 50 }\noutput_retries = 20\n";
    let many: String =
        (0..6).map(|n| format!("[tasks.t{n}]\nagent = \"reader\"\nprompt = \"x\"\n")).collect();
    for (plan, most, why) in [
        (&*long, 2, "limits.max_descendants` is 5 and leaves 5, and the task wants 1000 instances"),
        (again, 2 + 5, "the task wants another agent"),
        (&many, 2, "of the 5 that the run may have, 5 are left for this task"),
    ] {
        let desk = allowing(plan);
        let text = desk.read("agents.toml");
        desk.write(
            "agents.toml",
            &format!("{text}[limits]\nmax_descendants = 5\n[loops]\nenabled = false\n"),
        );
        let run = desk.call(&["run", "--keep-going"]);
        let events = desk.json(&["tail", "--json"]);
        let requests = events.iter().filter(|event| event["type"] == "model.requested").count();
        assert!((1..=most).contains(&requests), "{requests} of {most}: {}", run.err);
        let told: String = events.iter().map(ToString::to_string).collect();
        assert!(told.contains(why), "{why}: {}", run.err);
        assert_eq!(run.code == 0, plan == many, "{}", run.err);
    }
}

#[test]
fn a_wrong_plan_adds_nothing_and_says_what_is_wrong() {
    let many: String =
        (0..201).map(|n| format!("[tasks.t{n}]\nagent = \"reader\"\nprompt = \"x\"\n")).collect();
    for (plan, says) in [
        ("no toml", "line 1"),
        ("", "no tasks"),
        ("[agents.a]\n[tasks.x]\nrun = \"x\"\n", "only tasks, not `agents`"),
        ("[tasks.x]\nagent = \"nobody\"\nprompt = \"x\"\n", "nobody"),
        ("[tasks.x]\nagent = \"reader\"\nprompt = \"{{ tasks.plan.output }}\"\n", "depends_on"),
        ("[tasks.plan]\nrun = \"x\"\n", "plan"),
        ("[tasks.x]\nworkflow = \"x.toml\"\n", "no sub-graphs"),
        (
            "[tasks.x]\nrun = \"x\"\ndepends_on = [\"y\"]\n[tasks.y]\nrun = \"x\"\ndepends_on = [\"x\"]\n",
            "x",
        ),
        ("[tasks.x]\nagent = \"reader\"\nprompt = \"x\"\ncontext = [\"nothing\"]\n", "nothing"),
        (&many, "more than 200"),
    ] {
        let desk = allowing(plan);
        let run = desk.call(&["run"]);
        assert_eq!(run.code, 0, "{says}: {}{}", run.out, run.err);
        let told = told(&desk);
        assert!(told.contains("Nothing was added") && told.contains(says), "{says}: {told}");
        let events = desk.json(&["tail", "--json"]);
        assert!(events.iter().all(|event| event["type"] != "plan.extended"), "{says}");
    }
}

#[test]
fn what_binds_the_agent_is_not_left_by_a_plan() {
    for (from, to) in [
        ("prompt = 'plan'\n", "prompt = 'plan'\nsandbox = { mode = 'read-only' }\n"),
        ("sub_agents = ['reader']\n", "sub_agents = ['reader']\nsandbox = { network = false }\n"),
        (
            "sub_agents = ['reader']\n",
            "sub_agents = ['reader']\npermissions = { deny = ['bash'] }\n",
        ),
        ("[permissions]\n", "[permissions]\nask = ['delegate(reader)']\n"),
        ("[permissions]\n", "[limits]\nmax_depth = 0\n[permissions]\n"),
    ] {
        let desk = allowing(PLAN);
        let text = desk.read("agents.toml");
        assert!(text.contains(from), "{from}");
        desk.write("agents.toml", &text.replacen(from, to, 1));
        let run = desk.call(&["run"]);
        assert_eq!(run.code, 6, "{to}: {}{}", run.out, run.err);
    }
}

#[test]
fn what_a_proposed_task_says_of_its_work_holds_from_the_first_moment() {
    let desk = desk(
        "[tasks.x]\nagent = \"reader\"\nprompt = \"x\"\nmodel = \"other\"\nmax_turns = 3\n\
         sandbox = { mode = \"read-only\" }\n\
         [tasks.y]\nrun = \"touch made\"\nsandbox = { mode = \"read-only\" }\n",
        "[models.other]\nprovider = 'offline'\nmodel = 'm'\n",
    );
    // Without the proposed tasks, nothing in the file runs a command.
    let text =
        desk.read("agents.toml").replace("run = 'echo one two'", "agent = 'other'\nprompt = 'x'");
    let reader = "[agents.reader]\n";
    desk.write("agents.toml", &text.replace(reader, &format!("{reader}tools = ['write_file']\n")));
    let script = desk.read("script.toml");
    let write = "[[rules]]\nagent = 'reader'\nturn = 1\n[[rules.calls]]\ntool = 'write_file'\n\
                 input = { path = 'made', content = 'x' }\n";
    desk.write("script.toml", &format!("{write}{script}"));
    assert_eq!(desk.call(&["run"]).code, 6);
    let id = desk.json(&["pending", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(desk.call(&["approve", &id]).code, 0);
    let resumed = desk.call(&["resume"]);
    let events = desk.json(&["tail", "--json"]);
    let denied = events.iter().any(|event| {
        event["type"] == "tool.finished" && event["data"].to_string().contains("read-only")
    });
    assert!(denied, "{}{}", resumed.out, resumed.err);
    let of_x = events.iter().find(|event| event["type"] == "agent.spawned" && event["task"] == "x");
    assert!(of_x.is_some_and(|event| event.to_string().contains("x/reader")), "{of_x:?}");
    assert!(!resumed.out.contains("no agent"), "{}{}", resumed.out, resumed.err);
    if crate::support::without_sandbox().is_none() {
        assert!(!desk.path().join("made").exists(), "{}{}", resumed.out, resumed.err);
    }
}

#[test]
fn a_new_run_that_reuses_results_has_the_proposed_tasks_too() {
    let desk = allowing(PLAN);
    desk.good(&["run"]);
    desk.good(&["run", "--reuse"]);
    let state = |task: &str| {
        let row = &desk.json(&["show", &format!("desk/{task}"), "--json"])[0];
        row["state"].as_str().expect("a state").to_owned()
    };
    let tasks = ["early", "plan", "each[0]", "each[1]", "sum"];
    assert_eq!(tasks.map(state), ["reused", "completed", "reused", "reused", "reused"]);
}
