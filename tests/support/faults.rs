//! Models and tools that fail on purpose, runs of them, and access to the records of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use callsheet::actor::addresses::Addresses;
use callsheet::actor::briefing::Briefings;
use callsheet::actor::mail::{AgentMsg, StepError, SupervisorMsg};
use callsheet::actor::replies::Replies;
use callsheet::actor::services::Services;
use callsheet::actor::surroundings::Surroundings;
use callsheet::config::{self, Config, Sources};
use callsheet::context::compaction::{CompactionSpec, Hooks};
use callsheet::context::layers::preset::Preset;
use callsheet::context::provider::strategy::StrategySettings;
use callsheet::event::{Event, RunCompleted, SharedRecord};
use callsheet::failure::{Failure, FailureKind};
use callsheet::id::{AgentId, Name, RunId};
use callsheet::journal::JournalError;
use callsheet::journal::cut::{Cut, CutError};
use callsheet::journal::disk_space::DiskSpace;
use callsheet::journal::source::{Cursor, RecordedRun};
use callsheet::message::{Block, Json, Message, Role, StopReason, ToolCall, Usage};
use callsheet::model::{
    BoxFuture, Client, DeltaSink, ErrorClass, Model, ModelError, Reply, Request,
};
use callsheet::run::{Options, Remote, Run, RunEnd, StoppedRun};
use callsheet::run_state::RunState;
use callsheet::store::Store;
use callsheet::tool::workspace::Workspace;
use callsheet::tool::wrapper::Wrapper;
use callsheet::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec, Toolbox};
use callsheet::turn::{Effect, Outcome};
use parking_lot::Mutex;
use ractor::ActorRef;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::support::test_run::RunFolder;

/// Deadline for an event that must happen: far longer than it takes.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// A name.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// An agent.
pub(crate) fn id(text: &str) -> AgentId {
    AgentId::from_text(text)
}

