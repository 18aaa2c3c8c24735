//! Declares the keys of `[providers]` and `[models]`.

use std::time::Duration;

use figment::value::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::admission::OnQuota;
use crate::config::shape::kinds::{
    COUNT, FILE, HEADERS, KEY_FILE, MODELS, NAME_OF_PEOPLE, PRICE, PROVIDER, SECRET, SHARE, TEXT,
    TOKENS, VARIABLE, WINDOW, words_of,
};
use crate::config::shape::{Kind, List, ListOr, Named, Read, Section, sections, words};
use crate::config::tree::Places;
use crate::message::media::Media;
use crate::model::openai::MaxTokensField;
use crate::spec::capability::Capability;
use crate::spec::{Thinking, fallback_cooldown};

words! { Wire Thinking CacheTime ServiceName MaxTokensField OnQuota PriceList Media }

/// The value of a header as the file writes it.
#[derive(Debug)]
pub(in crate::config) enum HeaderValue {
    Written(String),
    Read(KeySource),
}

impl Read for HeaderValue {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        match value.as_dict() {
            Some(dict) => Some(Self::Read(KeySource::read_keys(dict, places))),
            None => places.text(value).map(Self::Written),
        }
    }
}

/// The words for the effort of a model's thinking.
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// The list of prices that is used for a model whose own are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum PriceList {
    Builtin,
    None,
}

/// The known capabilities of a provider: a list, or the word `probe`, by which the provider is
/// asked.
const CAPABILITIES: Kind =
    Kind::Either(&[Kind::List(&words_of::<Capability>(&[])), Kind::Words(|| &["probe"], &[])]);

/// The thinking of a model: the rule by which it stays valid, or a table.
const THINKING: Kind = Kind::Either(&[words_of::<Thinking>(&[]), Kind::Any]);

/// The time for which a provider keeps a cached prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::config) enum CacheTime {
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    #[serde(rename = "1h")]
    OneHour,
}

/// The protocol of a provider as the file writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Wire {
    Anthropic,
    OpenAi,
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    Scripted,
}

impl Wire {
    /// Returns true for the two protocols of OpenAI.
    pub(in crate::config) fn is_openai(self) -> bool {
        matches!(self, Self::OpenAi | Self::OpenAiResponses)
    }
}

/// A known service as the file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum ServiceName {
    Anthropic,
    OpenAi,
    OpenRouter,
    DeepSeek,
    Gemini,
    Groq,
    Mistral,
    Ollama,
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    Azure,
    Vertex,
    Bedrock,
}

