//! The first records of a run that is opened again: the configuration that it accepts, the tasks
//! that begin again, and the agents that continue although they had ended.
//!
//! Pure. A resume appends these records, and the forecast of a resume applies them to a copy of the state.

use std::collections::HashSet;

use crate::event::{Accepted, Draft, Event, Record, RunOpened};
use crate::id::AgentId;
use crate::run_state::{IllegalRecord, Retry, RunState};
use crate::turn::AgentRestarted;

/// Reason for the restart of an agent whose task is retried.
const RETRIED: &str = "its task is retried";

/// The way in which a run is opened again.
#[derive(Clone, Debug, Default)]
pub enum Reopening {
    /// With the recorded configuration. Tasks that wait for the resume begin again.
    #[default]
    AsRecorded,
    /// With the recorded configuration. These tasks begin again.
    Retrying(Retry),
    /// With another configuration, under which every task is decided again.
    Accepting(Box<Accepted>),
}

impl Reopening {
    /// Returns the records, for a run with this state that is opened for the `epoch`-th time.
    pub fn drafts(&self, state: &RunState, epoch: u64) -> Vec<Draft> {
        let opened = RunOpened::by_this_process(epoch);
        let (opened, agents) = match self {
            Self::Accepting(accepted) => {
                let tasks: HashSet<_> = accepted.tasks.iter().map(|task| &task.name).collect();
                let agents = state.continued_by(&tasks);
                (RunOpened { accepted: Some(accepted.clone()), ..opened }, agents)
            }
            Self::Retrying(Retry { tasks, agents, reopened }) => {
                let (retried, reopened) = (tasks.clone(), reopened.clone());
                (RunOpened { retried, reopened, ..opened }, agents.clone())
            }
            Self::AsRecorded => {
                let Retry { tasks, agents, .. } = state.retry_on_resume();
                (RunOpened { retried: tasks, ..opened }, agents)
            }
        };
        let restarts = agents.iter().filter_map(|id| restart(state, id));
        std::iter::once(Draft::run(opened)).chain(restarts).collect()
    }

    /// Returns the state of a run once these records are applied.
    pub fn state_after(&self, state: &RunState) -> Result<RunState, IllegalRecord> {
        let (epoch, ts_ms) = (state.epoch() + 1, state.last_ms());
        let mut after = state.clone();
        for (seq, draft) in (state.last_seq() + 1..).zip(self.drafts(state, epoch)) {
            let Draft { task, agent, event } = draft;
            after.apply(&Record { seq, epoch, ts_ms, task, agent, event })?;
        }
        Ok(after)
    }
}

fn restart(state: &RunState, id: &AgentId) -> Option<Draft> {
    let agent = state.agents().get(id)?;
    let event = Event::from(AgentRestarted::new(agent.restarts + 1, RETRIED, None));
    Some(Draft::agent(&agent.task, id, event))
}