/// An action of a model that is called.
pub(crate) enum Act {
    Say(String),
    /// Calls these tools.
    Call(Vec<(&'static str, Value)>),
    /// Answers with this message and this stop reason.
    Reply(Message, StopReason),
    Panic,
    Fail(ErrorClass),
    /// Never answers.
    Hang,
    /// Does the next action once the gate has a permit.
    After(Arc<Semaphore>, Box<Self>),
}

impl Act {
    pub(crate) fn say(text: impl Into<String>) -> Self {
        Self::Say(text.into())
    }

    pub(crate) fn tool(tool: &'static str, input: Value) -> Self {
        Self::Call(vec![(tool, input)])
    }

    pub(crate) fn after(self, gate: &Arc<Semaphore>) -> Self {
        Self::After(gate.clone(), Box::new(self))
    }
}

/// A closed gate.
pub(crate) fn gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

/// Opens a gate for all that wait and will wait.
pub(crate) fn open(gate: &Semaphore) {
    gate.add_permits(10_000);
}

type Answers = dyn Fn(&Request) -> Act + Send + Sync;

/// A model of the test's own: it implements only the call, and keeps its requests.
pub(crate) struct Fake {
    answers: Box<Answers>,
    asked: Mutex<Vec<Request>>,
    waiting: Arc<AtomicUsize>,
}

impl Fake {
    pub(crate) fn new(answers: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Arc<Self> {
        let waiting = Arc::default();
        Arc::new(Self { answers: Box::new(answers), asked: Mutex::default(), waiting })
    }

    /// Returns the number of calls.
    pub(crate) fn count(&self) -> usize {
        self.asked.lock().len()
    }

    /// Returns the tokens that it counted in all its requests.
    pub(crate) fn counted(&self) -> u64 {
        self.asked.lock().iter().map(counted).sum()
    }

    /// Returns the number of calls that were for a summary.
    pub(crate) fn summaries(&self) -> usize {
        let asked = self.asked.lock();
        asked.iter().filter(|request| request.agent.as_str() == "compactor").count()
    }

    /// The calls under way.
    pub(crate) fn under_way(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// The conversations that an agent sent, oldest first.
    pub(crate) fn sent_by(&self, agent: &str) -> Vec<Vec<Message>> {
        let asked = self.asked.lock();
        let of_agent = asked.iter().filter(|request| request.agent_id.as_str() == agent);
        of_agent.map(Request::messages).collect()
    }

    /// Returns its action for a request.
    pub(crate) fn act(&self, request: &Request) -> Act {
        (self.answers)(request)
    }
}

struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Model for Fake {
    fn call<'a>(
        &'a self,
        request: Request,
        _deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let act = (self.answers)(&request);
        let (agent, turn, input) = (request.agent_id.clone(), request.turn, counted(&request));
        self.asked.lock().push(request);
        let under_way = UnderWay::new(&self.waiting);
        Box::pin(async move {
            let _under_way = under_way;
            let (message, stop) = perform(act, &agent, turn).await?;
            let usage = Usage { input, output: 5, ..Usage::default() };
            Ok(Reply::new(message, stop, usage))
        })
    }
}

/// Counts the tokens of a request: one for each four bytes.
pub(crate) fn counted(request: &Request) -> u64 {
    let pieces: usize = request.pieces.iter().map(|piece| piece.bytes.len()).sum();
    ((request.head.0.len() + pieces) / 4) as u64
}

async fn perform(
    act: Act,
    agent: &AgentId,
    turn: u32,
) -> Result<(Message, StopReason), ModelError> {
    Ok(match act {
        Act::Say(text) => (Message::assistant(text), StopReason::EndTurn),
        Act::Call(calls) => {
            let block = |(at, (tool, input)): (usize, (&str, Value))| {
                let id = format!("{agent}.{turn}.{at}");
                let input = Json::encode(&input);
                Block::ToolUse(ToolCall { id, name: tool.to_owned(), input })
            };
            let content = calls.into_iter().enumerate().map(block).collect();
            (Message { role: Role::Assistant, content }, StopReason::ToolUse)
        }
        Act::Reply(message, stop) => (message, stop),
        Act::Panic => panic!("injected"),
        Act::Fail(class) => return Err(ModelError::new(class, "injected")),
        Act::Hang => std::future::pending().await,
        Act::After(gate, act) => {
            gate.acquire().await.expect("an open semaphore").forget();
            return Box::pin(perform(*act, agent, turn)).await;
        }
    })
}

/// Returns true if the last message carries tool results.
pub(crate) fn follows_tools(request: &Request) -> bool {
    request.messages().last().is_some_and(|message| message.tool_results().next().is_some())
}

type Work = dyn Fn(usize, Value) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// Text that `dump` repeats: four characters for each token.
pub(crate) const DUMPED: &str = "look into it: ";

/// A tool of the test's own that counts its calls.
pub(crate) struct FakeTool {
    spec: ToolSpec,
    calls: AtomicUsize,
    work: Box<Work>,
}

impl FakeTool {
    /// `work` is given the number of the call, from 1, and the arguments.
    pub(crate) fn new<F>(
        tool: &str,
        effect: Effect,
        work: impl Fn(usize, Value) -> F + Send + Sync + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let spec = ToolSpec {
            name: name(tool),
            description: "A tool of a test.".to_owned(),
            input_schema: Json::encode(&json!({"type": "object"})),
            effect,
            reads_only: false,
        };
        let work = Box::new(move |count, input| Box::pin(work(count, input)) as BoxFuture<'_, _>);
        Arc::new(Self { spec, calls: AtomicUsize::new(0), work })
    }

    /// A tool `dump` that gives a text of `size` characters.
    pub(crate) fn dump() -> Arc<Self> {
        Self::new("dump", Effect::Pure, |count, input| async move {
            let size = input["size"].as_u64().unwrap_or(10);
            let size = usize::try_from(size).expect("a size");
            let text = format!("{count}:{}", DUMPED.repeat(size / DUMPED.len() + 1));
            Ok(ToolOutput::ok(&text[..size]))
        })
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Tool for FakeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(
        &self,
        input: Json,
        _context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        let count = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        (self.work)(count, input.to_value())
    }
}

/// A workspace, and the models and tools that a program brings along.
pub(crate) struct Setup {
    pub(crate) root: Arc<TempDir>,
    models: BTreeMap<Name, Arc<dyn Client>>,
    tools: Vec<Arc<dyn Tool>>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let root = Arc::new(tempfile::tempdir().expect("a directory"));
        Self { root, models: BTreeMap::new(), tools: Vec::new() }
    }

    /// Uses the workspace of another setup.
    pub(crate) fn at(mut self, other: &Self) -> Self {
        self.root = other.root.clone();
        self
    }

    pub(crate) fn model(mut self, model: &str, fake: &Arc<Fake>) -> Self {
        self.models.insert(name(model), fake.clone());
        self
    }

    pub(crate) fn tool(mut self, tool: &Arc<FakeTool>) -> Self {
        self.tools.push(tool.clone());
        self
    }

    /// Loads a configuration, with its first lines added and everything allowed.
    pub(crate) fn config(&self, text: &str) -> Config {
        let text =
            format!("version = 1\nname = \"test\"\n{text}\n[permissions]\ndefault = \"allow\"\n");
        let loaded = config::load_text(&text, &self.sources());
        loaded.unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    pub(crate) fn sources(&self) -> Sources {
        let mut sources = Sources::new(self.root.path().join("agents.toml"));
        sources.environment.insert("TEST_KEY".to_owned(), "k".to_owned());
        let open =
            crate::support::without_sandbox().map(|(name, value)| (name.into(), value.into()));
        sources.environment.extend(open);
        sources.custom_models = self.models.keys().cloned().collect();
        sources.extra_tools = self.tools.iter().map(|tool| tool.spec().name.clone()).collect();
        sources
    }

    fn options(&self) -> Options {
        let (tools, models) = (self.tools.clone(), self.models.clone());
        // Commands run in the wrapper and in the sandbox, as those of the program do.
        let wrapper = Some(env!("CARGO_BIN_EXE_callsheet").into());
        Options { tools, models, wrapper, ..Options::default() }
    }

    /// Resumes a run as it is.
    pub(crate) async fn resume(&self, dir: &RunFolder) -> Run {
        // The actors of a run that crashed in this process may hold it a little longer.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let stopped = loop {
            match StoppedRun::open(dir, Cut::Torn) {
                Err(CutError::Journal(JournalError::Locked { .. }))
                    if std::time::Instant::now() < deadline =>
                {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                opened => break opened.expect("it can be taken up"),
            }
        };
        let config = stopped.config(self.sources());
        let config = config.unwrap_or_else(|problems| panic!("{problems:#?}"));
        Run::resume(stopped, config, self.options()).await.expect("goes on")
    }

    pub(crate) async fn start(&self, text: &str) -> Run {
        self.start_as(text, RunId::from(uuid::Uuid::now_v7())).await
    }

    /// Starts a run of this id.
    pub(crate) async fn start_as(&self, text: &str, run: RunId) -> Run {
        let options = Options { run_id: Some(run), ..self.options() };
        Run::start(self.config(text), options).await.expect("starts")
    }

    /// Resumes a run with another configuration.
    pub(crate) async fn accept(&self, dir: &RunFolder, text: &str) -> Run {
        let stopped = StoppedRun::open(dir, Cut::Torn).expect("it can be taken up");
        let before = stopped.config(self.sources()).expect("recorded");
        let now = self.config(text);
        let now = Config { state_dir: before.state_dir.clone(), ..now };
        let stopped = stopped.accept(&before, &now).expect("a plan");
        Run::resume(stopped, now, self.options()).await.expect("goes on")
    }

    /// Runs to the end.
    pub(crate) async fn run(&self, text: &str) -> Ended {
        let ended = Ended::of(self.start(text).await).await;
        Ended { _root: Some(self.root.clone()), ..ended }
    }
}

/// A run that is over.
pub(crate) struct Ended {
    pub(crate) end: RunEnd,
    pub(crate) dir: RunFolder,
    pub(crate) records: Vec<SharedRecord>,
    /// Keeps the files alive if the setup of the run is dropped.
    _root: Option<Arc<TempDir>>,
}

impl Ended {
    pub(crate) async fn of(run: Run) -> Self {
        Self::within(SOON, run).await
    }

    /// Waits for the end so long at most, in a test whose time is paused.
    pub(crate) async fn within(deadline: Duration, run: Run) -> Self {
        let dir = RunFolder::of(&run);
        let end = tokio::time::timeout(deadline, run.wait()).await.expect("the run ends");
        let records = records(&dir);
        Self { end, dir, records, _root: None }
    }

    pub(crate) fn completed(&self) -> &RunCompleted {
        match &self.end {
            RunEnd::Completed(completed) => completed.record(),
            other => panic!("{other:?}"),
        }
    }

    /// The state, the output and the failure of a task.
    pub(crate) fn task(&self, task: &str) -> (String, Option<String>, Option<FailureKind>) {
        let end = &self.completed().tasks[task];
        let kind = end.error.as_ref().map(|error| error.kind);
        (end.state.as_str().to_owned(), end.output.clone(), kind)
    }

    /// The output of a task that completed.
    pub(crate) fn output(&self, task: &str) -> String {
        let (state, output, kind) = self.task(task);
        assert_eq!((state.as_str(), kind), ("completed", None), "{:#?}", self.kinds());
        output.expect("an output")
    }

    /// The events of an agent.
    pub(crate) fn of_agent(&self, agent: &str) -> Vec<Event> {
        let of_agent = self.records.iter().filter(|record| record.agent == Some(id(agent)));
        of_agent.map(|record| record.event.clone()).collect()
    }

    /// How many events of a type an agent has.
    pub(crate) fn count(&self, agent: &str, kind: &str) -> usize {
        self.of_agent(agent).iter().filter(|event| event.kind() == kind).count()
    }

    /// How an agent ended.
    pub(crate) fn outcome(&self, agent: &str) -> Outcome {
        let ends = self.of_agent(agent).into_iter().filter_map(|event| match event {
            Event::AgentEnded(ended) => Some(ended.outcome),
            _ => None,
        });
        let ends: Vec<_> = ends.collect();
        assert_eq!(ends.len(), 1, "{agent}: {ends:?}");
        ends[0].clone()
    }

    /// All agents that were spawned.
    pub(crate) fn agents(&self) -> Vec<AgentId> {
        let spawned = self.records.iter().filter(|r| matches!(r.event, Event::AgentSpawned(_)));
        spawned.filter_map(|record| record.agent.clone()).collect()
    }

    /// The types of all events with their agents, for a failed assertion.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let line = |r: &SharedRecord| format!("{} {:?} {}", r.seq, r.agent, r.event.kind());
        self.records.iter().map(line).collect()
    }
}

/// Returns the message of a failed outcome.
pub(crate) fn failure(outcome: &Outcome) -> &Failure {
    match outcome {
        Outcome::Failed { failure, .. } => failure,
        other => panic!("{other:?}"),
    }
}

/// Reads all records of a journal.
pub(crate) fn records(run: impl Into<RecordedRun>) -> Vec<SharedRecord> {
    let mut batches = run.into().batches(Cursor::START).expect("a journal");
    let mut records = Vec::new();
    while let Some(batch) = batches.next_batch().expect("a sound journal") {
        records.extend(batch);
    }
    records
}

/// The fold of records.
pub(crate) fn fold(records: &[SharedRecord]) -> RunState {
    let mut state = RunState::default();
    records.iter().for_each(|record| state.apply(record).expect("a legal record"));
    state
}

/// Waits until the journal holds a record that satisfies the condition.
pub(crate) async fn until_recorded(
    run: impl Into<RecordedRun>,
    wanted: impl Fn(&SharedRecord) -> bool,
) {
    let run = run.into();
    until(|| records(run.clone()).iter().any(&wanted)).await;
}

/// Waits until the condition holds.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, waited).await.expect("it holds soon");
}

/// The messages of a transcript, whose line numbers must grow; none of a command.
pub(crate) fn transcript(path: &Path) -> Vec<Message> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(text.is_empty() || text.ends_with('\n'), "{}", path.display());
    let mut last = 0;
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let seq = line["seq"].as_u64().expect("a number");
        assert!(seq > last, "{seq} after {last}");
        last = seq;
        assert!(line["ts"].is_string());
        serde_json::from_value(line["message"].clone()).expect("a message")
    };
    text.lines().map(line).collect()
}

/// Returns the rule of the protocol that a conversation breaks, if it breaks one.
pub(crate) fn defect(messages: &[Message]) -> Option<String> {
    let first = messages.first()?;
    if first.role != Role::User {
        return Some("the first message is not the user's".to_owned());
    }
    let mut seen = std::collections::HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if at > 0 && messages[at - 1].role == message.role {
            return Some(format!("message {at} has the role of the one before"));
        }
        let answers: Vec<_> = message.tool_results().map(|r| r.tool_use_id.clone()).collect();
        let is_result = |block: &Block| matches!(block, Block::ToolResult(_));
        if answers != open {
            return Some(format!("message {at} answers {answers:?} where {open:?} were asked"));
        }
        if message.content.iter().take(answers.len()).any(|block| !is_result(block)) {
            return Some(format!("message {at} does not begin with its results"));
        }
        if message.content.is_empty()
            || message.content.iter().any(|b| matches!(b, Block::Text(t) if t.is_empty()))
        {
            return Some(format!("message {at} has nothing to say"));
        }
        open = message.tool_calls().map(|call| call.id.clone()).collect();
        if let Some(twice) = open.iter().find(|id| !seen.insert((*id).clone())) {
            return Some(format!("the call {twice} stands twice"));
        }
    }
    (!open.is_empty()).then(|| format!("{open:?} are not answered"))
}

