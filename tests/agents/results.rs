//! The results of agents that end without an answer: never empty, never called ok.

use crate::support::desk::Desk;

/// An agent that never answers, and whose last turn is asked to hand over; a lead that delegates to
/// such an agent.
fn desk() -> Desk {
    let rest = "[agents.busy]\nmodel = 'default'\ninstructions = 'x'\ntools = ['glob']\nmax_turns = 2\n\
         [agents.mute]\nmodel = 'default'\ninstructions = 'x'\ntools = ['glob']\nmax_turns = 1\n\
         [agents.lead]\nmodel = 'default'\ninstructions = 'x'\nsub_agents = ['busy']\n\
         [tasks.busy]\nagent = 'busy'\nprompt = 'go'\n\
         [tasks.mute]\nagent = 'mute'\nprompt = 'go'\n\
         [tasks.lead]\nagent = 'lead'\nprompt = 'go'\n";
    let script = r#"
[[rules]]
agent = "busy"
when = "not tools"
say = "Half is done: a.txt is read. b.txt is open."
[[rules]]
agent = "mute"
when = "not tools"
stop = "refusal"
[[rules]]
agent = "lead"
turn = 1
[[rules.calls]]
tool = "delegate"
input = { agent = "busy", prompt = "go" }
[[rules]]
agent = "lead"
say = "{{ last[0].text }}"
[[rules]]
say = "I look."
[[rules.calls]]
tool = "glob"
input = { pattern = "agents.toml" }
"#;
    Desk::offline(rest, script)
}

#[test]
fn an_agent_out_of_turns_hands_over_what_there_is() {
    let desk = desk();
    let done = desk.call(&["run", "--keep-going"]);
    assert_eq!(done.code, 4, "{}{}", done.out, done.err);
    assert_eq!(
        desk.call(&["show", "/busy", "--output"]).out,
        "Half is done: a.txt is read. b.txt is open."
    );
    let mute = desk.call(&["show", "/mute", "--output"]).out;
    assert_eq!(mute, "I look.\n\nLast results of tools, in brief:\n- agents.toml");
    let agent = &desk.json(&["show", "@busy", "--json"])[0];
    assert_eq!((&agent["result"], &agent["state"]), (&"partial".into(), &"failed".into()));
    assert_eq!(agent["turn"], 3, "two turns and the hand-over");
    let shown = desk.good(&["show", "@busy"]);
    assert!(shown.contains("max_turns: no final answer within 2 turns\n"), "{shown}");
    assert!(shown.contains("partial output:\n| Half is done"), "{shown}");
    // The parent reads the text, and that it is no answer.
    let read = desk.call(&["show", "/lead", "--output"]).out;
    let read: serde_json::Value = serde_json::from_str(&read).expect("JSON");
    assert_eq!(read["status"], "failed");
    assert_eq!((&read["result"], &read["partial"]), (&"partial".into(), &true.into()));
    assert_eq!(read["text"], "Half is done: a.txt is read. b.txt is open.");
    // The records tell the turn from others.
    let events = desk.json(&["tail", "--agent", "busy", "--json"]);
    let turns: Vec<_> = events.iter().filter(|event| event["type"] == "turn.started").collect();
    let marked: Vec<_> = turns.iter().map(|event| event["data"]["hand_over"] == true).collect();
    assert_eq!(marked, [false, false, true]);
    let tasks = &desk.json(&["report", "--format", "json"])[0]["tasks"];
    assert_eq!(tasks[0]["agents"][0]["result"], "partial");
    assert_eq!(tasks[0]["partial"]["text"], "Half is done: a.txt is read. b.txt is open.");
}
