//! Validity: a view that has been checked has a type of its own, [`Sendable`], and requests are
//! made only from that type.
//!
//! Pure. The breaches of a single message are known since it joined the view, so a check decodes
//! nothing: it is one pass over roles, ids and sizes, and costs a small part of handing the same
//! messages to the transport. So it runs before every send in every build. Its work grows with the
//! view, as sending does, and not with the conversation.

use std::collections::HashSet;

use crate::context::measure::WindowSize;
use crate::context::sending::plain;
use crate::context::sending::thinking;
use crate::context::view::rules::Rule;
use crate::context::view::{Entry, View};
use crate::failure::FailureKind;
use crate::id::Name;
use crate::message::{Json, Role};
use crate::spec::Thinking;

/// Most messages of a request: the documented limit of the Messages API.
const MOST_MESSAGES: usize = 100_000;

/// Most bytes of the messages of a request: the documented limit of the Messages API is 32 MB for
/// the whole body.
const MOST_BYTES: usize = 32_000_000;

/// Roles that the last message may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// The user only.
    User,
    /// The assistant too: the provider asked to have its own message back.
    Either,
}

/// Limits that a view is checked against. The defaults suit one question without tools.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Tools that the request offers, sorted.
    pub tools: &'a [Name],
    /// Roles that the last message may have.
    pub last: Last,
    /// Rule for how long the model's thinking stays valid.
    pub thinking: Thinking,
    /// Tokens needed and available; absent where a request is to be sent whatever its size.
    pub fit: Option<Fit>,
}

/// Tokens that a request needs, and the window that it must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Tokens that the request holds by the lowest believable count.
    pub needed: u64,
    /// Context window of the model.
    pub window: WindowSize,
}

impl Fit {
    /// Returns true if the window may hold the request.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.needed <= self.window.tokens
    }
}

impl Default for Rules<'_> {
    fn default() -> Self {
        Self { tools: &[], last: Last::User, thinking: Thinking::Free, fit: None }
    }
}

/// Reason why a view cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A message breaks a rule.
    #[error("{rule}, message {message}: {reason}")]
    Message {
        /// Rule that is broken.
        rule: Rule,
        /// Number of the message in the conversation.
        message: u64,
        /// Description of the breach.
        reason: String,
    },
    /// The request as a whole breaks a rule.
    #[error("{rule}: {reason}")]
    Whole {
        /// Rule that is broken.
        rule: Rule,
        /// Description of the breach.
        reason: String,
    },
    /// The request has more tokens than the model accepts.
    #[error("the request needs at least {} tokens, the window has {} (by {})", .0.needed, .0.window.tokens,
        .0.window.origin)]
    Window(Fit),
    /// The request has more bytes than a provider accepts.
    #[error("the messages have {0} bytes, a provider takes {MOST_BYTES}")]
    Bytes(usize),
}

impl Invalid {
    fn message(rule: Rule, message: u64, reason: impl Into<String>) -> Self {
        Self::Message { rule, message, reason: reason.into() }
    }

    /// Returns the kind of failure for an agent that cannot continue because of this.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Window(_) => FailureKind::ContextOverflow,
            Self::Bytes(_) => FailureKind::RequestTooLarge,
            Self::Message { .. } | Self::Whole { .. } => FailureKind::Internal,
        }
    }

    /// Returns the rule that is broken.
    #[must_use]
    pub fn rule(&self) -> Rule {
        match self {
            Self::Message { rule, .. } | Self::Whole { rule, .. } => *rule,
            Self::Window(_) | Self::Bytes(_) => Rule::Fits,
        }
    }
}

/// A view that keeps the rules, with the message that joins it in this request, if there is one.
#[derive(Clone, Debug)]
pub struct Sendable<'a> {
    view: &'a View,
    joining: Option<Entry>,
    tools: &'a [Name],
}

/// One message of a [`Sendable`].
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// Serial of its slot; absent for the message that joins the view.
    pub serial: Option<u64>,
    before: Option<&'a Entry>,
    entry: &'a Entry,
    after: Option<&'a Entry>,
    tools: &'a [Name],
}

impl Sent<'_> {
    /// Returns the message as the view has it.
    #[must_use]
    pub fn stored(&self) -> &Json {
        &self.entry.json
    }

    /// Returns the message as it is sent: calls of tools that are gone, and their results, as text.
    #[must_use]
    pub fn json(&self) -> Json {
        plain::offered_only(self.before, self.entry, self.after, self.tools)
    }
}

