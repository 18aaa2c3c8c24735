//! The examples of the help texts: command lines that work in a folder after `callsheet init` and `callsheet run`.
//!
//! Words in capitals stand for ids that each run has of its own. `tests/cli/helps.rs` parses every line and runs those
//! that need nothing else.

/// Joins the lines of the examples of a verb.
macro_rules! examples {
    ($name:ident, $($line:literal),+ $(,)?) => {
        pub(in crate::cli) const $name: &str = concat!("Examples:", $("\n  ", $line),+);
    };
}

examples!(
    RUN,
    "callsheet run                                   # everything in agents.toml",
    "callsheet run --dry-run                         # what that would do",
    "callsheet run write --input path=scripts --set limits.max_concurrency=2",
    "callsheet run --profile live -d                 # a real model, without this terminal",
);
examples!(ATTACH, "callsheet attach                                # the newest run");
examples!(
    RESUME,
    "callsheet resume                                # the newest run",
    "callsheet resume review --retry-failed          # what failed, again",
    "callsheet resume --accept-changes --explain     # what an edit of agents.toml would change",
);
examples!(
    CHECK,
    "callsheet check",
    "callsheet check --cost                          # what a run may cost, and what bounds it",
    "callsheet check --profile live --connect        # tries keys and models: a few paid tokens",
);
examples!(TRUST, "callsheet trust", "callsheet trust --list");
examples!(
    TAIL,
    "callsheet tail -f                               # every agent, while it works",
    "callsheet tail review --agent security -n 20",
);
examples!(PS, "callsheet ps -a", "callsheet ps --tree");
examples!(
    SHOW,
    "callsheet show                                  # the newest run",
    "callsheet show review/write --output            # what a task printed",
    "callsheet show @security --transcript           # what an agent read and wrote",
);
examples!(
    WHY,
    "callsheet why                                   # the newest run",
    "callsheet why review/write                      # what it waits for, or why it failed",
    "callsheet why review --cost                     # where the money went",
);
examples!(REPORT, "callsheet report", "callsheet report review --format html");
examples!(GRAPH, "callsheet graph", "callsheet graph review --format mermaid");
examples!(
    COST,
    "callsheet cost",
    "callsheet cost review --by model",
    "callsheet cost --since 7d                       # all runs of a week",
);
examples!(
    PRUNE,
    "callsheet prune --keep 50 --dry-run             # what would go",
    "callsheet prune --older-than 30d",
);
examples!(
    CANCEL,
    "callsheet cancel review                         # the newest run of `review`",
    "callsheet cancel review/security                # one task of it",
);
examples!(PENDING, "callsheet pending");
examples!(
    BUDGET,
    "callsheet budget review                         # what it has spent",
    "callsheet budget RUN --max-cost 10              # raise its limit",
);
examples!(
    APPROVE,
    "callsheet approve ID                            # an id of `callsheet pending`"
);
examples!(REJECT, "callsheet reject ID --reason \"the tests come first\"");
examples!(ANSWER, "callsheet answer ID \"use the second one\"");
examples!(COMPACT, "callsheet compact review/@security --focus \"the open findings\"");
examples!(
    SAY,
    "callsheet say review/@security \"leave the tests alone\"",
    "callsheet say review/@security -                # the text comes from stdin",
);
examples!(
    PAUSE,
    "callsheet pause review/@security --reason \"I look at its last edit\"",
    "callsheet pause review                          # all of it",
);
examples!(UNPAUSE, "callsheet unpause review/@security");
examples!(
    FORK,
    "callsheet fork review                           # the places at which a fork can begin",
    "callsheet fork review@SEQ --set agents.editor.max_turns=80",
);
examples!(REBUILD, "callsheet rebuild review");
examples!(SERVICE, "callsheet service install --print");
examples!(CONTEXT, "callsheet context explain review/@security");
examples!(CONTEXT_APPLY, "callsheet context apply review/@security --preset production");
examples!(
    CONTEXT_REPLAY,
    "callsheet context replay review/@security --preset production",
    "callsheet context replay review/@security --compare",
);
examples!(CONTEXT_SCORE, "callsheet context score review/@security");
examples!(
    INIT,
    "callsheet init",
    "callsheet init review-demo",
    "callsheet init fix-demo --template fix",
);
examples!(
    EXPLAIN,
    "callsheet explain unknown_key                   # a code of `callsheet check`",
    "callsheet explain 4                             # an exit code",
);
examples!(SCHEMA, "callsheet schema", "callsheet schema events");
examples!(DOCTOR, "callsheet doctor");
examples!(MAN, "callsheet man run", "callsheet man --dir man1");
examples!(COMPLETIONS, "callsheet completions bash");
examples!(VERSION, "callsheet version --json");
