//! What agents send, whatever a provider answers: every request is one that a provider takes.

use callsheet::context::{Edit, thinking};
use callsheet::event::Event;
use callsheet::message::{Block, Json};
use serde_json::json;

use crate::conversations::refusals;
use crate::faults::{Ended, FakeTool, Setup, defect, id, transcript};
use crate::support::answer::{Answer, Part};
use crate::support::asked::{Asked, Wire};
use crate::support::provider::Provider;

/// Lets one agent work against the provider; gives how it ended and the provider's requests.
async fn work(
    wire: Wire,
    model: &str,
    answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
) -> (Ended, Vec<Vec<Json>>) {
    let provider = Provider::start(answer).await;
    let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
    let text = format!(
        r#"
[providers.main]
kind = "{kind}"
base_url = "{}"
api_key = {{ env = "TEST_KEY" }}
[models.main]
provider = "main"
model = "m"
{model}
[compaction]
preset = "three-layer"
keep_recent = 1
[agents.worker]
model = "main"
instructions = "Work."
tools = ["dump"]
[tasks.work]
agent = "worker"
prompt = "go"
"#,
        provider.url_for(wire),
    );
    let ended = Setup::new().tool(&FakeTool::dump()).run(&text).await;
    let requests = provider.requests();
    let messages = |asked: &Asked| match wire {
        Wire::Anthropic => {
            let body = asked.json();
            let messages = body["messages"].as_array().expect("messages");
            messages.iter().map(Json::encode).collect::<Vec<_>>()
        }
        Wire::OpenAi => asked.messages().iter().map(Json::encode).collect(),
    };
    (ended, requests.iter().map(messages).collect())
}

fn dump(size: usize) -> serde_json::Value {
    json!({ "size": size })
}

#[tokio::test]
async fn ids_that_a_provider_repeats_are_told_apart() {
    for wire in Wire::BOTH {
        let (ended, requests) = work(wire, "", move |asked| {
            if asked.count > 4 {
                return Answer::text("done");
            }
            let call = |id: &str| Part::Tool {
                id: Some(id.to_owned()),
                name: "dump".to_owned(),
                input: dump(200 + asked.count),
            };
            // The OpenAI wire joins what has one id within a reply.
            let twice = if wire == Wire::Anthropic { "call_0" } else { "call_1" };
            Answer { parts: vec![call("call_0"), call(twice)], ..Answer::default() }
        })
        .await;
        assert_eq!(ended.output("work"), "done");
        assert_eq!(requests.len(), 5);
        for messages in &requests {
            assert_eq!(refusals(messages), Vec::<String>::new());
        }
        let transcript = transcript(&ended.dir.transcript(&id("work")));
        assert_eq!(defect(&transcript), None);
        let results: Vec<_> = transcript.iter().flat_map(|m| m.tool_results()).collect();
        let sizes: Vec<_> = results.iter().map(|result| result.text().chars().count()).collect();
        assert_eq!(sizes, [201, 201, 202, 202, 203, 203, 204, 204]);
    }
}

/// The numbers of the messages with thinking.
fn thoughts(messages: &[Json]) -> Vec<usize> {
    let thinks = |json: &&Json| json.as_str().contains(r#""type":"thinking""#);
    let messages = messages.iter().enumerate();
    messages.filter(|(_, json)| thinks(json)).map(|(at, _)| at).collect()
}

fn thinking_and_calling(asked: &Asked) -> Answer {
    match asked.count {
        5 => Answer::text("done"),
        // The second result is long and is cleared before the fourth request.
        count => Answer::default()
            .and_thinking(&format!("thought {count}"), "sig")
            .and_tool("dump", dump(if count == 2 { 300 } else { 50 })),
    }
}

#[tokio::test]
async fn thinking_behind_a_change_is_left_out_as_a_unit() {
    let (ended, requests) = work(Wire::Anthropic, "", thinking_and_calling).await;
    assert_eq!(ended.output("work"), "done");
    for messages in &requests {
        assert_eq!(refusals(messages), Vec::<String>::new());
    }
    let thoughts: Vec<_> = requests.iter().map(|messages| thoughts(messages)).collect();
    // Message 4 is cleared before the fourth request: the thinking of message 5 goes, that before
    // it stays, and so does what is thought from then on.
    assert_eq!(thoughts, [vec![], vec![1], vec![1, 3], vec![1, 3], vec![1, 3, 7]]);
    let edits = ended.of_agent("work").into_iter().filter_map(|event| match event {
        Event::ContextEdited(edited) if edited.layer == thinking::NAME => Some(edited.edit),
        _ => None,
    });
    assert_eq!(edits.collect::<Vec<_>>(), [Edit::DropThinking { from: 5, to: 7 }]);
    let whole = transcript(&ended.dir.transcript(&id("work")));
    let blocks = whole.iter().flat_map(|message| &message.content);
    let kept = blocks.filter(|block| matches!(block, Block::Other(_))).count();
    assert_eq!(kept, 4, "the transcript has it all");
}

#[tokio::test]
async fn thinking_that_is_not_bound_stays() {
    let free = "thinking = \"free\"";
    let (_, requests) = work(Wire::Anthropic, free, thinking_and_calling).await;
    assert_eq!(thoughts(&requests[4]), [1, 3, 5, 7]);
}

#[tokio::test]
async fn a_provider_that_pauses_gets_its_own_message_back() {
    let (ended, requests) = work(Wire::Anthropic, "", |asked| match asked.count {
        1 => Answer::text("searching").stopping("pause_turn"),
        _ => Answer::text("done"),
    })
    .await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(requests[1].len(), 2);
}
