//! Identifiers and names of runs, tasks, agents and tool calls.
//!
//! Owns the rules for valid names and the text forms. Knows nothing of the things that are named.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The identity of a run: a UUIDv7, so that ids sort by the time the run was created.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct RunId(Uuid);

impl From<Uuid> for RunId {
    /// Makes a run id of any UUID; a new run passes a version 7 UUID, so that ids sort by time.
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl RunId {
    /// Reads an id from its hyphenated or simple text form; `None` if the text is no UUID.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }

    /// Returns true if the id begins with a time, as those that callsheet makes do.
    #[must_use]
    pub fn has_time(self) -> bool {
        self.0.get_version_num() == 7
    }

    /// Returns the id of a new run that sorts behind the newest one, also if the clock went back meanwhile: `fresh`,
    /// a UUID of version 7, with a later time if need be.
    #[must_use]
    pub fn after(newest: Option<Self>, fresh: Uuid) -> Self {
        match newest.filter(|newest| newest.has_time() && newest.0 >= fresh) {
            None => Self(fresh),
            Some(Self(newest)) => {
                // The first 48 bits are a time in milliseconds.
                let ms = (newest.as_u128() >> 80).saturating_add(1).min((1 << 48) - 1);
                Self(Uuid::from_u128(ms << 80 | fresh.as_u128() & ((1 << 80) - 1)))
            }
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// The name of an agent definition, task, model, provider or tool: one or more of `[a-z0-9_-]`.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A text that is not a valid [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a name: use one or more of a-z, 0-9, `_` and `-`")]
pub struct BadName(pub String);

impl Name {
    /// Checks that `text` is a valid name.
    ///
    /// # Errors
    /// Returns an error if `text` is empty or contains anything but `[a-z0-9_-]`.
    pub fn new(text: &str) -> Result<Self, BadName> {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if text.is_empty() || !text.bytes().all(fits) {
            return Err(BadName(text.to_owned()));
        }
        Ok(Self(text.into()))
    }

    /// Checks that `text` is a name as records hold it: a valid name, or several with `/` between
    /// them for a task of a sub-graph, with `[N]` after the last for an instance of a fan-out.
    ///
    /// # Errors
    /// Returns an error if `text` has another form.
    pub fn of_record(text: &str) -> Result<Self, BadName> {
        let plain = match text.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
            Some((plain, number)) if number.parse::<u32>().is_ok() => plain,
            Some(_) => return Err(BadName(text.to_owned())),
            None => text,
        };
        match plain.split('/').all(|part| Self::new(part).is_ok()) {
            true => Ok(Self(text.into())),
            false => Err(BadName(text.to_owned())),
        }
    }

    /// Returns the name of an instance of the task with this name: `review[3]`. The number is the
    /// place of its item in the list, from 0.
    #[must_use]
    pub fn instance(&self, number: usize) -> Self {
        Self(format!("{self}[{number}]").into())
    }

    /// Returns the name of the task that fanned out to this instance; `None` if it is no instance.
    #[must_use]
    pub fn of_instance(&self) -> Option<&str> {
        self.0.strip_suffix(']')?.rsplit_once('[').map(|(task, _)| task)
    }

    /// Returns true if this task is `whole`, an instance of it, or a task of the sub-graph that it
    /// stands for, at any depth.
    #[must_use]
    pub fn is_part_of(&self, whole: &Self) -> bool {
        let rest = self.0.strip_prefix(&*whole.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[']))
    }

    /// Returns the name of the task `inner` of the sub-graph that has this name.
    #[must_use]
    pub fn inner(&self, inner: &Self) -> Self {
        Self(format!("{self}/{inner}").into())
    }

    /// Returns the last part of the name: `list` of `nightly/list`.
    #[must_use]
    pub fn local(&self) -> Self {
        self.0.rsplit_once('/').map_or_else(|| self.clone(), |(_, last)| Self(last.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        Self::of_record(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The id of an agent at work, made from its task's name: `review`, its second attempt `review~2`,
/// its child `review/helper-2`.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Returns the id of the main agent of a task's attempt. Attempts count from 1, and the first
    /// one has no mark.
    #[must_use]
    pub fn main(task: &Name, attempt: u32) -> Self {
        if attempt <= 1 {
            return Self(task.as_str().into());
        }
        Self(format!("{task}~{attempt}").into())
    }

    /// Returns the id of the `ordinal`-th child (from 1) that this agent starts from the definition
    /// `agent`.
    #[must_use]
    pub fn child(&self, agent: &Name, ordinal: u32) -> Self {
        Self(format!("{}/{agent}-{ordinal}", self.0).into())
    }

    /// Returns the id of the child that this agent calls so.
    #[must_use]
    pub fn named(&self, name: &Name) -> Self {
        Self(format!("{}/{name}", self.0).into())
    }

    /// Returns true if this is the main agent of an attempt of a task, and not one below it.
    #[must_use]
    pub fn is_main_of(&self, task: &Name) -> bool {
        let rest = self.0.strip_prefix(task.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('~') && !rest.contains('/'))
    }

    /// Returns the names that the task of this agent can have, the shortest first: the task of a
    /// sub-graph has a `/` in its name, as an agent below another one has in its id.
    pub fn possible_tasks(&self) -> impl Iterator<Item = &str> {
        let ends = self.0.match_indices('/').map(|(at, _)| at).chain([self.0.len()]);
        ends.map(|end| self.0[..end].split('~').next().unwrap_or_default())
    }

    /// Returns true if this agent is `top` or a child of it, directly or through other children.
    #[must_use]
    pub fn is_within(&self, top: &Self) -> bool {
        let below = self.0.strip_prefix(&*top.0);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Makes an id of a text without a check: ids come from our own journal or the command line.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of this agent's files without the extension. The folder `agents/` is flat,
    /// so `/` becomes `.`.
    #[must_use]
    pub fn file_stem(&self) -> String {
        self.0.replace('/', ".")
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The idempotency key of one tool call: 26 characters, the same after a crash and a resume.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct CallKey(Arc<str>);

/// RFC 4648 base32 in lower case: safe in file names and environment variables.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl CallKey {
    /// Derives the key from everything that makes the call unique: the run, the agent, the turn,
    /// the call's place in the turn, the tool and its arguments as canonical JSON text.
    #[must_use]
    pub fn derive(
        run: RunId,
        agent: &AgentId,
        turn: u32,
        index: u32,
        tool: &str,
        arguments: &str,
    ) -> Self {
        let text = format!("{run}|{agent}|{turn}|{index}|{tool}|{arguments}");
        let hash = blake3::hash(text.as_bytes());
        // 26 characters of 5 bits are 130 bits: enough that no two calls of a run have one key.
        let mut key = String::with_capacity(26);
        let (mut bits, mut held) = (0u32, 0u32);
        for byte in hash.as_bytes() {
            bits = (bits << 8) | u32::from(*byte);
            held += 8;
            while held >= 5 && key.len() < 26 {
                held -= 5;
                key.push(char::from(BASE32[((bits >> held) & 31) as usize]));
            }
        }
        Self(key.into())
    }

    /// Takes a key from a record or a log.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_run_sorts_behind_the_newest() {
        let id = |text: &str| RunId::parse(text).expect("an id");
        let at = |ms: u128| Uuid::from_u128(ms << 80 | 0x7abc_8def_0000_0000_0001);
        let (old, new) = (RunId(at(1_000)), RunId(at(2_000)));
        assert_eq!(RunId::after(None, at(1_000)), old);
        assert_eq!(RunId::after(Some(old), at(2_000)), new);
        assert_eq!(RunId::after(Some(new), at(1_000)), RunId(at(2_001)), "the clock went back");
        assert_eq!(RunId::after(Some(new), at(2_000)), RunId(at(2_001)), "in one millisecond");
        // Somebody else's id may be any: of another version it has no time, and the last time has none behind it.
        assert_eq!(
            RunId::after(Some(id("ffffffff-ffff-4fff-8fff-ffffffffffff")), at(5)),
            RunId(at(5))
        );
        let last = id("ffffffff-ffff-7fff-8fff-ffffffffffff");
        assert_eq!(RunId::after(Some(last), at(5)), RunId(at((1 << 48) - 1)));
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "review-2", "x_y", "0"] {
            assert_eq!(Name::new(good).map(|n| n.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "A", "a b", "a/b", "ä", "a."] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_main_agents_of_a_task_are_told_from_those_below() {
        let name = |text: &str| Name::new(text).expect("a name");
        let task = name("nightly").inner(&name("list")).instance(2);
        for attempt in [1, 2] {
            let main = AgentId::main(&task, attempt);
            assert!(main.is_main_of(&task), "{main}");
            assert!(!main.is_main_of(&name("nightly")), "{main}");
            let below = main.child(&name("check"), 1);
            assert!(!below.is_main_of(&task), "{below}");
            assert!(below.possible_tasks().any(|possible| possible == task.as_str()), "{below}");
        }
        assert!(!AgentId::main(&name("a-b"), 1).is_main_of(&name("a")));
    }

    #[test]
    fn names_of_records_may_be_those_of_instances_and_of_sub_graphs() {
        let name = |text: &str| Name::new(text).expect("a name");
        for good in [name("a").instance(3), name("a").inner(&name("b")).instance(0), name("x")] {
            assert_eq!(Name::of_record(good.as_str()), Ok(good));
        }
        for bad in ["a[", "a[]", "a[x]", "a[1]b", "[1]", "a[1][2]", "a//b", "/a", "a/", "a[-1]", ""]
        {
            assert!(Name::of_record(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_whole_has_its_instances_and_the_tasks_of_its_sub_graph_as_parts() {
        let name = |text: &str| Name::of_record(text).expect("a name");
        for (part, whole, is_part) in [
            ("a", "a", true),
            ("a[1]", "a", true),
            ("a/b", "a", true),
            ("a/b/c[2]", "a/b", true),
            ("a", "a[1]", false),
            ("a[10]", "a[1]", false),
            ("ab", "a", false),
            ("a/bc", "a/b", false),
        ] {
            assert_eq!(name(part).is_part_of(&name(whole)), is_part, "{part} {whole}");
        }
    }

    #[test]
    fn agents_are_named_after_their_task() {
        let task = Name::new("review").expect("a name");
        let helper = Name::new("helper").expect("a name");
        assert_eq!(AgentId::main(&task, 1).as_str(), "review");
        assert_eq!(AgentId::main(&task, 2).as_str(), "review~2");
        let child = AgentId::main(&task, 1).child(&helper, 2);
        assert_eq!(child.as_str(), "review/helper-2");
        assert_eq!(child.file_stem(), "review.helper-2");
    }

    #[test]
    fn a_key_depends_on_every_part() {
        let run = RunId::from(uuid::Uuid::nil());
        let agent = AgentId::from_text("a");
        let key = |turn, index, tool, arguments| {
            CallKey::derive(run, &agent, turn, index, tool, arguments)
        };
        let base = key(1, 0, "bash", "{}");
        assert_eq!(base.as_str().len(), 26);
        assert_eq!(base, key(1, 0, "bash", "{}"));
        for other in [key(2, 0, "bash", "{}"), key(1, 1, "bash", "{}"), key(1, 0, "grep", "{}")] {
            assert_ne!(base, other);
        }
    }
}
