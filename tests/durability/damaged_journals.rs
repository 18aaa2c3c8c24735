//! How a journal is judged: what every verb says of one that it cannot read past, and the way out.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::desk::{Desk, Done, wait};

/// An agent with one tool call, and a command after it.
fn ran() -> Desk {
    let script = "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'glob'\n\
                  input = { pattern = '*.toml' }\n[[rules]]\nsay = 'done'\n";
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['glob']\n\
                [tasks.one]\nagent = 'a'\nprompt = 'go'\n\
                [tasks.two]\nrun = 'echo two >> ledger'\ndepends_on = ['one']\n";
    let desk = Desk::offline(rest, script);
    desk.good(&["run"]);
    desk
}

fn run_of(desk: &Desk) -> PathBuf {
    desk.runs().pop().expect("a run")
}

fn id_of(run: &Path) -> String {
    run.file_name().expect("a name").to_string_lossy().into_owned()
}

fn lines(journal: &[u8]) -> Vec<&[u8]> {
    journal.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Every file of a run but its lock, with its bytes.
fn files(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(run).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false if path.ends_with("LOCK") => {}
            false => all.push((path.clone(), fs::read(&path).expect("a file"))),
        }
    }
    all.sort();
    all
}

/// The journal without its end, from the record that `kind` and `task` name on.
fn before(journal: &[u8], kind: &str, task: &str) -> Vec<u8> {
    let named = |line: &&&[u8]| {
        let line = String::from_utf8_lossy(line);
        line.contains(&format!("\"type\":\"{kind}\""))
            && line.contains(&format!("\"task\":\"{task}\""))
    };
    let all = lines(journal);
    let first = all.iter().find(named).expect("the record");
    let record: serde_json::Value = serde_json::from_slice(first).expect("a record");
    let batch = record["bt"].as_u64().expect("a number") as usize - 1;
    all[..batch].concat()
}

/// Appends a line as a program that knows how would write it.
fn append(journal: &mut Vec<u8>, line: &str) {
    let tail = &journal[journal.len() - 19..];
    let crc = std::str::from_utf8(&tail[8..16]).expect("a checksum");
    let crc = u32::from_str_radix(crc, 16).expect("a checksum");
    let seq = lines(journal).len() + 1;
    let front = line.replace("SEQ", &seq.to_string());
    let crc = crc32c::crc32c_append(crc, front.as_bytes());
    journal.extend_from_slice(format!("{front},\"crc\":\"{crc:08x}\"}}\n").as_bytes());
}

/// Writes a journal as if no more had been acknowledged, and nothing else had been done.
fn put(journal: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(journal, bytes).expect("written");
    for name in ["acknowledged", "started"] {
        let _ = fs::remove_file(journal.with_file_name(name));
    }
    for file in fs::read_dir(journal.with_file_name("agents")).expect("a folder") {
        fs::remove_file(file.expect("an entry").path()).expect("removed");
    }
}

const NEXT: &str = r#"{"v":1,"seq":SEQ,"bt":SEQ,"be":true,"ep":1,"ts":"2026-11-18T02:14:05.123Z","task":"one","agent":null,"type":"task.ready","data":{}"#;

/// The verbs that need the whole journal.
const VERBS: [&[&str]; 8] = [
    &["resume"],
    &["resume", "--explain"],
    &["ps", "-a"],
    &["show"],
    &["cost"],
    &["cancel", "desk"],
    &["tail"],
    &["rebuild", "desk"],
];

fn assert_refused(done: &Done, what: &str, place: &str, seq: usize) {
    assert_eq!(done.code, 74, "{what}: {}{}", done.out, done.err);
    assert!(done.err.contains(place), "{what}: {}", done.err);
    let way_out = format!("--truncate-at {seq}` cuts the journal");
    assert!(done.err.contains(&way_out), "{what}: {}", done.err);
}

