//! The words for what something waits for, and for why it ended: short for a column, as a sentence for `why`, and what
//! ends the wait.
//!
//! Pure. The decision is made in `why` of the machines; here nothing is decided but words. Texts of others are not made
//! safe to show: whoever prints them does that.

use std::borrow::Cow;

use crate::event::PauseCause;
use crate::failure::FailureKind;
use crate::id::AgentId;
use crate::show::names::Names;
use crate::show::undone;
use crate::spec::budget::{Measure, Scope};
use crate::turn::ApprovalKind;
use crate::why::{Link, Relation, Subject, Why};

/// The most tasks that a column names.
const NAMED: usize = 5;

/// Returns the name of a subject as people read it: an agent after an `@`, as commands name it.
#[must_use]
pub fn subject(subject: &Subject, names: &Names) -> String {
    match subject {
        Subject::Run => "the run".to_owned(),
        Subject::Task(name) => names.shown(name.as_str()).into_owned(),
        Subject::Agent(id) => format!("@{}", names.shown(id.as_str())),
    }
}

/// Returns what a row of this subject says that it waits for; `None` if it waits for nothing, has ended, or if another
/// row says it: what an attempt waits for stands beside its agent. `now_ms` is the wall time in milliseconds since the
/// Unix epoch.
#[must_use]
pub fn column(why: &Why<'_>, subject: &Subject, names: &Names, now_ms: i64) -> Option<String> {
    let causes = why.causes(subject);
    let is_own = causes.first().is_some_and(|first| first.subject == *subject);
    is_own.then(|| waits_for(&causes, names, now_ms)).flatten()
}

/// Returns what a subject with these causes waits for, in the words of a column.
pub(crate) fn waits_for(causes: &[Link], names: &Names, now_ms: i64) -> Option<String> {
    let first = causes.first()?;
    let is_run = first.subject == Subject::Run;
    Some(match &first.relation {
        // The rows of its tasks say more.
        Relation::WaitsForDependency { .. } if is_run => return None,
        Relation::WaitsForDependency { .. } => dependencies(causes, names),
        Relation::WaitsForJoin { done, wanted, .. } => {
            format!("{}: {done} of {wanted} completed", dependencies(causes, names))
        }
        Relation::WaitsForInstances { open, all, .. } => format!("{open} of {all} instances"),
        Relation::WaitsForLock { lock, holder, .. } => {
            format!("lock {lock}, held by {}", names.shown(holder.as_str()))
        }
        Relation::WaitsForTurn { of, .. } => {
            format!("its turn among the instances of {}", names.shown(of.as_str()))
        }
        Relation::WaitsForSlot { .. } => "a slot".to_owned(),
        Relation::WaitsForStart { children } => format!("the start of {}", counted(*children)),
        Relation::WaitsForSpawnRate { children, rate, .. } => {
            format!("the start of {}: {rate} may begin", counted(*children))
        }
        Relation::WaitsForChild { calls, .. } => counted(*calls),
        Relation::WaitsForCheck { .. } => "a check of its answer".to_owned(),
        Relation::WaitsForPerson { message, .. } => format!("you: {}", first_line(message)),
        Relation::WaitsForRetry { failure, attempt, until_ms } => {
            retrying(*until_ms, now_ms, *failure, *attempt)
        }
        Relation::WaitsForRateLimit { attempt, until_ms } => {
            retrying(*until_ms, now_ms, FailureKind::RateLimit, *attempt)
        }
        Relation::WaitsForQuota { reason, .. } | Relation::WaitsForDisk { reason } if is_run => {
            reason.clone()
        }
        Relation::WaitsForQuota { provider, .. } => format!("the quota of provider {provider}"),
        Relation::WaitsForDisk { .. } => "disk space".to_owned(),
        Relation::WaitsForResume { failure } => format!("a resume ({failure})"),
        Relation::WaitsForBudget { scope, .. } => format!("the budget of {}", scope.words()),
        Relation::PausedByPerson { by, .. } => format!("you: paused by {}", first_line(by)),
        Relation::WaitsForContent { .. } => "what its task rests on".to_owned(),
        Relation::WaitsForJudgement => "the judgement of its answer".to_owned(),
        Relation::InModelCall { .. } => "model".to_owned(),
        Relation::InTool { tools } => tools.join(", "),
        Relation::InCompaction => "summary".to_owned(),
        Relation::InHook { hook } => format!("the hook {hook}"),
        Relation::PausedBy { reason, .. } if is_run => reason.clone(),
        Relation::PausedBy { .. }
        | Relation::NoProcessDrives { .. }
        | Relation::BeingDecided
        | Relation::AboutToAct
        | Relation::SkippedBecause { .. }
        | Relation::BlockedByFailure { .. }
        | Relation::FailedBecause { .. }
        | Relation::CancelledBy { .. }
        | Relation::PartialBecause { .. }
        | Relation::LimitedBy { .. }
        | Relation::LoopStopped { .. } => return None,
    })
}

