//! Builds the models: names, windows, prices, capabilities and the fields of their requests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::diagnostic::{NO_HELP, Place, Problems};
use super::prices::{self, PriceSource};
use super::raw::{BOTH, Model, Wire, known};
use super::shape::{Field, Item, ListOr};
use super::{Setting, names};
use crate::id::Name;
use crate::message::media::Media;
use crate::redaction::key_shapes;
use crate::spec::ModelSpec;
use crate::spec::capability::{Capability, Declared};
use crate::spec::{Thinking, ThinkingMode};

/// Default limit of a reply in tokens: long enough for a report, short enough for every server's
/// default limit.
const MAX_OUTPUT_TOKENS: u64 = 8192;
/// The least budget of thinking in tokens that the Messages API accepts.
const LEAST_THINKING: u64 = 1024;

/// Name of the provider of models that an embedding program adds.
const CUSTOM: &str = "custom";

/// The configuration's models, and those of them that still need a provider.
#[derive(Debug, Default)]
pub(super) struct Models {
    pub(super) models: BTreeMap<Name, ModelSpec>,
    /// The models that name no provider, with the places of their names.
    pub(super) homeless: BTreeMap<Name, Place>,
    /// Where the prices were found, of the models that have one.
    pub(super) price_sources: BTreeMap<Name, PriceSource>,
}

/// Turns `[models]` into models; [`providers`](super::providers::providers) finds the provider of a model that names none.
pub(super) fn models(setting: Setting<'_>) -> Models {
    let Setting { raw, sources, problems, .. } = setting;
    let mut all = Models::default();
    // `CUSTOM` is a valid name, so this always holds.
    let Ok(custom) = Name::new(CUSTOM) else { return all };
    for (entry, model) in raw.models.values() {
        let Ok(name) = Name::new(&entry.name) else { continue };
        let mut provider = None;
        if !sources.custom_models.contains(&name) {
            if !model.model.is_set() {
                let message = format!("model `{name}` does not say what the provider calls it");
                let help = "add `model = \"...\"`";
                problems.error("missing_field", &entry.at.key, message, help);
            }
            if let Some((text, place)) = model.provider.placed() {
                raw.providers.must_have("unknown_provider", text, place, problems);
                provider = Name::new(text).ok();
            } else if !model.provider.is_set() {
                all.homeless.insert(name.clone(), entry.at.key.clone());
            }
        }
        let window = *model.context_window;
        if max_output_tokens(model) >= window {
            let at = model.max_output_tokens.at().map_or(&entry.at.key, |at| &at.value);
            let message =
                format!("`max_output_tokens` leaves no room in a window of {window} tokens");
            problems.error("bad_value", at, message, NO_HELP);
        }
        // A provider's name that could not be resolved is an error already. The model is kept, so
        // that agents that name the model get no error as well.
        let provider = provider.unwrap_or_else(|| custom.clone());
        let price = prices::find(model, setting, window);
        all.price_sources.extend(price.map(|(_, source)| (name.clone(), source)));
        let price = price.map(|(price, _)| price);
        let fallbacks = fallbacks(setting, &name, model);
        let spec = spec(name.clone(), provider, model, setting);
        all.models.insert(name, ModelSpec { price, fallbacks, ..spec });
    }
    for name in &sources.custom_models {
        let bare = || spec(name.clone(), custom.clone(), &Model::default(), setting);
        all.models.entry(name.clone()).or_insert_with(bare);
    }
    all
}

/// Returns the models that stand in for a model.
fn fallbacks(setting: Setting<'_>, name: &Name, model: &Model) -> Vec<Name> {
    let mut all: Vec<Name> = Vec::new();
    for Item { value, at } in model.fallbacks.iter() {
        setting.raw.models.must_have("unknown_model", value, &at.value, setting.problems);
        let Ok(other) = Name::new(value) else { continue };
        if other == *name || all.contains(&other) {
            let message = match other == *name {
                true => format!("model `{name}` is a fallback of itself"),
                false => format!("`{other}` is a fallback of model `{name}` twice"),
            };
            setting.problems.error("bad_value", &at.value, message, "leave it out");
            continue;
        }
        all.push(other);
    }
    all
}

/// Returns the most tokens of a model's reply: as set, or the default, but at most half the window.
fn max_output_tokens(raw: &Model) -> u64 {
    raw.max_output_tokens.unwrap_or(MAX_OUTPUT_TOKENS.min(*raw.context_window / 2))
}

