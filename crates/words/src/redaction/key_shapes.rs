//! Tells keys that are written into the file from other values of headers.
//!
//! Pure. It knows names of headers that carry keys, and the forms of the keys of common services.

/// The names of headers whose value is a key, or the ends of such names after a `-`.
const NAMES: [&str; 14] = [
    "authorization",
    "auth",
    "cookie",
    "api-key",
    "apikey",
    "access-key",
    "subscription-key",
    "private-key",
    "token",
    "secret",
    "password",
    "credential",
    "credentials",
    "signature",
];

/// The schemes of `Authorization` that a key follows.
const SCHEMES: [&str; 3] = ["bearer ", "basic ", "token "];

/// The beginnings of keys of common services: OpenAI, Anthropic and Stripe, GitHub, GitLab, Slack,
/// Google, Hugging Face, Groq, xAI, Replicate, NVIDIA, Perplexity, npm.
const BEGINNINGS: [&str; 24] = [
    "sk-",
    "sk_",
    "rk_",
    "pk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "AIza",
    "ya29.",
    "hf_",
    "gsk_",
    "xai-",
    "r8_",
    "nvapi-",
    "pplx-",
    "npm_",
];

/// The fewest characters of a key after its beginning: shorter words are names.
const SHORTEST_REST: usize = 12;

/// The fewest characters of a random text that is taken for a key: ids of organisations are shorter.
const SHORTEST_RANDOM: usize = 32;

/// The least bits of information in a character of a random text: base64 of so many random bytes has
/// more, while hexadecimal ids and words have at most 4.
const LEAST_BITS: f64 = 4.2;

/// Returns the reason why the value of a header looks like a key; `None` if it does not.
pub fn reason(header: &str, value: &str) -> Option<String> {
    let header = header.to_ascii_lowercase();
    let names_a_key = |name: &&str| {
        let rest = header.strip_suffix(*name);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(['-', '_', '.']))
    };
    if !value.trim().is_empty() && NAMES.iter().any(names_a_key) {
        return Some("headers of this name carry keys".to_owned());
    }
    let lower = value.trim_start().to_ascii_lowercase();
    if let Some(scheme) = SCHEMES.iter().find(|scheme| lower.starts_with(**scheme)) {
        return Some(format!("a key follows `{}`", scheme.trim()));
    }
    let is_part_of_word = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
    value.split(|c| !is_part_of_word(c)).find_map(reason_of_word)
}

fn reason_of_word(word: &str) -> Option<String> {
    let has_rest = |beginning: &str| {
        word.strip_prefix(beginning).is_some_and(|rest| rest.len() >= SHORTEST_REST)
    };
    if let Some(beginning) = BEGINNINGS.iter().find(|beginning| has_rest(beginning)) {
        return Some(format!("keys begin with `{beginning}`"));
    }
    let is_of_aws = ["AKIA", "ASIA"].iter().any(|beginning| has_rest(beginning))
        && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    if is_of_aws {
        return Some("it has the form of an AWS key".to_owned());
    }
    if word.starts_with("eyJ") && word.matches('.').count() >= 2 && word.len() >= SHORTEST_RANDOM {
        return Some("it has the form of a JSON web token".to_owned());
    }
    is_random(word).then(|| "it is long and random".to_owned())
}

fn is_random(word: &str) -> bool {
    let has = |is: fn(&u8) -> bool| word.bytes().any(|byte| is(&byte));
    word.len() >= SHORTEST_RANDOM
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
        && bits(word) >= LEAST_BITS
}

/// Returns the information in bits that a character of the text has on average, by the frequencies of
/// its characters.
#[expect(clippy::cast_precision_loss, reason = "texts are far shorter than 2^52")]
fn bits(text: &str) -> f64 {
    let mut counts = [0_usize; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let shares = counts.into_iter().filter(|count| *count > 0);
    let shares = shares.map(|count| count as f64 / text.len() as f64);
    shares.map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_other_values() {
        let keys = [
            ("Authorization", "x"),
            ("X-Api-Key", "abc"),
            ("api-key", "abc"),
            ("X-Goog-Api-Key", "abc"),
            ("Ocp-Apim-Subscription-Key", "abc"),
            ("Cookie", "session=1"),
            ("PRIVATE-TOKEN", "abc"),
            ("cf-aig-authorization", "abc"),
            ("helicone-auth", "abc"),
            ("x_auth_token", "abc"),
            ("x-team", "Bearer abc"),
            ("x-team", "basic dXNlcjpwYXNz"),
            ("x-team", "sk-ant-api03-abcdefgh"),
            ("x-team", "key=ghp_0123456789abcdefghij"),
            ("x-team", "AKIAIOSFODNN7EXAMPLE"),
            ("x-team", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk"),
            ("x-team", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY9"),
        ];
        for (header, value) in keys {
            assert!(reason(header, value).is_some(), "{header}: {value}");
        }
        let others = [
            ("x-team", "platform"),
            ("anthropic-beta", "context-management-2025-06-27,compact-2026-01-12"),
            ("anthropic-version", "2023-06-01"),
            ("OpenAI-Organization", "org-AbCdEfGhIjKlMnOpQrStUvWx"),
            ("HTTP-Referer", "https://example.com/Docs/Page1?tab=Settings"),
            ("X-Title", "A Team of Agents, Number 7"),
            ("x-trace", "01a2049d-c0ea-7022-a2ef-879a58a06d62"),
            ("x-commit", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("x-keyspace", "a"),
            ("x-author", "sk-ip"),
            ("x-tokens", "5"),
            ("authorization", " "),
        ];
        for (header, value) in others {
            assert_eq!(reason(header, value), None, "{header}: {value}");
        }
    }
}
