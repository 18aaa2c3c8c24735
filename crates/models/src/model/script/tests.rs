//! Tests of the engine: rules, values, fan-out, errors with their places.

use serde_json::json;

use super::*;
use crate::message::{ResultContent, ToolResult};

fn scene<'a>(agent: &'a str, turn: u32, messages: &'a [Message]) -> Scene<'a> {
    Scene { agent, agent_id: "task", turn, system: "sys", messages, tools: &[] }
}

fn play(script: &str, agent: &str, turn: u32, messages: &[Message]) -> ScriptReply {
    let script = Script::parse(script).expect("a script");
    script.reply(&scene(agent, turn, messages)).expect("a reply")
}

fn refused(script: &str) -> ScriptError {
    Script::parse(script).expect_err("a mistake")
}

fn result(id: &str, text: &str, is_error: bool) -> Block {
    let content = ResultContent::Text(text.to_owned());
    Block::ToolResult(ToolResult { tool_use_id: id.to_owned(), content, is_error })
}

fn inputs(reply: &ScriptReply) -> Vec<Value> {
    reply.message.tool_calls().map(|call| call.input.to_value()).collect()
}

/// A conversation in which two calls were made and answered.
fn conversation() -> Vec<Message> {
    let call = |id: &str, name: &str, input: Value| {
        Block::ToolUse(ToolCall { id: id.into(), name: name.into(), input: Json::encode(&input) })
    };
    let calls = vec![
        Block::Text("looking".to_owned()),
        call("a", "glob", json!({"pattern": "*"})),
        call("b", "read_file", json!({"path": "x.rs"})),
    ];
    let answers = vec![result("a", "x.rs\ny.rs", false), result("b", "no such file", true)];
    vec![
        Message::user("Look around."),
        Message { role: Role::Assistant, content: calls },
        Message { role: Role::User, content: answers },
    ]
}

#[test]
fn the_first_rule_that_matches_answers() {
    let script = r#"
        [[rules]]
        agent = "read*"
        turn = "2..3"
        say = "reader, middle"
        [[rules]]
        agent = "reader"
        say = "reader"
        [[rules]]
        last_tool = "read_file"
        say = "after reading"
        [[rules]]
        turn = 1
        when = "'Look' in prompt"
        say = "asked to look"
        [[rules]]
        turn = "4.."
        say = "late"
    "#;
    let talk = conversation();
    let said =
        |agent, turn, messages: &[Message]| play(script, agent, turn, messages).message.text();
    assert_eq!(said("reader", 1, &talk), "reader");
    assert_eq!(said("reader", 2, &talk), "reader, middle");
    assert_eq!(said("reader", 3, &talk), "reader, middle");
    assert_eq!(said("reader", 4, &talk), "reader");
    assert_eq!(said("other", 2, &talk), "after reading");
    assert_eq!(said("other", 1, &talk[..1]), "asked to look");
    assert_eq!(said("other", 9, &talk[..1]), "late");
    let script = Script::parse(script).expect("a script");
    let error = script.reply(&scene("other", 2, &talk[..1])).expect_err("no rule");
    assert!(error.message.contains("agent `other` in turn 2"), "{error}");
}

#[test]
fn templates_see_the_conversation() {
    let script = r#"
        [[rules]]
        say = '''
        {{- agent }}|{{ agent_id }}|{{ turn }}|{{ system }}|{{ prompt }}|{{ messages | length -}}
        |{{ last[0].tool }} {{ last[0].input.pattern }} {{ last[0].text | lines | join("+") -}}
        |{{ last[1].is_error }}|{{ results | length }}|{{ calls[1].input.path -}}
        |{{ messages[1].text }}|{{ messages[1].calls | length }}|{{ messages[2].role }}'''
    "#;
    let said = play(script, "a", 2, &conversation()).message.text();
    assert_eq!(said, "a|task|2|sys|Look around.|3|glob * x.rs+y.rs|true|2|x.rs|looking|2|user");
}

#[test]
fn arguments_keep_their_types() {
    let script = r#"
        [[rules]]
        [[rules.calls]]
        tool = "{{ 'gl' ~ 'ob' }}"
        [rules.calls.input]
        number = "{{ turn + 1 }}"
        list = "{{ last[0].text | lines }}"
        text = "{{ turn }} and {{ turn }}"
        flag = true
        fixed = [1, 2.5, { deep = "{{ agent }}" }]
        [[rules.calls]]
        tool = "other"
        input = "{{ calls[0].input }}"
        [[rules.calls]]
        tool = "bare"
    "#;
    let reply = play(script, "a", 2, &conversation());
    assert_eq!(
        inputs(&reply),
        [
            json!({
                "number": 3,
                "list": ["x.rs", "y.rs"],
                "text": "2 and 2",
                "flag": true,
                "fixed": [1, 2.5, {"deep": "a"}],
            }),
            json!({"pattern": "*"}),
            json!({}),
        ]
    );
    let named: Vec<_> = reply.message.tool_calls().map(|c| (&*c.id, &*c.name)).collect();
    assert_eq!(named, [("call_2_1", "glob"), ("call_2_2", "other"), ("call_2_3", "bare")]);
    assert_eq!(reply.stop, StopReason::ToolUse);
}

#[test]
fn a_call_fans_out_over_a_list() {
    let script = r#"
        [[rules]]
        [rules.let]
        files = "{{ last[0].text | lines }}"
        first = "{{ files[0] }}"
        [[rules.calls]]
        tool = "read_file"
        for_each = "files"
        as = "file"
        input = { path = "{{ file }}", first = "{{ file == first }}" }
        [[rules.calls]]
        tool = "again"
        for_each = "[]"
        input = { path = "{{ item }}" }
    "#;
    let reply = play(script, "a", 2, &conversation());
    assert_eq!(
        inputs(&reply),
        [json!({"path": "x.rs", "first": true}), json!({"path": "y.rs", "first": false})]
    );
    assert_eq!(reply.message.text(), "");
}

