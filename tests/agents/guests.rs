//! What the supervisor has done for its tasks, and what becomes of the run when it panics or takes long.

use std::time::{Duration, Instant};

use callsheet::fault::Helper;
use serde_json::Value;

use crate::support::desk::{Desk, Done, Live, wait};

/// An expression over which MiniJinja panics.
const PANICS: &str = "4 is divisibleby(0)";

/// Tasks that each evaluate it at another place.
fn tasks() -> String {
    let agent = "agent = 'a'\nprompt = 'go'\n";
    let places = [
        ("when", format!("run = 'true'\nwhen = '{PANICS}'\n")),
        ("output_file", format!("run = 'echo x'\noutput_file = '{{{{ {PANICS} }}}}'\n")),
        ("stdin", format!("run = 'cat'\nstdin = '{{{{ {PANICS} }}}}'\n")),
        ("cwd", format!("run = 'true'\ncwd = '{{{{ {PANICS} }}}}'\n")),
        ("env", format!("run = 'true'\nenv = {{ X = '{{{{ {PANICS} }}}}' }}\n")),
        ("idempotency_key", format!("run = 'true'\nidempotency_key = '{{{{ {PANICS} }}}}'\n")),
        ("prompt", format!("agent = 'a'\nprompt = '{{{{ {PANICS} }}}}'\n")),
        ("foreach", format!("{agent}foreach = '[{PANICS}]'\n")),
        (
            "foreach_key",
            format!("{agent}foreach = '[1]'\nforeach_key = '{{{{ item }}}}{{{{ {PANICS} }}}}'\n"),
        ),
        ("message", format!("approval = {{ message = '{{{{ {PANICS} }}}}' }}\n")),
        ("show", format!("approval = {{ message = 'ok?', show = ['{PANICS}'] }}\n")),
        ("until", format!("{agent}loop = {{ until = '{PANICS}', max_iterations = 2 }}\n")),
        ("checks", format!("{agent}checks = [{{ agent = 'a', prompt = '{{{{ {PANICS} }}}}' }}]\n")),
    ];
    places.iter().map(|(name, text)| format!("[tasks.{name}]\n{text}")).collect()
}

#[test]
fn foreign_code_that_panics_fails_its_task_and_nothing_else() {
    let rest = format!(
        "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n{}\
         [tasks.good]\nrun = 'echo good'\n",
        tasks()
    );
    let desk = Desk::offline(&rest, "[[rules]]\nsay = 'done'\n");
    let run = desk.call(&["run", "--keep-going"]);
    assert_eq!(run.code, 8, "{}{}", run.out, run.err);
    assert!(!run.err.contains("panicked at"), "{}", run.err);
    let ended = |kind: &str| {
        let events = desk.json(&["tail", "--json"]);
        events.into_iter().filter(|event| event["type"] == kind).collect::<Vec<_>>()
    };
    let failed = ended("task.failed");
    assert_eq!(failed.len(), 13, "{failed:?}");
    for event in &failed {
        let told = event["data"].to_string();
        assert!(told.contains("the template language crashed"), "{told}");
        assert!(told.contains("template") || told.contains("bad_items"), "{told}");
    }
    assert_eq!(ended("task.completed").len(), 1);
    // The same expressions fail again, each once.
    let again = desk.call(&["resume", "--retry-failed"]);
    assert_eq!(again.code, 8, "{}{}", again.out, again.err);
    assert_eq!(ended("task.failed").len(), 26);
}

