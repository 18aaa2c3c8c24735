//! Tables of programs that run other programs or write files by their arguments.
//!
//! Data only; `programs` applies it. A program that is in no table is taken to do what its name
//! says: a rule for it allows all its arguments, and `check` warns of the rule. A list of names is one
//! text with blanks between them.

use super::builders::BUILDERS;
use super::row::{Operands, PROGRAM, Program};

/// Returns true if a list of names holds the name.
pub(super) fn holds(list: &str, name: &str) -> bool {
    !name.is_empty() && list.contains(name) && list.split(' ').any(|item| item == name)
}

/// A program that runs its arguments as a command.
pub(super) struct Launcher {
    pub(super) names: &'static str,
    /// Options without a value.
    pub(super) flags: &'static str,
    /// Options with a value, in the next word or joined.
    pub(super) values: &'static str,
    /// Number of words between the options and the command.
    pub(super) operands: usize,
    /// Options by which it only prints what it would run.
    pub(super) queries: &'static str,
}

/// Commands that no rule for a certain command allows, with the reason.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (
        ". source eval exec builtin fc history trap alias unalias bind complete compgen \
            compopt enable hash",
        "runs a text, or changes what later commands are",
    ),
    (
        "export readonly local declare typeset set unset shopt let mapfile readarray \
            getopts setvar",
        "changes the variables or options of the shell",
    ),
    (
        "less more most vi vim nvim gvim rvim view vimdiff ex ed emacs emacsclient \
            nano rnano pico micro mc visudo vipw sudoedit gdb lldb expect tmux screen script \
            sftp ftp lftp telnet dc m4",
        "can start a shell",
    ),
    (
        "chroot unshare nsenter flock watch strace ltrace parallel su runuser pkexec \
            systemd-run start-stop-daemon setpriv capsh bwrap firejail proot fakeroot \
            setarch linux32 linux64 taskset chrt numactl prlimit cpulimit choom valgrind \
            perf rlwrap unbuffer entr chronic ifne mispipe pee torsocks proxychains \
            proxychains4 ssh-agent dbus-run-session xvfb-run run-parts sg newgrp logsave at \
            batch crontab rsh mosh autossh pdsh",
        "runs other commands",
    ),
];

/// Commands that change the working directory of the shell.
pub(super) const MOVERS: &str = "cd chdir pushd popd";

/// Shells of which `-c` is read, because they read a text as dash or bash does.
pub(super) const SHELLS: &str = "sh bash dash ash";

/// Shells with a grammar of their own.
pub(super) const OTHER_SHELLS: &str =
    "zsh ksh ksh93 mksh oksh pdksh lksh yash rbash fish csh tcsh nu pwsh xonsh elvish";

const LAUNCHER: Launcher = Launcher { names: "", flags: "", values: "", operands: 0, queries: "" };

/// Launchers of which every option is known that a rule may allow.
pub(super) const LAUNCHERS: &[Launcher] = &[
    Launcher { names: "env", flags: "-i", values: "-u", ..LAUNCHER },
    Launcher { names: "command", flags: "-p", queries: "-v -V", ..LAUNCHER },
    Launcher { names: "nohup busybox toybox", ..LAUNCHER },
    Launcher { names: "nice", values: "-n --adjustment", ..LAUNCHER },
    Launcher { names: "ionice", flags: "-t", values: "-c -n", ..LAUNCHER },
    Launcher {
        names: "timeout",
        flags: "--foreground --preserve-status -v --verbose",
        values: "-s --signal -k --kill-after",
        operands: 1,
        ..LAUNCHER
    },
    Launcher { names: "time", flags: "-p", ..LAUNCHER },
    Launcher { names: "stdbuf", values: "-i --input -o --output -e --error", ..LAUNCHER },
    Launcher { names: "setsid", flags: "-c -f -w", ..LAUNCHER },
    Launcher { names: "sudo", flags: "-n -H -E", values: "-u -g", ..LAUNCHER },
    Launcher { names: "doas", flags: "-n", values: "-u", ..LAUNCHER },
];

/// The options of `xargs`. `-I` is known with `{}` only.
pub(super) const XARGS: Launcher = Launcher {
    flags: "-0 --null -r --no-run-if-empty -t -x",
    values: "-n -P -L -d -s -I",
    ..LAUNCHER
};

/// The options of `awk`; the word after them is the program.
pub(super) const AWK: Launcher = Launcher { values: "-F -v", ..LAUNCHER };