fn spec(name: Name, provider: Name, raw: &Model, setting: Setting<'_>) -> ModelSpec {
    let problems = setting.problems;
    let own = raw.provider.as_ref().and_then(|provider| setting.raw.providers.value(provider));
    let thinking = match own.and_then(|provider| *provider.kind) {
        // The items of this protocol are sealed one by one, whatever stands before them.
        Some(Wire::OpenAiResponses) if !raw.thinking.is_set() => (Thinking::Free, None),
        _ => thinking(raw, problems),
    };
    if let Some((Json::Object(fields), place)) = raw.extra_body.placed()
        && thinking.1.is_some()
        && fields.contains_key("thinking")
    {
        let message = "`extra_body` has `thinking`, which the model's own key asks for";
        problems.error("conflict", place, message, "leave one of the two out");
    }
    ModelSpec {
        model: raw.model.clone().unwrap_or_else(|| name.to_string()),
        name,
        provider,
        context_window: *raw.context_window,
        max_output_tokens: max_output_tokens(raw),
        temperature: *raw.temperature,
        top_p: *raw.top_p,
        reasoning_effort: raw.reasoning_effort.clone(),
        seed: *raw.seed,
        price: None,
        thinking: thinking.0,
        thinking_mode: thinking.1,
        media: media(raw, setting),
        capabilities: capabilities(&raw.capabilities, problems),
        fallbacks: Vec::new(),
        fallback_cooldown: *raw.fallback_cooldown,
        extra_body: extra_body(&raw.extra_body, setting),
    }
}

/// Returns what a model reads besides text: as written, or what its service is known for. An address of
/// one's own is known for nothing.
fn media(raw: &Model, setting: Setting<'_>) -> Vec<Media> {
    if raw.media.is_set() {
        let all: BTreeSet<Media> = raw.media.iter().flatten().map(|item| item.value).collect();
        return all.into_iter().collect();
    }
    let Some(provider) = raw.provider.as_ref() else { return BOTH.to_vec() };
    let Some(provider) = setting.raw.providers.value(provider) else { return Vec::new() };
    let is_own = provider.base_url.is_set();
    match (provider.service.map(known), *provider.kind) {
        (Some(service), _) if !is_own || service.base_url.is_none() => service.media.to_vec(),
        (None, Some(kind)) if !is_own && kind != Wire::Scripted => BOTH.to_vec(),
        _ => Vec::new(),
    }
}

/// Returns the name of the field of a body that holds what looks like a key, and the reason.
fn key_in(fields: &Map<String, Json>) -> Option<(String, String)> {
    let nested = |value: &Json| match value {
        Json::Object(fields) => key_in(fields),
        Json::Array(items) => items.iter().filter_map(Json::as_object).find_map(key_in),
        _ => None,
    };
    fields.iter().find_map(|(name, value)| {
        let words = name.replace('_', "-");
        // A token in a body is mostly one of text.
        let is_of_text = ["token", "signature"].iter().any(|end| words.ends_with(end));
        let header = if is_of_text { "" } else { &words };
        let reason = value.as_str().and_then(|text| key_shapes::reason(header, text));
        reason.map(|reason| (name.clone(), reason)).or_else(|| nested(value))
    })
}

/// Fields of a request that the program writes itself.
const OWN_FIELDS: [&str; 15] = [
    "context_management",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "prompt_cache_key",
    "reasoning_effort",
    "seed",
    "stream",
    "stream_options",
    "system",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
];

/// Reads the fields that the program does not know: an object without any that it writes itself.
fn extra_body(raw: &Field<Option<Json>>, setting: Setting<'_>) -> Option<crate::message::Json> {
    let problems = setting.problems;
    let (value, place) = raw.placed()?;
    let Json::Object(fields) = value else {
        let message = "`extra_body` must be a table of fields";
        problems.error("bad_value", place, message, "write it like `{ top_k = 20 }`");
        return None;
    };
    for name in OWN_FIELDS.iter().filter(|name| fields.contains_key(**name)) {
        let message = format!("`extra_body` has `{name}`, which callsheet writes itself");
        problems.error(
            "conflict",
            place,
            message,
            "leave it out; use the model's own key, if it has one",
        );
    }
    // A run that recorded such a field must be able to resume.
    if setting.sources.recorded.is_none()
        && let Some((name, reason)) = key_in(fields)
    {
        problems.hide(place);
        let message = format!("`{name}` in `extra_body` holds what looks like a key: {reason}");
        let help = "send it in a header: `headers = { NAME = { env = \"NAME_OF_A_VARIABLE\" } }`";
        problems.error("literal_key", place, message, help);
    }
    Some(crate::message::Json::encode(value))
}

