//! The work that is measured: the answers of the provider, the files that are read, the subjects
//! that do it.
//!
//! The work is the same for all subjects, so that only the way in which they do it differs.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

use crate::measure::{self, Cost};
use crate::support::answer::Answer;
use crate::support::asked::Asked;
use crate::{floor, ours, provider};

/// Tool turns of an agent; a last turn without a tool follows.
pub(crate) const TURNS: usize = 20;
/// The bytes of a file, and so of a tool result.
const FILE_BYTES: usize = 2_000;
/// The instructions of an agent, which both request bodies contain.
pub(crate) const SYSTEM: &str = "You read the parts of a report one after the other with \
    read_file, note what stands in each, and say when you are done.";
/// The task.
pub(crate) const PROMPT: &str = "Read the report.";
/// The most tokens of a reply.
pub(crate) const MAX_TOKENS: u64 = 1024;
/// The text of the model beside a call: two sentences, streamed in pieces.
const SAYS: &str = "The last part was about the weather on the coast and how the boats came \
    home. I go on with the next part, because the report has not ended yet.";
/// Characters of one streamed piece: about three tokens.
const PIECE: usize = 12;

/// The subjects that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The plain loop.
    Bare,
    /// The plain loop with a journal.
    Durable,
    /// callsheet as a library.
    Library,
    /// callsheet as a program, which also shows every event as it comes.
    Program,
}

impl Subject {
    pub(crate) const ALL: [Self; 4] = [Self::Bare, Self::Durable, Self::Library, Self::Program];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Durable => "durable",
            Self::Library => "library",
            Self::Program => "program",
        }
    }
}

/// The path of the file that a turn reads, from 0.
pub(crate) fn part(turn: usize) -> String {
    format!("parts/part-{turn:02}.txt")
}

/// Makes a directory for everything that is measured, on the disk that holds the build: a temporary
/// directory may be in memory, where a sync costs nothing.
pub(crate) fn ground() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Makes a directory with the files for one measurement. It stays until all measurements are done:
/// when ext4 creates a file, it searches through all files that were deleted in the last seconds.
pub(crate) fn directory(ground: &str) -> PathBuf {
    let directory = Path::new(ground).join(std::process::id().to_string());
    std::fs::create_dir_all(directory.join("parts")).expect("a directory");
    for turn in 0..TURNS {
        let line =
            format!("{turn:2} the wind came from the west and \"turned\" before noon, said K.\n");
        let mut text = line.repeat(FILE_BYTES / line.len() + 1);
        text.truncate(FILE_BYTES);
        std::fs::write(directory.join(part(turn)), text).expect("a file");
    }
    directory
}

/// The process of the provider.
pub(crate) fn provide() {
    provider::serve(answer);
}

/// Makes the answer to a request. It depends only on the number of results in the request, so it is
/// the same for all subjects.
fn answer(asked: &Asked) -> Answer {
    let results = memmem(&asked.body, br#""type":"tool_result""#);
    let answer = match results < TURNS {
        true => Answer::text(SAYS).and_tool("read_file", json!({ "path": part(results) })),
        false => Answer::text("The report is read."),
    };
    Answer { delta_chars: PIECE, ..answer }
}

/// Returns the number of times that `needle` occurs in `bytes`.
fn memmem(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).filter(|window| *window == needle).count()
}

/// The process of a subject: does the work and prints its cost.
pub(crate) fn run(subject: &str, agents: &str, url: &str, ground: &str) {
    let subject = Subject::ALL.into_iter().find(|known| known.name() == subject);
    let subject = subject.expect("a subject");
    let agents: usize = agents.parse().expect("a number of agents");
    let directory = directory(ground);
    let began = Instant::now();
    let (cpu_us, syncs) = match subject {
        Subject::Bare => (None, floor::run(agents, url, &directory, None)),
        Subject::Durable => {
            let journal = directory.join("journal.jsonl");
            (None, floor::run(agents, url, &directory, Some(&journal)))
        }
        Subject::Library => (None, ours::as_library(agents, url, &directory)),
        Subject::Program => {
            let syncs = ours::as_program(agents, url, &directory);
            (Some(measure::children_cpu_us()), syncs)
        }
    };
    let wall_us = began.elapsed().as_secs_f64() * 1e6;
    let cpu_us = cpu_us.unwrap_or_else(measure::own_cpu_us);
    Cost { cpu_us, wall_us, syncs: syncs as f64 }.print();
}

/// Runs so many agents through their turns in a process of their own.
pub(crate) fn turns(subject: Subject, agents: usize, url: &str, ground: &Path) -> Cost {
    let ground = ground.to_str().expect("a path of our own");
    match measure::figures(&["turns", subject.name(), &agents.to_string(), url, ground])[..] {
        [cpu_us, wall_us, syncs] => Cost { cpu_us, wall_us, syncs },
        ref other => panic!("three figures, not {other:?}"),
    }
}

/// Returns the number of batches in a journal of callsheet; each was one sync.
pub(crate) fn batches(state_dir: &Path) -> usize {
    let runs = std::fs::read_dir(state_dir).expect("the state directory");
    let journals = runs.flatten().map(|run| run.path().join("journal.jsonl"));
    let count = |path: PathBuf| memmem(&std::fs::read(path).expect("a journal"), br#","be":true,"#);
    journals.map(count).sum()
}
