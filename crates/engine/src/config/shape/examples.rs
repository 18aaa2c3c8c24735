//! Values of keys as a file would write them, for the documentation and for advice.
//!
//! Each is valid for its key: a test feeds all of them to the check.

use super::Kind;
use super::kinds::LINE;

/// Returns a value of the key `name`, which has values of this kind; `None` if there is no short one.
pub(in crate::config) fn of(name: &str, kind: &Kind) -> Option<String> {
    let own = match (name, kind) {
        ("requires", _) => r#"">=0.1""#,
        ("name", Kind::Text(..)) => r#""nightly""#,
        ("description", _) => r#""Reviews each change.""#,
        ("instructions", _) => r#""You review code.""#,
        ("model", Kind::Text(LINE, _)) => r#""claude-sonnet-4-5""#,
        ("pattern", _) => r#""^[A-Z]+-[0-9]+$""#,
        ("base_url", _) => r#""https://models.example.com/v1""#,
        ("url", Kind::Header(_)) => r#""https://chat.example.com/hook""#,
        ("webhook", _) => r#"{ url = "https://chat.example.com/hook" }"#,
        ("script", _) => r#""offline/model.toml""#,
        ("retry_on", _) => r#"["rate_limit"]"#,
        ("context_window", _) => "200_000",
        ("max_output_tokens", _) => "8_192",
        ("output_schema", _) => r#"{ type = "object" }"#,
        ("command", _) => r#"["./scripts/tool"]"#,
        ("notify", Kind::Table(_)) => r#"{ command = ["./scripts/tool"] }"#,
        ("on_start" | "on_success" | "on_failure" | "on_exit", Kind::List(_))
        | ("run_paused" | "run_resumed" | "question" | "on_budget", Kind::List(_)) => {
            r#"["./scripts/tool"]"#
        }
        ("hooks", Kind::Table(_)) => return None,
        ("pre_tool_use" | "post_tool_use", _) => r#"["./scripts/tool"]"#,
        ("pre_compact" | "post_compact" | "after_compact_context", _) => r#"["./scripts/tool"]"#,
        ("writable_roots" | "readable_roots", _) => r#"["docs"]"#,
        ("dir", _) => r#""records""#,
        ("cwd", _) => r#""docs""#,
        ("run", Kind::Text(..)) => r#""make test""#,
        ("join", _) => r#""all_done""#,
        ("foreach", _) => r#""inputs.files""#,
        ("foreach_key", _) => r#""{{ item }}""#,
        ("until", _) => r#""output.done""#,
        ("loop", _) => r#"{ until = "output.done", max_iterations = 3 }"#,
        ("checks", _) => r#"[{ run = "make test" }]"#,
        ("output_file", _) => r#""out/report.md""#,
        ("idempotency_key", _) => r#""release-{{ run.id }}""#,
        ("message", _) => r#""Publish {{ inputs.path }}?""#,
        ("approval", _) => r#"{ message = "Publish {{ inputs.path }}?" }"#,
        ("workflow", _) => r#""workflows/tests.toml""#,
        ("env", Kind::Map(..)) => r#"{ FOLDER = "{{ inputs.path }}" }"#,
        ("network", Kind::Truth) => "false",
        ("repeat", Kind::List(_)) => "[6, 8, 10]",
        ("layers", _) => return None,
        ("stdin", _) => r#""{{ inputs.path }}""#,
        _ => return kind.example(),
    };
    Some(own.to_owned())
}
