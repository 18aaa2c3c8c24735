//! `[providers]` and `[models]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::shape::kinds::{
    COUNT, FILE, HEADERS, KEY_FILE, PRICE, PROVIDER, SECRET, SHARE, TEXT, TOKENS, VARIABLE,
    words_of,
};
use crate::config::shape::{Kind, ListOr, Named, sections, words};
use crate::spec::Thinking;
use crate::spec::capability::Capability;

words! { Wire Thinking }

/// The words for the effort of a model.
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// The known_capabilities of a provider: a list, or the word that has it asked.
const CAPABILITIES: Kind =
    Kind::Either(&[Kind::List(&words_of::<Capability>(&[])), Kind::Words(|| &["probe"], &[])]);

/// The protocol of a provider, as it is written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Wire {
    Anthropic,
    OpenAi,
    Scripted,
}

sections! {
    /// A server that is called.
    Provider {
        /// The protocol, which every provider must state: `anthropic`, the Messages API; `openai`,
        /// the chat completions API, of any compatible server; `scripted`, replies from a script,
        /// without a network.
        kind: Wire, words_of::<Wire>(&["replay"]);
        /// Where it is: the origin of an Anthropic server, `/v1` included for `openai`.
        base_url: String, TEXT => "the public service", gives "bad_value";
        /// Where its key is found, like `{ env = "NAME_OF_A_VARIABLE" }`; never the key itself.
        api_key: KeySource, Kind::Key(KeySource::KEYS)
            => "ANTHROPIC_API_KEY or OPENAI_API_KEY for the public services, else none",
            gives "literal_key", "missing_field", "missing_key";
        /// More headers for every request, by name.
        headers: Named<String> = Named::default(), Kind::Map(&HEADERS, &Kind::Header);
        /// The longest that a connection may take to open.
        connect_timeout: Duration = Duration::from_secs(10), Kind::Time;
        /// The longest that one request may take.
        request_timeout: Duration = Duration::from_secs(600), Kind::Time;
        /// The script of a provider of kind `scripted`, which must have one.
        script: String, FILE, gives "bad_script";
        /// The limits of calls to it, for all agents together.
        rate_limit: RateLimit = RateLimit::default(), RateLimit::KIND;
    }

    /// Where a provider's key is found: in exactly one of these.
    KeySource {
        /// The variable of the environment that holds it.
        env: String, VARIABLE;
        /// The entry of `[secrets]` that says where it is.
        secret: String, SECRET;
        /// The file that holds it and nothing else; white space around it does not count.
        file: String, KEY_FILE;
    }

    /// The limits of calls to a provider, for all agents together.
    RateLimit {
        /// The calls at once.
        max_concurrency: usize = 8, COUNT;
        /// A `Retry-After` that one agent is told holds for all of them.
        respect_retry_after: bool = true, Kind::Truth;
    }
    later {
        /// The calls a minute.
        requests_per_minute;
        /// The tokens a minute.
        tokens_per_minute;
        /// Fewer calls are made at once while the provider says that it is overloaded.
        adaptive;
    }

    /// A model.
    Model {
        /// The provider that serves it.
        provider: String, PROVIDER => "the public service whose key is set";
        /// The provider's name for it, which every model must state.
        model: String, TEXT;
        /// The sampling temperature.
        temperature: f64, Kind::Number(0, 2, "") => "the provider's";
        /// The share of likely tokens that are sampled from.
        top_p: f64, SHARE => "the provider's";
        /// The longest that one reply may be. It must be less than `context_window`.
        max_output_tokens: u64, TOKENS => "8192, but at most half of `context_window`";
        /// The size of its window, input and output together. A model with a smaller window than
        /// today's common ones must state it.
        context_window: u64 = 200_000, TOKENS;
        /// The effort of its thinking, where the server can be told: `none`, `minimal`, `low`,
        /// `medium`, `high` or `xhigh`.
        reasoning_effort: String, Kind::Words(|| &EFFORTS, &[]) => "the provider's";
        /// The seed of its sampling, where the server takes one.
        seed: u64, Kind::Whole(0, i64::MAX, "");
        /// The time for which its thinking stays valid: `bound`, while nothing before it changes
        /// (after an edit it is left out), or `free`, always.
        thinking: Thinking = Thinking::Bound, words_of::<Thinking>(&[]);
        /// The known_capabilities of its provider with a context, or `"probe"` to ask for them before the
        /// first call: `context_editing`, it clears old tool results and thinking;
        /// `compact_threshold`, it summarises amid a reply; `compact_on_demand`, it summarises when
        /// it is asked to.
        capabilities: ListOr, CAPABILITIES => "none", gives "conflict";
        /// The prices of its tokens. A ceiling in money needs them.
        cost_per_mtok: Prices, Prices::KIND => "unknown", gives "missing_field";
    }
    later {
        /// The models that are tried when this one cannot be called.
        fallbacks;
    }

    /// The prices of tokens.
    Prices {
        /// Input that is not cached. It must be stated.
        input: f64, PRICE;
        /// Output. It must be stated.
        output: f64, PRICE;
        /// Input that is read from the cache.
        cache_read: f64, PRICE => "as `input`";
        /// Input that is written to the cache.
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
