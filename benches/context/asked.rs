//! The arguments of the benchmark.

use std::error::Error;
use std::path::Path;

use callsheet::context::layers::preset::Preset;
use serde_json::Value;

use crate::made::{self, Conversation, Kind};
use crate::race;

/// Tokens of a short conversation.
const SHORT_TOKENS: usize = 30_000;
/// Tokens of long conversations, by seed.
const LONG_TOKENS: [usize; 3] = [120_000, 220_000, 300_000];
/// Windows, if the arguments do not say.
const WINDOWS: [u64; 2] = [50_000, 200_000];

/// What the benchmark does.
#[derive(Debug, PartialEq)]
pub(crate) enum Verb {
    /// Prints a table for each kind.
    Table,
    /// Prints views.
    Show,
    /// Changes each constant by a tenth.
    Margin,
    /// Prints the figures for values of a constant.
    Sweep(String, Vec<Value>),
    /// Writes the conversations into a folder.
    Write(String),
}

/// The arguments.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) verb: Verb,
    pub(crate) windows: Vec<u64>,
    pub(crate) preset: Preset,
    kinds: Vec<Kind>,
    seeds: Option<u64>,
    forms: Vec<&'static str>,
    files: Vec<String>,
}

/// Conversations of one kind and form.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) form: &'static str,
    pub(crate) conversations: Vec<Conversation>,
}

impl Asked {
    /// Reads the arguments.
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (verb, preset) = (Verb::Table, Preset::adaptive());
        let (windows, kinds) = (WINDOWS.to_vec(), Kind::ALL.to_vec());
        let (seeds, forms, files) = (None, vec!["short", "long"], Vec::new());
        let mut asked = Self { verb, windows, preset, kinds, seeds, forms, files };
        let mut constants = serde_json::Map::new();
        // Cargo adds the flag `--bench`.
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            if !argument.starts_with("--") {
                asked.files.push(argument);
                continue;
            }
            let (flag, joined) = match argument.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (argument, None),
            };
            let mut value = || {
                joined.clone().or_else(|| arguments.next()).ok_or(format!("{flag} needs a value"))
            };
            match flag.as_str() {
                "--show" => asked.verb = Verb::Show,
                "--margin" => asked.verb = Verb::Margin,
                "--write" => asked.verb = Verb::Write(value()?),
                "--sweep" => {
                    let value = value()?;
                    let (name, values) = value.split_once('=').ok_or("--sweep NAME=V1,V2,...")?;
                    let values = values.split(',').map(serde_json::from_str);
                    asked.verb = Verb::Sweep(name.to_owned(), values.collect::<Result<_, _>>()?);
                }
                "--set" => {
                    let value = value()?;
                    let (name, value) = value.split_once('=').ok_or("--set NAME=VALUE")?;
                    constants.insert(name.to_owned(), serde_json::from_str(value)?);
                }
                "--context-window" => {
                    let windows = value()?.split(',').map(str::parse).collect::<Result<_, _>>();
                    asked.windows = windows?;
                }
                "--preset" => {
                    let name = value()?;
                    asked.preset = Preset::named(&name).ok_or(format!("no preset `{name}`"))?;
                }
                "--kind" => {
                    let names = value()?;
                    let is_named = |kind: &Kind| names.split(',').any(|name| name == kind.name());
                    asked.kinds.retain(is_named);
                }
                "--form" => {
                    let form = value()?;
                    asked.forms.retain(|known| *known == form);
                }
                "--seeds" => asked.seeds = Some(value()?.parse()?),
                _ => return Err(format!("no flag `{flag}`").into()),
            }
        }
        asked.preset = asked.preset.with_constants(&constants)?;
        Ok(asked)
    }

    /// Returns the conversations that suit a window: those that fill most of it. Of each
    /// kind and form there are as many as the arguments say, or `seeds`.
    pub(crate) fn classes(&self, window: u64, seeds: u64) -> Result<Vec<Class>, Box<dyn Error>> {
        if !self.files.is_empty() {
            let read = self.files.iter().map(|file| race::read(Path::new(file)));
            let conversations = read.collect::<Result<_, _>>()?;
            return Ok(vec![Class { name: "files".to_owned(), form: "files", conversations }]);
        }
        let seeds = self.seeds.unwrap_or(seeds);
        let mut classes = Vec::new();
        for (kind, form) in
            self.kinds.iter().flat_map(|kind| self.forms.iter().map(move |form| (*kind, *form)))
        {
            let sizes = (1..=seeds).map(|seed| (seed, tokens(form, seed)));
            let sizes = sizes.filter(|(_, tokens)| 2 * *tokens as u64 > window);
            let made = sizes.map(|(seed, tokens)| made::conversation(kind, seed, tokens));
            let conversations: Vec<_> = made.collect();
            if !conversations.is_empty() {
                classes.push(Class {
                    name: format!("{}, {form}", kind.name()),
                    form,
                    conversations,
                });
            }
        }
        Ok(classes)
    }
}

fn tokens(form: &str, seed: u64) -> usize {
    match form {
        "short" => SHORT_TOKENS,
        _ => LONG_TOKENS[(seed as usize + 2) % LONG_TOKENS.len()],
    }
}
