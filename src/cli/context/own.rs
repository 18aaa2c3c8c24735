//! The user's own settings for a replay: the `[compaction]` of an agents.toml, and the window and prices of one
//! of its models.

use std::path::Path;

use crate::cli::args::OwnSettings;
use crate::cli::complain;
use crate::cli::locate::Project;
use crate::cli::trust;
use crate::config::{Config, Missing, Sources, suggest};
use crate::context::layers::preset::Preset;
use crate::context::layers::{Surroundings, Window};
use crate::exit::Exit;
use crate::id::Name;
use crate::printable;
use crate::spec::{ModelSpec, Price, RelativePrice};

use super::source::Source;

/// Name of the folder of results in markers. A replay does not make this folder.
const RESULTS: &str = "results";

/// Window in tokens where nobody gives one.
pub(super) const WINDOW_TOKENS: u64 = 200_000;

/// A preset that a replay is made with.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    /// Name in a table: that of the preset, or of the file that it is from.
    pub name: String,
    pub preset: Preset,
    /// The file whose constants the preset has, if they are not its own.
    pub config: Option<String>,
}

/// The conditions of a replay: the window of the requests, and the prices.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    tokens: u64,
    output: u64,
    pub price: Option<Price>,
}

impl Contender {
    /// Returns the preset of that name with its own constants.
    pub(super) fn named(name: &str) -> Result<Self, Exit> {
        Ok(Self { name: name.to_owned(), preset: super::preset(name)?, config: None })
    }

    /// Returns all presets with their own constants.
    pub(super) fn all() -> Vec<Self> {
        Preset::NAMES.into_iter().filter_map(|name| Self::named(name).ok()).collect()
    }
}

impl Terms {
    /// Returns what the layers know beside the view of a conversation of this name.
    pub(super) fn around<'a>(&self, name: &'a str, source: &Source) -> Surroundings<'a> {
        let overhead = source.system.tokens();
        let window = Window { tokens: self.tokens, output: self.output, overhead };
        let price = relative(self.price.as_ref());
        Surroundings { price, ..Surroundings::new(name, RESULTS, window) }
    }
}

/// Returns the prices in units of the input price; the published ratios if there are none.
pub(super) fn relative(price: Option<&Price>) -> RelativePrice {
    price.and_then(Price::relative).unwrap_or_default()
}

/// Returns the preset of the configuration that the user gave, if any, and the conditions. What a flag says
/// counts more than what a model has.
pub(super) fn read(
    project: &Project,
    own: &OwnSettings,
    output: Option<u64>,
    price: Option<&Price>,
) -> Result<(Option<Contender>, Terms), Exit> {
    let Some(file) = &own.config else {
        if own.agent.is_some() {
            complain("error: --agent names an agent of a file: give it with --config FILE");
            return Err(Exit::Usage);
        }
        let tokens = own.context_window.unwrap_or(WINDOW_TOKENS);
        let terms = Terms { tokens, output: output.unwrap_or(0), price: price.cloned() };
        return Ok((None, terms));
    };
    // A directory stands for the file of the usual name in it.
    let file =
        if file.is_dir() { file.join(crate::cli::locate::DEFAULT_FILE) } else { file.clone() };
    let other = Project::new(file, project.state_dir.clone(), project.times.clone());
    let sources =
        Sources { missing_keys: Missing::Allow, missing_inputs: Missing::Allow, ..other.sources() };
    let config = trust::looked(&sources)?;
    let model = model(&config, own.agent.as_deref(), &other.file)?;
    let window = own.context_window.or(model.map(|model| model.context_window));
    let output = output.or(model.map(|model| model.max_output_tokens));
    let terms = Terms {
        tokens: window.unwrap_or(WINDOW_TOKENS),
        output: output.unwrap_or(0),
        price: price.or(model.and_then(|model| model.price.as_ref())).cloned(),
    };
    let path = other.file.to_string_lossy().into_owned();
    let name =
        other.file.file_name().map_or_else(|| path.clone(), |n| n.to_string_lossy().into_owned());
    let name = printable::line(&name).into_owned();
    let preset = config.compaction.preset.clone();
    Ok((Some(Contender { name, preset, config: Some(path) }), terms))
}

/// Returns the model of the agent that the user named, or that of the only agent.
fn model<'a>(
    config: &'a Config,
    agent: Option<&str>,
    file: &Path,
) -> Result<Option<&'a ModelSpec>, Exit> {
    let spec = match (agent, config.agents.len()) {
        (Some(name), _) => {
            let known = Name::new(name).ok().and_then(|name| config.agents.get(&name));
            Some(known.ok_or_else(|| {
                complain(&format!("error: {}: there is no agent `{name}`", file.display()));
                match suggest(name, config.agents.keys().map(Name::as_str)) {
                    help if help.is_empty() => complain("help: the file defines no agent"),
                    help => complain(&format!("help: {help}")),
                }
                Exit::Usage
            })?)
        }
        (None, 1) => config.agents.values().next(),
        (None, _) => None,
    };
    Ok(spec.and_then(|spec| config.models.get(&spec.model)))
}
