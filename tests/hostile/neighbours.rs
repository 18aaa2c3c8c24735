//! What another user of the machine can prepare: files with names that a shell expands, links in folders that are
//! written, folders that everybody can write, and a clock that goes back.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::support::desk::{Desk, Done};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

/// Runs the program with a mask of new files that gives every right away.
fn wide(desk: &Desk, arguments: &str) -> Done {
    desk.shell(&format!("umask 000; callsheet {arguments}"))
}

#[test]
fn bash_takes_a_name_that_is_offered_as_it_is() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    // As a pattern, the first is the name of the second.
    for name in ["x[.-~]id[.-~]", "x;id;", "xplain"] {
        desk.write(name, "");
    }
    let ask = "COMP_WORDS=(callsheet check -f x); COMP_CWORD=3; COMP_TYPE=9; \
               complete -p callsheet | grep -q -- '-F _callsheet_as_it_is ' || exit 9; \
               _callsheet_as_it_is callsheet x -f; printf '<%s>' \"${COMPREPLY[@]}\"";
    for before in ["", "set -f; "] {
        let line = format!(
            "{before}source <(callsheet completions bash); kept=$-; {ask}; [ \"$kept\" = \"$-\" ] && echo same"
        );
        let said = desk.shell(&format!("bash -c '{}'", line.replace('\'', "'\\''")));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
        assert_eq!(said.out, "<x[.-~]id[.-~]><xplain>same\n", "{before}");
    }
}

#[test]
fn what_is_written_for_a_person_has_its_rights_whatever_the_mask() {
    let desk = Desk::empty();
    let made = wide(&desk, "init");
    assert_eq!(made.code, 0, "{}", made.err);
    for (name, expected) in [("agents.toml", 0o644), ("scripts", 0o755)] {
        assert_eq!(mode(&desk.path().join(name)), expected, "{name}");
    }
    let config = desk.path().join("config");
    // A link in its place is not written through.
    let printed = wide(&desk, "service install --print").out;
    let installed = desk.shell(&format!(
        "umask 000; XDG_CONFIG_HOME='{}' callsheet service install",
        config.display()
    ));
    assert_eq!((installed.code, &installed.out), (0, &printed), "{}", installed.err);
    let folder = config.join("systemd/user");
    let unit =
        fs::read_dir(&folder).expect("a folder").next().expect("a unit").expect("one").path();
    for (path, expected) in [(&unit, 0o600), (&folder, 0o755), (&config, 0o755)] {
        assert_eq!(mode(path), expected, "{}", path.display());
    }
    let outside = desk.path().join("outside");
    fs::write(&outside, "mine").expect("written");
    fs::remove_file(&unit).expect("removed");
    symlink(&outside, &unit).expect("a link");
    let again =
        desk.shell(&format!("XDG_CONFIG_HOME='{}' callsheet service install", config.display()));
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(fs::read_to_string(&outside).expect("there"), "mine");
    assert_eq!(fs::read_to_string(&unit).expect("a unit"), printed);
}

#[test]
fn results_of_a_replay_are_not_written_through_a_link() {
    let desk = Desk::empty();
    let say = |role: &str, text: &str| {
        format!("{{\"role\":\"{role}\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}")
    };
    // Of more than a window, so that something is removed and kept.
    let long = "word ".repeat(60);
    let turns: Vec<_> = (0..800).map(|turn| say(["user", "assistant"][turn % 2], &long)).collect();
    desk.write("conversation.json", &format!("[{}]", turns.join(",")));
    desk.write("mine", "mine");
    fs::create_dir(desk.path().join("results")).expect("a folder");
    let transcript = desk.path().join("results/transcript.jsonl");
    symlink(desk.path().join("mine"), &transcript).expect("a link");
    let applied = desk.call(&[
        "context",
        "apply",
        "--preset",
        "production",
        "--results-dir",
        "results",
        "conversation.json",
    ]);
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert_eq!(desk.read("mine"), "mine");
    assert!(fs::symlink_metadata(&transcript).expect("there").is_file(), "it was written");
    assert_eq!(mode(&transcript), 0o600);
    // Without a folder of one's own, one is made that nobody else can change.
    let temporary = desk.path().join("temporary");
    fs::create_dir(&temporary).expect("a folder");
    let applied = desk.shell(&format!(
        "umask 000; export TMPDIR='{0}'; callsheet context apply --preset production conversation.json >/dev/null && stat -c %a '{0}'/*",
        temporary.display()
    ));
    assert_eq!((applied.code, applied.out.as_str()), (0, "700\n"), "{}", applied.err);
}

