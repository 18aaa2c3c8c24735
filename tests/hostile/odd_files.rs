//! Files of a run directory that are no files: a run directory may come from anywhere, and a named pipe waits
//! for a writer for ever.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use callsheet::journal::line::chain;

use crate::support::desk::{Desk, Done, wait};

/// A run of a model and two commands that was killed during the second.
fn killed() -> Desk {
    let script = "[[rules]]\nsay = 'done'\n";
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
                [tasks.one]\nagent = 'a'\nprompt = 'go'\n\
                [tasks.two]\nrun = 'echo two >> ledger'\ndepends_on = ['one']\n\
                [tasks.three]\nrun = 'echo three >> ledger; test -e go || sleep 60'\n\
                depends_on = ['two']\non_unknown = 'tell'\n";
    let desk = Desk::offline(rest, script);
    let run = desk.start(&["run"]);
    wait("the last command", || desk.path().join("ledger").exists().then_some(()));
    wait("its effect", || desk.read("ledger").contains("three").then_some(()));
    run.signal("KILL");
    run.end();
    desk.write("go", "");
    desk
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
    assert!(done.success());
}

fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    let done = Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(done.success());
}

fn folder(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir(path).expect("a folder");
}

#[test]
fn nobody_waits_for_what_is_no_file() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let aside = desk.path().join("aside");
    copy(&run, &aside);
    let names = [
        "journal.jsonl",
        "acknowledged",
        "started",
        "LOCK",
        "snapshots/9.json",
        "agents/one.jsonl",
        "agents/one.log",
        "agents/three.log",
    ];
    for name in names {
        for make in [pipe, folder] {
            fs::remove_dir_all(&run).expect("removed");
            copy(&aside, &run);
            make(&run.join(name));
            for verb in [&["ps", "-a"][..], &["show"], &["tail"], &["resume", "--explain"]] {
                let done = desk.call(verb);
                assert!([0, 74].contains(&done.code), "{name}: {verb:?}: {}", done.err);
                let is_journal = name == "journal.jsonl";
                assert_eq!(done.code == 74, is_journal, "{name}: {verb:?}: {}", done.err);
                assert!(!is_journal || done.err.contains("it is not a file"), "{}", done.err);
                assert!(!is_journal || done.err.contains(&*run.to_string_lossy()), "{}", done.err);
            }
            for verb in ["resume", "rebuild"] {
                let done = desk.call(&[verb, "desk"]);
                assert!([0, 1, 74].contains(&done.code), "{name}: {verb}: {}", done.err);
            }
            assert_eq!(desk.read("ledger"), "two\nthree\n", "{name}");
        }
    }
}

fn zero(path: &Path) {
    let _ = fs::remove_file(path);
    symlink("/dev/zero", path).expect("a link");
}

/// A file of 100 GB that takes no space.
fn huge(path: &Path) {
    let _ = fs::remove_file(path);
    fs::File::create(path).expect("a file").set_len(100 << 30).expect("its length");
}

/// Calls the program with little memory and little time.
fn bounded(desk: &Desk, verb: &[&str]) -> Done {
    let mut command = Command::new("timeout");
    desk.bare(&mut command);
    let limited = "ulimit -v 3000000; exec \"$@\"";
    command.args(["30", "sh", "-c", limited, "sh", env!("CARGO_BIN_EXE_callsheet")]).args(verb);
    Done::of(&mut command)
}

#[test]
fn no_odd_file_fills_the_memory_or_leads_outside() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let aside = desk.path().join("aside");
    copy(&run, &aside);
    let outside = desk.path().join("outside");
    let outside_link = |path: &Path| {
        let _ = fs::remove_file(path);
        symlink(&outside, path).expect("a link");
    };
    let names = [
        "journal.jsonl",
        "acknowledged",
        "started",
        "LOCK",
        "snapshots/9.json",
        "agents/one.jsonl",
        "agents/one.log",
        "answers/1.json",
    ];
    let verbs: [&[&str]; 8] = [
        &["ps", "-a"],
        &["show"],
        &["show", "@one", "--transcript"],
        &["tail"],
        &["report"],
        &["pending"],
        &["cost"],
        &["resume", "--explain"],
    ];
    let makers: [&dyn Fn(&Path); 3] = [&zero, &huge, &outside_link];
    for name in names {
        for (number, make) in makers.iter().enumerate() {
            fs::write(&outside, "a file of the person\n").expect("written");
            fs::remove_dir_all(&run).expect("removed");
            copy(&aside, &run);
            fs::create_dir_all(run.join("answers")).expect("a folder");
            make(&run.join(name));
            let is_journal = name == "journal.jsonl";
            // Each verb on what it reads, and two of them on everything.
            let few = if is_journal || name.ends_with("jsonl") { verbs.len() } else { 2 };
            for verb in &verbs[..few] {
                let done = bounded(&desk, verb);
                assert!(
                    [0, 1, 74].contains(&done.code),
                    "{name}, {number}: {verb:?}: {}",
                    done.err
                );
                assert!(!(done.out + &done.err).contains("of the person"), "{name}: {verb:?}");
            }
            if is_journal {
                let told = bounded(&desk, &["show"]).err;
                let reason = if number == 1 { "a line is longer than" } else { "it is a link" };
                assert!(told.contains(reason), "{told}");
            }
            let resumed = bounded(&desk, &["resume", "desk"]);
            assert!([0, 1, 74].contains(&resumed.code), "{name}, {number}: {}", resumed.err);
            let kept = fs::read_to_string(&outside).expect("it is there");
            assert_eq!(kept, "a file of the person\n", "{name}: it was written over");
        }
    }
}

