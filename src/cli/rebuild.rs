//! `rebuild`: writes the transcripts and logs of a run again from its journal.

use super::locate::{Project, drivable};
use super::{args, complain, paint, refusal};
use crate::exit::Exit;
use crate::journal::JournalError;
use crate::journal::line::Position;
use crate::journal::projection::Projection;
use crate::show::log_line::log_text;

pub(super) fn run(project: &Project, verb: &args::Rebuild) -> Exit {
    let run = match project.run(Some(&verb.run)) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let here = match drivable(&run) {
        Ok(here) => here,
        Err(exit) => return exit,
    };
    // The lock keeps out a process that drives the run: it would write the same files.
    let rebuilt = paint::working("writing transcripts and logs", |progress| {
        let owned = here.own()?;
        // Transcripts that reach beyond the journal are all that tells of what was lost.
        let end = run.walk(Position::START, None, |_, _| Ok(()))?;
        owned.refuse_rolled_back(end)?;
        // The journal is read twice.
        progress.set_total(2 * run.size());
        Projection::rebuild(&run, &here.agent_files(), log_text, |bytes| progress.set_done(bytes))
    });
    match rebuilt {
        Ok(()) => {
            complain(&format!("made again: {}", here.agent_files().folder().display()));
            Exit::Done
        }
        Err(error) => {
            if let JournalError::Refused(_) = error {
                complain("note: no file was touched");
            }
            refusal::refused(&project.flags(), Some(&run), &error)
        }
    }
}
