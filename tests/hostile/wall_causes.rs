//! Every cause of a missing or widened wall that a workspace, an earlier command or a machine can produce:
//! each ends with an error that gives the place and the reason, or with a wall that keeps the home.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::walls::{TRY, World};
use crate::support::desk::{Done, Live, OFFLINE, wait};
use crate::support::users::{Shared, Who, skipped};

/// How a cause ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Nothing runs, and the error says this.
    Refused(&'static str),
    /// Commands run in the sandbox.
    Walled,
}

use End::{Refused, Walled};

/// What makes a cause possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Anybody can.
    Nothing,
    /// Root, who makes mounts.
    Root,
    /// A user that the limits of processes hold.
    Ordinary,
    /// This processor, whose numbers of system calls are written here.
    X86,
}

use Needs::{Nothing, Ordinary, Root, X86};

type Cause = (&'static str, &'static str, Needs, End);

/// Runs a command in user namespaces of a machine that has none of this kind.
const NONE_OF: &str = "unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_";

/// Makes a root of its own in the folder `r`, with the system in it, but not what other programs of the machine
/// left in its temporary folders: where the root is the workspace all of it is walked.
const CHROOT: &str = "mkdir r && mount -t tmpfs none r && cd r && mkdir -m 1777 tmp && for d in /usr /bin /sbin \
    /lib /lib64 /etc /proc /dev /sys ${CS%/*} $HOME; do test -e $d && mkdir -p .$d && mount --rbind $d .$d || exit \
    77; done; cd ..; cp agents.toml r; ";

