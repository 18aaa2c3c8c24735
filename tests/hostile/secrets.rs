//! Keys and secrets stay where they are: not in commands, not in records, not in outputs.

use std::process::Stdio;

use crate::support::desk::{Desk, Done};

const SECRET: &str = "s3cr3t-0123456789";

#[test]
fn commands_get_the_variables_that_the_file_names_and_no_others() {
    let desk = Desk::commands(
        "[sandbox]\nenv = ['NAMED']\n[env]\nSET = 'set'\n\
         [tasks.all]\nrun = 'env'\nenv = { OWN = 'own' }\n[inputs.x]\ndefault = 'in'\n",
    );
    desk.good(&["trust"]);
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

/// Values of secrets whose names tell nothing.
const SECRETS: [(&str, &str); 14] = [
    ("SLACK_WEBHOOK_URL", "https://hooks.slack.com/services/T00/B00/AbCd"),
    ("DISCORD_HOOK", "https://discord.com/api/webhooks/1/AbCdEf"),
    ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey=abcd0123abcd0123=="),
    ("GCP_SA_JSON", "{\"private_key\": \"MIIEvQIBADANBgkqhkiG9w0\"}"),
    ("STRIPE_SK", "sk_live_51AbCdEf"),
    ("HF", "hf_AbCdEfGhIj"),
    ("SENDGRID", "SG.aBcDe.fGhIj"),
    ("ID", "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0"),
    ("VAULT_ROLE_ID", "db02de05-fa39-4855-059b-67221c5c2f63"),
    ("DEPLOY_PEM", "MIIEvQIBADANBgkqhkiG9w0"),
    ("NETRC", "machine example.com login me password Hush-12"),
    ("KUBE", "apiVersion: v1\nclient-key-data: LS0tLS1CRUdJTiBS"),
    ("DIGITAL", "dop_v1_0123456789abcdef"),
    ("PULUMI", "pul-0123456789abcdef"),
];

#[test]
fn each_variable_that_a_file_asks_for_is_asked_about_and_replaced() {
    for (name, value) in SECRETS {
        let desk = Desk::commands(&format!(
            "[sandbox]\nenv = ['{name}', 'CI', 'TERM']\n[tasks.t]\nrun = 'echo \"=${name}=\"; echo $CI'\n"
        ));
        let run = |verb: &str| {
            let mut command = desk.command(&[verb]);
            Done::of(command.env(name, value).env("CI", "yes"))
        };
        let refused = run("run");
        assert_eq!(refused.code, 2, "{name}: {}", refused.err);
        let says = format!("commands get the variable `{name}`, whose value may be a secret");
        assert!(refused.err.contains(&says), "{}", refused.err);
        assert!(!refused.err.contains("`CI`") && !refused.err.contains("`TERM`"), "{name}");
        assert_eq!(run("trust").code, 0);
        let done = run("run");
        assert_eq!(done.code, 0, "{name}: {}", done.err);
        let shown = desk.good(&["show", "/t", "--output"]);
        assert_eq!(shown, "=[redacted]=\nyes\n", "{name}");
    }
    // What is trusted as a plain word is asked about again when it is more.
    let desk = Desk::commands("[sandbox]\nenv = ['MODE']\n[tasks.t]\nrun = 'echo $MODE'\n");
    let run = |verb: &str, value: &str| {
        let mut command = desk.command(&[verb]);
        Done::of(command.env("MODE", value)).code
    };
    assert_eq!(run("run", "fast"), 2);
    assert_eq!((run("trust", "fast"), run("run", "fast"), run("run", "slow")), (0, 0, 0));
    assert_eq!(run("run", "dop_v1_0123456789abcdef"), 2);
    assert_eq!(desk.good(&["show", "/t", "--output"]), "slow\n");
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
    // Outside of the workspace: a command could write there.
    let place = tempfile::tempdir().expect("a folder");
    let temporary = place.path().to_owned();
    let write = |name: &str, text: &str| {
        let path = temporary.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("callsheet-2024999-notes/mine", "precious");
    for folder in ["left", "held", "new"] {
        write(&format!(".callsheet-command-{folder}/file"), "x");
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

#[test]
fn git_knows_the_author_and_none_of_the_persons_tokens() {
    let desk = Desk::commands(
        "[tasks.t]\nrun = 'git var GIT_AUTHOR_IDENT | cut -d\" \" -f1-3; \
         git config --get-all http.extraHeader; cat \"$HOME/.gitconfig\" 2>/dev/null; \
         git config --get safe.bareRepository; true'\n",
    );
    let home = tempfile::tempdir().expect("a folder");
    let text = format!(
        "[user]\nname = Ann Author\nemail = ann@example.com\n[http]\nextraHeader = {SECRET}\n"
    );
    std::fs::write(home.path().join(".gitconfig"), text).expect("written");
    let done = Done::of(desk.command(&["run"]).env("HOME", home.path()));
    assert_eq!(done.code, 0, "{}", done.err);
    if done.err.contains("no sandbox") {
        eprintln!("skipped: there is no sandbox here");
        return;
    }
    let shown = desk.good(&["show", "/t", "--output"]);
    assert_eq!(shown, "Ann Author <ann@example.com>\nexplicit\n");
}
