//! What a person is told to type at each end of a run that needs one: each command works as it is printed, and leads
//! on. One row for each end state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::runtime::Runtime;

use super::printed::told;
use crate::support::answer::{Answer, Fault};
use crate::support::asked::Asked;
use crate::support::desk::{Desk, Done, wait};
use crate::support::provider::Provider;

const ALLOW: &str = "default = 'allow'";
const DENY: &str = "default = 'deny'";
const PAUSE: &str = "default = 'ask'\nnon_interactive = 'pause'";

const ASKS: &str = "[[rules]]\nturn = 1\n\
    calls = [{ tool = 'ask_person', input = { question = 'Which colour?' } }]\n\
    [[rules]]\nsay = 'done'\n";
const TOUCHES: &str = "[[rules]]\nturn = 1\n\
    calls = [{ tool = 'bash', input = { command = 'touch made' } }]\n\
    [[rules]]\nsay = 'done'\n";
const TOUCHES_OR_GIVES_UP: &str = "[[rules]]\nturn = 1\n\
    calls = [{ tool = 'bash', input = { command = 'touch made' } }]\n\
    [[rules]]\nwhen = 'last[0].is_error'\n\
    calls = [{ tool = 'give_up', input = { reason = 'it is denied' } }]\n\
    [[rules]]\nsay = 'done'\n";
const LOOKS: &str = "[[rules]]\nturn = 1\n\
    calls = [{ tool = 'glob', input = { pattern = '*.toml' } }]\n\
    [[rules]]\nsay = 'done'\n";

/// The verbs that only look: all of their commands that are printed are typed.
const LOOKING: [&str; 7] = ["explain", "pending", "ps", "report", "show", "tail", "why"];

/// A run at its end.
struct Ended {
    desk: Desk,
    done: Done,
    /// Its provider, and the switch with which that begins to answer.
    provider: Option<(Provider, Arc<AtomicBool>)>,
}

impl Ended {
    fn of((desk, done): (Desk, Done)) -> Self {
        Self { desk, done, provider: None }
    }

    /// All commands that a person is told: by the run itself, and by the verbs that say how it stands.
    fn commands(&self) -> Vec<String> {
        let mut text = format!("{}\n{}\n", self.done.out, self.done.err);
        for verb in ["ps", "why", "pending", "report"] {
            text.push_str(&self.desk.good(&[verb]));
            text.push('\n');
        }
        told(&text)
    }

    fn provider_answers(&self) {
        self.provider.as_ref().expect("a provider").1.store(true, Ordering::SeqCst);
    }

    fn change(&self, from: &str, to: &str) {
        let text = self.desk.read("agents.toml");
        assert!(text.contains(from), "{text}");
        self.desk.write("agents.toml", &text.replace(from, to));
    }

    /// The state of the newest run.
    fn state(&self) -> String {
        let newest = self.desk.runs().pop().expect("a run");
        let newest = newest.file_name().expect("a name").to_string_lossy().into_owned();
        let rows = self.desk.json(&["ps", "-a", "--json"]);
        let row = rows.iter().find(|row| row["kind"] == "run" && row["run"] == newest);
        row.expect("its row")["state"].as_str().expect("a state").to_owned()
    }
}

/// A way on from an end.
struct Lead {
    /// The commands that are typed one after the other, each by its verb and its flags. All but the last one succeed.
    commands: &'static [&'static str],
    /// What a person puts right before.
    mend: fn(&Ended),
    /// The exit code of the last command.
    code: i32,
    /// The state of the newest run after it.
    state: &'static str,
    /// Fails unless the work went on.
    proof: fn(&Ended),
}

/// An end state.
struct End {
    what: &'static str,
    make: fn(&Runtime) -> Ended,
    /// The exit code of the run; -1 if it was killed.
    code: i32,
    leads: Vec<Lead>,
}

/// The verb of a command, with its flags.
fn shape(command: &str) -> String {
    let words = command.split_whitespace().skip(1).enumerate();
    let words = words.filter(|(at, word)| *at == 0 || word.starts_with("--"));
    words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
}

