//! Texts that try to steer the terminal of whoever looks at a run: from models, tools, files,
//! configurations, journals and the command line, on every verb.

use std::fmt::Write as _;

use callsheet::journal::line::chain;

use crate::support::desk::{Desk, Done, lines};

/// A name, and a text that must never reach a terminal as it is.
fn hostile() -> Vec<(&'static str, String)> {
    let fixed = [
        ("clear", "\x1b[2J\x1b[H\x1b[3Jgone"),
        ("title", "\x1b]0;owned\x07\x1b]2;owned\x1b\\"),
        ("link", "\x1b]8;;http://evil.example\x1b\\safe\x1b]8;;\x1b\\"),
        ("clipboard", "\x1b]52;c;cm0gLXJmIH4=\x07"),
        ("report", "\x1b[6n\x1b[c\x1bP$q\"p\x1b\\"),
        ("eight bit", "\u{9b}2J\u{9d}0;owned\u{9c}\u{90}q\u{9c}"),
        ("overwritten", "rm -rf ~\rls       \x1b[K"),
        ("backspaces", "rm\x08\x08ls\x7f\0\x07\x0b\x0c"),
        ("colours", "\x1b[8mhidden\x1b[0m\x1b[38;5;201mred\x1b[32mforged\x1b[0m"),
        ("modes", "\x1b[?1049h\x1b[?25l\x1bc\x1b(0lqk"),
        ("right to left", "ls \u{202e}fdp.exe\u{202c} \u{202d}x"),
        ("isolates", "a\u{2066}b\u{2067}c\u{2068}d\u{2069}\u{200e}\u{200f}\u{61c}"),
        ("zero width", "l\u{200b}s\u{200c}\u{200d}\u{2060}\u{2063}\u{2064}\u{feff}"),
        ("tags", "ok\u{e0001}\u{e0072}\u{e006d}\u{e007f}"),
        ("selectors", "ok\u{fe00}\u{fe0f}\u{fe0e}\u{e0100}\u{e01ef}\u{180b}"),
        ("fillers", "so\u{ad}ft\u{115f}\u{1160}\u{3164}\u{ffa0}\u{34f}\u{17b4}"),
        ("separators", "a\u{2028}b\u{2029}c\u{85}d\u{fff9}e\u{fffb}"),
        ("forged lines", "x\nrun completed after 0.1 s\nerror: \x1b[2Kforged\r\n"),
    ];
    let mut texts: Vec<_> = fixed.map(|(name, text)| (name, text.to_owned())).into();
    let far = format!("{}{}\x1b[1Atail\u{202e}", "x".repeat(400), " ".repeat(450));
    texts.push(("far away", far));
    texts.push(("many", "\x1b[A\u{202e}\r".repeat(500)));
    texts
}

/// The characters that no output may hold, besides newlines and tabs.
fn is_forbidden(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}'
            | '\u{17b5}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// What got through, all of it at once.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    /// Notes a text that steers a terminal.
    fn text(&mut self, what: &str, text: &str) {
        if let Some(at) = text.find(is_forbidden) {
            let from = text.floor_char_boundary(at.saturating_sub(60));
            let to = text.ceil_char_boundary((at + 20).min(text.len()));
            self.0.push(format!("{what}: {:?}", &text[from..to]));
        }
        if text.contains("panicked") {
            self.0.push(format!("{what}: {text}"));
        }
    }

    /// Runs the program: it prints nothing that steers a terminal, and ends with one of these codes.
    fn call(&mut self, desk: &Desk, name: &str, arguments: &[&str], codes: &[i32]) -> Done {
        let done = desk.call(arguments);
        let what = format!("{name}: {arguments:?}");
        self.text(&what, &done.out);
        self.text(&what, &done.err);
        if !codes.contains(&done.code) {
            self.0.push(format!("{what}: code {}: {}{}", done.code, done.out, done.err));
        }
        if arguments.contains(&"--json") && done.code == 0 {
            lines(&done.out);
        }
        done
    }
}

