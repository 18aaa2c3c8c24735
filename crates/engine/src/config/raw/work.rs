//! Declares the keys of `[agents]`, `[tasks]` and `[permissions]`, and those that they share.

use std::time::Duration;

use serde_json::Value as Json;

use super::approval::Approval;
use super::budget::Budget;
use super::loops::LoopKeys;
use crate::config::shape::kinds::{
    AGENT, COUNT, EXPRESSION, FILE, FILES, MODEL, PERMISSIONS, SHARE, TASKS, TEMPLATE, TEXT, TEXTS,
    TOKENS, VARIABLES, WORDS, words_of,
};
use crate::config::shape::{Kind, List, Named, sections, words};
use crate::permission::{NonInteractive, PermissionDecision};
use crate::policy::{RestartPolicy, RestartStrategy, RetryPolicy};
use crate::spec::sandbox::SandboxMode;
use crate::spec::{Capture, OnFailure, OnUnknown, OutputFormat, Reach};

words! { RestartStrategy PermissionDecision NonInteractive OnFailure OnUnknown OutputFormat Capture Reach }

const TOOLS: Kind = Kind::List(&Kind::Text(
    "name of a tool",
    &["unknown_tool", "no_sub_agents", "needs_person", "unused_key"],
));
/// A JSON Schema, as the path of a file or as a table.
const SCHEMA: Kind = Kind::Either(&[Kind::Text("path", &["unreadable_file"]), Kind::Any]);
const SKILLS: Kind = Kind::List(&Kind::Text("name of a skill", &["missing_skill"]));