/// Returns the tasks that are waited for, the one that binds first.
fn dependencies(causes: &[Link], names: &Names) -> String {
    let of = |link: &Link| match &link.relation {
        Relation::WaitsForDependency { of } | Relation::WaitsForJoin { next: of, .. } => {
            Some(names.shown(of.as_str()).into_owned())
        }
        _ => None,
    };
    let all: Vec<_> = causes.iter().filter_map(of).collect();
    let more = all.len().saturating_sub(NAMED);
    let text = all[..all.len() - more].join(", ");
    if more == 0 { text } else { format!("{text} and {more} more") }
}

fn counted(children: usize) -> String {
    if children == 1 { "1 child".to_owned() } else { format!("{children} children") }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Says that something is tried again later.
#[must_use]
pub fn retrying(until_ms: i64, now_ms: i64, kind: FailureKind, attempt: u32) -> String {
    format!("retrying in {} ({kind}, attempt {attempt})", pause(until_ms, now_ms))
}

/// Formats the time that is left. Rounded up, so that a pause that is not over never shows zero.
fn pause(until_ms: i64, now_ms: i64) -> String {
    let seconds = (until_ms - now_ms).max(0).unsigned_abs().div_ceil(1000);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3_600)),
    }
}

/// Returns the relation of a link as the rest of a sentence that begins with its subject.
#[must_use]
pub fn sentence(link: &Link, names: &Names, now_ms: i64) -> String {
    let shown = |name: &str| names.shown(name).into_owned();
    let agent = |id: &AgentId| subject(&Subject::Agent(id.clone()), names);
    match &link.relation {
        Relation::WaitsForDependency { of } => format!("waits for task {}", shown(of.as_str())),
        Relation::WaitsForJoin { done, wanted, all, next } => format!(
            "waits until {wanted} of {all} tasks complete: {done} did, {} is next",
            shown(next.as_str())
        ),
        Relation::WaitsForInstances { open, all, next } => {
            format!("waits for {open} of {all} instances, longest for {}", shown(next.as_str()))
        }
        Relation::WaitsForLock { lock, holder, ahead } => {
            let holder = shown(holder.as_str());
            format!("waits for lock {lock}, held by {holder}{}", behind(*ahead))
        }
        Relation::WaitsForTurn { of, next, ahead } => format!(
            "waits for its turn: {} runs as many instances as it may, {} among them{}",
            shown(of.as_str()),
            shown(next.as_str()),
            behind(*ahead)
        ),
        Relation::WaitsForSlot { running, taken, ahead, .. } => {
            let named: Vec<_> = running.iter().map(agent).collect();
            let more = taken.saturating_sub(named.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named = match named.is_empty() {
                true => String::new(),
                false => format!(", taken by {}{more}", named.join(", ")),
            };
            format!("waits for a slot{named}{}", behind(*ahead))
        }
        Relation::WaitsForStart { children } => {
            format!("waits for the start of {}: no slot is free for it", counted(*children))
        }
        Relation::WaitsForSpawnRate { children, rate, until_ms } => {
            let (children, next) = (counted(*children), pause(*until_ms, now_ms));
            format!(
                "waits for the start of {children}: {rate} may begin (`max_spawn_rate`), the next in {next}"
            )
        }
        Relation::WaitsForChild { child, calls: 0 | 1 } => {
            format!("waits for child {}", agent(child))
        }
        Relation::WaitsForChild { child, calls } => {
            format!("waits for {calls} children, {} among them", agent(child))
        }
        Relation::WaitsForCheck { check } => format!("waits for the check by {}", agent(check)),
        Relation::WaitsForPerson { asked, message, .. } => {
            format!("waits for you ({}): {}", asked.as_str(), first_line(message))
        }
        Relation::WaitsForRetry { failure, attempt, until_ms } => {
            format!("tries again in {}: {failure}, attempt {attempt}", pause(*until_ms, now_ms))
        }
        Relation::WaitsForRateLimit { attempt, until_ms } => format!(
            "tries again in {}: the provider limits the rate of requests, attempt {attempt}",
            pause(*until_ms, now_ms)
        ),
        Relation::WaitsForQuota { provider, until_ms, .. } => format!(
            "waits for the quota of provider {provider}, tried again in {}",
            pause(*until_ms, now_ms)
        ),
        Relation::WaitsForDisk { reason } => format!("waits for disk space: {reason}"),
        Relation::WaitsForResume { failure } => format!("waits for a resume: {failure}"),
        Relation::WaitsForBudget { message, most_by, .. } => {
            let most: Vec<_> = most_by.iter().map(agent).collect();
            let most = match most.is_empty() {
                true => String::new(),
                false => format!(", most by {}", most.join(", ")),
            };
            format!("waits for a higher budget: {message}{most}")
        }
        Relation::PausedByPerson { scope, by, reason } => {
            let why = reason.as_ref().map(|why| format!(": {}", first_line(why)));
            let by = first_line(by);
            format!("rests: {} is paused by {by}{}", scope.words(), why.unwrap_or_default())
        }
        Relation::WaitsForContent { of } => format!(
            "waits until the tasks before {} are decided anew: it goes on if their results stay the same",
            shown(of.as_str())
        ),
        Relation::WaitsForJudgement => "waits for the judgement of its answer".to_owned(),
        Relation::BeingDecided => "is being decided: nothing is missing".to_owned(),
        Relation::AboutToAct => "is about to act".to_owned(),
        Relation::InModelCall { model, turn } => {
            let model = model.as_ref().map(|model| format!(" of model {model}"));
            format!("is in a call{} (turn {turn})", model.as_deref().unwrap_or(" of a model"))
        }
        Relation::InTool { tools } => format!("runs {}", tools.join(", ")),
        Relation::InCompaction => "waits for a summary of its context".to_owned(),
        Relation::InHook { hook } => format!("runs the hook {hook}"),
        Relation::PausedBy { reason, .. } => format!("is paused: {reason}"),
        Relation::NoProcessDrives { pid, by } => {
            let by = by.as_ref().map(|by| format!(", {by}")).unwrap_or_default();
            format!(
                "stands still: no process drives the run (pid {pid}{by} ended without a record)"
            )
        }
        Relation::SkippedBecause { reason } => format!("was skipped: {reason}"),
        Relation::BlockedByFailure { of } if link.subject == Subject::Run => {
            format!("did not succeed because of task {}", shown(of.as_str()))
        }
        Relation::BlockedByFailure { of } => {
            format!("was skipped because task {} did not succeed", shown(of.as_str()))
        }
        Relation::FailedBecause { failure, message, .. } => format!("failed: {failure}: {message}"),
        Relation::CancelledBy { reason, .. } => format!("was cancelled: {reason}"),
        Relation::PartialBecause { undone: left } => {
            format!("left work undone: {}", undone(left).unwrap_or_default())
        }
        Relation::LimitedBy { failure, message, .. } => {
            format!("was ended by a limit: {failure}: {message}")
        }
        Relation::LoopStopped { rule } => format!("was ended: {rule}"),
    }
}

fn behind(ahead: usize) -> String {
    match ahead {
        0 => String::new(),
        1 => ", behind 1 other".to_owned(),
        ahead => format!(", behind {ahead} others"),
    }
}

/// The command that helps with a wait, or after an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Help {
    /// `approve ID`, or `reject ID`.
    Approve(String),
    /// `answer ID TEXT`.
    Answer(String),
    /// `resume RUN`.
    Resume,
    /// `resume RUN --retry-failed`, perhaps with a task.
    Retry(Option<String>),
    /// `cancel RUN/...`.
    Cancel(Subject),
    /// `budget RUN/... --max-...`, with the part of the run and the limit to raise.
    Raise(Scope, Measure),
    /// `unpause RUN/...`, with the part of the run that is paused.
    Unpause(Scope),
    /// `resume RUN --retry-failed` with a raised budget, perhaps with a task.
    RetryWith(Option<String>, Option<Scope>),
    /// `show RUN/...`.
    Show(Subject),
    /// `doctor`.
    Doctor,
}

