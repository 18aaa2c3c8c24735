//! The graphs below examples/graphs, by the commands of their READMEs, and one failure of each.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::support::desk::{Desk, Done};

/// A copy of an example, and all that its commands have printed.
struct Example {
    desk: Desk,
    said: String,
}

impl Example {
    fn copied(name: &str) -> Self {
        let desk = Desk::empty();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/graphs").join(name);
        copy(&from, desk.path());
        Self { desk, said: String::new() }
    }

    /// Runs a command line in which `callsheet` is the program.
    fn shell(&mut self, line: &str) -> Done {
        let done = self.desk.shell(line);
        self.said.extend([&*done.out, "\n", &*done.err, "\n"]);
        done
    }

    /// The only question that waits for a person.
    fn question(&self) -> String {
        let rows = self.desk.json(&["pending", "--json"]);
        let [row] = rows.as_slice() else { panic!("one question: {rows:?}") };
        row["id"].as_str().expect("an id").to_owned()
    }

    /// Types the commands of the README, and compares what they print with what it shows.
    fn follow_the_readme(&mut self) {
        let readme = self.desk.read("README.md");
        self.follow(&readme);
    }

    /// Does the same with the commands of another page.
    fn follow(&mut self, page: &str) {
        for line in blocks(page, "console").lines() {
            let line = line.strip_prefix("$ ").expect("a command");
            // The copy has been made.
            if line.starts_with("cp -r ") || line.starts_with("cd ") {
                continue;
            }
            let (line, comment) = line.split_once("  #").unwrap_or((line, ""));
            let code = comment.split_once("exit code ").map_or("0", |(_, rest)| &rest[..1]);
            let line = match line.contains(" ID") {
                true => line.replace(" ID", &format!(" {}", self.question())),
                false => line.to_owned(),
            };
            let done = self.shell(&line);
            assert_eq!(done.code.to_string(), code, "{line}: {}{}", done.out, done.err);
            if line.starts_with("callsheet check") {
                assert_eq!(done.err, "", "{line}");
            }
        }
        let said = settled(&self.said);
        for line in blocks(page, "text").lines() {
            assert!(said.contains(&settled(line)), "{line}\n{}", self.said);
        }
    }

    /// The configuration is right for a real model too.
    fn check_live(&mut self, file: &str) {
        let done =
            self.shell(&format!("ANTHROPIC_API_KEY=none callsheet check -f {file} --profile live"));
        assert_eq!((done.code, done.err.as_str()), (0, ""));
    }

    /// The report of the newest run, and the states of its tasks.
    fn report(&self) -> (Value, BTreeMap<String, String>) {
        let report: Value =
            serde_json::from_str(&self.desk.good(&["report", "--format", "json"])).expect("JSON");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let tasks = report["tasks"].as_array().expect("tasks");
        let states = tasks.iter().map(|task| (text(&task["task"]), text(&task["state"]))).collect();
        (report, states)
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == ".transcripts" {
            continue;
        }
        if entry.file_type().expect("a type").is_dir() {
            std::fs::create_dir(&to).expect("made");
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("copied");
        }
    }
}

/// The blocks of one kind in a page, one after the other.
fn blocks(page: &str, kind: &str) -> String {
    let fence = format!("```{kind}\n");
    let blocks = page.split(&fence).skip(1);
    let found: String = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!found.is_empty(), "the page has a block of {kind}");
    found
}

/// A text without times, sizes and the widths of columns.
fn settled(text: &str) -> String {
    let varies =
        [(r"\d+\.\d s", "0.0 s"), (r"(\d[\d.]*k?|N) (in|out|tokens in)\b", "N $2"), (" +", " ")];
    varies.iter().fold(text.to_owned(), |text, (what, word)| {
        let what = regex::Regex::new(what).expect("an expression");
        what.replace_all(&text, *word).into_owned()
    })
}

fn count(states: &BTreeMap<String, String>, state: &str) -> usize {
    states.values().filter(|found| *found == state).count()
}