/// Returns the reason for which a conversation cannot be sent: as [`defect`], and it must end with
/// a user message.
pub(crate) fn unsendable(messages: &[Message]) -> Option<String> {
    let ends_with_user = messages.last().is_some_and(|message| message.role == Role::User);
    defect(messages)
        .or_else(|| (!ends_with_user).then(|| "the last message is not the user's".to_owned()))
}

/// A run whose actors a test can reach, to crash them.
pub(crate) struct Rig {
    pub(crate) services: Arc<Services>,
    pub(crate) supervisor: ActorRef<SupervisorMsg>,
    pub(crate) dir: RunFolder,
    run: Run,
}

impl Rig {
    pub(crate) async fn start(setup: &Setup, text: &str) -> Self {
        let options = setup.options();
        let run = Run::start(setup.config(text), options).await.expect("starts");
        let (supervisor, services) = run.actors();
        Self { services, supervisor, dir: RunFolder::of(&run), run }
    }

    /// Mails an agent.
    pub(crate) fn mail(&self, agent: &str, message: AgentMsg) {
        let actor = self.services.addresses.agents.get(&id(agent)).map(|actor| actor.clone());
        actor.expect("it is at work").send_message(message).expect("it lives");
    }

    /// Makes the step crash that an agent has under way.
    pub(crate) fn crash(&self, agent: &str) {
        assert!(self.crash_if_up(agent), "it is at work");
    }