#[test]
fn let_is_worked_out_for_rules_that_hold_only() {
    let script = r#"
        [[rules]]
        when = "results | length > 2"
        let = { third = "{{ results[2].text }}" }
        say = "{{ third }}"
        [[rules]]
        when = "n > 5"
        let = { n = "{{ results | length }}" }
        say = "many"
        [[rules]]
        let = { n = "{{ results | length }}", m = "{{ n + 1 }}" }
        when = "m == 3"
        say = "m is {{ m }}"
    "#;
    assert_eq!(play(script, "a", 1, &conversation()).message.text(), "m is 3");
}

#[test]
fn the_stop_reason_can_be_given() {
    let stop = |stop: &str| play(&format!("[[rules]]\nsay = 'x'\n{stop}"), "a", 1, &[]).stop;
    assert_eq!(stop(""), StopReason::EndTurn);
    assert_eq!(stop("stop = 'refusal'"), StopReason::Refusal(None));
    assert_eq!(stop("stop = 'max_tokens'"), StopReason::MaxTokens);
    let silent = play("[[rules]]\nsay = ' '\ndelay_ms = 5", "a", 1, &[]);
    assert!(silent.message.content.is_empty());
    assert_eq!(silent.delay, Duration::from_millis(5));
}

#[test]
fn mistakes_are_found_when_the_script_is_read() {
    let cases = [
        ("x = 1", (1, 1), "no key `x`"),
        ("", (1, 1), "needs `[[rules]]`"),
        ("rules = 3", (1, 9), "`rules` is a list"),
        ("[[rules]]\nsya = 'x'", (2, 1), "no key `sya`"),
        ("[[rules]]\nsay = 'a", (2, 9), "string"),
        ("[[rules]]\nsay = '{{ x'", (2, 7), "syntax error"),
        ("[[rules]]\nsay = '''\n\na {{ b }'''", (4, 1), "syntax error"),
        ("[[rules]]\nsay = '{{ nobody }}'", (2, 7), "no value `nobody`"),
        ("[[rules]]\nwhen = 'turn >'", (2, 8), "syntax error"),
        ("[[rules]]\nwhen = 'trun > 1'", (2, 8), "no value `trun`"),
        ("[[rules]]\nturn = 0", (2, 8), "no turn"),
        ("[[rules]]\nturn = '5..2'", (2, 8), "no turn"),
        ("[[rules]]\nagent = '['", (2, 9), "character class"),
        ("[[rules]]\nstop = 'tired'", (2, 8), "no stop reason"),
        ("[[rules]]\ndelay_ms = -1", (2, 12), "negative"),
        ("[[rules]]\ndelay_ms = 'a'", (2, 12), "whole number"),
        ("[[rules]]\ncalls = [{ input = {} }]", (2, 10), "needs `tool`"),
        ("[[rules]]\ncalls = [{ tool = 'a', inptu = {} }]", (2, 24), "no key `inptu`"),
        ("[[rules]]\ncalls = [{ tool = 'a', input = 'b' }]", (2, 32), "`input` is a table"),
        ("[[rules]]\ncalls = [{ tool = 'a', as = 'b' }]", (2, 29), "needs `for_each`"),
        ("[[rules]]\ncalls = [{ tool = 'a', input = { b = '{{ item }}' } }]", (2, 38), "no value"),
        ("[[rules]]\nlet = { turn = 'x' }", (2, 16), "is taken"),
        ("[[rules]]\nlet = { a-b = 'x' }", (2, 15), "cannot be the name"),
        ("[[rules]]\nlet = { a = '{{ b }}', b = 'x' }", (2, 13), "no value `b`"),
    ];
    for (script, (line, column), message) in cases {
        let error = refused(script);
        assert_eq!((error.line, error.column), (line, column), "{script}: {error}");
        assert!(error.message.contains(message), "{script}: {error}");
    }
}

#[test]
fn mistakes_that_show_in_a_scene_name_their_line() {
    let fails = |script: &str| {
        let script = Script::parse(script).expect("a script");
        script.reply(&scene("a", 1, &[])).expect_err("a mistake")
    };
    let error = fails("[[rules]]\nsay = '''\nfine\n{{ last[3].text }}'''");
    assert_eq!(error.line, 4, "{error}");
    let error = fails("[[rules]]\n[[rules.calls]]\ntool = 'x'\nfor_each = 'turn'");
    assert_eq!((error.line, error.column), (4, 12), "{error}");
    assert!(error.message.contains("a list is needed"), "{error}");
    let error = fails("[[rules]]\n\ncalls = [{ tool = 'x', input = '{{ turn }}' }]");
    assert_eq!(error.line, 3, "{error}");
}

#[test]
fn the_documented_example_works() {
    let page = include_str!("../../../../../docs/scripts.md");
    let example = page.split("```toml\n# scripts/greet.toml\n").nth(1);
    let example = example.and_then(|rest| rest.split("```").next()).expect("the example");
    let reply = play(example, "greeter", 1, &[Message::user("Greet them.")]);
    assert_eq!(inputs(&reply), [json!({"pattern": "people/*.txt"})]);
    let talk = vec![
        Message::user("Greet them."),
        reply.message,
        Message { role: Role::User, content: vec![result("call_1_1", "a.txt\nb.txt", false)] },
    ];
    assert_eq!(play(example, "greeter", 2, &talk).message.text(), "Hello, all 2 of you.");
}
