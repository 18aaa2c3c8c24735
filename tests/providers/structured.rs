//! Answers that the provider holds to their schema, on both wires.

use callsheet::failure::FailureKind;
use serde_json::{Value, json};

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::faults::{FakeTool, Setup};
use crate::support::provider::Provider;

const CLOSED: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
const OPEN: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;

/// Two tasks one after the other: the first has a schema, the second only words.
fn graph(provider: &Provider, wire: Wire, schema: &str, more: &str) -> String {
    let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
    format!(
        "[limits]\nfail_fast = false\n\
         [providers.main]\nkind = \"{kind}\"\nbase_url = \"{}\"\n{more}\n\
         [models.main]\nprovider = \"main\"\nmodel = \"m\"\nreasoning_effort = \"low\"\n\
         [agents.worker]\nmodel = \"main\"\ninstructions = \"Say \\\"output_config\\\":{{.\"\n\
         [tasks.t1]\nagent = \"worker\"\nprompt = \"Go 1.\"\noutput_schema = {}\n\
         [tasks.t2]\nagent = \"worker\"\nprompt = \"Go 2.\"\ndepends_on = [\"t1\"]\n",
        provider.url_for(wire),
        toml(&serde_json::from_str(schema).expect("JSON")),
    )
}

/// A value as an inline table of TOML.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name} = {}", toml(value));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Value::Array(all) => format!("[{}]", all.iter().map(toml).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// The field that holds the answer to a schema.
fn format_of(asked: &Asked) -> Value {
    let body = asked.json();
    match asked.wire {
        Wire::Anthropic => body["output_config"]["format"].clone(),
        Wire::OpenAi => body["response_format"].clone(),
    }
}

async fn requests(wire: Wire, schema: &str, more: &str, answers: Vec<Answer>) -> Vec<Asked> {
    let provider = Provider::script(answers).await;
    let ended =
        Setup::new().tool(&FakeTool::dump()).run(&graph(&provider, wire, schema, more)).await;
    assert_eq!(ended.output("t1"), r#"{"n": 3}"#);
    provider.requests()
}

#[tokio::test]
async fn the_answer_of_a_task_with_a_schema_is_held_to_it() {
    let on = "structured_output = true";
    let answer = || vec![Answer::text(r#"{"n": 3}"#)];
    let schema: Value = serde_json::from_str(CLOSED).expect("JSON");
    let asked = requests(Wire::Anthropic, CLOSED, on, answer()).await;
    assert_eq!(format_of(&asked[0]), json!({"type": "json_schema", "schema": schema}));
    let effort = |asked: &Asked| asked.json()["output_config"]["effort"].clone();
    assert_eq!((effort(&asked[0]), effort(&asked[1])), (json!("low"), json!("low")));
    assert_eq!(format_of(&asked[1]), Value::Null, "the second task has no schema");
    let asked = requests(Wire::OpenAi, CLOSED, on, answer()).await;
    let expected = json!({"name": "answer", "strict": true, "schema": schema});
    assert_eq!(format_of(&asked[0]), json!({"type": "json_schema", "json_schema": expected}));
    assert_eq!(format_of(&asked[1]), Value::Null);
    // A schema that leaves something open.
    let asked = requests(Wire::OpenAi, OPEN, on, answer()).await;
    assert_eq!(format_of(&asked[0])["json_schema"]["strict"], json!(false));
    let asked = requests(Wire::Anthropic, OPEN, on, answer()).await;
    assert_eq!(format_of(&asked[0]), Value::Null, "the API takes closed objects only");
    for wire in Wire::BOTH {
        let asked = requests(wire, CLOSED, "", answer()).await;
        assert_eq!(format_of(&asked[0]), Value::Null, "a server that is not known is not asked");
    }
}

#[tokio::test]
async fn a_provider_that_refuses_schemas_is_called_without() {
    for (wire, words) in [
        (Wire::Anthropic, "output_config.format: Extra inputs are not permitted"),
        (Wire::OpenAi, "Cannot combine structured output constraints with tools"),
    ] {
        let body =
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
        let refused = Fault::Http { status: 400, headers: Vec::new(), body: body.to_string() };
        let answers = vec![Answer::fault(refused), Answer::text(r#"{"n": 3}"#)];
        let asked = requests(wire, CLOSED, "structured_output = true", answers).await;
        let formats: Vec<_> = asked.iter().map(|asked| format_of(asked).is_null()).collect();
        assert_eq!(formats, [false, true, true], "{wire:?}");
    }
}

#[tokio::test]
async fn another_refusal_is_told_as_it_is() {
    let provider = Provider::script(vec![Answer::fault(Fault::Pairing)]).await;
    let text = graph(&provider, Wire::OpenAi, CLOSED, "structured_output = true");
    let ended = Setup::new().tool(&FakeTool::dump()).run(&text).await;
    assert_eq!(ended.task("t1").2, Some(FailureKind::InvalidRequest));
    assert_eq!(provider.count(), 1);
}
