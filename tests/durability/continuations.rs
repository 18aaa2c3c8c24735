//! Continuations of random graphs, through the binary: whatever was killed, stopped, mended, edited, named,
//! reused or forked, a run ends as one from scratch would, and no command whose content is unchanged has its
//! effect twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use crate::support::desk::Desk;

/// What each command does: fails as it is told to, notes what it is made from, and tells a digest of it.
const STEP: &str = r#"name=$1 version=$2 breaks=$3
case $breaks in
  always) exit 1 ;;
  mended) test -e mended || test "$ITEM" = y || exit 1 ;;
esac
digest=$(printf '%s' "$name $version $ITEM $READ" | cksum | cut -d' ' -f1)
sleep 0.0$version
echo "$name $digest" >> ledger
echo "$name $digest"
"#;

/// A task of a graph.
#[derive(Clone, Debug)]
struct Task {
    version: u8,
    breaks: &'static str,
    /// True if its command runs again only if what it reads has changed: it reads all that it waits for, and
    /// cleans nothing up.
    is_pure: bool,
    /// All of it but the command.
    rest: String,
}

/// A graph in which the end of each task follows from the tasks before it.
fn graph(rng: &mut fastrand::Rng) -> Vec<Task> {
    let mut tasks: Vec<(Task, bool)> = Vec::new();
    for at in 0..rng.usize(2..7) {
        let before: BTreeSet<usize> =
            (0..rng.usize(..4).min(at)).map(|_| rng.usize(..at)).collect();
        let always = rng.u8(..8) == 0;
        let joins =
            ["all_success", "all_done", "all_done", "none_failed", "any_success", "at_least:1"];
        let join = if always { "all_done" } else { rng.choice(joins).expect("a join") };
        let has_join = !before.is_empty();
        // What needs only some of those before it may start before the others end.
        let may_read = !join.starts_with('a') || join.starts_with("all");
        let (mut read, mut when, mut list) = (String::new(), None, "['x', 'y']".to_owned());
        let reads_all = may_read && rng.bool();
        for before in before.iter().filter(|_| reads_all) {
            let field = if tasks[*before].1 { "outputs" } else { "output" };
            for part in ["state", field, "error"] {
                read += &format!(" {{{{ tasks.t{before}.{part} | default('none', true) }}}}");
            }
        }
        for before in before.iter().filter(|_| may_read) {
            let is_fan_out = tasks[*before].1;
            let field = if is_fan_out { "outputs" } else { "output" };
            match rng.u8(..6) {
                0 => read += &format!(" {{{{ tasks.t{before}.state }}}}"),
                1 => read += &format!(" {{{{ tasks.t{before}.{field} | default('none', true) }}}}"),
                2 => read += &format!(" {{{{ tasks.t{before}.error | default('none', true) }}}}"),
                3 => read += &format!(" {{{{ tasks.t{before}.{field} }}}}"),
                4 if rng.bool() => when = Some(format!("tasks.t{before}.state == 'completed'")),
                5 if is_fan_out => {
                    list = format!(
                        "tasks.t{before}.outputs | default([], true) | map(attribute='key')"
                    );
                }
                _ => list = format!("[tasks.t{before}.state, 'x', 'y']"),
            }
        }
        let is_fan_out = rng.u8(..3) == 0;
        let mut rest = String::new();
        let names: Vec<_> = before.iter().map(|before| format!("'t{before}'")).collect();
        writeln!(rest, "depends_on = [{}]", names.join(", ")).expect("written");
        if has_join {
            writeln!(rest, "join = '{join}'").expect("written");
        }
        if always {
            rest += "always = true\n";
        }
        if let Some(when) = when {
            writeln!(rest, "when = \"{when}\"").expect("written");
        }
        let item = if is_fan_out { "{{ item }}" } else { "" };
        writeln!(rest, "env = {{ READ = \"{read}\", ITEM = \"{item}\" }}").expect("written");
        if is_fan_out {
            let share = rng.choice(["0.0", "0.5", "1.0"]).expect("a share");
            writeln!(rest, "foreach = \"{list}\"\nmin_success = {share}").expect("written");
        }
        if rng.u8(..4) == 0 {
            let end = rng.choice(["continue", "skip_dependents"]).expect("an end");
            writeln!(rest, "on_failure = '{end}'").expect("written");
        }
        let breaks = rng.choice(["never", "never", "never", "mended", "mended", "always"]);
        let (version, breaks) = (rng.u8(0..3), breaks.expect("a way"));
        let is_pure = !always && (reads_all || before.is_empty());
        tasks.push((Task { version, breaks, is_pure, rest }, is_fan_out));
    }
    tasks.into_iter().map(|(task, _)| task).collect()
}

