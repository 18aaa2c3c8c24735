//! The table of every way to end in `docs/failures.md`, row by row through the real program.

use std::collections::BTreeMap;

use crate::support::desk::{Desk, Done, wait};

const AGENT: &str = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
    tools = ['bash', 'glob', 'give_up']\nmax_turns = 2\n\
    [tasks.one]\nagent = 'a'\nprompt = 'go'\n";
const SAYS: &str = "[[rules]]\nsay = 'all is done'\n";
const SLOW: &str = "[[rules]]\nsay = 'x'\ndelay_ms = 60000\n";
const DENIED: &str =
    "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'bash'\ninput = { command = 'ls' }\n";

/// A row of the table: the end, and the five columns behind it.
type Row = [String; 6];

/// How a row is brought about: a workspace and what is done in it.
type Way = Box<dyn FnOnce() -> (Desk, Done) + Send>;

fn rows() -> Vec<Row> {
    let page = include_str!("../../docs/failures.md");
    let table = page.split("## Every way to end").nth(1).expect("the section");
    let table = table.split("\n## ").next().expect("its end");
    let lines = table.lines().filter(|line| line.starts_with("| ")).skip(2);
    lines
        .map(|line| {
            let cells = line.trim_matches('|').split(" | ").map(str::trim);
            let cells: Vec<_> =
                cells.map(|cell| cell.trim_matches('|').trim().to_owned()).collect();
            cells.try_into().unwrap_or_else(|cells| panic!("six columns, not {cells:?}"))
        })
        .collect()
}

fn plain(cell: &str) -> &str {
    cell.trim_matches('`')
}

fn run(desk: Desk, arguments: &[&str]) -> (Desk, Done) {
    let done = desk.call(&[&["run"], arguments].concat());
    (desk, done)
}

fn agent(more: &str, script: &str) -> Way {
    let (more, script) = (more.to_owned(), script.to_owned());
    Box::new(move || run(Desk::offline(&format!("{AGENT}{more}"), &script), &[]))
}

fn denied(script: &'static str, arguments: &'static [&'static str]) -> Way {
    Box::new(move || {
        let desk = Desk::offline(AGENT, &format!("{DENIED}{script}"));
        let text = desk.read("agents.toml").replace("default = \"allow\"", "default = 'deny'");
        desk.write("agents.toml", &text);
        run(desk, arguments)
    })
}

fn commands(tasks: &'static str) -> Way {
    Box::new(move || run(Desk::commands(tasks), &[]))
}

/// A command that waits, and what happens to its run.
fn while_it_works(
    what: impl FnOnce(&Desk, crate::support::desk::Live) -> Done + Send + 'static,
) -> Way {
    Box::new(move || {
        let desk = Desk::commands("[tasks.one]\nrun = 'touch begun; exec sleep 60'\n");
        let live = desk.start(&["run"]);
        wait("the command", || desk.path().join("begun").exists().then_some(()));
        let done = what(&desk, live);
        (desk, done)
    })
}

fn ways() -> BTreeMap<&'static str, Way> {
    let schema = "output_retries = 0\n[tasks.one.output_schema]\nrequired = ['x']\n";
    let gives_up = "[[rules]]\n[[rules.calls]]\ntool = 'give_up'\ninput = { reason = 'no' }\n";
    let endless = "[[rules]]\n[[rules.calls]]\ntool = 'glob'\ninput = { pattern = '*.none' }\n";
    let gate = "[tasks.one.approval]\nmessage = 'Go on?'\n";
    let mut ways: BTreeMap<&str, Way> = BTreeMap::from([
        ("done", agent("", SAYS)),
        ("done, and a call was denied", denied(SAYS, &[])),
        ("the same under `--strict`", denied(SAYS, &["--strict"])),
        ("skipped by `when`", commands("[tasks.one]\nrun = 'true'\nwhen = 'false'\n")),
        ("out of turns", agent("", endless)),
        (
            "out of rounds of a loop",
            agent("[tasks.one.loop]\nuntil = 'false'\nmax_iterations = 1\n", SAYS),
        ),
        ("out of time", agent("timeout = '100ms'\n", SLOW)),
        ("the run is out of time", agent("[limits]\ntimeout = '100ms'\n", SLOW)),
        ("the request is refused", agent("", "[[rules]]\nagent = 'a*'\nturn = 7\nsay = 'x'\n")),
        ("a refusal", agent("", "[[rules]]\nsay = 'no'\nstop = 'refusal'\n")),
        ("an empty answer", agent("", "[[rules]]\nsay = ''\n")),
        ("no JSON", agent("output = 'json'\noutput_retries = 0\n", SAYS)),
        ("no JSON, and out of turns", agent("output = 'json'\noutput_retries = 9\n", SAYS)),
        ("not what the schema says", agent(schema, "[[rules]]\nsay = '{}'\n")),
        ("a check fails", agent("output_retries = 0\n[[tasks.one.checks]]\nrun = 'false'\n", SAYS)),
        ("gives up", agent("", gives_up)),
        (
            "gives up after a denied call",
            denied(
                "[[rules]]\n[[rules.calls]]\ntool = 'give_up'\ninput = { reason = 'no' }\n",
                &[],
            ),
        ),
        ("a command fails", commands("[tasks.one]\nrun = 'exit 3'\n")),
        ("a command is killed", commands("[tasks.one]\nrun = 'kill -9 $$'\n")),
        ("bad items", commands("[tasks.one]\nrun = 'true'\nforeach = \"['x', 'x']\"\n")),
        (
            "instances fail",
            commands(
                "[tasks.one]\nrun = 'exit $FAILS'\nenv = { FAILS = '{{ item }}' }\nforeach = '[0, 1]'\n",
            ),
        ),
        ("waits for a person", commands("[tasks.one.approval]\nmessage = 'Go on?'\n")),
    ]);
    ways.insert(
        "goes in circles",
        Box::new(move || {
            let patient = AGENT.replace("max_turns = 2", "max_turns = 20");
            run(Desk::offline(&patient, endless), &[])
        }),
    );
    ways.insert(
        "the answer is cut",
        Box::new(|| {
            let patient = AGENT.replace("max_turns = 2", "max_turns = 50");
            run(Desk::offline(&patient, "[[rules]]\nsay = 'half'\nstop = 'max_tokens'\n"), &[])
        }),
    );
    ways.insert("no provider", Box::new(|| {
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
        let port = port.expect("an address").port();
        let desk = Desk::empty();
        desk.write("agents.toml", &format!(
            "version = 1\n[providers.main]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:{port}/v1'\n\
             [models.default]\nprovider = 'main'\nmodel = 'm'\n[defaults.retry]\nmax_attempts = 1\n{AGENT}"
        ));
        run(desk, &[])
    }));
    ways.insert(
        "the prompt fits no window",
        Box::new(|| {
            let desk = Desk::offline("context_window = 1000\nmax_output_tokens = 100\n", SAYS);
            let text = desk.read("agents.toml").replace("[permissions]\ndefault = \"allow\"\n", "");
            let prompt = "x".repeat(20_000);
            desk.write(
                "agents.toml",
                &format!("{text}{}", AGENT.replace("'go'", &format!("'{prompt}'"))),
            );
            run(desk, &[])
        }),
    );
    ways.insert(
        "a template fails",
        Box::new(|| {
            let tasks = "[tasks.none]\nrun = 'true'\nwhen = 'false'\n";
            let one = AGENT.replace("'go'", "'{{ tasks.none.output }}'\ndepends_on = ['none']");
            run(Desk::offline(&format!("{tasks}{one}"), SAYS), &[])
        }),
    );
    ways.insert(
        "a person rejects",
        Box::new(move || {
            let desk = Desk::commands(gate);
            assert_eq!(desk.call(&["run"]).code, 6);
            let id = desk.json(&["pending", "--json"])[0]["id"].as_str().expect("an id").to_owned();
            desk.good(&["reject", &id]);
            let done = desk.call(&["resume"]);
            (desk, done)
        }),
    );
    ways.insert(
        "cancelled",
        while_it_works(|desk, live| {
            let run = desk.runs().remove(0);
            desk.good(&["cancel", &run.file_name().expect("a name").to_string_lossy()]);
            live.end()
        }),
    );
    ways.insert(
        "interrupted",
        while_it_works(|_, live| {
            live.signal("INT");
            live.end()
        }),
    );
    ways.insert(
        "the outcome is unknown",
        while_it_works(|desk, live| {
            live.signal("KILL");
            live.end();
            desk.call(&["resume"])
        }),
    );
    ways
}

