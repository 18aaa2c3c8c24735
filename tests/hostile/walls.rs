//! Workspaces that try to lead commands out of the sandbox: by what a project ships, by what an earlier
//! command made, and by what happens to the workspace while a run works.
//!
//! A home with secrets lies beside the workspace. Whatever is tried, nothing of it is read or changed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::desk::{Desk, Done, wait};
use crate::support::users::{Shared, Who, skipped};

/// What stands in the files of the home.
pub(super) const SECRET: &str = "a secret of the home 7f3a";

/// A home and a workspace in it.
pub(super) struct World {
    pub(super) desk: Desk,
}

impl World {
    pub(super) fn new(file: &str) -> Self {
        let desk = Desk::empty();
        for name in ["home/.ssh/id", "home/notes", "home/tools/bin/x", "elsewhere/file"] {
            let path = desk.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, SECRET).expect("written");
        }
        let world = Self { desk };
        fs::create_dir(world.ws()).expect("made");
        world.file(file);
        world
    }

    fn file(&self, rest: &str) {
        let text = format!("version = 1\nname = 'walls'\n{rest}");
        fs::write(self.ws().join("agents.toml"), text).expect("written");
    }

    pub(super) fn home(&self) -> PathBuf {
        self.desk.path().join("home")
    }

    pub(super) fn ws(&self) -> PathBuf {
        self.home().join("ws")
    }

    fn link(&self, name: &str, to: impl AsRef<Path>) {
        symlink(to, self.ws().join(name)).expect("a link");
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.desk.command(arguments);
        command.env("HOME", self.home()).current_dir(self.ws());
        command
    }

    pub(super) fn call(&self, arguments: &[&str]) -> Done {
        Done::of(&mut self.command(arguments))
    }

    /// Fails if a secret was told, or a file of the home was changed or made.
    pub(super) fn is_kept(&self, done: &Done) {
        for text in [&done.out, &done.err] {
            assert!(!text.contains(SECRET), "{}{}", done.out, done.err);
        }
        assert!(done.code != 101 && done.code != 134, "{}", done.err);
        for name in ["home/.ssh/id", "home/notes", "home/tools/bin/x", "elsewhere/file"] {
            assert_eq!(self.desk.read(name), SECRET, "{name}: {}", done.err);
        }
        let mut open = vec![self.home(), self.desk.path().join("elsewhere")];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).expect("a folder").flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                assert_ne!(name, "PWNED", "{}: {}{}", path.display(), done.out, done.err);
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && path != self.ws() {
                    open.push(path);
                }
            }
        }
    }
}

/// A command line that reads and writes wherever the home may be.
pub(super) const TRY: &str = "cat ~/.ssh/id ../.ssh/id ../notes ../../elsewhere/file $X/.ssh/id $X/notes \
    $X/id $X/file 2> /dev/null; for d in ~ .. ../.ssh ../../elsewhere $X; do echo x > $d/PWNED; done \
    2> /dev/null; rm -f PWNED; exit 0";

pub(super) fn tasks(lines: &[&str]) -> String {
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let after = number.checked_sub(1).map(|before| format!("depends_on = ['t{before}']\n"));
        let after = after.unwrap_or_default();
        text.push_str(&format!("[tasks.t{number}]\n{after}run = '''{line}'''\n"));
    }
    text
}

#[test]
fn a_link_that_a_project_ships_does_not_lead_out() {
    for (name, to, told) in [
        (".transcripts/.cache", "../../..", ".transcripts/.cache, a link"),
        (".transcripts/.cache", "../../.ssh", ".transcripts/.cache, a link"),
        (".transcripts", "../..", ".transcripts, a link"),
        (".transcripts", "..", ".transcripts, a link"),
        ("st", "..", "st, a link"),
        ("data", "../.ssh", "data, a link"),
    ] {
        let state = if name == "st" { "[state]\ndir = 'st'\n" } else { "" };
        let roots = if name == "data" { "[sandbox]\nreadable_roots = ['data']\n" } else { "" };
        let world = World::new(&format!("{state}{roots}{}", tasks(&[TRY])));
        if name.contains('/') {
            fs::create_dir(world.ws().join(".transcripts")).expect("made");
        }
        world.link(name, to);
        for arguments in [&["run"][..], &["run", "--trust"]] {
            let done = world.call(arguments);
            world.is_kept(&done);
            assert_eq!(done.code, 2, "{name}: {}{}", done.out, done.err);
        }
        let done = world.call(&["run", "--trust"]);
        assert!(done.err.contains(told), "{name}: {}", done.err);
    }
}

