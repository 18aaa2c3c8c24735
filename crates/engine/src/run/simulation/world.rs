//! The world of a simulated run: a plan, a provider, tools and people that follow from a seed, and a ledger
//! of what the tools did.
//!
//! The world outlives the processes of the run. A model says the same whenever it is asked for the same
//! turn, so that a run that was disturbed comes to the same end as one that was not.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::json;

use crate::config::{self, Config, Sources};
use crate::id::{CallKey, Name};
use crate::message::{Block, Json, Message, Role, StopReason, ToolCall, Usage};
use crate::model::{BoxFuture, Client, DeltaSink, ErrorClass, Model, ModelError, Reply, Request};
use crate::run::answers::LeftAnswer;
use crate::run_state::questions::Question;
use crate::tool::spool::Spool;
use crate::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use crate::turn::Effect;
use crate::turn::question::{ApprovalKind, PersonsAnswer};

/// The most calls in vain before a call of a model succeeds: fewer than are made.
const MOST_FAILURES: u32 = 3;

/// What the tools did: the number of effects of each call.
pub(super) type Ledger = BTreeMap<CallKey, (Effect, u32)>;

/// A world; clones of the handle share it.
#[derive(Debug)]
pub(super) struct World {
    seed: u64,
    ledger: Mutex<Ledger>,
    /// The number of calls for each turn of each agent.
    asked: Mutex<HashMap<(String, u32), u32>>,
}

/// Returns numbers that depend on the seed and on these words alone.
fn numbers(seed: u64, words: &[&str]) -> Rng {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    words.iter().for_each(|word| {
        hasher.update(word.as_bytes());
        hasher.update(&[0]);
    });
    let bytes = *hasher.finalize().as_bytes();
    Rng::with_seed(u64::from_le_bytes(std::array::from_fn(|at| bytes[at])))
}

/// Lets up to so much simulated time pass, mostly far less.
async fn pass(most_ms: u64) {
    let most = most_ms >> fastrand::u32(..8);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..=most))).await;
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { seed, ledger: Mutex::default(), asked: Mutex::default() })
    }

    pub(super) fn ledger(&self) -> Ledger {
        self.ledger.lock().clone()
    }

    /// Returns the most turns of an agent: mostly few, as a small run dies as well as a large one.
    fn size(&self) -> usize {
        let mut numbers = numbers(self.seed, &["size"]);
        if numbers.u8(..6) == 0 { 8 } else { numbers.usize(1..4) }
    }

    /// Returns true if the agents say so much that their windows fill.
    fn is_talkative(&self) -> bool {
        numbers(self.seed, &["talkative"]).u8(..4) == 0
    }

    /// Returns the configuration of the run.
    pub(super) fn text(&self) -> String {
        let mut numbers = numbers(self.seed, &["plan"]);
        let presets = ["three-layer", "four-layer", "production", "adaptive"];
        let mut text = format!(
            "version = 1\nname = 'simulated'\n[limits]\nmax_concurrency = {}\nfail_fast = false\n\
             max_children = {}\n\
             [models.main]\ncontext_window = 12000\nmax_output_tokens = 1000\n\
             [compaction]\npreset = '{}'\nsummary_max_tokens = 500\n\
             [permissions]\ndefault = 'allow'\nask = ['keyed']\nnon_interactive = 'pause'\n\
             [agents.lead]\nmodel = 'main'\ninstructions = 'x'\n\
             tools = ['once', 'keyed', 'look', 'write_file', 'ask_person']\nsub_agents = ['helper']\n\
             [agents.helper]\nmodel = 'main'\ninstructions = 'x'\n\
             tools = ['once', 'look', 'write_file']\n",
            numbers.usize(1..5),
            numbers.usize(1..4),
            presets[numbers.usize(..presets.len())],
        );
        let tasks = numbers.usize(1..=self.size().div_ceil(2));
        for task in 0..tasks {
            let before: Vec<_> = (0..task).filter(|_| numbers.u8(..3) == 0).collect();
            let before: Vec<_> = before.iter().map(|task| format!("'t{task}'")).collect();
            let work = match numbers.u8(..6) {
                0 => "approval = { message = 'go on?' }",
                1..4 => "agent = 'lead'\nprompt = 'go'",
                _ => "agent = 'helper'\nprompt = 'go'",
            };
            let before = before.join(", ");
            writeln!(text, "[tasks.t{task}]\n{work}\ndepends_on = [{before}]").expect("a text");
        }
        text
    }

    pub(super) fn sources(self: &Arc<Self>, root: &std::path::Path) -> Sources {
        let mut sources = Sources::new(root.join("agents.toml"));
        let open = ("CALLSHEET_SANDBOX__MODE".to_owned(), "danger-full-access".to_owned());
        sources.environment.extend([open]);
        sources.custom_models = vec![Name::new("main").expect("a name")];
        sources.extra_tools = self.tools().iter().map(|tool| tool.spec().name.clone()).collect();
        sources
    }

    pub(super) fn config(self: &Arc<Self>, root: &std::path::Path) -> Config {
        let loaded = config::load_text(&self.text(), &self.sources(root));
        loaded.unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    pub(super) fn options(self: &Arc<Self>) -> super::super::Options {
        let main: Arc<dyn Client> = Arc::new(Provider(self.clone()));
        super::super::Options {
            run_id: Some(self.run()),
            keep_going: true,
            tools: self.tools(),
            models: BTreeMap::from([(Name::new("main").expect("a name"), main)]),
            ..super::super::Options::default()
        }
    }

    /// Returns the id of the run: the keys of its calls follow from it.
    pub(super) fn run(&self) -> crate::id::RunId {
        uuid::Builder::from_random_bytes((u128::from(self.seed) + 1).to_be_bytes())
            .into_uuid()
            .into()
    }

    fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let kinds = [("once", Effect::Once), ("keyed", Effect::Keyed), ("look", Effect::Pure)];
        let tool = |(name, effect): (&str, Effect)| {
            let spec = ToolSpec {
                name: Name::new(name).expect("a name"),
                description: "A tool of a simulation.".to_owned(),
                input_schema: Json::encode(&json!({"type": "object"})),
                effect,
                reads_only: effect == Effect::Pure,
            };
            Arc::new(Instrument { world: self.clone(), spec }) as Arc<dyn Tool>
        };
        kinds.into_iter().map(tool).collect()
    }

    /// Returns what a person answers to a question: the same whenever it is asked.
    pub(super) fn answer(&self, question: &Question) -> LeftAnswer {
        // The id of an approval depends on the moment at which it was asked.
        let (id, task) = (question.asked.id.clone(), question.task.as_str());
        let about = if question.asked.kind == ApprovalKind::Approval { task } else { &id };
        let allowed = numbers(self.seed, &["answer", about]).u8(..4) > 0;
        let text = Some(format!("an answer about {about}"));
        LeftAnswer {
            answer: PersonsAnswer { id, allowed, text, by: "somebody".to_owned() },
            at_ms: 1,
        }
    }

    /// Returns what the model says in a turn of an agent.
    fn reply(&self, request: &Request) -> (Message, StopReason) {
        let (id, turn) = (request.agent_id.as_str(), request.turn.to_string());
        let is_summary = request.agent.as_str() == "compactor";
        let turns = numbers(self.seed, &["turns", id]).usize(..=self.size());
        if is_summary || request.no_calls || request.turn as usize > turns {
            return (Message::assistant(format!("{id} is done")), StopReason::EndTurn);
        }
        let mut numbers = numbers(self.seed, &["turn", id, &turn]);
        let is_lead = request.agent.as_str() == "lead";
        let calls = numbers.usize(1..4);
        let call = |at: usize| {
            let (tool, input) = match numbers.u8(..8) {
                0 if is_lead => ("delegate", json!({"agent": "helper", "prompt": "help"})),
                1 if is_lead && numbers.u8(..3) == 0 => ("ask_person", json!({"question": "how?"})),
                1 if is_lead => ("keyed", json!({"at": at})),
                2 | 3 => {
                    let file: String =
                        id.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
                    let path = format!("{file}-{turn}-{at}.txt");
                    ("write_file", json!({"path": path, "content": format!("{turn}\n")}))
                }
                4 => ("look", json!({"size": numbers.u32(..9_000)})),
                _ => ("once", json!({"at": at})),
            };
            let id = format!("{id}.{turn}.{at}");
            Block::ToolUse(ToolCall { id, name: tool.to_owned(), input: Json::encode(&input) })
        };
        let calls: Vec<_> = (0..calls).map(call).collect();
        // Only a summary makes room for what a model says.
        let words = if self.is_talkative() { numbers.usize(..4_000) } else { 1 };
        let text = Block::Text("word ".repeat(words));
        let content = [text].into_iter().chain(calls).collect();
        (Message { role: Role::Assistant, content }, StopReason::ToolUse)
    }
}

