//! Hostile and ordinary command lines, and random ones in real shells: what a reading leaves out does
//! not happen.

use std::collections::VecDeque;
use std::fs;
use std::io::{PipeReader, Read as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::*;

/// Texts that carry a second command or a write along. The payload is `touch P` or a write of `P`.
const HOSTILE: &[&str] = &[
    // Separators.
    "ls; touch P",
    "ls;touch P",
    "ls\ntouch P",
    "ls & touch P",
    "ls&touch P",
    "ls && touch P",
    "true||ls; false || touch P",
    "ls | touch P",
    "ls |& touch P",
    "ls;;touch P",
    "! false; touch P",
    "ls \\>& touch P",
    "ls \\>\\& touch P& touch P",
    "ls &>/dev/null touch P",
    "ls &>> P touch P",
    "ls >& P",
    "ls >&P 2>&1",
    "ls '' && touch P",
    "ls \"a\"&touch P",
    "ls 'a\n'\ntouch P",
    "ls 2>&1& touch P",
    "ls 2>&1 & touch P",
    "ls 1>&2-; touch P",
    // Git runs a program that was written before, or writes files.
    "git apply P",
    "git am P",
    "git cherry-pick --strategy=x/P other",
    "git revert --strat x/P other",
    "git rebase -s x/P other",
    "git merge -s x/P other",
    "git pull -s x/P origin",
    // Writes.
    "echo x > P",
    "echo x >P",
    "echo x>>P",
    "echo x >| P",
    "echo x 2>P",
    "echo x 1<>P",
    "> P",
    ">P ls",
    "2>&1 >P ls",
    "ls 10>P",
    "ls {fd}>P",
    "{ ls; } > P",
    "( ls ) > P",
    "if true; then ls; fi > P",
    "for x in a; do ls; done >> P",
    "ls > \"P\"",
    "ls > \\P",
    "ls > $PWD/P",
    "ls > ~/P",
    "ls > {P,}",
    "ls > ./*",
    "cd .; echo > P",
    "echo x | tee P",
    "echo x | tee -a -- P",
    "dd if=/dev/null of=P",
    "cat <<'EOF' > P\nx\nEOF",
    "cat <<'EOF'\nx\nEOF\ntouch P",
    "cat <<'EOF' | sh\ntouch P\nEOF",
    "cat <<EOF\n$(touch P)\nEOF",
    "cat <<-'EOF'\n\tx\n\tEOF\ntouch P",
    "cat <<'EOF'; touch P\nx\nEOF",
    "cat <<'E' <<'F'\nE\nF\ntouch P",
    "cat <<'E' 'a\nE\ntouch P\n' b\nE\n",
    "cat <<'E' \\\nE\ntouch P\nE",
    "cat <<'E'x\nE\ntouch P\nEx",
    "cat <<E\\\nF\nE\ntouch P\nEF",
    "cat <<< x; touch P",
    // Substitutions.
    "ls $(touch P)",
    "ls \"$(touch P)\"",
    "ls `touch P`",
    "ls \"`touch P`\"",
    "ls \"a'`touch P`'\"",
    "ls '\\'`touch P`",
    "ls ${x:-$(touch P)}",
    "ls ${x:-`touch P`}",
    "ls ${x=a}",
    "ls ${!x}",
    "ls $((1$(touch P)))",
    "ls $[$(touch P)]",
    "ls $[1]",
    "ls <(touch P)",
    "ls >(touch P)",
    "ls $'\\'; touch P; #'",
    "ls $\"$(touch P)\"",
    "$'\\x74ouch' P",
    "ls \"$'\"; touch P #'",
    // Names of commands.
    "l''s $(touch P)",
    "t\\ouch P",
    "'touch' P",
    "\"to\"uch P",
    "/usr/bin/touch P",
    "$x touch P",
    "$0 -c 'touch P'",
    "{touch,P}",
    "{ls,-l}; touch P",
    "?ouch P",
    "to[u]ch P",
    "~/touch P",
    "'ls -l' P",
    "'' P",
    "-x P",
    "A=1 touch P",
    "A=1",
    "A=(touch P)",
    "A+=1 ls",
    "a[1]=2 ls",
    "a[; touch P",
    "a[$(touch P)]=1",
    // Reserved words and groups.
    "if true; then touch P; fi",
    "if touch P; then ls; fi",
    "if false; then ls; elif touch P; then ls; else ls; fi",
    "if false; then ls; else touch P; fi",
    "while ! touch P; do ls; done",
    "until touch P; do ls; done",
    "for x in touch; do $x P; done",
    "for x in a; do touch P; done",
    "for PATH in .; do ls; done",
    "for x in '-v a[$(touch${IFS}P)]'; do [ $x ]; done",
    "for x in -v; do [ \"$x\" 'a[$(touch P)]' ]; done",
    "{ touch P; }",
    "(touch P)",
    "( ( touch P ) )",
    "((touch P))",
    "! touch P",
    "! ! touch P",
    "ls() { touch P; }; ls",
    "ls ( ) { touch P; }\nls",
    "function ls { touch P; }; ls",
    "case x in x) touch P;; esac",
    "select x in a; do touch P; done",
    "coproc touch P",
    "[[ -n $(touch P) ]]",
    "time touch P",
    "time { touch P; }",
    "time ! touch P",
    "true && { touch P; } || ls",
    "echo do; touch P",
    "echo } ; touch P",
    "echo if; then touch P; fi",
    "> /dev/null if true; touch P",
    // Comments and continued lines.
    "ls # \n touch P",
    "ls #a\\\ntouch P",
    "ls a#b; touch P",
    "ls ''#; touch P",
    "ls \\# ; touch P",
    "# ls\ntouch P",
    "ls \\\n; touch P",
    "ls \\\n\ntouch P",
    "ls &\\\n& touch P",
    "ls &\\\n> touch P",
    "ls \\\\\ntouch P",
    "ls $\\\n(touch P)",
    "ls '\\\n'; touch P",
    "tou\\\nch P",
    "ls \"$\\\n(touch P)\"",
    // Builtins.
    "eval 'touch P'",
    "eval touch P",
    ". ./x",
    "source ./x",
    "exec touch P",
    "builtin eval 'touch P'",
    "command eval 'touch P'",
    "command touch P",
    "command -p touch P",
    "trap 'touch P' EXIT",
    "alias ls='touch P'\nls",
    "export PATH=.",
    "set -- touch P",
    "hash -p /usr/bin/touch ls; ls P",
    "fc -s",
    "enable -f ./x x",
    "printf -v 'a[$(touch P)]' x",
    "printf '%n' PATH",
    "printf 'x%-n' x",
    "test -v 'a[$(touch P)]'",
    "[ -v 'a[$(touch P)]' ]",
    "[ ! -v 'a[$(touch P)]' ]",
    "[ a = a -a -v 'a[$(touch P)]' ]",
    "read 'a[$(touch P)]' < /dev/null",
    "let 'a[$(touch P)]'",
    "wait -n -p 'a[$(touch P)]'",
    "jobs -x touch P",
    "compgen -W '$(touch P)'",
    "mapfile -C 'touch P' -c 1 x",
    "unset 'a[$(touch P)]'",
    // Launchers.
    "env touch P",
    "env A=1 touch P",
    "env -S 'touch P'",
    "env -i /usr/bin/touch P",
    "env -u X touch P",
    "/usr/bin/env touch P",
    "env -- touch P",
    "env nice -n 1 nohup touch P",
    "nice touch P",
    "nice -n 5 touch P",
    "nice -5 touch P",
    "timeout 5 touch P",
    "timeout -k 5 5 touch P",
    "timeout --signal=9 5 touch P",
    "stdbuf -oL touch P",
    "setsid touch P",
    "setsid -w touch P",
    "flock x touch P",
    "flock P ls",
    "busybox touch P",
    "sudo touch P",
    "echo P | xargs touch",
    "echo P | xargs -n1 touch",
    "echo P | xargs -I{} touch {}",
    "echo touch | xargs -I{} {} P",
    "echo touch | xargs -IX X P",
    "echo 'touch P' | xargs -I ls sh -c ls",
    "echo 'touch P' | xargs -d '\\n' sh -c",
    "echo -S'touch P' | xargs env",
    "echo 'touch P' | sh",
    "echo 'touch P' | sh -s",
    "echo 'touch P' | sh -",
    "echo 'touch P' | bash /dev/stdin",
    "echo 'touch P' | sh ./../../../../../../../dev/fd/0",
    "sh -c 'touch P'",
    "sh -c \"touch P\"",
    "sh -ec 'ls; touch P'",
    "bash -lc 'touch P'",
    "bash -c 'ls; touch P'",
    "bash -c -- 'touch P'",
    "bash -c 'ls $(touch P)'",
    "bash -c 'eval \"$1\"' x 'touch P'",
    "bash -c '$0 P' touch",
    "bash -O extglob -c 'touch P'",
    "bash -o errexit -c 'touch P'",
    "bash +e -c 'touch P'",
    "sh -c \"sh -c 'touch P'\"",
    "sh -c $1 x 'touch P'",
    "zsh -c 'touch P'",
    "find . -exec touch P {} +",
    "find . -exec touch P \\;",
    "find . -exec touch P ';'",
    "find . -execdir touch P \\;",
    "find . -exec ls {} + -exec touch P \\;",
    "find . -name -exec -o -exec touch P \\;",
    "find . -name -exec , -exec touch P \\;",
    "find . -exec sh -c 'touch P' \\;",
    "find . -exec env touch P \\;",
    "for x in '; -exec touch P'; do find . -exec ls $x \\; ; done",
    "for x in ';'; do for y in -exec; do find . -exec ls \"$x\" \"$y\" touch P \\; ; done; done",
    "find . -exec ls \\;* -exe* touch P \\;",
    "find . -fprint P",
    "find . -fprintf P x",
    "find . -fls P",
    "find . -{exec,exec} touch P \\;",
    "find . $x touch P \\;",
    // Options of programs.
    "git -c alias.x='!touch P' x",
    "git -calias.x='!touch P' x",
    "git --config-env=alias.x=X x",
    "git --exec-path=. x",
    "git --git-dir=x status",
    "git -p log",
    "git x",
    "git config alias.x '!touch P'",
    "git config --global alias.x '!touch P'",
    "git init -q .; git config alias.x '!touch P'; git x",
    "git clone -u 'touch P;:' . x",
    "git clone --upload-pack 'touch P;:' . x",
    "git clone --up='touch P;:' . x",
    "git ls-remote --upload-pack='touch P;:' .",
    "git ls-remote --upl 'touch P;:' .",
    "git clone -c protocol.ext.allow=always 'ext::sh -c touch% P' x",
    "git fetch 'ext::sh -c touch% P'",
    "git rebase -x 'touch P' HEAD~1",
    "git rebase --exec 'touch P' HEAD~1",
    "git bisect run touch P",
    "git submodule foreach 'touch P'",
    "git filter-branch --tree-filter 'touch P'",
    "git difftool -x 'touch P'",
    "git mergetool",
    "git grep -O'touch P' x",
    "git grep -e -- -O'touch P'",
    "git grep --open='touch P' x",
    "git diff --ext-diff",
    "git diff --output=P",
    "git diff --no-index --output=P /dev/null /dev/zero",
    "git log --outp P",
    "git archive -o P HEAD",
    "git {diff,--output=P}",
    "git log $x",
    "git log \"$x\"",
    "git log -{-output=P,p}",
    "git log *",
    "tar -cf x --to-command='touch P' .",
    "tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='touch P' .",
    "tar -cf /dev/null --checkpoint=1 --checkpoint-act=exec='touch P' /bin/ls",
    "tar cIf 'touch P' /dev/null .",
    "tar -I 'touch P' -cf x .",
    "tar --use-compress='touch P' -cf x .",
    "printf '%s\n' --checkpoint=1 --checkpoint-action=exec='touch P' . | tar -cf /dev/null -T -",
    "echo . | tar -cf /dev/null --files-f -",
    "rsync -e 'touch P' a b:c",
    "rsync -ave 'touch P' a b:c",
    "rsync --rsync-path='touch P' a b:c",
    "sort -o P /dev/null",
    "sort -uoP /dev/null",
    "sort --o=P /dev/null",
    "sort --output P /dev/null",
    "sort --compress-program='touch P' x",
    "awk 'BEGIN { system(\"touch P\") }'",
    "awk 'BEGIN { print > \"P\" }'",
    "awk 'BEGIN { print | \"touch P\" }'",
    "awk 'BEGIN { \"touch P\" | getline }'",
    "awk -f x",
    "gawk 'BEGIN { f = \"sys\" \"tem\"; @f(\"touch P\") }'",
    "sed 'w P' /dev/null",
    "sed -n '1e touch P'",
    "echo x | sed e",
    "echo x | sed 's/x/touch P/e'",
    "echo x | sed 's/x/y/w P'",
    "echo x | sed 's/x/y/;w P'",
    "echo x | sed -e p -e 'w P'",
    "echo x | sed 's/[/]/x/;w P\n/'",
    "echo x | sed s/x/y/gw*",
    "sed -i s/a/b/ P",
    "sed -ni p P",
    "sed p P --in-place",
    "sed -f x",
    "make -f x",
    "make --eval='$(shell touch P)'",
    "make -E '$(shell touch P)'",
    "make SHELL=./x",
    "make CC='touch P'",
    "ssh -o ProxyCommand='touch P' x",
    "ssh -oProxyCommand='touch P' x",
    "ssh x ls ';touch' P",
    "ssh x 'ls; touch P'",
    "ssh -p 22 x ls '>' P",
    "ssh x -oProxyCommand='touch P' ls",
    "ssh x ls $y",
    "scp -S ./x a b:c",
    "man -P 'touch P' ls",
    "less x",
    "vim -c '!touch P'",
    "uniq /dev/null P",
    "curl -o P file:///dev/null",
    "rg --pre ./x y",
    "fd -x touch P",
    "cargo --config 'build.rustc-wrapper=\"x\"' build",
    "split --filter='touch P' x",
    "watch touch P",
    "strace -o P ls",
    "script -c 'touch P'",
    // Characters and quotes.
    "",
    " \t\n",
    "# touch P",
    "ls 'x; touch P",
    "ls \"x; touch P",
    "ls \\",
    "ls (x",
    "ls )",
    "( ls",
    "{ ls",
    "{ ls }",
    "if ls; then ls",
    "ls &&",
    "| ls",
    "ls\u{b}touch P",
    "ls\r\ntouch P",
    "ls \0; touch P",
    "ls \u{202e}x",
    "ls\u{200b} x",
    "ls\u{a0}; touch P",
    "ls >",
    "ls 2>",
    "ls < $(touch P)",
    "ls </dev/tcp/localhost/1",
    "< /dev/null",
    "for npm_config_shell in x; do ls; done",
    "for http_proxy in x; do ls; done",
    "while read -r PATH; do ls; done < /dev/null",
    "sftp x <<'E'\n!touch P\nE",
];

/// Texts that people want to allow, with their commands and writes.
const ORDINARY: &[(&str, &[&str], &[&str])] = &[
    ("ls", &["ls"], &[]),
    ("  ls   -l\t.  ", &["ls -l ."], &[]),
    ("ls -la; pwd", &["ls -la", "pwd"], &[]),
    ("ls;", &["ls"], &[]),
    ("ls &", &["ls"], &[]),
    (
        "cd src && cargo test --lib 2>&1 | tail -n 20",
        &["cd src", "cargo test --lib", "tail -n 20"],
        &[],
    ),
    ("cargo build || cargo check", &["cargo build", "cargo check"], &[]),
    ("cargo test -- --nocapture >/dev/null 2>&1", &["cargo test -- --nocapture"], &[]),
    ("cargo fmt -- --check", &["cargo fmt -- --check"], &[]),
    ("ls\n\npwd\n", &["ls", "pwd"], &[]),
    ("ls # all of it", &["ls"], &[]),
    ("# all of it\nls", &["ls"], &[]),
    ("ls a#b", &["ls a#b"], &[]),
    ("ls \\\n  -l \\\n  .", &["ls -l ."], &[]),
    ("ls && \\\npwd", &["ls", "pwd"], &[]),
    ("ls &&\npwd |\ncat", &["ls", "pwd", "cat"], &[]),
    ("echo 'a b'", &["echo 'a b'"], &[]),
    ("echo \"a b\" c", &["echo 'a b' c"], &[]),
    ("echo a\\ b", &["echo 'a b'"], &[]),
    ("echo \"don't\"", &["echo 'don'\\''t'"], &[]),
    ("echo ''", &["echo ''"], &[]),
    ("echo 'a\nb'", &["echo 'a\nb'"], &[]),
    ("git commit -m 'a; b & c > d'", &["git commit -m 'a; b & c > d'"], &[]),
    ("git commit -m \"a\\\"b\\$c\"", &["git commit -m a\"b$c"], &[]),
    ("git commit -F - <<'EOF'\none $(x)\n`two`\nEOF\n", &["git commit -F -"], &[]),
    ("cat <<\"END\" > a.txt\nx; y\nEND", &["cat"], &["a.txt"]),
    ("l\\s", &["ls"], &[]),
    ("\"ls\" -l", &["ls -l"], &[]),
    ("/bin/ls x", &["/bin/ls x"], &[]),
    ("./run.sh --all", &["./run.sh --all"], &[]),
    (
        "echo $HOME \"$USER\" $? $1 ${PATH} ${#x} ${f%.rs} ${f##*/}",
        &["echo $HOME $USER $? $1 ${PATH} ${#x} ${f%.rs} ${f##*/}"],
        &[],
    ),
    ("ls *.rs src/{a,b}.rs ~/x [a-z]?", &["ls *.rs src/{a,b}.rs ~/x [a-z]?"], &[]),
    ("grep -rn 'foo$' src | head -5", &["grep -rn foo$ src", "head -5"], &[]),
    ("grep \"a$\" x", &["grep a$ x"], &[]),
    ("echo if then } done", &["echo if then } done"], &[]),
    ("echo a=b", &["echo a=b"], &[]),
    ("ls > out.txt", &["ls"], &["out.txt"]),
    ("ls >> 'my out' 2> err", &["ls"], &["my out", "err"]),
    ("> a", &[], &["a"]),
    ("wc -l < in.txt", &["wc -l"], &[]),
    ("exec_it 3>&- <&- 2>&1", &["exec_it"], &[]),
    ("ls 2>/dev/stderr >/dev/stdout", &["ls"], &[]),
    ("cd /x && make > /tmp/log", &["cd /x", "make"], &["/tmp/log"]),
    ("(ls; pwd)", &["ls", "pwd"], &[]),
    ("{ ls; pwd; } 2>/dev/null | cat", &["ls", "pwd", "cat"], &[]),
    ("! grep -q x y", &["grep -q x y"], &[]),
    (
        "if [ -f x ]; then cat x; elif true; then ls; else pwd; fi",
        &["[ -f x ]", "cat x", "true", "ls", "pwd"],
        &[],
    ),
    ("if ! test -d x; then mkdir x; fi", &["test -d x", "mkdir x"], &[]),
    ("for f in *.rs 'a b'; do wc -l \"$f\"; done", &["wc -l $f"], &[]),
    ("for i in 1 2\ndo\n  echo $i\ndone", &["echo $i"], &[]),
    ("while read -r line; do echo \"$line\"; done < x", &["read -r line", "echo $line"], &[]),
    ("until curl -sf localhost; do sleep 1; done", &["curl -sf localhost", "sleep 1"], &[]),
    ("[ \"$x\" = y ] && echo z", &["[ $x = y ]", "echo z"], &[]),
    ("[ $? -eq 0 ]", &["[ $? -eq 0 ]"], &[]),
    ("test -n \"$x\"", &["test -n $x"], &[]),
    ("printf '%s\\n' \"$x\" $y", &["printf %s\\n $x $y"], &[]),
    ("sleep 1 & sleep 2", &["sleep 1", "sleep 2"], &[]),
    ("git status", &["git status"], &[]),
    (
        "git -C sub --no-pager log --oneline -n 5",
        &["git -C sub --no-pager log --oneline -n 5"],
        &[],
    ),
    ("git diff HEAD~1 -- src/a.rs", &["git diff HEAD~1 -- src/a.rs"], &[]),
    ("git add -- *.rs $x", &["git add -- *.rs $x"], &[]),
    ("git show stash@{0}", &["git show stash@{0}"], &[]),
    ("git push -u origin main", &["git push -u origin main"], &[]),
    ("git config --get user.name", &["git config --get user.name"], &[]),
    ("git grep -n 'std::fs'", &["git grep -n std::fs"], &[]),
    ("env", &["env"], &[]),
    ("env -u X ls -l", &["env -u X ls -l", "ls -l"], &[]),
    ("command -v ls", &["command -v ls"], &[]),
    ("time cargo build", &["time cargo build", "cargo build"], &[]),
    ("timeout 60 cargo test", &["timeout 60 cargo test", "cargo test"], &[]),
    (
        "timeout -k 5s 60 nice -n 10 ls x",
        &["timeout -k 5s 60 nice -n 10 ls x", "nice -n 10 ls x", "ls x"],
        &[],
    ),
    ("ls | xargs wc -l", &["ls", "xargs wc -l", "wc -l {}"], &[]),
    ("ls | xargs -0 -I{} echo {}.x", &["ls", "xargs -0 -I{} echo {}.x", "echo {}.x"], &[]),
    (
        "find . -name '*.rs' -not -path './target/*'",
        &["find . -name *.rs -not -path ./target/*"],
        &[],
    ),
    (
        "find . -type f -exec grep -l 'a b' {} +",
        &["find . -type f -exec grep -l 'a b' {} +", "grep -l 'a b' {}"],
        &[],
    ),
    (
        "find . \\( -name a -o -name b \\) -exec ls {} \\;",
        &["find . ( -name a -o -name b ) -exec ls {} ;", "ls {}"],
        &[],
    ),
    (
        "find . -exec sh -c 'cat \"$1\"' _ {} \\;",
        &["find . -exec sh -c 'cat \"$1\"' _ {} ;", "sh -c 'cat \"$1\"' _ {}", "cat $1"],
        &[],
    ),
    ("bash -lc 'cd x && ls'", &["bash -lc 'cd x && ls'", "cd x", "ls"], &[]),
    ("sh scripts/check.sh --fast", &["sh scripts/check.sh --fast"], &[]),
    ("sed -n '1,20p' x", &["sed -n 1,20p x"], &[]),
    ("sed -e 's/a/b/g; /x/d' -e '$p' x", &["sed -e 's/a/b/g; /x/d' -e $p x"], &[]),
    ("sed -E 's|[a-z]+/|\\1|2' x", &["sed -E s|[a-z]+/|\\1|2 x"], &[]),
    ("awk -F: '{ print $1 }' /etc/passwd", &["awk -F: '{ print $1 }' /etc/passwd"], &[]),
    ("tar xzf x.tgz src", &["tar xzf x.tgz src"], &[]),
    ("tar --extract --file x.tar", &["tar --extract --file x.tar"], &[]),
    ("sort -k2 -n x | uniq -c", &["sort -k2 -n x", "uniq -c"], &[]),
    ("ssh -p 22 me@host ls '-l'", &["ssh -p 22 me@host ls -l"], &[]),
    ("git diff --text", &["git diff --text"], &[]),
    ("make -j4 test", &["make -j4 test"], &[]),
    ("ls | tee out /dev/stderr", &["ls", "tee out /dev/stderr"], &["out"]),
    ("dd if=a of=b bs=1", &["dd if=a of=b bs=1"], &["b"]),
    ("rm -rf target && mkdir -p a/b", &["rm -rf target", "mkdir -p a/b"], &[]),
    ("python3 -u x.py -c 'print(1)'", &["python3 -u x.py -c print(1)"], &[]),
    ("echo h\u{e9}llo \u{a0}x", &["echo h\u{e9}llo \u{a0}x"], &[]),
];

/// Returns true if a reader of rules sees the payload.
fn is_caught(reading: &Reading) -> bool {
    let touches = |command: &String| command.starts_with("touch") || command.contains("/touch ");
    reading.unclear.is_some()
        || !reading.cautions.is_empty()
        || reading.commands.iter().any(touches)
        || reading.writes.iter().any(|file| file == "P")
}

#[test]
fn ordinary_texts_are_understood() {
    for (text, commands, writes) in ORDINARY {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        let expected =
            Reading { commands: owned(commands), writes: owned(writes), ..Reading::default() };
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn hostile_texts_are_caught() {
    for text in HOSTILE {
        let reading = read(text);
        assert!(is_caught(&reading), "{text}: {reading:?}");
    }
}

#[test]
fn the_first_reason_stays_and_what_was_found_is_listed() {
    let reading = read("touch a; eval b; git x > f; ls $(c)");
    assert_eq!(reading.unclear.as_deref(), Some("`$(` and `$[` run or compute text"));
    let reading = read("touch a; eval b; git x > f");
    assert_eq!(reading.commands, ["touch a", "eval b", "git x"]);
    assert_eq!(reading.writes, ["f"]);
    assert!(reading.unclear.expect("unclear").starts_with("`eval`"));
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |levels: usize| format!("{}ls{}", "(".repeat(levels), ")".repeat(levels));
    assert!(read(&nested(100_000)).unclear.is_some());
    let spaced = |levels: usize| format!("{}ls{}", "( ".repeat(levels), ")".repeat(levels));
    assert_eq!(read(&spaced(8)).unclear, None);
    assert!(read(&spaced(100_000)).unclear.is_some());
    assert!(read(&"{ ".repeat(100_000)).unclear.is_some());
    assert!(read(&format!("{}ls", "nice ".repeat(100_000))).unclear.is_some());
    assert!(read(&"if ".repeat(100_000)).unclear.is_some());
    assert!(read(&"find -exec ".repeat(100_000)).unclear.is_some());
    let begun = Instant::now();
    assert_eq!(read(&"ls a; ".repeat(100_000)).commands.len(), 100_000);
    assert_eq!(read(&format!("find . {}", "-exec ls {} + ".repeat(50_000))).commands.len(), 50_001);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Folders in which real shells run texts.
struct Field {
    root: PathBuf,
    shells: Vec<PathBuf>,
}

/// Programs that the texts may run, as far as this machine has them.
const PROGRAMS_RUN: &[&str] = &[
    "touch", "ls", "cat", "env", "find", "xargs", "nice", "nohup", "timeout", "stdbuf", "setsid",
    "sh", "dash", "bash", "git", "tar", "sed", "awk", "gawk", "sort", "make", "tee", "dd", "uniq",
    "split", "flock", "busybox", "time",
];

impl Field {
    fn new(name: &str) -> Self {
        let root = format!("callsheet-grammar-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(root);
        fs::create_dir_all(root.join("bin")).expect("a folder");
        let locate = |program: &&str| {
            let folders = ["/usr/local/bin", "/usr/bin", "/bin"];
            folders.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists())
        };
        for program in PROGRAMS_RUN.iter().filter_map(locate) {
            let name = program.file_name().expect("a name");
            symlink(&program, root.join("bin").join(name)).expect("a link");
        }
        let shells = ["dash", "bash", "sh"].iter().filter_map(locate).collect();
        Self { root, shells }
    }

    /// Starts a text in an empty folder of its own.
    fn start(&self, shell: &Path, text: &str, number: usize) -> (PathBuf, (Child, PipeReader)) {
        let folder = self.root.join(number.to_string());
        let (reader, writer) = std::io::pipe().expect("a pipe");
        fs::create_dir(&folder).expect("a folder");
        let child = Command::new(shell)
            .args(["-c", text])
            .current_dir(&folder)
            .env_clear()
            .env("PATH", self.root.join("bin"))
            .env("HOME", &folder)
            .stdin(Stdio::null())
            .stdout(writer.try_clone().expect("a pipe"))
            .stderr(writer)
            .process_group(0)
            .spawn()
            .expect("a shell");
        (folder, (child, reader))
    }

    /// Runs texts in each shell and panics if one did what its reading does not tell.
    fn check(&self, texts: &[&str]) {
        let mut runs = VecDeque::new();
        let mut folders = Vec::new();
        for shell in &self.shells {
            for text in texts.iter().filter(|text| !text.contains('\0')) {
                let (folder, child) = self.start(shell, text, folders.len());
                folders.push((folder, shell, *text));
                runs.push_back(child);
                if runs.len() > 4 {
                    end(runs.pop_front().expect("a run"));
                }
            }
        }
        runs.into_iter().for_each(end);
        for (folder, shell, text) in folders {
            let reading = read(text);
            let caught = is_caught(&reading) || !folder.join("P").exists();
            assert!(caught, "{}: {text:?}: {reading:?}", shell.display());
        }
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
    }
}

/// Waits until a shell and what it left in the background have closed their output, at most five
/// seconds; then ends them.
fn end((mut child, mut output): (Child, PipeReader)) {
    let begun = Instant::now();
    let mut buffer = [0; 4096];
    loop {
        let left = Duration::from_secs(5).saturating_sub(begun.elapsed());
        let mut polled = [PollFd::new(&output, PollFlags::IN)];
        let timeout = Timespec::try_from(left).expect("a short time");
        let is_ready = match poll(&mut polled, Some(&timeout)) {
            // A signal of another test of this process; the time that is left bounds the wait.
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled.expect("a poll") > 0,
        };
        if !is_ready || output.read(&mut buffer).expect("output") == 0 {
            break;
        }
    }
    let group = Pid::from_raw(child.id().cast_signed()).expect("a process");
    // Nothing is left in most groups.
    let _gone = kill_process_group(group, Signal::KILL);
    child.wait().expect("a status");
}

#[test]
fn shells_do_nothing_hostile_that_is_not_caught() {
    Field::new("hostile").check(HOSTILE);
}

/// Pieces of the texts that are made at random.
const PIECES: &[&str] = &[
    "ls",
    "ls ",
    " ",
    " ",
    " ",
    "'",
    "\"",
    "\\",
    ";",
    "&",
    "|",
    ">",
    "<",
    "(",
    ")",
    "$",
    "{",
    "}",
    "#",
    "\n",
    "touch P",
    "touch P",
    "touch P\n",
    " P",
    "-exec",
    "&>",
    "2>&1",
    ">P",
    "> P",
    "2",
    "1",
    "&&",
    "||",
    "!",
    "a",
    "''",
    "\"\"",
    "\\\n",
    "/dev/null",
    "{ ",
    "; }",
    "( ",
    " )",
    "if ls; then ",
    "; fi",
    "for x in a; do ",
    "; done",
    "$x",
    "${x}",
    "env ",
    "sh -c ",
    "'touch P'",
    "find . -exec ",
    " \\;",
    " {} +",
    "<<'E'\n",
    "\nE\n",
    "=",
    "[",
    "]",
    "*",
    "~",
    "`",
    "time ",
    "-",
    "& ",
    "; ",
];

/// Makes one text by a xorshift generator.
fn make(state: &mut u64) -> String {
    let mut random = |most: usize| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        usize::try_from(*state >> 33).expect("31 bits") % most
    };
    let pieces = 2 + random(9);
    (0..pieces).map(|_| PIECES[random(PIECES.len())]).collect()
}

#[test]
fn random_texts_do_nothing_that_is_not_caught() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let mut state = setting("GRAMMAR_SEED").unwrap_or(0x9e37_79b9_7f4a_7c15_u64);
    let most = setting("GRAMMAR_RUNS").unwrap_or(1_500_u64);
    let mut texts = Vec::new();
    let mut made = 0;
    while made < 20_000 || (most > 1_500 && u64::try_from(texts.len()).expect("small") < most) {
        made += 1;
        let text = make(&mut state);
        // Only a clear reading promises anything.
        if read(&text).unclear.is_none() && text.len() > 4 {
            texts.push(text);
        }
    }
    texts.sort();
    texts.dedup();
    // The same share of all texts, whatever their first character.
    let step = (texts.len() / usize::try_from(most).expect("small")).max(1);
    let chosen: Vec<&str> = texts.iter().step_by(step).map(String::as_str).collect();
    println!("{} texts made, {} clear, {} run", made, texts.len(), chosen.len());
    Field::new("random").check(&chosen);
}
