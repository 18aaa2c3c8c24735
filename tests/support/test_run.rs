//! A whole run for a test: a workspace of its own, a script that answers for the models, and access
//! to the records and files of the run.
//!
//! The same script answers in the process (kind `scripted`) or behind the loopback provider on
//! either wire. Every agent has a model of its own name, so that the provider knows which agent
//! asks.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callsheet::config::{self, Sources};
use callsheet::event::{Event, Record, RunCompleted, RunStatus, SharedRecord};
use callsheet::failure::{Failure, FailureKind};
use callsheet::id::{AgentId, Name};
use callsheet::journal::file::RunDir;
use callsheet::journal::follow::Follower;
use callsheet::journal::source::RecordedRun;
use callsheet::message::{Block, Json, Message, StopReason, ToolResult};
use callsheet::model::script::{Scene, Script};
use callsheet::model::{BoxFuture, Client};
use callsheet::person::Asker;
use callsheet::plan::TaskState;
use callsheet::run::{CancelTarget, RunEnd};
use callsheet::run::{Options, Remote, Run};
use callsheet::run_state::{RunState, TaskStatus};
use callsheet::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use callsheet::turn::{Effect, Program, ToolFinished};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::answer::{Answer, Fault, Part};
use crate::support::asked::{Asked, Wire};
use crate::support::number_outside;
use crate::support::provider::Provider;

/// Deadline for an event that must happen: far longer than any of these runs takes on a busy
/// machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Waits for an event that must happen.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(DEADLINE, future).await;
    waited.unwrap_or_else(|_| panic!("waited too long: {what}"))
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(crate) fn agent(text: &str) -> AgentId {
    AgentId::from_text(text)
}

/// The place from which the models' answers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// The script itself.
    Scripted,
    /// The script behind the loopback provider.
    Loopback(Wire),
}

impl Host {
    /// All places, for tests that use each.
    pub(crate) const ALL: [Self; 3] =
        [Self::Scripted, Self::Loopback(Wire::Anthropic), Self::Loopback(Wire::OpenAi)];
}

type Adapt = Arc<dyn Fn(&Asked, Answer) -> Answer + Send + Sync>;

/// A run that is prepared and not started yet.
pub(crate) struct TestRun {
    agents: String,
    script: String,
    host: Host,
    adapt: Option<Adapt>,
    files: Vec<(String, String)>,
    inputs: Vec<(String, String)>,
    tools: Vec<Arc<dyn Tool>>,
    models: Vec<(Name, Arc<dyn Client>)>,
    options: Options,
}

impl TestRun {
    /// Prepares a run of this agents.toml, which is written without version, providers and models.
    pub(crate) fn new(agents: &str) -> Self {
        Self {
            agents: format!("version = 1\nname = \"test\"\n{agents}"),
            script: "[[rules]]\nsay = \"done\"".to_owned(),
            host: Host::Scripted,
            adapt: None,
            files: Vec::new(),
            inputs: Vec::new(),
            tools: Vec::new(),
            models: Vec::new(),
            options: Options::default(),
        }
    }

    /// With this script in place of the one that answers `done`.
    pub(crate) fn script(mut self, script: &str) -> Self {
        script.clone_into(&mut self.script);
        self
    }

    /// Plays the script in this place.
    pub(crate) fn on(mut self, host: Host) -> Self {
        self.host = host;
        self
    }

    /// Changes the provider's answers by this function before they are sent.
    pub(crate) fn adapting(
        mut self,
        adapt: impl Fn(&Asked, Answer) -> Answer + Send + Sync + 'static,
    ) -> Self {
        self.adapt = Some(Arc::new(adapt));
        self
    }

    /// With this file in the workspace.
    pub(crate) fn file(mut self, path: &str, content: &str) -> Self {
        self.files.push((path.to_owned(), content.to_owned()));
        self
    }