#[test]
fn a_plan_of_a_model_cannot_poison_the_run() {
    let plan = format!("[tasks.x]\nagent = \"reader\"\nprompt = \"x\"\nwhen = \"{PANICS}\"\n");
    let desk = crate::agents::proposals::allowing(&plan);
    let run = desk.call(&["run"]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    assert_eq!(desk.call(&["resume", "--retry-failed"]).code, 1);
}

/// Runs a desk while a helper suffers this fault.
fn with_fault(desk: &Desk, arguments: &[&str], fault: &str) -> Done {
    Done::of(desk.command(arguments).env("CALLSHEET_FAULT", fault))
}

/// Two processes die with this fault; returns how the third ended, which has it too.
fn after_two_deaths(desk: &Desk, fault: &str) -> Done {
    for verb in ["run", "resume"] {
        let died = with_fault(desk, &[verb], fault);
        assert!(died.code < 0 || died.code == 134, "{fault}: {died:?}");
    }
    with_fault(desk, &["resume"], fault)
}

/// The events of this type.
fn all_of(desk: &Desk, kind: &str) -> Vec<Value> {
    desk.json(&["tail", "--json"]).into_iter().filter(|event| event["type"] == kind).collect()
}

#[test]
fn what_ended_the_process_twice_fails_its_task_and_nothing_else() {
    let agent = "agent = 'a'\nprompt = '{{ run.id }}'\n";
    for (fault, kind, of) in [
        ("evaluation:abort@bad", "template", "when = 'run.id != 1'\n"),
        ("evaluation:abort@bad", "template", "foreach = '[1, 2]'\n"),
        ("evaluation:abort@bad", "template", "output_file = '{{ run.id }}'\n"),
        ("output-read:abort@bad", "crashed", ""),
    ] {
        let rest = format!(
            "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n[limits]\nfail_fast = false\n\
             [tasks.bad]\n{agent}{of}[tasks.beside]\n{agent}[tasks.too]\n{agent}"
        );
        // Long enough for a thread of its own.
        let desk = Desk::offline(&rest, &format!("[[rules]]\nsay = '{}'\n", "x".repeat(20_000)));
        let third = after_two_deaths(&desk, fault);
        assert_eq!(third.code, 8, "{fault}: {third:?}");
        let failed = all_of(&desk, "task.failed");
        let [failed] = failed.as_slice() else { panic!("{fault}: {failed:?}") };
        let failure = &failed["data"]["failure"];
        assert_eq!((&failed["task"], &failure["kind"]), (&"bad".into(), &kind.into()));
        let message = failure["message"].as_str().expect("a message");
        assert!(
            message.contains("ended 2 times") && message.contains("--retry-failed"),
            "{fault}: {message}"
        );
        // The way on that it names.
        let again = desk.call(&["resume", "--retry-failed"]);
        assert_eq!(again.code, 0, "{fault}: {again:?}");
    }
}

#[test]
fn a_proposal_that_ended_the_process_twice_is_refused() {
    let desk =
        crate::agents::proposals::allowing("[tasks.x]\nagent = \"reader\"\nprompt = \"x\"\n");
    let third = after_two_deaths(&desk, "proposal:abort");
    assert!(third.code >= 0 && third.code != 134, "{third:?}");
    let told = all_of(&desk, "tool.finished");
    assert!(told.iter().any(|event| event.to_string().contains("ended 2 times")), "{told:?}");
}

/// A run in which every helper of the supervisor has something to do, except those of a resume.
fn busy() -> Desk {
    Desk::offline(
        "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['glob', 'read_file']\n\
         [tasks.text]\nagent = 'a'\nprompt = 'go'\noutput_file = 'out/text'\n\
         [tasks.form]\nrun = 'echo {}'\noutput = 'json'\noutput_schema = {}\n\
         [tasks.path]\nrun = 'test -n \"$P\"'\nenv = { P = '{{ tasks.text.output_path }}' }\n\
         depends_on = ['text', 'form']\n\
         [tasks.slow]\nrun = 'sleep 0.2'\ntimeout = '20s'\n\
         [hooks]\non_exit = ['true']\n",
        "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'glob'\ninput = { pattern = '*' }\n\
         [[rules.calls]]\ntool = 'glob'\ninput = { pattern = '*.toml' }\n\
         [[rules]]\nsay = 'done'\n",
    )
}

/// The delay of a helper, in milliseconds.
const DELAY: u64 = 600;

/// The most runs with a delayed helper before it is said to delay a time limit.
const ATTEMPTS: usize = 6;

/// The time limits of tasks that never end, in milliseconds.
const LIMITS: [u64; 3] = [400, 550, 700];

/// The same run with tasks that are ended by their time limits.
fn limited() -> Desk {
    let desk = busy();
    let tasks = LIMITS
        .map(|limit| format!("[tasks.limited-{limit}]\nrun = 'sleep 60'\ntimeout = '{limit}ms'\n"));
    desk.write("agents.toml", &(desk.read("agents.toml") + &tasks.concat()));
    desk
}

/// How late the time limits fired, in milliseconds: the least of them, because the machine may be busy at the moment
/// of one.
fn lateness(desk: &Desk) -> u64 {
    let (events, day) = (desk.json(&["tail", "--json"]), 24 * 3_600_000);
    let late = LIMITS.map(|limit| {
        let of = |kind| at(&events, &format!("limited-{limit}"), kind);
        ((of("task.failed") + day - of("task.started")) % day).saturating_sub(limit)
    });
    late.into_iter().min().unwrap_or(0)
}

#[test]
fn a_helper_that_panics_or_is_late_ends_the_run_in_words() {
    let plain = busy().call(&["run"]);
    assert_eq!(plain.code, 0, "{}{}", plain.out, plain.err);
    let check = |helper: &Helper| {
        let name = helper.name();
        let desk = busy();
        let crashed = with_fault(&desk, &["run"], &format!("{name}:panic"));
        assert!([0, 1, 70, 74].contains(&crashed.code), "{name}: {crashed:?}");
        // Whatever it was, the run goes on without the fault.
        let mut resumed = desk.call(&["resume", "--retry-failed"]);
        if resumed.out.contains("callsheet crashed over it") {
            // The task was given up, and this process is the first that could record it.
            resumed = desk.call(&["resume", "--retry-failed"]);
        }
        assert!([0, 2].contains(&resumed.code), "{name}: {crashed:?} {resumed:?}");
        let own = match helper {
            // Each message of the supervisor waits for all before it.
            Helper::Handler => u64::MAX / 2,
            // What carries the time limit itself, and its record.
            Helper::Recorder | Helper::Timer => 2 * DELAY,
            // The limit has fired, and what it ends is late: the step, or the look at what its command changed.
            Helper::Step | Helper::Watch => DELAY,
            _ => 0,
        };
        // A machine that is busy makes a limit late now and then; a helper that is waited for, each time.
        let run = |fault: &str| {
            let desk = limited();
            let late = with_fault(&desk, &["run", "--keep-going"], fault);
            assert_eq!(late.code, 5, "{name}: {late:?}");
            lateness(&desk)
        };
        let is_in_time = |_| {
            let late = run(&format!("{name}:delay:{DELAY}"));
            late <= 250 + own || late <= 250 + own + run("").min(DELAY / 2)
        };
        assert!((0..ATTEMPTS).any(is_in_time), "{name} is waited for");
    };
    std::thread::scope(|scope| {
        for some in Helper::ALL.chunks(Helper::ALL.len().div_ceil(3)) {
            scope.spawn(move || some.iter().for_each(check));
        }
    });
}

/// The time of day of the first such event of a task, in milliseconds.
fn at(events: &[Value], task: &str, kind: &str) -> u64 {
    let event = events.iter().find(|event| event["type"] == kind && event["task"] == task);
    let event = event.unwrap_or_else(|| panic!("no {kind} of {task}: {events:?}"));
    let time = event["ts"].as_str().and_then(|ts| ts.split('T').nth(1)).expect("a time");
    let parts: Vec<u64> = time
        .trim_end_matches('Z')
        .split([':', '.'])
        .map(|part| part.parse().expect("a number"))
        .collect();
    ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1_000 + parts[3]
}

#[test]
fn slow_templates_delay_no_time_limit_and_no_cancel() {
    let desk = Desk::commands(
        "[tasks.limited]\nrun = 'sleep 30'\ntimeout = '1s'\n\
         [tasks.slow]\nrun = 'true'\nenv = { X = '{{ run.id }}' }\n\
         [tasks.when]\nrun = 'true'\nwhen = 'run.id == 1'\n\
         [tasks.each]\nrun = 'true'\nforeach = '[1, 2]'\n",
    );
    let fault = "evaluation:delay:6000";
    let live = Live::starting(desk.command(&["run", "--keep-going"]).env("CALLSHEET_FAULT", fault));
    desk.wait_for_event("task.started", |event| event["task"] == "limited");
    let began = Instant::now();
    for task in ["slow", "when", "each"] {
        desk.good(&["cancel", &format!("desk/{task}")]);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let ended = live.end();
    assert_eq!(ended.code, 5, "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "an evaluation holds up nobody");
    let events = desk.json(&["tail", "--json"]);
    let limited = |kind| at(&events, "limited", kind);
    let day = 24 * 3_600_000;
    let took = (limited("task.failed") + day - limited("task.started")) % day;
    assert!((1_000..1_250).contains(&took), "{took} ms");
    for task in ["slow", "when", "each"] {
        at(&events, task, "task.cancelled");
    }
}

/// A run of one long command, whose supervisor stands still for twenty seconds once it has begun: long enough for
/// somebody to look who has to wait for a processor.
fn stuck() -> (Desk, Live) {
    let desk = Desk::commands("[tasks.long]\nrun = 'sleep 600'\ntimeout = '4s'\n");
    let fault = "handler:delay:20000:4";
    let live = Live::starting(desk.command(&["run"]).env("CALLSHEET_FAULT", fault));
    desk.wait_for_event("agent.spawned", |_| true);
    (desk, live)
}

#[test]
fn a_supervisor_that_does_not_answer_is_said_to_be_busy() {
    let (desk, live) = stuck();
    let busy = wait("a busy supervisor", || {
        let rows = desk.json(&["ps", "--json"]);
        let row = rows.first()?;
        // Without a reason to wait it would say why the run has ended.
        assert_eq!(row["state"], "running", "{row}");
        let says = row["waiting_for"].as_str()?.to_owned();
        says.contains("busy for").then_some(says)
    });
    assert!(busy.starts_with("the supervisor: busy for "), "{busy}");
    let cancelled = desk.call(&["cancel", "desk"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    assert!(cancelled.err.contains("the supervisor of the run is busy for "), "{cancelled:?}");
    assert!([4, 5, 130].contains(&live.end().code));
}

#[test]
fn agents_with_long_contexts_delay_no_time_limit() {
    let page = "[[rules.calls]]\ntool = 'read_file'\ninput = { path = 'page.txt' }\n".repeat(12);
    let desk = Desk::offline(
        "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['read_file']\n\
         [tasks.limited]\nrun = 'sleep 60'\ntimeout = '3s'\n\
         [tasks.a]\nagent = 'a'\nprompt = 'go'\n[tasks.b]\nagent = 'a'\nprompt = 'go'\n\
         [tasks.c]\nagent = 'a'\nprompt = 'go'\n[tasks.d]\nagent = 'a'\nprompt = 'go'\n",
        &format!("[[rules]]\nturn = 1\n{page}[[rules]]\nsay = 'done'\n"),
    );
    desk.write("page.txt", &"a line of forty characters, or nearly so\n".repeat(400));
    let run = with_fault(&desk, &["run", "--keep-going"], "context:delay:2000");
    assert_eq!(run.code, 5, "{run:?}");
    let events = desk.json(&["tail", "--json"]);
    let took = at(&events, "limited", "task.failed") - at(&events, "limited", "task.started");
    assert!((3_000..3_250).contains(&took), "{took} ms");
    // Two agents at a time were at it, each for two seconds at least.
    let long = at(&events, "d", "task.completed") - at(&events, "d", "task.started");
    assert!(long >= 2_000, "{long} ms");
}

#[test]
fn a_supervisor_that_crashes_is_started_again_once() {
    for message in [2, 5] {
        let desk = busy();
        let run = with_fault(&desk, &["run"], &format!("handler:panic:{message}"));
        assert!(run.err.contains("the run goes on from its journal"), "{run:?}");
        // A command that was at work is not run again: its task fails, as after the death of a process.
        let events = desk.json(&["tail", "--json"]);
        let of =
            |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
        let lost = of("task.failed");
        assert_eq!(run.code, i32::from(!lost.is_empty()), "{message}: {run:?}");
        for event in lost {
            assert_eq!(event["data"]["failure"]["kind"], "interrupted", "{event}");
        }
        assert_eq!((of("run.opened").len(), of("run.completed").len()), (2, 1), "{message}");
    }
    let run = with_fault(&busy(), &["run"], "handler:panic");
    assert_eq!(run.code, 70, "{run:?}");
}

#[test]
fn a_task_over_which_the_supervisor_crashes_again_fails_and_the_others_go_on() {
    for task in ["path", "form"] {
        let desk = busy();
        let run = with_fault(&desk, &["run", "--keep-going"], &format!("handler:panic@{task}"));
        assert_eq!(run.code, 70, "{task}: {run:?}");
        assert!(run.err.contains(&format!("and `{task}` fails")), "{run:?}");
        let events = desk.json(&["tail", "--json"]);
        let failed =
            events.iter().find(|event| event["type"] == "task.failed" && event["task"] == task);
        let failure = &failed.expect("it failed")["data"]["failure"];
        assert_eq!(failure["kind"], "internal", "{failure}");
        assert!(failure["message"].to_string().contains("crashed over it"), "{failure}");
        let last = events.last().expect("an event");
        assert_eq!(last["type"], "run.completed", "{last}");
        assert_eq!(last["data"]["tasks"]["text"]["state"], "completed", "{last}");
        // The next process tries it once, as a person asked.
        let again = desk.call(&["resume", "--retry-failed"]);
        assert_eq!(again.code, 0, "{again:?}");
    }
}
