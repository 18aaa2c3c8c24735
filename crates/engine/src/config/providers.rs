//! Builds the providers: protocols, addresses, keys and limits; gives each model one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::diagnostic::{Giver, NO_HELP, Place, Problems};
use super::keys::{self, NoKey, Secret};
use super::models::Models;
use super::raw::{CacheTime, HeaderValue, Provider, RateLimit, Wire, known};
use super::shape::Entry;
use super::{Missing, Setting, names, retry, scripts};
use serde_json::Value as Json;

use crate::admission::{PerMinute, QuotaRule, Rules};
use crate::id::Name;
use crate::model::http::is_loopback;
use crate::model::openai::OpenAiProfile;
use crate::policy::RetryPolicy;
use crate::redaction::without_keys;
use crate::spec::capability::{Capability, Declared};
use crate::spec::{AgentSpec, ModelSpec};

/// The protocol that a provider speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// The Anthropic Messages API.
    Anthropic,
    /// The OpenAI chat completions API, of any compatible server.
    OpenAi,
    /// The OpenAI Responses API.
    OpenAiResponses,
    /// Replies from a script; no network.
    Scripted {
        /// The script file.
        script: PathBuf,
    },
}

/// A provider in the form that the program needs.
#[derive(Clone, PartialEq)]
pub struct ProviderSpec {
    /// The provider's name in the configuration, or `anthropic` or `openai` when no model names
    /// one.
    pub name: Name,
    /// The protocol that the provider speaks.
    pub kind: ProviderKind,
    /// The address without a slash at the end: the origin of an Anthropic server; for others with
    /// `/v1`. Empty for a script.
    pub base_url: String,
    /// The key; absent when the server needs none or no model in use has this provider.
    pub key: Option<Secret>,
    /// Additional headers of every request, as the file has them.
    pub headers: BTreeMap<String, Secret>,
    /// Additional headers whose values were read from elsewhere; no record may contain these.
    pub secret_headers: BTreeMap<String, Secret>,
    /// The longest time that opening a connection may take.
    pub connect_timeout: Duration,
    /// The longest time that one request may take.
    pub request_timeout: Duration,
    /// The longest time from the start of a request to the first byte of the reply.
    pub first_byte_timeout: Duration,
    /// The longest time without data within a reply.
    pub idle_timeout: Duration,
    /// The rules of its calls, over all agents.
    pub rules: Rules,
    /// Number of attempts of a failed call, and the pauses between them.
    pub retry: RetryPolicy,
    /// The differences of a server of kind `openai`.
    pub profile: OpenAiProfile,
    /// True if the provider is asked to hold answers to their schema.
    pub holds_to_schema: bool,
    /// True if a server of kind `anthropic` keeps what it caches for an hour.
    pub caches_for_hour: bool,
}

