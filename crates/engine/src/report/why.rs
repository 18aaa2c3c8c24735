//! The answer of `why`, as lines for people and as one JSON document.
//!
//! Pure. The chain is decided in `why` of the machines, its words are those of `show/why.rs`.

use serde_json::{Value, json};

use crate::journal::stamp;
use crate::plan::Standing;
use crate::printable;
use crate::run_state::{Moment, RunState};
use crate::show::names::Names;
use crate::show::why::{Outlook, outlook, sentence, subject};
use crate::why::{Chain, Link, Subject, Why};

/// The most links that are shown without `--all`: with what follows them they fit 20 lines.
const MOST_LINKS: usize = 16;

/// The most of them that are shown before the gap: the end of a chain tells most.
const BEFORE_GAP: usize = 7;

/// The longest name for which all others are padded.
const WIDEST: usize = 32;

/// An answer to why.
#[derive(Clone, Debug)]
pub struct Answer {
    subject: Subject,
    /// The state of the subject in one word.
    state: String,
    chain: Chain,
    /// The latest record that the answer knows.
    at: Moment,
    now_ms: i64,
    is_live: bool,
    /// Number of tasks that are done, and of all.
    tasks: (usize, usize),
    names: Names,
}

impl Answer {
    /// Asks why. `state` is the fold up to the moment that is asked about, `now_ms` the wall time of that moment in
    /// milliseconds since the Unix epoch, and `is_live` tells if a process drove the run then.
    #[must_use]
    pub fn of(state: &RunState, about: &Subject, is_live: bool, now_ms: i64) -> Self {
        let word = match about {
            Subject::Run => super::run_word(state, is_live),
            Subject::Task(name) => state.task(name).map_or("unknown", |task| task.state.as_str()),
            Subject::Agent(id) => match state.agents().get(id) {
                Some(agent) if agent.outcome.is_none() && !is_live => "stopped",
                Some(agent) => agent.state(),
                None => "unknown",
            },
        };
        let done = state.tasks().filter(|(_, task)| task.standing() == Standing::Done).count();
        Self {
            subject: about.clone(),
            state: word.to_owned(),
            chain: Why::of(state, is_live, now_ms).chain(about),
            at: state.last(),
            now_ms,
            is_live,
            tasks: (done, state.tasks().count()),
            names: Names::of(state),
        }
    }

    /// Returns what ends the wait, and the command that helps; `None` if nothing holds the subject up.
    #[must_use]
    pub fn outlook(&self) -> Option<Outlook> {
        self.chain.root().map(|root| outlook(root, &self.subject))
    }

    /// Returns the answer in lines that are safe to show: at most 20, or every link with all causes if `all` is set.
    /// `time` formats a time in milliseconds since the Unix epoch, `help` is the command of the outlook.
    #[must_use]
    pub fn lines(
        &self,
        all: bool,
        time: impl Fn(i64) -> String,
        help: Option<&str>,
    ) -> Vec<String> {
        let steps = &self.chain.steps;
        if steps.is_empty() {
            let name = subject(&self.subject, &self.names);
            return vec![format!("{name} is {}: nothing holds it up", self.state)];
        }
        let names: Vec<_> =
            steps.iter().map(|step| subject(&step.link.subject, &self.names)).collect();
        let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(WIDEST);
        let gap = match all || steps.len() <= MOST_LINKS {
            true => steps.len()..steps.len(),
            false => BEFORE_GAP..steps.len() - (MOST_LINKS - BEFORE_GAP),
        };
        let mut lines = Vec::new();
        for (place, step) in steps.iter().enumerate() {
            if place == gap.start && !gap.is_empty() {
                lines.push(format!("… {} more links: --all shows them", gap.len()));
            }
            if gap.contains(&place) {
                continue;
            }
            let others = match step.others.len() {
                0 => String::new(),
                _ if all => String::new(),
                1 => " (and 1 other cause)".to_owned(),
                others => format!(" (and {others} other causes)"),
            };
            let name = printable::padded(&names[place], widest);
            lines.push(format!("{name}  {}{others}", self.said(&step.link, &time)));
            let others = step.others.iter().filter(|_| all);
            lines.extend(others.map(|other| {
                let name = printable::padded("", widest);
                format!("{name}  also {}", self.said(other, &time))
            }));
        }
        lines.extend(self.chain.cycle.map(|place| self.cycle(place)));
        lines.extend(self.outlook().and_then(|outlook| self.ends(&outlook)));
        lines.extend(help.map(|help| format!("help: {}", printable::line(help))));
        lines
    }

    /// Returns a link in words, without its subject.
    fn said(&self, link: &Link, time: &impl Fn(i64) -> String) -> String {
        let words = sentence(link, &self.names, self.now_ms);
        let since = link.since;
        let since = match since.seq {
            0 => String::new(),
            seq => format!(", since {} (seq {seq})", time(since.ms)),
        };
        format!("{}{since}", printable::line(&words))
    }

    fn cycle(&self, place: usize) -> String {
        let around = self.chain.steps[place..].iter();
        let mut names: Vec<_> =
            around.map(|step| subject(&step.link.subject, &self.names)).collect();
        names.extend(names.first().cloned());
        format!("these wait for each other: {}", names.join(" -> "))
    }

    fn ends(&self, outlook: &Outlook) -> Option<String> {
        if self.chain.cycle.is_some() {
            return Some("ends when: never without help; please report this".to_owned());
        }
        let (when, by) = (outlook.ends_when.as_ref()?, outlook.by?);
        let (done, all) = self.tasks;
        Some(format!("ends when: {when} (by {by}); {done} of {all} tasks are done"))
    }

    /// Returns the answer as one JSON document with every link and all its causes. `run` is the id of the run, `help`
    /// the command of the outlook.
    #[must_use]
    pub fn json(&self, run: &str, help: Option<&str>) -> Value {
        let steps = self.chain.steps.iter().map(|step| {
            let mut value = link_json(&step.link);
            value["others"] = step.others.iter().map(link_json).collect();
            value
        });
        let outlook = self.outlook().filter(|_| self.chain.cycle.is_none());
        json!({
            "v": 1,
            "run": run,
            "subject": self.subject,
            "state": self.state,
            "live": self.is_live,
            "at": {"seq": self.at.seq, "time": stamp::text(self.now_ms)},
            "chain": steps.collect::<Vec<_>>(),
            "cycle": self.chain.cycle,
            "ends_when": outlook.as_ref().and_then(|outlook| outlook.ends_when.clone()),
            "by": outlook.as_ref().and_then(|outlook| outlook.by),
            "command": help,
        })
    }
}

/// Returns a link as JSON: its subject, its relation with what belongs to it, what comes next, and since when.
fn link_json(link: &Link) -> Value {
    let mut value = json!(link.relation);
    value["subject"] = json!(link.subject);
    value["object"] = json!(link.relation.object());
    value["since"] = match link.since.seq {
        0 => Value::Null,
        seq => json!({"seq": seq, "time": stamp::text(link.since.ms)}),
    };
    value
}

#[cfg(test)]
mod tests;
