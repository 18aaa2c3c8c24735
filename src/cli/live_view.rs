//! Shows a run while it works: its events as they become durable, and the status area or totals.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::deltas::Deltas;
use super::gates;
use super::pace::Pace;
use super::screen::Screen;
use super::tail::Printer;
use crate::client::{Update, Updates};
use crate::event::{Event, Record, SharedRecord};
use crate::exit::Exit;
use crate::id::AgentId;
use crate::journal::{JournalError, stamp};
use crate::report::evidence::{Evidence, EvidenceFold};
use crate::run::delta_feed::DeltaLine;
use crate::show::status::{Status, space};

/// The pause between two drawings of the status area: five a second look steady.
const REDRAW: Duration = Duration::from_millis(200);

/// The pause between two lines of totals where no status area is drawn, and between two about tasks that are still
/// running.
const TOTALS: Duration = Duration::from_secs(60);

/// How the view of a run ended.
#[derive(Debug)]
pub(super) struct Viewed {
    /// How the printing ended.
    pub(super) exit: Exit,
    /// The evidence of the whole run, if it was folded to the end of the run.
    pub(super) evidence: Option<Evidence>,
}

/// The view of a run that this process drives or that it follows.
pub(super) struct LiveView {
    printer: Printer,
    screen: Arc<Screen>,
    /// `None` if events are printed as JSON.
    status: Option<Status>,
    /// Prints the texts of models, if somebody wants to read them.
    deltas: Option<Deltas>,
    /// The evidence so far, if a summary follows and the view sees the run from its first record on.
    evidence: Option<EvidenceFold>,
    /// Where approvals are asked for, if that is here.
    gates: Option<gates::Records>,
    /// The last lines of commands, and who prints them, where no status area shows them.
    pace: Option<(Pace, Deltas)>,
    /// The spawns of one parent that are printed as one line.
    spawns: Vec<SharedRecord>,
    /// True if they have waited for a whole pause between two drawings.
    has_waited: bool,
}

impl LiveView {
    pub(super) fn new(printer: Printer, screen: Arc<Screen>, status: Option<Status>) -> Self {
        let (deltas, evidence, gates, pace, spawns) = (None, None, None, None, Vec::new());
        Self { printer, screen, status, deltas, evidence, gates, pace, spawns, has_waited: false }
    }

    /// Prints the texts of models too, if there is a printer for them.
    pub(super) fn with_deltas(self, deltas: Option<Deltas>) -> Self {
        Self { deltas, ..self }
    }

    /// Prints the last lines of commands now and then, if there is a printer for them.
    pub(super) fn with_last_lines(self, printer: Option<Deltas>) -> Self {
        Self { pace: printer.map(|printer| (Pace::default(), printer)), ..self }
    }

    /// Passes the approvals that tasks ask for on, if somebody asks for them.
    pub(super) fn with_gates(self, gates: Option<gates::Records>) -> Self {
        Self { gates, ..self }
    }

    /// Folds the evidence too, so that a summary need not read the records again. The view must see all of them.
    pub(super) fn with_evidence(self) -> Self {
        Self { evidence: Some(EvidenceFold::default()), ..self }
    }

