//! No verb: says what can be done in this folder.

use super::locate::Project;
use super::{complain, questions, say, trust};
use crate::config::{self, Missing, Sources};
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::printable;
use crate::report;

/// The most tasks that are named.
const TASKS: usize = 12;

pub(super) fn run(project: &Project) -> Exit {
    if !project.file.exists() {
        complain(&format!("there is no {} here or in a folder above", project.file.display()));
        return say(
            "write one:    callsheet init            (or --template fix, --template research)\n\
             name one:     callsheet run -f FILE\n\
             every verb:   callsheet --help\n",
        );
    }
    let sources = Sources {
        missing_inputs: Missing::Allow,
        missing_keys: Missing::Allow,
        ..project.sources()
    };
    let read = |outside| config::load(&Sources { outside, ..sources.clone() });
    let mut text = match trust::look(read) {
        Err(found) => {
            let count = found.0.len();
            let noun = if count == 1 { "mistake" } else { "mistakes" };
            format!("{}: {count} {noun}; `callsheet check` shows them\n", project.file.display())
        }
        Ok(config) => {
            let names: Vec<_> = config.tasks.iter().map(|task| task.name.as_str()).collect();
            let more = match names.len().saturating_sub(TASKS) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let shown = names[..names.len().min(TASKS)].join(", ");
            let file = project.file.display().to_string();
            format!(
                "{}: {}: {shown}{more}\n",
                printable::line(&file),
                printable::line(&config.name)
            )
        }
    };
    let is_waiting = |run: &RecordedRun| {
        let (state, read) = run.state(|_| {});
        read.is_ok() && questions::needs_somebody(run, &state, run.is_live())
    };
    let waiting = project.runs().iter().filter(|run| is_waiting(run)).count();
    if waiting > 0 {
        let noun = if waiting == 1 { "run waits" } else { "runs wait" };
        text.push_str(&format!("{waiting} {noun} for you: callsheet ps{}\n", project.flags()));
    }
    let newest = project.runs().into_iter().find(|run| run.has_begun());
    if let Some(run) = &newest {
        let (state, _) = run.state(|_| {});
        let live = run.is_live();
        let word = report::run_word(&state, live);
        text.push_str(&format!("newest run:   {} is {word}\n", project.short(run)));
        if report::is_resumable(&state, live) {
            let command = project.resume_command(&project.short(run));
            text.push_str(&format!("resume it:    {command}\n"));
        }
    }
    text.push_str(
        "check:        callsheet check\n\
         run:          callsheet run [TASK]...\n\
         runs:         callsheet ps -a\n\
         every verb:   callsheet --help\n",
    );
    say(&text)
}