/// A command with something in place of what a person fills in.
fn filled(command: &str) -> String {
    command.split(' ').map(filled_word).collect::<Vec<_>>().join(" ")
}

fn filled_word(word: &str) -> &str {
    match word {
        "TEXT" => "'as you like'",
        "USD" => "100",
        "N" => "1000000",
        "TIME" => "1h",
        word => word,
    }
}

/// Types all that is told at each of these ends.
fn each_leads_on(ends: &[End]) {
    let runtime = Runtime::new().expect("a runtime");
    for end in ends {
        for (number, lead) in end.leads.iter().enumerate() {
            let ended = (end.make)(&runtime);
            let what = format!("{}: {:?}", end.what, lead.commands);
            let Done { code, out, err } = &ended.done;
            assert_eq!(*code, end.code, "{what}: {out}{err}");
            let commands = ended.commands();
            if number == 0 {
                type_what_looks(end, &ended.desk, &commands);
            }
            (lead.mend)(&ended);
            type_lead(&what, &ended.desk, &commands, lead);
            assert_eq!(ended.state(), lead.state, "{what}");
            (lead.proof)(&ended);
        }
    }
}

/// Types what only looks, and sees that each other command is in one of the leads.
fn type_what_looks(end: &End, desk: &Desk, commands: &[String]) {
    for command in commands {
        let shape = shape(command);
        let verb = shape.split(' ').next().unwrap_or_default();
        if LOOKING.contains(&verb) {
            let done = desk.shell(&filled(command));
            assert_eq!(done.code, 0, "{}: {command}: {}{}", end.what, done.out, done.err);
            assert!(!done.out.is_empty(), "{}: {command}", end.what);
            continue;
        }
        let is_tried = end.leads.iter().any(|lead| lead.commands.contains(&shape.as_str()));
        assert!(is_tried, "{}: nobody tries `{command}`", end.what);
    }
}

fn type_lead(what: &str, desk: &Desk, commands: &[String], lead: &Lead) {
    let last = lead.commands.len() - 1;
    for (number, wanted) in lead.commands.iter().enumerate() {
        let command = commands.iter().find(|command| shape(command) == *wanted);
        let command = command.unwrap_or_else(|| panic!("{what}: not told: {commands:#?}"));
        let done = desk.shell(&filled(command));
        let said = format!("{what}: {command}: {}{}", done.out, done.err);
        assert_eq!(done.code, if number == last { lead.code } else { 0 }, "{said}");
        assert!(!done.err.contains("nothing is left to do"), "{said}");
    }
}

fn nothing(_: &Ended) {}

fn made(ended: &Ended) {
    assert!(ended.desk.path().join("made").exists());
}

fn not_made(ended: &Ended) {
    assert!(!ended.desk.path().join("made").exists());
}

/// A lead that goes on to a good end.
fn to_the_end(commands: &'static [&'static str], proof: fn(&Ended)) -> Lead {
    Lead { commands, mend: nothing, code: 0, state: "completed", proof }
}

/// Runs an agent with this tool, this default of its permissions, and this script.
fn agent(tool: &str, rules: &str, more: &str, script: &str) -> Ended {
    let agent = format!(
        "[agents.a]\ninstructions = 'x'\ntools = ['{tool}', 'give_up']\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n{more}"
    );
    let desk = Desk::offline(&agent, script);
    let text = desk.read("agents.toml").replace("default = \"allow\"", rules);
    desk.write("agents.toml", &text);
    let done = desk.call(&["run"]);
    Ended::of((desk, done))
}

fn commands(tasks: &str) -> Ended {
    let desk = Desk::commands(tasks);
    let done = desk.call(&["run"]);
    Ended::of((desk, done))
}

