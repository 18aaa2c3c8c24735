//! The words in which services refuse a request, and what they mean.
//!
//! Pure. Owns the table, service by service. A server may repeat what it was sent, so only the beginning
//! of a message is read, without the passages that it quotes; and what makes a run wait or ends a task
//! (a quota, a key, a model) must be what the message begins with.

use std::sync::LazyLock;

use regex::Regex;

use super::super::bounds::TOKENS;

/// The characters of a message in which the words are looked for. The longest known sentence, that of the
/// services behind OpenRouter, names its numbers within 250.
const HEAD_CHARS: usize = 400;

/// The meaning of a refusal's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The conversation does not fit the window.
    TooLong,
    /// The prompt does not fit the slot of the server, which some versions tell with status 500.
    SlotTooSmall,
    /// One request is larger than all that a minute allows: waiting does not help.
    OverMinute,
    /// The quota or the credit is used up.
    Quota,
    /// The key is wrong.
    Key,
    /// The service does not know the model.
    Model,
    /// The model wrote a call that the server could not read.
    BadCall,
    /// A call without a result, or the reverse.
    Pairing,
    /// A thinking block was changed.
    Thinking,
    /// The server was started without what the request needs, which it tells with status 500.
    Never,
}

/// The numbers of tokens that a refusal names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The tokens of the conversation.
    pub(super) have: Option<u64>,
    /// The tokens that are allowed.
    pub(super) max: Option<u64>,
}

use Meaning::{
    BadCall, Key, Model, Never, OverMinute, Pairing, Quota, SlotTooSmall, Thinking, TooLong,
};

/// Types and codes of error objects.
const CODES: &[(&str, Meaning)] = &[
    ("context_length_exceeded", TooLong),
    ("prompt_too_long", TooLong),
    ("context_window_exceeded", TooLong),
    ("model_context_window_exceeded", TooLong),
    ("model_max_prompt_tokens_exceeded", TooLong),
    ("string_above_max_length", TooLong),
    ("ContextWindowExceededError", TooLong),
    // Z.ai numbers its errors.
    ("1261", TooLong),
    ("exceed_context_size_error", SlotTooSmall),
    ("insufficient_quota", Quota),
    ("usage_limit_reached", Quota),
    ("billing_error", Quota),
    ("billing_hard_limit_reached", Quota),
    ("billing_not_active", Quota),
    ("exceeded_current_quota_error", Quota),
    ("insufficient_balance", Quota),
    ("insufficient_credits", Quota),
    ("budget_exceeded", Quota),
    ("Arrearage", Quota),
    ("1113", Quota),
    ("1308", Quota),
    ("invalid_api_key", Key),
    ("API_KEY_INVALID", Key),
    ("API_KEY_EXPIRED", Key),
    ("model_not_found", Model),
    ("model_not_supported", Model),
    ("invalid_model", Model),
    ("unknown_model", Model),
    ("DeploymentNotFound", Model),
    ("1211", Model),
    ("tool_use_failed", BadCall),
];

