//! Permission rules: decide by tool and argument whether a call is allowed, denied or asked about.
//!
//! Owns the order of precedence. It only decides: it neither asks a person nor runs a tool.

mod rule;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::rule::Rule;
use crate::own_tool::OwnTool;

/// The decision of the rules on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PermissionDecision {
    /// The call may run.
    Allow,
    /// A person must be asked before the call runs.
    Ask,
    /// The call may not run.
    Deny,
}

/// One thing that a call does: a command that it runs, a file that it writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deed {
    /// The tool whose rules are about it.
    pub tool: String,
    /// The texts that an allowing rule must match, all of them: the name of a path and the place to
    /// which its links lead.
    pub texts: Vec<String>,
    /// Other ways to write the same, of which an allowing rule may match one instead.
    pub spellings: Vec<String>,
    /// The program of a command, as it is named. An allowing rule must name it: a wildcard stands for
    /// no part of a path.
    pub program: Option<String>,
    /// Words by which a command can run another one or write anywhere. An allowing rule must hold
    /// each of them.
    pub cautions: Vec<String>,
    /// Why rules that match it do not allow it, if so.
    pub reason: Option<String>,
}

/// A call as the rules see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// What the call does. Each deed needs a rule that allows it.
    pub deeds: Vec<Deed>,
    /// More texts of the call that a rule which asks or denies may match.
    pub suspects: Vec<String>,
    /// Why only a rule for every call of the tool, or for exactly this one, can allow the call;
    /// `None` if `deeds` is all that it does.
    pub unclear: Option<String>,
    /// The text of the whole call, which a rule without wildcards may match.
    pub whole: Option<String>,
    /// True if the call is too long for `suspects` to hold all: then each rule that asks or denies
    /// is taken to match.
    pub unread: bool,
    /// True if the kernel keeps the call in a sandbox.
    pub sandboxed: bool,
}

impl Subject {
    /// Returns a call that does one thing, with its texts.
    #[must_use]
    pub fn of(tool: &str, texts: Vec<String>) -> Self {
        let deed = Deed { tool: tool.to_owned(), texts, ..Deed::default() };
        Self { deeds: vec![deed], ..Self::default() }
    }

    /// Returns why rules for certain calls do not allow this one, if there is more to say than that
    /// none matches.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        let reason = || self.deeds.iter().find_map(|deed| deed.reason.as_deref());
        self.unclear.as_deref().or_else(reason)
    }
}

/// Name of the tool that reads files.
const READ: &str = "read_file";

/// Name of the tool whose calls run in the sandbox.
const SANDBOXED: &str = "bash";

/// Returns a rule of those in `lists` if they allow all of a call.
fn allowing<'a>(lists: &[&'a [Rule]], tool: &str, subject: &Subject) -> Option<&'a Rule> {
    let rules = || lists.iter().flat_map(|list| list.iter());
    if let Some(rule) = rules().find(|rule| rule.names_all(tool)) {
        return Some(rule);
    }
    // Whoever wrote the whole text as a rule means this very call.
    let is_meant =
        |rule: &&Rule| rule.names(tool) && rule.exact.is_some() && rule.exact == subject.whole;
    if let Some(rule) = rules().find(is_meant) {
        return Some(rule);
    }
    if subject.unclear.is_some() || subject.deeds.is_empty() {
        return None;
    }
    let of_deed = |deed: &Deed| rules().find(|rule| rule.covers(deed));
    let found: Option<Vec<&Rule>> = subject.deeds.iter().map(of_deed).collect();
    found?.first().copied()
}

/// The rules that keep files from being found by a search.
#[derive(Clone, Debug, Default)]
pub struct Unseen(Arc<[Rule]>);

impl Unseen {
    /// Returns true if a file with this path must not be found by the tool: a rule denies to read it,
    /// or to search it.
    #[must_use]
    pub fn hides(&self, tool: &str, path: &str) -> bool {
        self.0.iter().any(|rule| rule.fits(READ, path) || rule.fits(tool, path))
    }

