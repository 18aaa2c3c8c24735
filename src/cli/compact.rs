//! `compact`: asks a live agent to compact its context now.

use super::args;
use super::locate::{Project, Selector};
use super::{complain, runtime};
use crate::client::{Acknowledgement, Client, ClientError, Operation};
use crate::exit::Exit;
use crate::id::AgentId;

pub(super) fn run(project: &Project, verb: &args::Compact) -> Exit {
    let (run, part) = match project.part(Some(&verb.what)) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let Selector::Agent(agent) = part else {
        complain("error: an agent is needed: RUN/@AGENT");
        return Exit::Usage;
    };
    let operation =
        Operation::Compact { agent: AgentId::from_text(&agent), focus: verb.focus.clone() };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(Client::of(run).send(operation)) {
        Ok(Acknowledgement::Taken { busy }) => {
            note_busy(busy.as_deref());
            Exit::Done
        }
        Ok(Acknowledgement::NotFound) => {
            complain(&format!("error: agent `{agent}` is not running"));
            Exit::Failed
        }
        Err(ClientError::NotDriven) => {
            complain(
                "error: no process drives the run; `callsheet resume` resumes it if it has not \
                 ended",
            );
            Exit::Failed
        }
        Err(error) => {
            complain(&format!("error: {error}"));
            Exit::Failed
        }
    }
}

/// Says that the supervisor of a run does something else first.
pub(super) fn note_busy(busy: Option<&str>) {
    if let Some(busy) = busy {
        complain(&format!(
            "note: the supervisor of the run is {busy}: it takes this up afterwards"
        ));
    }
}
