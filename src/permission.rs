//! Permission rules: decide by tool and argument whether a call is allowed, denied or asked about.
//!
//! Owns the rule syntax `tool` and `tool(argument glob)` and the order of precedence. It only
//! decides: it neither asks a person nor runs a tool.

use std::fmt;

use globset::{Glob, GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};

/// The decision of the rules on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The call may run.
    Allow,
    /// A person must be asked before the call runs.
    Ask,
    /// The call may not run.
    Deny,
}

/// One rule: a tool name glob and, in brackets, an optional glob over the call's argument.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    text: String,
    tool: GlobMatcher,
    argument: Option<GlobMatcher>,
}

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a permission rule: {reason}")]
pub struct BadRule {
    /// The rule as written.
    pub text: String,
    /// Description of the error in the rule.
    pub reason: String,
}

impl Rule {
    /// Reads `tool` or `tool(glob)`.
    ///
    /// # Errors
    /// Returns an error if no tool is named, the bracket is not closed or a glob cannot be read.
    pub fn parse(text: &str) -> Result<Self, BadRule> {
        let bad = |reason: String| BadRule { text: text.to_owned(), reason };
        let (tool, argument) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let inner = rest.strip_suffix(')');
                (tool, Some(inner.ok_or_else(|| bad("the bracket is not closed".to_owned()))?))
            }
        };
        if tool.trim().is_empty() {
            return Err(bad("it names no tool".to_owned()));
        }
        let glob = |pattern: &str| Glob::new(pattern).map(|g| g.compile_matcher());
        // In an argument `*` also crosses `/`: a rule against `rm -rf *` must hold for paths.
        let wide = |pattern: &str| {
            let glob = GlobBuilder::new(pattern).literal_separator(false).build();
            glob.map(|g| g.compile_matcher())
        };
        let tool = glob(tool.trim()).map_err(|e| bad(e.to_string()))?;
        let argument = argument.map(wide).transpose().map_err(|e| bad(e.to_string()))?;
        Ok(Self { text: text.to_owned(), tool, argument })
    }

    /// Returns true if the rule is about this tool, whatever the arguments.
    #[must_use]
    pub fn names(&self, tool: &str) -> bool {
        self.tool.is_match(tool)
    }

    /// Returns true if the rule matches every call of this tool.
    fn names_all(&self, tool: &str) -> bool {
        self.argument.is_none() && self.names(tool)
    }

    /// Returns true if the rule matches at least one part of a call of `tool`. That is enough for a
    /// rule that asks or denies.
    #[must_use]
    pub fn touches(&self, tool: &str, arguments: &[&str]) -> bool {
        self.tool.is_match(tool)
            && self.argument.as_ref().is_none_or(|glob| arguments.iter().any(|a| glob.is_match(a)))
    }

    /// Returns true if the rule matches every part of a call of `tool`. A rule that allows needs
    /// this: an allowed command must not carry a forbidden one along (`ls; rm -rf y`).
    #[must_use]
    pub fn covers(&self, tool: &str, arguments: &[&str]) -> bool {
        let all = |glob: &GlobMatcher| {
            !arguments.is_empty() && arguments.iter().all(|argument| glob.is_match(argument))
        };
        self.tool.is_match(tool) && self.argument.as_ref().is_none_or(all)
    }
}

impl TryFrom<String> for Rule {
    type Error = BadRule;
    fn try_from(text: String) -> Result<Self, BadRule> {
        Self::parse(&text)
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.text
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The meaning of `ask` when there is no terminal at which a person could be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonInteractive {
    /// The call is denied, and its result gives the agent the reason.
    #[default]
    Deny,
    /// The call is allowed.
    Allow,
}

/// The permission rules of one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permissions {
    /// The verdict on a call that no rule matches.
    pub default: Verdict,
    /// Rules that allow.
    pub allow: Vec<Rule>,
    /// Rules that ask.
    pub ask: Vec<Rule>,
    /// Rules that deny.
    pub deny: Vec<Rule>,
    /// The agent's own rules that allow: they turn an `ask` into an `allow`, never a `deny`.
    pub own_allow: Vec<Rule>,
    /// The meaning of `ask` when there is no terminal.
    pub non_interactive: NonInteractive,
}

/// Tools that are allowed when the configuration has no `[permissions]`: tools that only read, and
/// tools that are steps of the agent itself and change nothing outside it.
const HARMLESS: [&str; 9] = [
    "read_file",
    "glob",
    "grep",
    "todo_write",
    "load_skill",
    "delegate",
    "compact",
    "recall",
    "give_up",
];

impl Default for Permissions {
    /// Allows the harmless tools and asks about every other call: the rules of a configuration
    /// without `[permissions]`.
    fn default() -> Self {
        let rules = HARMLESS.iter().filter_map(|tool| Rule::parse(tool).ok());
        Self {
            default: Verdict::Ask,
            allow: rules.collect(),
            ask: Vec::new(),
            deny: Vec::new(),
            own_allow: Vec::new(),
            non_interactive: NonInteractive::Deny,
        }
    }
}

impl Permissions {
    /// Returns true if the rules may allow a call of this tool without asking a person.
    #[must_use]
    pub fn can_allow(&self, tool: &str) -> bool {
        let names = |rules: &[Rule]| rules.iter().any(|rule| rule.names(tool));
        if self.always_denies(tool) {
            return false;
        }
        if self.non_interactive == NonInteractive::Allow || names(&self.own_allow) {
            return true;
        }
        let always_asks = self.ask.iter().any(|rule| rule.names_all(tool));
        !always_asks && (self.default == Verdict::Allow || names(&self.allow))
    }