/// Sentences: the services that say it, the meaning, and the words with groups for the numbers. `have` is
/// the tokens of the conversation, `total` these with the `output` that was asked for.
const SENTENCES: &[(&str, Meaning, &str)] = &[
    (
        "Anthropic",
        TooLong,
        r"prompt is too long(?:: (?P<have>[\d,]+) tokens > (?P<max>[\d,]+) maximum)?",
    ),
    (
        "Anthropic",
        TooLong,
        r"exceed context limit(?:: (?P<have>[\d,]+) \+ [\d,]+ > (?P<max>[\d,]+))?",
    ),
    (
        "OpenAI, Azure, DeepSeek, vLLM",
        TooLong,
        r"maximum context length is (?P<max>[\d,]+) tokens.*you requested (?P<total>[\d,]+) tokens \([^)]*?(?P<output>[\d,]+) in the completion\)",
    ),
    (
        "OpenAI, NVIDIA",
        TooLong,
        r"maximum context length is (?P<max>[\d,]+) tokens.*resulted in (?P<have>[\d,]+) tokens",
    ),
    (
        "vLLM",
        TooLong,
        r"maximum context length is (?P<max>[\d,]+) tokens and your request has (?P<have>[\d,]+) input tokens",
    ),
    (
        "OpenRouter",
        TooLong,
        r"maximum context length is (?P<max>[\d,]+) tokens.*you requested about (?P<total>[\d,]+) tokens \([^)]*?(?P<output>[\d,]+) in the output\)",
    ),
    (
        "SGLang",
        TooLong,
        r"maximum context length of (?P<max>[\d,]+) tokens.*you requested a total of (?P<total>[\d,]+) tokens: (?P<have>[\d,]+) tokens from the input",
    ),
    ("OpenAI (Responses)", TooLong, r"exceeds the context window"),
    ("Bedrock", TooLong, r"input is too long"),
    ("Bedrock", TooLong, r"^input tokens exceeded|number of input tokens exceeds"),
    (
        "Gemini",
        TooLong,
        r"input token count(?: \((?P<have>[\d,]+)\))? exceeds the maximum number of tokens allowed(?: \(?(?P<max>[\d,]+)\)?)?",
    ),
    (
        "xAI",
        TooLong,
        r"maximum prompt length is (?P<max>[\d,]+) but the request contains (?P<have>[\d,]+) tokens",
    ),
    ("Groq, Cerebras", TooLong, r"reduce the length of (?:the|your) messages"),
    (
        "GitHub Copilot",
        TooLong,
        r"prompt token count(?: of (?P<have>[\d,]+))? exceeds the limit of (?P<max>[\d,]+)",
    ),
    (
        "Mistral",
        TooLong,
        r"prompt contains (?P<have>[\d,]+) tokens.*too large for model with (?P<max>[\d,]+) maximum context length",
    ),
    ("LM Studio", TooLong, r"greater than the context length"),
    ("LM Studio", TooLong, r"when context the overflows|keep the first [\d,]+ tokens when context"),
    ("Ollama", TooLong, r"prompt too long; exceeded (?:max )?context length"),
    ("Ollama", TooLong, r"input length exceeds the context length"),
    (
        "SGLang",
        TooLong,
        r"input \((?P<have>[\d,]+) tokens\) is longer than the model's context length \((?P<max>[\d,]+) tokens\)",
    ),
    (
        "vLLM",
        TooLong,
        r"prompt \(length (?P<have>[\d,]+)\) is longer than the maximum model length of (?P<max>[\d,]+)",
    ),
    (
        "vLLM",
        TooLong,
        r"you passed (?P<have>[\d,]+) input tokens.*context length is only (?P<max>[\d,]+) tokens",
    ),
    ("vLLM", TooLong, r"max_(?:completion_)?tokens must be at least 1, got -"),
    ("Kimi", TooLong, r"exceeded model token limit: (?P<max>[\d,]+)"),
    ("MiniMax", TooLong, r"context window exceeds limit"),
    ("Z.ai", TooLong, r"prompt exceeds max length"),
    ("Qwen", TooLong, r"range of input length should be \[\d+, ?(?P<max>[\d,]+)\]"),
    (
        "Together, Hugging Face",
        TooLong,
        r"`?inputs`? tokens \+ `?max_new_tokens`? must be <= (?P<max>[\d,]+)\. given: (?P<have>[\d,]+)",
    ),
    (
        "Hugging Face",
        TooLong,
        r"`?inputs`? must have less than (?P<max>[\d,]+) tokens\. given: (?P<have>[\d,]+)",
    ),
    (
        "NVIDIA",
        TooLong,
        r"prompt length \((?P<have>[\d,]+)\) exceeds maximum input length \((?P<max>[\d,]+)\)",
    ),
    ("NVIDIA", TooLong, r"sum of prompt length .* should not exceed max_num_tokens"),
    ("Cohere", TooLong, r"too many tokens(?:$|[^,])"),
    ("OpenAI, Azure, Together, vLLM, Fireworks", TooLong, r"maximum context length"),
    ("LiteLLM", TooLong, r"ContextWindowExceededError"),
    ("several", TooLong, r"context_length_exceeded|prompt_too_long"),
    (
        "llama.cpp",
        SlotTooSmall,
        r"(?:\((?P<have>[\d,]+) tokens\) )?exceeds the available context size(?: \((?P<max>[\d,]+) tokens\))?",
    ),
    ("llama.cpp", Never, r"^tools param requires --jinja flag|^image input is not supported"),
    (
        "OpenAI, Groq",
        OverMinute,
        r"request too large for .*limit:? (?P<max>[\d,]+), requested:? (?P<have>[\d,]+)",
    ),
    ("Anthropic", Quota, r"^your credit balance is too low"),
    ("Anthropic", Quota, r"^you have reached your specified (?:api|workspace) usage limits?"),
    ("Anthropic, Z.ai", Quota, r"^(?:claude ai )?usage limit reached"),
    ("OpenAI", Quota, r"^billing hard limit has been reached"),
    ("OpenAI", Quota, r"^your account is not active, please check your billing"),
    ("OpenAI, LiteLLM", Quota, r"^you exceeded your current quota"),
    ("OpenRouter", Quota, r"^key limit exceeded|^insufficient credits"),
    (
        "xAI",
        Quota,
        r"^your (?:newly created )?team .*(?:used all available credits|monthly spending limit|doesn't have any credits)",
    ),
    ("Z.ai, MiniMax, DeepSeek", Quota, r"^insufficient balance"),
    ("LiteLLM", Quota, r"^budget has been exceeded|^exceededbudget"),
    ("OpenAI, xAI", Key, r"^incorrect api key provided"),
    ("Gemini", Key, r"^api key (?:not valid|expired|not found)|^please pass a valid api key"),
    ("several", Key, r"^invalid api[- ]key"),
    ("OpenAI", Model, r"^the (?:requested )?model .{1,120}does not exist"),
    ("Mistral", Model, r"^invalid model: "),
    ("xAI", Model, r"^model not found"),
    ("Z.ai, GitHub", Model, r"^unknown model"),
    ("DeepSeek", Model, r"^model not exist"),
    ("OpenRouter", Model, r"^\S{1,120} is not a valid model id"),
    ("Bedrock", Model, r"^the provided model identifier is invalid"),
    ("GitHub Copilot", Model, r"^the requested model is not supported"),
    ("Groq", BadCall, r"^failed to call a function|^tool call validation failed"),
    (
        "Anthropic",
        Pairing,
        r"`tool_use` ids were found without `tool_result` blocks|unexpected `tool_use_id` found in `tool_result` blocks",
    ),
    (
        "OpenAI",
        Pairing,
        r"must be followed by tool messages responding to each 'tool_call_id'|messages with role 'tool' must be a response to a prece+ding message with 'tool_calls'",
    ),
    (
        "Anthropic",
        Thinking,
        r"`thinking` or `redacted_thinking` blocks.*cannot be modified|`thinking` block\. the block is bound to a different conversation",
    ),
];

