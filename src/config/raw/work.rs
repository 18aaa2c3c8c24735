//! `[agents]`, `[tasks]`, `[permissions]`, and what they share.

use std::time::Duration;

use serde_json::Value as Json;

use crate::config::shape::kinds::{
    AGENT, COUNT, EXPRESSION, FILE, FILES, MODEL, PERMISSIONS, TASKS, TEMPLATE, TEXT, TEXTS,
    VARIABLES, words_of,
};
use crate::config::shape::{Kind, List, Named, sections, words};
use crate::permission::{NonInteractive, Verdict};
use crate::policy::{RestartPolicy, RestartStrategy, RetryPolicy};
use crate::spec::{Join, OutputFormat};

words! { RestartStrategy Verdict NonInteractive Join OutputFormat }

const TOOLS: Kind = Kind::List(&Kind::Text("name of a tool", &["unknown_tool", "no_sub_agents"]));
const SKILLS: Kind = Kind::List(&Kind::Text("name of a skill", &["missing_skill"]));

sections! {
    /// An agent: a model with instructions and tools.
    Agent {
        /// The known_capabilities of the agent, which the agents that may delegate to it read.
        description: String, TEXT;
        /// The model that it calls.
        model: String, MODEL => "that of `[defaults]`, else the model `default`, else the only one";
        /// The system prompt.
        instructions: String, TEXT;
        /// The file that holds the system prompt, relative to this one. It excludes `instructions`.
        instructions_file: String, FILE, gives "conflict";
        /// The tools that it may call.
        tools: List<String> = Vec::new(), TOOLS
            => "those that follow from `sub_agents` and `skills`";
        /// The agents to which it may delegate. It does not see the others.
        sub_agents: List<String> = Vec::new(), Kind::List(&AGENT) => "nobody";
        /// The most model calls that it may make.
        max_turns: u32, COUNT => "that of `[defaults]`";
        /// Files whose texts follow the instructions, as paths or globs like `"docs/*.md"`.
        context_files: List<String> = Vec::new(), FILES;
        /// Skills that it may load, by the names of their folders below `.agents/skills`.
        skills: List<String> = Vec::new(), SKILLS;
        /// The calls that this agent may make beyond the rules for all.
        permissions: OwnPermissions = OwnPermissions::default(), OwnPermissions::KIND;
        /// When an agent that crashed is started again.
        restart: Restart = Restart::default(), Restart::KIND;
    }
    later {
        /// The MCP servers whose tools it may call.
        mcp_servers;
        /// The files and hosts that its commands can reach.
        sandbox;
        /// Its own ceilings.
        budget;
        /// The JSON Schema that its answer must fit.
        output_schema;
        /// The times that an answer that does not fit is asked for again.
        output_retries;
        /// The copy of the workspace that it works in.
        workspace;
        /// The address of an agent that runs elsewhere.
        a2a_url;
    }

    /// The calls that one agent may make beyond the rules for all.
    OwnPermissions {
        /// Calls that may be made without a question. They settle an `ask` of the rules for all,
        /// never a `deny`.
        allow: List<String> = Vec::new(), PERMISSIONS;
    }

    /// When an agent that crashed is started again.
    Restart {
        /// After which ends it is, in the words of Erlang/OTP: `permanent` or `transient`, after a
        /// crash (a normal end stands, so they are the same here), or `temporary`, never.
        strategy: RestartStrategy = RestartPolicy::default().strategy,
            words_of::<RestartStrategy>(&[]);
        /// The most restarts within `window`.
        max_restarts: u32 = RestartPolicy::default().max_restarts, Kind::Whole(0, 1000, "");
        /// The time over which restarts are counted.
        window: Duration = RestartPolicy::default().window, Kind::Time;
    }

    /// The rules for the calls of tools. A rule is the name of a tool, as a glob, and in brackets a
    /// glob over the argument of the call: `"bash(git push*)"`.
    Permissions {
        /// The answer to calls that no rule speaks of: `allow`, `ask`, a person is asked first, or
        /// `deny`.
        default: Verdict = Verdict::Ask, words_of::<Verdict>(&[]);
        /// Calls that may be made without a question.
        allow: List<String> = Vec::new(), PERMISSIONS;
        /// Calls that a person is asked about.
        ask: List<String> = Vec::new(), PERMISSIONS;
        /// Calls that may not be made.
        deny: List<String> = Vec::new(), PERMISSIONS;
        /// The answer to a question when there is no terminal: `deny`, and the agent is told why,
        /// or `allow`.
        non_interactive: NonInteractive = NonInteractive::Deny,
            words_of::<NonInteractive>(&["pause"]);
    }

    /// The retries of something that failed.
    Retry {
        /// The attempts in all, the first included.
        max_attempts: u32, Kind::Whole(1, 100, "") => "10 for calls to models, 1 for tasks";
        /// The longest that the first pause may be.
        initial_interval: Duration = RetryPolicy::default().initial_interval, Kind::Pause;
        /// By what that grows from pause to pause.
        backoff_factor: f64 = RetryPolicy::default().backoff_factor, Kind::Number(1, 100, "");
        /// The longest that any pause may be.
        max_interval: Duration = RetryPolicy::default().max_interval, Kind::Pause;
        /// Pauses are drawn evenly from zero to the longest that they may be.
        jitter: bool = RetryPolicy::default().jitter, Kind::Truth;
        /// The failures that are worth another attempt, like `"rate_limit"`.
        retry_on: List<String>, TEXTS
            => "those that may pass, for tasks also those that another attempt can mend",
            gives "bad_value";
    }

    /// A task: an agent with a prompt, or a command.
    Task {
        /// The agent that does it.
        agent: String, AGENT;
        /// The first message to the agent.
        prompt: String, TEMPLATE, gives "conflict", "missing_field";
        /// The command that does it, for `sh -c` in the workspace. Inputs arrive as `$INPUT_NAME`,
        /// other values only through `env`.
        run: String, TEXT, gives "conflict", "template_in_run";
        /// The tasks that must end before it starts.
        depends_on: List<String> = Vec::new(), TASKS, gives "cycle";
        /// The condition on their ends: `all_success`, all completed or were skipped by their own
        /// `when`; `all_done`, all have ended, whatever their state; `any_success`, all have ended
        /// and at least one completed; `none_failed`, all have ended and none failed.
        join: Join = Join::AllSuccess, words_of::<Join>(&["at_least:"]);
        /// When this is false the task is skipped, and counts as done.
        when: String, EXPRESSION;
        /// The longest that one attempt may take.
        timeout: Duration, Kind::Time => "that of `[defaults]`";
        /// The retries of failed attempts.
        retry: Retry, Retry::KIND;
        /// The format of its output: `text`, as it is; `json`, as one document; `jsonl`, as one
        /// document a line.
        output: OutputFormat = OutputFormat::Text, words_of::<OutputFormat>(&[]);
        /// The file in the workspace to which its output is also written.
        output_file: String, TEMPLATE, gives "outside_workspace";
        /// Variables of the environment for its command, by name.
        env: Named<String> = Named::default(), Kind::Map(&VARIABLES, &TEMPLATE), gives "not_built";
    }
    notes {
        /// The purpose of the task, for people.
        description, TEXT;
        /// The consequence of its failure: `fail`, the tasks that depend on it are skipped, unless
        /// their `join` allows it.
        on_failure, Kind::Words(|| &["fail"], &["continue", "skip_dependents", "pause"]);
    }
    later {
        /// The model of its agent.
        model;
        /// The longest silence within a reply.
        idle_timeout;
        /// The most model calls of its agent.
        max_turns;
        /// The JSON Schema that its output must fit.
        output_schema: Json;
        /// When its output is taken from an earlier run.
        cache;
        /// The list for each of whose items it is done.
        foreach: Json;
        /// The name of the item in templates.
        foreach_as: String, TEXT;
        /// The identity of an item, which is the same in the next run.
        foreach_key;
        /// The items that are worked on at once.
        max_concurrency;
        /// The share of items that must complete.
        min_success;
        /// The tasks whose outputs its agent is given as they are.
        context;
        /// The most tokens of these.
        context_budget;
        /// The condition until which it is done again.
        r#loop;
        /// The conditions that must hold when its agent says that it is done.
        checks;
        /// The question to a person before it counts as done.
        approval: Json;
        /// The name of an effect that must not be had twice.
        idempotency_key;
        /// The file whose tasks it stands for.
        workflow: Json;
        /// The inputs of these.
        with;
        /// The task is part of the plan.
        enabled;
    }
}