/// What ends a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// What must happen, as the rest of a sentence that begins with "ends when"; absent for what has ended.
    pub ends_when: Option<Cow<'static, str>>,
    /// Who can end it; absent for what has ended.
    pub by: Option<&'static str>,
    /// The command that helps.
    pub help: Option<Help>,
}

/// Returns what ends the wait whose root is this link. `subject` is the one of which was asked.
#[must_use]
pub fn outlook(root: &Link, asked_of: &Subject) -> Outlook {
    let waits = |ends_when: &'static str, by, help| Outlook {
        ends_when: Some(Cow::Borrowed(ends_when)),
        by: Some(by),
        help,
    };
    let cancel = || Some(Help::Cancel(root.subject.clone()));
    let ended = |help| Outlook { ends_when: None, by: None, help };
    match &root.relation {
        Relation::WaitsForPerson { id, asked, .. } => match asked {
            ApprovalKind::Permission | ApprovalKind::Approval => {
                waits("you approve or reject", "you", Some(Help::Approve(id.clone())))
            }
            ApprovalKind::Question => waits("you answer", "you", Some(Help::Answer(id.clone()))),
        },
        Relation::WaitsForRetry { .. } => waits("the next attempt succeeds", "time", cancel()),
        Relation::WaitsForRateLimit { .. } | Relation::WaitsForQuota { .. } => {
            waits("the provider takes the call", "the provider", cancel())
        }
        Relation::WaitsForDisk { .. } => {
            waits("the disk has space again", "you", Some(Help::Doctor))
        }
        Relation::WaitsForResume { .. }
        | Relation::NoProcessDrives { .. }
        | Relation::PausedBy { cause: PauseCause::Failure, .. } => {
            waits("the run is resumed", "you", Some(Help::Resume))
        }
        Relation::PausedBy {
            cause:
                PauseCause::Interrupted | PauseCause::Person | PauseCause::DiskFull | PauseCause::Quota,
            ..
        } => waits("the run is resumed", "you", Some(Help::Resume)),
        Relation::WaitsForBudget { scope, measure, .. } => {
            waits("the budget is raised", "you", Some(Help::Raise(scope.clone(), *measure)))
        }
        Relation::PausedByPerson { scope, .. } => {
            waits("it is unpaused", "you", Some(Help::Unpause(scope.clone())))
        }
        Relation::InModelCall { .. } => waits("the model answers", "the provider", cancel()),
        Relation::InCompaction => waits("the summary is written", "the provider", cancel()),
        Relation::InTool { .. } => waits("the tool ends", "the tool", cancel()),
        Relation::InHook { .. } => waits("the hook ends", "the hook", cancel()),
        Relation::WaitsForSpawnRate { .. } => waits("another child may begin", "time", cancel()),
        Relation::WaitsForSlot { .. } | Relation::WaitsForStart { .. } => {
            waits("an agent ends or waits for children or a person", "the running agents", cancel())
        }
        Relation::WaitsForDependency { .. }
        | Relation::WaitsForJoin { .. }
        | Relation::WaitsForInstances { .. }
        | Relation::WaitsForLock { .. }
        | Relation::WaitsForTurn { .. }
        | Relation::WaitsForChild { .. }
        | Relation::WaitsForCheck { .. }
        | Relation::WaitsForContent { .. } => waits("that ends", "the run", cancel()),
        Relation::WaitsForJudgement | Relation::BeingDecided | Relation::AboutToAct => {
            waits("the process that drives the run has gone on", "the run", None)
        }
        Relation::LimitedBy { failure: FailureKind::Budget, scope, .. } => {
            ended(Some(Help::RetryWith(task_asked_of(asked_of), scope.clone())))
        }
        Relation::FailedBecause { .. }
        | Relation::LimitedBy { .. }
        | Relation::CancelledBy { .. }
        | Relation::LoopStopped { .. }
        | Relation::BlockedByFailure { .. } => ended(Some(Help::Retry(task_asked_of(asked_of)))),
        Relation::SkippedBecause { .. } | Relation::PartialBecause { .. } => {
            ended(Some(Help::Show(root.subject.clone())))
        }
    }
}

fn task_asked_of(subject: &Subject) -> Option<String> {
    match subject {
        Subject::Task(name) => Some(name.to_string()),
        Subject::Run | Subject::Agent(_) => None,
    }
}
