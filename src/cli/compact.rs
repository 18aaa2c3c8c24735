//! `compact`: asks a live agent to compact its context now.

use super::args;
use super::complain;
use super::locate::{Project, Selector};
use crate::exit::Exit;
use crate::id::AgentId;
use crate::run::control::{self, Request};

pub(super) fn run(project: &Project, verb: &args::Compact) -> Exit {
    let (run, part) = match project.part(Some(&verb.what)) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let Selector::Agent(agent) = part else {
        complain("error: an agent is needed: RUN/@AGENT");
        return Exit::Usage;
    };
    let request = Request::Compact { agent: AgentId::from_text(&agent), focus: verb.focus.clone() };
    match control::ask(&*run, &request) {
        Ok(answer) if answer.found => {
            if let Some(busy) = answer.busy {
                complain(&format!(
                    "note: the supervisor of the run is {busy}: it hears of this then"
                ));
            }
            Exit::Done
        }
        Ok(control::Answer { error: Some(error), .. }) => {
            complain(&format!("error: the process that drives the run refused: {error}"));
            Exit::Failed
        }
        Ok(_) => {
            complain(&format!("error: agent `{agent}` is not at work"));
            Exit::Failed
        }
        Err(_) if !run.is_live() => {
            complain(
                "error: no process drives the run; `callsheet resume` resumes it if it has not \
                 ended",
            );
            Exit::Failed
        }
        Err(error) => {
            complain(&format!("error: the process that drives the run cannot be reached: {error}"));
            Exit::Failed
        }
    }
}
