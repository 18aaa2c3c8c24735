//! Providers and models: who serves what, at what price, with which key.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use miette::NamedSource;

use super::diagnostic::{Place, Problems};
use super::keys::{self, NoKey, Secret};
use super::raw::{Entry, Table};
use super::{Missing, Sources, abilities, files, names, retry};
use crate::id::Name;
use crate::model::script::Script;
use crate::policy::RetryPolicy;
use crate::spec::capability::Declared;
use crate::spec::{ModelSpec, Price, Thinking};

/// What a provider speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// The Anthropic Messages API.
    Anthropic,
    /// The OpenAI chat completions API, of any compatible server.
    OpenAi,
    /// Replies from a script; no network.
    Scripted {
        /// The script file.
        script: PathBuf,
    },
}

/// A provider as the program needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderSpec {
    /// Its name in the configuration, or `anthropic` or `openai` when no model named one.
    pub name: Name,
    /// What it speaks.
    pub kind: ProviderKind,
    /// Where it is: the origin of an Anthropic server, `/v1` included for the others; without a
    /// slash at the end. Empty for a script.
    pub base_url: String,
    /// The key; absent when the server needs none or no model in use needs this provider.
    pub key: Option<Secret>,
    /// More headers for every request.
    pub headers: BTreeMap<String, Secret>,
    /// The longest that a connection may take to open.
    pub connect_timeout: Duration,
    /// The longest that one request may take.
    pub request_timeout: Duration,
    /// The longest silence within a reply.
    pub idle_timeout: Duration,
    /// Calls at once, for all agents together.
    pub max_concurrency: usize,
    /// Whether a `Retry-After` parks all agents.
    pub respect_retry_after: bool,
    /// How often a failed call is made again.
    pub retry: RetryPolicy,
}

/// The public services, in the order in which they are tried for a model without a provider:
/// name, key variable, address.
const PUBLIC: [(&str, &str, &str); 2] = [
    ("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com"),
    ("openai", "OPENAI_API_KEY", "https://api.openai.com/v1"),
];

/// The `connect_timeout` of the documented configuration.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The `request_timeout` of the documented configuration.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The `rate_limit.max_concurrency` of the documented configuration.
const MAX_CONCURRENCY: usize = 8;
/// The window of today's common models; a smaller one must be stated.
const CONTEXT_WINDOW: u64 = 200_000;
/// Long enough for a report, short enough for every server's default limit.
const MAX_OUTPUT_TOKENS: u64 = 8192;
/// What Anthropic charges for a cache write, relative to input: the highest of the public
/// services, so that an estimate without a stated price is never too low.
const CACHE_WRITE_FACTOR: f64 = 1.25;

/// The provider of models that a program brings along.
const CUSTOM: &str = "custom";

/// The configuration's models, and the provider that stands in for those that name none.
#[derive(Debug, Default)]
pub(super) struct Models {
    pub(super) models: BTreeMap<Name, ModelSpec>,
    /// The models without a provider, with the places of their names.
    homeless: BTreeMap<Name, Place>,
}

/// Reads `[models]`; models without a provider get theirs from [`providers`].
pub(super) fn models(tree: &Table, sources: &Sources, problems: &mut Problems) -> Models {
    let mut all = Models::default();
    let custom = Name::new(CUSTOM).ok();
    for (entry, table) in tree.tables("models") {
        let Ok(name) = Name::new(&entry.key) else { continue };
        let brought = sources.custom_models.contains(&name);
        let provider = match table.get("provider") {
            _ if brought => custom.clone(),
            Some(provider) => known_provider(provider, tree, problems),
            None => None,
        };
        if !brought && table.get("provider").is_none() {
            all.homeless.insert(name.clone(), entry.key_place.clone());
        }
        // A name that could not be resolved is an error already; the model is kept so that agents
        // that name it are not blamed.
        let Some(provider) = provider.or_else(|| custom.clone()) else { continue };
        all.models.insert(name.clone(), model(name, provider, entry, table, brought, problems));
    }
    for name in &sources.custom_models {
        let Some(provider) = custom.clone() else { continue };
        let bare = || bare_model(name.clone(), provider);
        all.models.entry(name.clone()).or_insert_with(bare);
    }
    all
}

