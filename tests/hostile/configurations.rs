//! Configurations that somebody hostile wrote, through the real program: each ends soon, with the right
//! exit code, and shows nothing of a file that is no configuration.

use std::collections::VecDeque;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;

use crate::support::desk::Desk;

/// What no output may contain: it stands in files that are none of the configuration's.
const CANARY: &str = "CANARY-7f3a9";

/// The most processor time of one call in seconds, and the most memory in KiB. The allocator reserves
/// a GiB of addresses that it does not use. A build without optimisation takes up to 2 s on a machine that
/// is busy with nothing else, and more beside other work.
const SECONDS: u32 = 6;
const MEMORY: u32 = 3 << 20;

/// The most bytes that one call may print.
const OUTPUT: usize = 1 << 20;

/// What the exit code may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// The file has mistakes.
    Refused,
    /// It has none.
    Good,
    /// It is good for `check`, and `run` asks for trust.
    Trust,
    /// Its tasks fail.
    Fails,
}
use Code::{Fails, Good, Refused, Trust};

struct Case {
    name: &'static str,
    /// The text of agents.toml.
    text: Vec<u8>,
    /// Other files of the directory.
    files: Vec<(&'static str, String)>,
    code: Code,
    says: &'static str,
}

const TASK: &str = "[tasks.t]\nrun = 'true'\n";
const HEAD: &str = "version = 1\n";

/// A file with these lines and a task that is good.
fn with(name: &'static str, lines: impl AsRef<str>, code: Code, says: &'static str) -> Case {
    raw(name, format!("{HEAD}{}\n{TASK}", lines.as_ref()), code, says)
}

fn raw(name: &'static str, text: impl Into<Vec<u8>>, code: Code, says: &'static str) -> Case {
    Case { name, text: text.into(), files: Vec::new(), code, says }
}

impl Case {
    fn and(mut self, path: &'static str, text: impl Into<String>) -> Self {
        self.files.push((path, text.into()));
        self
    }
}

/// A template in `[env]`, which is rendered when the file is loaded.
fn template(name: &'static str, text: &str, code: Code, says: &'static str) -> Case {
    with(name, format!("[env]\nX = '''{text}'''"), code, says)
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

/// Files that are not what they seem.
fn files() -> Vec<Case> {
    let agent = "[agents.a]\nmodel = 'm'\n[models.m]\nprovider = 'p'\nmodel = 'm'\n\
                 [providers.p]\nkind = 'scripted'\nscript = 's.toml'\n";
    let agent = |line: &str| agent.replacen("[agents.a]\n", &format!("[agents.a]\n{line}\n"), 1);
    let of_agent = |name, line: &str, code, says| {
        with(name, agent(line), code, says).and("s.toml", "[[rules]]\nsay = 'x'\n")
    };
    vec![
        of_agent(
            "instructions of the system",
            "instructions_file = '/etc/shadow'",
            Trust,
            "/etc/shadow",
        ),
        of_agent("instructions above", "instructions_file = '../x'", Trust, "/x` is read"),
        of_agent("instructions by a link", "instructions_file = 'link.md'", Trust, "is read"),
        of_agent(
            "instructions in a linked folder",
            "instructions_file = 'folder/key'",
            Trust,
            "is read",
        ),
        of_agent(
            "instructions of a pipe",
            "instructions_file = 'pipe'",
            Refused,
            "not a regular file",
        ),
        of_agent("instructions of a device", "instructions_file = '/dev/zero'", Trust, "/dev/zero"),
        of_agent(
            "instructions of a device by a link",
            "instructions_file = 'zero'",
            Refused,
            "not a regular",
        ),
        of_agent("instructions of a loop", "instructions_file = 'loop'", Refused, "cannot read"),
        of_agent(
            "instructions of a folder",
            "instructions_file = '.'",
            Refused,
            "it is a directory",
        ),
        of_agent(
            "instructions with a NUL",
            "instructions_file = \"a\\u0000b\"",
            Refused,
            "cannot read",
        ),
        of_agent(
            "instructions of a process",
            "instructions_file = '/proc/self/environ'",
            Trust,
            "environ",
        ),
        of_agent("context files of the disk", "context_files = ['/**/*']", Trust, "by the pattern"),
        of_agent("context files above", "context_files = ['../**/*']", Trust, "by the pattern"),
        of_agent(
            "context files by a link",
            "context_files = ['folder/**/*']",
            Trust,
            "by the pattern",
        ),
        of_agent("context files of a loop", "context_files = ['loop/**/*']", Good, "no file fits"),
        of_agent("context files with links", "context_files = ['lin*.md']", Trust, "is read"),
        of_agent(
            "a glob of braces",
            &format!("context_files = ['{}']", "{".repeat(400)),
            Refused,
            "bad_value",
        ),
        of_agent(
            "a glob of stars",
            &format!("context_files = ['{}b']", "*a".repeat(400)),
            Good,
            "no file fits",
        ),
        of_agent(
            "a glob of folders",
            &format!("context_files = ['{}x']", "**/".repeat(300)),
            Good,
            "no file fits",
        ),
        of_agent(
            "a glob of classes",
            &format!("context_files = ['{}']", "[".repeat(400)),
            Refused,
            "bad_value",
        ),
        of_agent("a skill outside", "skills = ['../../../folder']", Good, "missing_skill"),
        of_agent("an absolute skill", "skills = ['/etc']", Good, "missing_skill"),
        with(
            "a script outside",
            "[providers.p]\nkind = 'scripted'\nscript = '/etc/passwd'",
            Trust,
            "/etc/passwd",
        ),
        with(
            "a script that is none",
            "[providers.p]\nkind = 'scripted'\nscript = '.env'",
            Refused,
            "bad_script",
        ),
        with(
            "a script by a link",
            "[providers.p]\nkind = 'scripted'\nscript = 'link.toml'",
            Trust,
            "is read",
        ),
        with(
            "a script with 20,000 mistakes",
            "[providers.p]\nkind = 'scripted'\nscript = 'bad.toml'",
            Refused,
            "more mistakes",
        )
        .and("bad.toml", lines(20_000, |_| "[[rules]]\nsya = 'x'\n".to_owned())),
        with(
            "a key outside",
            "[providers.p]\nkind = 'anthropic'\napi_key = { file = '/etc/shadow' }",
            Trust,
            "/etc/shadow",
        ),
        with("a secret outside", "[secrets]\ns = { file = '/dev/zero' }", Trust, "/dev/zero"),
        with("a secret of a pipe", "[secrets]\ns = { file = 'pipe' }", Good, ""),
        with(
            "an input outside",
            "[inputs.p]\ntype = 'path'\ndefault = '/etc'",
            Trust,
            "can read `/etc`",
        ),
        with(
            "an input of a loop",
            "[inputs.p]\ntype = 'path'\ndefault = 'loop'",
            Refused,
            "bad_input",
        ),
        with("runs outside", "[state]\ndir = '../runs'", Trust, "/runs`"),
        with(
            "a hook outside",
            "[compaction]\npreset = 'three-layer'\n[compaction.hooks]\npre_compact = ['../x']",
            Trust,
            "is run",
        ),
        raw("a task outside", "version = 1\n[tasks.t]\nrun = '../../x'\n", Trust, "is run"),
        raw(
            "an output outside",
            "version = 1\n[tasks.t]\nrun = 'true'\noutput_file = '../x'\n",
            Refused,
            "outside_workspace",
        ),
    ]
}

/// What is dear to compile.
fn dear() -> Vec<Case> {
    let rules = |list: &str, rule: &str, count| {
        let rules = lines(count, |n| format!("'{}',", rule.replace('N', &n.to_string())));
        format!("[permissions]\ndefault = 'ask'\n{list} = [{rules}]")
    };
    let inputs = |count| {
        lines(count, |n| {
            format!("\n[inputs.x{n}]\npattern = '(\\w{{1,100}}){{1,10}}'\ndefault = 'a'")
        })
    };
    let agents = lines(300, |n| {
        format!(
            "\n[agents.a{n}]\nmodel='default'\ninstructions='x'\npermissions.deny=['bash(a *)','bash(b *)','bash(c *)','bash(d *)','bash(e *)','bash(f *)','bash(g *)']"
        )
    });
    vec![
        with(
            "many rules",
            rules("allow", "*N*(*a*bN*c*)", 40_000),
            Refused,
            "2000 permission rules",
        ),
        with(
            "many rules that deny",
            rules("deny", "*(**/xN*y*)", 40_000),
            Refused,
            "2000 permission rules",
        ),
        with("many agents with rules", agents, Refused, "2000 permission rules"),
        with("many patterns", inputs(1_000), Refused, "200 inputs have a `pattern`"),
        with("dear patterns", inputs(150), Refused, "is not a regular expression"),
    ]
}

/// Files that are included.
fn included() -> Vec<Case> {
    let include =
        |name, path: &str, code, says| with(name, format!("include = ['{path}']"), code, says);
    vec![
        include("a key is included", "link.toml", Trust, "is read"),
        include("a key outside is included", "/root/.ssh/id_rsa", Trust, "id_rsa` is read"),
        include("an environment is included", ".env", Refused, "is not a configuration"),
        include("credentials are included", "credentials", Refused, "is not a configuration"),
        include("a folder is included", "folder/*", Trust, "by the pattern"),
        include("a pipe is included", "pipe", Refused, "not a regular file"),
        include("a device is included", "zero", Refused, "not a regular file"),
        include("a loop is included", "loop", Refused, "cannot read"),
        include("the file itself is included", "agents.toml", Good, ""),
        include("a file by another name", "./agents.toml", Good, ""),
        include("bytes are included", "bytes.toml", Refused, "is not UTF-8"),
        include("a file includes others", "more.toml", Refused, "cannot include others")
            .and("more.toml", "include = ['agents.toml']\n"),
        include("nothing is included", "", Refused, "it is a directory"),
        with("many are included", format!("include = [{}]", "'m.toml',".repeat(5_000)), Good, "")
            .and("m.toml", "[limits]\nmax_depth = 1\n"),
        with(
            "many that are not there",
            format!("include = [{}]", lines(5_000, |n| format!("'n{n}',"))),
            Refused,
            "more mistakes",
        ),
        with("all are included", "include = ['**/*.toml']", Refused, "is read"),
    ]
}

/// Templates without an end.
fn templates() -> Vec<Case> {
    let doubled = |text: &str| text.repeat(40);
    vec![
        template(
            "a loop in a loop",
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
            Refused,
            "bad_template",
        ),
        template(
            "a long range",
            "{% for a in range(1000000000) %}x{% endfor %}",
            Refused,
            "bad_template",
        ),
        template(
            "doubled by sets",
            &format!("{{% set x = 'xxxxxxxx' %}}{}{{{{ x }}}}", doubled("{% set x = x ~ x %}")),
            Refused,
            "bad_template",
        ),
        template(
            "doubled by blocks",
            &format!(
                "{{% set x = 'xxxxxxxx' %}}{}{{{{ x }}}}",
                doubled("{% set x %}{{ x }}{{ x }}{% endset %}")
            ),
            Refused,
            "bad_template",
        ),
        template(
            "doubled by sums",
            &format!("{{% set x = 'xxxxxxxx' %}}{}{{{{ x }}}}", doubled("{% set x = x + x %}")),
            Refused,
            "bad_template",
        ),
        template(
            "doubled lists",
            &format!("{{% set x = [1] %}}{}{{{{ x | length }}}}", doubled("{% set x = x + x %}")),
            Refused,
            "bad_template",
        ),
        template(
            "doubled lists, summed",
            &format!("{{% set x = [1] %}}{}{{{{ x | sum }}}}", doubled("{% set x = x + x %}")),
            Refused,
            "bad_template",
        ),
        template(
            "doubled lists, joined",
            &format!("{{% set x = ['a'] %}}{}{{{{ x | join }}}}", doubled("{% set x = x + x %}")),
            Refused,
            "bad_template",
        ),
        template(
            "nested lists",
            &format!("{{% set x = ['a'] %}}{}{{{{ x }}}}", doubled("{% set x = [x, x] %}")),
            Refused,
            "bad_template",
        ),
        template(
            "nested lists as JSON",
            &format!(
                "{{% set x = ['a'] %}}{}{{{{ x | tojson }}}}",
                doubled("{% set x = [x, x] %}")
            ),
            Refused,
            "bad_template",
        ),
        template(
            "nested lists compared",
            &format!(
                "{{% set x = ['a'] %}}{0}{{% set y = ['a'] %}}{1}{{{{ x == y }}}}",
                doubled("{% set x = [x, x] %}"),
                doubled("{% set y = [y, y] %}")
            ),
            Refused,
            "bad_template",
        ),
        template("repeated", "{{ 'x' * 99999999 }}", Refused, "bad_template"),
        template(
            "repeated twice",
            "{{ ('x' * 9999999 * 9999999) | length }}",
            Refused,
            "bad_template",
        ),
        template(
            "replaced by itself",
            "{% set x = 'x' * 100000 %}{{ x | replace('x', x) | length }}",
            Refused,
            "bad_template",
        ),
        template(
            "joined by itself",
            "{% set x = 'x' * 100000 %}{{ range(100000) | join(x) | length }}",
            Refused,
            "bad_template",
        ),
        template("indented", "{{ 'a\nb' | indent(1000000000) | length }}", Refused, "bad_template"),
        template(
            "JSON indented",
            "{{ [1] | tojson(1000000000) | length }}",
            Refused,
            "bad_template",
        ),
        template(
            "formatted wide",
            "{{ '%1000000000d' | format(1) | length }}",
            Refused,
            "bad_template",
        ),
        template(
            "formatted precisely",
            "{{ '%.1000000000f' | format(1.5) | length }}",
            Refused,
            "bad_template",
        ),
        template(
            "escaped again and again",
            &format!("{{{{ 'a\"' {} | length }}}}", doubled("| tojson ")),
            Refused,
            "bad_template",
        ),
        template(
            "a macro calls itself",
            "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('x') }}",
            Refused,
            "bad_template",
        ),
        template(
            "a macro grows",
            "{% macro f(x, n) %}{% if n %}{{ f(x ~ x, n - 1) }}{% endif %}{% endmacro %}{{ f('x', 60) }}",
            Refused,
            "bad_template",
        ),
        template(
            "a namespace grows",
            "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            Refused,
            "bad_template",
        ),
        template(
            "a text in a loop",
            &format!("{{% for i in range(90000) %}}{}{{% endfor %}}", "y".repeat(50_000)),
            Refused,
            "bad_template",
        ),
        template(
            "a text in a loop, caught",
            &format!(
                "{{% set x %}}{{% for i in range(90000) %}}{}{{% endfor %}}{{% endset %}}",
                "y".repeat(50_000)
            ),
            Refused,
            "bad_template",
        ),
        template(
            "batched",
            "{{ [1] | batch(1000000000, 0) | list | length }}",
            Refused,
            "bad_template",
        ),
        template(
            "sliced",
            "{{ [1] | slice(1000000000, 0) | list | length }}",
            Refused,
            "bad_template",
        ),
        template(
            "400 brackets",
            &format!("{{{{ {}1{} }}}}", "(".repeat(400), ")".repeat(400)),
            Refused,
            "bad_template",
        ),
        template(
            "400 lists",
            &format!("{{{{ {}1{} }}}}", "[".repeat(400), "]".repeat(400)),
            Refused,
            "bad_template",
        ),
        template(
            "400 blocks",
            &format!("{}{}", "{% if 1 %}".repeat(400), "{% endif %}".repeat(400)),
            Refused,
            "bad_template",
        ),
        template(
            "100,000 denials",
            &format!("{{{{ {} 1 }}}}", "not ".repeat(100_000)),
            Refused,
            "bad_template",
        ),
        template("100,000 braces", &"{{".repeat(100_000), Refused, "bad_template"),
        template(
            "100,000 sums",
            &format!("{{{{ 1{} }}}}", " + 1".repeat(100_000)),
            Refused,
            "bad_template",
        ),
        template(
            "a hostile pattern",
            "{{ 'aaaa' | find('(a{1000}){1000}') }}",
            Refused,
            "bad_template",
        ),
        template(
            "20,000 names",
            &lines(20_000, |n| format!("{{{{ x{n} }}}}")),
            Refused,
            "more mistakes",
        ),
        with(
            "a hostile pattern of an input",
            "[inputs.x]\ndefault = 'a'\npattern = '(((a{100}){100}){100}){100}'",
            Refused,
            "bad_pattern",
        ),
        with(
            "nested JSON",
            format!("[env]\nX = '''{{{{ '{}' | from_json }}}}'''", "[".repeat(100_000)),
            Refused,
            "bad_template",
        ),
    ]
}

/// TOML that is broken, deep or endless.
fn syntax() -> Vec<Case> {
    let million = || "k".repeat(1_000_000);
    vec![
        raw("nothing", "", Refused, "missing_version"),
        raw("a NUL", "version = 1\n\0\n", Refused, "bad_toml"),
        raw("only NULs", vec![0; 100_000], Refused, "bad_toml"),
        raw(
            "not UTF-8",
            b"version = 1\nname = \"\xff\xfe\"\n".to_vec(),
            Refused,
            "line 2 is not UTF-8",
        ),
        raw("UTF-16", b"\xff\xfev\0e\0r\0".to_vec(), Refused, "is not UTF-8"),
        raw("a byte order mark", format!("\u{feff}{HEAD}{TASK}"), Good, ""),
        raw("CRLF", format!("{HEAD}{TASK}").replace('\n', "\r\n"), Good, ""),
        raw("only CR", format!("{HEAD}{TASK}").replace('\n', "\r"), Refused, "bad_toml"),
        with("a duplicate key", "name = 'a'\nname = 'b'", Refused, "duplicate key"),
        with("a duplicate table", "[limits]\n[limits]", Refused, "duplicate key"),
        with(
            "100,000 duplicates",
            lines(100_000, |_| "name = 'a'\n".to_owned()),
            Refused,
            "duplicate key",
        ),
        with(
            "a huge integer",
            "[limits]\nmax_depth = 99999999999999999999999",
            Refused,
            "out of range",
        ),
        with(
            "a huge number",
            format!("[limits]\nmax_depth = {}", "9".repeat(100_000)),
            Refused,
            "out of range",
        ),
        with(
            "a huge float",
            "[defaults]\nretry = { backoff_factor = 1e999 }",
            Refused,
            "bad_value",
        ),
        with("no number", "[defaults]\nretry = { backoff_factor = nan }", Refused, "bad_value"),
        with("infinity", "[models.m]\nmodel = 'm'\ntemperature = inf", Refused, "bad_value"),
        with(
            "a huge duration",
            "[limits]\ntimeout = '99999999999999999999h'",
            Refused,
            "bad_duration",
        ),
        with(
            "a long duration",
            format!("[limits]\ntimeout = '{}'", "1h".repeat(100_000)),
            Refused,
            "bad_duration",
        ),
        with("a negative count", "[limits]\nmax_concurrency = -1", Refused, "bad_value"),
        with(
            "a count of everything",
            "[limits]\nmax_concurrency = 9223372036854775807",
            Refused,
            "bad_value",
        ),
        with(
            "400 arrays",
            format!("name = {}1{}", "[".repeat(400), "]".repeat(400)),
            Refused,
            "bad_toml",
        ),
        with("100,000 arrays", format!("name = {}", "[".repeat(100_000)), Refused, "bad_toml"),
        with(
            "400 tables",
            format!("name = {}{}", "{a=".repeat(400), "}".repeat(400)),
            Refused,
            "bad_toml",
        ),
        with("10,000 dots", format!("{}x = 1", "a.".repeat(10_000)), Refused, ""),
        with("10,000 dots in a header", format!("[{}x]", "a.".repeat(10_000)), Refused, ""),
        with("an unclosed text", format!("name = \"{}", million()), Refused, "bad_toml"),
        with(
            "an unclosed block",
            format!("name = '''{}", "line\n".repeat(100_000)),
            Refused,
            "bad_toml",
        ),
        with("a key of 1 MB", format!("{} = 1", million()), Refused, "unknown_key"),
        with("a table of 1 MB", format!("[{}]", million()), Refused, "unknown_key"),
        with(
            "a value of 1 MB",
            format!("[limits]\ntimeout = '{}'", million()),
            Refused,
            "bad_duration",
        ),
        with(
            "a model of 1 MB",
            format!("[defaults]\nmodel = '{}'", million()),
            Refused,
            "unknown_model",
        ),
        with(
            "a rule of 1 MB",
            format!("[permissions]\ndeny = ['{}']", million()),
            Refused,
            "bad_rule",
        ),
        with(
            "a rule of braces",
            format!("[permissions]\nallow = ['bash({})']", "{".repeat(5_000)),
            Refused,
            "bad_rule",
        ),
        with(
            "20,000 unknown keys",
            lines(20_000, |n| format!("k{n} = 1\n")),
            Refused,
            "19800 more mistakes",
        ),
        with(
            "20,000 wrong types",
            format!("[tasks.u]\ndepends_on = [{}]", "1,".repeat(20_000)),
            Refused,
            "more mistakes",
        ),
        with(
            "20,000 unknown tasks",
            format!(
                "[tasks.u]\nrun = 'x'\ndepends_on = [{}]",
                lines(20_000, |n| format!("'u{n}',"))
            ),
            Refused,
            "more mistakes",
        ),
        with(
            "20,000 literal keys",
            lines(20_000, |n| format!("[providers.p{n}]\nkind = 'openai'\napi_key = '{CANARY}'\n")),
            Refused,
            "more mistakes",
        ),
        with(
            "20,000 bad names",
            lines(20_000, |n| format!("[agents.'A {n}']\n")),
            Refused,
            "more mistakes",
        ),
        with(
            "20,000 agents without a model",
            lines(20_000, |n| format!("\n[agents.a{n}]\n")),
            Refused,
            "more mistakes",
        ),
        with(
            "2,000 tasks in a ring",
            lines(2_000, |n| {
                format!("[tasks.r{n}]\nrun = 'x'\ndepends_on = ['r{}']\n", (n + 1) % 2_000)
            }),
            Refused,
            "cycle",
        ),
        with(
            "200 tasks that all need all",
            lines(200, |n| {
                format!(
                    "[tasks.r{n}]\nrun = 'x'\ndepends_on = [{}]\n",
                    lines(200, |m| format!("'r{m}',"))
                )
            }),
            Refused,
            "cycle",
        ),
        with(
            "5,000 things to trust",
            format!("[sandbox]\nreadable_roots = [{}]", lines(5_000, |n| format!("'/none/{n}',"))),
            Trust,
            "more",
        ),
        with(
            "a key that is written out",
            format!("[providers.p]\nkind = 'openai'\napi_key = '{CANARY}'"),
            Refused,
            "literal_key",
        ),
        with(
            "a header that is no text",
            format!(
                "[providers.p]\nkind = 'openai'\n[providers.p.headers]\nX = '{CANARY}\\n\u{e9}'"
            ),
            Refused,
            "printable ASCII",
        ),
        with(
            "a bad rule of 10,000 brackets",
            format!("[permissions]\nallow = ['bash{}']", "(".repeat(10_000)),
            Refused,
            "bad_rule",
        ),
        with("a version of another", "requires = '>=99999999999999999999'", Refused, "bad_value"),
        with(
            "a sandbox that is off",
            "[sandbox]\nmode = 'danger-full-access'",
            Refused,
            "loose_sandbox",
        ),
        raw("another tool's file", "[[agents]]\nname = 'x'\n", Refused, "foreign_file"),
        raw("a task that fails", "version = 1\n[tasks.t]\nrun = 'exit 3'\n", Fails, ""),
    ]
}

/// The directory of a case, with things around it that a hostile file could name.
fn desk(case: &Case) -> Desk {
    let desk = Desk::empty();
    let secrets = desk.state().join("secrets");
    std::fs::create_dir(&secrets).expect("made");
    let key = format!("-----BEGIN KEY-----\n{CANARY}\n");
    std::fs::write(secrets.join("key"), &key).expect("written");
    std::fs::write(secrets.join("key.toml"), &key).expect("written");
    let link = |to: &Path, name: &str| symlink(to, desk.path().join(name)).expect("linked");
    link(&secrets.join("key"), "link.md");
    link(&secrets.join("key.toml"), "link.toml");
    link(&secrets, "folder");
    link(Path::new("/dev/zero"), "zero");
    link(Path::new("loop"), "loop");
    let made = Command::new("mkfifo").arg(desk.path().join("pipe")).status().expect("mkfifo");
    assert!(made.success());
    desk.write(".env", &format!("TOKEN={CANARY}\n"));
    desk.write("credentials", &format!("[registry]\ntoken = '{CANARY}'\n"));
    std::fs::write(desk.path().join("bytes.toml"), format!("x = '{CANARY}'\n\u{e9}").as_bytes())
        .and_then(|()| std::fs::write(desk.path().join("bytes.toml"), b"x = 'CANARY-7f3a9\xff'\n"))
        .expect("written");
    for (path, text) in &case.files {
        desk.write(path, text);
    }
    std::fs::write(desk.path().join("agents.toml"), &case.text).expect("written");
    desk
}

/// Runs the program under limits of processor time and memory, which a busy machine does not change.
fn limited(desk: &Desk, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    let limits = format!("ulimit -t {SECONDS}; ulimit -v {MEMORY}; exec \"$0\" \"$@\"");
    command.arg("-c").arg(limits).arg(env!("CARGO_BIN_EXE_callsheet")).args(arguments);
    desk.bare(&mut command);
    command.env("ANTHROPIC_API_KEY", CANARY).output().expect("it runs")
}

/// Returns what is wrong with the end of a call.
fn wrong(case: &Case, arguments: &[&str], done: &Output, code: i32) -> Option<String> {
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let all = format!("{out}{err}");
    let why = match done.status.code() {
        None => format!("ended by signal {:?}", done.status.signal()),
        Some(found) if found != code => format!("exit code {found} instead of {code}"),
        Some(_) if all.contains(CANARY) => "it shows the canary".to_owned(),
        Some(_) if all.contains("panicked") => "it panicked".to_owned(),
        Some(_) if all.contains('\x1b') => "it steers the terminal".to_owned(),
        Some(_) if all.len() > OUTPUT => format!("it prints {} bytes", all.len()),
        Some(_) if !case.says.is_empty() && !flat(&all).contains(case.says) => {
            format!("it does not say `{}`", case.says)
        }
        Some(_) => return None,
    };
    let shown: String = all.chars().take(1_500).collect();
    Some(format!("{} {arguments:?}: {why}: {shown}", case.name))
}

/// The text without the breaks that wrap it.
fn flat(text: &str) -> String {
    text.replace("\n  │ ", " ").replace("\n        ", " ")
}

fn judge(case: &Case) -> Vec<String> {
    let desk = desk(case);
    let quiet = Case { says: "", text: Vec::new(), files: Vec::new(), ..*case };
    let call =
        |arguments: &[&str], code, case| wrong(case, arguments, &limited(&desk, arguments), code);
    // For people the mistakes are the same in `run` and in `check`.
    let calls = match case.code {
        Good => [call(&["check"], 0, case), call(&["run"], 0, &quiet)],
        Fails => [call(&["check"], 0, case), call(&["run"], 1, &quiet)],
        Refused => [call(&["check", "--json"], 2, case), call(&["run"], 2, case)],
        Trust => [call(&["check"], 0, case), call(&["run"], 2, case)],
    };
    let mut found: Vec<String> = calls.into_iter().flatten().collect();
    let begun = matches!(case.code, Good | Fails);
    if desk.runs().is_empty() == begun {
        found.push(format!("{}: a run began: {}", case.name, !begun));
    }
    found
}

#[test]
fn every_hostile_configuration_ends_soon_and_shows_nothing() {
    let cases: Vec<Case> =
        [files(), included(), templates(), dear(), syntax()].into_iter().flatten().collect();
    assert!(cases.len() >= 120, "{}", cases.len());
    let queue = Mutex::new(VecDeque::from(cases));
    let found = Mutex::new(Vec::new());
    let next = || queue.lock().expect("no panic").pop_front();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = next() {
                    found.lock().expect("no panic").extend(judge(&case));
                }
            });
        }
    });
    let found = found.into_inner().expect("no panic");
    assert!(found.is_empty(), "{} are wrong:\n{}", found.len(), found.join("\n\n"));
}