impl Drop for Findings {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} got through:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

/// The text as a TOML string.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c {
            ' '..='~' if c != '"' && c != '\\' => out.push(c),
            _ => write!(out, "\\U{:08X}", u32::from(c)).expect("written"),
        }
    }
    out + "\""
}

/// Verbs that look at a run, with the codes that they may end with. `{run}` is its id.
const LOOKING: [&[&str]; 41] = [
    &["ps", "-a"],
    &["ps", "-a", "--tree"],
    &["ps", "-a", "--json"],
    &["show"],
    &["show", "--json"],
    &["show", "/one"],
    &["show", "/one", "--json"],
    &["show", "/two"],
    &["show", "/three"],
    &["show", "/three", "--json"],
    &["show", "@one"],
    &["show", "@one", "--json"],
    &["show", "@one", "--transcript"],
    &["show", "@one", "--transcript", "--json"],
    &["show", "@one", "--view"],
    &["show", "@one", "--view", "--json"],
    &["show", "@one/*"],
    &["show", "@two"],
    &["show", "@three"],
    &["show", "@three", "--transcript"],
    &["tail"],
    &["tail", "--json"],
    &["tail", "-f"],
    &["tail", "--agent", "one"],
    &["graph"],
    &["graph", "{run}"],
    &["graph", "{run}", "--format", "dot"],
    &["graph", "{run}", "--format", "mermaid"],
    &["graph", "{run}", "--format", "json"],
    &["cost"],
    &["cost", "--json"],
    &["cost", "--by", "task"],
    &["cost", "--by", "model"],
    &["context", "explain", "@one"],
    &["context", "explain", "@one", "--json"],
    &["context", "replay", "@one", "--preset", "production"],
    &["context", "replay", "@one", "--compare"],
    &["context", "apply", "@one", "--preset", "production"],
    &["fork", "{run}"],
    &["resume", "--explain"],
    &["rebuild", "{run}"],
];

/// Looks at the newest run with every verb, and at its logs.
fn look(found: &mut Findings, desk: &Desk, name: &str, codes: &[i32]) {
    look_with(&LOOKING, found, desk, name, codes);
}

fn look_with(verbs: &[&[&str]], found: &mut Findings, desk: &Desk, name: &str, codes: &[i32]) {
    let run = desk.runs().pop().expect("a run");
    let id = run.file_name().expect("a name").to_string_lossy().into_owned();
    for arguments in verbs {
        let arguments: Vec<_> =
            arguments.iter().map(|a| if *a == "{run}" { id.as_str() } else { *a }).collect();
        found.call(desk, name, &arguments, codes);
    }
    for entry in std::fs::read_dir(run.join("agents")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "log") {
            found.text(&format!("{name}: a log"), &std::fs::read_to_string(path).expect("text"));
        }
    }
}

/// A workspace in which a text comes from everywhere: prompts, replies, names of tools, arguments,
/// paths, files, outputs and reasons.
fn desk_full_of(text: &str) -> Desk {
    let told = quoted(text);
    let path = quoted(&text.replace(['/', '\0'], "_").chars().take(60).collect::<String>());
    let script = format!(
        r#"
[[rules]]
agent = "a"
turn = 1
say = {told}
[[rules.calls]]
tool = {told}
input = {{ {told} = {told} }}
[[rules.calls]]
tool = "read_file"
input = {{ path = "hostile.txt" }}
[[rules.calls]]
tool = "read_file"
input = {{ path = {told} }}
[[rules.calls]]
tool = "write_file"
input = {{ path = {path}, content = {told} }}
[[rules.calls]]
tool = "bash"
input = {{ command = {told} }}
[[rules.calls]]
tool = "bash"
input = {{ command = "cat hostile.txt; cat hostile.txt >&2; exit 3" }}
[[rules.calls]]
tool = "glob"
input = {{ pattern = "*" }}
[[rules.calls]]
tool = "grep"
input = {{ pattern = "." }}
[[rules.calls]]
tool = "delegate"
input = {{ agent = "b", prompt = {told} }}
[[rules.calls]]
tool = "delegate"
input = {{ agent = {told}, prompt = "x" }}
[[rules]]
agent = "g"
[[rules.calls]]
tool = "give_up"
input = {{ reason = {told} }}
[[rules]]
say = {told}
"#
    );
    let rest = format!(
        r#"
[agents.a]
model = "default"
instructions = {told}
tools = ["read_file", "write_file", "bash", "glob", "grep"]
sub_agents = ["b"]
[agents.b]
model = "default"
instructions = "x"
[agents.g]
model = "default"
instructions = "x"
tools = ["give_up"]
[tasks.one]
agent = "a"
prompt = {told}
[tasks.two]
run = "cat hostile.txt; cat hostile.txt >&2; exit 3"
[tasks.three]
agent = "g"
prompt = "x"
[tasks.four]
run = "cat hostile.txt"
"#
    );
    let desk = Desk::offline(&rest, &script);
    desk.write("hostile.txt", text);
    desk
}