    /// With this input.
    pub(crate) fn input(mut self, name: &str, value: &str) -> Self {
        self.inputs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this tool beside the built-in ones.
    pub(crate) fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Gives the agent of this name a model of the test's own.
    pub(crate) fn model(mut self, agent: &str, model: Arc<dyn Client>) -> Self {
        self.models.push((name(agent), model));
        self
    }

    /// With only these tasks and what they need.
    pub(crate) fn only<const N: usize>(mut self, tasks: [&str; N]) -> Self {
        self.options.tasks = tasks.map(str::to_owned).into();
        self
    }

    /// Runs as with `--keep-going`.
    pub(crate) fn keep_going(mut self) -> Self {
        self.options.keep_going = true;
        self
    }

    /// Answers permission questions by this asker.
    pub(crate) fn asker(mut self, asker: Arc<dyn Asker>) -> Self {
        self.options.asker = Some(asker);
        self
    }

    /// Starts the run.
    pub(crate) async fn start(mut self) -> Live {
        let home = tempfile::tempdir().expect("a temporary directory");
        let workspace = home.path().join("workspace");
        std::fs::create_dir(&workspace).expect("a workspace");
        for (path, content) in &self.files {
            let path = workspace.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, content).expect("a file");
        }
        let script = Script::parse(&self.script).expect("a script");
        let script_file = home.path().join("script.toml");
        std::fs::write(&script_file, &self.script).expect("the script");
        let provider = match self.host {
            Host::Scripted => None,
            Host::Loopback(_) => Some(loopback(script, self.adapt.take()).await),
        };

        let mut sources = Sources::new(workspace.join("agents.toml"));
        sources.inputs = std::mem::take(&mut self.inputs);
        sources.extra_tools = self.tools.iter().map(|tool| tool.spec().name.clone()).collect();
        sources.custom_models = self.models.iter().map(|(name, _)| name.clone()).collect();
        sources.targets = self.options.tasks.clone();
        let kind = match (self.host, &provider) {
            (Host::Loopback(wire), Some(provider)) => {
                let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
                sources.overrides.push(text("providers.main.base_url", &provider.url_for(wire)));
                kind
            }
            _ => {
                let file = script_file.display().to_string();
                sources.overrides.push(text("providers.main.script", &file));
                "scripted"
            }
        };
        sources.overrides.push(text("providers.main.kind", kind));
        self.settle_agents(&mut sources);
        let open =
            crate::support::without_sandbox().map(|(name, value)| (name.into(), value.into()));
        sources.environment.extend(open);

        let config = config::load_text(&self.agents, &sources);
        let config = config.unwrap_or_else(|problems| panic!("{problems:?}"));
        let options = Options {
            tools: self.tools,
            models: self.models.into_iter().collect(),
            // Commands run in the wrapper and in the sandbox, as those of the program do.
            wrapper: Some(env!("CARGO_BIN_EXE_callsheet").into()),
            ..self.options
        };
        let run = soon("the run starts", Run::start(config, options)).await.expect("a run");
        let follower = run.follow().expect("a journal");
        Live { run, follower, workspace, home, provider }
    }

    /// Runs to the end.
    pub(crate) async fn run(self) -> Ended {
        self.start().await.end().await
    }

    /// Gives every agent a model of its name, and instructions if it has none.
    fn settle_agents(&self, sources: &mut Sources) {
        let file: toml::Table = toml::from_str(&self.agents).expect("TOML");
        let agents = file.get("agents").and_then(|agents| agents.as_table());
        for (agent, spec) in agents.into_iter().flatten() {
            if !self.models.iter().any(|(name, _)| name.as_str() == agent) {
                sources.overrides.push(text(&format!("models.{agent}.provider"), "main"));
                sources.overrides.push(text(&format!("models.{agent}.model"), agent));
            }
            sources.overrides.push(text(&format!("agents.{agent}.model"), agent));
            if spec.get("instructions").is_none() {
                let instructions = format!("You are {agent}.");
                sources
                    .overrides
                    .push(text(&format!("agents.{agent}.instructions"), &instructions));
            }
        }
    }
}

fn text(key: &str, value: &str) -> (String, toml::Value) {
    (key.to_owned(), toml::Value::String(value.to_owned()))
}

/// A loopback provider that plays the script.
async fn loopback(script: Script, adapt: Option<Adapt>) -> Provider {
    Provider::start(move |asked: &Asked| {
        let messages = asked.messages();
        let replies = messages.iter().filter(|m| m.role == callsheet::message::Role::Assistant);
        let (agent, system, tools) = (asked.model(), asked.system(), asked.tools());
        let scene = Scene {
            agent: &agent,
            agent_id: &agent,
            turn: u32::try_from(replies.count()).expect("few turns") + 1,
            system: &system,
            messages: &messages,
            tools: &tools,
        };
        let answer = match script.reply(&scene) {
            Ok(reply) => answer(&reply.message, &reply.stop),
            Err(error) => Answer::fault(Fault::Http {
                status: 400,
                headers: Vec::new(),
                body: json!({"error": {"message": error.to_string()}}).to_string(),
            }),
        };
        match &adapt {
            Some(adapt) => adapt(asked, answer),
            None => answer,
        }
    })
    .await
}

