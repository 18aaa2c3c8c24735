//! Opens a run, new or existing, and prepares what the actors of the run start with.
//!
//! Owns the step from a journal to an `Opening`. After this step, a new run and a resumed run are
//! treated alike.

use serde_json::{Map, Value};

use super::{StartError, answers, values};
use crate::actor::supervisor::UnfinishedAgents;
use crate::event::{Accepted, Draft, RunCompleted, RunCreated, RunOpened};
use crate::id::{Name, RunId};
use crate::journal::cut::{Cut, CutBack, CutError, Kept, Loss};
use crate::journal::driving::{Drivable, OwnedRun};
use crate::journal::line::Position;
use crate::journal::projection::{Files, Projection};
use crate::journal::snapshot::{self, Snapshot};
use crate::journal::source::{self, RecordedRun, drivable};
use crate::journal::track::Tracker;
use crate::journal::{JournalError, JournalHandle};
pub(super) use crate::run_machine::reopening::Reopening;
use crate::run_state::{RetryError, RunState};
use crate::show::log_line::log_text;
use crate::spec::TaskSpec;
use crate::trust::Store;
use crate::turn::question::PersonsAnswer;
use crate::turn_machine::lost::LostCalls;

/// A run that this process has opened and not started: it holds the lock, and the journal ends with
/// a whole batch.
///
/// ```no_run
/// # mod callsheet {
/// #     pub use callsheet_engine::run::{Launch, StoppedRun};
/// #     pub use callsheet_journal::journal::{cut::Cut, local::run_at};
/// # }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use callsheet::{Cut, Launch, StoppedRun, run_at};
///
/// let stopped = StoppedRun::open(run_at(".transcripts/RUN"), Cut::Torn)?;
/// let run = Launch::file("agents.toml").with_process_environment().resume(stopped).await?;
/// println!("{:?}", run.wait().await);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StoppedRun {
    recorded: RecordedRun,
    owned: OwnedRun,
    at: Position,
    tracker: Tracker,
    /// Position of the snapshot from which the journal was folded, and the agents' files there.
    /// `None`: it was folded from its first record.
    base: Option<(Position, Files)>,
    kept: Option<Kept>,
    loss: Option<Loss>,
    reopening: Reopening,
}

impl StoppedRun {
    /// Takes the lock of a run and folds its journal. Blocks while it reads.
    ///
    /// # Errors
    /// Returns an error if another process has the run, or if the journal cannot be used.
    pub fn open(run: impl Into<RecordedRun>, cut: Cut) -> Result<Self, CutError> {
        Self::open_watched(run, cut, |_| {})
    }