#[test]
fn a_last_record_that_was_written_whole_is_refused_by_every_verb() {
    let desk = ran();
    let path = run_of(&desk).join("journal.jsonl");
    let whole = fs::read(&path).expect("a journal");
    let rest = before(&whole, "task.started", "two");
    let (seq, offset) = (lines(&rest).len() + 1, rest.len());
    let completed = r#""type":"task.completed","data":{"attempt":1,"output":{"text":"x"}}"#;
    let cases = [
        ("\"v\":1", "\"v\":2", "has format 2, which is newer", "a newer callsheet wrote it"),
        ("T02:", " 02:", "was written whole, but cannot be read", "may have written it"),
        ("\"data\":{}", "\"data\":7", "was written whole, but cannot be read", "may have written"),
        (
            "\"task.ready\"",
            "\"task.approved\",\"crit\":true",
            "has the type `task.approved`, which this program does not know",
            "a newer callsheet wrote it",
        ),
        (
            r#""type":"task.ready","data":{}"#,
            completed,
            "cannot follow what stands before it: task.completed",
            "the records contradict each other",
        ),
    ];
    for (from, to, why, help) in cases {
        let mut bytes = rest.clone();
        append(&mut bytes, &NEXT.replace(from, to));
        put(&path, &bytes);
        let there = files(&run_of(&desk));
        let fork = format!("desk@{seq}");
        for verb in VERBS.into_iter().chain([&["fork", fork.as_str()][..]]) {
            let what = format!("{verb:?}, {why}");
            // They make lines of records, and fold nothing.
            if to == completed && matches!(verb[0], "tail" | "rebuild") {
                continue;
            }
            let done = desk.call(verb);
            let place = format!("line {seq} of the journal, at byte {offset}, {why}");
            assert_refused(&done, &what, &place, seq);
            assert!(done.err.contains(help), "{what}: {}", done.err);
            assert_eq!(files(&run_of(&desk)), there, "{what}");
        }
        let row = &crate::support::desk::lines(&desk.call(&["ps", "-a", "--json"]).out)[0];
        let word = if to == completed { "damaged" } else { "unreadable" };
        assert_eq!((row["name"].as_str(), row["state"].as_str()), (Some("desk"), Some(word)));
        assert!(row["waiting_for"].as_str().is_some_and(|waits| waits.contains(why)), "{row}");
        assert_eq!(desk.runs().len(), 1);
        // Two ways out.
        let done = desk.call(&["resume", "--truncate-at", &seq.to_string()]);
        assert_eq!(done.code, 0, "{why}: {}", done.err);
        let gone =
            format!("without what was recorded from byte {offset} on: 1 sound record; among them");
        assert!(done.err.contains(&gone), "{}", done.err);
        for path in fs::read_dir(run_of(&desk)).expect("a folder").map(|e| e.expect("one").path()) {
            if path.to_string_lossy().contains("torn-") {
                assert_eq!(fs::read(&path).expect("kept"), bytes[offset..]);
                fs::remove_file(path).expect("removed");
            }
        }
    }
    let mut bytes = rest.clone();
    append(&mut bytes, &NEXT.replace("\"v\":1", "\"v\":2"));
    fs::write(&path, &bytes).expect("written");
    desk.good(&["fork", &format!("desk@{}", seq - 1)]);
    assert_eq!(fs::read(&path).expect("a journal"), bytes);
}

#[test]
fn nothing_is_to_be_cut_of_a_journal_that_creates_no_run() {
    let desk = ran();
    let paused = r#""task":null,"agent":null,"type":"run.paused","data":{"reason":"x"}"#;
    let line = NEXT.replace("SEQ", "1");
    let front = line.split(r#""task":"#).next().expect("a front").to_owned() + paused;
    let crc = crc32c::crc32c(front.as_bytes());
    let bytes = format!("{front},\"crc\":\"{crc:08x}\"}}\n");
    put(&run_of(&desk).join("journal.jsonl"), bytes);
    let done = desk.call(&["resume"]);
    assert_eq!(done.code, 74, "{}", done.err);
    assert!(done.err.contains("it does not create a run"), "{}", done.err);
    assert!(done.err.contains("Nothing would be left before it"), "{}", done.err);
    assert!(!done.err.contains("--truncate-at"), "{}", done.err);
}

#[test]
fn a_sound_journal_is_not_cut() {
    let desk = ran();
    let there = files(&run_of(&desk));
    for arguments in
        [&["resume", "--truncate-at", "9"][..], &["resume", "--truncate-at", "9", "--explain"]]
    {
        let done = desk.call(arguments);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains("the journal is sound: nothing of it is cut"), "{}", done.err);
        let fork =
            format!("`callsheet fork {}@8` makes a new run that continues", id_of(&run_of(&desk)));
        assert!(done.err.contains(&fork), "{}", done.err);
    }
    assert_eq!(files(&run_of(&desk)), there);
}