fn bare_model(name: Name, provider: Name) -> ModelSpec {
    ModelSpec {
        model: name.to_string(),
        name,
        provider,
        context_window: CONTEXT_WINDOW,
        max_output_tokens: MAX_OUTPUT_TOKENS,
        temperature: None,
        top_p: None,
        reasoning_effort: None,
        seed: None,
        price: None,
        thinking: Thinking::Bound,
        capabilities: Declared::default(),
    }
}

fn known_provider(at: &Entry, tree: &Table, problems: &mut Problems) -> Option<Name> {
    let text = at.node.text()?;
    let providers = tree.section("providers");
    if providers.get(text).is_none() {
        let help = names::suggest(text, providers.0.iter().map(|entry| entry.key.as_str()));
        let message = format!("there is no provider `{text}`");
        problems.error_help("unknown_provider", &at.node.place, message, help);
    }
    Name::new(text).ok()
}

fn model(
    name: Name,
    provider: Name,
    entry: &Entry,
    table: &Table,
    brought: bool,
    problems: &mut Problems,
) -> ModelSpec {
    if table.get("model").is_none() && !brought {
        let message = format!("model `{name}` does not say what the provider calls it");
        let help = Some("add `model = \"...\"`".to_owned());
        problems.error_help("missing_field", &entry.key_place, message, help);
    }
    let window = table.whole("context_window").unwrap_or(CONTEXT_WINDOW);
    let output = table.whole("max_output_tokens").unwrap_or(MAX_OUTPUT_TOKENS.min(window / 2));
    if output >= window {
        let at = table.get("max_output_tokens").map_or(&entry.key_place, |e| &e.node.place);
        let message = format!("`max_output_tokens` leaves no room in a window of {window} tokens");
        problems.error("bad_value", at, message);
    }
    let bare = bare_model(name, provider);
    ModelSpec {
        model: table.text("model").map_or(bare.model, str::to_owned),
        context_window: window,
        max_output_tokens: output,
        temperature: table.number("temperature"),
        top_p: table.number("top_p"),
        reasoning_effort: table.text("reasoning_effort").map(str::to_owned),
        seed: table.whole("seed"),
        price: table.get("cost_per_mtok").and_then(|at| price(at, problems)),
        thinking: match table.text("thinking") {
            Some("free") => Thinking::Free,
            Some(_) | None => bare.thinking,
        },
        capabilities: abilities::declared(table, problems),
        name: bare.name,
        provider: bare.provider,
    }
}

fn price(at: &Entry, problems: &mut Problems) -> Option<Price> {
    let table = at.node.table()?;
    for key in ["input", "output"].iter().filter(|key| table.get(key).is_none()) {
        let message = format!("`cost_per_mtok` has no `{key}`");
        problems.error("missing_field", &at.key_place, message);
    }
    let input = table.number("input")?;
    Some(Price {
        input,
        output: table.number("output")?,
        cache_read: table.number("cache_read").unwrap_or(input),
        cache_write: table.number("cache_write").unwrap_or(input * CACHE_WRITE_FACTOR),
    })
}

/// What reading the providers needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub(super) tree: &'a Table,
    pub(super) root: &'a Path,
    pub(super) sources: &'a Sources,
    /// The models that the plan uses.
    pub(super) used: &'a BTreeSet<Name>,
}

/// Reads `[providers]`, finds the keys of those in use, and settles the models without a
/// provider.
pub(super) fn providers(
    setting: Setting<'_>,
    models: &mut Models,
    problems: &mut Problems,
) -> BTreeMap<Name, ProviderSpec> {
    let retry = retry::of_calls(retry_table(setting.tree), problems);
    let mut all = BTreeMap::new();
    settle_homeless(setting, models, &retry, &mut all, problems);
    let in_use = |name: &Name| {
        models.models.values().any(|m| m.provider == *name && setting.used.contains(&m.name))
    };
    for (entry, table) in setting.tree.tables("providers") {
        let Ok(name) = Name::new(&entry.key) else { continue };
        let used = in_use(&name);
        if let Some(spec) = provider(setting, name.clone(), entry, table, used, &retry, problems) {
            all.insert(name, spec);
        }
    }
    all
}