/// (what happens, a script in the workspace, what it needs, how it ends). In a script `$CS` is the program,
/// and `DENY` stands for the words that refuse system calls: then follow the error and their numbers.
const CAUSES: &[Cause] = &[
    ("nothing", "exec $CS run", Nothing, Walled),
    // The kernel.
    ("no Landlock", "exec DENY 38 444 $CS run", Nothing, Refused("incompatible")),
    ("Landlock switched off", "exec DENY 95 444 $CS run", Nothing, Refused("incompatible")),
    ("no rules of Landlock", "exec DENY 38 445 $CS run", Nothing, Refused("add a rule")),
    ("no restriction", "exec DENY 1 446 $CS run", Nothing, Refused("restrict")),
    ("no layer of Landlock left", "exec perl $LAYERS $CS run", Nothing, Refused("restrict")),
    ("seccomp refused", "exec DENY 22 317 $CS run", X86, Refused("seccomp")),
    ("capabilities stay", "exec DENY 1 126 $CS run", X86, Refused("not permitted")),
    ("no unshare", "exec DENY 1 272 $CS run", X86, Walled),
    ("no more namespaces", "exec DENY 28 272 $CS run", X86, Walled),
    ("no memory for namespaces", "exec DENY 12 272 $CS run", X86, Refused("could not be tried")),
    ("no files for namespaces", "exec DENY 24 272 $CS run", X86, Refused("could not be tried")),
    ("a disk that fails", "exec DENY 5 446 $CS run", Nothing, Refused("could not be tried")),
    ("no open_tree", "exec DENY 38 428 $CS run", Nothing, Walled),
    ("no move_mount", "exec DENY 1 429 $CS run", Nothing, Walled),
    ("no mount", "exec DENY 1 165 $CS run", X86, Walled),
    ("no openat2", "exec DENY 38 437 $CS run", Nothing, Walled),
    ("openat2 refused", "exec DENY 1 437 $CS run", Nothing, Walled),
    ("no locks", "exec DENY 37 73 $CS run", X86, Refused("No locks")),
    ("no sockets", "exec DENY 1 41 $CS run", X86, Refused("not permitted")),
    ("no user namespaces", "user", Nothing, Walled),
    ("no process namespaces", "pid", Nothing, Walled),
    ("no mount namespaces", "mnt", Nothing, Walled),
    ("no network namespaces", "net", Nothing, Walled),
    ("no System V namespaces", "ipc", Nothing, Walled),
    ("no /proc", "exec unshare -m sh -c 'umount -l /proc && exec $CS run'", Root, Refused("")),
    (
        "another /proc",
        "exec unshare -m sh -c 'mount -t tmpfs no /proc && exec $CS run'",
        Root,
        Refused(""),
    ),
    (
        "another /sys",
        "exec unshare -m sh -c 'mount -t tmpfs no /sys && exec $CS run'",
        Root,
        Walled,
    ),
    // Limits, and what a parent leaves.
    ("few files", "exec prlimit --nofile=64:64 $CS run", Nothing, Refused("open files")),
    ("very few files", "exec prlimit --nofile=16:16 $CS run", Nothing, Refused("open files")),
    ("few files now", "exec prlimit --nofile=64:4096 $CS run", Nothing, Walled),
    ("no processes", "exec prlimit --nproc=1:1 $CS run", Ordinary, Refused("")),
    ("no growing files", "exec prlimit --fsize=0:0 $CS run", Nothing, Refused("")),
    ("little memory", "exec prlimit --data=60000000 $CS run", Nothing, Walled),
    (
        "dead children vanish",
        "exec perl -e '$SIG{CHLD} = q(IGNORE); exec @ARGV' $CS run",
        Nothing,
        Refused("No child processes"),
    ),
    ("all closed", "exec perl -e 'close STDIN; exec @ARGV' $CS run", Nothing, Walled),
    ("an odd umask", "umask 777; exec $CS run", Nothing, Refused("")),
    ("an open umask", "umask 0; exec $CS run", Nothing, Walled),
    ("no new privileges", "exec setpriv --no-new-privs $CS run", Nothing, Walled),
    ("no rights", "exec setpriv --bounding-set -all --inh-caps -all $CS run", Root, Walled),
    // The program.
    (
        "the program is gone",
        "ln $CS p && exec 3< p && rm p && exec /proc/self/fd/3 run",
        Root,
        Walled,
    ),
    (
        "the program was replaced",
        "ln $CS p && exec 3< p && rm p && printf '#!/bin/sh\ncat ~/.ssh/id; touch ~/PWNED' > p && chmod 755 p \
         && exec /proc/self/fd/3 run",
        Root,
        Walled,
    ),
    // Temporary folders.
    ("TMPDIR in the workspace", "mkdir t; TMPDIR=$PWD/t exec $CS run", Nothing, Walled),
    ("TMPDIR is a link", "ln -s ~ t; TMPDIR=$PWD/t exec $CS run", Nothing, Walled),
    (
        "TMPDIR is a link to a link",
        "ln -s u t; ln -s .. u; TMPDIR=$PWD/t/.ssh exec $CS run",
        Nothing,
        Walled,
    ),
    ("TMPDIR is a file", "TMPDIR=$PWD/agents.toml exec $CS run", Nothing, Walled),
    ("TMPDIR is nowhere", "TMPDIR=/nowhere/at/all exec $CS run", Nothing, Walled),
    ("TMPDIR is relative", "TMPDIR=.. exec $CS run", Nothing, Walled),
    ("TMPDIR is the home", "TMPDIR=$HOME exec $CS run", Nothing, Walled),
    (
        "TMPDIR cannot be written",
        "exec unshare -m sh -c 'mount -t tmpfs -o ro no /mnt && TMPDIR=/mnt exec $CS run'",
        Root,
        Refused("Read-only"),
    ),
    (
        "TMPDIR is full",
        "exec unshare -m sh -c 'mount -t tmpfs -o size=4k,nr_inodes=1 no /mnt && TMPDIR=/mnt exec $CS run'",
        Root,
        Refused("free space there, or set TMPDIR"),
    ),
    (
        "/var/tmp is full",
        "exec unshare -m sh -c 'mount -t tmpfs -o size=4k,nr_inodes=1 no /var/tmp && exec $CS run'",
        Root,
        Walled,
    ),
    (
        "TMPDIR has names and no space",
        "exec unshare -m sh -c 'mount -t tmpfs -o size=4k no /mnt && echo x > /mnt/full && TMPDIR=/mnt exec $CS \
         run'",
        Root,
        Walled,
    ),
    (
        "TMPDIR can be written by others",
        "mkdir -m 777 ../../open; TMPDIR=$(realpath ../../open) exec $CS run",
        Nothing,
        Refused("open may be written by other users"),
    ),
    (
        "TMPDIR lies where others write",
        "mkdir -m 700 -p ../../open/own; chmod 777 ../../open; TMPDIR=$(realpath ../../open/own) exec $CS run",
        Nothing,
        Refused("open may be written by other users"),
    ),
    (
        "TMPDIR is of another user",
        "mkdir ../../open; chown 4321 ../../open; TMPDIR=$(realpath ../../open) exec $CS run",
        Root,
        Refused("set TMPDIR to a folder of your own"),
    ),
    (
        "TMPDIR is sticky",
        "mkdir -m 1777 ../../open; TMPDIR=$(realpath ../../open) exec $CS run",
        Nothing,
        Walled,
    ),
    // Records.
    ("records are a file", "touch .transcripts; exec $CS run", Nothing, Refused(".transcripts")),
    ("records are a pipe", "mkfifo .transcripts; exec $CS run", Nothing, Refused(".transcripts")),
    (
        "records lead to a file",
        "ln -s /etc/passwd .transcripts; exec $CS run",
        Nothing,
        Refused("a link"),
    ),
    (
        "records lead nowhere",
        "ln -s ../new .transcripts; exec $CS run",
        Nothing,
        Refused(".transcripts"),
    ),
    (
        "records lead in a circle",
        "ln -s .transcripts .transcripts; exec $CS run",
        Nothing,
        Refused(".transcripts"),
    ),
    (
        "caches are a file",
        "mkdir .transcripts; touch package.json .transcripts/.cache; exec $CS run",
        Nothing,
        Refused(".cache is no folder"),
    ),
    (
        "caches are a pipe",
        "mkdir .transcripts; touch package.json; mkfifo .transcripts/.cache; exec $CS run",
        Nothing,
        Refused(".cache is no folder"),
    ),
    (
        "records cannot be written",
        "mkdir .transcripts; exec unshare -m sh -c 'mount -t tmpfs -o ro no .transcripts && exec $CS run'",
        Root,
        Refused("Read-only"),
    ),
    (
        "records are full",
        "mkdir .transcripts; exec unshare -m sh -c 'mount -t tmpfs -o size=4k,nr_inodes=1 no .transcripts && \
         exec $CS run'",
        Root,
        Refused("space"),
    ),
    // The home.
    ("no home", "unset HOME; exec $CS run", Nothing, Walled),
    ("a relative home", "HOME=.. exec $CS run", Nothing, Walled),
    ("the root as home", "HOME=/ exec $CS run", Nothing, Walled),
    ("an empty home", "HOME= exec $CS run", Nothing, Walled),
    ("a home that is nowhere", "HOME=/nowhere exec $CS run", Nothing, Walled),
    ("the workspace as home", "HOME=$PWD exec $CS run", Nothing, Walled),
    ("a folder of the workspace as home", "mkdir h; HOME=$PWD/h exec $CS run", Nothing, Walled),
    ("a link as home", "ln -s .. h; HOME=$PWD/h exec $CS run", Nothing, Walled),
    // The workspace.
    ("a path through a link", "ln -s ws ../w; cd ../w; exec $CS run", Nothing, Walled),
    ("a path through the kernel", "cd /proc/self/cwd; exec $CS run", Nothing, Walled),
    (
        "many repositories",
        "for i in $(seq 3500); do mkdir -p m/$i/.git/objects m/$i/.git/refs; echo x > m/$i/.git/HEAD; done; \
         exec $CS run",
        Nothing,
        Walled,
    ),
    ("many links", "for i in $(seq 3000); do ln -s ~ l$i; done; exec $CS run", Nothing, Walled),
    (
        "the root as workspace",
        "exec unshare -m sh -c 'CHROOT exec chroot r $CS run'",
        Root,
        Refused("temporary files"),
    ),
    (
        "a root of its own",
        "exec unshare -m sh -c 'CHROOT mkdir r/ws; mv r/agents.toml r/ws; exec chroot r env -C /ws $CS run'",
        Root,
        Walled,
    ),
];

