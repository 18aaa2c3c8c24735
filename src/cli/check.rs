//! `check`: finds every mistake in the configuration before anything is spent.
//!
//! Uses no network, except with `--connect` (`check/connect.rs`).

mod connect;
mod cost;

use super::args;
use super::locate::Project;
use super::{complain, mistakes, run, say, say_json, trust};
use crate::config::{self, Config, PriceSource, ProviderKind, Sources};
use crate::exit::Exit;
use crate::printable;
use crate::run::sandbox;
use crate::spec::ModelSpec;

/// The most things that need trust that are listed.
const LISTED: usize = 200;

pub(super) fn run(project: &Project, verb: &args::Check) -> Exit {
    let sources = Sources {
        profile: verb.profile.clone(),
        plan: verb.plan.as_deref().map(run::absolute),
        inputs: verb.inputs.clone(),
        missing_inputs: config::Missing::Allow,
        ..project.sources()
    };
    let read = |outside| config::load(&Sources { outside, ..sources.clone() });
    let (found, checked) = match trust::look(read) {
        Ok(mut config) => {
            let count = |number: usize, noun: &str| {
                format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
            };
            let kept = sandbox::proof(&config);
            let kept = kept.map(|kept| format!("sandbox of commands: {kept}\n"));
            let summary = format!(
                "{}: {}, {}, {}: no mistakes\n{}{}",
                printable::line(&sources.file.to_string_lossy()),
                count(config.tasks.len(), "task"),
                count(config.agents.len(), "agent"),
                count(config.models.len(), "model"),
                kept.unwrap_or_default(),
                prices(&config),
            );
            let concerns = match trust::is_trusted(&config) {
                true => Vec::new(),
                false => config.concerns.clone(),
            };
            let rest = concerns.len().saturating_sub(LISTED);
            if rest > 0 {
                complain(&format!("note: {rest} more things need trust"));
            }
            let concerns = concerns.into_iter().filter(|concern| !concern.is_own).take(LISTED);
            let found = std::mem::take(&mut config.warnings).into_iter();
            (found.chain(concerns.map(|concern| concern.found)).collect(), Some((summary, config)))
        }
        Err(problems) => (problems.0, None),
    };
    if verb.json {
        let lines: String = found
            .iter()
            .filter_map(|found| serde_json::to_string(found).ok())
            .map(|line| line + "\n")
            .collect();
        let exit = say_json(&lines);
        if exit != Exit::Done {
            return exit;
        }
    } else {
        found.iter().for_each(mistakes::show);
    }
    match checked {
        Some((summary, config)) => {
            let mut exit = if verb.json { Exit::Done } else { say(&summary) };
            if verb.cost && exit == Exit::Done {
                exit = cost::run(project, &config, verb.json);
            }
            match exit {
                Exit::Done if verb.connect => connect::run(project, verb, &sources, config, read),
                exit => exit,
            }
        }
        None => {
            if !verb.json {
                mistakes::tally(&found, &sources);
            }
            Exit::Usage
        }
    }
}

/// Returns a line for each model in use whose price is not the file's, with the price, its day and its
/// source, and a line that names the models that cost money and have no price.
fn prices(config: &Config) -> String {
    let models = config.models_in_use.iter().filter_map(|name| config.models.get(name));
    let is_paid = |model: &&ModelSpec| {
        let provider = config.providers.get(&model.provider);
        provider.is_some_and(|spec| !matches!(spec.kind, ProviderKind::Scripted { .. }))
    };
    let unpriced = models.clone().filter(|model| model.price.is_none()).filter(is_paid);
    let unpriced: Vec<&str> = unpriced.map(|model| model.name.as_str()).collect();
    let line = |model: &ModelSpec| {
        let price = model.price?;
        let PriceSource::Builtin { checked, source } = config.price_sources.get(&model.name)?
        else {
            return None;
        };
        Some(format!(
            "prices of model {}: built in, of {checked}: ${} input, ${} output a million tokens ({source})\n",
            model.name, price.input, price.output
        ))
    };
    models.filter_map(line).chain(no_price(&unpriced)).collect()
}

/// Returns the line that names models without a price.
fn no_price(models: &[&str]) -> Option<String> {
    let (named, whose) = match models {
        [] => return None,
        [one] => (format!("model {one}"), "its"),
        many => (format!("models {}", many.join(", ")), "their"),
    };
    let how = "`cost_per_mtok` has a price, and `prices = \"builtin\"` those of known models";
    Some(format!("no price of {named}: {whose} cost is not counted; {how}\n"))
}