fn retry_table(tree: &Table) -> Option<&Table> {
    tree.section("defaults").get("retry")?.node.table()
}

/// Gives the models without a provider the public service whose key is set.
fn settle_homeless(
    setting: Setting<'_>,
    models: &mut Models,
    retry: &RetryPolicy,
    all: &mut BTreeMap<Name, ProviderSpec>,
    problems: &mut Problems,
) {
    let homeless = std::mem::take(&mut models.homeless);
    if homeless.is_empty() {
        return;
    }
    let is_set = |(_, key, _): &&(&str, &str, &str)| keys::variable(setting.sources, key).is_some();
    let (service, key, _) = match PUBLIC.iter().find(is_set) {
        Some(found) => found,
        None => {
            let first = homeless.iter().find(|(name, _)| setting.used.contains(*name));
            if let Some((name, place)) = first
                && setting.sources.missing_keys == Missing::Refuse
            {
                no_provider(name, place, setting.tree, problems);
            }
            &PUBLIC[0]
        }
    };
    let Ok(name) = Name::new(service) else { return };
    for model in models.models.values_mut().filter(|model| homeless.contains_key(&model.name)) {
        model.provider = name.clone();
    }
    if setting.tree.section("providers").get(service).is_none() {
        let kind =
            if *service == "anthropic" { ProviderKind::Anthropic } else { ProviderKind::OpenAi };
        let key = keys::variable(setting.sources, key);
        let spec = defaults(name.clone(), kind, key, retry, setting.tree);
        all.insert(name, spec);
    }
}

fn no_provider(name: &Name, place: &Place, tree: &Table, problems: &mut Problems) {
    let message = format!(
        "model `{name}` names no provider, and neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set"
    );
    let known: Vec<&str> = tree.section("providers").0.iter().map(|e| e.key.as_str()).collect();
    let choices = match known.as_slice() {
        [] => "add a [providers.NAME] and name it with `provider`".to_owned(),
        known => format!("name one with `provider`: {}", names::list(known)),
    };
    let help = format!("set one of the two variables, or {choices}");
    problems.error_help("no_provider", place, message, Some(help));
}

fn defaults(
    name: Name,
    kind: ProviderKind,
    key: Option<Secret>,
    retry: &RetryPolicy,
    tree: &Table,
) -> ProviderSpec {
    let base_url = match kind {
        ProviderKind::Anthropic => PUBLIC[0].2,
        ProviderKind::OpenAi => PUBLIC[1].2,
        ProviderKind::Scripted { .. } => "",
    };
    ProviderSpec {
        name,
        kind,
        base_url: base_url.to_owned(),
        key,
        headers: BTreeMap::new(),
        connect_timeout: CONNECT_TIMEOUT,
        request_timeout: REQUEST_TIMEOUT,
        idle_timeout: tree.section("defaults").duration("idle_timeout").unwrap_or_default(),
        max_concurrency: MAX_CONCURRENCY,
        respect_retry_after: true,
        retry: retry.clone(),
    }
}