    /// Returns true if nothing is hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The meaning of `ask` when there is no terminal at which a person could be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonInteractive {
    /// The call is denied, and its result gives the agent the reason.
    #[default]
    Deny,
    /// The agent waits until a person has answered, also over the end of the process.
    Pause,
    /// The call is allowed.
    Allow,
}

/// The permission rules of one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permissions {
    /// The decision on a call that no rule matches.
    pub default: PermissionDecision,
    /// Rules that allow.
    pub allow: Vec<Rule>,
    /// Rules that ask.
    pub ask: Vec<Rule>,
    /// Rules that deny.
    pub deny: Vec<Rule>,
    /// The agent's own rules that allow: they turn an `ask` into an `allow`, never a `deny`.
    pub own_allow: Vec<Rule>,
    /// The agent's own rules that deny.
    #[serde(default)]
    pub own: Bound,
    /// Those of the agents for which it works, from its parent upwards.
    #[serde(default)]
    pub above: Vec<Bound>,
    /// The decision on a call in the sandbox that no rule matches, if the default is to ask.
    #[serde(default = "asking")]
    pub sandboxed: PermissionDecision,
    /// The meaning of `ask` when there is no terminal.
    pub non_interactive: NonInteractive,
}

fn asking() -> PermissionDecision {
    PermissionDecision::Ask
}

/// The calls that an agent may not make, which hold for the agents that work for it too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Rules that deny.
    pub deny: Vec<Rule>,
    /// Rules for the calls that agents which work for it may make nevertheless.
    pub grants: Vec<Rule>,
}

impl Bound {
    /// Returns the rule that denies a call to an agent that works for the one with this bound.
    fn denying(&self, tool: &str, subject: &Subject) -> Option<&Rule> {
        let rule = self.deny.iter().find(|rule| rule.touches(tool, subject))?;
        allowing(&[&self.grants], tool, subject).is_none().then_some(rule)
    }

    /// Returns the rules that deny whole kinds of calls to agents that work for the one with this
    /// bound: those that it does not grant in the same words, or all of the tool.
    fn remaining(&self) -> impl Iterator<Item = &Rule> {
        let is_granted = |rule: &Rule| {
            let tool = rule.text.split('(').next().unwrap_or_default();
            self.grants.iter().any(|grant| grant == rule || grant.names_all(tool))
        };
        self.deny.iter().filter(move |rule| !is_granted(rule))
    }
}

/// Returns the tools that are allowed when the configuration has no `[permissions]`: tools that only
/// read, and tools that are steps of the agent itself and change nothing outside it.
fn harmless() -> Vec<&'static str> {
    let own = OwnTool::ALL.iter().filter(|tool| tool.is_given()).map(|tool| tool.name());
    let mut tools: Vec<_> = [READ, "glob", "grep"].into_iter().chain(own).collect();
    // Its place is older than the table of own tools. Results are kept under keys that hold the rules
    // in this order.
    tools.insert(4, "load_skill");
    tools
}

impl Default for Permissions {
    /// Allows the harmless tools and asks about every other call: the rules of a configuration
    /// without `[permissions]`.
    fn default() -> Self {
        let rules = harmless().into_iter().filter_map(|tool| Rule::parse(tool).ok());
        Self {
            default: PermissionDecision::Ask,
            allow: rules.collect(),
            ask: Vec::new(),
            deny: Vec::new(),
            own_allow: Vec::new(),
            own: Bound::default(),
            above: Vec::new(),
            sandboxed: PermissionDecision::Ask,
            non_interactive: NonInteractive::Deny,
        }
    }
}

impl Permissions {
    /// Returns the rules that hide files from searches: those that deny to read or to search certain
    /// paths.
    #[must_use]
    pub fn unseen(&self) -> Unseen {
        let is_of_paths = |rule: &&Rule| {
            rule.argument.is_some() && [READ, "grep", "glob"].iter().any(|tool| rule.names(tool))
        };
        Unseen(self.denying().filter(is_of_paths).cloned().collect())
    }

    /// Returns all rules that deny: those for all agents, its own, and those of the agents for which
    /// it works.
    fn denying(&self) -> impl Iterator<Item = &Rule> {
        let above = self.above.iter().flat_map(Bound::remaining);
        self.deny.iter().chain(&self.own.deny).chain(above)
    }