    /// Returns true if the rules deny every call of this tool.
    #[must_use]
    pub fn always_denies(&self, tool: &str) -> bool {
        let is_allowed = |rules: &[Rule]| rules.iter().any(|rule| rule.names(tool));
        let by_default = self.default == Verdict::Deny
            && !is_allowed(&self.allow)
            && !is_allowed(&self.own_allow)
            && !is_allowed(&self.ask);
        by_default || self.deny.iter().any(|rule| rule.names_all(tool))
    }

    /// Returns true if the verdict on a call of `tool` can depend on its arguments: some rule for
    /// the tool has an argument glob.
    #[must_use]
    pub fn depends_on_arguments(&self, tool: &str) -> bool {
        let rules = self.allow.iter().chain(&self.ask).chain(&self.deny).chain(&self.own_allow);
        rules.filter(|rule| rule.argument.is_some()).any(|rule| rule.tool.is_match(tool))
    }

    /// Decides on a call of `tool`; `arguments` are the texts that rules match (a command and its
    /// parts, or a path).
    ///
    /// A deny rule beats an ask rule, and an ask rule beats an allow rule; the agent's own allow
    /// rule turns an ask into an allow. Also returns the rule that decided, if one did.
    #[must_use]
    pub fn judge(&self, tool: &str, arguments: &[&str]) -> (Verdict, Option<&Rule>) {
        let own = self.own_allow.iter().find(|rule| rule.covers(tool, arguments));
        if let Some(rule) = self.deny.iter().find(|rule| rule.touches(tool, arguments)) {
            return (Verdict::Deny, Some(rule));
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.touches(tool, arguments)) {
            return own.map_or((Verdict::Ask, Some(rule)), |own| (Verdict::Allow, Some(own)));
        }
        if let Some(rule) = self.allow.iter().find(|rule| rule.covers(tool, arguments)) {
            return (Verdict::Allow, Some(rule));
        }
        match (self.default, own) {
            (Verdict::Ask, Some(rule)) => (Verdict::Allow, Some(rule)),
            (verdict, _) => (verdict, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| Rule::parse(text).expect("a rule")).collect()
    }

    #[test]
    fn deny_beats_ask_beats_allow() {
        let mut permissions = Permissions {
            default: Verdict::Allow,
            allow: rules(&["bash"]),
            ask: rules(&["bash(git push*)"]),
            deny: rules(&["bash(rm -rf *)", "read_file(**/.env*)"]),
            own_allow: Vec::new(),
            non_interactive: NonInteractive::Deny,
        };
        let judge = |p: &Permissions, tool, argument| p.judge(tool, &[argument]).0;
        assert_eq!(judge(&permissions, "bash", "ls"), Verdict::Allow);
        assert_eq!(judge(&permissions, "bash", "git push origin"), Verdict::Ask);
        assert_eq!(judge(&permissions, "bash", "rm -rf /tmp/x"), Verdict::Deny);
        assert_eq!(judge(&permissions, "read_file", "a/.env.local"), Verdict::Deny);
        permissions.own_allow = rules(&["bash"]);
        assert_eq!(judge(&permissions, "bash", "git push origin"), Verdict::Allow);
        assert_eq!(judge(&permissions, "bash", "rm -rf /tmp/x"), Verdict::Deny);
    }

    #[test]
    fn an_allowed_command_carries_no_other_along() {
        let permissions = Permissions { allow: rules(&["bash(ls*)"]), ..Permissions::default() };
        let judge = |arguments: &[&str]| permissions.judge("bash", arguments).0;
        assert_eq!(judge(&["ls -l"]), Verdict::Allow);
        assert_eq!(judge(&["ls; rm -rf y", "ls", "rm -rf y"]), Verdict::Ask);
        assert_eq!(judge(&[]), Verdict::Ask);
    }

    #[test]
    fn without_rules_reading_is_allowed_and_the_rest_asks() {
        let permissions = Permissions::default();
        assert_eq!(permissions.judge("read_file", &["a"]).0, Verdict::Allow);
        assert_eq!(permissions.judge("bash", &["ls"]).0, Verdict::Ask);
        assert_eq!(permissions.judge("write_file", &["a"]).0, Verdict::Ask);
    }

    #[test]
    fn a_broken_rule_says_why() {
        for bad in ["bash(ls", "(x)", "bash([)", ""] {
            assert!(Rule::parse(bad).is_err(), "{bad}");
        }
    }
}