#[test]
fn what_a_command_made_is_not_opened_as_what_was_there() {
    let swap = |name: &str| format!("rm -rf {name}; ln -s ~ {name}; ls -d {name} > /dev/null");
    for (variable, value) in [
        ("VIRTUAL_ENV", ".venv"),
        ("CARGO_HOME", ".cargo"),
        ("RUSTUP_HOME", "rustup"),
        ("JAVA_HOME", "a/b"),
        ("PATH", "bin"),
        ("PATH", "node_modules/.bin"),
        ("TMPDIR", "tmp"),
    ] {
        let first = swap(value.split('/').next().expect("a name"));
        let world = World::new(&tasks(&[TRY, &first, TRY, &format!("X={value}; {TRY}")]));
        let folder = world.ws().join(value);
        fs::create_dir_all(&folder).expect("made");
        let mut value = folder.into_os_string();
        if variable == "PATH" {
            value.push(":/usr/bin:/bin");
        }
        let done = Done::of(world.command(&["run"]).env(variable, value));
        world.is_kept(&done);
        assert_eq!(done.code, 0, "{variable}: {}", done.err);
    }
    // Folders that the file names in the workspace, and one that is not there yet.
    for roots in ["writable_roots = ['out', 'a/b']", "readable_roots = ['out', 'a/b']"] {
        let both = format!("{}; {}", swap("out"), swap("a"));
        let world =
            World::new(&format!("[sandbox]\n{roots}\n{}", tasks(&[&both, TRY, "X=a; true", TRY])));
        fs::create_dir_all(world.ws().join("a/b")).expect("made");
        let done = world.call(&["run", "--trust"]);
        world.is_kept(&done);
        assert_eq!(done.code, 0, "{roots}: {}", done.err);
    }
}

#[test]
fn a_workspace_that_is_exchanged_ends_the_command() {
    for (with_link, name) in [(true, "ws"), (false, "ws")] {
        let slow = "touch started; i=0; while ! test -e go && test $i -lt 500; do sleep 0.02; \
                    i=$((i+1)); done";
        let world = World::new(&tasks(&[slow, TRY, "echo y > second"]));
        let run = crate::support::desk::Live::starting(&mut world.command(&["run"]));
        wait("the command", || world.ws().join("started").exists().then_some(()));
        let aside = world.home().join("aside");
        fs::rename(world.ws(), &aside).expect("moved");
        if with_link {
            symlink(world.home(), world.home().join(name)).expect("a link");
        } else {
            fs::create_dir(world.ws()).expect("made");
        }
        fs::write(aside.join("go"), "").expect("written");
        let done = run.end();
        assert!(!done.out.contains(SECRET) && !done.err.contains(SECRET), "{}", done.err);
        assert_ne!(done.code, 0, "{}", done.err);
        assert!(!aside.join("second").exists() && !world.ws().join("second").exists());
        for name in ["home/.ssh/id", "home/notes"] {
            assert_eq!(world.desk.read(name), SECRET);
        }
        assert!(!world.home().join("PWNED").exists());
    }
}

#[test]
fn thousands_of_paths_and_names_that_are_not_text_leave_the_wall() {
    let names: Vec<String> =
        (0..1_300).map(|number| format!("'r{number}{}'", "x".repeat(100))).collect();
    let file = format!("[sandbox]\nreadable_roots = [{}]\n{}", names.join(", "), tasks(&[TRY]));
    let world = World::new(&file);
    for name in &names {
        fs::create_dir(world.ws().join(name.trim_matches('\''))).expect("made");
    }
    let modules = world.ws().join(".git/modules");
    for number in 0..700 {
        let name = format!("{number}{}", "y".repeat(150));
        fs::create_dir_all(modules.join(name).join("hooks")).expect("made");
    }
    fs::create_dir_all(modules.join(OsStr::from_bytes(b"\xff/hooks"))).expect("made");
    let done = world.call(&["run"]);
    world.is_kept(&done);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("sandbox of commands: workspace-write"), "{}", done.err);
}

