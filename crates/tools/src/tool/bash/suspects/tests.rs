//! A denied command in every place of the grammar, alone and in random nesting, is always denied or
//! not allowed.

use serde_json::json;

use super::*;
use crate::message::Json;
use crate::permission::{PermissionDecision, Permissions, Rule, Subject};
use crate::tool::bash::tools;
use crate::tool::workspace::Workspace;

/// Lines that run `rm x`.
const HIDDEN: &[&str] = &[
    "rm x",
    "exec rm x",
    "command rm x",
    "builtin command rm x",
    "case x in x) rm x;; esac",
    "case x in (x) rm x;; esac",
    "echo $(case x in x) rm x;; esac)",
    "A=\"x y\" rm x",
    "A='x;y' B=\"a $(echo \"b c\") d\" rm x",
    "A=$(echo x y) rm x",
    "A=(x y) rm x",
    "A+=1 a[1]=2 rm x",
    "A=`echo x y` rm x",
    "\\rm x",
    "r''m x",
    "r\\\nm x",
    "\"rm\" x",
    "r$'m' x",
    "$'\\x72\\155' x",
    "$\"rm\" x",
    "/bin/rm x",
    "bin/../rm x",
    "rm>f x",
    ">f rm x",
    "2>&1 rm x",
    "3>&- rm x",
    "ls &>f rm x",
    "time rm x",
    "time -p rm x",
    "! rm x",
    "{ rm x; }",
    "( rm x )",
    "(rm x)",
    "if ls; then rm x; fi",
    "if rm x; then ls; fi",
    "while ! rm x; do ls; done",
    "until rm x; do ls; done",
    "for i in a; do rm x; done",
    "f() { rm x; }; f",
    "f() (rm x)\nf",
    "function f { rm x; }; f",
    "coproc rm x",
    "coproc N { rm x; }",
    "env rm x",
    "env -u X -- rm x",
    "env -S 'rm x'",
    "env '-Srm x'",
    "env --split-string='rm x'",
    "nohup nice -n 5 timeout -k 1s 5s rm x",
    "sudo -u root rm x",
    "ls | xargs rm",
    "ls | xargs -n1 -I{} rm {}",
    "find . -exec rm {} +",
    "find . -name y -execdir sh -c 'rm x' ;",
    "echo $(rm x)",
    "echo \"a $(rm x) b\"",
    "echo `rm x`",
    "echo \"`rm x`\"",
    "echo `echo \\`rm x\\``",
    "cat <(rm x)",
    "ls >(rm x)",
    "echo ${y:-$(rm x)}",
    "echo $((1 + $(rm x)))",
    "cat <<E\n$(rm x)\nE",
    "cat <<E\ndon't `exec rm x`\nE",
    "cat <<'E'\ndon't\nE\nexec rm x",
    "cat <<'E' | sh\nrm x\nE",
    "eval rm x",
    "eval 'rm x'",
    "eval \"'rm' x\"",
    "eval 'r\\' 'm x' 'ls; rm x'",
    "alias l=rm; l x",
    "alias l='rm x'\nl",
    "trap 'rm x' EXIT",
    "sh -c 'rm x'",
    "bash -lc \"exec rm x\"",
    "sh -c \"sh -c 'rm x'\"",
    "zsh -c 'rm x'",
    "watch -n 1 rm x",
    "flock f rm x",
    "ssh host rm x",
    "ls # don't\nexec rm x",
    "echo 'it'; exec rm x",
    "true && exec rm x || ls",
    "ls & exec rm x",
    "ls | exec rm x",
];

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| Rule::parse(text).expect("a rule")).collect()
}

/// Rules that deny `rm` and allow much else.
fn permissions() -> Permissions {
    let programs = ["ls", "echo", "cat", "env", "sh", "nohup", "xargs", "find", "true", "time"];
    let allow: Vec<String> = programs.iter().map(|program| format!("bash({program}:*)")).collect();
    let allow: Vec<&str> = allow.iter().map(String::as_str).chain(["bash(r*)"]).collect();
    Permissions { allow: rules(&allow), deny: rules(&["bash(rm *)"]), ..Permissions::default() }
}