static PATTERNS: LazyLock<Vec<(Meaning, Regex)>> = LazyLock::new(|| {
    let compiled = SENTENCES.iter().map(|(_, meaning, words)| {
        let regex = Regex::new(&format!("(?is){words}"));
        (*meaning, regex.expect("the pattern is a constant and tested"))
    });
    compiled.collect()
});

/// Returns the meaning of a type or a code.
pub(super) fn of_code(code: &str) -> Option<Meaning> {
    CODES.iter().find(|(known, _)| *known == code).map(|(_, meaning)| *meaning)
}

/// Returns the meaning of a message, with the numbers that it names.
pub(super) fn of_message(message: &str) -> Option<(Meaning, Numbers)> {
    row_of(message).map(|(_, meaning, numbers)| (meaning, numbers))
}

/// Returns the row of the table that a message fits first, with its meaning and its numbers.
fn row_of(message: &str) -> Option<(usize, Meaning, Numbers)> {
    let whole = own_words(message);
    let words = without_names(&whole);
    PATTERNS.iter().enumerate().find_map(|(row, (meaning, pattern))| {
        // The name of an error may say it, too.
        let found = pattern.captures(words).or_else(|| pattern.captures(&whole))?;
        let number = |name: &str| -> Option<u64> {
            let digits = found.name(name)?.as_str().replace(',', "");
            Some(digits.parse::<u64>().unwrap_or(u64::MAX).min(TOKENS))
        };
        let of_total = || Some(number("total")?.saturating_sub(number("output")?));
        let numbers = Numbers { have: number("have").or_else(of_total), max: number("max") };
        Some((row, *meaning, numbers))
    })
}