    /// Prints events until the run ends or pauses: as JSON on stdout, or as lines for people on
    /// stderr. Uses a thread of its own, because a slow reader must not delay the run.
    pub(super) fn show(mut self, updates: Updates) -> oneshot::Receiver<Viewed> {
        let (ended, shown) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            if let Ok(runtime) = runtime {
                let is_whole = runtime.block_on(self.follow(updates));
                let evidence = self.evidence.filter(|_| is_whole).map(EvidenceFold::finish);
                // The receiver may be gone already.
                let _ = ended.send(Viewed { exit: self.printer.end(), evidence });
            }
        });
        shown
    }

    /// Folds the events so far, and prints the last `lines` of those that are shown.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    pub(super) fn catch_up(
        &mut self,
        updates: &mut Updates,
        lines: usize,
    ) -> Result<(), JournalError> {
        let mut last = VecDeque::new();
        while let Some(record) = updates.next_record_ready()? {
            if let Some(status) = &mut self.status {
                status.apply(&record);
            }
            self.printer.learn(&record);
            if self.printer.shows(&record) {
                last.push_back(record);
            }
            if last.len() > lines {
                last.pop_front();
            }
        }
        // What was passed before is no news.
        drop(self.status.as_mut().map(Status::take_passed));
        for record in &last {
            self.printer.print(record);
        }
        Ok(())
    }

    /// Shows events until the last one, or until nothing more can be printed. Returns true if it has seen the end of
    /// the run.
    pub(super) async fn follow(&mut self, mut updates: Updates) -> bool {
        let mut is_whole = false;
        let mut redraw = tokio::time::interval(REDRAW);
        let mut totals = tokio::time::interval_at(Instant::now() + TOTALS, TOTALS);
        loop {
            let goes_on = tokio::select! {
                next = updates.next() => match next {
                    Ok(Some(Update::Record(record))) => {
                        is_whole = matches!(record.event, Event::RunCompleted(_));
                        self.take(record)
                    }
                    Ok(Some(Update::Part(part))) => {
                        self.take_part(&part);
                        true
                    }
                    Ok(Some(Update::NoParts(reason))) => {
                        Deltas::none_come(&reason);
                        true
                    }
                    Ok(None) | Err(_) => false,
                },
                _ = redraw.tick() => {
                    self.print_last_lines();
                    self.print_old_spawns() && self.draw()
                }
                _ = totals.tick() => self.print_still_running() && self.print_totals(),
            };
            if !goes_on {
                return is_whole;
            }
        }
    }

    /// Shows what is not recorded.
    fn take_part(&mut self, part: &DeltaLine) {
        if let (Some(status), DeltaLine::Printed { agent, printed }) = (&mut self.status, part) {
            status.note_printed(agent, printed);
        }
        if let (Some((pace, _)), DeltaLine::Printed { agent, printed }) = (&mut self.pace, part) {
            pace.note(agent, printed, Instant::now());
        }
        if let Some(deltas) = &mut self.deltas {
            deltas.take(part, &self.printer.names, |_| true);
        }
    }

    /// Shows one event. Returns false if it was the last one, or if nothing more can be printed.
    fn take(&mut self, record: SharedRecord) -> bool {
        self.printer.learn(&record);
        if let Some(gates) = &self.gates {
            gates::send(gates, &record);
        }
        if let Some(status) = &mut self.status {
            status.apply(&record);
        }
        if let Some(evidence) = &mut self.evidence {
            evidence.apply(&record);
        }
        if let (Some((pace, _)), Some(agent)) = (&mut self.pace, &record.agent) {
            pace.apply(agent, &record.event);
        }
        let groups = self.printer.groups(&record);
        let is_same =
            groups && self.spawns.last().is_none_or(|last| parent(last) == parent(&record));
        if !is_same && !self.print_spawns() {
            return false;
        }
        if groups {
            self.has_waited &= !self.spawns.is_empty();
            self.spawns.push(record);
            return true;
        }
        let is_last = match &record.event {
            Event::RunCompleted(_) => true,
            Event::RunPaused(paused) => !paused.cause.ends_by_itself(),
            _ => false,
        };
        self.printer.print(&record) && self.print_passed(record.ts_ms) && !is_last
    }

    /// Prints the last lines of commands that run. While a question is open they are overtaken by newer ones: of what
    /// waits for its end, only the newest line of each command is worth reading.
    fn print_last_lines(&mut self) {
        if let Some((pace, printer)) = self.pace.as_mut().filter(|_| !self.screen.is_asking()) {
            for (agent, line) in pace.take(Instant::now()) {
                printer.print_command(&agent, &self.printer.names, &line);
            }
        }
    }

    /// Prints how far fan-outs are.
    fn print_passed(&mut self, now_ms: i64) -> bool {
        let passed = self.status.as_mut().map(Status::take_passed).unwrap_or_default();
        passed.iter().all(|milestone| self.printer.print_milestone(now_ms, milestone))
    }

    /// Prints which tasks have been running for long.
    fn print_still_running(&mut self) -> bool {
        let now = stamp::now_ms();
        let line = self.status.as_mut().and_then(|status| status.take_still_running(now));
        line.is_none_or(|milestone| self.printer.print_milestone(now, &milestone))
    }

    /// Prints the spawns that have waited long enough for more of the same turn.
    fn print_old_spawns(&mut self) -> bool {
        if std::mem::replace(&mut self.has_waited, true) {
            return self.print_spawns();
        }
        true
    }

    fn print_spawns(&mut self) -> bool {
        self.printer.print_spawns(&std::mem::take(&mut self.spawns))
    }

    fn draw(&mut self) -> bool {
        if let (Some(status), Some((width, height))) = (&mut self.status, self.screen.size()) {
            status.set_asking(self.screen.asking());
            // A line that fills the last column makes some terminals wrap.
            self.screen.show(&status.lines(stamp::now_ms(), width - 1, space(height)));
        }
        true
    }

    fn print_totals(&self) -> bool {
        if let (Some(status), None) = (&self.status, self.screen.width()) {
            let now = stamp::now_ms();
            let text = format!("{}; {}", status.tasks(now), status.totals(now));
            // A stderr that is closed is no error: the run goes on.
            let _ = self.screen.line(&text);
        }
        true
    }
}

fn parent(record: &Record) -> Option<&AgentId> {
    match &record.event {
        Event::AgentSpawned(spawned) => spawned.parent.as_ref(),
        _ => None,
    }
}