#[test]
fn a_project_whose_name_is_not_text_is_refused_and_does_not_panic() {
    let world = World::new("");
    let odd = world.home().join(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(&odd).expect("made");
    let text = format!("version = 1\nname = 'walls'\n{}", tasks(&[TRY]));
    fs::write(odd.join("agents.toml"), text).expect("written");
    for verb in [&["run"][..], &["check"], &["ps", "-a"], &["graph"], &["show"], &["report"]] {
        let done = Done::of(world.command(verb).current_dir(&odd));
        world.is_kept(&done);
        assert!([0, 1, 2].contains(&done.code), "{verb:?}: {} {}", done.code, done.err);
        assert!(done.code != 1 || !done.err.is_empty(), "{verb:?}");
    }
    let done = Done::of(world.command(&["run"]).current_dir(&odd));
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(done.err.contains("UTF-8"), "{}", done.err);
}

#[test]
fn a_home_below_a_folder_of_the_system_is_not_read() {
    let Ok(home) = tempfile::Builder::new().prefix("callsheet-home-").tempdir_in("/var/lib") else {
        return skipped("a home below a folder of the system: only root makes one in /var/lib");
    };
    fs::write(home.path().join("id"), SECRET).expect("written");
    let line = format!(
        "cat {0}/id; ls {0}; echo x > {0}/PWNED; ls /var/lib/dpkg > /dev/null; true",
        home.path().display()
    );
    let world = World::new(&tasks(&[&line]));
    let done = Done::of(world.command(&["run"]).env("HOME", home.path()));
    world.is_kept(&done);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("sandbox of commands: workspace-write"), "{}", done.err);
    assert!(!home.path().join("PWNED").exists());
}

/// The program on a machine that has no Landlock, and so no sandbox.
fn without_sandbox(shared: &Shared, world: &World, arguments: &str) -> Option<Done> {
    let line =
        format!("exec {} {} {arguments}", shared.denying(38, "444"), shared.program.display());
    let mut command = Command::new("sh");
    world.desk.bare(command.args(["-c", &line]));
    command.env("HOME", world.home()).current_dir(world.ws());
    let done = Done::of(command.env_remove("CALLSHEET_SANDBOX__MODE"));
    (![77, 127].contains(&done.code)).then_some(done)
}

#[test]
fn nothing_runs_without_a_sandbox_unless_a_person_said_so_for_this_machine() {
    let file = "[hooks]\non_start = ['sh', '-c', 'echo hook >> ran']\n";
    let world = World::new(&format!("{file}{}", tasks(&["echo task >> ran"])));
    let ran = || fs::read_to_string(world.ws().join("ran")).unwrap_or_default();
    let shared = Shared::new();
    let Some(done) = without_sandbox(&shared, &world, "run") else {
        return skipped("no sandbox at all: perl refuses the system call for it");
    };
    assert_eq!((done.code, ran().as_str()), (2, ""), "{}", done.err);
    for told in ["--sandbox danger-full-access", "trust --without-sandbox"] {
        assert!(done.err.contains(told), "{}", done.err);
    }
    // Neither the file nor a profile of it can say so.
    let done = without_sandbox(&shared, &world, "resume --all").expect("as before");
    assert_eq!(ran(), "", "{}", done.err);
    assert_eq!(world.call(&["trust", "--without-sandbox"]).code, 0);
    assert!(world.call(&["trust", "--list"]).out.contains("no sandbox"));
    let done = without_sandbox(&shared, &world, "run").expect("as before");
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(ran().contains("task"), "{}", done.err);
    let told = "sandbox of commands: none: ";
    assert_eq!(done.err.matches(told).count(), 1, "{}", done.err);
    assert!(done.out.contains(told), "{}", done.out);
    let runs = &["ps", "-a"][..];
    let report = |format| vec!["report", "--format", format];
    for verb in
        [runs, &["show"], &report("md"), &report("html"), &report("json"), &["ps", "-a", "--json"]]
    {
        let said = world.call(verb);
        assert!(said.out.contains(told), "{verb:?}: {}{}", said.out, said.err);
    }
    let events = without_sandbox(&shared, &world, "run --json").expect("as before").out;
    assert!(events.contains("\"missing\":"), "{events}");
    assert_eq!(world.call(&["trust", "--without-sandbox", "--revoke"]).code, 0);
    let done = without_sandbox(&shared, &world, "run").expect("as before");
    assert_eq!(done.code, 2, "{}", done.err);
    // What a person turned off for one run is said too.
    let done = Done::of(&mut world.command(&["run", "--sandbox", "danger-full-access"]));
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(world.call(runs).out.contains("turned it off"), "{}", done.err);
}