#[test]
fn a_run_whose_folders_lead_elsewhere_touches_nothing_there() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let aside = desk.path().join("aside");
    copy(&run, &aside);
    let outside = desk.path().join("outside");
    let seen = || {
        let mut names: Vec<_> = fs::read_dir(&outside)
            .expect("it is there")
            .map(|entry| entry.expect("an entry").path())
            .map(|path| (path.clone(), fs::read(path).expect("a file")))
            .collect();
        names.sort();
        names
    };
    fs::create_dir(&outside).expect("made");
    for name in ["one.jsonl", "one.log", "notes.txt", "key.json"] {
        fs::write(outside.join(name), "of the person\n").expect("written");
    }
    let before = seen();
    for name in ["spool", "agents", "results", "snapshots", "reserve", ""] {
        for call in [&["resume", "--all"][..], &["resume", "desk"]] {
            let at = run.join(name);
            let _ = fs::remove_dir_all(&run).or_else(|_| fs::remove_file(&run));
            copy(&aside, &run);
            let _ = fs::remove_dir_all(&at).or_else(|_| fs::remove_file(&at));
            let at = at.to_string_lossy().trim_end_matches('/').to_owned();
            let to = if name == "reserve" { outside.join("notes.txt") } else { outside.clone() };
            symlink(to, &at).expect("a link");
            let done = desk.call(call);
            // A run goes on without a reserve; a link in the place of a run is none.
            let goes_on = name == "reserve" || name.is_empty();
            let told = format!("{name}, {call:?}: {} {}{}", done.code, done.out, done.err);
            assert!(goes_on || (done.out + &done.err).contains("it is a link"), "{told}");
            assert!(before == seen(), "{told}");
        }
    }
    assert_eq!(desk.read("ledger").matches("two").count(), 1);
}

#[test]
fn no_verb_writes_removes_or_takes_anything_through_a_link_in_the_records() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let aside = desk.path().join("aside");
    copy(&run, &aside);
    let outside = desk.path().join("outside");
    fs::create_dir(&outside).expect("a folder");
    let canaries = [outside.join("settings.json"), outside.join("ab")];
    for canary in &canaries {
        fs::write(canary, "canary").expect("a file");
    }
    let names =
        ["snapshots/new", "answers", "answers/1.2.new", "results/ab", "agents/one.log", "started"];
    let verbs: [&[&str]; 4] = [
        &["resume", "desk"],
        &["resume", "desk", "--truncate-at", "5"],
        &["rebuild", "desk"],
        &["fork", "desk@5"],
    ];
    for name in names {
        for verb in verbs {
            fs::remove_dir_all(&run).expect("removed");
            copy(&aside, &run);
            let (path, is_folder) = (run.join(name), name == "answers");
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            let _ = fs::remove_file(&path);
            symlink(if is_folder { &outside } else { &canaries[0] }, &path).expect("a link");
            let done = desk.call(verb);
            assert_ne!(done.code, 0, "{name}: {verb:?}: {}", done.err);
            assert!(done.err.contains("it is a link"), "{name}: {verb:?}: {}", done.err);
            for canary in &canaries {
                assert_eq!(
                    fs::read_to_string(canary).ok().as_deref(),
                    Some("canary"),
                    "{name}: {verb:?}"
                );
            }
            assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 2, "{name}: {verb:?}");
        }
    }
}