    /// Does the same; `progress` receives the offset in the journal at which it reads.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`StoppedRun::open`].
    pub fn open_watched(
        run: impl Into<RecordedRun>,
        cut: Cut,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, CutError> {
        let run = run.into();
        let here = drivable(&*run)?;
        let owned = here.own()?;
        let base = match cut {
            Cut::Torn => snapshot::newest(&*here.saved_folds()),
            // The place of the cut may lie before the snapshot.
            Cut::From(_) => None,
        };
        if let Some(Snapshot { at: from, tracker, files, .. }) = base
            && let Ok(folded) = Self::fold(&owned, from, tracker, cut, &mut progress)
        {
            return Self::new(run, owned, folded, Some((from, files)));
        }
        // If a fold from a snapshot failed, the snapshot or the journal may be at fault: only a fold of the whole
        // journal tells which.
        let folded = Self::fold(&owned, Position::START, Tracker::default(), cut, progress)?;
        if let Cut::From(_) = cut {
            // Snapshots may hold records that were cut.
            here.saved_folds().forget();
        }
        Self::new(run, owned, folded, None)
    }

    fn new(
        recorded: RecordedRun,
        owned: OwnedRun,
        (tracker, after): (Tracker, CutBack),
        base: Option<(Position, Files)>,
    ) -> Result<Self, CutError> {
        let created = source::created(tracker.state())?;
        owned.refuse_copy(created.run)?;
        let CutBack { at, kept, loss } = after;
        let reopening = Reopening::default();
        Ok(Self { recorded, owned, at, tracker, base, kept, loss, reopening })
    }

    fn fold(
        owned: &OwnedRun,
        from: Position,
        mut tracker: Tracker,
        cut: Cut,
        mut progress: impl FnMut(u64),
    ) -> Result<(Tracker, CutBack), CutError> {
        let after = owned.cut_back(from, cut, &mut |at, records| {
            progress(at.offset);
            Ok(tracker.apply(at, records)?)
        })?;
        Ok((tracker, after))
    }

    /// Returns the run as its records tell of it.
    #[must_use]
    pub fn recorded(&self) -> &RecordedRun {
        &self.recorded
    }

    /// Returns what drives the run from here.
    pub(super) fn here(&self) -> Result<&dyn Drivable, JournalError> {
        drivable(&*self.recorded)
    }

    /// Makes the place of stored results again if it is gone and nothing is missing. Blocks.
    pub(super) fn make_results(&self) -> Result<(), JournalError> {
        self.owned.make_results()
    }

    /// Returns the state of the run so far.
    #[must_use]
    pub fn state(&self) -> &RunState {
        self.tracker.state()
    }

    /// Returns the agents that have not ended.
    pub(super) fn unfinished(&self) -> UnfinishedAgents {
        self.tracker.unfinished(&self.recorded)
    }

    /// Returns how the run was created.
    ///
    /// # Panics
    /// Never: a journal without `run.created` is not opened.
    #[must_use]
    pub fn created(&self) -> &RunCreated {
        self.state().created().expect("what is taken up was created")
    }

    /// Returns the result of the run, if it has ended.
    #[must_use]
    pub fn completed(&self) -> Option<&RunCompleted> {
        self.state().completed()
    }

    /// Returns the part that was cut from the journal's end and kept in a file, if there is one.
    #[must_use]
    pub fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Returns what was lost with the cut, if the user asked for a cut.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// Completes the agents' files of a run that has ended: its last process may have died between
    /// its last record and their last lines. Blocks.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    pub fn complete_files(&self) -> Result<(), JournalError> {
        let files = self.here()?.agent_files();
        Projection::resume(self.recorded.clone(), files, log_text).map(drop)
    }

    /// Returns the outputs of ended tasks that later tasks read, and stores those that they read as files. With another configuration there
    /// are none: each task is decided again. Blocks.
    pub(super) fn values(
        &self,
        tasks: &[TaskSpec],
        grows: bool,
    ) -> Result<Map<String, Value>, StartError> {
        match &self.reopening {
            Reopening::Accepting(_) => Ok(Map::new()),
            reopening => {
                let state = reopening.state_after(self.state())?;
                values::store_named(&self.here()?.store(), &state, tasks)?;
                values::of_ended(&*self.recorded, &state, tasks, grows)
            }
        }
    }

    /// Makes the run resume with another configuration.
    #[must_use]
    pub(super) fn accepting(self, accepted: Accepted) -> Self {
        Self { reopening: Reopening::Accepting(Box::new(accepted)), ..self }
    }

    /// Makes tasks begin again when the run resumes: those in `named`, or all that failed or were
    /// cancelled if it is empty, and the tasks that were skipped because of them. The conversation of
    /// an agent that was cut short, such as by a failure of the provider, continues; the other tasks
    /// start anew. What follows from these tasks is decided again: it keeps its result if it would be
    /// made from the same content. The other tasks stay as they are.
    ///
    /// # Errors
    /// Returns an error if a named task does not exist or has not ended.
    pub fn retry(self, named: &[String]) -> Result<Self, RetryError> {
        let retry = self.state().retry(named)?;
        Ok(Self { reopening: Reopening::Retrying(retry), ..self })
    }

    /// Returns the tasks that begin again because of [`StoppedRun::retry`].
    #[must_use]
    pub fn retried(&self) -> &[Name] {
        match &self.reopening {
            Reopening::Retrying(retry) => &retry.tasks,
            Reopening::AsRecorded | Reopening::Accepting(_) => &[],
        }
    }