fn write(desk: &Desk, tasks: &[Task]) {
    let mut text =
        "version = 1\nname = \"desk\"\n[limits]\nfail_fast = false\nmax_concurrency = 3\n\
                    grace_period = '100ms'\n"
            .to_owned();
    for (at, Task { version, breaks, rest, .. }) in tasks.iter().enumerate() {
        write!(text, "[tasks.t{at}]\nrun = 'sh step.sh t{at} {version} {breaks}'\n{rest}")
            .expect("written");
    }
    desk.write("agents.toml", &text);
    desk.write("step.sh", STEP);
}

/// The state and the output of each task at the end of the newest run.
fn end_of(desk: &Desk) -> BTreeMap<String, (String, String)> {
    let last = desk.json(&["tail", "--json"]).pop().expect("an event");
    assert_eq!(last["type"], "run.completed", "{last}");
    let tasks = last["data"]["tasks"].as_object().expect("tasks").iter();
    // Who reads the state of a task is told that it completed.
    let state = |task: &serde_json::Value| task["state"].to_string().replace("reused", "completed");
    let end = |task: &serde_json::Value| (state(task), task["output"].to_string());
    tasks.map(|(name, task)| (name.clone(), end(task))).collect()
}

/// Continues in the way of the seed. Returns true if a command may have its effect again.
fn continued(desk: &Desk, tasks: &mut [Task], rng: &mut fastrand::Rng) -> bool {
    let way = rng.u8(..7);
    if matches!(way, 3 | 4) {
        let run = desk.start(&["run"]);
        // Any moment will do: what matters is that there are many.
        std::thread::sleep(Duration::from_millis(rng.u64(20..250)));
        run.signal(if way == 3 { "KILL" } else { "INT" });
        run.end();
    } else {
        let done = desk.call(&["run"]);
        assert!([0, 1, 8].contains(&done.code), "{}{}", done.out, done.err);
    }
    let journal = |desk: &Desk| desk.json(&["tail", "--json"]).len();
    let length = if way == 6 { journal(desk) } else { 0 };
    desk.write("mended", "");
    let changed = rng.usize(..tasks.len());
    if matches!(way, 1 | 2) {
        tasks[changed].version += 4;
        write(desk, tasks);
    }
    match way {
        1 => drop(desk.call(&["resume", "--accept-changes"])),
        2 => drop(desk.call(&["run", "--reuse"])),
        // It may have died before there was a run.
        3 | 4 if desk.call(&["resume"]).err.contains("there is no run") => {
            drop(desk.call(&["run"]));
        }
        5 => drop(desk.call(&["resume", "--retry-failed", &format!("t{changed}")])),
        6 => {
            let seq = rng.usize(2..length.max(3));
            let forked = desk.call(&["fork", &format!("desk@{seq}")]);
            assert!([0, 1, 8].contains(&forked.code), "{seq}: {}{}", forked.out, forked.err);
        }
        _ => {}
    }
    let done = desk.call(&["resume", "--retry-failed"]);
    assert!([0, 1, 8].contains(&done.code), "{}{}", done.out, done.err);
    // A command that was asked to end may have done its work; a named task begins again; the origin of a fork
    // goes its own way.
    matches!(way, 4..=6)
}

fn continuations_end_as_from_scratch(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut tasks = graph(&mut rng);
        let desk = Desk::empty();
        write(&desk, &tasks);
        let may_repeat = continued(&desk, &mut tasks, &mut rng);
        let scratch = Desk::empty();
        scratch.write("mended", "");
        write(&scratch, &tasks);
        let done = scratch.call(&["run"]);
        assert!([0, 1, 8].contains(&done.code), "seed {seed}: {}{}", done.out, done.err);
        let told =
            || format!("seed {seed}\n{}\n{}", desk.read("agents.toml"), desk.good(&["tail"]));
        assert_eq!(end_of(&desk), end_of(&scratch), "{}", told());
        let mut effects = BTreeSet::new();
        let ledger = std::fs::read_to_string(desk.path().join("ledger")).unwrap_or_default();
        let is_pure = |line: &str| {
            let of = |at: usize| line.starts_with(&format!("t{at} "));
            tasks.iter().enumerate().any(|(at, task)| task.is_pure && of(at))
        };
        for line in ledger.lines().filter(|line| !may_repeat && is_pure(line)) {
            assert!(effects.insert(line), "twice: {line}: {}", told());
        }
    }
}

#[test]
fn continuations_of_random_graphs_end_as_from_scratch() {
    continuations_end_as_from_scratch(0..12);
}

#[test]
#[ignore = "300 graphs: five minutes on two cores"]
fn continuations_of_300_random_graphs_end_as_from_scratch() {
    continuations_end_as_from_scratch(0..300);
}
