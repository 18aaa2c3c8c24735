//! The summary of every way to fail: what it says, the exit code, and the commands that follow.

use insta::assert_snapshot;

use crate::support::answer::{Answer, Fault};
use crate::support::desk::{Desk, Done};
use crate::support::provider::Provider;

/// A summary with ids, event numbers, durations and tokens replaced, and its exit code.
fn told(desk: &Desk, done: &Done) -> String {
    let root = desk.path().canonicalize().expect("it exists");
    let varies = [
        (r"\b[0-9a-f]{8}(-[0-9a-f-]{27})?\b", "RUN"),
        (r"RUN@\d+", "RUN@N"),
        (r"\d+\.\d s", "0.0 s"),
        (r"[\d.]+k? tokens in, [\d.]+k? out(, \$[\d.]+)?", "TOKENS"),
        (r"127\.0\.0\.1:\d+", "SERVER"),
        (r"(?m)^its (parts|results|events): .*\n", ""),
    ];
    let text = done.out.replace(&*root.to_string_lossy(), "DIR");
    let text = varies.iter().fold(text, |text, (what, word)| {
        let what = regex::Regex::new(what).expect("an expression");
        what.replace_all(&text, regex::NoExpand(word)).into_owned()
    });
    format!("{}exit code {}\n", text, done.code)
}

const AGENT: &str = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
    tools = ['bash', 'glob', 'give_up']\nmax_turns = 2\n\
    [tasks.one]\nagent = 'a'\nprompt = 'go'\n";

/// Runs an agent that answers by this script.
fn agent(more: &str, script: &str) -> String {
    let desk = Desk::offline(&format!("{AGENT}{more}"), script);
    told(&desk, &desk.call(&["run"]))
}

fn command(task: &str) -> String {
    let desk = Desk::commands(&format!("[tasks.one]\n{task}\n"));
    told(&desk, &desk.call(&["run"]))
}