/// The options of `ssh`; after them stand the host and the words of a command.
pub(super) const SSH: Launcher = Launcher {
    flags: "-4 -6 -A -a -C -N -n -q -T -t -v -x -Y",
    values: "-b -c -i -J -l -L -m -p -R -W",
    operands: 1,
    ..LAUNCHER
};

/// Parts of an `awk` program by which it can run a command or write a file. `@` calls a function
/// by its name in a variable, and a continued line could divide a name.
pub(super) const AWK_RISKS: &[&str] = &["system", "getline", "|", ">", "@", "extension", "\\\n"];

/// Actions of `find` that run a command up to `;` or `{} +`.
pub(super) const FIND_RUNS: &str = "-exec -execdir";

/// Actions of `find` that delete, write or ask.
pub(super) const FIND_RISKS: &str = "-delete -fprint -fprint0 -fprintf -fls -ok -okdir";

/// Options of `sed` without a value, besides clusters of the letters `nErsu`.
pub(super) const SED_FLAGS: &str = "--quiet --silent --regexp-extended";

/// Options of `tee` without a value.
pub(super) const TEE_FLAGS: &str = "-a -i -p -ai -ia --append";

/// Operators of `test` between two words.
pub(super) const COMPARISONS: &str = "= == != -eq -ne -lt -le -gt -ge -nt -ot -ef";

/// Programs of which some options run commands or write files.
const PROGRAMS: &[Program] = &[
    Program {
        names: "rsync",
        letters: "eMT",
        long: "temp-dir backup-dir partial-dir daemon early-input rsh rsync-path remote-option log-file write-batch only-write-batch config",
        ..PROGRAM
    },
    Program { names: "scp", letters: "oFESDI", ..PROGRAM },
    Program { names: "man", letters: "PHC", long: "pager html config-file", ..PROGRAM },
    Program {
        names: "curl",
        letters: "oOJKDcT",
        long: "upload-file output output-dir remote-name remote-name-all remote-header-name config \
            dump-header cookie-jar trace trace-ascii stderr libcurl etag-save hsts alt-svc",
        ..PROGRAM
    },
    Program {
        names: "wget",
        letters: "eoOaP",
        long: "execute config use-askpass output-document output-file append-output \
            directory-prefix save-cookies hsts-file warc-file rejected-log",
        ..PROGRAM
    },
    Program { names: "hg", long: "config debugger", ..PROGRAM },
    Program { names: "jj", long: "config config-toml config-file tool", ..PROGRAM },
    Program {
        names: "svn",
        long: "config-option config-dir editor-cmd diff-cmd merge-cmd diff3-cmd",
        ..PROGRAM
    },
    Program { names: "rg", long: "pre hostname-bin", ..PROGRAM },
    Program { names: "fd fdfind", letters: "xX", long: "exec exec-batch", ..PROGRAM },
    Program { names: "zip", letters: "T", long: "test unzip-command", ..PROGRAM },
    Program { names: "split", long: "filter", ..PROGRAM },
    Program { names: "install", long: "strip-program", ..PROGRAM },
    Program { names: "shuf tree iconv xmllint", letters: "o", long: "output", ..PROGRAM },
    Program { names: "yq", letters: "is", long: "inplace split-exp", ..PROGRAM },
    Program { names: "uniq xxd", operands: Operands::One, ..PROGRAM },
    // bash evaluates the name of the variable, and with it a command in an index.
    Program { names: "wait", letters: "p", ..PROGRAM },
    Program { names: "jobs", letters: "x", ..PROGRAM },
    Program {
        names: "java",
        begins: "-Xlog -XX: -agent -javaagent -J @ -Xloggc -Xrun -Xdump -d --dir -Xbootclasspath \
            --patch-module -splash -D",
        ..PROGRAM
    },
    Program {
        names: "patch",
        letters: "oreBd",
        long: "output reject-file ed prefix directory",
        ..PROGRAM
    },
    Program { names: "psql", letters: "oLf", long: "output log-file file", ..PROGRAM },
    Program { names: "mysql mariadb", long: "tee pager init-command defaults-file", ..PROGRAM },
    Program {
        names: "pip pipx",
        letters: "t",
        long: "log target prefix root src python report cache-dir",
        words: "run runpip",
        ..PROGRAM
    },
    Program {
        names: "npm npx pnpm yarn",
        letters: "c",
        long: "script-shell shell node-options globalconfig userconfig git editor viewer call \
            onload-script init-module logs-dir prefix global cache pack-destination cwd dir modules-folder \
            global-folder cache-folder use-yarnrc",
        words: "exec x dlx explore edit config set publish init create link ln pkg",
        ..PROGRAM
    },
    Program {
        names: "uv poetry pipenv conda rustup nix",
        words: "run tool exec shell develop",
        ..PROGRAM
    },
    Program { names: "bundle", words: "exec config", ..PROGRAM },
    Program {
        names: "docker podman",
        words: "run exec cp save export build buildx compose create plugin",
        long: "config host",
        ..PROGRAM
    },
    Program {
        names: "kubectl",
        words: "exec cp run edit debug plugin config",
        long: "kubeconfig",
        ..PROGRAM
    },
    Program { names: "gh", words: "alias extension config", ..PROGRAM },
    Program { names: "gradle", begins: "-I --init-script -D -P -b -c -g", ..PROGRAM },
    Program { names: "mvn", begins: "-D -f --file -s -gs -l --log-file", ..PROGRAM },
    Program {
        names: "openssl",
        begins: "-out -keyout -engine -provider -writerand -config -CAserial",
        ..PROGRAM
    },
    Program {
        names: "python",
        letters: "c",
        harmless: "-m -u -B -I -O -OO -s -S -E -q -v -b -bb -P",
        operands: Operands::Script,
        ..PROGRAM
    },
    Program {
        names: "node",
        letters: "epr",
        long: "eval print require import loader experimental-loader inspect cpu-prof heap-prof \
            report-dir diagnostic-dir redirect-warnings trace-event-file-pattern env-file \
            openssl-config",
        harmless: "--test --watch --check -c --enable-source-maps --no-warnings --trace-warnings",
        operands: Operands::Script,
        ..PROGRAM
    },
    Program {
        names: "perl",
        letters: "eEiMmdnpsxI",
        harmless: "-w -W -T -t -c",
        operands: Operands::Script,
        ..PROGRAM
    },
    Program {
        names: "ruby",
        letters: "eirCxIpn",
        harmless: "-w -c -W",
        operands: Operands::Script,
        ..PROGRAM
    },
    Program {
        names: "php",
        letters: "rBREaSd",
        harmless: "-l -n",
        operands: Operands::Script,
        ..PROGRAM
    },
    Program {
        names: "lua",
        letters: "eil",
        harmless: "-W -v",
        operands: Operands::Script,
        ..PROGRAM
    },
    Program {
        names: "Rscript",
        letters: "e",
        harmless: "--vanilla --no-save",
        operands: Operands::Script,
        ..PROGRAM
    },
    Program { names: "deno bun", words: "eval run repl x -e --eval -p --print task", ..PROGRAM },
];