/// Returns the words of the table that no message of these fits first, so that each row has an example.
#[cfg(test)]
pub(super) fn unsaid(messages: &[String]) -> Vec<&'static str> {
    let said: Vec<usize> = messages.iter().filter_map(|text| Some(row_of(text)?.0)).collect();
    let rows = SENTENCES.iter().enumerate().filter(|(row, _)| !said.contains(row));
    rows.map(|(_, (_, _, words))| *words).collect()
}

/// Returns the beginning of a message without the sentences that it quotes: those between quotation marks
/// that have a space in them.
fn own_words(message: &str) -> String {
    let mut words = String::new();
    let mut before = ' ';
    let mut rest = message.trim();
    while let Some(next) = rest.chars().next() {
        let after = &rest[next.len_utf8()..];
        let opens = matches!(next, '"' | '\'' | '`' | '“' | '‘') && !before.is_alphanumeric();
        let close = match next {
            '“' => '”',
            '‘' => '’',
            same => same,
        };
        let end = if opens { closing(after, close) } else { None };
        match end {
            Some(end) if after[..end].contains(char::is_whitespace) => {
                words.push_str("...");
                rest = &after[end + close.len_utf8()..];
                before = close;
            }
            // What is quoted goes on to the end, which was cut.
            None if opens && next == '"' => break,
            _ => {
                words.push(next);
                (rest, before) = (after, next);
            }
        }
    }
    words.chars().take(HEAD_CHARS).collect()
}

/// Returns the place of the mark that ends a quotation: no letter follows it.
fn closing(text: &str, mark: char) -> Option<usize> {
    let ends =
        |(at, _): &(usize, &str)| !text[at + mark.len_utf8()..].starts_with(char::is_alphanumeric);
    text.match_indices(mark).find(ends).map(|(at, _)| at)
}

/// Returns a message without the names of errors before it, as in `litellm.RateLimitError: ...` and
/// `Error code: 400 - ...`.
fn without_names(words: &str) -> &str {
    let mut rest = words;
    loop {
        let ends = [": ", " - "].iter().filter_map(|mark| Some((rest.find(mark)?, mark.len())));
        let Some((at, mark)) = ends.min() else { return rest };
        let name = &rest[..at];
        let is_name = name == "Error code"
            || !name.contains(' ') && (name.ends_with("Error") || name.ends_with("Exception"))
            || name.len() == 3 && name.bytes().all(|digit| digit.is_ascii_digit());
        if !is_name {
            return rest;
        }
        rest = rest[at + mark..].trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_quotes_is_not_what_it_says() {
        assert_eq!(own_words("the model `a-b` says 'no'"), "the model `a-b` says 'no'");
        assert_eq!(own_words("bad value \"it is too long\" at 3"), "bad value ... at 3");
        assert_eq!(
            own_words("this model's limit is 'x y' and isn't"),
            "this model's limit is ... and isn't"
        );
        assert_eq!(own_words("value: \"cut off at"), "value: ");
        assert_eq!(own_words("“never mind” ‘at all’ ü"), "... ... ü");
        assert_eq!(own_words(&"a ".repeat(900)).chars().count(), HEAD_CHARS);
        assert_eq!(own_words("'"), "'");
    }

    #[test]
    fn names_of_errors_come_before_the_words() {
        assert_eq!(without_names("litellm.XError: YError: VertexException - You did"), "You did");
        assert_eq!(without_names("Error code: 400 - Model not found"), "Model not found");
        assert_eq!(without_names("You may: not"), "You may: not");
        assert_eq!(without_names("content: You did"), "content: You did");
        assert_eq!(without_names(": a"), ": a");
    }
}