/// Reads the rule by which a model's thinking stays valid, and the thinking that it is asked for.
fn thinking(raw: &Model, problems: &Problems) -> (Thinking, Option<ThinkingMode>) {
    let Some((value, place)) = raw.thinking.placed() else { return Default::default() };
    let wrong = |message: String, help: &str| {
        problems.error("bad_value", place, message, help);
        Default::default()
    };
    let rule = |value: &Json| serde_json::from_value::<Thinking>(value.clone());
    let Json::Object(table) = value else {
        return match rule(value) {
            Ok(rule) => (rule, None),
            Err(_) => wrong(
                "`thinking` must be `\"bound\"`, `\"free\"` or a table".to_owned(),
                "write it like `{ type = \"enabled\", budget = 8000 }`",
            ),
        };
    };
    const KEYS: [&str; 3] = ["type", "budget", "rule"];
    if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let help = names::did_you_mean(unknown, KEYS);
        let help =
            if help.is_empty() { format!("use some of {}", names::list(&KEYS)) } else { help };
        problems.error("unknown_key", place, format!("`thinking` has no key `{unknown}`"), help);
    }
    let rule = match table.get("rule").map(rule) {
        None => Thinking::default(),
        Some(Ok(rule)) => rule,
        Some(Err(_)) => {
            return wrong("`rule` must be `\"bound\"` or `\"free\"`".to_owned(), NO_HELP);
        }
    };
    let room = max_output_tokens(raw);
    let mode = match (table.get("type").and_then(Json::as_str), table.get("budget")) {
        (Some("adaptive"), None) => ThinkingMode::Adaptive,
        (Some("disabled"), None) => ThinkingMode::Disabled,
        (Some("enabled"), Some(budget)) => match budget.as_u64() {
            Some(tokens) if (LEAST_THINKING..room).contains(&tokens) => {
                ThinkingMode::Enabled { budget_tokens: tokens }
            }
            _ => {
                let message = format!(
                    "`budget` must be an integer from {LEAST_THINKING} to {}, below `max_output_tokens`",
                    room.saturating_sub(1)
                );
                return wrong(message, "thinking is part of the output: raise `max_output_tokens`");
            }
        },
        (Some("enabled"), None) => {
            return wrong(
                "`thinking` of type `enabled` has no `budget`".to_owned(),
                "add one, in tokens",
            );
        }
        (Some("adaptive" | "disabled"), Some(_)) => {
            return wrong(
                "only `thinking` of type `enabled` has a `budget`".to_owned(),
                "leave it out",
            );
        }
        _ => {
            return wrong(
                "`type` must be `\"adaptive\"`, `\"enabled\"` or `\"disabled\"`".to_owned(),
                NO_HELP,
            );
        }
    };
    (rule, Some(mode))
}

/// Reads the capabilities of a model's provider: a list, or the word `probe`, by which the provider
/// is asked.
fn capabilities(raw: &Field<Option<ListOr>>, problems: &Problems) -> Declared {
    let known = || format!("use some of {}", names::list(&Capability::ALL.map(Capability::name)));
    let one = |Item { value, at }: &Item<Json>| {
        let Some(text) = value.as_str() else {
            let message = format!("a capability must be a string, not {}", at.kind);
            problems.error("wrong_type", &at.value, message, NO_HELP);
            return None;
        };
        let found = Capability::named(text);
        if found.is_none() {
            let near = names::did_you_mean(text, Capability::ALL.map(Capability::name));
            let help = if near.is_empty() { known() } else { near };
            let message = format!("there is no capability `{text}`");
            problems.error("bad_value", &at.value, message, help);
        }
        found
    };
    match raw.placed() {
        None => Declared::default(),
        Some((ListOr::List(items), _)) => Declared::Listed(items.iter().filter_map(one).collect()),
        Some((ListOr::Other(Json::String(text)), _)) if text == "probe" => Declared::Probe,
        Some((ListOr::Other(_), place)) => {
            let message = "`capabilities` must be an array of names, or `\"probe\"`";
            problems.error("wrong_type", place, message, known());
            Declared::default()
        }
    }
}