/// Returns all programs of which some options run commands or write files.
pub(super) fn programs() -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().chain(BUILDERS)
}

/// Programs that do by any arguments only what their names say.
pub(super) const PLAIN: &str = "ls cat echo pwd head tail wc cut tr nl od hexdump grep egrep fgrep \
    zgrep diff cmp comm join paste column fold fmt rev tac seq true false : sleep date cal uname \
    hostname whoami id groups who uptime df du free ps pgrep stat file basename dirname realpath \
    readlink which type md5sum sha1sum sha256sum sha512sum cksum base64 b2sum jq nproc arch tty \
    touch mkdir rmdir rm mv cp ln chmod chown truncate mktemp expr kill printenv locale getent \
    gzip gunzip zcat bzip2 bunzip2 xz unxz rustfmt shellcheck \
    umask ulimit exit return shift times";

/// Returns true if a program runs a command that its arguments name.
pub(in crate::tool::bash) fn is_launcher(name: &str) -> bool {
    let runs = [REFUSED[0].0, REFUSED[3].0, SHELLS, OTHER_SHELLS, "xargs ssh function coproc"];
    let known = LAUNCHERS.iter().map(|launcher| launcher.names);
    runs.into_iter().chain(known).any(|names| holds(names, name))
}

/// Returns true if it is not known which of a launcher's words begins the command.
pub(in crate::tool::bash) fn runs_any_word(name: &str) -> bool {
    [REFUSED[3].0, "trap alias ssh function coproc"].iter().any(|names| holds(names, name))
}

/// The comments between which the table of programs stands in the documentation.
#[cfg(test)]
pub(in crate::tool::bash) const ENDS: [&str; 2] =
    ["<!-- programs -->\n", "<!-- end of programs -->\n"];

