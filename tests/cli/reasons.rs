//! The reason of a failure, the last thing to cut: it is whole where nobody looks at a screen, and names the sandbox
//! where that may be the cause.

use crate::support::answer::{Answer, Fault};
use crate::support::desk::{Desk, Done};
use crate::support::provider::Provider;
use crate::support::pty::Terminal;

/// The texts in which a person reads why a task failed, each after its name: of a run only the lines about the task.
fn read_everywhere(desk: &Desk, done: &Done, task: &str) -> Vec<(&'static str, String)> {
    let about =
        |text: &str| text.lines().filter(|line| line.contains(task)).collect::<Vec<_>>().join("\n");
    vec![
        ("the summary", about(&done.out)),
        ("the log of the run", about(&done.err)),
        ("`tail`", desk.good(&["tail", "--task", task])),
        ("`show`", desk.good(&["show", &format!("/{task}")])),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reason_is_whole_in_files_and_pipes_and_has_a_mark_where_a_screen_cuts_it() {
    let title = format!("Bad Gateway {} of a proxy", "very ".repeat(60).trim_end());
    let fault = Fault::Http {
        status: 502,
        headers: vec![("content-type".to_owned(), "text/html".to_owned())],
        body: format!("<!doctype html><html><title>{title}</title></html>"),
    };
    let provider = Provider::script(vec![Answer::fault(fault)]).await;
    let desk = Desk::empty();
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = 'desk'\n\
             [providers.main]\nkind = 'anthropic'\nbase_url = '{}'\n\
             [models.main]\nprovider = 'main'\nmodel = 'm'\n\
             [defaults.retry]\nmax_attempts = 1\n\
             [agents.a]\nmodel = 'main'\ninstructions = 'x'\n\
             [tasks.one]\nagent = 'a'\nprompt = 'go'\n",
            provider.base_url()
        ),
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 3, "{}{}", done.out, done.err);
    let record = desk.json(&["show", "/one", "--json"]).remove(0);
    let reason = record["error"]["message"].as_str().expect("a reason");
    assert!(reason.contains("502 to POST") && reason.contains(&title), "{reason}");
    let log = desk.runs()[0].join("agents/one.log");
    let log = std::fs::read_to_string(log).expect("a log");
    let texts = read_everywhere(&desk, &done, "one").into_iter().chain([("its log", log)]);
    for (what, text) in texts {
        assert!(text.contains(reason), "{what}: {reason}\n{text}");
    }
    let (code, shown) = Terminal::start(&desk, 80, &["run"]).end();
    assert_eq!(code, 3, "{shown}");
    assert!(shown.contains('…'), "{shown}");
}

#[test]
fn what_the_sandbox_refused_is_named_with_the_key_that_allows_it() {
    if crate::support::without_sandbox().is_some() {
        return crate::support::users::skipped("a machine without a sandbox names none");
    }
    let desk = Desk::commands(
        "[tasks.fetch]\nrun = \"bash -c 'exec 3<>/dev/tcp/192.0.2.1/443'\"\n\
         [tasks.notes]\nrun = 'echo x > /etc/notes-of-a-test'\n\
         [tasks.plain]\nrun = 'echo 2 tests failed; exit 1'\n",
    );
    let done = desk.call(&["run", "--keep-going"]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    for (task, key) in [("fetch", "`[sandbox] network = "), ("notes", "`writable_roots`")] {
        for (what, text) in read_everywhere(&desk, &done, task) {
            let is_named = text.contains("the sandbox may be the cause") && text.contains(key);
            assert!(is_named, "{task}: {what}: {text}");
        }
    }
    for (what, text) in read_everywhere(&desk, &done, "plain") {
        assert!(!text.contains("sandbox may be"), "{what}: {text}");
    }
    let explained = desk.good(&["explain", "command_failed"]);
    assert!(explained.contains("sandbox") && explained.contains("writable_roots"), "{explained}");
}
