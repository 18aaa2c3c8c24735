//! Bounds what a configuration may ask for before any of it is compiled: the file may be somebody else's,
//! and an expression of a few bytes can take a second and megabytes.
//!
//! Pure.

use super::Setting;
use super::diagnostic::NO_HELP;

/// The most rules in all lists of `permissions`. The longest configurations that people write have some
/// hundred; 2,000 of the dearest take 0.7 s and 90 MB.
const MOST_RULES: usize = 2_000;

/// The most inputs with a `pattern`. With [`PATTERN_BYTES`] the dearest take a second.
const MOST_PATTERNS: usize = 200;

/// The most bytes that one compiled `pattern` of an input may take.
pub(super) const PATTERN_BYTES: usize = 1 << 20;

/// Returns true if a configuration has no more rules and patterns than are compiled; reports it otherwise.
pub(super) fn hold(setting: Setting<'_>) -> bool {
    let Setting { raw, problems, .. } = setting;
    let all = raw.permissions.as_ref();
    let of_agents = raw.agents.values().map(|(_, agent)| &agent.permissions);
    let of_agents = of_agents.flat_map(|own| [&own.allow, &own.deny, &own.grants]);
    let of_all = all.into_iter().flat_map(|all| [&all.allow, &all.ask, &all.deny]);
    let lists = of_all.chain(of_agents);
    let rule = lists.flat_map(|list| list.iter()).nth(MOST_RULES);
    if let Some(rule) = rule {
        let message = format!("the configuration has more than {MOST_RULES} permission rules");
        problems.error("bad_rule", &rule.at.value, message, "let one rule stand for several: `*`");
    }
    let mut patterns = raw.inputs.values().filter_map(|(_, input)| input.pattern.at());
    let pattern = patterns.nth(MOST_PATTERNS);
    if let Some(pattern) = pattern {
        let message = format!("more than {MOST_PATTERNS} inputs have a `pattern`");
        problems.error("bad_pattern", &pattern.value, message, NO_HELP);
    }
    rule.is_none() && pattern.is_none()
}
