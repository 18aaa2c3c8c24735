//! Key material, for each way to configure it: a provider that repeats all that it was sent, and tools
//! that look for it, find it in no output, no record, no file of the workspace and no process.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::json;

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, Done, Live, wait};
use crate::support::provider::Provider;

/// The key. It looks like none of a known service, and a URL and JSON write it in other ways.
const KEY: &str = "k3y+/9f8e7d6c5b4a\"x";

/// The key as it stands in an address.
const IN_ADDRESS: &str = "k3y%2B%2F9f8e7d6c5b4a%22x";

/// The user in an address with a password.
const USER: &str = "team";

/// One way to configure key material.
struct Way {
    name: &'static str,
    /// Lines of the provider.
    provider: &'static str,
    /// Lines at the end of the file.
    rest: &'static str,
    /// A variable of the program; `{key}` stands for the key, `{host}` and `{path}` for the two parts of
    /// the provider's address.
    variable: (&'static str, &'static str),
    /// A file of the workspace that holds the key.
    file: Option<&'static str>,
    /// True if the program knows that it is one.
    is_known: bool,
}

const WAY: Way =
    Way { name: "", provider: "", rest: "", variable: ("K", "{key}"), file: None, is_known: true };

const WAYS: [Way; 16] = [
    Way { name: "a variable", provider: "api_key = { env = 'K' }", ..WAY },
    Way {
        name: "a file",
        provider: "api_key = { file = 'private/key' }",
        file: Some("private/key"),
        ..WAY
    },
    Way {
        name: "a secret of a variable",
        provider: "api_key = { secret = 'S' }",
        rest: "[secrets]\nS = { env = 'K' }",
        ..WAY
    },
    Way {
        name: "a secret of a file",
        provider: "api_key = { secret = 'S' }",
        rest: "[secrets]\nS = { file = 'private/key' }",
        file: Some("private/key"),
        ..WAY
    },
    Way { name: "a header", provider: "headers = { x-team = { env = 'K' } }", ..WAY },
    Way {
        name: "a header of a file",
        provider: "headers = { x-api-key = { file = 'private/key' } }",
        file: Some("private/key"),
        ..WAY
    },
    Way {
        name: "a header of a secret",
        provider: "headers = { x-team = { secret = 'S' } }",
        rest: "[secrets]\nS = { env = 'K' }",
        ..WAY
    },
    Way {
        name: "a header with a scheme",
        provider: "headers = { authorization = { env = 'K' } }",
        variable: ("K", "Bearer {key}"),
        ..WAY
    },
    Way {
        name: "a cookie",
        provider: "headers = { cookie = { env = 'K' } }",
        variable: ("K", "a=b; session={key}"),
        ..WAY
    },
    Way {
        name: "the password of an address",
        variable: ("CALLSHEET_PROVIDERS__MAIN__BASE_URL", "http://team:{address}@{host}{path}"),
        ..WAY
    },
    Way {
        name: "the user of an address",
        variable: ("CALLSHEET_PROVIDERS__MAIN__BASE_URL", "http://{address}@{host}{path}"),
        ..WAY
    },
    Way {
        name: "the query of an address",
        variable: (
            "CALLSHEET_PROVIDERS__MAIN__BASE_URL",
            "http://{host}{path}?api-version=2024-10-21&key={address}",
        ),
        ..WAY
    },
    Way { name: "a secret for no provider", rest: "[secrets]\nS = { env = 'K' }", ..WAY },
    Way {
        name: "a variable that commands get",
        rest: "[sandbox]\nenv = ['TEAM_TOKEN']",
        variable: ("TEAM_TOKEN", "{key}"),
        ..WAY
    },
    Way {
        name: "a variable that sets one of commands",
        variable: ("CALLSHEET_ENV__TEAM_TOKEN", "{key}"),
        ..WAY
    },
    Way {
        name: "a variable of a service that is not used",
        variable: ("OPENAI_API_KEY", "{key}"),
        is_known: false,
        ..WAY
    },
];