/// A hook and a task that try to get out, and tell that they ran.
fn file() -> String {
    let line = format!("echo ran >> ran; {TRY}");
    format!("[hooks]\non_start = ['sh', '-c', '''{line}''']\n[tasks.t]\nrun = '''{line}'''\n")
}

fn command(who: Who, shared: &Shared, world: &World, script: &str) -> Command {
    let mut command = Command::new("sh");
    who.give(&world.desk);
    world.desk.bare(command.args(["-c", script]));
    command.env("HOME", world.home()).env("CS", &shared.program).env("LAYERS", &shared.layers);
    who.own(command.current_dir(world.ws()));
    command
}

fn script(shared: &Shared, script: &str) -> String {
    if !script.contains(' ') {
        return format!("exec {NONE_OF}{script}_namespaces || exit 77; exec $CS run'");
    }
    script.replace("DENY", &shared.deny()).replace("CHROOT", CHROOT)
}

/// Tries one cause. Returns false if it cannot be made here.
fn try_one(who: Who, shared: &Shared, cause: &Cause) -> bool {
    let &(name, text, _, end) = cause;
    let world = World::new(&file());
    let done = Done::of(&mut command(who, shared, &world, &script(shared, text)));
    let cannot = ["unshare: ", "setpriv: ", "prlimit: ", "ln: "];
    if done.code == 77 || cannot.iter().any(|program| done.err.starts_with(program)) {
        skipped(&format!("{name}, {who:?}: {}", done.err.lines().next().unwrap_or_default()));
        return false;
    }
    world.is_kept(&done);
    let told = format!("{name}, {who:?}: {} {}{}", done.code, done.out, done.err);
    let ran = world.ws().join("ran").exists() || world.ws().join("r/ws/ran").exists();
    match end {
        Refused(reason) => {
            assert!(!ran && done.code != 0, "{told}");
            assert!(reason.is_empty() || done.code == 2 || done.code == 74, "{told}");
            assert!(done.err.contains(reason), "{told}");
        }
        Walled => {
            assert!(done.err.contains("sandbox of commands: workspace-write"), "{told}");
            // Where nothing new can be made beside protected files, the command cannot tell.
            assert!(ran || done.err.contains("nothing new can be made"), "{told}");
        }
    }
    true
}

