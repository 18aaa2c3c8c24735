//! Declares the keys of `[notify]`.

use std::time::Duration;

use super::{HeaderValue, KeySource};
use crate::config::shape::kinds::{COMMAND, COUNT, VARIABLE, words_of};
use crate::config::shape::{Kind, List, sections, words};
use crate::spec::notices::{NoticeKind, NoticePolicy};

words! { NoticeKind }

sections! {
    /// Notices when a run needs a person, fails or ends. What is named here runs outside of the sandbox of
    /// commands, with its own network; docs/notices.md has what is sent.
    RunNotices {
        /// The states that are reported: `question`, an agent asks something; `permission`, a call waits for one;
        /// `approval`, the plan or a proposed part of it waits for one; `paused`, the run is paused; `failed`, a
        /// task has failed for good; `finished`, the run has ended; `stalled`, nothing has come further for some
        /// time; `died`, the process of the run died and another one goes on with nobody at a terminal.
        on: List<NoticeKind>, Kind::List(&words_of::<NoticeKind>(&[])) => "all of them";
        /// The time for which a question or a pause that ends by itself must last before it is reported. The others
        /// are reported at once, and so is every open question when the process ends.
        after: Duration = NoticePolicy::default().after, Kind::Pause;
        /// The time without progress (no reply of a model, no end of a task or an agent, no answer) after which a
        /// run counts as stalled.
        stalled_after: Duration = NoticePolicy::default().stalled_after, Kind::Time;
        /// The program that gets the notice, with its arguments. It reads the notice as JSON on its stdin. A path is
        /// relative to this file.
        command: List<String> = Vec::new(), COMMAND, gives "bad_value", "unused_key";
        /// Environment variables that the command gets with the values that they have outside, beside those that
        /// every command gets (`PATH`, `HOME`, `LANG` and the like). No key is passed on unless it is named here.
        env: List<String> = Vec::new(), Kind::List(&VARIABLE);
        /// The server that gets the notice.
        webhook: WebhookKeys = WebhookKeys::default(), WebhookKeys::KIND;
        /// If `true`, notices are shown by `notify-send`, the program of desktops for that.
        desktop: bool = false, Kind::Truth;
        /// The longest time that one attempt may take.
        timeout: Duration = Duration::from_secs(30), Kind::Time;
        /// The most attempts to deliver a notice. Their number is kept over resumes.
        attempts: u32 = NoticePolicy::default().attempts, COUNT;
        /// The pause after the first attempt that failed. Each further one is twice as long, up to ten minutes.
        pause: Duration = NoticePolicy::default().pause, Kind::Time;
        /// The longest time for which the end of a run, or a pause with which the process ends, waits until its
        /// last notices are delivered; after Ctrl-C or a signal at most five seconds.
        wait: Duration = NoticePolicy::default().wait, Kind::Pause;
    }

    /// A server that gets notices by a POST with JSON.
    WebhookKeys {
        /// The address, or its source, like `{ env = "NAME_OF_A_VARIABLE" }`, since it often holds a key.
        url: HeaderValue, Kind::Header(KeySource::KEYS), gives "bad_value", "missing_key", "missing_field", "unknown_secret";
        /// The source of the secret with which the requests are signed.
        secret: KeySource, Kind::Key(KeySource::KEYS) => "they are not signed",
            gives "literal_key", "missing_field", "missing_key", "unknown_secret";
        /// If `true`, the server may have a private address, such as one of this machine. Else the request is
        /// refused after the name was resolved.
        allow_private: bool = false, Kind::Truth;
    }
}