#[test]
fn what_models_tools_and_files_say_steers_no_terminal() {
    std::thread::scope(|scope| {
        let texts = hostile();
        for part in texts.chunks(texts.len().div_ceil(2)) {
            let part = part.to_vec();
            scope.spawn(move || {
                let mut found = Findings::default();
                for (name, text) in part {
                    let desk = desk_full_of(&text);
                    found.call(&desk, name, &["run", "-v", "--keep-going"], &[8]);
                    look(&mut found, &desk, name, &[0]);
                    found.call(&desk, name, &["attach", "-v"], &[8]);
                    found.call(&desk, name, &["run", "-d"], &[0]);
                    found.call(&desk, name, &["run", "--json", "--keep-going"], &[8]);
                    found.call(&desk, name, &["resume", "--retry-failed"], &[8]);
                    found.call(&desk, name, &["check"], &[0]);
                    found.call(&desk, name, &[], &[0]);
                }
            });
        }
    });
}

/// Colours that the program makes itself.
fn without_colours(text: &str) -> String {
    let own = regex::Regex::new(r"\x1b\[(0|[1-4]|39|3[1-6]|90|(3[1-6];)?1(;4)?)m");
    let own = own.expect("an expression");
    own.replace_all(text, "").into_owned()
}

#[test]
fn only_the_program_s_own_colours_are_colours() {
    let (_, text) = hostile().into_iter().find(|(name, _)| *name == "colours").expect("there");
    let desk = desk_full_of(&text);
    desk.write("bad.toml", &format!("version = 1\nname = 'x'\n{} = 3\n", quoted(&text)));
    let table: [&[&str]; 9] = [
        &["run", "-vv", "--keep-going"],
        &["ps", "-a", "--tree"],
        &["show", "/one"],
        &["show", "@one", "--transcript"],
        &["tail"],
        &["graph"],
        &["check", "-f", "bad.toml"],
        &["run", &text],
        &["ps", &text],
    ];
    let (mut found, mut coloured) = (Findings::default(), 0);
    for arguments in table {
        let done = Done::of(desk.command(arguments).env("CLICOLOR_FORCE", "1"));
        for said in [&done.out, &done.err] {
            found.text(&format!("{arguments:?}"), &without_colours(said));
            coloured += usize::from(said.contains("\x1b["));
            // What the program colours green is a state, never a word of the model.
            assert!(!said.contains("\x1b[32mforged"), "{arguments:?}: {said:?}");
        }
    }
    assert!(coloured >= 5, "colours are on: {coloured}");
}

