//! Gathers the texts that an agent reads again after a compaction: files, skills, state, and the
//! answer of a hook.
//!
//! Runs when the summary is there and before the edit is recorded: the texts become part of the
//! edit, so that a rebuilt view needs no disk.

use std::time::Duration;

use super::hooks;
use super::mail::StepError;
use super::step::StepContext;
use super::{permission, tool_context, work};
use crate::context::Edit;
use crate::context::layers::attachments::{self, Material, Reread};
use crate::context::layers::inventory::Inventory;
use crate::context::view::View;
use crate::id::CallKey;
use crate::message::Json;
use crate::tool::ToolOutput;

/// The time limit for reading one file or skill: a disk that hangs must not stop the agent.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// A line limit that is larger than any file: a file that is small enough comes back whole.
const ALL_LINES: u64 = 1 << 40;

/// Adds to an edit of `view` the texts that the agent reads again, as far as there is space: with
/// them the view holds at most `most_tokens` tokens, which is less than triggers a compaction, and
/// at most half of the tokens that it had. The second limit matters for a view that was compacted
/// early.
///
/// # Errors
/// Returns an error if the agent is cancelled.
pub(super) async fn add(
    context: &StepContext,
    inventory: &Inventory,
    view: &View,
    edit: Edit,
    most_tokens: u64,
) -> Result<Edit, StepError> {
    let mut after = view.clone();
    if after.apply(&edit).is_err() || after.chars() >= view.chars() {
        // The edit makes the view no smaller, so there will be no compaction. The caller records
        // the reason.
        return Ok(edit);
    }
    let recovery = context.services.compaction.preset.recovery;
    let mut material =
        Material { from_hook: hooks::added_context(context).await?, ..Material::default() };
    if let Some(recovery) = recovery {
        material.state = inventory.state().map(|state| state.to_string());
        for path in inventory.files_out_of(&after, recovery.files) {
            let input = serde_json::json!({"path": path, "limit": ALL_LINES});
            material.files.push(reread(context, "read_file", path, &input).await);
        }
        for name in inventory.skills() {
            let input = serde_json::json!({"name": name});
            material.skills.push(reread(context, "load_skill", name, &input).await);
        }
    }
    if context.cancel.is_cancelled() {
        return Err(StepError::Cancelled);
    }
    let free_tokens = most_tokens.min(view.tokens() / 2).saturating_sub(after.tokens());
    Ok(match recovery.unwrap_or_default().render(&material, free_tokens) {
        Some(text) => attachments::attach(edit, text),
        None => edit,
    })
}

/// Reads a file or a skill by its tool, under the permissions of the agent; does not read it if a
/// person would have to be asked.
async fn reread(
    context: &StepContext,
    tool: &str,
    name: String,
    input: &serde_json::Value,
) -> Reread {
    let input = Json::encode(input);
    let text = match context.services.tools.get(tool).cloned() {
        Some(_) if !permission::is_allowed(context, tool, &input) => {
            Err("it may not be read without a person's leave".to_owned())
        }
        Some(called) => {
            let (run, agent) = (context.services.run, &context.agent);
            let key = CallKey::derive(run, agent, context.turn, 0, tool, input.as_str());
            let mut tool_context = tool_context::tool_context(context, key);
            tool_context.timeout = READ_WITHIN;
            let work = work::caught(async move { called.call(input, tool_context).await });
            match tokio::time::timeout(READ_WITHIN, work).await {
                Ok(Ok(result)) => result.map_err(|error| error.to_string()),
                Ok(Err(panic)) => Err(format!("{tool} crashed ({panic})")),
                Err(_) => Err(format!("{tool} took too long")),
            }
        }
        None => Err(format!("there is no {tool}")),
    };
    let redacted = |mut text: String| {
        context.services.secrets.redact(&mut text);
        text
    };
    let text = match text {
        Ok(output) if !output.is_error() => Ok(redacted(output.text)),
        Ok(ToolOutput { text, .. }) | Err(text) => Err(redacted(text)),
    };
    Reread { name, text }
}