/// A scripted reply as the provider sends it.
fn answer(message: &Message, stop: &StopReason) -> Answer {
    let parts = message.content.iter().filter_map(|block| match block {
        Block::Text(text) => Some(Part::Text(text.clone())),
        Block::ToolUse(call) => {
            let (id, name) = (Some(call.id.clone()), call.name.clone());
            Some(Part::Tool { id, name, input: call.input.to_value() })
        }
        Block::ToolResult(_) | Block::Other(_) => None,
    });
    let answer = Answer { parts: parts.collect(), ..Answer::default() };
    match stop {
        StopReason::Refusal(_) => {
            // A refusal needs a text on the OpenAI wire; this is callsheet's own text for a script
            // that gives none.
            let said = Some(message.text()).filter(|text| !text.is_empty());
            answer.with(Fault::Refusal(said.unwrap_or_else(|| "no reason was given".to_owned())))
        }
        StopReason::MaxTokens => answer.stopping("max_tokens"),
        _ if message.content.is_empty() => answer.with(Fault::Empty),
        _ => answer,
    }
}

/// A run at work.
pub(crate) struct Live {
    run: Run,
    follower: Follower,
    pub(crate) workspace: PathBuf,
    home: TempDir,
    provider: Option<Provider>,
}

impl Live {
    /// Waits for the first record from here on that satisfies the condition.
    pub(crate) async fn until(&mut self, what: &str, is: impl Fn(&Record) -> bool) -> SharedRecord {
        let found = async {
            loop {
                let next = self.follower.next().await.expect("a readable journal");
                let record = next.unwrap_or_else(|| panic!("the run ended before: {what}"));
                if is(&record) {
                    return record;
                }
            }
        };
        soon(what, found).await
    }

    /// Waits for the task to have this state.
    pub(crate) async fn until_task(&mut self, task: &str, state: TaskState) {
        let of_task = |record: &Record| {
            record.task.as_ref().is_some_and(|t| t.as_str() == task) && record.agent.is_none()
        };
        let is = |record: &Record| {
            let now = match &record.event {
                Event::TaskReady(_) => TaskState::Ready,
                Event::TaskStarted(_) => TaskState::Running,
                Event::TaskRetrying(_) => TaskState::Waiting,
                Event::TaskCompleted(_) => TaskState::Completed,
                Event::TaskFailed(_) => TaskState::Failed,
                Event::TaskSkipped(_) => TaskState::Skipped,
                Event::TaskCancelled(_) => TaskState::Cancelled,
                _ => return false,
            };
            of_task(record) && now == state
        };
        self.until(&format!("{task} is {}", state.as_str()), is).await;
    }

    pub(crate) fn remote(&self) -> Remote {
        self.run.remote()
    }

    /// Returns true if an agent has an actor.
    pub(crate) fn is_up(&self, agent: &str) -> bool {
        self.run.actors().1.addresses.agents.contains_key(&AgentId::from_text(agent))
    }

    /// Cancels a target; returns true if there was one.
    pub(crate) async fn cancel(&self, target: CancelTarget) -> bool {
        soon("the answer to a cancel", self.run.remote().cancel(target, "not needed")).await
    }