#[test]
fn arguments_are_printed_back_without_effect() {
    let table: [(&[&str], i32); 50] = [
        (&["{}"], 2),
        (&["--{}"], 2),
        (&["-{}"], 2),
        (&["run", "{}"], 2),
        (&["run", "--input", "{}"], 2),
        (&["run", "--input", "x={}"], 2),
        (&["run", "-f", "{}"], 2),
        (&["run", "--profile", "{}"], 2),
        (&["run", "--sandbox", "{}"], 2),
        (&["run", "--run-id", "{}"], 2),
        (&["run", "--{}"], 2),
        (&["run", "--set", "limits.{}=1"], 2),
        (&["run", "--dry-run", "--set", "limits.timeout={}"], 2),
        (&["check", "-f", "{}"], 2),
        (&["check", "--profile", "{}"], 2),
        (&["check", "--{}", "x"], 2),
        (&["ps", "{}"], 2),
        (&["ps", "--state-dir", "{}"], 0),
        (&["show", "{}"], 1),
        (&["show", "/{}"], 1),
        (&["show", "@{}"], 1),
        (&["show", "--result", "{}"], 2),
        (&["show", "--state-dir", "{}"], 1),
        (&["tail", "{}"], 1),
        (&["tail", "--since", "{}"], 2),
        (&["tail", "--task", "[{}"], 0),
        (&["tail", "--agent", "[{}"], 0),
        (&["graph", "{}"], 1),
        (&["graph", "--format", "{}"], 2),
        (&["cost", "{}"], 1),
        (&["why", "{}"], 1),
        (&["why", "@{}"], 1),
        (&["why", "--at", "{}"], 2),
        (&["cost", "--by", "{}"], 2),
        (&["explain", "{}"], 1),
        (&["schema", "{}"], 2),
        (&["completions", "{}"], 2),
        (&["init", "--template", "{}"], 2),
        (&["rebuild", "{}"], 1),
        (&["resume", "{}"], 1),
        (&["resume", "desk", "--retry-failed", "{}"], 1),
        (&["fork", "{}"], 1),
        (&["fork", "{}@1"], 1),
        (&["cancel", "{}"], 1),
        (&["compact", "@{}"], 1),
        (&["attach", "{}"], 1),
        (&["context", "explain", "{}"], 1),
        (&["context", "replay", "{}", "--compare"], 1),
        (&["context", "replay", "@one", "--preset", "{}"], 2),
        (&["context", "apply", "{}", "--preset", "production"], 1),
    ];
    let mut found = Findings::default();
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    desk.good(&["run"]);
    for (number, (name, text)) in hostile().into_iter().enumerate() {
        // The system takes no NUL, and a folder's name no more than 255 bytes.
        let text = text.replace('\0', "").replace('/', "_");
        let text = &text[..text.floor_char_boundary(200)];
        // Each text meets a third of the verbs, and each verb a third of the texts.
        for (arguments, code) in table.iter().skip(number % 3).step_by(3).copied() {
            let given: Vec<_> = arguments.iter().map(|a| a.replace("{}", text)).collect();
            let given: Vec<_> = given.iter().map(String::as_str).collect();
            found.call(&desk, name, &given, &[code]);
        }
        for variable in ["CALLSHEET_LOG", "CALLSHEET_STATE_DIR", "CALLSHEET_LIMITS__MAX_TURNS"] {
            for verb in ["check", "ps", "--help"] {
                let done = Done::of(desk.command(&[verb]).env(variable, text));
                found.text(&format!("{name}: {variable} {verb}"), &(done.out + &done.err));
            }
        }
    }
}