impl fmt::Debug for ProviderSpec {
    /// Leaves out the keys that the address may hold. Secrets print as `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSpec")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("base_url", &without_keys(&self.base_url))
            .field("key", &self.key)
            .field("headers", &self.headers)
            .field("secret_headers", &self.secret_headers)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// The public services in the order in which they are tried for a model without a provider: name,
/// variable of the key, address.
const PUBLIC: [(&str, &str, &str); 2] = [
    ("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com"),
    ("openai", "OPENAI_API_KEY", "https://api.openai.com/v1"),
];

/// Turns `[providers]` into providers, reads the keys of those in use, and gives each model without
/// a provider one. `used` are the models that the plan uses.
pub(super) fn providers(
    setting: Setting<'_>,
    models: &mut Models,
    used: &BTreeSet<Name>,
    agents: &BTreeMap<Name, AgentSpec>,
) -> BTreeMap<Name, ProviderSpec> {
    let retry = retry::of_calls(setting.raw.defaults.retry.as_ref(), setting.problems);
    let mut all = BTreeMap::new();
    give_public_services(setting, models, used, &retry, &mut all);
    // A script sees the agents of sub-graphs by the names that they have in their files.
    let agents: BTreeSet<_> = agents.keys().map(Name::local).collect();
    let agents: BTreeSet<_> =
        setting.raw.agents.names().chain(agents.iter().map(Name::as_str)).collect();
    let called = models.models.values().filter(|model| used.contains(&model.name));
    let called: BTreeSet<&Name> = called.map(|model| &model.provider).collect();
    for (entry, raw) in setting.raw.providers.values() {
        let Ok(name) = Name::new(&entry.name) else { continue };
        let missing =
            if called.contains(&name) { setting.sources.missing_keys } else { Missing::Allow };
        if let Some(spec) = provider(setting, name.clone(), entry, raw, missing, &retry, &agents) {
            all.insert(name, spec);
        }
    }
    all
}

/// Gives the models without a provider the public service whose key is set.
fn give_public_services(
    setting: Setting<'_>,
    models: &mut Models,
    used: &BTreeSet<Name>,
    retry: &RetryPolicy,
    all: &mut BTreeMap<Name, ProviderSpec>,
) {
    let homeless = std::mem::take(&mut models.homeless);
    if homeless.is_empty() {
        return;
    }
    let key = |(_, key, _): &(&str, &str, &str)| keys::variable(setting.sources, key);
    let found = PUBLIC.iter().find_map(|service| Some((service.0, key(service)?)));
    let first = homeless.iter().find(|(name, _)| used.contains(*name));
    if let (None, Some((name, place)), Missing::Refuse) =
        (&found, first, setting.sources.missing_keys)
    {
        no_provider(name, place, setting);
    }
    // Without a key an error was reported above, or keys may be missing: any service will do.
    let (service, key) = found.map_or((PUBLIC[0].0, None), |(service, key)| (service, Some(key)));
    let Ok(name) = Name::new(service) else { return };
    for model in models.models.values_mut().filter(|model| homeless.contains_key(&model.name)) {
        model.provider = name.clone();
    }
    if !setting.raw.providers.has(service) {
        let kind =
            if service == PUBLIC[0].0 { ProviderKind::Anthropic } else { ProviderKind::OpenAi };
        let raw = Provider::default();
        let spec = as_written(setting, name.clone(), kind, (key, BTreeMap::new()), &raw, retry);
        all.insert(name, spec);
    }
}

fn no_provider(name: &Name, place: &Place, setting: Setting<'_>) {
    let message = format!(
        "model `{name}` names no provider, and neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set"
    );
    let known: Vec<&str> = setting.raw.providers.names().collect();
    let choices = match known.as_slice() {
        [] => "add a [providers.NAME] and name it with `provider`".to_owned(),
        known => format!("name one with `provider`: {}", names::list(known)),
    };
    let help = format!("set one of the two variables, or {choices}");
    setting.problems.error("no_provider", place, message, help);
}

/// Builds a provider of a given kind, key and secret headers; the other settings are those of its section.
fn as_written(
    setting: Setting<'_>,
    name: Name,
    kind: ProviderKind,
    (key, secret_headers): (Option<Secret>, BTreeMap<String, Secret>),
    raw: &Provider,
    retry: &RetryPolicy,
) -> ProviderSpec {
    let service = raw.service.map(known);
    let public = match (&service, &kind) {
        (Some(service), _) => service.base_url.unwrap_or_default(),
        (None, ProviderKind::Anthropic) => PUBLIC[0].2,
        (None, ProviderKind::OpenAi | ProviderKind::OpenAiResponses) => PUBLIC[1].2,
        (None, ProviderKind::Scripted { .. }) => "",
    };
    let base_url = raw.base_url.as_deref().unwrap_or(public).trim_end_matches('/').to_owned();
    let usual =
        service.map_or_else(|| OpenAiProfile::for_url(&base_url), |service| service.profile);
    let profile = OpenAiProfile {
        max_tokens_field: raw.max_tokens_field.unwrap_or(usual.max_tokens_field),
        include_usage: raw.stream_usage.unwrap_or(usual.include_usage),
        send_reasoning: raw.send_reasoning.unwrap_or(usual.send_reasoning),
        sends_cache_key: raw.prompt_cache_key.unwrap_or(usual.sends_cache_key),
        ..usual
    };
    let headers = raw.headers.values().filter_map(|(header, value)| match value {
        HeaderValue::Written(text) => Some((header.name.clone(), Secret::new(text))),
        HeaderValue::Read(_) => None,
    });
    let rules = rules(&kind, &raw.rate_limit);
    ProviderSpec {
        name,
        kind,
        base_url,
        rules,
        key,
        headers: headers.collect(),
        secret_headers,
        connect_timeout: *raw.connect_timeout,
        request_timeout: *raw.request_timeout,
        first_byte_timeout: *raw.first_byte_timeout,
        idle_timeout: raw.idle_timeout.unwrap_or(*setting.raw.defaults.idle_timeout),
        retry: retry.clone(),
        profile,
        holds_to_schema: raw
            .structured_output
            .unwrap_or(service.is_some_and(|service| service.holds_to_schema)),
        caches_for_hour: *raw.cache_ttl == CacheTime::OneHour,
    }
}

/// Returns the rules of calls to a provider. A script has room for any number at once.
fn rules(kind: &ProviderKind, raw: &RateLimit) -> Rules {
    Rules {
        max_concurrency: *raw.max_concurrency,
        is_adaptive: *raw.adaptive && !matches!(kind, ProviderKind::Scripted { .. }),
        shares_pauses: *raw.respect_retry_after,
        per_minute: PerMinute {
            requests: *raw.requests_per_minute,
            tokens: *raw.tokens_per_minute,
        },
        quota: QuotaRule { on: *raw.on_quota, max_wait: *raw.max_wait },
    }
}

/// Returns the protocol of a provider: as the file says, or that of its service.
fn wire(name: &Name, entry: &Entry<Provider>, raw: &Provider, problems: &Problems) -> Option<Wire> {
    let service = raw.service.map(known);
    if let (Some(service), Some(at)) = (&service, raw.service.at())
        && service.base_url.is_none()
        && !raw.base_url.is_set()
    {
        let message =
            format!("provider `{name}` has no `base_url`, and its service has none for all");
        let help = format!("write the address that you were given, like `{}`", service.example);
        problems.error("missing_field", &at.key, message, help);
    }
    if let (Some(service), Some((said, place))) = (&service, raw.kind.placed())
        && *said != service.wire
        && !(said.is_openai() && service.wire.is_openai())
    {
        let message = format!("provider `{name}` is of another kind than its service");
        problems.error("conflict", place, message, "leave `kind` or `service` out");
    }
    // A word that could not be read is reported already.
    let is_unread = raw.service.is_wrong() || raw.kind.is_wrong();
    if service.is_none() && !raw.kind.is_set() && !is_unread {
        let message = format!("provider `{name}` has no `kind`");
        let help = "use one of `anthropic`, `openai`, `openai-responses` and `scripted`, or name a known `service`";
        problems.error("missing_field", &entry.at.key, message, help);
    }
    (*raw.kind).or(service.map(|service| service.wire))
}

fn provider(
    setting: Setting<'_>,
    name: Name,
    entry: &Entry<Provider>,
    raw: &Provider,
    missing: Missing,
    retry: &RetryPolicy,
    agents: &BTreeSet<&str>,
) -> Option<ProviderSpec> {
    let problems = setting.problems;
    if let Some((key, at)) = raw.api_key.as_ref().zip(raw.api_key.at()) {
        keys::check_source("api_key", key, at, setting);
    }
    let wire = wire(&name, entry, raw, problems)?;
    check_address(setting, raw, wire);
    let kind = match wire {
        Wire::Anthropic => ProviderKind::Anthropic,
        Wire::OpenAi => ProviderKind::OpenAi,
        Wire::OpenAiResponses => ProviderKind::OpenAiResponses,
        Wire::Scripted => {
            ProviderKind::Scripted { script: scripts::script(setting, entry, raw, agents)? }
        }
    };
    let key = present(key(setting, wire, entry, raw), missing, problems);
    let secret_headers = secret_headers(setting, raw, missing);
    Some(as_written(setting, name, kind, (key, secret_headers), raw, retry))
}

/// Returns a key that could be read. One that is missing is an error where it is needed.
fn present(
    read: Result<Option<Secret>, NoKey>,
    missing: Missing,
    problems: &Problems,
) -> Option<Secret> {
    match (read, missing) {
        (Ok(key), _) => key,
        (Err(_), Missing::Allow) => None,
        (Err(none), Missing::Refuse) => {
            problems.error("missing_key", &none.place, none.message, none.help);
            None
        }
    }
}

/// Reads the headers whose values stand elsewhere.
fn secret_headers(
    setting: Setting<'_>,
    raw: &Provider,
    missing: Missing,
) -> BTreeMap<String, Secret> {
    let mut all = BTreeMap::new();
    for (header, value) in raw.headers.values() {
        let HeaderValue::Read(source) = value else { continue };
        keys::check_source(&header.name, source, &header.at, setting);
        let read = present(keys::of_source(source, setting), missing, setting.problems);
        let Some(value) = read else { continue };
        if value.expose().chars().all(|c| (' '..='~').contains(&c)) {
            all.insert(header.name.clone(), value);
        } else {
            let message =
                format!("the value of the header `{}` must be printable ASCII", header.name);
            setting.problems.error("bad_value", &header.at.value, message, NO_HELP);
        }
    }
    all
}

fn check_address(setting: Setting<'_>, raw: &Provider, wire: Wire) {
    let Some((text, place)) = raw.base_url.placed() else { return };
    let problems = setting.problems;
    let told = without_keys(text);
    if told != *text {
        problems.hide(place);
        // A run that recorded such an address must be able to resume. Variables of providers are not
        // recorded.
        if place.giver() != Giver::Person && setting.sources.recorded.is_none() {
            let message = format!("the address `{told}` holds a key");
            let help = "leave it out and set `api_key` or `headers`, or give the whole address by the \
                        variable CALLSHEET_PROVIDERS__NAME__BASE_URL";
            problems.error("literal_key", place, message, help);
        }
    }
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/') || rest.contains(' ')) {
        let message = format!("`{told}` is not an address");
        let help = "write it like `https://api.example.com/v1`";
        return problems.error("bad_value", place, message, help);
    }
    let path = text.split('?').next().unwrap_or_default().trim_end_matches('/');
    let odd = if text.contains('#') {
        Some(("it has a fragment, which no request has", "leave that out"))
    } else if wire == Wire::Anthropic && path.ends_with("/v1") {
        Some(("`/v1/messages` is added to the address of kind `anthropic`", "leave `/v1` out"))
    } else {
        None
    };
    if let Some((why, help)) = odd {
        problems.warning("odd_base_url", place, format!("`{told}`: {why}"), help);
    }
    let authority = rest.unwrap_or_default().split(['/', '?']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let is_here = is_loopback(text) || authority.ends_with(".localhost");
    let sends_key = raw.api_key.is_set() || raw.headers.values().next().is_some() || told != *text;
    if text.starts_with("http://") && !is_here && sends_key {
        let message = format!("the key is sent to `{authority}` without encryption");
        problems.warning("plain_http", place, message, "use `https://`");
    }
}

/// Returns the key of a provider. A server with its own `base_url` gets a key only if the file says
/// which: the key of a public service must not be sent to another server.
fn key(
    setting: Setting<'_>,
    wire: Wire,
    entry: &Entry<Provider>,
    raw: &Provider,
) -> Result<Option<Secret>, NoKey> {
    let variable = match (raw.service.map(known), wire) {
        (Some(service), _) => service.key,
        (None, Wire::Anthropic) => Some(PUBLIC[0].1),
        (None, Wire::OpenAi | Wire::OpenAiResponses) => Some(PUBLIC[1].1),
        (None, Wire::Scripted) => None,
    };
    if wire == Wire::Scripted {
        return Ok(None);
    }
    if let Some(key) = raw.api_key.as_ref() {
        return keys::of_source(key, setting);
    }
    if raw.base_url.is_set() || raw.api_key.is_set() {
        return Ok(None);
    }
    let Some(variable) = variable else { return Ok(None) };
    let help = "set it, or say with `api_key` where the key is found";
    keys::of_variable(setting.sources, variable, &entry.at.key, help)
}

/// Returns true if the replies of a model come from no provider.
pub(super) fn is_scripted(providers: &BTreeMap<Name, ProviderSpec>, model: &ModelSpec) -> bool {
    let provider = providers.get(&model.provider).map(|provider| &provider.kind);
    matches!(provider, Some(ProviderKind::Scripted { .. }) | None)
}

/// Fields that only requests of kind `openai-responses` have of their own.
const RESPONSES_FIELDS: [&str; 7] =
    ["include", "input", "instructions", "max_output_tokens", "reasoning", "store", "text"];

/// Returns true if the one capability of the Responses API is stated, and no other.
fn is_only_threshold(declared: &Declared) -> bool {
    matches!(declared, Declared::Listed(all) if all.names().eq([Capability::CompactThreshold.name()]))
}

/// Reports `capabilities` that the protocol of a model's provider does not have.
pub(super) fn check_capabilities(
    setting: Setting<'_>,
    models: &BTreeMap<Name, ModelSpec>,
    providers: &BTreeMap<Name, ProviderSpec>,
) {
    for (Entry { name, .. }, model) in setting.raw.models.values() {
        let spec = models.get(name.as_str());
        let provider = spec.and_then(|model| providers.get(&model.provider));
        let kind = match provider.map(|provider| &provider.kind) {
            Some(ProviderKind::OpenAi) => "openai",
            Some(ProviderKind::OpenAiResponses) => "openai-responses",
            Some(ProviderKind::Scripted { .. }) => "scripted",
            Some(ProviderKind::Anthropic) | None => continue,
        };
        let of = format!("the provider of model `{name}` is of kind `{kind}`");
        if let Some((Json::Object(fields), place)) = model.extra_body.placed()
            && kind == "openai-responses"
            && let Some(own) = RESPONSES_FIELDS.iter().find(|own| fields.contains_key(**own))
        {
            let message = format!("`extra_body` has `{own}`, and {of}, which writes it itself");
            setting.problems.error("conflict", place, message, "leave it out");
        }
        let stated = spec.map(|spec| &spec.capabilities);
        let is_known = kind == "openai-responses" && stated.is_some_and(is_only_threshold);
        if let Some(at) = model.capabilities.at().filter(|_| !is_known) {
            let (message, help) = match kind {
                "openai-responses" => {
                    (format!("{of}, which has one"), "use `[\"compact_threshold\"]`")
                }
                _ => (format!("{of}, which has none"), "leave `capabilities` out"),
            };
            setting.problems.error("conflict", &at.key, message, help);
        }
        let asks = spec.is_some_and(|spec| spec.thinking_mode.is_some());
        if let Some(at) = model.thinking.at().filter(|_| asks) {
            let message = format!("{of}, which takes no `thinking`");
            let help = "use `reasoning_effort`, or the server's own field in `extra_body`";
            setting.problems.error("conflict", &at.key, message, help);
        }
    }
}