#[test]
fn what_a_cut_takes_is_told_before_and_after() {
    let desk = ran();
    let path = run_of(&desk).join("journal.jsonl");
    let whole = fs::read(&path).expect("a journal");
    let at = before(&whole, "task.started", "one").len();
    let seq = lines(&whole[..at]).len() + 1;
    let mut bytes = whole.clone();
    bytes[at + 60] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let there = files(&run_of(&desk));
    let cut = seq.to_string();
    let elsewhere = desk.call(&["resume", "--truncate-at", &(seq - 1).to_string()]);
    assert_eq!(elsewhere.code, 2, "{}", elsewhere.err);
    assert!(
        elsewhere.err.contains(&format!("--truncate-at {seq} cuts it there")),
        "{}",
        elsewhere.err
    );

    assert!(elsewhere.err.contains("callsheet fork "), "{}", elsewhere.err);
    let behind = desk.call(&["resume", "--truncate-at", &(seq + 1).to_string()]);
    assert_eq!(behind.code, 2, "{}", behind.err);
    assert!(!behind.err.contains("fork"), "nothing can begin there: {}", behind.err);

    let told = desk.call(&["resume", "--truncate-at", &cut, "--explain"]);
    assert_eq!(told.code, 0, "{}", told.err);
    let damaged = lines(&whole[at..])[0].len();
    let sound = lines(&whole).len() - seq;
    let gone = format!(
        "from byte {at} on: {sound} sound records and {damaged} damaged bytes; among them the ends \
         of tasks `one`, `two`, 2 tool calls, 2 model calls: what they did may be done again, or \
         be reported as unknown"
    );
    assert!(
        told.err.contains(&format!("would resume without what is recorded {gone}")),
        "{}",
        told.err
    );
    let explained =
        "one  runs     it has not begun\ntwo  runs     it has not begun; waits for one\n";
    assert_eq!(told.out, explained);
    assert_eq!(files(&run_of(&desk)), there, "nothing was touched");

    let done = desk.call(&["resume", "--truncate-at", &cut]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.err.contains(&format!("resumes without what was recorded {gone}")),
        "{}",
        done.err
    );
    // The sound records of the cut part tell that it ran.
    assert_eq!(desk.read("ledger"), "two\n");
}

#[test]
fn what_a_resume_lacks_is_explained() {
    let desk = ran();
    let path = run_of(&desk).join("journal.jsonl");
    let whole = fs::read(&path).expect("a journal");
    fs::remove_file(desk.path().join("script.toml")).expect("removed");
    desk.good(&["resume", "--explain"]);
    let rest = before(&whole, "task.started", "two");
    put(&path, &rest);
    let (explained, resumed) = (desk.call(&["resume", "--explain"]), desk.call(&["resume"]));
    assert_eq!((explained.code, resumed.code), (2, 2), "{}{}", explained.err, resumed.err);
    assert!(explained.err.contains("script.toml"), "{}", explained.err);
    assert!(explained.out.contains("two  runs"), "{}", explained.out);
    assert_eq!(fs::read(&path).expect("a journal"), rest);
}

