//! Known services: their addresses, the variables of their keys, and how they differ.
//!
//! A table of plain data. A provider that names one with `service` gets what its own keys leave open.

use super::super::shape::Kind;
use super::super::shape::kinds::words_of;
use super::models::{ServiceName, Wire};
use crate::message::media::Media;
use crate::model::openai::{KeyHeader, MaxTokensField, OpenAiProfile};

/// What is known of a service.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Service {
    pub(in crate::config) wire: Wire,
    /// The public address; absent where each customer has one of their own.
    pub(in crate::config) base_url: Option<&'static str>,
    /// An address as the service gives it out, for an error's help.
    pub(in crate::config) example: &'static str,
    /// The variable of the key by the service's own documentation; absent where it needs none.
    pub(in crate::config) key: Option<&'static str>,
    pub(in crate::config) profile: OpenAiProfile,
    /// What its newest models read besides text.
    pub(in crate::config) media: &'static [Media],
    /// True if its models can be held to a schema.
    pub(in crate::config) holds_to_schema: bool,
}

/// What most compatible servers accept.
const COMPATIBLE: OpenAiProfile = OpenAiProfile {
    max_tokens_field: MaxTokensField::MaxTokens,
    include_usage: true,
    key_header: KeyHeader::Authorization,
    send_reasoning: true,
    sends_cache_key: false,
};
/// What OpenAI's own models accept.
const OPENAI: OpenAiProfile = OpenAiProfile {
    max_tokens_field: MaxTokensField::MaxCompletionTokens,
    sends_cache_key: true,
    ..COMPATIBLE
};
/// What servers accept that refuse fields which they do not know.
const STRICT: OpenAiProfile = OpenAiProfile { send_reasoning: false, ..COMPATIBLE };

/// Images and PDFs.
pub(in crate::config) const BOTH: &[Media] = &[Media::Image, Media::Pdf];

/// Returns what is known of a service.
pub(in crate::config) const fn known(name: ServiceName) -> Service {
    match name {
        ServiceName::Anthropic => Service {
            wire: Wire::Anthropic,
            media: BOTH,
            holds_to_schema: true,
            ..public("https://api.anthropic.com", Some("ANTHROPIC_API_KEY"))
        },
        ServiceName::OpenAi => Service {
            profile: OPENAI,
            media: BOTH,
            holds_to_schema: true,
            ..public("https://api.openai.com/v1", Some("OPENAI_API_KEY"))
        },
        ServiceName::OpenRouter => {
            public("https://openrouter.ai/api/v1", Some("OPENROUTER_API_KEY"))
        }
        ServiceName::DeepSeek => public("https://api.deepseek.com/v1", Some("DEEPSEEK_API_KEY")),
        // Its compatible API takes no PDFs.
        ServiceName::Gemini => Service {
            media: &[Media::Image],
            ..public(
                "https://generativelanguage.googleapis.com/v1beta/openai",
                Some("GEMINI_API_KEY"),
            )
        },
        ServiceName::Groq => Service {
            profile: STRICT,
            ..public("https://api.groq.com/openai/v1", Some("GROQ_API_KEY"))
        },
        // It reports the counts unasked, and refuses fields that it does not know.
        ServiceName::Mistral => Service {
            profile: OpenAiProfile { include_usage: false, ..STRICT },
            ..public("https://api.mistral.ai/v1", Some("MISTRAL_API_KEY"))
        },
        ServiceName::Ollama => public("http://127.0.0.1:11434/v1", None),
        ServiceName::LlamaCpp => {
            Service { holds_to_schema: true, ..public("http://127.0.0.1:8080/v1", None) }
        }
        ServiceName::Azure => Service {
            profile: OpenAiProfile { key_header: KeyHeader::ApiKey, ..OPENAI },
            media: BOTH,
            holds_to_schema: true,
            ..private("https://RESOURCE.openai.azure.com/openai/v1")
        },
        ServiceName::Vertex => private(
            "https://aiplatform.googleapis.com/v1/projects/PROJECT/locations/global/endpoints/openapi",
        ),
        ServiceName::Bedrock => {
            private("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1")
        }
    }
}

/// Returns the variables that hold the keys of known services, by the services' own documentation.
#[must_use]
pub fn known_key_variables() -> Vec<&'static str> {
    let Kind::Words(names, _) = words_of::<ServiceName>(&[]) else { return Vec::new() };
    let services = names().iter().filter_map(|name| serde_json::from_value((*name).into()).ok());
    services.filter_map(|name| known(name).key).collect()
}

/// Returns a service with one address for everybody.
const fn public(base_url: &'static str, key: Option<&'static str>) -> Service {
    let (wire, profile) = (Wire::OpenAi, COMPATIBLE);
    Service {
        wire,
        base_url: Some(base_url),
        example: base_url,
        key,
        profile,
        media: &[],
        holds_to_schema: false,
    }
}

/// Returns a service that gives each customer an address.
const fn private(example: &'static str) -> Service {
    Service { base_url: None, example, ..public(example, None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_suits_its_protocol() {
        for name in [
            "anthropic",
            "openai",
            "openrouter",
            "deepseek",
            "gemini",
            "groq",
            "mistral",
            "ollama",
            "llama.cpp",
            "azure",
            "vertex",
            "bedrock",
        ] {
            let name_of: ServiceName = serde_json::from_value(name.into()).expect(name);
            let service = known(name_of);
            let address = reqwest::Url::parse(service.example).expect(name);
            // A key is never sent without encryption, except to this machine.
            let is_here = crate::model::http::is_loopback(service.example);
            assert_eq!(address.scheme(), if is_here { "http" } else { "https" }, "{name}");
            assert!(!service.example.ends_with('/'), "{name}");
            assert_eq!(service.key.is_none(), is_here || service.base_url.is_none(), "{name}");
        }
    }

    #[test]
    fn the_variable_of_each_service_is_known_once() {
        let found = known_key_variables();
        assert_eq!(found[..2], ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]);
        assert_eq!(found.len(), 7, "{found:?}");
    }
}