#[test]
fn no_cause_opens_the_wall() {
    // An ordinary user tries all, and root what needs it and every third of the others.
    try_all(|who, number, cause| who == Who::Other || cause.2 == Root || number % 3 == 0);
}

#[test]
#[ignore = "each cause by each user: half a minute on two cores"]
fn no_cause_opens_the_wall_for_anybody() {
    try_all(|_, _, _| true);
}

fn try_all(is_tried: impl Fn(Who, usize, &Cause) -> bool) {
    let shared = Shared::new();
    let is_root = rustix::process::getuid().is_root();
    let users = [Who::Own, Who::Other].map(|who| (who, who.is_missing(&shared)));
    let mut cases = Vec::new();
    for (who, missing) in &users {
        if let Some(reason) = missing {
            skipped(&format!("causes of a missing wall, {who:?}: {reason}"));
            continue;
        }
        let rights = is_root && *who == Who::Own;
        for (number, cause) in CAUSES.iter().enumerate() {
            let is_alone = users.iter().any(|(_, missing)| missing.is_some());
            if !is_alone && !is_tried(*who, number, cause) {
                continue;
            }
            let reason = match cause.2 {
                Root if !rights => "it needs root",
                Ordinary if rights => "root is not held by it",
                X86 if !cfg!(target_arch = "x86_64") => "its numbers are of another processor",
                _ => {
                    cases.push((*who, cause));
                    continue;
                }
            };
            let is_tried_by_another = is_root && matches!(cause.2, Root | Ordinary);
            if !is_tried_by_another {
                skipped(&format!("{}, {who:?}: {reason}", cause.0));
            }
        }
    }
    let (next, tried) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((who, cause)) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let done = try_one(*who, &shared, cause);
                    tried.fetch_add(usize::from(done), Ordering::SeqCst);
                }
            });
        }
    });
    assert!(tried.into_inner() * 4 >= cases.len() * 3, "most of them are tried");
}

/// Runs a script as this user in this world.
fn run(who: Who, shared: &Shared, world: &World, text: &str) -> Done {
    let done = Done::of(&mut command(who, shared, world, &script(shared, text)));
    world.is_kept(&done);
    done
}

