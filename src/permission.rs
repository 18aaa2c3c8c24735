//! What a tool call may do: allow, ask or deny, by tool and argument.
//!
//! Owns the rule syntax `tool` and `tool(argument glob)` and the order of precedence. Decides
//! only: it neither asks anybody nor runs anything.

use std::fmt;

use globset::{Glob, GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};

/// What the rules say of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It may run.
    Allow,
    /// A person must be asked first.
    Ask,
    /// It may not run.
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
    /// What is wrong with it.
    pub reason: String,
}

impl Rule {
    /// Reads `tool` or `tool(glob)`.
    ///
    /// # Errors
    /// When the bracket is not closed or a glob cannot be read.
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

    /// Whether the rule speaks of some part of a call of `tool`: enough to ask or to deny.
    #[must_use]
    pub fn touches(&self, tool: &str, arguments: &[&str]) -> bool {
        self.tool.is_match(tool)
            && self.argument.as_ref().is_none_or(|glob| arguments.iter().any(|a| glob.is_match(a)))
    }

    /// Whether the rule speaks of all of a call of `tool`: needed to allow, so that a command which
    /// is allowed cannot carry another one along.
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

/// What `ask` means when there is no terminal to ask at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonInteractive {
    /// The call is denied and the agent is told why.
    #[default]
    Deny,
    /// The call is allowed.
    Allow,
}

/// The rules in force for one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permissions {
    /// What holds where no rule matches.
    pub default: Verdict,
    /// Rules that allow.
    pub allow: Vec<Rule>,
    /// Rules that ask.
    pub ask: Vec<Rule>,
    /// Rules that deny.
    pub deny: Vec<Rule>,
    /// The agent's own rules that allow: they settle an `ask`, never a `deny`.
    pub own_allow: Vec<Rule>,
    /// What `ask` means with no terminal.
    pub non_interactive: NonInteractive,
}

/// The tools that only read, allowed where the configuration has no `[permissions]`; the tools
/// that are steps of the agent itself touch nothing outside it.
const HARMLESS: [&str; 8] =
    ["read_file", "glob", "grep", "todo_write", "load_skill", "delegate", "compact", "recall"];

impl Default for Permissions {
    /// Without the section reading is allowed and everything else asks.
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
    /// Whether the verdict on a call of `tool` depends on its arguments: whether some rule for the
    /// tool names one.
    #[must_use]
    pub fn depends_on_arguments(&self, tool: &str) -> bool {
        let rules = self.allow.iter().chain(&self.ask).chain(&self.deny).chain(&self.own_allow);
        rules.filter(|rule| rule.argument.is_some()).any(|rule| rule.tool.is_match(tool))
    }

    /// Judges a call, named by all its `arguments` (a command and its parts, a path): deny beats ask
    /// beats allow; the agent's own allow settles an ask. Gives the rule that decided, if one did.
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
