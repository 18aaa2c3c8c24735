//! The tasks and the model that a person chose for a run, against the file. Used by `run` and its dry run.

use super::complain;
use crate::config::{Config, PriceSource, suggest};
use crate::exit::Exit;
use crate::spec::ModelSpec;

/// Reports a task that the file does not have.
pub(super) fn known_tasks(config: &Config, tasks: &[String]) -> Result<(), Exit> {
    let known = || config.tasks.iter().map(|task| task.name.as_str());
    let Some(unknown) = tasks.iter().find(|name| known().all(|task| task != **name)) else {
        return Ok(());
    };
    complain(&format!("error: there is no task `{unknown}`"));
    complain(&format!("help: {}", suggest(unknown, known())));
    Err(Exit::Usage)
}

/// Says which facts about a model are those of the file, which knows another model by this name.
pub(super) fn note_facts_of_file(config: &Config, model: Option<&str>) {
    let is_given = |spec: &&ModelSpec| model.is_some_and(|given| spec.model == given);
    let key = |spec: &ModelSpec| format!("models.{}.model", spec.name);
    let given =
        config.models.values().find(|spec| is_given(spec) && config.set.contains_key(&key(spec)));
    let Some(spec) = given else { return };
    let price = match config.price_sources.get(&spec.name) {
        Some(PriceSource::File) => " and the prices",
        Some(PriceSource::Builtin { .. }) | None => "",
    };
    complain(&format!(
        "note: the context window ({} tokens){price} of `{}` come from `models.{}` in the file",
        spec.context_window, spec.model, spec.name
    ));
}