#[test]
fn damage_before_a_snapshot_is_met_by_who_reads_that_far() {
    let many: String = (0..110)
        .map(|n| format!("[tasks.t{n}]\nrun = \"head -c 28000 /dev/zero | tr '\\\\0' x\"\n"))
        .collect();
    let names: Vec<_> = (0..110).map(|n| format!("'t{n}'")).collect();
    let last = format!(
        "[tasks.last]\nrun = 'test -e go || {{ touch up; sleep 60; }}; echo done >> ledger'\n\
         depends_on = [{}]\n\
         retry = {{ max_attempts = 2, retry_on = ['interrupted'], initial_interval = '1ms' }}\n",
        names.join(", ")
    );
    let desk = Desk::commands(&format!("{many}{last}"));
    let run = desk.start(&["run"]);
    wait("the last command", || desk.path().join("up").exists().then_some(()));
    let snapshots = run_of(&desk).join("snapshots");
    let is_whole = |name: &Path| name.extension().is_some_and(|suffix| suffix == "json");
    wait("a snapshot", || {
        let mut entries = fs::read_dir(&snapshots).expect("a folder").flatten();
        entries.any(|entry| is_whole(&entry.path())).then_some(())
    });
    run.signal("KILL");
    run.end();
    desk.write("go", "");
    let path = run_of(&desk).join("journal.jsonl");
    let mut journal = fs::read(&path).expect("a journal");
    journal[100_000] ^= 1;
    fs::write(&path, &journal).expect("written");
    for verb in [&["ps", "-a"][..], &["cost"], &["resume", "--explain"]] {
        let done = desk.call(verb);
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{verb:?}");
    }
    // It lists what other programs run and was changed, of which any record may tell.
    let shown = desk.call(&["show"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.err.starts_with("note: the evidence is not complete: line "), "{}", shown.err);
    for verb in [&["tail"][..], &["rebuild", "desk"]] {
        let done = desk.call(verb);
        assert!(done.code == 74 && done.err.contains("is damaged"), "{verb:?}: {}", done.err);
    }
    desk.good(&["resume"]);
    assert_eq!(desk.read("ledger"), "done\n");
    let again = desk.call(&["resume"]);
    assert!(again.code == 0 && again.err.contains("nothing is left to do"), "{}", again.err);
}

#[test]
fn a_run_whose_result_was_lost_is_refused_before_it_opens() {
    let desk = Desk::commands(
        "[tasks.one]\nrun = \"head -c 200000 /dev/zero | tr '\\\\0' x; echo one >> ledger\"\n\
         [tasks.two]\nrun = 'echo $LENGTH >> ledger'\ndepends_on = ['one']\n\
         env = { LENGTH = '{{ tasks.one.output | length }}' }\n",
    );
    desk.good(&["run"]);
    let path = run_of(&desk).join("journal.jsonl");
    let rest = before(&fs::read(&path).expect("a journal"), "task.ready", "two");
    put(&path, &rest);
    let results = run_of(&desk).join("results");
    let result = fs::read_dir(&results).expect("a folder").next().expect("a result").expect("one");
    let (result, aside) = (result.path(), desk.path().join("aside"));
    fs::rename(&result, &aside).expect("moved");
    let there = files(&run_of(&desk));
    let first = lines(&rest)
        .iter()
        .position(|line| String::from_utf8_lossy(line).contains("\"stored\""))
        .expect("a record that names it");
    let seq = first + 1;
    for verb in [&["resume"][..], &["resume", "--explain"]] {
        let done = desk.call(verb);
        let place = format!("stored result {}: it is missing", result.display());
        assert_refused(&done, &format!("{verb:?}"), &place, seq);
        assert_eq!(fs::read(&path).expect("a journal"), rest);
    }
    assert_eq!(files(&run_of(&desk)), there);
    // Records behind the first name it too: to cut there would not help.
    for elsewhere in [3, seq + 1, seq + 2] {
        let done = desk.call(&["resume", "--truncate-at", &elsewhere.to_string()]);
        assert_eq!(done.code, 2, "{}", done.err);
    }
    assert_eq!(fs::read(&path).expect("a journal"), rest);
    let cut = desk.call(&["resume", "--truncate-at", &seq.to_string()]);
    assert!(cut.err.contains("the end of task `one`, 1 tool call, 0 model calls"), "{}", cut.err);
    // A command that had begun is not run again.
    assert!(cut.code == 1 && cut.err.contains("task failed: interrupted"), "{}", cut.err);

    // Brought back, it is as if nothing had been.
    put(&path, &rest);
    fs::rename(&aside, &result).expect("moved");
    fs::write(desk.path().join("ledger"), "").expect("written");
    desk.good(&["resume"]);
    assert_eq!(desk.read("ledger"), "200000\n");
}

/// A run directory beside the others, as a process makes it before its first record.
fn begun(desk: &Desk) -> PathBuf {
    // It sorts behind all others.
    let run = run_of(desk).with_file_name("ffffffff-0000-7000-8000-000000000000");
    for folder in ["agents", "results", "spool", "snapshots"] {
        fs::create_dir_all(run.join(folder)).expect("made");
    }
    fs::write(run.join("journal.jsonl"), "").expect("written");
    run
}

#[test]
fn a_run_that_never_began_is_shown_and_stands_in_nobodys_way() {
    let desk = ran();
    let torn = {
        let journal = fs::read(run_of(&desk).join("journal.jsonl")).expect("a journal");
        lines(&journal)[0].to_vec()
    };
    let run = begun(&desk);
    let id = id_of(&run);
    let id = id.as_str();
    type Spoil<'a> = &'a dyn Fn();
    let journal = run.join("journal.jsonl");
    let spoils: [Spoil<'_>; 4] = [
        &|| {},
        &|| fs::write(&journal, &torn[..torn.len() / 2]).expect("written"),
        // Half of the first batch.
        &|| fs::write(&journal, &torn).expect("written"),
        &|| fs::remove_file(&journal).expect("removed"),
    ];
    for spoil in spoils {
        spoil();
        for verb in [
            &["resume", id][..],
            &["resume", id, "--explain"],
            &["show", id],
            &["tail", id],
            &["cost", id],
            &["rebuild", id],
            &["cancel", id],
            &["fork", &format!("{id}@2")],
        ] {
            let done = desk.call(verb);
            assert_eq!(done.code, 1, "{verb:?}: {}{}", done.out, done.err);
            assert!(done.err.contains("the run never began"), "{verb:?}: {}", done.err);
            assert!(
                done.err.contains("help: start a new run with `callsheet run`"),
                "{}",
                done.err
            );
        }
        let rows = desk.json(&["ps", "-a", "--json"]);
        assert_eq!((rows[0]["run"].as_str(), &rows[0]["state"]), (Some(id), &"empty".into()));
        assert!(rows[0]["waiting_for"].to_string().contains("never began"), "{}", rows[0]);
        // Without a name the others are meant.
        assert!(desk.good(&["ps"]).contains("desk"));
        assert!(desk.good(&["resume"]).contains("one  completed"));
        let done = desk.call(&["run", "--run-id", id]);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains("never began, so nothing was done: remove the directory"));
    }
    fs::remove_dir_all(&run).expect("removed");
    desk.good(&["run", "--run-id", id]);
    let done = desk.call(&["run", "--run-id", id]);
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(done.err.contains(&format!("`callsheet resume {id}` resumes it")), "{}", done.err);
}