/// A provider that answers late, and sometimes only when asked again.
#[derive(Debug)]
struct Provider(Arc<World>);

impl Model for Provider {
    fn call<'a>(
        &'a self,
        request: Request,
        _deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            pass(20_000).await;
            let (id, turn) = (request.agent_id.as_str(), request.turn);
            let asked = {
                let mut asked = self.0.asked.lock();
                let count = asked.entry((id.to_owned(), turn)).or_default();
                *count += 1;
                *count
            };
            let mut numbers = numbers(self.0.seed, &["failures", id, &turn.to_string()]);
            let failures = if numbers.u8(..5) == 0 { numbers.u32(1..=MOST_FAILURES) } else { 0 };
            if asked <= failures {
                let classes =
                    [ErrorClass::Overloaded, ErrorClass::RateLimited, ErrorClass::ServerError];
                let class = classes[numbers.usize(..classes.len())];
                return Err(ModelError::new(class, "injected"));
            }
            let (message, stop) = self.0.reply(&request);
            pass(if request.agent.as_str() == "compactor" { 90_000 } else { 20_000 }).await;
            let pieces: usize = request.pieces.iter().map(|piece| piece.bytes.len()).sum();
            let input = ((request.head.0.len() + pieces) / 4) as u64;
            Ok(Reply::new(message, stop, Usage { input, output: 5, ..Usage::default() }))
        })
    }
}

/// A tool whose effect is a line in the ledger.
#[derive(Debug)]
struct Instrument {
    world: Arc<World>,
    spec: ToolSpec,
}

impl Tool for Instrument {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            pass(8_000).await;
            let effect = self.spec.effect;
            let size = input.to_value()["size"].as_u64().unwrap_or(0);
            if effect != Effect::Pure {
                let mut ledger = self.world.ledger.lock();
                ledger.entry(context.key.clone()).or_insert((effect, 0)).1 += 1;
            }
            let output = ToolOutput::ok("look ".repeat(usize::try_from(size / 5).unwrap_or(0) + 1));
            // Some results are kept, as a wrapper keeps them, before anybody hears of them.
            if effect == Effect::Once && fastrand::bool() {
                pass(500).await;
                let kept = json!({
                    "v": 2, "key": context.key, "end": {"Ok": output}, "took_ms": 1,
                });
                let kept = serde_json::to_vec(&kept).expect("JSON");
                let spool = Spool::of(&context.store);
                spool.keep_result(&context.key, &kept, None).expect("kept");
            }
            pass(500).await;
            Ok(output)
        })
    }
}
