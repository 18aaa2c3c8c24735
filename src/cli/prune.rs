//! `prune`: removes old runs that have ended, and keeps what they cost.

use super::locate::Project;
use super::short_id::ShortIds;
use super::{args, complain, refusal, say, say_json};
use crate::exit::Exit;
use crate::journal::JournalError;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::printable;
use crate::report::{self, RemovedRun};
use crate::run::prune::{self, Found, OldRun, Removal, Stays};
use crate::spec::keeping::Keeping;
use crate::spending::Spending;

pub(super) fn run(project: &Project, verb: &args::Prune) -> Exit {
    let rule = Keeping { runs: verb.keep, time: verb.older_than };
    let runs = match project.listed() {
        Ok(runs) => runs,
        Err(exit) => return exit,
    };
    let ids = ShortIds::to_type(runs.iter().map(|run| run.name()));
    let found = match project.old_runs(rule) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let (gone, worst) = match verb.dry_run {
        true => (found.old.iter().map(|old| &old.bill).collect(), Exit::Done),
        false => removed(project, &found.old),
    };
    note_the_rest(&found, &ids);
    let said = match verb.json {
        true => say_json(
            &gone.iter().map(|bill| format!("{}\n", bill.json(!verb.dry_run))).collect::<String>(),
        ),
        false => say(&text(project, &gone, &ids, verb.dry_run)),
    };
    if said == Exit::Done { worst } else { said }
}

/// Removes runs, the oldest first, and returns those that are gone.
fn removed<'a>(project: &Project, old: &'a [OldRun]) -> (Vec<&'a RemovedRun>, Exit) {
    let (mut gone, mut worst) = (Vec::new(), Exit::Done);
    if let Some(error) = project.sweep() {
        complain(&format!("error: what was left of removed runs: {error}"));
        worst = Exit::Disk;
    }
    for old in old.iter().rev() {
        match prune::remove(old) {
            Ok(Removal::Removed) => gone.push(&old.bill),
            Ok(Removal::Gone) => {}
            Ok(Removal::WentOn) => {
                complain(&format!("note: run {} is kept: it went on meanwhile", old.bill.run));
            }
            Err(JournalError::Locked { .. }) => {
                complain(&format!("note: run {} is kept: another process has it", old.bill.run));
            }
            Err(error) => {
                let run = project.run_with(old.bill.run);
                worst = refusal::refused(&project.flags(), Some(&run), &error);
            }
        }
    }
    gone.reverse();
    (gone, worst)
}

/// Says which runs stay although they are old enough.
fn note_the_rest(found: &Found, ids: &ShortIds) {
    let is_open = |(_, stays): &&(RecordedRun, Stays)| matches!(stays, Stays::NotEnded);
    let open: Vec<_> =
        found.stay.iter().filter(is_open).map(|(run, _)| ids.of(&run.name())).collect();
    if !open.is_empty() {
        let (noun, verb) = if open.len() == 1 { ("run", "stays") } else { ("runs", "stay") };
        complain(&format!(
            "note: {} {noun} {verb}, not ended or in use: {}",
            open.len(),
            open.join(", ")
        ));
    }
    for (run, stays) in &found.stay {
        if let Stays::Unread(error) = stays {
            complain(&format!("note: run {} stays, it cannot be read: {error}", run.name()));
        }
    }
}

/// Formats a line for each run and the sum.
fn text(project: &Project, gone: &[&RemovedRun], ids: &ShortIds, dry_run: bool) -> String {
    let money = |spending: &Spending| match spending.cost_usd() {
        Some(cost) => format!("${cost:.4}"),
        None => "no price".to_owned(),
    };
    let mut text = String::new();
    for bill in gone {
        let ended = stamp::parse(&bill.ended).unwrap_or_default();
        text.push_str(&format!(
            "{}  {:<6}  {:<9}  {:>10}  {}\n",
            ids.of(&bill.run.to_string()),
            project.times.short(ended),
            report::status_word(bill.state),
            money(&bill.cost().own),
            printable::line(&bill.name),
        ));
    }
    let total: Spending = gone.iter().map(|bill| bill.cost().own).sum();
    let noun = if gone.len() == 1 { "run" } else { "runs" };
    let verb = if dry_run { "would remove" } else { "removed" };
    text.push_str(&match gone.len() {
        0 => format!("{verb} no run\n"),
        count => format!("{verb} {count} {noun} that cost {}\n", money(&total)),
    });
    text
}
