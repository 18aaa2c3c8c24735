//! `check --connect`: calls each model in use once, and prints what came of it.

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::cli::args;
use crate::cli::locate::Project;
use crate::cli::trust::Trust;
use crate::cli::{complain, runtime, say, say_json, trust};
use crate::config::{Config, Diagnostics, Outside, PriceSource, Sources};
use crate::exit::Exit;
use crate::model::Remaining;
use crate::printable;
use crate::run::connect::{Connection, Outcome, Reached, callable, connect};
use crate::spec::ModelSpec;
use crate::spec::capability::ModelFacts;

/// Calls the models of a configuration that was checked. `read` loads it again, if files outside its
/// directory were left out.
pub(super) fn run(
    project: &Project,
    verb: &args::Check,
    sources: &Sources,
    config: Config,
    read: impl Fn(Outside) -> Result<Config, Diagnostics>,
) -> Exit {
    let trusting = if verb.trust { Trust::Given } else { Trust::Ask };
    let config = match trust::complete(project, trusting, sources, config, read) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    let names: Vec<&str> = callable(&config).map(|model| model.name.as_str()).collect();
    complain(&match names.as_slice() {
        [] => "note: no model in use is called over a network".to_owned(),
        [name] => format!("note: this makes 1 paid call of a few tokens: {name}"),
        names => {
            let count = names.len();
            format!(
                "note: this makes {count} paid calls of a few tokens each: {}",
                names.join(", ")
            )
        }
    });
    match runtime() {
        Ok(runtime) => runtime.block_on(print(&config, verb)),
        Err(exit) => exit,
    }
}

/// Prints a line for each model when it has answered.
async fn print(config: &Config, verb: &args::Check) -> Exit {
    let mut asked = std::pin::pin!(connect(config));
    let mut exit = Exit::Done;
    while let Some(connection) = asked.next().await {
        let printed = match verb.json {
            true => say_json(&format!("{}\n", document(config, &connection))),
            false => say(&format!("{}\n", line(config, &connection))),
        };
        if printed != Exit::Done {
            return printed;
        }
        if matches!(connection.outcome, Outcome::Failed { .. }) {
            exit = Exit::Provider;
        }
    }
    exit
}

fn line(config: &Config, Connection { model, outcome }: &Connection<'_>) -> String {
    let ModelSpec { name, provider, model: asked, .. } = model;
    let what = match outcome {
        Outcome::Skipped => "not asked: no network is needed for its answers".to_owned(),
        Outcome::Failed { kind, message } => {
            let kind = word(kind);
            let message = printable::line(message);
            format!("{kind}: {message}; `callsheet explain {kind}` says what to do")
        }
        Outcome::Reached(reached) => format!("{}; {}", facts(reached), price(config, model)),
    };
    format!("{provider}/{name} ({}): {what}", printable::line(asked))
}

/// Describes a model that answered.
fn facts(reached: &Reached) -> String {
    let mut parts = vec![match reached.first_token {
        Some(first) => {
            let (first, took) = (first.as_secs_f64(), reached.took.as_secs_f64());
            format!("answers, first token after {first:.1} s of {took:.1} s")
        }
        None => format!("answers after {:.1} s, without a word", reached.took.as_secs_f64()),
    }];
    parts.push(match &reached.usage {
        Some(usage) => {
            let (input, cached) = (usage.context(), usage.cache_read);
            format!("tokens reported: {input} in, {cached} of them cached, {} out", usage.output)
        }
        None => "no tokens reported: costs and sizes are estimates".to_owned(),
    });
    let left =
        |rest: Option<Remaining>, what: &str| rest.map(|rest| format!("{} {what}", rest.left));
    let limits =
        [left(reached.allowance.requests, "requests"), left(reached.allowance.tokens, "tokens")];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if !limits.is_empty() {
        parts.push(format!("left of its limits: {}", limits.join(", ")));
    }
    match &reached.facts {
        None => {}
        Some(Err(error)) => parts.push(format!("capabilities unknown: {error}")),
        Some(Ok(facts)) => {
            let names = capabilities(facts);
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            parts.push(format!("capabilities: {names}"));
        }
    }
    parts.join("; ")
}

fn price(config: &Config, model: &ModelSpec) -> String {
    match (model.price, config.price_sources.get(&model.name)) {
        (Some(_), Some(PriceSource::Builtin { checked, .. })) => {
            format!("price built in, of {checked}")
        }
        (Some(_), Some(PriceSource::File) | None) => "price in the file".to_owned(),
        (None, _) => "no price".to_owned(),
    }
}

fn capabilities(facts: &ModelFacts) -> Vec<&'static str> {
    facts.capabilities.names().collect()
}

/// Returns the word of a failure's kind, as records have it.
fn word(kind: &crate::failure::FailureKind) -> String {
    serde_json::to_value(kind)
        .ok()
        .and_then(|word| Some(word.as_str()?.to_owned()))
        .unwrap_or_default()
}

fn document(config: &Config, Connection { model, outcome }: &Connection<'_>) -> Value {
    let mut told = json!({
        "provider": model.provider,
        "name": model.name,
        "model": model.model,
        "status": match outcome {
            Outcome::Skipped => "skipped",
            Outcome::Reached(_) => "reached",
            Outcome::Failed { .. } => "failed",
        },
        "price": model.price.map(|price| json!({
            "input": price.input,
            "output": price.output,
            "cache_read": price.cache_read,
            "cache_write": price.cache_write,
            "checked": match config.price_sources.get(&model.name) {
                Some(PriceSource::Builtin { checked, .. }) => Some(checked),
                Some(PriceSource::File) | None => None,
            },
        })),
    });
    match outcome {
        Outcome::Skipped => {}
        Outcome::Failed { kind, message } => {
            told["error"] = json!({ "kind": kind, "message": message });
        }
        Outcome::Reached(reached) => {
            let left = |rest: Option<Remaining>| rest.map(|rest| rest.left);
            let (requests, tokens) = (reached.allowance.requests, reached.allowance.tokens);
            told["first_token_ms"] = json!(reached.first_token.map(|first| first.as_millis()));
            told["took_ms"] = json!(reached.took.as_millis());
            told["usage"] = json!(reached.usage);
            told["left"] = json!({ "requests": left(requests), "tokens": left(tokens) });
            let facts = reached.facts.as_ref().and_then(|facts| facts.as_ref().ok());
            told["capabilities"] = json!(facts.map(capabilities));
        }
    }
    json!({ "connection": told })
}