/// A random workspace, environment and row of commands. Returns the number of commands that ran.
fn random_case(who: Who, shared: &Shared, seed: u64, commands: usize) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let names = [
        ".venv",
        "bin",
        "out",
        "a/b",
        ".cargo",
        "tmp",
        "data",
        ".git",
        ".vscode",
        "node_modules/.bin",
    ];
    let targets = [
        "..",
        "../..",
        "../.ssh",
        "~",
        "../tools",
        "/proc/self/root",
        "../../elsewhere",
        "$PWD/../.ssh",
        "ws",
        ".",
    ];
    let mut lines = Vec::new();
    let name = |random: &mut fastrand::Rng| names[random.usize(..names.len())];
    let target = |random: &mut fastrand::Rng| targets[random.usize(..targets.len())];
    for _ in 0..commands {
        let (to, from) = (target(&mut random), target(&mut random));
        let (one, two) = (name(&mut random), name(&mut random));
        let made = match random.u8(..8) {
            0 => format!("rm -rf {one}; ln -sfn {to} {one}"),
            1 => format!("mv {one} {two}; ln -sfn {to} {one}"),
            2 => format!("mkdir -p {one}; ln -sfn {to} {one}/l; ln -sfn {from} {one}/.cache"),
            3 => format!("ln {one} {two}; rm -rf .transcripts; ln -sfn {to} .transcripts"),
            4 => "mkdir -p \".git/modules/$(printf '\\377')/hooks\" a b; mv a b/a".to_owned(),
            5 => format!("mkdir -p d; cd d; for i in 1 2 3 4 5; do ln -sfn {to} $i; done; cd .."),
            6 => format!("mv agents.toml x; mv .git y; ln -sfn {to} agents.toml; rm -rf {one}"),
            _ => format!("mkdir {one}; mkfifo {two}; ln -sfn {to} {one}/d; chmod 0 {two}"),
        };
        lines.push(format!("exec 2> /dev/null; {made}; X={one}; {TRY}"));
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let roots =
        ["", "writable_roots = ['out']", "readable_roots = ['data', 'a']", "mode = 'read-only'"];
    let roots = roots[random.usize(..roots.len())];
    let world = World::new(&format!("[sandbox]\n{roots}\n{}", tasks(&lines)));
    for _ in 0..random.usize(..6) {
        let path = world.ws().join(name(&mut random));
        let _ = fs::create_dir_all(path.parent().expect("a parent"));
        let _ = match random.bool() {
            true => fs::create_dir_all(&path),
            false => {
                symlink(target(&mut random).replace('~', &world.home().to_string_lossy()), &path)
            }
        };
    }
    let mut command = who.command(shared, &world.desk, &["run", "--trust", "--keep-going"]);
    command.env("HOME", world.home()).current_dir(world.ws());
    let file = fs::read(world.ws().join("agents.toml")).expect("a file");
    for variable in ["VIRTUAL_ENV", "CARGO_HOME", "TMPDIR", "GOPATH", "JAVA_HOME"] {
        if random.bool() {
            command.env(variable, world.ws().join(name(&mut random)));
        }
    }
    if random.bool() {
        let folder = world.ws().join(name(&mut random));
        command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    }
    let done = Done::of(&mut command);
    world.is_kept(&done);
    let told = format!("seed {seed}, {who:?}: {} {}", done.code, done.err);
    // A command may shut the workspace, or without namespaces a folder above it, by `chmod 0`: then its user
    // cannot write the records there.
    let of = |path: &Path| fs::metadata(path).map_or(0, |found| found.permissions().mode());
    let above = world.ws().ancestors().take(3).any(|path| of(path) & 0o100 == 0);
    let is_root = who == Who::Own && rustix::process::geteuid().is_root();
    let is_shut = !is_root && (above || of(&world.ws()) & 0o300 != 0o300) && done.code == 74;
    assert!([0, 1, 2, 8].contains(&done.code) || is_shut, "{told}");
    assert_eq!(fs::read(world.ws().join("agents.toml")).ok(), Some(file), "{told}");
    if done.code == 2 { 0 } else { commands }
}

