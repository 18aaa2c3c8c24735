//! Journals, resumes, retries and forks, over crashes, damage and full disks.

mod accept;
mod bill;
mod budgets;
mod cancelled;
mod continuations;
mod corpus;
mod crash;
mod damaged_journals;
mod deaths;
mod disk;
mod fork;
mod full_disk;
mod interrupted;
mod journal_format;
mod lost_records;
pub(crate) mod resume;
mod resumed;
mod retry;
mod so_far;
mod stop;
mod stored;
mod transcripts;
mod wrapper;