#[test]
fn commands() {
    assert_snapshot!(command("run = 'echo before; echo why >&2; exit 3'"), @r"
    one  failed        0.0 s  command_failed: the command ended with exit code 3
        | before
        | why

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/one
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 1
    ");
    assert_snapshot!(command("run = 'sleep 60'\ntimeout = '100ms'"), @r"
    one  failed        0.0 s  timeout: attempt 1 took longer than 0.0 s

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/one
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 5
    ");
    assert_snapshot!(command("run = 'echo {'\noutput = 'json'"), @r"
    one  failed        0.0 s  output_format: the output is not valid JSON: EOF while parsing an object at line 1 column 1

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/one
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN
    exit code 1
    ");
    assert_snapshot!(command("run = 'kill -9 $$'"), @r"
    one  failed        0.0 s  command_failed: the command ended with exit code 137

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/one
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 1
    ");
}

#[test]
fn scripted_agents() {
    assert_snapshot!(agent("", "[[rules]]\nsay = 'I cannot'\nstop = 'refusal'\n"), @r"
    one  failed        0.0 s  refusal: the model refused: I cannot

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/@one --transcript
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 1
    ");
    assert_snapshot!(agent("", "[[rules]]\nsay = ''\n"), @r"
    one  failed        0.0 s  empty_answer: the model answered nothing

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/@one --transcript
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 1
    ");
    assert_snapshot!(agent("", "[[rules]]\nagent = 'a*'\nturn = 7\nsay = 'x'\n"), @r"
    one  failed        0.0 s  invalid_request: script script.toml: line 1, column 1: no rule of the script matches agent `a` in turn 1

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/one
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 3
    ");
    let endless = "[[rules]]\n[[rules.calls]]\ntool = 'glob'\ninput = { pattern = '*.none' }\n";
    assert_snapshot!(agent("", endless), @r"
    one  failed        0.0 s  max_turns: no final answer within 2 turns

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/@one --transcript
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 4
    ");
    let gives_up = "[[rules]]\n[[rules.calls]]\ntool = 'give_up'\ninput = { reason = 'no' }\n";
    assert_snapshot!(agent("", gives_up), @r"
    one  failed        0.0 s  gave_up: the agent gave up: no

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/@one --transcript
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 1
    ");
    let slow = "[[rules]]\nsay = 'x'\ndelay_ms = 60000\n";
    assert_snapshot!(agent("timeout = '100ms'\n", slow), @r"
    one  failed        0.0 s  timeout: attempt 1 took longer than 0.0 s

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/one
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 5
    ");
    assert_snapshot!(agent("output = 'json'\n", "[[rules]]\nsay = 'not JSON'\n"), @r"
    one  failed        0.0 s  output_format: the answer had the wrong form, and then: no final answer within 2 turns

    run failed after 0.0 s: TOKENS
    what failed:  callsheet show RUN/@one --transcript
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    exit code 1
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn providers() {
    let mut all = String::new();
    for fault in [
        Fault::BadKey,
        Fault::NoQuota,
        Fault::Overloaded,
        Fault::RateLimited(None),
        Fault::ServerError,
        Fault::Refusal("not this".to_owned()),
        Fault::Empty,
        Fault::TooLong { have: 300_000, max: 200_000 },
    ] {
        let provider = Provider::script(vec![Answer::fault(fault)]).await;
        let desk = Desk::empty();
        desk.write(
            "agents.toml",
            &format!(
                "version = 1\n[providers.main]\nkind = 'anthropic'\nbase_url = '{}'\n\
                 [providers.main.rate_limit]\non_quota = 'fail'\n\
                 [models.default]\nprovider = 'main'\nmodel = 'm'\n\
                 [defaults]\nidle_timeout = '300ms'\n\
                 [defaults.retry]\nmax_attempts = 1\n{AGENT}",
                provider.base_url()
            ),
        );
        let text = told(&desk, &desk.call(&["run"]));
        // Of these the first line and the code differ.
        let first = text.lines().next().unwrap_or_default();
        let last = text.lines().last().unwrap_or_default();
        assert!(text.contains("try again:    callsheet resume RUN --retry-failed"), "{text}");
        all.push_str(&format!("{first}\n  {last}\n"));
    }
    assert_snapshot!(all, @r"
    one  failed        0.0 s  auth: authentication_error: invalid x-api-key
      exit code 3
    one  failed        0.0 s  quota: insufficient_quota: You exceeded your current quota, please check your plan and billing details.
      exit code 3
    one  failed        0.0 s  overloaded: overloaded_error: Overloaded
      exit code 3
    one  failed        0.0 s  rate_limit: rate_limit_error: Number of request tokens has exceeded your per-minute rate limit
      exit code 3
    one  failed        0.0 s  server_error: api_error: Internal server error
      exit code 3
    one  failed        0.0 s  refusal: the model refused: not this
      exit code 1
    one  failed        0.0 s  empty_answer: the model answered nothing
      exit code 1
    one  failed        0.0 s  context_overflow: invalid_request_error: prompt is too long: 300000 tokens > 200000 maximum; the prompt alone is too large: shorten it, or let the agent read parts of it
      exit code 1
    ");
}

#[test]
fn the_first_of_several_failures_is_followed_by_the_number_of_the_others_and_where_they_are() {
    let desk = Desk::commands(
        "[limits]\nfail_fast = false\n[tasks.one]\nrun = 'exit 3'\n[tasks.two]\nrun = 'exit 4'\n\
         [tasks.many]\nforeach = '[1, 2]'\nrun = 'exit 5'\n",
    );
    let text = told(&desk, &desk.call(&["run"]));
    let wanted = "what failed:  callsheet show RUN/one\n\
                  and 3 more:   callsheet resume RUN --retry-failed --explain\n\
                  try again:    callsheet resume RUN --retry-failed\n";
    assert!(text.contains(wanted), "{text}");
    let explained = desk.good(&["resume", "--retry-failed", "--explain"]);
    for wanted in ["exit code 3", "exit code 4", "many["] {
        assert!(explained.contains(wanted), "{wanted}: {explained}");
    }

    // A page for people has ids that can be typed, and the whole one once; a document has whole ones.
    let run = desk.runs().pop().expect("a run");
    let id = run.file_name().expect("a name").to_string_lossy().into_owned();
    let page = desk.good(&["report"]);
    let short = &id[id.len() - 8..];
    let more = format!("- and 3 more: `callsheet resume {short} --retry-failed --explain`\n");
    assert!(page.contains(&more), "{page}");
    assert_eq!(page.matches(&id).count(), 1, "{page}");
    let report = &desk.json(&["report", "--format", "json"])[0];
    assert_eq!(report["next"][0]["command"], format!("callsheet show {id}/one"));
}
