//! Proposes tasks for the run on behalf of an agent: checks them, asks a person where the
//! configuration does not allow them, and waits until they are part of the plan.

use std::sync::Arc;

use serde_json::json;

use super::asked::Asked;
use super::permission::{self, Decision};
use super::services::{Planner, Proposed};
use super::step::StepContext;
use super::work::{self, Helper};
use crate::id::Name;
use crate::message::Json;
use crate::own_tool::{OwnTool, ProposeTasks};
use crate::permission::Permissions;
use crate::run_machine::{Proposal, Refused};
use crate::spec::TaskSpec;
use crate::spec::sandbox::Confinement;
use crate::tool::sandbox::Sandbox;
use crate::tool::{ToolError, ToolOutput};
use crate::turn_machine::PendingCall;

/// The most bytes of a proposal: more than 200 tasks need, and what a person can still read.
const BYTES: usize = 256 << 10;

/// Proposes the tasks of a call of `propose_tasks`, and returns what became of them for the model.
///
/// # Errors
/// Returns an error if the arguments are wrong, or if the agent must end before a person has answered.
pub(super) async fn propose(
    context: &StepContext,
    call: &PendingCall,
    ProposeTasks { tasks: text }: &ProposeTasks,
) -> Result<ToolOutput, ToolError> {
    if text.len() > BYTES {
        return Err(ToolError::Arguments(format!("`tasks` has more than {BYTES} bytes")));
    }
    let Some(planner) = &context.services.planner else {
        return Err(ToolError::Failed("this run takes no more tasks".to_owned()));
    };
    // What was asked about before the agent rested is not read again.
    let asked = context.answers.waits.before(&call.key).and_then(|wait| wait.asked);
    let proposed = match asked.as_ref().and_then(|asked| asked.plan.clone()) {
        Some(proposed) => proposed,
        // A resumed agent repeats a call whose result was not recorded.
        None if planner.has(&call.key) => {
            Arc::new(Proposed { is_allowed: true, ..Proposed::default() })
        }
        None => match read(context, call, planner, text).await? {
            Ok(proposed) => Arc::new(proposed),
            Err(problem) => return Ok(ToolOutput::error(format!("Nothing was added: {problem}"))),
        },
    };
    let unasked = asked.is_none() && proposed.is_allowed && is_free(context, &proposed.tasks);
    if !unasked {
        let asked = asked.unwrap_or_else(|| Asked::of_plan(proposed.clone()));
        if let Decision::Denied(refusal) = permission::asked(context, call, asked).await? {
            return Ok(ToolOutput::denied(refusal));
        }
    }
    let proposed = Arc::unwrap_or_clone(proposed);
    let names: Vec<_> = proposed.tasks.iter().map(|task| task.name.to_string()).collect();
    let proposal = Proposal {
        call: call.key.clone(),
        text: text.clone(),
        tasks: proposed.tasks,
        agents: proposed.agents,
        files: proposed.files,
        unasked,
    };
    let answer = tokio::select! {
        () = context.cancel.cancelled() => return Err(ToolError::Unanswered),
        answer = context.request(call.key.as_str(), proposal) => answer,
    };
    Ok(match answer {
        Some(Ok(())) => {
            let which =
                if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
            ToolOutput::ok(format!("The tasks were added to the run{which}."))
        }
        Some(Err(Refused(reason))) => ToolOutput::error(format!("Nothing was added: {reason}.")),
        // This cannot happen: no other task waits for the same call.
        None => return Err(ToolError::Unanswered),
    })
}

/// Returns true if an agent could give the work of these tasks to others without a person, and if it
/// is kept from nothing from which the tasks would not be kept: they do not work for it, so its bounds
/// do not hold for them.
fn is_free(context: &StepContext, tasks: &[TaskSpec]) -> bool {
    let Some(spec) = &context.spec else { return false };
    let Permissions { own, above, .. } = &spec.permissions;
    let is_bound = !own.deny.is_empty()
        || !above.is_empty()
        || context.confinement.and(spec.confinement) != Confinement::default();
    let mut others = tasks.iter().flat_map(TaskSpec::agents).filter(|agent| **agent != spec.name);
    let delegate = OwnTool::Delegate.name();
    let may_delegate = |agent: &Name| {
        context.depth < context.services.limits.max_depth
            && permission::is_allowed(context, delegate, &Json::encode(&json!({"agent": agent})))
    };
    !is_bound && others.all(may_delegate)
}

/// What a model can do about a proposal that ended the process twice.
const LESS: &str = "Propose less at a time, or other tasks";

/// Checks the tasks of a proposal, outside the mailbox.
async fn read(
    context: &StepContext,
    call: &PendingCall,
    planner: &Arc<dyn Planner>,
    text: &str,
) -> Result<Result<Proposed, String>, ToolError> {
    let Some(definition) = context.spec.as_ref().map(|spec| spec.name.clone()) else {
        return Err(ToolError::Failed("a command proposes nothing".to_owned()));
    };
    let (planner, by) = (planner.clone(), context.agent.clone());
    let own = text.to_owned();
    // A model wrote what the libraries of templates, schemas and TOML read here.
    let marked = context.services.under_way.work(by.as_str(), call.key.as_str()).await;
    let (mark, _turn) = marked.map_err(|reason| ToolError::Failed(format!("{reason}. {LESS}")))?;
    let read = work::blocking(Helper::Proposal, move || {
        let _mark = mark;
        planner.read(&by, &definition, &own)
    });
    let read = read.await;
    let read = read.map_err(|error| ToolError::Failed(error.to_string()))?;
    Ok(read.and_then(|proposed| {
        // A model wrote the command, so it needs the sandbox that is wanted.
        let command = proposed.tasks.iter().find(|task| task.has_command());
        match (&context.surroundings.sandbox, command) {
            (Sandbox::Missing(reason), Some(task)) => {
                let name = &task.name;
                Err(format!(
                    "task `{name}` has a command, and there is no sandbox for it: {reason}"
                ))
            }
            _ => Ok(proposed),
        }
    }))
}