    /// Returns the tasks of the run.
    pub(super) fn tasks(&self) -> Vec<String> {
        let tasks = match &self.reopening {
            Reopening::Accepting(accepted) => &accepted.tasks,
            Reopening::AsRecorded | Reopening::Retrying(_) => &self.created().tasks,
        };
        tasks.iter().map(|task| task.name.to_string()).collect()
    }

    /// Brings the agents' files up to date, and prepares what the actors start with. Blocks.
    pub(super) fn into_opening(self) -> Result<Opening, JournalError> {
        let (id, forked) = (self.created().run, self.created().forked);
        let Self { recorded, owned, at, tracker, base, kept: _, loss: _, reopening } = self;
        if let Some((from, _)) = &base {
            look_before(&recorded, *from);
        }
        let (run, files) = (recorded.clone(), drivable(&*recorded)?.agent_files());
        let projection = match base {
            Some(base) => Projection::resume_from(run, files, log_text, base)?,
            None => Projection::resume(run, files, log_text)?,
        };
        let (values, drafts) = (Map::new(), reopening.drafts(tracker.state(), at.epoch));
        let answers = answers::take_up(&*recorded, tracker.state(), &Store::of_user());
        let mut lost = owned.lost_calls(id)?;
        if let Some(origin) = forked {
            lost.share_until(origin.seq);
        }
        Ok(Opening { id, recorded, owned, at, tracker, projection, values, answers, drafts, lost })
    }
}

/// Looks in the background for damage before the snapshot from which a run resumes, and warns of it: the
/// run does not need those records, but whoever reads the journal does.
fn look_before(run: &RecordedRun, snapshot: Position) {
    let run = run.clone();
    let look = move || {
        let read = run.walk(Position::START, Some(snapshot), |_, _| Ok(()));
        if let Err(error) = read {
            tracing::warn!(
                %error,
                "the journal is damaged before the snapshot: the run goes on, but `tail`, `rebuild` and \
                 `fork` stop there"
            );
        }
    };
    // Without a thread nobody looks, and nothing else suffers.
    let _ = std::thread::Builder::new().name("journal-check".to_owned()).spawn(look);
}

/// What the actors of a run start with.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) id: RunId,
    pub(super) recorded: RecordedRun,
    pub(super) owned: OwnedRun,
    /// Position at which the journal continues.
    pub(super) at: Position,
    /// The state of the run so far.
    pub(super) tracker: Tracker,
    /// The agents' files, up to date.
    pub(super) projection: Projection,
    /// The outputs that later tasks read, as far as they are known.
    pub(super) values: Map<String, Value>,
    /// The answers of people that were left for this process.
    pub(super) answers: Vec<PersonsAnswer>,
    /// The events that are recorded first.
    pub(super) drafts: Vec<Draft>,
    /// The calls of which the journal lost the records.
    pub(super) lost: LostCalls,
}

impl Opening {
    /// Makes a new run. Blocks.
    pub(super) fn create(recorded: RecordedRun, created: RunCreated) -> Result<Self, JournalError> {
        let id = created.run;
        let here = drivable(&*recorded)?;
        let (owned, files) = (here.create()?, here.agent_files());
        let opened = RunOpened::by_this_process(Position::START.epoch);
        Ok(Self {
            id,
            projection: Projection::new(recorded.clone(), files, log_text),
            recorded,
            owned,
            at: Position::START,
            tracker: Tracker::default(),
            values: Map::new(),
            answers: Vec::new(),
            drafts: vec![Draft::run(created), Draft::run(opened)],
            lost: LostCalls::default(),
        })
    }
}

/// Records the first events of an opening as the batch that begins at `at`, and applies them to the
/// tracker.
pub(super) async fn record(
    journal: &JournalHandle,
    drafts: Vec<Draft>,
    at: Position,
    mut tracker: Tracker,
) -> Result<Tracker, StartError> {
    let records = journal.append_at_once(drafts).await?;
    tracker.apply(at, &records)?;
    Ok(tracker)
}