    /// Does the same, if the agent has an actor. Returns true if it has.
    pub(crate) fn crash_if_up(&self, agent: &str) -> bool {
        let actor = self.services.addresses.agents.get(&id(agent)).map(|actor| actor.clone());
        let Some(actor) = actor else { return false };
        // One of these is the step under way; the others are stale, and ignored.
        for step in 1..20 {
            let result = Err(StepError::Crashed("injected".to_owned()));
            let _ = actor.send_message(AgentMsg::StepDone { step, result });
        }
        true
    }

    pub(crate) fn remote(&self) -> Remote {
        self.run.remote()
    }

    /// Returns true if an agent has an actor.
    pub(crate) fn is_up(&self, agent: &str) -> bool {
        self.services.addresses.agents.contains_key(&id(agent))
    }

    /// Waits for the end.
    pub(crate) async fn ended(self) -> Ended {
        Ended::of(self.run).await
    }
}

/// The settings of `three-layer`.
pub(crate) fn three_layer() -> CompactionSpec {
    CompactionSpec {
        preset: Preset::three_layer(),
        model: None,
        max_concurrency: 2,
        failure_threshold: 3,
        cooldown: Duration::from_millis(50),
        summary_timeout: Duration::from_secs(60),
        hooks: Hooks::default(),
        strategy: StrategySettings::default(),
    }
}