/// Runs random cases until this number of commands has run.
fn random_cases(who: Who, wanted: usize, first: u64) {
    let shared = Shared::new();
    if let Some(reason) = who.is_missing(&shared) {
        return skipped(&format!("random workspaces, {who:?}: {reason}"));
    }
    let next = std::sync::atomic::AtomicU64::new(first);
    let ran = std::sync::atomic::AtomicUsize::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while ran.load(order) < wanted {
                    let seed = next.fetch_add(1, order);
                    let shown = std::panic::catch_unwind(|| random_case(who, &shared, seed, 25));
                    ran.fetch_add(shown.unwrap_or_else(|_| panic!("seed {seed}")), order);
                }
            });
        }
    });
}

#[test]
fn random_workspaces_lead_nowhere() {
    random_cases(Who::Own, 1_000, 1);
}

#[test]
fn random_workspaces_of_other_users_lead_nowhere() {
    random_cases(Who::Other, 50, 50_000);
    random_cases(Who::WithoutNamespaces, 75, 60_000);
}

#[test]
#[ignore = "21,000 commands: 15 minutes on two cores"]
fn many_random_workspaces_lead_nowhere() {
    for (number, who) in [Who::Own, Who::Other, Who::WithoutNamespaces].into_iter().enumerate() {
        random_cases(who, 7_000, 1_000_000 * (number as u64 + 1));
    }
}

/// The words by which a run says that commands have no namespaces here.
const WITHOUT: &str = "nothing new can be made beside a protected file";

/// Whatever folder the workspace lies in, and whatever folder has the temporary ones: the wall is whole, and no
/// shared folder shows what other programs have there.
#[test]
fn the_wall_is_whole_wherever_the_workspace_lies() {
    let shared = ["/tmp", "/var/tmp", "/dev/shm"];
    let canary = |folder: &&str| {
        tempfile::Builder::new().prefix("callsheet-canary-").tempfile_in(folder).expect("a file")
    };
    let canaries: Vec<_> = shared.iter().map(canary).collect();
    let names: Vec<_> = canaries.iter().map(|file| file.path().display().to_string()).collect();
    let seen = format!("for f in {}; do test -e $f && exit 3; done; ", names.join(" "));
    let line = format!(
        "{seen}echo x > $TMPDIR/x && echo x > made && test -e ../given && ! echo x > ../given"
    );
    for base in [env!("CARGO_TARGET_TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"] {
        for temporary in shared {
            let folder = tempfile::tempdir_in(base).expect("a folder");
            let (ws, given) = (folder.path().join("ws"), folder.path().join("given"));
            fs::create_dir(&ws).expect("made");
            fs::write(&given, "as it was").expect("written");
            let file = format!(
                "version = 1\nname = 'walls'\n[sandbox]\nnetwork = true\nreadable_roots = ['../given']\n{}",
                tasks(&[&line])
            );
            fs::write(ws.join("agents.toml"), file).expect("written");
            let desk = Desk::empty();
            let mut command = desk.command(&["run", "--trust"]);
            let done = Done::of(command.env("TMPDIR", temporary).current_dir(&ws));
            if done.err.contains(WITHOUT)
                && base == env!("CARGO_TARGET_TMPDIR")
                && !has_namespaces()
            {
                return skipped("no namespaces");
            }
            let told = format!("{base}, {temporary}: {}{}", done.out, done.err);
            assert!(done.code == 0 && !done.err.contains(WITHOUT), "{told}");
            assert_eq!(fs::read_to_string(&given).expect("a file"), "as it was", "{told}");
        }
    }
}

/// Returns true if programs can make namespaces here.
fn has_namespaces() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-current-user", "--mount", "--pid", "--fork", "true"]);
    command.output().is_ok_and(|done| done.status.success())
}