#[test]
fn a_full_disk_takes_no_part_of_the_wall_away() {
    let shared = Shared::new();
    let told = |done: &Done| -> Option<String> {
        let mut lines = done.err.lines();
        lines.find(|line| line.contains("sandbox of commands: ")).map(str::to_owned)
    };
    let usual = told(&run(Who::Own, &shared, &World::new(&file()), "exec $CS run"));
    let required = format!("[sandbox]\nrequire = true\n{}", file());
    let texts = [&file(), &required];
    let next = AtomicUsize::new(0);
    let one = |number: usize| {
        let (room, world) = (number / 2 + 1, World::new(texts[number % 2]));
        // Whoever has allowed it for this machine has not allowed it for a full disk.
        let text = format!(
            "$CS trust --without-sandbox > /dev/null 2>&1 || exit 76; exec unshare -m sh -c 'mount -t tmpfs -o \
             nr_inodes={room} no /mnt || exit 77; TMPDIR=/mnt exec $CS run'"
        );
        let done = run(Who::Own, &shared, &world, &text);
        if done.code == 77 || done.err.starts_with("unshare: ") {
            return skipped(&format!("a full disk: {}", done.err));
        }
        let all = format!("{room}: {} {}{}", done.code, done.out, done.err);
        match told(&done) {
            Some(line) => assert_eq!(Some(line), usual, "{all}"),
            None => {
                assert_eq!(done.code, 74, "{all}");
                assert!(done.err.contains("/mnt: ") && done.err.contains("free space"), "{all}");
                assert!(!done.err.contains("danger-full-access"), "{all}");
                assert!(!world.ws().join("ran").exists(), "{all}");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let number @ ..14 = next.fetch_add(1, Ordering::SeqCst) {
                    one(number);
                }
            });
        }
    });
}

#[test]
fn each_way_to_go_on_is_refused_without_a_wall() {
    let shared = Shared::new();
    let slow = format!("touch started; test -e go || sleep 60; echo ran >> ran; {TRY}");
    let agents =
        OFFLINE.lines().filter(|line| !line.starts_with("version") && !line.starts_with("name"));
    let agents: Vec<_> = agents.collect();
    let world = World::new(&format!(
        "[hooks]\non_start = ['sh', '-c', 'echo ran >> ran']\n\
         {}\n[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['bash']\n\
         [tasks.t]\nrun = '''{slow}'''\n[tasks.u]\nagent = 'a'\nprompt = 'go'\ndepends_on = ['t']\n",
        agents.join("\n")
    ));
    let call = "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = \"bash\"\ninput = { command = \"echo ran >> ran\" }\n\
                [[rules]]\nsay = \"done\"\n";
    fs::write(world.ws().join("script.toml"), call).expect("written");
    let live = Live::starting(&mut world.command(&["run"]));
    wait("the command", || world.ws().join("started").exists().then_some(()));
    live.signal("INT");
    assert_ne!(live.end().code, 0);
    let _ = fs::remove_file(world.ws().join("ran"));
    for verb in ["resume", "resume --all", "run", "run --detach", "run --keep-going --json"] {
        let done = run(Who::Own, &shared, &world, &format!("exec DENY 38 444 $CS {verb}"));
        let told = format!("{verb}: {} {}{}", done.code, done.out, done.err);
        assert_eq!(done.code, 2, "{told}");
        assert!(!world.ws().join("ran").exists(), "{told}");
        assert!(format!("{}{}", done.out, done.err).contains("no sandbox"), "{told}");
    }
    // It was the wall, and nothing else, that held them up.
    fs::write(world.ws().join("go"), "").expect("written");
    let done = run(Who::Own, &shared, &world, "exec $CS resume");
    assert!(done.err.contains("sandbox of commands: workspace-write"), "{}", done.err);
    let done = run(Who::Own, &shared, &world, "exec $CS run");
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(world.desk.read("home/ws/ran").lines().count(), 3, "{}", done.err);
}

#[test]
fn work_that_is_kept_from_more_is_proved_before_it_begins() {
    let shared = Shared::new();
    let world = World::new(
        "[sandbox]\nnetwork = true\n[tasks.t]\nrun = 'echo ran >> .transcripts/x; echo told'\n\
         sandbox = { network = false }\n",
    );
    let text = format!("exec {NONE_OF}net_namespaces || exit 77; exec $CS run --trust'");
    let done = run(Who::Own, &shared, &world, &text);
    if done.code == 77 {
        return skipped(&format!("no network namespaces: {}", done.err));
    }
    // The run itself needs no network of its own; its task does, and so both get what can be had.
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("nothing new can be made"), "{}", done.err);
    assert!(done.out.contains("told"), "{}{}", done.out, done.err);
}

