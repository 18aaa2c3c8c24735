//! What the program asks of a verb before it is run: its file, and what it does with runs.

use std::path::PathBuf;

use super::{Trusting, Verb};

/// What a verb does with the runs that it is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OnRuns {
    Nothing,
    Reads,
    /// It writes to their directories, perhaps with the trust that a flag gives.
    Writes {
        trust: bool,
    },
}

impl Verb {
    /// Returns what the verb does with runs that exist.
    pub(in crate::cli) fn on_runs(&self) -> OnRuns {
        let writes = |trusting: &Trusting| OnRuns::Writes { trust: trusting.trust };
        match self {
            Self::Resume(verb) if !verb.explain => writes(&verb.trusting),
            Self::Fork(verb) if verb.what.contains('@') => writes(&verb.trusting),
            Self::Prune(verb) if verb.dry_run => OnRuns::Reads,
            Self::Prune(_)
            | Self::Cancel(_)
            | Self::Budget(_)
            | Self::Approve(_)
            | Self::Reject(_)
            | Self::Answer(_)
            | Self::Compact(_)
            | Self::Say(_)
            | Self::Pause(_)
            | Self::Unpause(_)
            | Self::Rebuild(_) => OnRuns::Writes { trust: false },
            Self::Resume(_)
            | Self::Fork(_)
            | Self::Attach(_)
            | Self::Tail(_)
            | Self::Ps(_)
            | Self::Show(_)
            | Self::Why(_)
            | Self::Report(_)
            | Self::Cost(_)
            | Self::Pending(_)
            | Self::Context(_) => OnRuns::Reads,
            Self::Run(_)
            | Self::Check(_)
            | Self::Trust(_)
            | Self::Graph(_)
            | Self::Service(_)
            | Self::Doctor(_)
            | Self::Init(_)
            | Self::Explain(_)
            | Self::Schema(_)
            | Self::Man(_)
            | Self::Completions { .. }
            | Self::Version(_) => OnRuns::Nothing,
        }
    }

    /// Returns the path of the configuration file that the verb uses.
    pub(in crate::cli) fn file(&self) -> PathBuf {
        match self {
            Self::Run(verb) => verb.file.file.clone(),
            Self::Attach(verb) => verb.file.file.clone(),
            Self::Resume(verb) => verb.file.file.clone(),
            Self::Fork(verb) => verb.file.file.clone(),
            Self::Rebuild(verb) => verb.file.file.clone(),
            Self::Check(verb) => verb.file.file.clone(),
            Self::Trust(verb) => verb.file(),
            Self::Tail(verb) => verb.file.clone(),
            Self::Ps(verb) => verb.file.file.clone(),
            Self::Show(verb) => verb.file.file.clone(),
            Self::Why(verb) => verb.file.file.clone(),
            Self::Report(verb) => verb.file.file.clone(),
            Self::Graph(verb) => verb.file.file.clone(),
            Self::Cost(verb) => verb.file.file.clone(),
            Self::Budget(verb) => verb.file.file.clone(),
            Self::Prune(verb) => verb.file.file.clone(),
            Self::Cancel(verb) => verb.file.file.clone(),
            Self::Pending(verb) => verb.file.file.clone(),
            Self::Approve(verb) => verb.file.file.clone(),
            Self::Reject(verb) => verb.file.file.clone(),
            Self::Answer(verb) => verb.file.file.clone(),
            Self::Compact(verb) => verb.file.file.clone(),
            Self::Say(verb) => verb.file.file.clone(),
            Self::Pause(verb) => verb.file.file.clone(),
            Self::Unpause(verb) => verb.file.file.clone(),
            Self::Context(verb) => verb.verb.file(),
            Self::Service(verb) => verb.file(),
            Self::Doctor(verb) => verb.file.file.clone(),
            Self::Init(_)
            | Self::Explain(_)
            | Self::Schema(_)
            | Self::Man(_)
            | Self::Completions { .. }
            | Self::Version(_) => PathBuf::new(),
        }
    }
}
