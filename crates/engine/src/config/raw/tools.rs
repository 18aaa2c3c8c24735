//! Declares the keys of `[tools]` and `[hooks]`.

use std::time::Duration;

use serde_json::Value as Json;

use crate::config::shape::kinds::{COMMAND, INPUT_TEMPLATE, TEXT, VARIABLES, words_of};
use crate::config::shape::{Kind, List, Named, sections, words};
use crate::spec::OnUnknown;
use crate::spec::hooks::OnHookError;
use crate::store::{INLINE_CHARS, MEMORY_BYTES};
use crate::tool::TIME_LIMIT;

/// The words of a tool's command.
const WORDS: Kind = Kind::List(&Kind::Text(
    "template",
    &[
        "bad_template",
        "bad_value",
        "missing_program",
        "no_network",
        "template_in_run",
        "undefined_name",
    ],
));

/// The most bytes of an output that are held in memory.
const WHOLE: Kind = Kind::Whole(1, MEMORY_BYTES.cast_signed() as i64, "bytes");

words! { OnHookError }

sections! {
    /// A tool that is a command. docs/tools.md says how an argument of a call becomes one of the
    /// command.
    Tool {
        /// What the tool does, for the model.
        description: String, TEXT, gives "missing_field";
        /// The program and its arguments. No shell reads them. Each but the first is a template in
        /// which `args.NAME` is what the model gives, and gives one argument whatever that is. A
        /// path is relative to this file.
        command: List<String> = Vec::new(), WORDS, gives "missing_field";
        /// The JSON Schema of the arguments of a call, a table of type `object`. Arguments that do
        /// not fit are refused before anything runs.
        input_schema: Json, Kind::Any => "a call has no arguments", gives "bad_schema";
        /// If `true`, a call that a crash cut short is run again. The command gets the same
        /// `$CALLSHEET_IDEMPOTENCY_KEY` then.
        idempotent: bool = false, Kind::Truth;
        /// What becomes of a call that was interrupted after it had begun, if it may not run again.
        /// `tell`: the model reads that the outcome is unknown, and what is known. `ask`: a person is
        /// asked what happened. `fail`: the agent fails.
        on_unknown: OnUnknown, words_of::<OnUnknown>(&[]) => "from the task";
        /// If `true`, calls of the tool wait for something: however often they give the same result, the agent does
        /// not go in circles (`[loops]`).
        poll: bool = false, Kind::Truth;
        /// The arguments that tell one call from another, where loops are looked for (`[loops]`): `["path"]` if the
        /// others differ each time, like a number of the request.
        loop_key: List<String> = Vec::new(), Kind::List(&Kind::Text("name of an argument", &[])) => "all",
            gives "unused_key";
        /// The longest time that a call may take.
        timeout: Duration = TIME_LIMIT, Kind::Time;
        /// The longest output that the model reads whole, a third of that after a failure. The
        /// whole of a longer one is kept in a file, whose path the model is given.
        max_output_bytes: usize = INLINE_CHARS, WHOLE;
        /// The folder in which the command runs, relative to this file.
        cwd: String, TEXT => "the directory of this file", gives "outside_workspace";
        /// Environment variables of the command, added to the variables of all commands.
        env: Named<String> = Named::default(), Kind::Map(&VARIABLES, &INPUT_TEMPLATE);
    }
    /// Commands that run at certain moments, each a program and its arguments, like `["./hook",
    /// "--flag"]`. They read the event as JSON on stdin; docs/hooks.md has its fields and the answers
    /// that are understood.
    RunHooks {
        /// The command that runs before the first task. If it fails, the run ends before anything is
        /// spent.
        on_start: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs after a run that completed.
        on_success: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs after a run that failed or completed only in part.
        on_failure: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs after every end of a run, also one that was cancelled.
        on_exit: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs when the run pauses: before its process ends, or while it waits for the quota of a
        /// provider.
        run_paused: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs when a run goes on, after a pause or the death of its process.
        run_resumed: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs when the run asks a person something, once for each question.
        question: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs when a budget has reached a share of `warn_at` or is used up, once for each scope
        /// and limit.
        on_budget: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs before each call of a tool; it can deny the call, or have a person
        /// asked.
        pre_tool_use: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that runs after each call of a tool; it can add a note for the model.
        post_tool_use: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The answer for a call if `pre_tool_use` does not work (it cannot be started, is over its time,
        /// ends with another exit code than 0 and 2, or prints what is not understood): `deny`, or
        /// `allow`, the rules decide.
        on_error: OnHookError = OnHookError::Deny, words_of::<OnHookError>(&[]);
        /// The time limit of each command.
        timeout: Duration = Duration::from_secs(60), Kind::Time;
    }
}
