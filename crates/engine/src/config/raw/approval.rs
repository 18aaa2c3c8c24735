//! Declares the keys of `[tasks.NAME.approval]`.

use std::time::Duration;

use crate::config::shape::kinds::{COMMAND, EXPRESSION, TEMPLATE, words_of};
use crate::config::shape::{Kind, List, sections, words};
use crate::spec::OnTimeout;

words! { OnTimeout }

sections! {
    /// A question to a person. The task completes when it is approved and fails when it is rejected.
    Approval {
        /// The question.
        message: String, TEMPLATE, gives "missing_field";
        /// Expressions whose values are shown with the question.
        show: List<String> = Vec::new(), Kind::List(&EXPRESSION);
        /// The time after which the question answers itself. It counts by the clock on the wall, also
        /// while no process drives the run.
        timeout: Duration, Kind::Time => "it waits for as long as it takes";
        /// The answer after that time: `reject`, `approve`, or `fail`, the task fails with the kind
        /// `timeout`.
        on_timeout: OnTimeout = OnTimeout::Reject, words_of::<OnTimeout>(&[]), gives "missing_field";
        /// What is run when the question opens.
        notify: Notify = Notify::default(), Notify::KIND;
    }

    /// A program that gets notices.
    Notify {
        /// The program with its arguments. It runs in the sandbox, with the question as JSON on its
        /// stdin. The run does not wait for it.
        command: List<String> = Vec::new(), COMMAND, gives "bad_value";
    }
}