/// Services around a journal in memory, for one actor alone.
pub(crate) fn bare_services(root: &Path, journal: callsheet::journal::JournalHandle) -> Services {
    let surroundings = Surroundings {
        workspace: Arc::new(Workspace::open(root).expect("opens")),
        watch: Arc::new(callsheet::tool::survey::watch::Watch::new(
            root.to_owned(),
            root.to_owned(),
            Arc::new(Store::new(root.join("spool"), root.join("results"))),
            callsheet::redaction::Secrets::default(),
        )),
        env: Arc::default(),
        sandbox: Default::default(),
        wrapper: Some(Arc::new(Wrapper {
            program: env!("CARGO_BIN_EXE_callsheet").into(),
            secrets: callsheet::redaction::Secrets::default(),
        })),
    };
    Services {
        limits_spending: Default::default(),
        planner: None,
        watcher: callsheet::run::delta_feed::DeltaFeed::new(None),
        secrets: callsheet::redaction::Secrets::default(),
        run: RunId::from(uuid::Uuid::now_v7()),
        workflow: "test".to_owned(),
        inputs: serde_json::Map::new(),
        agents: Default::default(),
        briefings: Briefings::default(),
        models: std::collections::HashMap::new(),
        tools: Toolbox::default(),
        surroundings: Arc::new(surroundings),
        under_way: Arc::new(callsheet::tool::under_way::UnderWay::new(
            root.join("under-way"),
            false,
        )),
        store: Arc::new(Store::new(root.join("spool"), root.join("results"))),
        lost: Arc::default(),
        changed_files: Default::default(),
        limits: callsheet::spec::Limits::default(),
        hooks: Default::default(),
        teller: Default::default(),
        compaction: three_layer(),
        journal,
        disk_space: tokio::sync::watch::Sender::new(DiskSpace::Enough),
        transcripts: root.join("agents"),
        asker: None,
        addresses: Addresses::default(),
        answer_outcomes: Default::default(),
        requests: Replies::default(),
        pulse: Default::default(),
        processors: Arc::new(tokio::sync::Semaphore::new(2)),
        calls: AtomicU64::new(1),
        span: tracing::Span::none(),
    }
}
