//! Faults of helpers: a debug build can be made to let one kind of work panic, or to delay it.
//!
//! `CALLSHEET_FAULT=HELPER:panic` lets each work of that kind panic, `HELPER:panic:n` the n-th one; `HELPER:abort`
//! ends the process;
//! `HELPER:delay:MS` delays each by so many milliseconds, `HELPER:delay:MS:n` the n-th one. `handler:panic@TASK` lets
//! each message panic that concerns the task or the agent; `evaluation` and `output-read` know their tasks too. So tests can see what a run makes of it. A release build contains
//! none of it.

use std::time::Duration;

/// Declares the helpers in one table.
macro_rules! helpers {
    ($($(#[$doc:meta])* $helper:ident = $name:literal,)*) => {
        /// A kind of work that actors have done beside their mailboxes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Helper {
            $($(#[$doc])* $helper,)*
        }

        impl Helper {
            /// All helpers.
            pub const ALL: &[Self] = &[$(Self::$helper,)*];

            /// Returns the name, as `CALLSHEET_FAULT` gives it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$helper => $name,)*
                }
            }
        }
    };
}

helpers! {
    /// One message of the supervisor.
    Handler = "handler",
    /// A decision of an agent about a long context, and the request that follows.
    Context = "context",
    /// Sends what was decided to the journal.
    Recorder = "recorder",
    /// Stores long prompts before they are recorded.
    Prompts = "prompts",
    /// Waits for news of the disk.
    DiskWatch = "disk-watch",
    /// Judges the form of an output and writes it to its file.
    OutputCheck = "output-check",
    /// Waits for a thread that evaluates.
    EvaluationWait = "evaluation-wait",
    /// Evaluates templates of a task.
    Evaluation = "evaluation",
    /// Compares an output with its schema.
    OutputRead = "output-read",
    /// Writes an output to its file.
    OutputWrite = "output-write",
    /// Stores an output.
    OutputStore = "output-store",
    /// Reads a stored text.
    StoredText = "stored-text",
    /// Runs a hook of the run.
    RunHook = "run-hook",
    /// Runs the command of a notification.
    Notification = "notification",
    /// Sends a notice of the run.
    Notice = "notice",
    /// Waits for the records of an agent that are to be folded.
    Fold = "fold",
    /// Folds the records of an agent.
    FoldRecords = "fold-records",
    /// Records the ends of agents without an actor.
    IdleEnds = "idle-ends",
    /// Finds out how the calls of agents without an actor ended.
    IdleCalls = "idle-calls",
    /// Waits for the next moment at which something is due.
    Timer = "timer",
    /// Waits before a serving actor is started again.
    ServicePause = "service-pause",
    /// Records what a gateway tells of itself.
    GatewayRecord = "gateway-record",
    /// Records what the compactor tells of itself.
    CompactorRecord = "compactor-record",
    /// Writes a summary.
    Summary = "summary",
    /// A step of an agent.
    Step = "step",
    /// Waits for a summary beside an agent's steps.
    SummaryAhead = "summary-ahead",
    /// One call of a tool among several.
    Call = "call",
    /// Looks at a file before it is changed.
    Foresight = "foresight",
    /// Finds out how the calls of a dead process ended.
    LostCalls = "lost-calls",
    /// Looks at the workspace for what others changed.
    Watch = "watch",
    /// Reads the tasks that an agent proposes.
    Proposal = "proposal",
    /// Looks for something in the past of an agent.
    Recall = "recall",
    /// Looks at what a call would change, for a permission.
    Preview = "preview",
    /// Removes results that are recorded.
    Forget = "forget",
    /// Stores a text that left a context.
    Spill = "spill",
    /// Writes the output that a command is given.
    Given = "given",
}

/// What is done to a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It panics.
    Panic,
    /// It is delayed.
    Delay(Duration),
    /// The whole process is aborted.
    Abort,
}

impl Fault {
    /// Panics, waits on this thread, or aborts the process.
    ///
    /// # Panics
    /// If the fault is a panic.
    pub fn happen(self) {
        match self {
            Self::Panic => panic!("a fault was asked for"),
            Self::Delay(time) => std::thread::sleep(time),
            Self::Abort => std::process::abort(),
        }
    }
}

#[cfg(debug_assertions)]
pub use debug::{of, of_work};

#[cfg(debug_assertions)]
mod debug {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::{Fault, Helper};

    struct Asked {
        helper: Helper,
        fault: Fault,
        /// The one that it happens to; all of them without a number.
        number: Option<u64>,
        /// The task or the agent that it concerns; whatever it is without one.
        work: Option<String>,
    }

    static ASKED: LazyLock<Option<Asked>> =
        LazyLock::new(|| read(&std::env::var("CALLSHEET_FAULT").ok()?));

    static PASSED: AtomicU64 = AtomicU64::new(0);

    fn read(asked: &str) -> Option<Asked> {
        let (asked, work) = match asked.split_once('@') {
            Some((asked, work)) => (asked, Some(work.to_owned())),
            None => (asked, None),
        };
        let mut parts = asked.split(':');
        let name = parts.next()?;
        let helper = *Helper::ALL.iter().find(|helper| helper.name() == name)?;
        let fault = match parts.next()? {
            "panic" => Fault::Panic,
            "abort" => Fault::Abort,
            "delay" => Fault::Delay(Duration::from_millis(parts.next()?.parse().ok()?)),
            _ => return None,
        };
        let number = parts.next().map(str::parse).transpose().ok()?;
        Some(Asked { helper, fault, number, work })
    }

    /// Returns the fault that work of this kind suffers now, if `CALLSHEET_FAULT` says so.
    #[must_use]
    pub fn of(helper: Helper) -> Option<Fault> {
        of_work(helper, "")
    }

    /// Returns the fault that work of this kind suffers now which concerns a task or an agent.
    #[must_use]
    pub fn of_work(helper: Helper, work: &str) -> Option<Fault> {
        let is_meant = |asked: &&Asked| asked.work.as_deref().is_none_or(|meant| meant == work);
        let asked = ASKED.as_ref().filter(|asked| asked.helper == helper).filter(is_meant)?;
        let passed = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
        asked.number.is_none_or(|number| number == passed).then_some(asked.fault)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn faults_are_read_and_names_are_unique() {
            let of = |text| read(text).map(|asked| (asked.helper, asked.fault, asked.number));
            assert_eq!(of("recall:abort"), Some((Helper::Recall, Fault::Abort, None)));
            assert_eq!(of("step:panic:2"), Some((Helper::Step, Fault::Panic, Some(2))));
            let delay = Fault::Delay(Duration::from_millis(40));
            assert_eq!(of("timer:delay:40"), Some((Helper::Timer, delay, None)));
            assert_eq!(of("timer:delay:40:3"), Some((Helper::Timer, delay, Some(3))));
            assert_eq!((of("step:delay"), of("nobody:panic"), of("step:x:1")), (None, None, None));
            let names: std::collections::BTreeSet<_> =
                Helper::ALL.iter().map(|helper| helper.name()).collect();
            assert_eq!(names.len(), Helper::ALL.len());
        }
    }
}

/// A release build has no faults.
#[cfg(not(debug_assertions))]
#[inline]
#[must_use]
pub fn of(_: Helper) -> Option<Fault> {
    None
}

/// A release build has no faults.
#[cfg(not(debug_assertions))]
#[inline]
#[must_use]
pub fn of_work(_: Helper, _: &str) -> Option<Fault> {
    None
}
