//! Two agents: one exchanges folders and links by a command, the other writes there.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::support::desk::{Desk, Done, Live, lines};

/// Where the links lead, from the workspace, and the file that is asked for there.
const TARGETS: [(&str, &str); 8] = [
    (".git", "config"),
    (".git/hooks", "pre-commit"),
    (".git/modules/a", "config"),
    (".", "agents.toml"),
    (".vscode", "tasks.json"),
    (".github/workflows", "ci.yml"),
    ("kept", "file"),
    ("../outside", "file"),
];

const BEFORE: &str = "as it was";

/// Exchanges each `wN` and `lN`, in one step, for some seconds.
const EXCHANGE: &str = r"
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
end, count = time.time() + float(sys.argv[1]), 0
while time.time() < end:
    for n in range(int(sys.argv[2])):
        w, l = b'w%d' % n, b'l%d' % n
        count += libc.renameat2(-100, w, -100, l, 2) == 0
print(count)
";

/// How often in a second the other agent writes at each place, about.
const TURNS_IN_A_SECOND: usize = 12;

fn race(seconds: usize) {
    let desk = Desk::empty();
    let ws = desk.path().join("ws");
    let turns = seconds * TURNS_IN_A_SECOND;
    let agents = format!(
        "version = 1\nname = 'race'\n[providers.offline]\nkind = 'scripted'\nscript = 'script.toml'\n\
         [models.default]\nprovider = 'offline'\nmodel = 'm'\n[permissions]\ndefault = 'deny'\n\
         allow = ['bash', 'write_file(w*)']\n\
         [loops]\nenabled = false\n[agents.a]\ninstructions = 'x'\ntools = ['bash']\n\
         [agents.b]\ninstructions = 'x'\ntools = ['write_file']\nmax_turns = {}\n\
         [tasks.a]\nagent = 'a'\nprompt = 'go'\n[tasks.b]\nagent = 'b'\nprompt = 'go'\n",
        turns + 2
    );
    let mut calls = String::new();
    for (number, (_, file)) in TARGETS.into_iter().enumerate() {
        calls.push_str(&format!(
            "[[rules.calls]]\ntool = 'write_file'\ninput = {{ path = 'w{number}/{file}', content = 'x' }}\n"
        ));
    }
    let script = format!(
        "[[rules]]\nagent = 'a'\nturn = 1\n[[rules.calls]]\ntool = 'bash'\n\
         input = {{ command = 'python3 exchange.py {seconds} {}' }}\n\
         [[rules]]\nagent = 'b'\nturn = '1..{turns}'\n{calls}\
         [[rules]]\nsay = \"{{{{ last[0].text }}}}\"\n",
        TARGETS.len()
    );
    for (number, (folder, file)) in TARGETS.into_iter().enumerate() {
        fs::create_dir_all(ws.join(folder)).expect("made");
        fs::write(ws.join(folder).join(file), BEFORE).expect("written");
        fs::create_dir(ws.join(format!("w{number}"))).expect("made");
        symlink(Path::new(folder), ws.join(format!("l{number}"))).expect("a link");
    }
    for (name, text) in
        [("agents.toml", &agents), ("script.toml", &script), ("exchange.py", &EXCHANGE.to_owned())]
    {
        fs::write(ws.join(name), text).expect("written");
    }
    let mut command = desk.command(&["run"]);
    // A debug build on a busy machine writes at a tenth of the rate.
    let most = Duration::from_secs(60 + 10 * seconds as u64);
    let done = Live::starting(command.current_dir(&ws)).end_within(most);
    assert_eq!(done.code, 0, "{}", done.err);
    for (folder, file) in TARGETS {
        let found = fs::read_to_string(ws.join(folder).join(file)).expect("a file");
        let expected = if file == "agents.toml" { agents.as_str() } else { BEFORE };
        assert_eq!(found, expected, "{folder}/{file}");
    }
    let mut command = desk.command(&["tail", "--json"]);
    let told = lines(&Done::of(command.current_dir(&ws)).out);
    let of = |status: &str| {
        let is_it = |event: &&serde_json::Value| {
            event["type"] == "tool.finished"
                && event["data"]["name"] == "write_file"
                && event["data"]["status"] == status
        };
        told.iter().filter(is_it).count()
    };
    assert!(of("ok") > 0 && of("error") > 0, "{} written, {} refused", of("ok"), of("error"));
}

#[test]
fn an_agent_that_exchanges_folders_and_links_leads_no_other_astray() {
    race(2);
}

#[test]
#[ignore = "a minute, or ten on a busy machine"]
fn an_agent_that_exchanges_folders_and_links_for_long_leads_no_other_astray() {
    race(60);
}