/// Runs an agent whose provider refuses until it is switched on.
fn refused(runtime: &Runtime, more: &str, of_task: &str, refusal: fn() -> Answer) -> Ended {
    let switch = Arc::new(AtomicBool::new(false));
    let is_on = switch.clone();
    let answer = move |_: &Asked| match is_on.load(Ordering::SeqCst) {
        true => Answer::text("done"),
        false => refusal(),
    };
    let provider = runtime.block_on(Provider::start(answer));
    let desk = Desk::empty();
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = 'desk'\n\
             [providers.main]\nkind = 'anthropic'\nbase_url = '{}'\n{more}\
             [models.main]\nprovider = 'main'\nmodel = 'm'\n\
             [agents.a]\nmodel = 'main'\ninstructions = 'x'\n\
             [tasks.one]\nagent = 'a'\nprompt = 'go'\n{of_task}",
            provider.base_url()
        ),
    );
    let done = desk.call(&["run"]);
    Ended { desk, done, provider: Some((provider, switch)) }
}

fn no_quota() -> Answer {
    let error = json!({
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "resets_in_seconds": 86_400,
    });
    let body = json!({"type": "error", "error": error}).to_string();
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Answer::fault(Fault::Http { status: 429, headers, body })
}

#[test]
fn what_waits_for_a_person_goes_on_with_each_answer() {
    let question = End {
        what: "a question",
        make: |_| agent("ask_person", PAUSE, "", ASKS),
        code: 6,
        leads: vec![to_the_end(&["answer", "resume"], |ended| {
            let read = ended.desk.good(&["show", "@one", "--transcript"]);
            assert!(read.contains("as you like"), "{read}");
        })],
    };
    let permission = End {
        what: "a permission",
        make: |_| agent("bash", PAUSE, "", TOUCHES),
        code: 6,
        leads: vec![
            to_the_end(&["approve", "resume"], made),
            to_the_end(&["reject --reason", "resume"], |ended| {
                not_made(ended);
                let read = ended.desk.good(&["show", "@one", "--transcript"]);
                assert!(read.contains("as you like"), "{read}");
            }),
        ],
    };
    let gate = End {
        what: "a gate",
        make: |_| {
            commands(
                "[tasks.gate]\napproval = { message = 'Well?' }\n\
                 [tasks.after]\nrun = 'touch made'\ndepends_on = ['gate']\n",
            )
        },
        code: 6,
        leads: vec![
            to_the_end(&["approve", "resume"], made),
            Lead {
                commands: &["reject --reason", "resume"],
                mend: nothing,
                code: 7,
                state: "failed",
                proof: not_made,
            },
        ],
    };
    each_leads_on(&[question, permission, gate]);
}

#[test]
fn what_ran_short_goes_on_when_there_is_more() {
    let budget = End {
        what: "the budget of the run",
        make: |_| agent("glob", ALLOW, "[budget]\nmax_calls = 1\n", LOOKS),
        code: 6,
        leads: vec![to_the_end(&["budget --max-calls", "resume"], nothing)],
    };
    let of_task = End {
        what: "the budget of a task",
        make: |_| agent("glob", ALLOW, "[tasks.one.budget]\nmax_calls = 1\n", LOOKS),
        code: 6,
        leads: vec![to_the_end(&["budget --max-calls", "resume"], nothing)],
    };
    let quota = End {
        what: "a quota",
        make: |runtime| {
            refused(runtime, "[providers.main.rate_limit]\non_quota = 'pause'\n", "", no_quota)
        },
        code: 3,
        leads: vec![Lead { mend: Ended::provider_answers, ..to_the_end(&["resume"], nothing) }],
    };
    let disk = End {
        what: "a full disk",
        make: |_| {
            let task = |n: u32| format!("[tasks.t{n}]\nidempotent = true\nrun = 'true'\n");
            let tasks: String = (0..60).map(task).collect();
            let desk = Desk::commands(&format!("[limits]\norphan_grace = '0s'\n{tasks}"));
            // Without the signal, a write beyond the limit fails as one to a full disk does.
            let done = desk.shell("trap '' XFSZ; ulimit -f 64; exec callsheet run");
            Ended::of((desk, done))
        },
        code: 74,
        leads: vec![to_the_end(&["resume"], nothing)],
    };
    each_leads_on(&[budget, of_task, quota, disk]);
}