impl Way {
    /// True if a command gets the key on purpose.
    fn is_for_commands(&self) -> bool {
        self.variable.0.ends_with("TEAM_TOKEN")
    }

    /// A workspace whose agents ask this provider, and whose tools look for keys.
    fn desk(&self, provider: &Provider, wire: Wire) -> Desk {
        let desk = Desk::empty();
        let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
        let Self { provider: lines, rest, .. } = self;
        desk.write(
            "agents.toml",
            &format!(
                "version = 1\nname = 'keys'\n[providers.main]\nkind = '{kind}'\nbase_url = '{}'\n\
                 {lines}\n[models.m]\nprovider = 'main'\nmodel = 'm'\n\
                 [defaults.retry]\nmax_attempts = 2\ninitial_interval = '1ms'\nmax_interval = '2ms'\n\
                 [agents.a]\nmodel = 'm'\ninstructions = 'Work.'\ntools = ['bash', 'look']\n\
                 [tools.look]\ndescription = 'Looks.'\ncommand = ['sh', '-c', '{LOOK}']\n\
                 input_schema = {{ type = 'object', properties = {{}} }}\n\
                 [hooks]\non_start = ['sh', '-c', '{LOOK}']\n\
                 [permissions]\ndefault = 'allow'\n\
                 [tasks.command]\nrun = '{LOOK}'\n{}{rest}\n",
                provider.url_for(wire),
                TASKS.map(|task| format!("[tasks.{task}]\nagent = 'a'\nprompt = 'do {task}'\n"))
                    .concat(),
            ),
        );
        if let Some(file) = self.file {
            desk.write(file, &format!("{KEY}\n"));
        }
        desk
    }

    fn command(&self, desk: &Desk, provider: &Provider, wire: Wire, verb: &[&str]) -> Command {
        let (name, value) = self.variable;
        let address = provider.url_for(wire);
        let (_, rest) = address.split_once("//").expect("an address");
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let value = value.replace("{key}", KEY).replace("{address}", IN_ADDRESS);
        let mut command = desk.command(verb);
        command.env(name, value.replace("{host}", host).replace("{path}", path));
        command
    }
}

/// The tasks of agents: each gets another answer.
const TASKS: [&str; 5] = ["error", "page", "text", "call", "cut"];

/// A command that prints all that a process can see of keys, and keeps it in a file.
const LOOK: &str = "(env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; ps axeww) 2>/dev/null \
                    | tr \"\\\\000\" \"\\\\n\" | tee -a seen; true";

/// The answer to a request: what was sent, in several spellings, wherever an answer has words. A server
/// that knows the key repeats it too.
fn repeat(asked: &Asked, knows: bool) -> Answer {
    let sent: Vec<String> =
        asked.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let sent = format!("{} {}", asked.path, sent.join(" "));
    let key = if knows { KEY } else { "" };
    let (coded, key_coded) = (STANDARD.encode(&sent), STANDARD.encode(key));
    let in_address = if knows { IN_ADDRESS } else { "" };
    let echo = format!("{sent} {coded} {key} {key_coded} {in_address} {USER}:{key}");
    let http = |status, kind: &str, body: String| {
        let headers = [("content-type", kind), ("x-echo", key), ("location", in_address)];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Answer::fault(Fault::Http { status, headers: headers.into(), body })
    };
    let messages = asked.messages();
    let first = serde_json::to_string(&messages[0]).expect("encodes");
    let task = TASKS.into_iter().find(|task| first.contains(&format!("do {task}")));
    // The calls of `check --connect` belong to no task.
    match task.unwrap_or("error") {
        "error" => {
            let error = json!({"type": echo, "code": echo, "message": echo});
            http(400, "application/json", json!({"type": "error", "error": error}).to_string())
        }
        "page" => http(404, "text/html", format!("<html><title>{echo}</title></html>")),
        "cut" => Answer::text(echo).with(Fault::NoEnd),
        "call" if messages.len() == 1 => {
            let wait = "while [ ! -e go ]; do sleep 0.02; done";
            let command = format!("printf %s '{echo}' > made; {LOOK}; touch ready; {wait}");
            Answer::text(echo)
                .and_tool("bash", json!({ "command": command }))
                .and_tool("look", json!({}))
                .and_thinking(key, key)
        }
        _ => Answer::text(echo),
    }
}