/// Places of agents.toml that take or refuse a text.
const PLACES: [&str; 34] = [
    "{} = 1",
    "name = {}",
    "requires = {}",
    "entry = [{}]",
    "include = [{}]",
    "[agents.{}]\nmodel = 'default'\ninstructions = 'x'",
    "[agents.a]\nmodel = {}\ninstructions = 'x'",
    "[agents.a]\nmodel = 'default'\ninstructions = {}",
    "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = [{}]",
    "[agents.a]\nmodel = 'default'\ninstructions = 'x'\nsub_agents = [{}]",
    "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n{} = 'x'",
    "[tasks.{}]\nrun = 'true'",
    "[tasks.one]\nrun = {}",
    "[tasks.one]\nagent = {}\nprompt = 'x'",
    "[tasks.one]\nrun = 'true'\ndepends_on = [{}]",
    "[tasks.one]\nrun = 'true'\nwhen = {}",
    "[tasks.one]\nrun = 'true'\nenv = { {} = {} }",
    "[tasks.one]\nrun = 'true'\nretry = { retry_on = [{}] }",
    "[tasks.one]\nrun = 'true'\ntimeout = {}",
    "[models.{}]\nprovider = 'p'\nmodel = 'm'",
    "[models.m]\nprovider = {}\nmodel = 'm'",
    "[models.m]\nprovider = 'p'\nmodel = {}",
    "[providers.p]\nkind = {}",
    "[providers.p]\nkind = 'scripted'\nscript = {}",
    "[providers.p]\nkind = 'openai'\nbase_url = {}",
    "[providers.p]\nkind = 'openai'\nbase_url = 'http://localhost:1'\nheaders = { {} = {} }",
    "[permissions]\nallow = [{}]",
    "[permissions]\ndeny = [{}]",
    "[permissions]\ndefault = {}",
    "[inputs.{}]\ntype = 'string'",
    "[inputs.x]\ntype = {}",
    "[profiles.{}]\nname = 'x'",
    "[sandbox]\nwritable_roots = [{}]",
    "[secrets.x]\nenv = {}",
];

#[test]
fn a_configuration_steers_no_terminal() {
    let mut found = Findings::default();
    for (number, (name, text)) in hostile().into_iter().enumerate() {
        let told = quoted(&text);
        // As it is, where TOML takes it: a comment and a text hold all but control characters.
        let raw: String = text.chars().filter(|c| !c.is_control()).collect();
        let raw = format!("# {raw}\n'{raw}' = 3 # {raw}\n");
        let broken = format!("x = '{text}\nname = {text}\n");
        let places = PLACES.iter().map(|place| place.replace("{}", &told));
        for (at, place) in places.chain([raw, broken]).enumerate() {
            let desk = Desk::empty();
            desk.write("agents.toml", &format!("version = 1\n{place}\n"));
            // All meet `check`; each text and each place meets the others several times.
            let verbs = [&["check"][..], &["check", "--json"], &["graph"], &[]];
            for arguments in &verbs[..if (number + at) % 5 == 0 { verbs.len() } else { 1 }] {
                found.call(&desk, &format!("{name}: {place}"), arguments, &[0, 2]);
            }
        }
    }
}

#[test]
fn carets_stand_under_what_is_shown() {
    let desk = Desk::empty();
    let line = "'na\u{202e}m\u{200b}e' = 'x' # \u{2066}";
    desk.write("agents.toml", &format!("version = 1\n# \u{202e}\n{line}\n# \u{2069}\n"));
    let done = desk.call(&["check"]);
    assert_eq!(done.code, 2);
    let shown = done.err.lines().find(|line| line.contains(" 3 │ ")).expect(&done.err);
    let carets = done.err.lines().find(|line| line.contains('^')).expect(&done.err);
    let column = |line: &str, c: char| line.chars().position(|found| found == c).expect("there");
    let last = carets.chars().count();
    let marked: String = shown.chars().take(last).skip(column(carets, '^')).collect();
    assert_eq!(marked, r"'na\u{202e}m\u{200b}e'", "{}", done.err);
    assert!(done.err.contains("agents.toml:3:1"), "{}", done.err);
    assert!(done.err.contains(r"4 │ # \u{2069}"), "{}", done.err);
}