/// The three ways on from a task that failed because its provider was down.
fn leads_from_a_provider_that_is_back() -> Vec<Lead> {
    vec![
        Lead { mend: Ended::provider_answers, ..to_the_end(&["resume --retry-failed"], nothing) },
        Lead {
            mend: |ended| {
                ended.provider_answers();
                ended.change("prompt = 'go'", "prompt = 'go on'");
            },
            ..to_the_end(&["resume --accept-changes"], |ended| {
                let read = ended.desk.good(&["show", "/one", "--output"]);
                assert!(read.contains("done"), "{read}");
            })
        },
        Lead {
            mend: Ended::provider_answers,
            ..to_the_end(&["fork"], |ended| assert_eq!(ended.desk.runs().len(), 2))
        },
    ]
}

/// Fails unless the task has begun so many times.
fn begun(ended: &Ended, times: usize) {
    let events = ended.desk.json(&["tail", "--json"]);
    let begun = events.iter().filter(|event| event["type"] == "task.started");
    assert_eq!(begun.count(), times);
}

#[test]
fn what_failed_begins_again_as_it_was_and_as_it_was_changed() {
    let down = End {
        what: "a provider that is down",
        make: |runtime| {
            let once = "[defaults.retry]\nmax_attempts = 1\n";
            refused(runtime, once, "", || Answer::fault(Fault::ServerError))
        },
        code: 3,
        leads: leads_from_a_provider_that_is_back(),
    };
    let waits = End {
        what: "a failure that waits for a resume",
        make: |runtime| {
            let once = "[defaults.retry]\nmax_attempts = 1\n";
            let pauses = "on_failure = 'pause'\n";
            refused(runtime, once, pauses, || Answer::fault(Fault::ServerError))
        },
        code: 3,
        leads: vec![Lead { mend: Ended::provider_answers, ..to_the_end(&["resume"], nothing) }],
    };
    let denied = End {
        what: "a denied call",
        make: |_| agent("bash", DENY, "", TOUCHES_OR_GIVES_UP),
        code: 7,
        leads: vec![
            // Nothing has changed, so the same comes of it.
            Lead {
                commands: &["resume --retry-failed"],
                mend: nothing,
                code: 7,
                state: "failed",
                proof: |ended| begun(ended, 2),
            },
            Lead {
                mend: |ended| ended.change(DENY, ALLOW),
                ..to_the_end(&["resume --accept-changes"], made)
            },
            Lead {
                commands: &["fork"],
                mend: nothing,
                code: 7,
                state: "failed",
                proof: |ended| assert_eq!(ended.desk.runs().len(), 2),
            },
        ],
    };
    each_leads_on(&[down, waits, denied]);
}

/// A run whose command waits for ever the first time.
fn at_work(more: &str) -> (Desk, crate::support::desk::Live) {
    let desk = Desk::commands(&format!(
        "[limits]\ngrace_period = '100ms'\norphan_grace = '0s'\n[tasks.one]\n{more}\
         run = 'test -e begun && touch made || {{ touch begun; sleep 300; }}'\n"
    ));
    let live = desk.start(&["run"]);
    wait("the command", || desk.path().join("begun").exists().then_some(()));
    (desk, live)
}

#[test]
fn what_was_ended_from_outside_goes_on() {
    let cancelled = End {
        what: "cancelled",
        make: |_| {
            let (desk, live) = at_work("");
            desk.good(&["cancel", "desk"]);
            let done = live.end();
            Ended::of((desk, done))
        },
        code: 1,
        leads: vec![
            to_the_end(&["resume --retry-failed"], made),
            Lead {
                mend: |ended| ended.change("test -e begun && ", "test -e agents.toml && "),
                ..to_the_end(&["resume --accept-changes"], made)
            },
            to_the_end(&["fork"], |ended| {
                made(ended);
                assert_eq!(ended.desk.runs().len(), 2);
            }),
        ],
    };
    let killed = End {
        what: "killed",
        make: |_| {
            let (desk, live) = at_work("idempotent = true\n");
            live.signal("KILL");
            let done = live.end();
            Ended::of((desk, done))
        },
        code: -1,
        leads: vec![to_the_end(&["resume"], made)],
    };
    each_leads_on(&[cancelled, killed]);
}