/// The spellings in which the key may stand nowhere.
fn spellings() -> Vec<String> {
    let json = json!(KEY).to_string();
    let mut all = vec![KEY.to_owned(), IN_ADDRESS.to_owned(), json.trim_matches('"').to_owned()];
    for before in ["", "x", "xy", &format!("{USER}:")] {
        let coded = STANDARD.encode(format!("{before}{KEY}"));
        // The first and the last group are shared with what stands beside the key.
        all.push(coded[4..coded.len() - 4].to_owned());
    }
    all
}

/// Adds the files below a folder that hold the key, in whatever spelling.
fn search(folder: &Path, own: Option<&str>, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).expect("a folder");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            search(&path, own, found);
        } else if !own.is_some_and(|own| path.ends_with(own)) {
            let bytes = std::fs::read(&path).unwrap_or_default();
            note(&path.display().to_string(), &String::from_utf8_lossy(&bytes), found);
        }
    }
}

fn note(place: &str, text: &str, found: &mut Vec<String>) {
    for spelling in spellings() {
        if let Some(at) = text.find(&spelling) {
            let around: String = text[..at].chars().rev().take(60).collect();
            let around: String = around.chars().rev().collect();
            found.push(format!("{place}: ...{around}{spelling}"));
        }
    }
}

/// Adds the processes on the machine whose command line holds the key, and the descendants of the
/// program whose variables do.
fn search_processes(program: u32, found: &mut Vec<String>) {
    let read = |id: &str, file: &str| std::fs::read(format!("/proc/{id}/{file}"));
    let text = |id: &str, file: &str| {
        String::from_utf8_lossy(&read(id, file).unwrap_or_default()).replace('\0', "\n")
    };
    let names = std::fs::read_dir("/proc").expect("processes").flatten();
    let ids = names.filter_map(|entry| entry.file_name().into_string().ok());
    let ids: Vec<String> = ids.filter(|name| name.parse::<u32>().is_ok()).collect();
    let parent = |id: &str| {
        let status = text(id, "status");
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        line.unwrap_or_default().trim().to_owned()
    };
    let mut below = BTreeSet::from([program.to_string()]);
    // Each round finds one more generation.
    while let Some(child) =
        ids.iter().find(|id| !below.contains(*id) && below.contains(&parent(id)))
    {
        below.insert(child.clone());
    }
    assert!(below.len() > 1, "no command is running");
    for id in &ids {
        note(&format!("the command line of {id}"), &text(id, "cmdline"), found);
    }
    for id in below.iter().filter(|id| **id != program.to_string()) {
        note(&format!("the variables of {id}"), &text(id, "environ"), found);
    }
}

