//! What an actor is at: so that others can say with what it is busy while it does not answer.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The work of one actor: what it handles now, and the longest that it took so far.
#[derive(Debug, Default)]
pub struct Pulse(Mutex<Beat>);

#[derive(Debug, Default)]
struct Beat {
    now: Option<(Instant, Subject)>,
    longest: Option<Busy>,
}

/// What an actor is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// This task or agent.
    Work(String),
    /// Something else, in words.
    Other(&'static str),
}

impl Subject {
    /// Returns the task or the agent; empty for anything else.
    pub(super) fn work(&self) -> &str {
        match self {
            Self::Work(work) => work,
            Self::Other(_) => "",
        }
    }
}

/// A time for which an actor was at one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The time.
    pub since: Duration,
    /// What it was at: a task, an agent, or another thing in words.
    pub with: String,
    /// True if that is a task or an agent.
    pub is_work: bool,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "busy for {} s with {}", self.since.as_secs(), self.with)
    }
}

impl Busy {
    fn with(since: Duration, subject: &Subject) -> Self {
        match subject {
            Subject::Work(work) => Self { since, with: work.clone(), is_work: true },
            Subject::Other(words) => Self { since, with: (*words).to_owned(), is_work: false },
        }
    }
}

impl Pulse {
    /// Notes that the actor begins to handle something.
    pub(super) fn begins(&self, subject: Subject) {
        self.0.lock().now = Some((Instant::now(), subject));
    }

    /// Notes that the actor is done.
    pub(super) fn rests(&self) {
        let mut beat = self.0.lock();
        if let Some((began, subject)) = beat.now.take() {
            let since = began.elapsed();
            if beat.longest.as_ref().is_none_or(|longest| longest.since < since) {
                beat.longest = Some(Busy::with(since, &subject));
            }
        }
    }

    /// Returns what the actor is at, and for how long; `None` if it waits for mail.
    #[must_use]
    pub fn busy(&self) -> Option<Busy> {
        let beat = self.0.lock();
        let (began, subject) = beat.now.as_ref()?;
        Some(Busy::with(began.elapsed(), subject))
    }

    /// Returns the longest that the actor was at one thing.
    #[must_use]
    pub fn longest(&self) -> Option<Busy> {
        self.0.lock().longest.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_kept_and_the_latest_is_shown() {
        let pulse = Pulse::default();
        assert_eq!((pulse.busy(), pulse.longest()), (None, None));
        pulse.begins(Subject::Work("f[17]".to_owned()));
        std::thread::sleep(Duration::from_millis(20));
        let busy = pulse.busy().expect("it is at work");
        assert_eq!(busy.to_string(), "busy for 0 s with f[17]");
        pulse.rests();
        pulse.begins(Subject::Other("x"));
        pulse.rests();
        let longest = pulse.longest().expect("it worked");
        assert!(longest.with == "f[17]" && longest.since >= busy.since, "{longest:?}");
        assert_eq!(pulse.busy(), None);
    }
}
