//! The arguments of `context` and its verbs as the user typed them.

use std::path::PathBuf;

use crate::cli::complete;
use clap::{Args, Subcommand, ValueEnum};

use super::{File, examples};
use crate::spec::{Price, RelativePrice};

#[derive(Debug, Args)]
pub(in crate::cli) struct Context {
    #[command(subcommand)]
    pub verb: ContextVerb,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ContextVerb {
    /// Apply the layers that need no model, once, as a run does before its next model call
    #[command(after_help = examples::CONTEXT_APPLY)]
    Apply(Apply),
    /// Walk a recorded conversation turn by turn, and write the view that each reply would have had
    #[command(after_help = examples::CONTEXT_REPLAY)]
    Replay(Replay),
    /// Ask the views of each preset for facts that the agent needs later: what people said that binds,
    /// files, outcomes, values
    #[command(after_help = examples::CONTEXT_SCORE)]
    Score(Score),
    /// Print what the next request of an agent would contain: tokens by part, and the edits
    #[command(after_help = examples::CONTEXT)]
    Explain(Explain),
}

impl ContextVerb {
    /// Returns the path of the configuration file that the verb uses.
    pub(in crate::cli) fn file(&self) -> PathBuf {
        match self {
            Self::Apply(verb) => verb.file.file.clone(),
            Self::Replay(verb) => verb.file.file.clone(),
            Self::Score(verb) => verb.file.file.clone(),
            Self::Explain(verb) => verb.file.file.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LayerChoice {
    Budget,
    Snip,
    Micro,
    All,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Apply {
    #[command(flatten)]
    pub file: File,
    /// A conversation: {"system", "messages"}, an array of messages, a transcript, the JSONL of
    /// Claude Code, or RUN/@AGENT; `-` is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    pub source: String,
    /// The compaction preset
    #[arg(long, value_name = "PRESET")]
    pub preset: String,
    /// The layer to apply
    #[arg(long, value_enum, default_value_t = LayerChoice::All)]
    pub layer: LayerChoice,
    /// The folder for results that are removed from the view [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub results_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Replay {
    #[command(flatten)]
    pub file: File,
    /// A conversation: {"system", "messages"}, an array of messages, a transcript, the JSONL of
    /// Claude Code, or RUN/@AGENT; `-` is stdin
    #[arg(value_name = "FILE", required = true)]
    pub sources: Vec<String>,
    /// The compaction preset, with its own constants
    #[arg(long, value_name = "PRESET", required_unless_present_any = ["compare", "config"], conflicts_with = "config")]
    pub preset: Option<String>,
    /// Print what every preset would have cost and kept, sub-agents included, and the cost that the
    /// recording itself reports; takes folders; a recording of Claude Code is read whole, not only
    /// from its latest compaction on
    #[arg(long, conflicts_with = "preset")]
    pub compare: bool,
    #[command(flatten)]
    pub own: OwnSettings,
    /// The tokens of the window that are kept for replies [default: 0, or as the agent's model says]
    #[arg(long, value_name = "TOKENS")]
    pub max_output_tokens: Option<u64>,
    /// The prices of a million tokens in US dollars:
    /// input=3,output=15,cache_read=0.3,cache_write=3.75 [default: costs are given in input tokens]
    #[arg(long, value_name = "PRICES", value_parser = price, conflicts_with = "preset")]
    pub price: Option<Price>,
    /// Print the comparison as JSON, one row a line; views are JSON anyway
    #[arg(long)]
    pub json: bool,
}

/// The user's own settings for a replay.
#[derive(Debug, Args)]
pub(in crate::cli) struct OwnSettings {
    /// An agents.toml whose `[compaction]` is tried: in the place of a preset, or beside the others
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The agent of that file whose model gives window, reply and prices [default: its only one]
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The window that requests must fit, in tokens [default: 200000, or the window of the agent's model]
    #[arg(long, value_name = "TOKENS")]
    pub context_window: Option<u64>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Score {
    #[command(flatten)]
    pub file: File,
    /// A conversation, as for `replay`, or a folder
    #[arg(value_name = "FILE", required = true)]
    pub sources: Vec<String>,
    /// Only this preset [default: all]
    #[arg(long, value_name = "PRESET")]
    pub preset: Option<String>,
    #[command(flatten)]
    pub own: OwnSettings,
    /// Print one row of JSON for each file and preset
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Explain {
    #[command(flatten)]
    pub file: File,
    /// The agent, as RUN/@AGENT
    #[arg(value_name = "RUN/@AGENT", add = complete::parts())]
    pub what: String,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Reads prices. The price of the input is required; prices that are not given follow from it by
/// the published ratios.
fn price(text: &str) -> Result<Price, String> {
    let mut given =
        [("input", None), ("output", None), ("cache_read", None), ("cache_write", None)];
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or("NAME=DOLLARS is needed")?;
        let known = given.iter_mut().find(|(known, _)| *known == name.trim());
        let (_, given) = known.ok_or_else(|| {
            format!("there is no `{name}`; prices are input, output, cache_read and cache_write")
        })?;
        let value = value.trim().parse::<f64>().ok();
        let value = value.filter(|value| value.is_finite() && *value >= 0.0);
        *given = Some(value.ok_or_else(|| format!("`{part}` is not a price"))?);
    }
    let [input, output, read, write] = given.map(|(_, value)| value);
    let input = input.filter(|input| *input > 0.0).ok_or("`input` is needed, and more than 0")?;
    let ratio = RelativePrice::default();
    Ok(Price {
        input,
        output: output.unwrap_or(input * ratio.output),
        cache_read: read.unwrap_or(input * ratio.read),
        cache_write: write.unwrap_or(input * ratio.write),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_that_are_not_given_follow_from_the_input() {
        let all = "input=4, output=20,cache_read=0.4,cache_write=5";
        assert_eq!(price(all).expect("prices"), price("input=4").expect("prices"));
        for (bad, why) in [
            ("3", "NAME=DOLLARS"),
            ("output=3", "`input` is needed"),
            ("input=0", "more than 0"),
            ("input=-1", "not a price"),
            ("input=x", "not a price"),
            ("input=3,cached=1", "no `cached`"),
        ] {
            assert!(price(bad).expect_err(bad).contains(why), "{bad}");
        }
    }
}