/// What a command leaves behind takes nothing away from the wall of the next run.
#[test]
fn no_command_makes_the_next_wall_weaker() {
    let shared = Shared::new();
    let envrc = "for i in $(seq 1 1100); do mkdir -p d/$i; echo x > d/$i/.envrc; done";
    for (who, made) in [
        (Who::Own, envrc),
        (Who::Other, "chmod 0 .git/info"),
        (Who::Other, "chmod 0 .git"),
        (Who::Other, "chmod 0 a"),
        (Who::Other, envrc),
    ] {
        if who.is_missing(&shared).is_some() || !has_namespaces() {
            skipped("no other user, or no namespaces");
            continue;
        }
        let world = World::new(&tasks(&["true"]));
        fs::create_dir_all(world.ws().join("a/b/.vscode")).expect("made");
        let done = Command::new("git").args(["init", "-q"]).current_dir(world.ws()).output();
        assert!(done.expect("git").status.success());
        let run = || {
            who.give(&world.desk);
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -Sn 1024; exec \"$@\"", "sh"]).arg(&shared.program);
            world.desk.bare(command.args(["run", "--trust"]));
            who.own(&mut command);
            Done::of(command.env("HOME", world.home()).current_dir(world.ws()))
        };
        let first = run();
        assert!(first.code == 0 && !first.err.contains(WITHOUT), "{}", first.err);
        let mut before = Command::new("sh");
        before.args(["-c", made]).current_dir(world.ws());
        assert!(who.own(&mut before).status().expect("sh").success());
        let done = run();
        let told = format!("{who:?}, {made}: {} {}{}", done.code, done.out, done.err);
        assert!([0, 2].contains(&done.code) && !done.err.contains(WITHOUT), "{told}");
        let _ = Command::new("chmod").args(["-R", "u+rwX", "."]).current_dir(world.ws()).status();
    }
}

/// Without namespaces the System V objects and the priorities of other programs are the system's own.
#[test]
fn without_namespaces_the_objects_and_priorities_of_others_stay_theirs() {
    let shared = Shared::new();
    let who = Who::WithoutNamespaces;
    if cfg!(not(target_arch = "x86_64")) || who.is_missing(&shared).is_some() {
        return skipped("no other user, or another machine than x86-64");
    }
    // shmget, msgget, semget, setpriority of the user, ioprio_set of the user: each is refused with EPERM.
    let calls = "(29, 0, 4096, 0o1600), (68, 0, 0o1600), (64, 0, 1, 0o1600), (141, 2, 0, 19), (251, 3, 0, 0)";
    let line = format!(
        "python3 -c \"import ctypes; l = ctypes.CDLL(None, use_errno=True); \
         print([(l.syscall(*c), ctypes.get_errno()) for c in [{calls}]])\""
    );
    let world = World::new(&tasks(&[&line]));
    let mut command = who.command(&shared, &world.desk, &["run", "--trust"]);
    let done = Done::of(command.env("HOME", world.home()).current_dir(world.ws()));
    assert!(done.err.contains(WITHOUT), "{}", done.err);
    let refused = format!("[{}]", ["(-1, 1)"; 5].join(", "));
    assert!(done.out.contains(&refused), "{}{}", done.out, done.err);
}
