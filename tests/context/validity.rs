//! Requests of agents after any answer of a provider: each is one that a provider accepts.

use std::collections::HashMap;
use std::sync::Arc;

use callsheet::actor::addresses::Addresses;
use callsheet::actor::agent::{Agent, Folded};
use callsheet::actor::gateway::{Books, Gateway, GatewaySettings, Rules};
use callsheet::actor::model_service::ModelService;
use callsheet::actor::record_right::RecordRight;
use callsheet::actor::services::Services;
use callsheet::context::Edit;
use callsheet::context::provider::server::ContextReport;
use callsheet::context::sending::repair;
use callsheet::context::sending::thinking;
use callsheet::event::{Draft, Event, SharedRecord};
use callsheet::id::{CallKey, RunId};
use callsheet::message::{Block, Json, StopReason, Usage, UsageSource};
use callsheet::policy::RetryPolicy;
use callsheet::turn::{
    AgentSpawned, Effect, ModelResponded, Program, ToolFinished, ToolIntended, ToolStatus,
    TurnStarted,
};
use ractor::Actor;
use serde_json::json;

use crate::support::answer::{Answer, Part};
use crate::support::asked::{Asked, Wire};
use crate::support::conversations::refusals;
use crate::support::faults::{
    Act, Ended, Fake, FakeTool, Setup, bare_services, defect, id, name, transcript, until,
};
use crate::support::memory_journal::MemoryJournal;
use crate::support::provider::Provider;

/// Runs one agent against the provider; returns its outcome and the provider's requests.
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

/// Returns the numbers of the messages with thinking.
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

/// The records of an agent whose provider numbered the calls of each turn from 0, as an earlier
/// version recorded them.
fn records_with_repeated_ids() -> Vec<Event> {
    let program = Program::Model { agent: name("worker"), prompt: "go".into() };
    let spawned = AgentSpawned::main(program);
    let mut events = vec![Event::from(spawned)];
    for turn in 1..=2 {
        let input = Json::encode(&json!({}));
        let (index, tool, call) = (0, "dump".to_owned(), "call_0".to_owned());
        let key = CallKey::derive(
            RunId::from(uuid::Uuid::now_v7()),
            &id("work"),
            turn,
            index,
            &tool,
            "{}",
        );
        let block = json!({ "type": "tool_use", "id": call, "name": tool, "input": {} });
        let message = Json::encode(&json!({ "role": "assistant", "content": [block] }));
        let result = json!({ "type": "tool_result", "tool_use_id": call, "content": "x" });
        let (stop, usage, model) = (StopReason::ToolUse, Usage::default(), name("main"));
        let (usage_source, context) = (UsageSource::Reported, ContextReport::default());
        let (cost_usd, repeats) = (None, None);
        events.extend([
            TurnStarted::new(turn, None).into(),
            ModelResponded {
                turn,
                model,
                message,
                stop,
                usage,
                usage_source,
                cost_usd,
                unsettled: None,
                context,
                repeats,
            }
            .into(),
            ToolIntended {
                key: key.clone(),
                turn,
                index,
                id: call,
                name: tool.clone(),
                input,
                effect: Effect::Pure,
            }
            .into(),
            ToolFinished::new(key, turn, index, tool, ToolStatus::Ok, Json::encode(&result)).into(),
        ]);
    }
    events
}

/// Runs one agent on a journal in memory and a model of the test's own; returns its records once it
/// has ended.
async fn go_on(fake: &Arc<Fake>, past: Vec<Event>) -> Vec<SharedRecord> {
    let (root, journal) = (tempfile::tempdir().expect("a directory"), MemoryJournal::default());
    let text = "[agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"glob\"]\n\
                [tasks.work]\nagent = \"worker\"\nprompt = \"go\"\n";
    let config = Setup::new().model("main", fake).config(text);
    let spec = config.models[&name("main")].clone();
    let provider = spec.provider.clone();
    let service = ModelService::new(spec, fake.clone(), RetryPolicy::never());
    let agents = config.agents.iter();
    let services = Arc::new(Services {
        planner: None,
        agents: parking_lot::RwLock::new(
            agents.map(|(name, spec)| (name.clone(), Arc::new(spec.clone()))).collect(),
        ),
        models: HashMap::from([(name("main"), Arc::new(service))]),
        addresses: Addresses::new([provider.clone()]),
        ..bare_services(root.path(), journal.handle())
    });
    let rules = Rules::of(1);
    let settings = GatewaySettings { provider: provider.clone(), rules, closed_for: None };
    let books = Books::new(&settings);
    let gateway = Gateway { provider: provider.clone(), books, services: services.clone() };
    let (gateway, _) = Actor::spawn(None, gateway, ()).await.expect("starts");
    services.addresses.gateways[&provider].set(gateway);
    let past = past.into_iter().map(|event| Draft::agent(&name("work"), &id("work"), event));
    let past = journal.handle().append(past.collect()).await.expect("recorded");
    let folded = Folded::of(&services, &id("work"), &past.into()).expect("folds");
    let right = RecordRight::default();
    let agent = Agent {
        confinement: Default::default(),
        time_limit: None,
        on_unknown: Default::default(),
        services,
        id: id("work"),
        task: name("work"),
        right,
        form: Default::default(),
        judged: None,
    };
    let (_, ended) = Actor::spawn(None, agent, Box::new(folded)).await.expect("starts");
    until(|| ended.is_finished()).await;
    journal.records()
}

#[tokio::test]
async fn records_of_an_earlier_version_are_repaired_once() {
    let fake = Fake::new(|_| Act::Say("done".to_owned()));
    let records = go_on(&fake, records_with_repeated_ids()).await;
    let sent = fake.sent_by("work");
    assert_eq!(sent.len(), 1);
    let messages: Vec<_> = sent[0].iter().map(Json::encode).collect();
    assert_eq!(refusals(&messages), Vec::<String>::new());
    let is_repair = |record: &&SharedRecord| match &record.event {
        Event::ContextEdited(edited) => edited.layer == repair::NAME,
        _ => false,
    };
    assert_eq!(records.iter().filter(is_repair).count(), 1);
    let last = records.last().map(|record| record.event.kind());
    assert_eq!(last, Some("agent.ended"));

    // What goes on from these records finds nothing to repair.
    let at_repair = records.iter().position(|record| is_repair(&record)).expect("a repair");
    let past = records[..=at_repair].iter().map(|record| record.event.clone()).collect();
    let again = go_on(&fake, past).await;
    assert_eq!(again.iter().filter(is_repair).count(), 1);
}