    /// Returns the rules of an agent that works for others with these rules, from its parent upwards.
    #[must_use]
    pub fn below<'a>(&self, above: impl IntoIterator<Item = &'a Self>) -> Self {
        let above = above.into_iter().map(|above| above.own.clone());
        Self { above: above.filter(|bound| !bound.deny.is_empty()).collect(), ..self.clone() }
    }

    /// Returns true if the rules may allow a call of this tool without asking a person.
    #[must_use]
    pub fn can_allow(&self, tool: &str) -> bool {
        let names = |rules: &[Rule]| rules.iter().any(|rule| rule.names(tool));
        if self.always_denies(tool) {
            return false;
        }
        if self.non_interactive != NonInteractive::Deny || names(&self.own_allow) {
            return true;
        }
        let always_asks = self.ask.iter().any(|rule| rule.names_all(tool));
        let by_default = self.default == PermissionDecision::Allow
            || (tool == SANDBOXED && self.sandboxed == PermissionDecision::Allow);
        !always_asks && (by_default || names(&self.allow))
    }

    /// Returns true if the rules deny every call of this tool.
    #[must_use]
    pub fn always_denies(&self, tool: &str) -> bool {
        let is_allowed = |rules: &[Rule]| rules.iter().any(|rule| rule.names(tool));
        let by_default = self.default == PermissionDecision::Deny
            && !is_allowed(&self.allow)
            && !is_allowed(&self.own_allow)
            && !is_allowed(&self.ask);
        by_default || self.denying().any(|rule| rule.names_all(tool))
    }

    /// Returns true if the decision on a call of `tool` can depend on its arguments: some rule for
    /// the tool has an argument glob.
    #[must_use]
    pub fn depends_on_arguments(&self, tool: &str) -> bool {
        let grants = self.above.iter().flat_map(|bound| &bound.grants);
        let rules = self.allow.iter().chain(&self.ask).chain(&self.own_allow);
        let rules = rules.chain(self.denying()).chain(grants);
        rules.filter(|rule| rule.argument.is_some()).any(|rule| rule.tool.is_match(tool))
    }

    /// Decides on a call of `tool`.
    ///
    /// A deny rule beats an ask rule, and an ask rule beats an allow rule; the agent's own allow
    /// rule turns an ask into an allow. A call in the sandbox that no rule matches is judged by
    /// `sandboxed`. Also returns the rule that decided, if one did.
    #[must_use]
    pub fn judge(&self, tool: &str, subject: &Subject) -> (PermissionDecision, Option<&Rule>) {
        let mut denying = self.deny.iter().chain(&self.own.deny);
        let above = || self.above.iter().find_map(|bound| bound.denying(tool, subject));
        if let Some(rule) = denying.find(|rule| rule.touches(tool, subject)).or_else(above) {
            return (PermissionDecision::Deny, Some(rule));
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.touches(tool, subject)) {
            let own = allowing(&[&self.own_allow], tool, subject);
            return own.map_or((PermissionDecision::Ask, Some(rule)), |own| {
                (PermissionDecision::Allow, Some(own))
            });
        }
        if let Some(rule) = allowing(&[&self.allow], tool, subject) {
            return (PermissionDecision::Allow, Some(rule));
        }
        match (self.default, allowing(&[&self.allow, &self.own_allow], tool, subject)) {
            (PermissionDecision::Ask, Some(rule)) => (PermissionDecision::Allow, Some(rule)),
            (PermissionDecision::Ask, None) if subject.sandboxed => (self.sandboxed, None),
            (decision, _) => (decision, None),
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
            default: PermissionDecision::Allow,
            allow: rules(&["bash"]),
            ask: rules(&["bash(git push*)"]),
            deny: rules(&["bash(rm -rf *)", "read_file(**/.env*)"]),
            ..Permissions::default()
        };
        let judge = |p: &Permissions, tool: &str, argument: &str| {
            p.judge(tool, &Subject::of(tool, vec![argument.to_owned()])).0
        };
        assert_eq!(judge(&permissions, "bash", "ls"), PermissionDecision::Allow);
        assert_eq!(judge(&permissions, "bash", "git push origin"), PermissionDecision::Ask);
        assert_eq!(judge(&permissions, "bash", "rm -rf /tmp/x"), PermissionDecision::Deny);
        assert_eq!(judge(&permissions, "read_file", "a/.env.local"), PermissionDecision::Deny);
        permissions.own_allow = rules(&["bash"]);
        assert_eq!(judge(&permissions, "bash", "git push origin"), PermissionDecision::Allow);
        assert_eq!(judge(&permissions, "bash", "rm -rf /tmp/x"), PermissionDecision::Deny);
    }

    #[test]
    fn in_the_sandbox_only_what_no_rule_matches_is_free() {
        let mut permissions = Permissions {
            ask: rules(&["bash(git push*)"]),
            deny: rules(&["bash(rm -rf *)"]),
            sandboxed: PermissionDecision::Allow,
            ..Permissions::default()
        };
        let call = |command: &str, sandboxed| Subject {
            sandboxed,
            ..Subject::of("bash", vec![command.to_owned()])
        };
        for (command, outside, inside) in [
            ("make", PermissionDecision::Ask, PermissionDecision::Allow),
            ("git push", PermissionDecision::Ask, PermissionDecision::Ask),
            ("rm -rf x", PermissionDecision::Deny, PermissionDecision::Deny),
        ] {
            assert_eq!(permissions.judge("bash", &call(command, false)).0, outside, "{command}");
            assert_eq!(permissions.judge("bash", &call(command, true)).0, inside, "{command}");
        }
        let unclear = Subject { unclear: Some("x".to_owned()), ..call("$X", true) };
        assert_eq!(permissions.judge("bash", &unclear).0, PermissionDecision::Allow);
        assert!(permissions.can_allow("bash") && !permissions.can_allow("write_file"));
        permissions.default = PermissionDecision::Deny;
        assert_eq!(permissions.judge("bash", &call("make", true)).0, PermissionDecision::Deny);
    }

    #[test]
    fn what_an_agent_may_not_do_binds_those_who_work_for_it() {
        let lead = Permissions {
            own: Bound {
                deny: rules(&["bash", "write_file(src/*)", "read_file(secret/*)"]),
                grants: rules(&["bash(make*)", "write_file(src/new/*)"]),
            },
            ..Permissions::default()
        };
        let wide = Permissions { default: PermissionDecision::Allow, ..Permissions::default() };
        let free = Permissions::default();
        let child = wide.below([&lead, &free]);
        let grandchild = wide.below([&free, &lead]);
        let decision = |of: &Permissions, tool: &str, text: &str| {
            of.judge(tool, &Subject::of(tool, vec![text.to_owned()])).0
        };
        for (tool, text, of_lead, below) in [
            ("bash", "make all", PermissionDecision::Deny, PermissionDecision::Allow),
            ("bash", "rm x", PermissionDecision::Deny, PermissionDecision::Deny),
            ("write_file", "src/a", PermissionDecision::Deny, PermissionDecision::Deny),
            ("write_file", "src/new/a", PermissionDecision::Deny, PermissionDecision::Allow),
            ("write_file", "docs/a", PermissionDecision::Ask, PermissionDecision::Allow),
            ("read_file", "secret/a", PermissionDecision::Deny, PermissionDecision::Deny),
        ] {
            assert_eq!(decision(&lead, tool, text), of_lead, "{tool} {text}");
            assert_eq!(decision(&child, tool, text), below, "{tool} {text}");
            assert_eq!(decision(&grandchild, tool, text), below, "{tool} {text}");
        }
        assert!(
            child.unseen().hides("grep", "secret/a") && lead.unseen().hides("glob", "secret/a")
        );
        assert!(lead.always_denies("bash") && child.depends_on_arguments("write_file"));
        // It carries a command along that is not granted.
        let both = Subject {
            deeds: ["make", "rm x"].map(|c| Subject::of("bash", vec![c.to_owned()]).deeds).concat(),
            ..Subject::default()
        };
        assert_eq!(child.judge("bash", &both).0, PermissionDecision::Deny);
    }

    #[test]
    fn an_allowed_command_carries_no_other_along() {
        let permissions = Permissions {
            allow: rules(&["bash(ls*)", "bash(wc:*)", "write_file(out/*)"]),
            deny: rules(&["write_file(out/secret)", "bash(*nothing*)"]),
            ..Permissions::default()
        };
        let deed = |tool: &str, text: &str| Deed {
            tool: tool.to_owned(),
            texts: vec![text.to_owned()],
            ..Deed::default()
        };
        let judge = |deeds: &[(&str, &str)], unclear: Option<&str>| {
            let subject = Subject {
                deeds: deeds.iter().map(|(tool, text)| deed(tool, text)).collect(),
                unclear: unclear.map(str::to_owned),
                ..Subject::default()
            };
            permissions.judge("bash", &subject).0
        };
        assert_eq!(judge(&[("bash", "ls -l")], None), PermissionDecision::Allow);
        // Each part may have a rule of its own.
        assert_eq!(judge(&[("bash", "ls"), ("bash", "wc -l")], None), PermissionDecision::Allow);
        assert_eq!(judge(&[("bash", "wc")], None), PermissionDecision::Allow);
        assert_eq!(judge(&[("bash", "wcx")], None), PermissionDecision::Ask);
        assert_eq!(judge(&[("bash", "ls"), ("bash", "rm -rf y")], None), PermissionDecision::Ask);
        // A file that is written needs a rule for writing there.
        assert_eq!(
            judge(&[("bash", "ls"), ("write_file", "out/x")], None),
            PermissionDecision::Allow
        );
        assert_eq!(
            judge(&[("bash", "ls"), ("write_file", "src/x")], None),
            PermissionDecision::Ask
        );
        assert_eq!(
            judge(&[("bash", "ls"), ("write_file", "out/secret")], None),
            PermissionDecision::Deny
        );
        assert_eq!(judge(&[("bash", "ls nothing")], None), PermissionDecision::Deny);
        // What is not understood is allowed by no rule for certain commands.
        assert_eq!(judge(&[("bash", "ls")], Some("a substitution")), PermissionDecision::Ask);
        assert_eq!(judge(&[], None), PermissionDecision::Ask);
        let all = Permissions { allow: rules(&["bash(*)"]), ..Permissions::default() };
        let unclear = Subject { unclear: Some("x".to_owned()), ..Subject::default() };
        assert_eq!(all.judge("bash", &unclear).0, PermissionDecision::Allow);
        let exact = Permissions { allow: rules(&["bash(sh -c \"$X\")"]), ..Permissions::default() };
        for (whole, decision) in [
            ("sh -c \"$X\"", PermissionDecision::Allow),
            ("sh -c \"$X\" y", PermissionDecision::Ask),
        ] {
            let subject = Subject { whole: Some(whole.to_owned()), ..unclear.clone() };
            assert_eq!(exact.judge("bash", &subject).0, decision, "{whole}");
        }
    }

    #[test]
    fn the_default_rules_keep_their_bytes() {
        let rules = serde_json::to_string(&Permissions::default().allow).expect("JSON");
        let names = "read_file,glob,grep,todo_write,load_skill,delegate,compact,recall,give_up";
        let expected = serde_json::to_string(&names.split(',').collect::<Vec<_>>());
        assert_eq!(rules, expected.expect("JSON"), "kept results would be made again");
    }

    #[test]
    fn without_rules_reading_is_allowed_and_the_rest_asks() {
        let permissions = Permissions::default();
        assert_eq!(
            permissions.judge("read_file", &Subject::of("read_file", vec!["a".to_owned()])).0,
            PermissionDecision::Allow
        );
        assert_eq!(
            permissions.judge("bash", &Subject::of("bash", vec!["ls".to_owned()])).0,
            PermissionDecision::Ask
        );
        assert_eq!(
            permissions.judge("write_file", &Subject::of("write_file", vec!["a".to_owned()])).0,
            PermissionDecision::Ask
        );
    }

    #[test]
    fn a_broken_rule_says_why() {
        for bad in ["bash(ls", "(x)", "bash([)", ""] {
            assert!(Rule::parse(bad).is_err(), "{bad}");
        }
    }
}