#[test]
fn a_workspace_that_is_mounted_over_ends_the_commands() {
    let shared = Shared::new();
    let slow = "touch started; i=0; while ! test -e go && test $i -lt 500; do sleep 0.02; i=$((i+1)); done";
    let tasks = super::walls::tasks(&[slow, TRY, "echo y > ~/ws/second"]);
    // The records lie elsewhere: otherwise their loss would end the run.
    let world = World::new(&format!("[state]\ndir = '../records'\n{tasks}"));
    let text = "exec unshare -m sh -c '$CS run --trust & p=$!; until test -e started; do sleep 0.02; done; \
                mount -t tmpfs no $PWD || exit 77; cp agents.toml $PWD/; touch go; wait $p; code=$?; \
                test -e $PWD/second && echo SECOND; exit $code'";
    let done = run(Who::Own, &shared, &world, text);
    if done.code == 77 || done.err.starts_with("unshare: ") {
        return skipped(&format!("a mount over the workspace: {}", done.err));
    }
    assert!(done.code != 0 && !done.out.contains("SECOND"), "{}{}", done.out, done.err);
    assert!(done.err.contains("it was replaced by another one"), "{}", done.err);
}

/// A command line that forges the store of what a person trusts, at any place where it may be.
const FORGE: &str = r#"for d in $HOME/.local/state/callsheet ../.local/state/callsheet; do mkdir -p $d; chmod 700 $d
rm -f $d/trust.json; echo '{"version":1,"trusted":[],"without_sandbox":true}' > $d/trust.json
chmod 600 $d/trust.json; mv ${d%/*} ${d%/*}2; mv ${d%/*/*} ${d%/*/*}2; done 2> /dev/null; exit 0"#;

#[test]
fn a_command_cannot_make_the_store_of_what_a_person_trusts() {
    let shared = Shared::new();
    for who in [Who::Own, Who::Other, Who::WithoutNamespaces] {
        if let Some(reason) = who.is_missing(&shared) {
            skipped(&format!("a forged store, {who:?}: {reason}"));
            continue;
        }
        let tasks = format!("[tasks.t]\nrun = '''{FORGE}'''\n");
        let roots = format!("[sandbox]\nwritable_roots = ['..']\n{tasks}");
        for (file, home) in [(&tasks, "$PWD"), (&roots, "$PWD/..")] {
            let world = World::new(file);
            let text = format!("unset XDG_STATE_HOME; export HOME=$(realpath {home}); ");
            let run = |rest: &str| {
                let line = script(&shared, &format!("{text}{rest}"));
                match who {
                    Who::WithoutNamespaces => {
                        let line = line.replace(
                            "$CS",
                            &format!("{} $CS", shared.denying(1, crate::support::users::UNSHARE)),
                        );
                        Done::of(&mut command(who, &shared, &world, &line))
                    }
                    _ => Done::of(&mut command(who, &shared, &world, &line)),
                }
            };
            let done = run("exec $CS run --trust");
            assert_eq!(done.code, 0, "{who:?}, {home}: {}", done.err);
            let listed = run("cd ../..; exec $CS trust --list");
            assert_eq!(listed.code, 0, "{who:?}, {home}: {}", listed.err);
            assert!(!listed.out.contains("no sandbox"), "{who:?}, {home}: {}", listed.out);
            let folder = if home == "$PWD" { world.ws() } else { world.home() };
            // There is a folder, so that it can be kept, and nothing of the command's in it.
            for entry in fs::read_dir(folder.join(".local/state/callsheet")).expect("it was made") {
                let text = fs::read_to_string(entry.expect("one").path()).expect("a text");
                assert!(!text.contains("without_sandbox"), "{who:?}, {home}: {text}");
            }
        }
    }
    let world = World::new("[tasks.t]\nrun = 'true'\n");
    for (to, told) in
        [("../../elsewhere", "a link that commands can change"), ("../nowhere", "cannot be made")]
    {
        let text = format!("ln -sfn {to} .local; unset XDG_STATE_HOME; HOME=$PWD exec $CS run");
        let done = run(Who::Own, &shared, &world, &text);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains(told), "{}", done.err);
    }
}