/// What reads and writes a file of the records reaches the person's own file that has this name too.
#[test]
fn no_verb_writes_through_a_second_name_of_a_file() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let (aside, canary) = (desk.path().join("aside"), desk.path().join("canary"));
    copy(&run, &aside);
    let names = [
        "journal.jsonl",
        "reserve",
        "started",
        "acknowledged",
        "LOCK",
        "agents/one.log",
        "agents/one.jsonl",
        "agents/new.log",
        "snapshots/new",
    ];
    let verbs: [&[&str]; 5] = [
        &["resume", "desk"],
        &["resume", "desk", "--truncate-at", "5"],
        &["rebuild", "desk"],
        &["cancel", "desk"],
        &["resume", "--all"],
    ];
    for name in names {
        for verb in verbs {
            fs::remove_dir_all(&run).expect("removed");
            copy(&aside, &run);
            let (path, _) = (run.join(name), fs::remove_file(&canary));
            // The journal is one that the verbs would go on with.
            let text = fs::read(&path).ok().filter(|_| name == "journal.jsonl");
            fs::write(&canary, text.unwrap_or_else(|| b"canary".to_vec())).expect("a file");
            let before = fs::read(&canary).expect("a file");
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            let _ = fs::remove_file(&path);
            fs::hard_link(&canary, &path).expect("a second name");
            let done = desk.call(verb);
            let told = format!("{name}: {verb:?}: {} {}{}", done.code, done.out, done.err);
            assert!((done.out + &done.err).contains("1 other name(s)"), "{told}");
            assert!(fs::read(&canary).expect("it is there") == before, "{told}");
        }
    }
    assert_eq!(desk.read("ledger"), "two\nthree\n");
}

#[test]
fn records_that_others_can_write_are_not_gone_on_with() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
    };
    let refused = |name: &str, reason: &str| {
        for verb in [&["fork", "desk@5"][..], &["resume", "desk"], &["run", "--reuse"]] {
            let done = desk.call(verb);
            let told = format!("{name}: {verb:?}: {} {}{}", done.code, done.out, done.err);
            assert!(done.code != 0 && done.err.contains(reason), "{told}");
        }
    };
    for (name, open, shut) in [
        ("", 0o777, 0o700),
        ("agents", 0o777, 0o700),
        ("journal.jsonl", 0o666, 0o600),
        ("started", 0o662, 0o600),
    ] {
        let path = run.join(name);
        mode(&path, open);
        refused(name, "others can write it");
        mode(&path, shut);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1002), None).expect("root");
            refused(name, "belongs to user 1002");
            std::os::unix::fs::chown(&path, Some(0), None).expect("root");
        }
    }
    assert_eq!(desk.runs().len(), 1, "none was made");
    // Each user's own group, as many systems have it.
    [&run, &run.join("journal.jsonl")].into_iter().for_each(|path| mode(path, 0o770));
    let done = desk.call(&["resume", "desk"]);
    assert!(done.code != 74 && !done.err.contains("can write it"), "{}", done.err);
}

#[test]
fn nothing_is_read_through_a_folder_that_is_a_link() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let outside = desk.path().join("outside");
    fs::rename(run.join("agents"), &outside).expect("moved");
    symlink(&outside, run.join("agents")).expect("a link");
    let done = desk.call(&["show", "@one", "--transcript"]);
    assert!(done.code == 1 && done.out.is_empty(), "{}{}", done.out, done.err);
    assert!(done.err.contains("its folder is a link"), "{}", done.err);
}