impl Sendable<'_> {
    /// Returns the messages, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = Sent<'_>> {
        let tools = self.tools;
        let slots = self.view.slots().map(|slot| (Some(slot.serial), &*slot.entry));
        let mut all = slots.chain(self.joining.iter().map(|entry| (None, entry))).peekable();
        let mut before = None;
        std::iter::from_fn(move || {
            let (serial, entry) = all.next()?;
            let after = all.peek().map(|(_, entry)| *entry);
            Some(Sent { serial, before: before.replace(entry), entry, after, tools })
        })
    }
}

/// Checks a view, and the message that joins it in this request.
///
/// # Errors
/// Returns an error if a rule is broken; it names the first rule and its place.
pub fn check<'a>(
    view: &'a View,
    joining: Option<&Json>,
    rules: &Rules<'a>,
) -> Result<Sendable<'a>, Invalid> {
    let next = view.next_message();
    let joining = joining.map(|json| Entry::new(json.clone())).transpose();
    let joining =
        joining.map_err(|error| Invalid::message(Rule::WholeBlocks, next, error.to_string()))?;
    let mut pass = Pass::default();
    for slot in view.slots() {
        if slot.from < pass.reached || slot.to < slot.from || slot.to > next {
            let reason = "it stands for messages that are not there";
            return Err(Invalid::message(Rule::RangesExist, slot.from, reason));
        }
        pass.reached = slot.to;
        pass.take(slot.from, &slot.entry)?;
    }
    if let Some(entry) = &joining {
        pass.take(next, entry)?;
    }
    pass.finish(rules)?;
    if rules.thinking == Thinking::Bound && thinking::stale(view).is_some() {
        let reason = "thinking stands behind something that was changed after it".to_owned();
        return Err(Invalid::Whole { rule: Rule::ThinkingBound, reason });
    }
    Ok(Sendable { view, joining, tools: rules.tools })
}

/// One pass over the entries of a request.
#[derive(Default)]
struct Pass<'a> {
    before: Option<(u64, &'a Entry)>,
    ids: HashSet<&'a str>,
    has_request: bool,
    /// The first message of the conversation that no slot so far covers.
    reached: u64,
    messages: usize,
    bytes: usize,
}

impl<'a> Pass<'a> {
    fn take(&mut self, number: u64, entry: &'a Entry) -> Result<(), Invalid> {
        let broken = |rule, reason: &str| Err(Invalid::message(rule, number, reason));
        if let Some((rule, reason)) = entry.nature.flaw {
            return broken(rule, reason);
        }
        match self.before {
            None if entry.role == Role::Assistant && !entry.nature.begins_compacted => {
                return broken(Rule::BeginsWithUser, "the assistant speaks first");
            }
            Some((_, before)) if before.role == entry.role => {
                return broken(Rule::RolesAlternate, "the same side speaks twice");
            }
            None | Some(_) => {}
        }
        let (asked_at, calls) = match self.before {
            Some((number, before)) => (number, &*before.calls),
            None => (number, [].as_slice()),
        };
        pair(asked_at, calls, number, &entry.answers)?;
        for (id, _) in &entry.calls {
            if !self.ids.insert(id) {
                let reason = format!("there are two calls `{id}`");
                return Err(Invalid::message(Rule::IdsUnique, number, reason));
            }
        }
        self.has_request |= entry.is_request;
        self.before = Some((number, entry));
        self.messages += 1;
        self.bytes += entry.json.as_str().len() + 1;
        Ok(())
    }

    fn finish(self, rules: &Rules<'_>) -> Result<(), Invalid> {
        let whole = |rule, reason: &str| Err(Invalid::Whole { rule, reason: reason.to_owned() });
        let Some((number, last)) = self.before else {
            return whole(Rule::BeginsWithUser, "there is no message");
        };
        pair(number, &last.calls, number, &[])?;
        if last.role == Role::Assistant && rules.last == Last::User {
            let reason = "the assistant speaks last";
            return Err(Invalid::message(Rule::EndsWithUser, number, reason));
        }
        if !self.has_request {
            return whole(Rule::RequestKept, "nothing in it asks for anything");
        }
        if self.messages > MOST_MESSAGES {
            return whole(Rule::Fits, "there are more messages than a provider takes");
        }
        if self.bytes > MOST_BYTES {
            return Err(Invalid::Bytes(self.bytes));
        }
        match rules.fit {
            Some(fit) if !fit.holds() => Err(Invalid::Window(fit)),
            Some(_) | None => Ok(()),
        }
    }
}

