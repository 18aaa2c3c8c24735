//! Keys and secrets stay where they are: not in commands, not in records, not in outputs.

use std::process::Stdio;

use super::desk::Desk;

const SECRET: &str = "s3cr3t-0123456789";

#[test]
fn commands_get_the_variables_that_the_file_names_and_no_others() {
    let desk = Desk::commands(
        "[sandbox]\nenv = ['NAMED']\n[env]\nSET = 'set'\n\
         [tasks.all]\nrun = 'env'\nenv = { OWN = 'own' }\n[inputs.x]\ndefault = 'in'\n",
    );
    let mut command = desk.command(&["run"]);
    // What a shell of an engineer holds, and what it has no business with here.
    for name in ["GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "LD_PRELOAD_NOT", "PS1"]
    {
        command.env(name, "must-not-pass");
    }
    command.env("NAMED", "named").env("LC_ALL", "C").env("TZ", "UTC");
    assert!(command.output().expect("it runs").status.success());
    let shown = desk.good(&["show", "/all", "--output"]);
    let mut names: Vec<_> =
        shown.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    let expected = [
        "CALLSHEET_IDEMPOTENCY_KEY",
        "HOME",
        "INPUT_X",
        "LC_ALL",
        "NAMED",
        "OWN",
        "PATH",
        "SET",
        "TZ",
    ];
    // The shell itself adds these, and the sandbox the temporary folders.
    let added = ["PWD", "OLDPWD", "SHLVL", "_", "TMPDIR"];
    names.retain(|name| {
        !added.contains(name)
            && !name.to_lowercase().contains("cache")
            && !name.starts_with("GIT_CONFIG_")
    });
    assert_eq!(names, expected, "{shown}");
}

#[test]
fn a_variable_of_the_loader_changes_the_command_and_not_the_program() {
    let desk = Desk::commands("[env]\nLD_PRELOAD = '/none.so'\n[tasks.t]\nrun = 'env'\n");
    let done = desk.call(&["run", "--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let shown = desk.good(&["show", "/t", "--output"]);
    assert!(shown.contains("LD_PRELOAD=/none.so\n"), "{shown}");
    assert!(!shown.contains("CALLSHEET_HELD"), "{shown}");
    // The wrapper, and the process that enters the sandbox, would say that they cannot load it.
    assert!(!done.err.contains("none.so"), "{}", done.err);
    let of_loader = shown.matches("cannot be preloaded").count();
    assert!(of_loader <= 2, "of the shell and of env: {shown}");
}

#[test]
fn folders_of_killed_commands_are_removed_and_no_others() {
    let desk = Desk::commands("[tasks.t]\nrun = 'true'\n");
    let temporary = desk.path().join("temporary");
    desk.write("temporary/callsheet-2024999-notes/mine", "precious");
    for folder in ["left", "held", "new"] {
        desk.write(&format!("temporary/.callsheet-command-{folder}/file"), "x");
    }
    let open = |folder: &str| {
        let folder = temporary.join(format!(".callsheet-command-{folder}"));
        std::fs::File::open(folder).expect("a folder")
    };
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    for folder in ["left", "held"] {
        open(folder).set_modified(long_ago).expect("set");
    }
    let held = open("held");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let mut command = desk.command(&["run"]);
    let done = command.env("TMPDIR", &temporary).output().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    let mut names: Vec<_> = std::fs::read_dir(&temporary)
        .expect("a folder")
        .map(|entry| entry.expect("one").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    let stay = [".callsheet-command-held", ".callsheet-command-new", "callsheet-2024999-notes"];
    assert_eq!(names, stay);
}

#[test]
fn a_secret_reaches_neither_commands_nor_records() {
    let agents = r#"
[secrets]
TOKEN = { env = "DESK_TOKEN" }
[agents.worker]
instructions = "Work."
tools = ["bash", "read_file"]
[tasks.job]
agent = "worker"
prompt = "go"
[tasks.command]
run = 'cat note.txt'
"#;
    let script = r#"
[[rules]]
turn = 1
calls = [
  { tool = "bash", input = { command = 'echo "[$DESK_TOKEN]"' } },
  { tool = "read_file", input = { path = "note.txt" } },
]
[[rules]]
say = "{{ last[0].text | trim }} {{ last[1].text | trim }}"
"#;
    let desk = Desk::offline(agents, script);
    desk.write("note.txt", &format!("the token is {SECRET}\n"));
    let mut command = desk.command(&["run", "-v"]);
    let done = command.env("DESK_TOKEN", SECRET).stdin(Stdio::null()).output().expect("runs");
    assert!(done.status.success(), "{done:?}");
    let said = desk.good(&["show", "/job"]);
    assert!(said.contains("[] the token is [redacted]"), "{said}");
    assert!(desk.good(&["show", "/command"]).contains("the token is [redacted]"));
    let mut files = vec![desk.runs().remove(0)];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(&path).expect("a folder").map(|e| e.expect("one").path()),
            );
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            assert!(!text.contains(SECRET), "{}", path.display());
        }
    }
}