/// An answer counts only if the person gave it: its file may have come with a repository, or be a command's.
#[test]
fn an_answer_that_nobody_gave_here_is_none() {
    let desk = Desk::commands(
        "[tasks.gate.approval]\nmessage = 'Publish?'\n\
                               [tasks.publish]\nrun = 'echo published > ledger'\ndepends_on = ['gate']\n",
    );
    assert_eq!(desk.call(&["run"]).code, 6);
    let question = desk.json(&["pending", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let answers = desk.runs().pop().expect("a run").join("answers");
    let path = answers.join(format!("{question}.json"));
    let forged = format!(
        "{{\"answer\":{{\"id\":\"{question}\",\"allowed\":true,\"by\":\"x\"}},\"at_ms\":1}}"
    );
    let proven =
        forged.replace("\"at_ms\"", &format!("\"proof\":\"{}\",\"at_ms\"", "ab".repeat(32)));
    fs::create_dir_all(&answers).expect("made");
    for text in [forged, proven] {
        fs::write(&path, &text).expect("written");
        assert_eq!(desk.json(&["pending", "--json"])[0]["id"].as_str(), Some(&*question));
        let resumed = desk.call(&["resume"]);
        assert_eq!(resumed.code, 6, "{}{}", resumed.out, resumed.err);
        assert!(!desk.path().join("ledger").exists());
        // Where nobody has a key yet, and where the person has given another answer before.
        let _ = desk.call(&["approve", "nothing"]);
    }
    // It does not keep the person from answering, and what another person left is none either.
    assert_eq!(desk.call(&["approve", &question]).code, 0);
    let given = fs::read_to_string(&path).expect("it is left");
    fs::rename(desk.state().join("callsheet/answers.key"), desk.path().join("key")).expect("moved");
    assert_eq!(desk.call(&["resume"]).code, 6, "{given}");
    fs::rename(desk.path().join("key"), desk.state().join("callsheet/answers.key")).expect("moved");
    assert!(desk.json(&["pending", "--json"]).is_empty());
    assert_eq!(desk.call(&["resume"]).code, 0);
    assert_eq!(desk.read("ledger"), "published\n");
}

#[test]
fn an_answer_to_a_run_with_a_link_is_refused_at_once() {
    let desk = Desk::commands("[tasks.gate.approval]\nmessage = 'Publish?'\n");
    assert_eq!(desk.call(&["run"]).code, 6);
    let question = desk.json(&["pending", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let outside = desk.path().join("outside");
    fs::create_dir(&outside).expect("a folder");
    let answers = desk.runs().pop().expect("a run").join("answers");
    let _ = fs::remove_dir_all(&answers);
    symlink(&outside, &answers).expect("a link");
    let began = std::time::Instant::now();
    let done = desk.call(&["approve", &question]);
    assert!(done.code == 1 && done.err.contains("it is a link"), "{}", done.err);
    // A process that does not answer is waited for, for half a minute.
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 0);
}

#[test]
fn a_run_of_another_user_is_not_taken_from() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    // Without results there is nothing to link, and still the records would be believed.
    fs::remove_dir_all(run.join("results")).expect("removed");
    std::os::unix::fs::chown(&run, Some(1002), None).expect("root");
    for verb in [&["fork", "desk@5"][..], &["resume", "desk"], &["run", "--reuse"]] {
        let done = desk.call(verb);
        assert_ne!(done.code, 0, "{verb:?}: {}", done.err);
        assert!(done.err.contains("belongs to user 1002"), "{verb:?}: {}", done.err);
    }
    assert_eq!(desk.runs().len(), 1, "none was made");
}

#[test]
fn a_pipe_that_is_named_like_a_run_is_none() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    pipe(&run.with_file_name("0fffffff-9168-7131-9669-04c9ebaadfe3"));
    for verb in [&["ps", "-a"][..], &["show"], &["report"], &["cost"], &["tail"]] {
        let done = bounded(&desk, verb);
        assert_eq!(done.code, 0, "{verb:?}: {}", done.err);
    }
}

#[test]
fn runs_that_cannot_be_listed_are_not_said_to_be_none() {
    let desk = Desk::offline("[tasks.a]\nrun = 'true'\n", "");
    for call in [&["ps"][..], &["pending"], &["resume", "--all"]] {
        assert_eq!(desk.call(call).code, 0, "{call:?}: a folder that is not there holds no runs");
    }
    desk.write(".transcripts", "a file");
    for call in [&["ps"][..], &["show"], &["pending"], &["resume", "--all"], &["tail", "desk"]] {
        let done = desk.call(call);
        let told = format!("{call:?}: {} {}{}", done.code, done.out, done.err);
        assert!(done.code == 74 && done.err.contains("cannot be listed: "), "{told}");
    }
    // A link in its place would show the records of another project as those of this one.
    let other = Desk::commands("[tasks.a]\nrun = 'true'\n");
    other.good(&["run"]);
    fs::remove_file(desk.path().join(".transcripts")).expect("removed");
    symlink(other.path().join(".transcripts"), desk.path().join(".transcripts")).expect("a link");
    for call in [&["ps"][..], &["show"], &["report"], &["resume", "--all"], &["cancel", "desk"]] {
        let done = desk.call(call);
        let told = format!("{call:?}: {} {}{}", done.code, done.out, done.err);
        assert!(done.code == 74 && done.err.contains("it is a link; name the folder"), "{told}");
    }
    assert_eq!(desk.good(&["ps", "--state-dir", ".transcripts"]).matches("completed").count(), 1);
}

#[test]
fn a_copy_of_a_run_is_not_gone_on_with() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let aside = run.with_file_name("01900000-0000-7000-8000-000000000001");
    copy(&run, &aside);
    let id = aside.file_name().and_then(|name| name.to_str()).expect("an id");
    let rows = desk.call(&["ps", "-a", "--json"]);
    assert!(rows.code == 74 && rows.out.contains("\"copy\""), "{}{}", rows.out, rows.err);
    for call in [&["resume", id][..], &["resume", id, "--explain"], &["resume", "--all"]] {
        let done = desk.call(call);
        assert!(done.code == 74 && done.err.contains("is a copy"), "{call:?}: {}", done.err);
    }
    // The last one has resumed the run itself.
    assert_eq!(desk.read("ledger").matches("two").count(), 1);
}