    /// Waits for a file of the workspace to have content.
    pub(crate) async fn until_file(&self, path: &str) -> String {
        let path = self.workspace.join(path);
        let read = async {
            loop {
                match std::fs::read_to_string(&path) {
                    Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        soon("a file of the workspace", read).await
    }

    /// Waits until a process has noted its number in a file, and returns the number by which the
    /// machine knows it.
    pub(crate) async fn until_process(&self, path: &str) -> String {
        let number = self.until_file(path).await;
        number_outside(&self.workspace, &number).expect("the process lives")
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        std::fs::write(self.workspace.join(path), content).expect("a file");
    }

    /// Waits for the end.
    pub(crate) async fn end(self) -> Ended {
        let dir = RunFolder::of(&self.run);
        let waited = tokio::time::timeout(DEADLINE, self.run.wait()).await;
        let (records, state) = read(&dir);
        let end = waited.unwrap_or_else(|_| {
            let line = |record: &SharedRecord| {
                let who = record.agent.as_ref().map_or("-", AgentId::as_str);
                let task = record.task.as_ref().map_or("-", Name::as_str);
                format!("{task} {who} {}", record.event.kind())
            };
            let lines: Vec<_> = records.iter().map(line).collect();
            panic!("the run did not end:\n{}", lines.join("\n"))
        });
        let RunEnd::Completed(completed) = end else { panic!("the run ended with {end:?}") };
        let completed = completed.record().clone();
        let requests = self.provider.as_ref().map(Provider::requests).unwrap_or_default();
        let ended = Ended {
            completed,
            records,
            state,
            dir,
            workspace: self.workspace,
            requests,
            _home: self.home,
        };
        ended.check();
        ended
    }
}

/// The folder of a run, for tests that look at what lies in it, or spoil it. No other test names the directory of
/// a run.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder(RunDir);

impl RunFolder {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self(RunDir::at(path))
    }

    pub(crate) fn of(run: &Run) -> Self {
        Self::at(run.recorded().place())
    }
}

impl Deref for RunFolder {
    type Target = RunDir;
    fn deref(&self) -> &RunDir {
        &self.0
    }
}

impl From<&RunFolder> for RecordedRun {
    fn from(folder: &RunFolder) -> Self {
        (&folder.0).into()
    }
}

/// The records of a run and what they fold to.
fn read(dir: &RunFolder) -> (Vec<SharedRecord>, RunState) {
    let (run, mut records) = (RecordedRun::from(dir), Vec::new());
    let (state, read) = run.fold(|record| records.push(record.clone()));
    read.expect("a sound journal");
    (records, state)
}

/// A run that has ended.
pub(crate) struct Ended {
    pub(crate) completed: RunCompleted,
    pub(crate) records: Vec<SharedRecord>,
    pub(crate) state: RunState,
    pub(crate) dir: RunFolder,
    pub(crate) workspace: PathBuf,
    pub(crate) requests: Vec<Asked>,
    _home: TempDir,
}

impl Ended {
    /// Checks the rules that hold for every run.
    fn check(&self) {
        for (place, record) in (1..).zip(&self.records) {
            assert_eq!(record.seq, place, "the numbers have no gap");
        }
        let last = &self.records.last().expect("records").event;
        assert_eq!(*last, Event::RunCompleted(self.completed.clone()), "the last record");
        assert_eq!(
            self.completed.usage,
            self.state.spending().usage,
            "the run's tokens are all tokens"
        );
        for (task, status) in self.state.tasks() {
            assert!(status.state.is_end(), "{task} is {}", status.state.as_str());
        }
        for (id, agent) in self.state.agents() {
            assert!(agent.outcome.is_some(), "{id} has not ended");
        }
    }

    pub(crate) fn status(&self) -> RunStatus {
        self.completed.status
    }

    pub(crate) fn task(&self, task: &str) -> &TaskStatus {
        self.state.task(&name(task)).unwrap_or_else(|| panic!("no task {task}"))
    }

    /// The state of every task, in order, as `name state`.
    pub(crate) fn states(&self) -> Vec<String> {
        let tasks = self.state.tasks();
        tasks.map(|(name, task)| format!("{name} {}", task.state.as_str())).collect()
    }

    /// The output of a task that completed.
    pub(crate) fn output(&self, task: &str) -> &str {
        let status = self.task(task);
        assert_eq!(status.state, TaskState::Completed, "{task}: {:?}", status.failure);
        &status.output.as_ref().expect("an output").text
    }

    /// Returns the message of a task's failure.
    pub(crate) fn failure(&self, task: &str) -> &Failure {
        let status = self.task(task);
        assert_eq!(status.state, TaskState::Failed, "{task}: {:?}", status.output);
        status.failure.as_ref().expect("a failure")
    }

    /// Returns the kind of a task's failure, and checks that neither the task nor the result has an
    /// output.
    pub(crate) fn kind(&self, task: &str) -> FailureKind {
        let kind = self.failure(task).kind;
        assert_eq!(self.task(task).output, None);
        let end = &self.completed.tasks[task];
        assert_eq!(end.output, None, "{end:?}");
        assert_eq!(end.error.as_ref().map(|error| error.kind), Some(kind), "{end:?}");
        kind
    }

    /// The task that is blamed for a task that was skipped.
    pub(crate) fn because(&self, task: &str) -> Option<&str> {
        let status = self.task(task);
        assert_eq!(status.state, TaskState::Skipped, "{task}");
        status.because.as_ref().map(Name::as_str)
    }

    /// Returns the number of the first record that satisfies the condition.
    pub(crate) fn seq(&self, what: &str, is: impl Fn(&Record) -> bool) -> u64 {
        let found = self.records.iter().find(|record| is(record));
        found.unwrap_or_else(|| panic!("no record: {what}")).seq
    }

    /// Returns the time at which a task's first attempt began.
    pub(crate) fn started(&self, task: &str) -> u64 {
        self.seq(&format!("{task} started"), |r| {
            of_task(r, task) && matches!(r.event, Event::TaskStarted(_))
        })
    }

    /// Returns the time at which a task ended.
    pub(crate) fn ended(&self, task: &str) -> u64 {
        self.seq(&format!("{task} ended"), |r| {
            let ends = matches!(
                r.event,
                Event::TaskCompleted(_)
                    | Event::TaskFailed(_)
                    | Event::TaskSkipped(_)
                    | Event::TaskCancelled(_)
            );
            of_task(r, task) && ends
        })
    }

    /// Returns the prompt that an agent received.
    pub(crate) fn prompt(&self, id: &str) -> String {
        let spawned = self.of_agent(id).find_map(|record| match &record.event {
            Event::AgentSpawned(spawned) => Some(spawned.program.clone()),
            _ => None,
        });
        match spawned {
            Some(Program::Model { prompt, .. }) => prompt.beginning().to_owned(),
            other => panic!("{id} has no prompt: {other:?}"),
        }
    }

    pub(crate) fn of_agent(&self, id: &str) -> impl Iterator<Item = &SharedRecord> {
        let id = agent(id);
        self.records.iter().filter(move |record| record.agent.as_ref() == Some(&id))
    }

    /// The tool results of an agent as they were recorded.
    pub(crate) fn finished(&self, id: &str) -> Vec<&ToolFinished> {
        let finished = self.of_agent(id).filter_map(|record| match &record.event {
            Event::ToolFinished(finished) => Some(finished),
            _ => None,
        });
        finished.collect()
    }

    /// The tool results as the agent's model read them, in order.
    pub(crate) fn results(&self, id: &str) -> Vec<ToolResult> {
        let transcript = self.transcript(id);
        transcript.iter().flat_map(|message| message.tool_results().cloned()).collect()
    }

    /// The only tool result of an agent.
    pub(crate) fn result(&self, id: &str) -> ToolResult {
        let mut results = self.results(id);
        assert_eq!(results.len(), 1, "{results:?}");
        results.remove(0)
    }

    /// The messages of an agent's transcript file.
    pub(crate) fn transcript(&self, id: &str) -> Vec<Message> {
        let file = self.dir.transcript(&agent(id));
        let text = std::fs::read_to_string(&file).expect("a transcript");
        let message = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("a line of JSON");
            serde_json::from_value(line["message"].clone()).expect("a message")
        };
        text.lines().map(message).collect()
    }

    /// The ids of all agents, sorted.
    pub(crate) fn agents(&self) -> Vec<&str> {
        self.state.agents().keys().map(AgentId::as_str).collect()
    }

    /// Returns the largest number of agents that were at work at once, among those that satisfy the
    /// condition. An agent is at work from its `agent.spawned` to its `agent.ended`.
    pub(crate) fn most_at_work(&self, is: impl Fn(&AgentId) -> bool) -> usize {
        let mut open: HashMap<&AgentId, ()> = HashMap::new();
        let mut most = 0;
        for record in &self.records {
            let Some(id) = record.agent.as_ref().filter(|id| is(id)) else { continue };
            match record.event {
                Event::AgentSpawned(_) => drop(open.insert(id, ())),
                Event::AgentEnded(_) => drop(open.remove(id)),
                _ => {}
            }
            most = most.max(open.len());
        }
        most
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.workspace.join(path)).expect("a file")
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.workspace.join(path).exists()
    }
}

fn of_task(record: &Record, task: &str) -> bool {
    record.agent.is_none() && record.task.as_ref().is_some_and(|name| name.as_str() == task)
}

/// Returns true if a process lives. A zombie does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

type Body =
    dyn Fn(Json, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// A tool that a test brings along.
struct OwnTool {
    spec: ToolSpec,
    body: Box<Body>,
}

impl Tool for OwnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        (self.body)(input, context)
    }
}

fn own<F>(
    text: &str,
    effect: Effect,
    body: impl Fn(Json, ToolContext) -> F + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let spec = ToolSpec {
        name: name(text),
        description: "A tool of a test.".to_owned(),
        input_schema: Json::encode(&json!({"type": "object"})),
        effect,
        reads_only: effect == Effect::Pure,
    };
    Arc::new(OwnTool { spec, body: Box::new(move |input, context| Box::pin(body(input, context))) })
}

/// A tool that only reads.
pub(crate) fn reading<F>(
    text: &str,
    body: impl Fn(Json, ToolContext) -> F + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    own(text, Effect::Pure, body)
}

/// A tool that changes something.
pub(crate) fn writing<F>(
    text: &str,
    body: impl Fn(Json, ToolContext) -> F + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    own(text, Effect::Once, body)
}