/// What a row is like in truth.
fn truth(way: Way) -> (Row, String) {
    let (desk, done) = way();
    let rows = desk.json(&["ps", "-a", "--tree", "--json"]);
    let task = rows.iter().find(|row| row["kind"] == "task" && row["name"] == "one");
    let task = task.unwrap_or_else(|| panic!("no task in {rows:?}")).clone();
    let record = desk.json(&["show", "/one", "--json"]).remove(0);
    let agent = desk.call(&["show", "/@one", "--json"]);
    let result = match agent.code {
        0 => {
            crate::support::desk::lines(&agent.out)[0]["result"].as_str().unwrap_or("-").to_owned()
        }
        _ => "-".to_owned(),
    };
    let kind = record["error"]["kind"].as_str().unwrap_or("-").to_owned();
    let state = task["state"].as_str().unwrap_or_default().to_owned();
    let said = format!("{}{}", done.out, done.err);
    assert!(result == "-" || record != serde_json::Value::Null, "no record");
    ([String::new(), result, state, kind, said.clone(), done.code.to_string()], said)
}

#[test]
fn every_row_of_the_table_is_true() {
    let rows = rows();
    let mut ways = ways();
    let named: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert!(named.len() >= 28, "{named:?}");
    let untried: Vec<_> = ways.keys().filter(|way| !named.contains(way)).collect();
    assert!(untried.is_empty(), "not in the table: {untried:?}");
    let work: Vec<(Row, Way)> = rows
        .iter()
        .map(|row| {
            let way = ways.remove(row[0].as_str());
            (row.clone(), way.unwrap_or_else(|| panic!("no way to `{}`", row[0])))
        })
        .collect();
    let queue = std::sync::Mutex::new(work);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((row, way)) = { queue.lock().expect("no panic").pop() } {
                    let (found, said) = truth(way);
                    let columns = [1, 2, 3, 5].map(|at| (plain(&row[at]), plain(&found[at])));
                    let is_said = said.contains(&row[4]);
                    if columns.iter().any(|(told, found)| told != found) || !is_said {
                        let told = format!(
                            "{}: {columns:?}, `{}` is said: {is_said}\n{said}",
                            row[0], row[4]
                        );
                        wrong.lock().expect("no panic").push(told);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