/// Of a batch that was acknowledged nothing is lost by a crash: the end of its journal is not torn.
#[test]
fn a_journal_that_was_cut_amid_an_acknowledged_batch_is_refused() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let journal = run.join("journal.jsonl");
    let whole = fs::read(&journal).expect("a journal");
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let before: usize = lines[..lines.len() / 2].iter().map(|line| line.len()).sum();
    fs::write(&journal, &whole[..before + 7]).expect("written");
    let _ = fs::remove_dir_all(run.join("snapshots"));
    for call in [&["resume", "desk"][..], &["resume", "desk", "--explain"], &["resume", "--all"]] {
        let done = desk.call(call);
        assert!(done.code == 74 && done.err.contains("was acknowledged"), "{call:?}: {}", done.err);
    }
    let rows = desk.call(&["ps", "--json"]);
    assert!(rows.code == 74 && rows.out.contains("\"lost\""), "{}{}", rows.out, rows.err);
    fs::write(&journal, &whole).expect("written");
    // Whole again, it goes on; the command that was killed fails its task, since nobody knows what it did.
    let done = desk.call(&["resume", "desk"]);
    assert!(done.code == 1 && !done.err.contains("was acknowledged"), "{}", done.err);
    assert_eq!(desk.read("ledger").matches("two").count(), 1);
}

#[test]
fn a_record_whose_list_of_tasks_is_not_whole_is_refused() {
    let desk =
        Desk::commands("[tasks.a]\nrun = 'true'\n[tasks.b]\nrun = 'false'\ndepends_on = ['a']\n");
    assert_eq!(desk.call(&["run"]).code, 1);
    let run = desk.runs().pop().expect("a run");
    let lines = fs::read_to_string(run.join("journal.jsonl")).expect("a journal");
    for left in [&[][..], &["b"]] {
        let (mut out, mut crc) = (Vec::new(), 0);
        for line in lines.lines().take(2) {
            let mut record: serde_json::Value = serde_json::from_str(line).expect("a record");
            if let Some(tasks) = record["data"]["tasks"].as_array_mut() {
                tasks.retain(|task| left.iter().any(|name| task["name"] == *name));
            }
            crc = chain(format!("{record}\n").as_bytes(), crc, &mut out).expect("a line");
        }
        fs::write(run.join("journal.jsonl"), out).expect("written");
        for folder in ["snapshots", "acknowledged"] {
            let _ = fs::remove_dir_all(run.join(folder));
            let _ = fs::remove_file(run.join(folder));
        }
        for verb in [&["resume"][..], &["resume", "--explain"]] {
            let done = desk.call(verb);
            assert_eq!(done.code, 74, "{left:?} {verb:?}: {}{}", done.out, done.err);
            assert!(done.err.contains("its list of tasks lacks `a`"), "{}", done.err);
        }
    }
}

#[test]
fn an_attempt_without_its_agent_is_refused_and_does_not_wait_for_ever() {
    let desk = Desk::commands("[tasks.t]\nrun = 'false'\n");
    assert_eq!(desk.call(&["run"]).code, 1);
    let run = desk.runs().remove(0);
    let journal = run.join("journal.jsonl");
    let text = std::fs::read_to_string(&journal).expect("a journal");
    let started =
        text.lines().position(|line| line.contains("\"task.started\"")).expect("a record");
    let front = |line: &str| line.rsplit_once(",\"crc\"").expect("a sum").0.to_owned();
    let mut fronts: Vec<String> = text.lines().take(started + 1).map(front).collect();
    // The batch ends with it.
    let last = fronts.pop().expect("a record");
    fronts.push(last.replace("\"be\":false", "\"be\":true"));
    std::fs::write(&journal, crate::support::desk::sealed(fronts.iter().map(String::as_str)))
        .expect("written");
    for name in ["snapshots", "acknowledged", "started", "agents", "spool"] {
        let at = run.join(name);
        let _absent = std::fs::remove_dir_all(&at).or_else(|_| std::fs::remove_file(&at));
    }
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 74, "{}{}", resumed.out, resumed.err);
    assert!(resumed.err.contains("the agent of `t` is not recorded"), "{}", resumed.err);
}
