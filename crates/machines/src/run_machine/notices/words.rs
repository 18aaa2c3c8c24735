//! The words of notices: pure tables from what happened to what a notice says.

use crate::event::{PauseCause, RunCompleted, RunStatus};
use crate::plan::TaskState;
use crate::spec::notices::NoticeKind;
use crate::turn::question::ApprovalKind;

/// Returns the kind of the notice of a question.
pub(super) fn kind_of(kind: ApprovalKind) -> NoticeKind {
    match kind {
        ApprovalKind::Permission => NoticeKind::Permission,
        ApprovalKind::Approval => NoticeKind::Approval,
        ApprovalKind::Question => NoticeKind::Question,
    }
}

/// Returns the word for the cause of a pause.
pub(super) fn word(cause: PauseCause) -> &'static str {
    match cause {
        PauseCause::Interrupted => "interrupted",
        PauseCause::DiskFull => "disk_full",
        PauseCause::Failure => "failure",
        PauseCause::Person => "person",
        PauseCause::Quota => "quota",
    }
}

/// Returns the word for the result of a run, and a sentence.
pub(super) fn words_of(result: &RunCompleted) -> (&'static str, String) {
    let word = match result.status {
        RunStatus::Completed => "completed",
        RunStatus::Partial => "partial",
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "cancelled",
    };
    let is_done = |state| matches!(state, TaskState::Completed | TaskState::Reused);
    let done = result.tasks.values().filter(|end| is_done(end.state)).count();
    let failed = result.tasks.values().filter(|end| end.state == TaskState::Failed).count();
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let sentence =
        format!("the run has ended ({word}): {done} of {} tasks done{failed}", result.tasks.len());
    (word, sentence)
}