#[test]
fn the_review_ends_with_patches_that_pass_the_tests() {
    let mut example = Example::copied("review");
    example.check_live("agents.toml");
    example.follow_the_readme();
    let (report, states) = example.report();
    assert_eq!((report["state"].as_str(), &report["exit_code"]), (Some("completed"), &0.into()));
    assert_eq!((states.len(), count(&states, "completed")), (25, 25), "{states:?}");
    let page = example.desk.read("report.md");
    for told in [
        "# `review`: **completed**",
        "last test passed, after the last edit: `make -C \"fixes/$ID/tree\" test`",
        "Make 2 fixes (lib-config-9, lib-prune-5)?",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    let rounds = &example.desk.json(&["show", "review/fix[0]", "--json"])[0]["rounds"];
    assert_eq!(rounds, &serde_json::json!(["check"]));
    // The tests of the repository hold with the patches, which are the only change.
    assert!(example.desk.read("lib/config.sh").contains("log_dir) log_dir=$value"));
    assert!(example.desk.read("lib/rotate.sh").contains("date +%s"));
}

#[test]
fn a_fix_that_never_passes_its_check_is_named_and_the_others_become_patches() {
    let mut example = Example::copied("review");
    // Somebody relies on what the fix takes away, so that no change of the script can pass.
    let test = ". ./lib/config.sh\nexport LOGS=\"$scratch\"\n\
                printf 'log_dir=$LOGS\\n' > \"$scratch/config\"\nload_config \"$scratch/config\"\n\
                equal \"$log_dir\" \"$scratch\"\n";
    example.desk.write("tests/expansion_test.sh", test);
    // Only what has changed is reviewed.
    example.shell(
        "git init -q && git -c user.name=a -c user.email=a commit -q --allow-empty -m base && \
         git add lib tests && git -c user.name=a -c user.email=a commit -q -m more",
    );
    let run = example.shell("callsheet run --input base=HEAD~1");
    assert_eq!(run.code, 6, "{}", run.err);
    let approve = format!("callsheet approve {}", example.question());
    assert_eq!(example.shell(&approve).code, 0);
    let resumed = example.shell("callsheet resume");
    assert_eq!(resumed.code, 8, "{}{}", resumed.out, resumed.err);
    assert!(resumed.out.contains("`lib-config-9`: check_failed: check 1"), "{}", resumed.out);
    let (report, states) = example.report();
    assert!(!states.contains_key("review[8]") && states.contains_key("review[7]"), "{states:?}");
    for (task, state) in [
        ("fix", "failed"),
        ("fix[0]", "failed"),
        ("fix[1]", "completed"),
        ("patches", "completed"),
        ("together", "completed"),
        ("report", "completed"),
    ] {
        assert_eq!(states[task], state, "{task}");
    }
    let codes = report["warnings"].as_array().expect("a list").iter().map(|w| &w["code"]);
    assert!(codes.into_iter().any(|code| code == "check_failed"), "{report}");
    let review = example.desk.read("review.md");
    assert!(review.contains("No patch: check_failed: check 1"), "{review}");
    let there = |file: &str| example.desk.path().join(file).exists();
    assert!(there("fixes/lib-prune-5.patch") && !there("fixes/lib-config-9.patch"));
    assert!(example.desk.read("lib/config.sh").contains("eval "), "the sources are untouched");
}

#[test]
fn a_rejected_review_ends_with_a_report_and_no_fix() {
    let mut example = Example::copied("review");
    assert_eq!(example.shell("callsheet run").code, 6);
    let reject = format!("callsheet reject {} --reason 'not this week'", example.question());
    assert_eq!(example.shell(&reject).code, 0);
    let resumed = example.shell("callsheet resume");
    assert_eq!(resumed.code, 7, "{}{}", resumed.out, resumed.err);
    let review = example.desk.read("review.md");
    assert!(review.contains("**Not approved:**") && review.contains("not this week"), "{review}");
    assert!(review.contains("None were made."), "{review}");
    assert!(!example.desk.path().join("fixes").exists());
}

#[test]
fn the_research_runs_a_plan_that_a_person_has_approved() {
    let mut example = Example::copied("research");
    example.check_live("planner.toml");
    example.check_live("agents.toml");
    example.follow_the_readme();
    let (report, states) = example.report();
    assert_eq!((report["state"].as_str(), &report["exit_code"]), (Some("completed"), &0.into()));
    assert_eq!((states.len(), count(&states, "completed")), (13, 13), "{states:?}");
    assert!(states.contains_key("course[2]"), "{states:?}");
    let page = example.desk.read("report.md");
    assert!(page.contains("Run 4 tasks (`answer`, `changes`, `course`, `others`)"), "{page}");
    let answer = example.desk.read("answer.md");
    assert!(answer.contains("(material/deploys.md:5)"), "{answer}");
    // What a model writes into the plan stays a text, whatever it is.
    let hostile = r#"Why {{ tasks.sources.output }} "#.to_owned() + r#"or """ or \ or {% raw %}?"#;
    let script = example.desk.read("offline/planner.toml");
    let text = Value::from(hostile.as_str())
        .to_string()
        .replace("{%", "{{ '{%' }}")
        .replace("{{ tasks", "{{ '{{' }} tasks");
    let asked =
        "\"Which changes could have slowed this down, and when were they made and undone?\"";
    assert!(script.contains(asked));
    example.desk.write("offline/planner.toml", &script.replace(asked, &text));
    let planned = example.shell("callsheet run -f planner.toml && callsheet run --plan plan.toml");
    assert_eq!(planned.code, 6, "{}{}", planned.out, planned.err);
    let approve = format!("callsheet approve {} && callsheet resume", example.question());
    let resumed = example.shell(&approve);
    assert_eq!(resumed.code, 0, "{}{}", resumed.out, resumed.err);
    let talk = example.desk.good(&["show", "research/@changes[0]", "--transcript"]);
    assert!(talk.contains("Why {{ tasks.sources.output }}"), "{talk}");
}

#[test]
fn a_rejected_plan_runs_nothing() {
    let mut example = Example::copied("research");
    let begun = example.shell("callsheet run -f planner.toml && callsheet run --plan plan.toml");
    assert_eq!(begun.code, 6, "{}", begun.err);
    let reject = format!(
        "callsheet reject {} --reason 'it leaves out the network' && callsheet resume",
        example.question()
    );
    let rejected = example.shell(&reject);
    assert_eq!(rejected.code, 7, "{}{}", rejected.out, rejected.err);
    assert!(rejected.out.contains("it leaves out the network"), "{}", rejected.out);
    let (_, states) = example.report();
    assert_eq!((count(&states, "skipped"), states["sources"].as_str()), (4, "completed"));
    assert!(!example.desk.path().join("answer.md").exists());
}

#[test]
fn the_night_does_its_work_and_cleans_up_also_where_a_part_fails() {
    let mut example = Example::copied("nightly");
    example.check_live("agents.toml");
    // The README ends with the night in which a part fails.
    example.follow_the_readme();
    let first = example.desk.read("report.md");
    assert!(
        first.contains("# `nightly`: **completed**") && first.contains("exit code: 0"),
        "{first}"
    );
    assert!(first.contains("edit_file"), "what was denied is told: {first}");
    let (report, states) = example.report();
    assert_eq!((report["state"].as_str(), &report["exit_code"]), (Some("partial"), &8.into()));
    for (task, state) in [
        ("advisories/fetch", "failed"),
        ("advisories/assess", "skipped"),
        ("advisories", "skipped"),
        ("tests", "completed"),
        ("docs", "completed"),
        ("orders", "completed"),
        ("report", "completed"),
        ("cleanup", "completed"),
    ] {
        assert_eq!(states[task], state, "{task}");
    }
    let tasks = report["tasks"].as_array().expect("tasks");
    let fetch = tasks.iter().find(|task| task["task"] == "advisories/fetch").expect("a task");
    assert_eq!(fetch["attempts"], 3);
    let nights = example.desk.read("var/nights.log");
    let lines: Vec<_> = nights.lines().collect();
    assert_eq!(lines.len(), 3, "{nights}");
    assert!(lines[0].ends_with("\"completed\"") && lines[2].ends_with("\"partial\""), "{nights}");
    for left in ["scratch", "var/session"] {
        assert!(!example.desk.path().join(left).exists(), "{left}");
    }
    // Agents have changed what they may, and nothing else.
    assert!(example.desk.read("docs/setup.md").contains("(orders.md)"));
    assert!(example.desk.read("docs/legal/terms.md").contains("(../order.md)"));
}

#[test]
fn a_night_that_is_mended_and_retried_has_a_true_report() {
    let mut example = Example::copied("nightly");
    let run = example.shell("callsheet run --input feed=feed/later.csv");
    assert_eq!(run.code, 8, "{}{}", run.out, run.err);
    let report = |example: &Example| example.desk.read("nightly.md");
    assert!(report(&example).contains("**Not looked at.**"), "{}", report(&example));
    // The command that the end proposes, once the feed is there.
    let feed = example.desk.read("feed/advisories.csv");
    example.desk.write("feed/later.csv", &feed);
    let said = format!("{}{}", run.out, run.err);
    assert!(said.contains("resume") && said.contains("--retry-failed"), "{said}");
    let retry = example.shell("callsheet resume --retry-failed");
    assert_eq!(retry.code, 0, "{}{}", retry.out, retry.err);
    let mended = report(&example);
    assert!(mended.contains("**affected**") && !mended.contains("**Not looked at.**"), "{mended}");
    let (report, states) = example.report();
    assert_eq!((report["state"].as_str(), &report["exit_code"]), (Some("completed"), &0.into()));
    assert!(states.values().all(|state| state == "completed"), "{states:?}");
    // Nothing is left to do, and nobody is told to retry again.
    let again = example.shell("callsheet resume --retry-failed");
    assert!(again.err.contains("nothing is left to do"), "{}{}", again.out, again.err);
}

#[test]
fn a_night_before_a_release_does_not_begin() {
    let mut example = Example::copied("nightly");
    example.desk.write("RELEASE_FREEZE", "");
    let run = example.shell("callsheet run");
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    assert!(run.out.contains("on_start") || run.err.contains("on_start"), "{}{}", run.out, run.err);
    assert_eq!(example.desk.read("var/nights.log").lines().count(), 2, "alarm and finish ran");
}

#[test]
fn the_demo_of_the_front_page_is_real() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"));
    let mut example = Example::copied("review");
    example.follow(&readme.expect("the page"));
    assert!(example.desk.path().join("fixes/lib-config-9.patch").exists());
}