/// The journal of a run with each text changed by `change`, which gets its key, and with right
/// checksums. Returns false if nothing was changed.
fn forge(run: &std::path::Path, change: &dyn Fn(&str, &str) -> Option<String>) -> bool {
    fn walk(
        key: &str,
        value: &mut serde_json::Value,
        change: &dyn Fn(&str, &str) -> Option<String>,
        changed: &mut bool,
    ) {
        match value {
            serde_json::Value::String(text) => {
                if let Some(new) = change(key, text) {
                    *changed = true;
                    *text = new;
                }
            }
            serde_json::Value::Array(items) => {
                items.iter_mut().for_each(|item| walk(key, item, change, changed));
            }
            serde_json::Value::Object(fields) => {
                fields.iter_mut().for_each(|(key, item)| walk(key, item, change, changed));
            }
            _ => {}
        }
    }
    let path = run.join("journal.jsonl");
    let (mut out, mut crc, mut changed) = (Vec::new(), 0, false);
    for line in std::fs::read_to_string(&path).expect("a journal").lines() {
        let mut record: serde_json::Value = serde_json::from_str(line).expect("a record");
        walk("", &mut record, change, &mut changed);
        crc = chain(format!("{record}\n").as_bytes(), crc, &mut out).expect("a line");
    }
    std::fs::write(path, out).expect("written");
    for entry in std::fs::read_dir(run.join("snapshots")).expect("a folder") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    changed
}

/// Keys of texts in the records, besides those that the format fixes.
fn keys_of_texts(value: &serde_json::Value, key: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::String(_) => {
            let is_fixed = ["type", "ts", "crc"].contains(&key);
            let is_new = !found.iter().any(|known| known == key);
            found.extend((is_new && !is_fixed).then(|| key.to_owned()));
        }
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| keys_of_texts(item, key, found));
        }
        serde_json::Value::Object(fields) => {
            fields.iter().for_each(|(key, item)| keys_of_texts(item, key, found));
        }
        _ => {}
    }
}

#[test]
fn a_forged_journal_steers_no_terminal() {
    let desk = desk_full_of("words");
    desk.call(&["run", "--keep-going"]);
    let run = desk.runs().pop().expect("a run");
    let journal = std::fs::read(run.join("journal.jsonl")).expect("a journal");
    let mut keys = Vec::new();
    for record in lines(std::str::from_utf8(&journal).expect("text")) {
        keys_of_texts(&record, "", &mut keys);
    }
    assert!(keys.len() > 30, "{keys:?}");
    let hostile = "x\x1b[2J\u{202e}\r\u{9b}3J\nrun completed\n\u{200b}\u{e0041}";
    let mut found = Findings::default();
    let is_once = |verb: &&&[&str]| !verb.contains(&"--json") || verb.contains(&"tail");
    let verbs: Vec<_> = LOOKING.iter().filter(is_once).copied().collect();
    let look_at = |found: &mut Findings, what: &str| {
        look_with(&verbs, found, &desk, what, &[0, 1, 2, 74]);
        std::fs::write(run.join("journal.jsonl"), &journal).expect("written");
        let _ = std::fs::remove_dir_all(run.join("agents"));
        std::fs::create_dir(run.join("agents")).expect("made");
    };
    for key in keys {
        assert!(forge(&run, &|name, _| (name == key).then(|| hostile.to_owned())), "{key}");
        look_at(&mut found, &format!("key {key}"));
    }
    // An id that is the same everywhere, so that the records fit each other.
    for id in ["one/b-1", "one", "words"] {
        assert!(forge(&run, &|_, text| (text == id).then(|| hostile.to_owned())), "{id}");
        look_at(&mut found, &format!("id {id}"));
    }
    assert!(forge(&run, &|key, text| {
        let is_id = key == "agent" && text == "one/b-1" || key == "parent" && text == "one";
        is_id.then(|| format!("{text}{hostile}"))
    }));
    look_at(&mut found, "ids of agents");
    // A line of its own would look like one of the program's.
    forge(&run, &|key, _| (key == "reason").then(|| hostile.to_owned()));
    for verb in [&["tail"][..], &["ps", "-a"], &["show"], &["show", "/three"]] {
        let done = desk.call(verb);
        assert!(!(done.out + &done.err).lines().any(|line| line == "run completed"), "{verb:?}");
    }
}