sections! {
    /// A server of models.
    Provider {
        /// The service behind the provider, if it is a known one. It gives the protocol, the address, the
        /// variable of the key and the differences of its server; each can still be set. `azure`,
        /// `vertex` and `bedrock` give each customer an address, so `base_url` and `api_key` must be stated.
        service: ServiceName, words_of::<ServiceName>(&[]), gives "conflict";
        /// The protocol of the provider, which must be stated without `service`: `anthropic`, the Messages API;
        /// `openai`, the chat completions API of any compatible server; `openai-responses`, the Responses
        /// API, whose reasoning is kept over turns; `scripted`, replies from a script, without a network.
        kind: Wire, words_of::<Wire>(&["replay"]);
        /// The address of the provider: the origin of an Anthropic server; for `openai` with `/v1`.
        base_url: String, TEXT => "from the service", gives "bad_value", "literal_key", "odd_base_url", "plain_http";
        /// The source of the provider's key, like `{ env = "NAME_OF_A_VARIABLE" }`; never the key
        /// itself.
        api_key: KeySource, Kind::Key(KeySource::KEYS)
            => "ANTHROPIC_API_KEY or OPENAI_API_KEY for the public services, else none",
            gives "literal_key", "missing_field", "missing_key";
        /// Additional headers of every request, by name. A value that is secret is not written but read,
        /// like `{ env = "NAME_OF_A_VARIABLE" }`.
        headers: Named<HeaderValue> = Named::default(),
            Kind::Map(&HEADERS, &Kind::Header(KeySource::KEYS)), gives "unknown_key", "unknown_secret";
        /// The field of a request that limits the reply, for kind `openai`: the old name, or the new one that
        /// reasoning models want.
        max_tokens_field: MaxTokensField, words_of::<MaxTokensField>(&[]) => "from the service";
        /// If `false`, the server is not asked for token counts at the end of a stream, for servers of kind
        /// `openai` that refuse the question.
        stream_usage: bool, Kind::Truth => "from the service";
        /// If `true`, reasoning is sent back to a server of kind `openai` as it came. Some servers need it for
        /// calls of tools, most ignore it, and some refuse fields that they do not know.
        send_reasoning: bool, Kind::Truth => "from the service";
        /// If `true`, requests of one prefix have one `prompt_cache_key`, for servers of kind `openai` that
        /// know it.
        prompt_cache_key: bool, Kind::Truth => "from the service";
        /// The time for which a server of kind `anthropic` keeps what it caches after each use: `5m` or `1h`.
        /// An hour pays for agents that wait for people or long commands; writes cost twice the input then.
        cache_ttl: CacheTime = CacheTime::FiveMinutes, words_of::<CacheTime>(&[]);
        /// If `true`, the provider is asked to hold the answer of a task with `output_schema` to the schema. A
        /// provider that refuses the schema is called without; the answer is judged in any case.
        structured_output: bool, Kind::Truth => "from the service";
        /// The longest time that opening a connection may take.
        connect_timeout: Duration = Duration::from_secs(10), Kind::Time;
        /// The longest time from the start of a request to the first byte of the reply, for which a long
        /// prompt may have to be read.
        first_byte_timeout: Duration = Duration::from_secs(120), Kind::Time;
        /// The longest time without data within a reply.
        idle_timeout: Duration, Kind::Time => "from `[defaults]`";
        /// The longest time in which nothing is added to a reply, though its stream is alive. A reply that
        /// becomes longer may take any time.
        request_timeout: Duration = Duration::from_secs(600), Kind::Time;
        /// The script of a provider of kind `scripted`, for which it must be stated.
        script: String, FILE, gives "bad_script", "unmatched_agent";
        /// The limits of calls to the provider, over all agents.
        rate_limit: RateLimit = RateLimit::default(), RateLimit::KIND;
    }

    /// The source of a provider's key, or of the value of a header: exactly one of these keys.
    KeySource {
        /// The environment variable that holds the key.
        env: String, VARIABLE;
        /// The name of the entry of `[secrets]` that gives the source of the key.
        secret: String, SECRET;
        /// The file that holds only the key; white space around it is ignored.
        file: String, KEY_FILE;
    }

    /// The limits of calls to a provider, over all agents.
    RateLimit {
        /// The most calls at the same time.
        max_concurrency: usize = 8, COUNT;
        /// If `true`, a `Retry-After` that one agent receives makes the calls of all agents wait.
        respect_retry_after: bool = true, Kind::Truth;
        /// The most calls in a minute. They are spaced evenly.
        requests_per_minute: u64, COUNT => "those that the provider allows";
        /// The most tokens in a minute, of input and output together, without input that is read from a
        /// cache.
        tokens_per_minute: u64, COUNT => "those that the provider allows";
        /// If `true`, the number of calls at the same time is halved while the provider refuses calls
        /// (HTTP 429 and 529), and grows back; and more than 8 begin within some seconds, not at once.
        adaptive: bool = true, Kind::Truth;
        /// What follows when the quota or the credit of the account is used up. `wait`: the run is paused
        /// until the reset that the provider names, or else one call tries it, after a minute and then at
        /// growing intervals of up to half an hour, and the run goes on by itself. `pause`: the run pauses
        /// and the program ends; `callsheet resume` continues it. `fail`: the call fails.
        on_quota: OnQuota = OnQuota::Wait, words_of::<OnQuota>(&[]);
        /// The longest time that is waited for a reset; for a longer one the run pauses and the program ends.
        max_wait: Duration, Kind::Time => "no limit";
    }

    /// A model that agents can use.
    Model {
        /// The provider that serves the model.
        provider: String, PROVIDER => "the public service whose key is set";
        /// The provider's own name for the model, which must be stated.
        model: String, NAME_OF_PEOPLE;
        /// The sampling temperature.
        temperature: f64, Kind::Number(0, 2, "") => "the provider's";
        /// The share of likely tokens from which the model samples (nucleus sampling).
        top_p: f64, SHARE => "the provider's";
        /// The most tokens of one reply. It must be less than `context_window`.
        max_output_tokens: u64, TOKENS => "8192, but at most half of `context_window`";
        /// The size of the context window, input and output together. It must be stated for a model
        /// with a smaller window than the default.
        context_window: u64 = 200_000, WINDOW;
        /// The effort of the model's thinking, for servers that accept it: `none`, `minimal`,
        /// `low`, `medium`, `high` or `xhigh`.
        reasoning_effort: String, Kind::Words(|| &EFFORTS, &[]) => "the provider's";
        /// The seed of the sampling, for servers that accept one.
        seed: u64, Kind::Whole(0, i64::MAX, "");
        /// The thinking that the model is asked for, for kind `anthropic`, like `{ type = "adaptive" }`,
        /// `{ type = "enabled", budget = 8000 }` (tokens, from 1024 and below `max_output_tokens`) or
        /// `{ type = "disabled" }`; or only the rule by which its thinking stays valid, which is `rule` in
        /// the table: `bound`, while nothing before it
        /// changes (after an edit it is left out), or `free`, always.
        thinking: Json, THINKING => "`bound` (`free` for kind `openai-responses`), and the provider's own mode", gives "bad_value", "conflict", "unknown_key";
        /// What the model reads besides text, `image` and `pdf`: such files are given to it by `read_file`. To
        /// other models a sentence stands in their place.
        media: List<Media>, Kind::List(&words_of::<Media>(&[])) => "what the service's newest models read";
        /// The known capabilities of the model's provider, or `"probe"` to ask the provider before
        /// the first call: `context_editing`, it clears old tool results and thinking;
        /// `compact_threshold`, it summarises during a reply; `compact_on_demand`, it summarises
        /// when a request asks for it. Kind `openai-responses` has `compact_threshold`.
        capabilities: ListOr, CAPABILITIES => "none", gives "conflict";
        /// Fields of every request that callsheet does not know, like `{ thinking = { type = "enabled",
        /// budget_tokens = 4000 } }` or `{ top_k = 20 }`. They are sent as they are.
        extra_body: Json, Kind::Any => "none", gives "bad_value", "conflict", "literal_key";
        /// The prices of the model's tokens. A limit in money needs them.
        cost_per_mtok: Prices, Prices::KIND => "from `prices`", gives "missing_field";
        /// The prices of a model without `cost_per_mtok`: `builtin`, those that callsheet knows of models
        /// by name, with the day on which they were right (`callsheet check` shows it); `none`, its cost
        /// is not counted.
        prices: PriceList, words_of::<PriceList>(&[]) => "`prices` of `[defaults]`", gives "unknown_price";
        /// The models that are called when this one cannot be: when its provider fails three times in a row,
        /// refuses the key or does not know the model, or the quota is used up. They are tried in this order,
        /// with the same conversation without thinking, if their window holds it.
        fallbacks: List<String> = Vec::new(), MODELS, gives "bad_value";
        /// The time after which one call tries a model again that was given up for a fallback.
        fallback_cooldown: Duration = fallback_cooldown(), Kind::Time;
    }

    /// The prices of a model's tokens.
    Prices {
        /// The price of input that is not cached. It must be stated.
        input: f64, PRICE;
        /// The price of output. It must be stated.
        output: f64, PRICE;
        /// The price of input that is read from the cache.
        cache_read: f64, PRICE => "as `input`";
        /// The price of input that is written to the cache.
        cache_write: f64, PRICE => "1.25 times `input`";
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, Diagnostics, Sources, load_text};
    use crate::spec::capability::{Capabilities, Declared};

    fn load(provider: &str, capabilities: &str) -> Result<Config, Diagnostics> {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("s.toml"), "[[rules]]\nsay = 'x'\n").expect("written");
        let text = format!(
            "version = 1\n[providers.p]\n{provider}\n[models.m]\nprovider = 'p'\nmodel = 'x'\n\
             capabilities = {capabilities}\n[agents.a]\ninstructions = 'I'\nmodel = 'm'\n\
             [tasks.t]\nagent = 'a'\nprompt = 'P'\n"
        );
        load_text(&text, &Sources::new(Path::new(directory.path()).join("agents.toml")))
    }

    const ANTHROPIC: &str = "kind = 'anthropic'\nbase_url = 'http://127.0.0.1:9'";

    fn problems(provider: &str, capabilities: &str) -> Vec<String> {
        let found = load(provider, capabilities).expect_err("a mistake").0;
        let show = |d: crate::config::Diagnostic| {
            format!("{}:{} {} | {}", d.line, d.column, d.message, d.help.unwrap_or_default())
        };
        found.into_iter().map(show).collect()
    }

    #[test]
    fn what_is_listed_arrives() {
        let declared = |written: &str| {
            load(ANTHROPIC, written).expect("no mistake").models["m"].capabilities.clone()
        };
        let listed: Capabilities =
            [Capability::ContextEditing, Capability::CompactOnDemand].into_iter().collect();
        let written = "['compact_on_demand', 'context_editing']";
        assert_eq!(declared(written), Declared::Listed(listed));
        assert_eq!(declared("[]"), Declared::default());
        assert_eq!(declared("'probe'"), Declared::Probe);
    }

    /// A provider with these headers and variables.
    fn with_headers(headers: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let text = format!(
            "version = 1\n[secrets]\nS = {{ env = 'OF_SECRET' }}\nO = {{ env = 'NONE', required = false }}\n\
             [providers.p]\n{ANTHROPIC}\nheaders = {{ {headers} }}\n\
             [models.m]\nprovider = 'p'\nmodel = 'x'\n\
             [agents.a]\ninstructions = 'I'\nmodel = 'm'\n[tasks.t]\nagent = 'a'\nprompt = 'P'\n"
        );
        let mut sources = Sources::new("agents.toml");
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        sources.environment = variables.collect();
        load_text(&text, &sources).map_err(|found| {
            let shown = found.0.iter().map(|d| {
                let shown = format!("{d:?}");
                assert!(!shown.contains("hush"), "{shown}");
                format!("{}:{} {} {}", d.line, d.column, d.code, d.message)
            });
            shown.collect()
        })
    }

    /// A provider and a model with these lines.
    fn with_provider(
        provider: &str,
        model: &str,
        variables: &[(&str, &str)],
    ) -> Result<Config, Vec<String>> {
        let text = format!(
            "version = 1\n[providers.p]\n{provider}\n[models.m]\nprovider = 'p'\nmodel = 'x'\n{model}\n\
             [agents.a]\ninstructions = 'I'\nmodel = 'm'\n[tasks.t]\nagent = 'a'\nprompt = 'P'\n"
        );
        let mut sources = Sources::new("agents.toml");
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        sources.environment = variables.collect();
        load_text(&text, &sources).map_err(|found| {
            found
                .0
                .iter()
                .map(|d| format!("{}:{} {} {}", d.line, d.column, d.code, d.message))
                .collect()
        })
    }

    #[test]
    fn a_service_gives_what_its_provider_leaves_open() {
        let key = [("GROQ_API_KEY", "hush")];
        let config = with_provider("service = 'groq'", "", &key).expect("no mistake");
        let groq = &config.providers["p"];
        assert_eq!(groq.base_url, "https://api.groq.com/openai/v1");
        assert_eq!(groq.key.as_ref().map(crate::config::Secret::expose), Some("hush"));
        // An address of one's own never gets the key of a service.
        let own = "service = 'groq'\nbase_url = 'https://proxy.example/v1'";
        let config = with_provider(own, "", &key).expect("no mistake");
        assert_eq!(config.providers["p"].key, None);
        let azure = "service = 'azure'\nbase_url = 'https://r.openai.azure.com/openai/v1'\n\
                     api_key = { env = 'GROQ_API_KEY' }\nmax_tokens_field = 'max_tokens'\nstream_usage = false";
        let config = with_provider(azure, "", &key).expect("no mistake");
        let profile = config.providers["p"].profile;
        assert_eq!(profile.key_header, crate::model::openai::KeyHeader::ApiKey);
        assert_eq!(
            (profile.max_tokens_field, profile.include_usage),
            (MaxTokensField::MaxTokens, false)
        );
        let told = |provider: &str| with_provider(provider, "", &[]).expect_err("a mistake");
        assert_eq!(
            told("service = 'groq'"),
            ["2:12 missing_key the environment variable `GROQ_API_KEY` is not set"]
        );
        let none =
            "3:1 missing_field provider `p` has no `base_url`, and its service has none for all";
        assert_eq!(told("service = 'azure'"), [none]);
        let other = "4:8 conflict provider `p` is of another kind than its service";
        assert_eq!(told("service = 'ollama'\nkind = 'anthropic'"), [other]);
    }

    #[test]
    fn fields_that_callsheet_does_not_know_are_kept() {
        let fields = |written: &str| {
            with_provider("service = 'ollama'", &format!("extra_body = {written}"), &[])
        };
        let config =
            fields("{ top_k = 20, thinking = { type = 'adaptive' } }").expect("no mistake");
        let kept = config.models["m"].extra_body.as_ref().expect("fields").to_value();
        assert_eq!(kept, serde_json::json!({"top_k": 20, "thinking": {"type": "adaptive"}}));
        let own = "7:14 conflict `extra_body` has `stream`, which callsheet writes itself";
        assert_eq!(fields("{ stream = false }").expect_err("a mistake"), [own]);
        let shape = "7:14 bad_value `extra_body` must be a table of fields";
        assert_eq!(fields("7").expect_err("a mistake"), [shape]);
        let key = "7:14 literal_key `api_key` in `extra_body` holds what looks like a key: headers of \
                   this name carry keys";
        assert_eq!(fields("{ x = [{ api_key = 'hush' }] }").expect_err("a mistake"), [key]);
        let key = "7:14 literal_key `a_token` in `extra_body` holds what looks like a key: keys begin \
                   with `sk-`";
        assert_eq!(fields("{ a_token = 'sk-hush-hush-hush' }").expect_err("a mistake"), [key]);
        assert!(fields("{ eos_token = '<s>' }").is_ok());
    }

    #[test]
    fn thinking_is_a_rule_or_a_table() {
        use crate::spec::{Thinking, ThinkingMode};
        let anthropic = "kind = 'anthropic'\nbase_url = 'http://127.0.0.1:1'";
        let load = |written: &str| with_provider(anthropic, &format!("thinking = {written}"), &[]);
        let read = |written: &str| {
            let config = load(written).expect("no mistake");
            let model = &config.models["m"];
            (model.thinking, model.thinking_mode)
        };
        assert_eq!(read("'free'"), (Thinking::Free, None));
        let adaptive = read("{ type = 'adaptive', rule = 'free' }");
        assert_eq!(adaptive, (Thinking::Free, Some(ThinkingMode::Adaptive)));
        let enabled = Some(ThinkingMode::Enabled { budget_tokens: 2_000 });
        assert_eq!(read("{ type = 'enabled', budget = 2000 }"), (Thinking::Bound, enabled));
        assert_eq!(read("{ type = 'disabled' }").1, Some(ThinkingMode::Disabled));
        let wrong = |written: &str| load(written).expect_err("a mistake").join("; ");
        for (written, problem) in [
            ("7", "8:12 bad_value `thinking` must be `\"bound\"`, `\"free\"` or a table"),
            ("{ type = 'enabled' }", "8:12 bad_value `thinking` of type `enabled` has no `budget`"),
            (
                "{ type = 'adaptive', budget = 2000 }",
                "8:12 bad_value only `thinking` of type `enabled` has a `budget`",
            ),
            (
                "{ type = 'on' }",
                "8:12 bad_value `type` must be `\"adaptive\"`, `\"enabled\"` or `\"disabled\"`",
            ),
            (
                "{ type = 'adaptive', rule = 'x' }",
                "8:12 bad_value `rule` must be `\"bound\"` or `\"free\"`",
            ),
            (
                "{ type = 'adaptive', effort = 'x' }",
                "8:12 unknown_key `thinking` has no key `effort`",
            ),
        ] {
            assert_eq!(wrong(written), problem);
        }
        for budget in ["1023", "8192", "'x'", "-1"] {
            let problem = wrong(&format!("{{ type = 'enabled', budget = {budget} }}"));
            assert!(problem.contains("from 1024 to 8191"), "{problem}");
        }
        let both = "{ type = 'adaptive' }\nextra_body = { thinking = { type = 'disabled' } }";
        assert!(wrong(both).contains("conflict `extra_body` has `thinking`"));
        let other = with_provider("service = 'ollama'", "thinking = { type = 'adaptive' }", &[]);
        let other = other.expect_err("a mistake").join("; ");
        assert!(
            other.contains("conflict the provider of model `m` is of kind `openai`"),
            "{other}"
        );
    }

    #[test]
    fn an_hour_of_cache_has_its_price() {
        let price = |ttl: &str| {
            let provider = format!("kind = 'anthropic'\nbase_url = 'http://127.0.0.1:1'\n{ttl}");
            let prices = "cost_per_mtok = { input = 3, output = 15 }";
            let config = with_provider(&provider, prices, &[]).expect("no mistake");
            let price = config.models["m"].price.expect("prices");
            (config.providers["p"].caches_for_hour, price.cache_write)
        };
        assert_eq!(price(""), (false, 3.75));
        assert_eq!(price("cache_ttl = '1h'"), (true, 6.0));
    }

    #[test]
    fn headers_are_written_or_read() {
        let headers = "x-team = 'platform', x-key = { env = 'OF_HEADER' }, \
                       authorization = { secret = 'S' }, x-none = { secret = 'O' }";
        let variables = [("OF_HEADER", " hush-1\n"), ("OF_SECRET", "Bearer hush-2")];
        let config = with_headers(headers, &variables).expect("no mistake");
        let provider = &config.providers["p"];
        let shown = |all: &std::collections::BTreeMap<String, crate::config::Secret>| {
            let all = all.iter().map(|(name, value)| format!("{name}: {}", value.expose()));
            all.collect::<Vec<_>>()
        };
        assert_eq!(shown(&provider.headers), ["x-team: platform"]);
        let secret = ["authorization: Bearer hush-2", "x-key: hush-1"];
        assert_eq!(shown(&provider.secret_headers), secret);
    }

    #[test]
    fn an_address_holds_no_key_unless_a_variable_gives_it() {
        let with_key = "https://team:hush-hush@proxy.example/v1";
        let told = |variables: &[(&str, &str)], address: &str| {
            let provider = format!("kind = 'openai'\nbase_url = '{address}'");
            let loaded = with_provider(&provider, "", variables);
            loaded.map(|config| format!("{:?} {}", config.providers["p"], config.warnings.len()))
        };
        let refused =
            "4:12 literal_key the address `https://[redacted]@proxy.example/v1` holds a key";
        assert_eq!(told(&[], with_key).expect_err("a mistake"), [refused]);
        let query = "https://proxy.example/v1?api-version=2024-10-21&api-key=hush-hush";
        let refused = "4:12 literal_key the address `https://proxy.example/v1?api-version=2024-10-21&\
                       api-key=[redacted]` holds a key";
        assert_eq!(told(&[], query).expect_err("a mistake"), [refused]);
        for address in [with_key, query] {
            let variable = [("CALLSHEET_PROVIDERS__P__BASE_URL", address)];
            let shown = told(&variable, "https://proxy.example/v1").expect("no mistake");
            assert!(shown.contains("[redacted]") && !shown.contains("hush"), "{shown}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_or_are_keys_are_told() {
        let told = |headers: &str| {
            with_headers(headers, &[("LINES", "hush\nhush")]).expect_err("a mistake").join("; ")
        };
        assert_eq!(
            told("x-key = { env = 'NONE' }"),
            "8:29 missing_key the environment variable `NONE` is not set"
        );
        assert_eq!(
            told("x-key = { env = 'LINES' }"),
            "8:21 bad_value the value of the header `x-key` must be printable ASCII"
        );
        assert_eq!(told("x-key = { secret = 'T' }"), "8:32 unknown_secret there is no secret `T`");
        assert_eq!(
            told("x-key = { file = 'f', env = 'LINES' }").split(';').next(),
            Some("8:13 missing_field `x-key` must have exactly one of `env`, `secret` and `file`")
        );
        assert_eq!(
            told("authorization = 'Bearer hush'"),
            "8:29 literal_key the header `authorization` holds what looks like a key: headers of \
             this name carry keys"
        );
        assert_eq!(
            told("Content_Length = '5'"),
            "8:13 bad_value the header `Content_Length` is no setting: it says where a request ends"
        );
        assert!(told("transfer-encoding = { env = 'LINES' }").starts_with("8:13 bad_value"));
        assert_eq!(
            told("x-team = 'sk-hush-hush-hush'"),
            "8:22 literal_key the header `x-team` holds what looks like a key: keys begin with `sk-`"
        );
    }

    #[test]
    fn other_words_and_other_wires_are_refused() {
        let known = "use some of `context_editing`, `compact_threshold` and `compact_on_demand`";
        assert_eq!(
            problems(ANTHROPIC, "['context-editin', 'magic', 7]"),
            [
                "8:17 there is no capability `context-editin` | did you mean `context_editing`?"
                    .to_owned(),
                format!("8:35 there is no capability `magic` | {known}"),
                "8:44 a capability must be a string, not an integer | ".to_owned(),
            ]
        );
        let shape = "8:16 `capabilities` must be an array of names, or `\"probe\"` | ";
        assert_eq!(problems(ANTHROPIC, "true"), [format!("{shape}{known}")]);
        assert_eq!(problems(ANTHROPIC, "'prob'"), [format!("{shape}{known}")]);
        let openai = "kind = 'openai'\nbase_url = 'http://127.0.0.1:9/v1'";
        for (kind, provider) in
            [("openai", openai), ("scripted", "kind = 'scripted'\nscript = 's.toml'")]
        {
            let refused = format!(
                "8:1 the provider of model `m` is of kind `{kind}`, which has none | leave \
                 `capabilities` out"
            );
            assert_eq!(problems(provider, "'probe'"), [refused]);
        }
    }
}