fn decision(permissions: &Permissions, line: &str) -> PermissionDecision {
    permissions.judge(NAME, &subject(line)).0
}

const NAME: &str = "bash";

fn subject(line: &str) -> Subject {
    let dir = std::env::temp_dir();
    let workspace = Workspace::open(&dir).expect("a workspace");
    tools()[0].subject(&Json::encode(&json!({"command": line})), &workspace)
}

#[test]
fn a_denied_command_is_found_wherever_it_stands() {
    let permissions = permissions();
    for line in HIDDEN {
        assert_eq!(
            decision(&permissions, line),
            PermissionDecision::Deny,
            "{line}: {:?}",
            suspects(line)
        );
    }
}

#[test]
fn other_words_are_no_commands() {
    let permissions = permissions();
    for line in [
        "echo rm x",
        "git rm x",
        "ls rm x > f",
        "env -i FOO=1 make rm x",
        "timeout 5 grep rm x",
        "ls | xargs -n 1 -t echo a rm x",
        "find rm x -name rm",
        "echo \"$(date) rm x\"",
        "cp $(cat y) rm x",
        "rmdir x",
        "ls # rm x",
        "for rm in x; do ls; done",
    ] {
        assert_ne!(
            decision(&permissions, line),
            PermissionDecision::Deny,
            "{line}: {:?}",
            suspects(line)
        );
    }
}

/// Ways to put a line into another. `%` is the line, `Q` is the line in single quotes.
const AROUND: &[&str] = &[
    "%",
    "( % )",
    "{ %\n}",
    "if ls; then %\nfi",
    "if %\nthen ls; fi",
    "while %\ndo ls; done",
    "for i in a; do %\ndone",
    "ls; %",
    "ls && %",
    "ls | %",
    "! %",
    "%; ls",
    "% | cat",
    "% > f",
    "sh -c Q",
    "env sh -c Q",
    "sh -ec Q x",
    "echo $(%\n)",
    "echo \"$(%\n)\"",
    "eval Q",
    "f() { %\n}; f",
    "case x in x) %\n;; esac",
    "A='x y' B=$(ls) ls; %",
    "nohup sh -c Q",
    "ls | xargs sh -c Q",
    "find . -exec sh -c Q {} +",
    "cat <<'E'\ndon't\nE\n%",
    "time %",
    "coproc %",
    "trap Q EXIT",
    "echo 'a\"b'; %",
    "ls # it's\n%",
];

#[test]
fn random_nesting_hides_no_denied_command() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits") % most
    };
    let (permissions, mut denied, mut asked) = (permissions(), 0, 0);
    for _ in 0..1_000 {
        let mut line = HIDDEN[random(HIDDEN.len())].to_owned();
        for _ in 0..random(4) {
            let quoted = format!("'{}'", line.replace('\'', "'\\''"));
            line = AROUND[random(AROUND.len())].replace('%', &line).replace('Q', &quoted);
        }
        match decision(&permissions, &line) {
            PermissionDecision::Deny => denied += 1,
            PermissionDecision::Ask => asked += 1,
            PermissionDecision::Allow => panic!("allowed: {line}"),
        }
    }
    assert!(denied > asked * 20, "{denied} denied, {asked} asked");
}

#[test]
fn what_is_too_much_to_read_is_denied() {
    assert!(suspects(&"ls;".repeat(40_000)).texts.len() < 5);
    for line in [
        format!("{}ls", "A=1 ".repeat(40_000)),
        format!("env {}rm x", "A=1 ".repeat(40_000)),
        format!("{}rm x", "eval ".repeat(30_000)),
        format!("{}rm x", "eval '".repeat(5_000)),
        "(;\"$(".repeat(25_000),
    ] {
        let found = suspects(&line);
        let names = |text: &String| text.starts_with("rm x");
        assert!(
            found.unread || found.texts.iter().any(names) || !line.contains("rm"),
            "{line:.40}"
        );
    }
    let long = format!("{}ls", "A=1 ".repeat(40_000));
    assert_eq!(decision(&permissions(), &long), PermissionDecision::Deny);
}