fn provider(
    setting: Setting<'_>,
    name: Name,
    entry: &Entry,
    table: &Table,
    used: bool,
    retry: &RetryPolicy,
    problems: &mut Problems,
) -> Option<ProviderSpec> {
    let secrets = setting.tree.section("secrets");
    if let Some(at) = table.get("api_key") {
        keys::check(at, &["env", "secret", "file"], secrets, problems);
    }
    let Some(kind) = table.get("kind") else {
        let message = format!("provider `{name}` has no `kind`");
        let help = Some("use one of `anthropic`, `openai` and `scripted`".to_owned());
        problems.error_help("missing_field", &entry.key_place, message, help);
        return None;
    };
    let base_url = table.get("base_url").and_then(|at| address(at, problems));
    let kind = match kind.node.text()? {
        "anthropic" => ProviderKind::Anthropic,
        "openai" => ProviderKind::OpenAi,
        "scripted" => script(setting, &name, entry, table, problems)?,
        _ => return None,
    };
    let key = match used && setting.sources.missing_keys == Missing::Refuse {
        _ if matches!(kind, ProviderKind::Scripted { .. }) => None,
        true => key(setting, &kind, entry, table).unwrap_or_else(|none| {
            problems.error_help("missing_key", &none.place, none.message, none.help);
            None
        }),
        false => key(setting, &kind, entry, table).unwrap_or_default(),
    };
    let usual = defaults(name, kind, key, retry, setting.tree);
    let limit = table.section("rate_limit");
    let headers = table.section("headers").0.iter();
    let header = |e: &Entry| Some((e.key.clone(), Secret::new(e.node.text()?)));
    Some(ProviderSpec {
        base_url: base_url.unwrap_or(usual.base_url),
        headers: headers.filter_map(header).collect(),
        connect_timeout: table.duration("connect_timeout").unwrap_or(usual.connect_timeout),
        request_timeout: table.duration("request_timeout").unwrap_or(usual.request_timeout),
        max_concurrency: limit.whole("max_concurrency").unwrap_or(usual.max_concurrency),
        respect_retry_after: limit.truth("respect_retry_after").unwrap_or(true),
        ..usual
    })
}

fn address(at: &Entry, problems: &mut Problems) -> Option<String> {
    let text = at.node.text()?;
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/') || rest.contains(' ')) {
        let message = format!("`{text}` is not an address");
        let help = Some("write it like `https://api.example.com/v1`".to_owned());
        problems.error_help("bad_value", &at.node.place, message, help);
    }
    Some(text.trim_end_matches('/').to_owned())
}

fn script(
    setting: Setting<'_>,
    name: &Name,
    entry: &Entry,
    table: &Table,
    problems: &mut Problems,
) -> Option<ProviderKind> {
    let Some(at) = table.get("script") else {
        let message = format!("provider `{name}` is scripted but has no `script`");
        let help = Some("add `script = \"FILE\"`".to_owned());
        problems.error_help("missing_field", &entry.key_place, message, help);
        return None;
    };
    let written = at.node.text()?;
    let script = setting.root.join(written);
    let text = files::read(&script, &at.node.place, problems)?;
    if let Err(error) = Script::parse(&text) {
        // Named as the configuration is named, so that both read alike in diagnostics.
        let shown = setting.sources.file.parent().unwrap_or(Path::new("")).join(written);
        let text = Arc::new(NamedSource::new(shown.display().to_string(), text));
        let place = Place::at(&text, error.line, error.column);
        problems.error("bad_script", &place, error.message);
        return None;
    }
    Some(ProviderKind::Scripted { script })
}

/// The key of a provider. A server of one's own gets a key only if the file says which: the key of
/// a public service must not be sent elsewhere.
fn key(
    setting: Setting<'_>,
    kind: &ProviderKind,
    entry: &Entry,
    table: &Table,
) -> Result<Option<Secret>, NoKey> {
    let secrets = setting.tree.section("secrets");
    if let Some(at) = table.get("api_key") {
        return keys::find(at, secrets, setting.root, setting.sources);
    }
    if table.get("base_url").is_some() {
        return Ok(None);
    }
    let variable = match kind {
        ProviderKind::Anthropic => PUBLIC[0].1,
        ProviderKind::OpenAi => PUBLIC[1].1,
        ProviderKind::Scripted { .. } => return Ok(None),
    };
    keys::usual(setting.sources, variable, &entry.key_place).map(Some)
}

/// Refuses capabilities where the wire has no place for them.
pub(super) fn check_capabilities(
    tree: &Table,
    models: &BTreeMap<Name, ModelSpec>,
    providers: &BTreeMap<Name, ProviderSpec>,
    problems: &mut Problems,
) {
    for (entry, table) in tree.tables("models") {
        let Some(at) = table.get("capabilities") else { continue };
        let provider = models.get(entry.key.as_str()).and_then(|m| providers.get(&m.provider));
        let kind = match provider.map(|provider| &provider.kind) {
            Some(ProviderKind::OpenAi) => "openai",
            Some(ProviderKind::Scripted { .. }) => "scripted",
            Some(ProviderKind::Anthropic) | None => continue,
        };
        abilities::refuse(&entry.key, kind, &at.key_place, problems);
    }
}
