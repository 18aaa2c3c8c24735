//! Runs the notification command of an approval.
//!
//! A command that cannot be run, or that ends with an error, is logged and changes nothing.

use std::time::Duration;

use serde_json::json;

use super::services::Services;
use crate::id::{AgentId, CallKey};
use crate::journal::stamp;
use crate::message::Json;
use crate::run_state::questions::Question;
use crate::spec::sandbox::Confinement;
use crate::tool::{ToolContext, hook};

/// The time that a notification command has. A run that waits only for people ends after it.
const WITHIN: Duration = Duration::from_secs(30);

/// Runs a notification command with the question as JSON on its stdin, in the sandbox.
pub(super) async fn notify(
    services: &Services,
    argv: &[String],
    question: &Question,
    confinement: Confinement,
) {
    let Question { task, agent, asked, since_ms, .. } = question;
    let input = Json::encode(&json!({
        "id": asked.id,
        "run": services.run,
        "workflow": services.workflow,
        "task": task,
        "agent": agent,
        "kind": asked.kind,
        "message": asked.message,
        "shown": asked.shown,
        "since": stamp::text(*since_ms),
        "until": asked.until_ms.map(stamp::text),
    }));
    let key = CallKey::derive(services.run, &AgentId::main(task, 1), 0, 0, "notify", &asked.id);
    let context = ToolContext {
        timeout: WITHIN,
        grace_period: services.limits.grace_period,
        ..services.surroundings.call(&services.store, key, confinement)
    };
    let failed = match hook::run(argv, &input, &context).await {
        Ok(hook::Answer::GoOn(_) | hook::Answer::Ask(_)) => return,
        Ok(hook::Answer::Block(reason)) => format!("exit code 2: {reason}"),
        Err(error) => error.to_string(),
    };
    let mut error = failed;
    services.secrets.redact(&mut error);
    tracing::warn!(%task, error, "a notification command did not work");
}