#[test]
fn a_run_whose_journal_was_lost_is_told_so() {
    let desk = ran();
    let run = run_of(&desk);
    let (id, journal) = (id_of(&run), run.join("journal.jsonl"));
    for gone in [false, true] {
        match gone {
            true => fs::remove_file(&journal).expect("removed"),
            false => fs::write(&journal, "").expect("written"),
        }
        for verb in VERBS.into_iter().filter(|verb| *verb != ["cancel", "desk"]) {
            let verb: Vec<_> =
                verb.iter().map(|word| if *word == "desk" { id.as_str() } else { word }).collect();
            let done = desk.call(&verb);
            assert_eq!(done.code, 74, "{verb:?}: {}{}", done.out, done.err);
            assert!(done.err.contains("agents is filled: it was lost"), "{verb:?}: {}", done.err);
            assert!(done.err.contains("help: put journal.jsonl back"), "{verb:?}: {}", done.err);
        }
        let rows = crate::support::desk::lines(&desk.call(&["ps", "-a", "--json"]).out);
        assert_eq!((rows[0]["run"].as_str(), &rows[0]["state"]), (Some(&*id), &"lost".into()));
        let done = desk.call(&["run", "--run-id", &id]);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains("it was lost; another run needs another id"), "{}", done.err);
    }
    assert!(run.join("agents/one.jsonl").exists(), "what is left is left alone");
}

#[test]
fn a_rebuild_that_cannot_write_says_so() {
    let desk = ran();
    let agents = run_of(&desk).join("agents");
    let wanted = fs::read(agents.join("two.log")).expect("a log");
    fs::remove_file(agents.join("one.jsonl")).expect("removed");
    fs::create_dir(agents.join("one.jsonl")).expect("made");
    let done = desk.call(&["rebuild", "desk"]);
    assert_eq!(done.code, 74, "{}", done.err);
    assert!(done.err.contains("agents/one.*: not made again: "), "{}", done.err);
    assert_eq!(fs::read(agents.join("two.log")).expect("a log"), wanted, "the others are");
    fs::remove_dir(agents.join("one.jsonl")).expect("removed");
    desk.good(&["rebuild", "desk"]);
    // A disk that takes nothing.
    for file in ["one.jsonl", "one.log", "two.jsonl", "two.log"] {
        fs::remove_file(agents.join(file)).expect("removed");
    }
    for log in ["one.log", "two.log"] {
        fs::create_dir(agents.join(log)).expect("made");
    }
    assert_eq!(desk.call(&["rebuild", "desk"]).code, 74);
}

#[test]
fn an_empty_name_names_no_run() {
    let desk = ran();
    let there = files(&run_of(&desk));
    for verb in [
        &["resume", ""][..],
        &["resume", "", "--explain"],
        &["rebuild", ""],
        &["cancel", ""],
        &["show", ""],
        &["tail", ""],
        &["cost", ""],
        &["why", ""],
        &["graph", ""],
        &["fork", "@3"],
        &["compact", ""],
        &["context", "explain", ""],
    ] {
        let done = desk.call(verb);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{verb:?}: {}", done.err);
        assert!(done.err.contains("the name of the run is empty"), "{verb:?}: {}", done.err);
    }
    assert_eq!((desk.runs().len(), files(&run_of(&desk))), (1, there));
}