/// Checks that a message answers each call of the message before it once, and no other calls.
fn pair(
    asked_at: u64,
    calls: &[(String, String)],
    answered_at: u64,
    answers: &[String],
) -> Result<(), Invalid> {
    let asked = calls.iter().map(|(id, _)| id);
    if asked.clone().eq(answers) {
        return Ok(());
    }
    for answer in answers {
        if !asked.clone().any(|id| id == answer) {
            let reason = format!("a result answers `{answer}`, which the message before has not");
            return Err(Invalid::message(Rule::ResultsAsked, answered_at, reason));
        }
    }
    for id in asked {
        let count = answers.iter().filter(|answer| *answer == id).count();
        if count != 1 {
            let reason = format!("the call `{id}` is answered {count} times in the next message");
            return Err(Invalid::message(Rule::CallsAnswered, asked_at, reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::context::measure::WindowOrigin;
    use crate::context::testing::{conversation, damaged, refusals, sent, view_of};
    use crate::message::Message;

    const ASK: &str = r#"{"role":"user","content":"go"}"#;
    const SAY: &str = r#"{"role":"assistant","content":"so"}"#;
    const CALL: &str =
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"t","input":{}}]}"#;
    const ANSWER: &str =
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}"#;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).expect("JSON")
    }

    fn broken(messages: &[&str]) -> Option<Rule> {
        let messages: Vec<_> = messages.iter().map(|text| json(text)).collect();
        check(&view_of(&messages), None, &Rules::default()).err().map(|invalid| invalid.rule())
    }

    #[test]
    fn every_broken_rule_is_named() {
        let other = CALL.replace(r#""c""#, r#""d""#);
        let twice = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c"},{"type":"tool_result","tool_use_id":"c"}]}"#;
        assert_eq!(broken(&[ASK]), None);
        assert_eq!(broken(&[ASK, CALL, ANSWER]), None);
        assert_eq!(broken(&[]), Some(Rule::BeginsWithUser));
        assert_eq!(broken(&[SAY, ASK]), Some(Rule::BeginsWithUser));
        assert_eq!(broken(&[ASK, ASK]), Some(Rule::RolesAlternate));
        assert_eq!(broken(&[ASK, SAY]), Some(Rule::EndsWithUser));
        assert_eq!(broken(&[ASK, CALL]), Some(Rule::CallsAnswered));
        assert_eq!(broken(&[ASK, CALL, ASK]), Some(Rule::CallsAnswered));
        assert_eq!(broken(&[ASK, CALL, twice]), Some(Rule::CallsAnswered));
        assert_eq!(broken(&[ASK, &other, ANSWER]), Some(Rule::ResultsAsked));
        assert_eq!(broken(&[ANSWER]), Some(Rule::ResultsAsked));
        assert_eq!(broken(&[ASK, CALL, ANSWER, CALL, ANSWER]), Some(Rule::IdsUnique));
        assert_eq!(broken(&[r#"{"role":"user","content":" "}"#]), Some(Rule::NoEmptyContent));
        let image = r#"{"role":"user","content":[{"type":"image"}]}"#;
        assert_eq!(broken(&[image]), Some(Rule::RequestKept));
    }

    #[test]
    fn what_joins_is_checked_with_the_view() {
        let view = view_of(&[json(ASK), json(SAY)]);
        let join = |text: &str| check(&view, Some(&json(text)), &Rules::default()).is_ok();
        assert!(join(ASK));
        assert!(!join(SAY) && !join(ANSWER) && !join("3"));
        let either = Rules { last: Last::Either, ..Rules::default() };
        assert!(check(&view, None, &either).is_ok());
    }

    #[test]
    fn a_summary_of_the_provider_may_come_first() {
        let summary = r#"{"role":"assistant","content":[{"type":"compaction","content":"s"}]}"#;
        assert_eq!(broken(&[summary, ASK]), None);
    }

    #[test]
    fn sizes_have_limits() {
        let view = view_of(&[json(ASK)]);
        let window = WindowSize { tokens: 100, origin: WindowOrigin::Configured };
        let fits = |needed| Rules { fit: Some(Fit { needed, window }), ..Rules::default() };
        assert!(check(&view, None, &fits(100)).is_ok());
        let invalid = check(&view, None, &fits(101)).expect_err("too large");
        assert_eq!(invalid.kind(), FailureKind::ContextOverflow);
        let large = Json::encode(&Message::user("x".repeat(MOST_BYTES)));
        let invalid = check(&view_of(&[large]), None, &Rules::default()).expect_err("too large");
        assert_eq!((invalid.rule(), invalid.kind()), (Rule::Fits, FailureKind::RequestTooLarge));
    }

    #[test]
    fn calls_of_tools_that_are_gone_are_told_in_words() {
        let calls = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"tool_use","id":"1","name":"gone","input":{"a": 1}},{"type":"tool_use","id":"2","name":"bash","input":{}}]}"#;
        let results = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]},{"type":"tool_result","tool_use_id":"2","content":"x"},{"type":"text","text":"and?"}]}"#;
        let view = view_of(&[json(ASK), json(calls), json(results)]);
        let bash = [Name::new("bash").expect("a name")];
        let seen = |tools: &[Name]| -> Vec<String> {
            let rules = Rules { tools, ..Rules::default() };
            let sendable = check(&view, None, &rules).expect("valid");
            sendable.messages().map(|message| message.json().as_str().to_owned()).collect()
        };
        let both = [bash[0].clone(), Name::new("gone").expect("a name")];
        assert_eq!(seen(&both)[1..], [calls, results]);
        let told = seen(&bash);
        let call = r#"{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"[a call of `gone`, which is not among the tools: {\"a\": 1}]"},{"type":"tool_use","id":"2","#;
        assert!(told[1].contains(call), "{}", told[1]);
        let result = r#"[{"type":"tool_result","tool_use_id":"2","content":"x"},{"type":"text","text":"[the result of a call of `gone` follows]"},{"type":"image"},{"type":"text","text":"and?"}]"#;
        assert!(told[2].contains(result), "{}", told[2]);
        assert!(!seen(&[]).concat().contains("tool_"), "without tools there are no calls");
    }

    #[test]
    fn a_call_of_a_tool_that_the_model_made_up_keeps_its_error_result() {
        let failed = ANSWER.replace(r#""x""#, r#""Unknown tool: t","is_error":true"#);
        let view = view_of(&[json(ASK), json(CALL), json(&failed)]);
        let bash = [Name::new("bash").expect("a name")];
        let rules = Rules { tools: &bash, ..Rules::default() };
        let sendable = check(&view, None, &rules).expect("valid");
        let seen: Vec<_> = sendable.messages().map(|message| message.json()).collect();
        assert_eq!(seen[1..], [json(CALL), json(&failed)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        #[test]
        fn what_a_provider_would_refuse_is_invalid(messages in damaged(0..6)) {
            let view = view_of(&messages);
            let checked = check(&view, None, &Rules::default());
            let asks = view.slots().any(|slot| slot.entry.is_request);
            prop_assert_eq!(checked.is_ok(), asks && refusals(&messages).is_empty());
        }

        #[test]
        fn tools_that_are_gone_leave_a_valid_conversation(messages in conversation(0..6)) {
            let view = view_of(&messages);
            let tools = ["bash", "glob"].map(|name| Name::new(name).expect("a name"));
            let rules = Rules { tools: &tools, ..Rules::default() };
            let sendable = check(&view, None, &rules).expect("valid");
            let told: Vec<_> = sendable.messages().map(|message| message.json()).collect();
            prop_assert_eq!(refusals(&told), Vec::<String>::new());
            let decoded: Vec<Message> = told.iter().flat_map(Json::decode).collect();
            for message in &decoded {
                let known = |name: &str| tools.iter().any(|tool| tool.as_str() == name);
                let failed = |id: &str| {
                    let results = decoded.iter().flat_map(Message::tool_results);
                    let mut failed = results.filter(|result| result.is_error);
                    failed.any(|result| result.tool_use_id == id)
                };
                let mut calls = message.tool_calls();
                prop_assert!(calls.all(|call| known(&call.name) || failed(&call.id)));
            }
            prop_assert_eq!(sent(&view), messages);
        }
    }
}