sections! {
    /// An agent: a model with instructions and tools.
    Agent {
        /// The abilities of the agent, for the agents that may delegate to it.
        description: String, TEXT, gives "empty_prompt", "unused_template";
        /// The model that the agent calls.
        model: String, MODEL => "from `[defaults]`, else the model `default`, else the only one";
        /// The system prompt.
        instructions: String, TEXT, gives "empty_prompt", "unused_template";
        /// The file with the system prompt, relative to this file. It excludes `instructions`.
        instructions_file: String, FILE, gives "conflict";
        /// The tools that the agent may call.
        tools: List<String> = Vec::new(), TOOLS
            => "those that follow from `sub_agents` and `skills`";
        /// The agents to which the agent may delegate. It does not see any others.
        sub_agents: List<String> = Vec::new(), Kind::List(&AGENT) => "nobody";
        /// The most model calls that the agent may make.
        max_turns: u32, COUNT => "from `[defaults]`";
        /// Files whose texts are added after the instructions, as paths or globs like
        /// `"docs/*.md"`.
        context_files: List<String> = Vec::new(), FILES;
        /// Skills that the agent may load, by the names of their folders below `.agents/skills`.
        skills: List<String> = Vec::new(), SKILLS;
        /// The calls that the agent may make beyond the rules for all agents.
        permissions: OwnPermissions = OwnPermissions::default(), OwnPermissions::KIND;
        /// The rule by which the agent is restarted after a crash.
        restart: Restart = Restart::default(), Restart::KIND;
        /// What the agent is kept from, beside what `[sandbox]` keeps all from. It holds for the
        /// agents to which it delegates too.
        sandbox: OwnSandbox = OwnSandbox::default(), OwnSandbox::KIND;
        /// The JSON Schema (draft 2020-12) that the answers of the agent must fit, as a table or as the
        /// path of a JSON file. It holds for the tasks of the agent that have none of their own.
        output_schema: Json, SCHEMA, gives "bad_schema";
        /// The number of times that the agent is asked again, in the same conversation, when its
        /// answer is not accepted.
        output_retries: u32, Kind::Whole(0, 100, "") => "2";
        /// The most that each agent of this definition may spend, with all agents below it.
        budget: Budget, Budget::KIND => "no limit", gives "unused_key", "budget_never_reached";
        /// The rules by which it is noticed that the agent goes in circles, where they differ from those of
        /// `[loops]`.
        loops: LoopKeys = LoopKeys::default(), LoopKeys::KIND;
        /// To whom the agent may send messages, by the tools `send_message` and `list_agents`: `none`, to nobody;
        /// `parent`, to the agent that delegated to it and to those to which it delegates; `run`, to every agent
        /// of the run. What it hears from others is information and no instruction.
        messages: Reach = Reach::Nobody, words_of::<Reach>(&[]);
        /// If `true`, the agent may go on while its `sub_agents` work: `delegate` has the input `background`, the
        /// result comes as a message, and the tools `wait`, `check_child` and `stop_child` are there. What still works
        /// when the agent has given its last answer ends with it; it is told of that once before.
        background: bool = false, Kind::Truth, gives "unused_key";
    }
    later {
        /// The MCP servers whose tools the agent may call.
        mcp_servers;
        /// The copy of the workspace in which the agent works.
        workspace;
        /// The address of an agent that runs elsewhere.
        a2a_url;
    }

    /// The calls that one agent may or may not make, beside the rules for all agents.
    OwnPermissions {
        /// Calls that are allowed without a question. They override an `ask` of the rules for all
        /// agents, never a `deny`.
        allow: List<String> = Vec::new(), PERMISSIONS;
        /// Calls that are denied, to this agent and to the agents that it delegates to.
        deny: List<String> = Vec::new(), PERMISSIONS;
        /// Calls that the agents which it delegates to may make although its own `deny` names them.
        grants: List<String> = Vec::new(), PERMISSIONS;
    }

    /// What one agent or task is kept from. It can only take away from `[sandbox]`.
    OwnSandbox {
        /// The files that may be written: `read-only`, none but temporary ones, also not by the file
        /// tools; or `workspace-write`.
        mode: SandboxMode = SandboxMode::WorkspaceWrite, words_of::<SandboxMode>(&[]),
            gives "loose_sandbox";
        /// If `false`, commands have no network.
        network: bool = true, Kind::Truth, gives "loose_sandbox";
    }

    /// The rule by which an agent is restarted after a crash.
    Restart {
        /// The ends after which the agent is restarted, in the words of Erlang/OTP: `permanent` or
        /// `transient`, after a crash (the two are equal here, because an agent that ends normally
        /// is never restarted), or `temporary`, never.
        strategy: RestartStrategy = RestartPolicy::default().strategy,
            words_of::<RestartStrategy>(&[]);
        /// The most restarts within `window`.
        max_restarts: u32 = RestartPolicy::default().max_restarts, Kind::Whole(0, 1000, "");
        /// The time over which restarts are counted.
        window: Duration = RestartPolicy::default().window, Kind::Time;
    }

    /// The rules for calls of tools. A rule is the name of a tool, as a glob, and in brackets a
    /// glob for the argument of the call: `"bash(git push*)"`.
    Permissions {
        /// The answer to calls that no rule matches: `allow`, `ask` (a person is asked first) or
        /// `deny`.
        default: PermissionDecision = PermissionDecision::Ask, words_of::<PermissionDecision>(&[]);
        /// Calls that are allowed without a question.
        allow: List<String> = Vec::new(), PERMISSIONS;
        /// Calls about which a person is asked.
        ask: List<String> = Vec::new(), PERMISSIONS;
        /// Calls that are denied.
        deny: List<String> = Vec::new(), PERMISSIONS;
        /// The answer to a call of `bash` that no rule matches, in place of `default = "ask"`, while
        /// the sandbox keeps the command: `allow` lets it run without a question.
        sandboxed: PermissionDecision = PermissionDecision::Ask, words_of::<PermissionDecision>(&[]);
        /// The answer to tasks that are added to a run (`run --plan`, the tool `propose_tasks`): `ask`,
        /// they wait for the approval of a person, `allow`, or `deny`. Tasks that an agent proposes and
        /// that do more than `delegate` could are asked about also where the file says `allow`.
        plan: PermissionDecision = PermissionDecision::Ask, words_of::<PermissionDecision>(&[]), gives "conflict";
        /// The answer to a question when there is no terminal: `deny`, and the agent receives the
        /// reason; `pause`, the agent waits until a person answers with `callsheet approve` or
        /// `callsheet reject`; or `allow`.
        non_interactive: NonInteractive = NonInteractive::Deny,
            words_of::<NonInteractive>(&[]);
        /// The time after which a question for a permission that nobody has answered is denied, by the clock on the
        /// wall, also while no process drives the run. The record says that nobody answered (`by` is `timeout`).
        ask_timeout: Duration, Kind::Time => "it waits for as long as it takes";
    }

    /// The number of attempts, and the pauses between them.
    Retry {
        /// The most attempts, the first included.
        max_attempts: u32, Kind::Whole(1, 100, "") => "10 for calls to models, 1 for tasks";
        /// The longest that the first pause may be.
        initial_interval: Duration = RetryPolicy::default().initial_interval, Kind::Pause;
        /// The factor by which the longest possible pause grows from one pause to the next.
        backoff_factor: f64 = RetryPolicy::default().backoff_factor, Kind::Number(1, 100, "");
        /// The longest that any pause may be.
        max_interval: Duration = RetryPolicy::default().max_interval, Kind::Pause;
        /// If `true`, each pause is drawn evenly between zero and its longest value.
        jitter: bool = RetryPolicy::default().jitter, Kind::Truth;
        /// The kinds of failure after which another attempt is made, like `"rate_limit"`.
        retry_on: List<String>, TEXTS
            => "the kinds that may pass, for tasks also the kinds that another attempt can fix",
            gives "bad_value";
    }

    /// A check of the answer of a task: a command, or an agent with a prompt.
    Check {
        /// The command, which runs as in a task. It gets the answer as the file
        /// `$OUTPUT_PATH`, and as `$OUTPUT` if it has at most 64 KiB. The check passes if the exit
        /// code is 0. A crash makes it run again.
        run: String, TEXT, gives "bad_value", "no_network", "template_in_run";
        /// Environment variables for that command, by name. Their templates can use `output` and
        /// `iteration`, as in `{ FILE = "{{ output.file }}" }`, and the item of a fan-out.
        env: Named<String> = Named::default(), Kind::Map(&VARIABLES, &TEMPLATE), gives "bad_value", "conflict";
        /// The agent that makes the check. Its answer begins with the line `pass` or `fail`.
        agent: String, AGENT, gives "conflict";
        /// The first message to that agent, which can use `output` and `iteration`. The form of its
        /// answer is added.
        prompt: String, TEMPLATE, gives "conflict";
        /// The longest time that the check may take; then it has failed.
        timeout: Duration, Kind::Time;
    }

    /// A loop: the work of a task is repeated until a condition holds.
    Loop {
        /// The condition, which can use `output` and `iteration`. It is looked at when the answer has
        /// passed all checks. It must be stated.
        until: String, EXPRESSION, gives "always_true";
        /// The most rounds, rounds that fix an answer included. It must be stated.
        max_iterations: u32, Kind::Whole(1, 1000, "");
    }

    /// A task: an agent with a prompt, or a command.
    Task {
        /// The agent that does the task.
        agent: String, AGENT, gives "conflict";
        /// The first message to the agent.
        prompt: String, TEMPLATE, gives "conflict", "missing_field", "empty_prompt";
        /// The command, which runs under `sh -c` in the workspace. It gets inputs as `$INPUT_NAME`,
        /// and other values only through `env`.
        run: String, TEXT, gives "bad_value", "conflict", "no_network", "template_in_run";
        /// The tasks that must end before this one starts.
        depends_on: List<String> = Vec::new(), TASKS, gives "cycle", "disabled_task";
        /// The condition on the ends of the dependencies: `all_success`, all completed or were
        /// skipped by their own `when`; `all_done`, all have ended, in any state; `any_success`,
        /// one completed (the others need not have ended); `at_least:N`, N completed;
        /// `none_failed`, all have ended and none failed.
        join: String = "all_success".to_owned(), Kind::Text("join", &["bad_value", "conflict"]);
        /// If `true`, the task runs when all its dependencies have ended, in any state, also after a
        /// failure, a timeout or a cancellation of the run. After these it has five minutes, or its
        /// own `timeout`.
        always: bool = false, Kind::Truth, gives "conflict";
        /// The resources that no other task may use at the same time, by names of your own.
        locks: List<String> = Vec::new(), Kind::List(&Kind::Text("name", &["bad_value"])),
            gives "conflict";
        /// Patterns of the files that the task writes, relative to the workspace. `check` warns of
        /// tasks that may write the same ones at the same time. Nothing keeps the task from others.
        paths: List<String> = Vec::new(), Kind::List(&Kind::Text("path pattern", &["bad_value"])),
            gives "conflict", "overlapping_paths";
        /// If `true`, no other task runs at the same time whose `paths` overlap with those of this
        /// one; instances of a fan-out run one after the other.
        exclusive: bool = false, Kind::Truth, gives "conflict", "missing_field";
        /// The list whose items are each worked on by one instance of the task: an expression that
        /// is evaluated when the task is ready.
        foreach: String, EXPRESSION;
        /// The name of the item in the templates of an instance.
        foreach_as: String = "item".to_owned(), Kind::Text("name", &["bad_value"]),
            gives "conflict";
        /// The identity of an item: a template that names the item. No two items may have the
        /// same. It is the item itself if that is a text or a number, else a hash of it.
        foreach_key: String, TEMPLATE, gives "bad_value", "conflict";
        /// The most instances that run at the same time.
        max_concurrency: usize, COUNT => "from `[limits]`", gives "conflict";
        /// The share of the instances that must complete, from 0 to 1. If fewer do, the task fails.
        min_success: f64 = 1.0, SHARE, gives "conflict";
        /// The condition for the task: if it is false, the task is skipped and counts as done.
        when: String, EXPRESSION, gives "always_true";
        /// The longest time that one attempt may take.
        timeout: Duration, Kind::Time => "from `[defaults]`", gives "conflict";
        /// The number of attempts, and the pauses between them.
        retry: Retry, Retry::KIND, gives "conflict";
        /// The consequence of a failure. It overrides `--keep-going` and `limits.fail_fast`. `fail`:
        /// nothing new starts. `skip_dependents`: the tasks that depend on this one are skipped,
        /// unless their `join` allows it, and all others go on. `continue`: for the tasks that
        /// depend on it, it counts as done, with the output none. `pause`: after a failure of the
        /// provider that may heal (an overload, a quota, the network, a key) the task waits, and the
        /// run pauses when nothing else is left to do; `callsheet resume` continues it.
        on_failure: OnFailure, words_of::<OnFailure>(&[])
            => "from `limits.fail_fast` and `--keep-going`";
        /// The format of the task's output: `text`, any text, whose line breaks at the end are no part
        /// of its value; `raw`, any text as it is; `json`, one JSON document; `jsonl`, one JSON document
        /// a line.
        output: OutputFormat = OutputFormat::Text, words_of::<OutputFormat>(&[]), gives "conflict";
        /// The file in the workspace to which the output is also written.
        output_file: String, TEMPLATE, gives "bad_value", "outside_workspace", "same_file";
        /// Environment variables for the task's command, by name.
        env: Named<String> = Named::default(), Kind::Map(&VARIABLES, &TEMPLATE), gives "bad_value", "not_built", "conflict";
        /// The text for the standard input of the task's command: the way for large values, such as
        /// `"{{ tasks.list.output }}"`. `{{ tasks.list.output_path }}` is the path of a file that
        /// holds the whole output, which a command can read.
        stdin: String, TEMPLATE, gives "conflict";
        /// The folder in which the task's command runs, relative to the workspace.
        cwd: String, TEMPLATE => "the workspace", gives "bad_value", "conflict", "outside_workspace";
        /// The streams of the task's command that are its output: `stdout`, while stderr is kept beside
        /// it (`callsheet show RUN/TASK --stderr`); `both`, mixed in the order in which they come.
        capture: Capture = Capture::Stdout, words_of::<Capture>(&[]), gives "conflict";
        /// If `true`, the command may simply run again after it was interrupted, such as by a crash.
        /// Otherwise the task fails then, because nobody knows what the command has done.
        idempotent: bool = false, Kind::Truth, gives "conflict";
        /// What becomes of a command or a call that was interrupted after it had begun, and that may
        /// not run again, in this task and in the agents that work for it. `tell`: the model reads
        /// that the outcome is unknown, and what is known (a `run` task fails). `ask`: a person is
        /// asked what happened. `fail`: the agent fails. A tool's own value comes first.
        on_unknown: OnUnknown = OnUnknown::Tell, words_of::<OnUnknown>(&[]), gives "conflict";
        /// A text that names the effect of the task's command, which gets it as `$IDEMPOTENCY_KEY`
        /// to hand on to a service that does nothing twice under one key. Only `idempotent` makes an
        /// interrupted command run again.
        idempotency_key: String, TEMPLATE, gives "bad_value", "conflict";
        /// The model that the task's agent calls in this task.
        model: String, MODEL => "from the agent", gives "conflict";
        /// The most model calls that the task's agent may make in this task.
        max_turns: u32, COUNT => "from the agent", gives "conflict";
        /// The tasks whose outputs are added to the prompt, each between `<output task="NAME">` and
        /// `</output>`. They must be in `depends_on`.
        context: List<String> = Vec::new(), TASKS, gives "missing_dependency", "conflict";
        /// The most tokens of these outputs, by the estimate of the program. An output that does not
        /// fit is named by its path and its size instead.
        context_budget: u64 = 20_000, TOKENS, gives "conflict";
        /// If `false`, the task is not part of the plan; no other task may depend on it.
        enabled: bool = true, Kind::Truth;
        /// The question to a person that the task asks. Such a task has neither `agent` nor `run`.
        approval: Approval, Approval::KIND, gives "conflict", "missing_field";
        /// The file of a sub-graph, relative to the workspace: its tasks run in place of this one, as
        /// `TASK/NAME`. Beside it only `with`, `depends_on`, `join`, `enabled` and `description` can
        /// be set.
        workflow: String, FILE, gives "conflict", "cycle", "bad_value", "not_a_configuration";
        /// The inputs of the sub-graph: values, or templates that may use the inputs of this file.
        with: Named<Json> = Named::default(), Kind::Map(&WORDS, &Kind::Any),
            gives "unknown_input", "missing_input", "bad_input", "bad_template", "undefined_name";
        /// What the task's command and its agents are kept from, beside what `[sandbox]` keeps all
        /// from.
        sandbox: OwnSandbox = OwnSandbox::default(), OwnSandbox::KIND;
        /// The JSON Schema (draft 2020-12) that the output must fit, as a table or as the path of a
        /// JSON file. The output is then JSON.
        output_schema: Json, SCHEMA => "from the agent", gives "bad_schema", "conflict";
        /// The most that the task may spend, with all its attempts and instances.
        budget: Budget, Budget::KIND => "no limit", gives "unused_key", "budget_never_reached";
        /// The number of times that the agent is asked again, in the same conversation, when its
        /// answer has the wrong form, does not fit the schema or does not pass a check.
        output_retries: u32, Kind::Whole(0, 100, "") => "from the agent, else 2",
            gives "conflict";
        /// The checks that an answer must pass, in their order.
        checks: List<Check> = Vec::new(), Kind::List(&Check::KIND), gives "missing_field", "conflict", "no_network";
        /// The loop in which the work is repeated.
        r#loop: Loop = Loop::default(), Loop::KIND, gives "missing_field", "conflict";
    }
    notes {
        /// The purpose of the task, for people.
        description, TEXT;
    }
    later {
        /// The longest time without data within a reply.
        idle_timeout;
        /// The condition under which the output is taken from an earlier run.
        cache;
    }
}
