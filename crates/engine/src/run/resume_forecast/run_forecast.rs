//! Forecasts what the run machine does, as far as no agent has to work for it.
//!
//! Reads for that what the run directory holds of outputs, and writes nothing.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::event::RunCreated;
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::journal::{JournalError, stamp};
use crate::output::Output;
use crate::plan::Plan;
use crate::run::StartError;
use crate::run::commands::Command;
use crate::run::settings::machine_settings;
use crate::run_machine::forecast::{self, Forecast, Lookup};
use crate::run_machine::{Now, Start, UnfinishedAgent};
use crate::run_state::RunState;
use crate::spec::TaskSpec;
use crate::store;
use crate::turn::Outcome;

/// Forecasts what the run machine does from `state` on, as far as no agent has to work for it.
pub(super) fn forecast_run(
    results: PathBuf,
    state: RunState,
    plan: Plan,
    config: &Config,
    created: &RunCreated,
    outputs: Map<String, Value>,
    commands: &BTreeMap<Name, Command>,
) -> Result<Forecast, StartError> {
    let settings = machine_settings((created.run, results.clone()), plan, config, created.into());
    // A forecast needs no more of an agent that has not ended than that it exists.
    let open = state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
    let unfinished = open.map(|(id, _)| (id.clone(), UnfinishedAgent::default())).collect();
    let ends = state.agents().iter().filter_map(|(id, agent)| {
        let failure = commands.get(&agent.task)?.fate().err()?;
        Some((id.clone(), Outcome::Failed { failure, partial: None }))
    });
    let mut eyes = Eyes { results, ends: ends.collect() };
    let (answers, cancelled, given_up) = (Vec::new(), None, None);
    let start = Start { state, unfinished, outputs, answers, cancelled, given_up, seed: 0 };
    let now = Now { wall_ms: stamp::now_ms(), ..Now::default() };
    Ok(forecast::forecast(settings, start, now, &mut eyes)?)
}

/// Reads for a forecast what it needs from the run directory.
struct Eyes {
    results: PathBuf,
    /// The agents whose end is certain, because their command has failed or was interrupted.
    ends: HashMap<AgentId, Outcome>,
}

impl Lookup for Eyes {
    type Error = JournalError;

    fn value(
        &mut self,
        task: &TaskSpec,
        output: &Output,
    ) -> Result<Result<Value, Failure>, JournalError> {
        Ok(task.read(&store::whole_text(&self.results, output)?))
    }

    fn outcome(&mut self, agent: &AgentId) -> Option<Outcome> {
        self.ends.remove(agent)
    }
}