#[test]
fn the_newest_run_is_the_one_that_began_last_also_if_the_clock_went_back() {
    let desk = Desk::commands("[tasks.one]\nrun = 'echo x >> ledger'\n");
    // Made when the clock was centuries ahead.
    let ahead = "0fffffff-ffff-7abc-8def-000000000001";
    assert_eq!(desk.call(&["run", "--run-id", ahead]).code, 0);
    desk.write("agents.toml", "version = 1\n[tasks.two]\nrun = 'false'\n");
    assert_eq!(desk.call(&["run"]).code, 1);
    let shown = desk.good(&["show"]);
    assert!(shown.contains("two") && !shown.contains(ahead), "{shown}");
    let again = desk.call(&["resume", "--retry-failed"]);
    assert_eq!(again.code, 1, "{}", again.err);
    assert!(!again.err.contains(ahead), "{}", again.err);
    assert_eq!(desk.read("ledger"), "x\n");
    // A fork of an old run is the newest too.
    let forked = desk.call(&["fork", &format!("{ahead}@2")]);
    assert_eq!(forked.code, 0, "{}", forked.err);
    assert!(
        desk.good(&["show"]).contains(&format!("forked from {ahead}")),
        "{}",
        desk.good(&["show"])
    );
    // An id without a time stands aside.
    assert_eq!(desk.call(&["run", "--run-id", "ffffffff-ffff-4fff-8fff-ffffffffffff"]).code, 1);
    assert_eq!(desk.call(&["run"]).code, 1);
}

#[test]
fn a_question_of_trust_says_who_else_can_change_what_it_covers() {
    let desk = Desk::commands("[sandbox]\nnetwork = true\n[tasks.one]\nrun = 'sh ./publish.sh'\n");
    desk.write("publish.sh", "true\n");
    let refused = desk.call(&["run"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.err.contains("needs_trust") && !refused.err.contains("whoever can change"),
        "{}",
        refused.err
    );
    fs::set_permissions(desk.path(), fs::Permissions::from_mode(0o777)).expect("set");
    let warning = "every user can write";
    for done in [desk.call(&["run"]), desk.call(&["run", "--trust"])] {
        assert!(
            done.err.contains(warning) && done.err.contains("whoever can change the scripts"),
            "{}",
            done.err
        );
    }
}

#[test]
fn a_store_of_trust_that_others_can_exchange_is_none() {
    let desk = Desk::commands("[sandbox]\nnetwork = true\n[tasks.one]\nrun = 'true'\n");
    assert_eq!(desk.call(&["trust", "agents.toml"]).code, 0);
    assert_eq!(desk.call(&["run"]).code, 0);
    fs::set_permissions(desk.state(), fs::Permissions::from_mode(0o777)).expect("set");
    let refused = desk.call(&["run"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("somebody else can put files into it"), "{}", refused.err);
    assert_eq!(desk.call(&["trust", "agents.toml"]).code, 2);
    // As in a temporary folder, where nobody exchanges what is another's.
    fs::set_permissions(desk.state(), fs::Permissions::from_mode(0o1777)).expect("set");
    assert_eq!(desk.call(&["run"]).code, 0);
    let file = desk.state().join("callsheet/trust.json");
    fs::remove_file(&file).expect("there");
    let made = std::process::Command::new("mkfifo").arg(&file).status().expect("made");
    assert!(made.success());
    let listed = desk.call(&["trust", "--list"]);
    assert!(listed.code == 2 && listed.err.contains("it is no file"), "{}", listed.err);
}