/// Runs the program with a way and adds the places at which the key stands.
fn leaks(way: &Way, wire: Wire, provider: &Provider) -> Vec<String> {
    let desk = way.desk(provider, wire);
    let mut found = Vec::new();
    for verb in [&["check", "-vv"][..], &["graph", "--format", "json"]] {
        let done = Done::of(&mut way.command(&desk, provider, wire, verb));
        assert_eq!(done.code, 0, "{}: {}", way.name, done.err);
        note(&format!("{verb:?}"), &(done.out + &done.err), &mut found);
    }
    for verb in [&["check", "--connect", "--trust", "-vv"][..], &["check", "--connect", "--json"]] {
        let done = Done::of(&mut way.command(&desk, provider, wire, verb));
        assert_eq!(done.code, 3, "{}: {}", way.name, done.err);
        note(&format!("{verb:?}"), &(done.out + &done.err), &mut found);
    }
    let verb = ["run", "-vv", "--trust", "--keep-going"];
    let live =
        Live::starting(way.command(&desk, provider, wire, &verb).env("CALLSHEET_LOG", "trace"));
    wait("the command", || desk.path().join("ready").exists().then_some(()));
    if !way.is_for_commands() {
        search_processes(live.id(), &mut found);
    }
    desk.write("go", "");
    let done = live.end();
    // Two tasks fail, and nothing but them.
    assert_eq!(done.code, 3, "{}", way.name);
    note("run", &(done.out + &done.err), &mut found);
    for verb in [
        &["report", "--format", "html"][..],
        &["tail"],
        &["show", "/@call", "--view"],
        &["resume", "-vv", "--trust", "--retry-failed"],
        &["trust", "--list"],
    ] {
        let done = Done::of(&mut way.command(&desk, provider, wire, verb));
        note(&format!("{verb:?}"), &(done.out + &done.err), &mut found);
    }
    let journal = std::fs::read_to_string(desk.runs().remove(0).join("journal.jsonl"));
    let journal = journal.expect("a journal");
    if journal.contains("[redacted]") != way.is_known {
        found.push(format!("is anything redacted? {}", !way.is_known));
    }
    // A command that gets the key may write it down.
    let own = if way.is_for_commands() { Some("seen") } else { way.file };
    search(desk.path(), own, &mut found);
    search(desk.state(), None, &mut found);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_nowhere_however_it_is_configured() {
    let wrong = Arc::<Mutex<Vec<String>>>::default();
    let mut open = tokio::task::JoinSet::new();
    let permits = Arc::new(tokio::sync::Semaphore::new(4));
    for (way, wire) in WAYS.iter().flat_map(|way| Wire::BOTH.map(|wire| (way, wire))) {
        let (wrong, permits) = (Arc::clone(&wrong), Arc::clone(&permits));
        open.spawn(async move {
            let _permit = permits.acquire().await.expect("open");
            let provider = Provider::start(move |asked: &Asked| repeat(asked, way.is_known)).await;
            let search = move || leaks(way, wire, &provider);
            let found = tokio::task::spawn_blocking(search).await.expect("no panic");
            let found = found.into_iter().map(|place| format!("{} ({wire:?}): {place}", way.name));
            wrong.lock().extend(found);
        });
    }
    open.join_all().await;
    let wrong = wrong.lock();
    assert!(wrong.is_empty(), "{} leaks:\n{}", wrong.len(), wrong.join("\n"));
}

/// The keys of the services' own variables are sent to the services alone, here through a proxy that
/// refuses, with a password of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_key_and_the_password_of_a_proxy_stand_nowhere() {
    for variable in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"] {
        let proxy = Provider::start(move |asked: &Asked| repeat(asked, true)).await;
        let search = move || {
            let desk = Desk::empty();
            desk.write(
                "agents.toml",
                &format!(
                    "version = 1\nname = 'keys'\n[models.m]\nmodel = 'm'\n\
                     [defaults.retry]\nmax_attempts = 1\n[agents.a]\nmodel = 'm'\n\
                     instructions = 'Work.'\n[tasks.t]\nagent = 'a'\nprompt = 'go'\n\
                     [tasks.command]\nrun = '{LOOK}'\n[permissions]\ndefault = 'allow'\n"
                ),
            );
            let address = proxy.base_url().replace("//", &format!("//{USER}:{IN_ADDRESS}@"));
            let mut command = desk.command(&["run", "-vv", "--keep-going"]);
            command.env(variable, KEY).env("HTTPS_PROXY", address).env("CALLSHEET_LOG", "trace");
            let done = Done::of(&mut command);
            assert_eq!(done.code, 3, "{}", done.err);
            let mut found = Vec::new();
            note("run", &(done.out + &done.err), &mut found);
            search(desk.path(), None, &mut found);
            found
        };
        let found = tokio::task::spawn_blocking(search).await.expect("no panic");
        assert!(found.is_empty(), "{variable}:\n{}", found.join("\n"));
    }
}