/// Returns the table of programs for the documentation.
#[cfg(test)]
pub(in crate::tool::bash) fn table() -> String {
    let code = |words: &str, prefix: &str| -> Vec<String> {
        let words = words.split(' ').filter(|word| !word.is_empty());
        words.map(|word| format!("`{prefix}{word}`")).collect()
    };
    let mut rows =
        String::from("| program | arguments that a rule must spell out |\n| --- | --- |\n");
    for program in programs() {
        let letters: Vec<_> = program.letters.chars().map(|c| format!("`-{c}`")).collect();
        let begins = code(program.begins, "").into_iter().map(|word| format!("{word}..."));
        let strict = program.is_strict().then(|| free(program));
        let inside = program.inside.then(|| "a path that leads out".to_owned());
        let operands = match program.operands {
            Operands::Any | Operands::Bundle => None,
            Operands::One => Some("a second file"),
            Operands::NoAssignments => Some("an assignment"),
            Operands::Script => Some("(no script at all)"),
        };
        let all: Vec<String> = letters
            .into_iter()
            .chain(code(program.long, "--"))
            .chain(code(program.words, ""))
            .chain(begins)
            .chain(operands.map(str::to_owned))
            .chain(inside)
            .chain(strict)
            .collect();
        let names = code(program.names, "").join(", ");
        rows += &format!("| {names} | {} |\n", all.join(", "));
    }
    rows
}

/// Returns the options of a program that need not be spelled out, in words.
#[cfg(test)]
fn free(program: &Program) -> String {
    let words = program.free.split(' ').chain(program.free_begins.split(' '));
    let words = words.filter(|word| !word.is_empty()).map(|word| {
        let more =
            if program.free_begins.split(' ').any(|begin| begin == word) { "..." } else { "" };
        format!("`{word}`{more}")
    });
    let letters = program.free_letters.chars().filter(char::is_ascii_alphanumeric);
    let letters = letters.map(|letter| format!("`-{letter}`"));
    format!("every option but {}", letters.chain(words).collect::<Vec<_>>().join(", "))
}

/// Options of git before its subcommand, besides `-C`.
pub(super) const GIT_FLAGS: &str =
    "--no-pager -P --no-optional-locks --literal-pathspecs --version";

/// Options that are refused after every subcommand of git.
pub(super) const GIT_EVERY: Program = Program {
    long: "output output-directory ext-diff textconv exec upload-pack receive-pack \
        open-files-in-pager config config-env strategy",
    harmless: "text",
    ..PROGRAM
};

/// Subcommands of git that a rule may allow. Another one may be an alias for any command.
pub(super) const GIT: &[Program] = &[
    Program {
        names: "add annotate blame branch cat-file check-attr check-ignore checkout \
            cherry cherry-pick clean commit count-objects describe diff diff-files \
            diff-index diff-tree for-each-ref fsck gc hash-object log ls-files ls-tree \
            merge-base mv name-rev notes push range-diff reflog remote reset restore \
            rev-list rev-parse revert rm shortlog show show-branch show-ref sparse-checkout \
            stash status switch symbolic-ref tag update-index var verify-commit verify-tag \
            version whatchanged write-tree",
        ..PROGRAM
    },
    Program { names: "clone init", letters: "uc", long: "template separate-git-dir", ..PROGRAM },
    Program { names: "fetch pull ls-remote", letters: "us", ..PROGRAM },
    Program { names: "merge", letters: "s", ..PROGRAM },
    Program { names: "rebase", letters: "xs", ..PROGRAM },
    Program { names: "grep", letters: "O", ..PROGRAM },
    Program { names: "archive format-patch", letters: "o", ..PROGRAM },
    Program { names: "worktree", words: "add move", ..PROGRAM },
    Program { names: "bisect", words: "run replay visualize view", ..PROGRAM },
    Program { names: "submodule", words: "foreach", ..PROGRAM },
];

/// Subcommands of git that take the address of a repository; `ext::` in one runs a command.
pub(super) const GIT_REMOTE: &str = "archive clone fetch ls-remote pull push remote submodule";

/// Options of `git config` that choose a file of configuration.
pub(super) const GIT_SCOPES: &str = "--global --local --system --worktree";

/// Options by which `git config` only reads.
pub(super) const GIT_GETTERS: &str = "--get --get-all --get-regexp --get-urlmatch --list -l";
