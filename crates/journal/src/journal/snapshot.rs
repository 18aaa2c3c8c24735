//! Snapshots: the folded state of a journal, saved now and then, so that a reader of a run's state
//! needs to read only the records after it.
//!
//! A snapshot only saves time. It is used only if its hash is right, the same version of the
//! program wrote it, and the journal has the checksum that it names at its offset. Without a
//! snapshot, a resume reads the whole journal and gets the same state. A thread of its own folds
//! the records and writes the snapshots; the journal's writer only passes its records to that
//! thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::crash;
use crate::event::SharedRecord;
use crate::journal::Observer;
use crate::journal::driving::SavedFolds;
use crate::journal::line::Position;
use crate::journal::projection::{Files, Projection};
use crate::journal::track::Tracker;

/// The least growth of a journal between two snapshots: 8 MiB, which are read in a moment.
const LEAST_GROWTH: u64 = 8 << 20;

/// Bytes by which the journal grows for each byte of a snapshot: snapshots add at most an eighth to
/// the bytes written, also in a run with many agents.
const GROWTH: u64 = 8;

/// Batches that may wait for the thread: more than arrive while it writes a snapshot.
const QUEUE: usize = 1_024;

/// The folded state of a journal at some place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of the program that wrote it: another version may fold records differently.
    program: String,
    /// The end of the last batch that it includes.
    pub at: Position,
    /// The folded state.
    pub tracker: Tracker,
    /// The state of the agents' files.
    pub files: Files,
}

/// A snapshot with its hash, as stored in its file.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    /// blake3 hash of the text of `snapshot`, in hexadecimal.
    hash: String,
    #[serde(borrow)]
    snapshot: &'a RawValue,
}

/// Returns the newest snapshot of a run that can be used.
#[must_use]
pub fn newest(folds: &dyn SavedFolds) -> Option<Snapshot> {
    let mut usable = folds.newest_first().filter_map(|text| unseal(&text));
    let found = usable.find(|snapshot| folds.fits(&snapshot.at));
    if found.is_none() {
        tracing::debug!(?folds, "no snapshot: the journal is read whole");
    }
    found
}

fn unseal(text: &str) -> Option<Snapshot> {
    let sealed: Sealed<'_> = serde_json::from_str(text).ok()?;
    let body = sealed.snapshot.get();
    if blake3::hash(body.as_bytes()).to_hex().as_str() != sealed.hash {
        return None;
    }
    let snapshot: Snapshot = serde_json::from_str(body).ok()?;
    (snapshot.program == env!("CARGO_PKG_VERSION")).then_some(snapshot)
}

fn seal(snapshot: &Snapshot) -> io::Result<String> {
    let body = serde_json::value::to_raw_value(snapshot)?;
    let hash = blake3::hash(body.get().as_bytes()).to_hex().to_string();
    Ok(serde_json::to_string(&Sealed { hash, snapshot: &body })?)
}

/// Writes a snapshot. Returns its size in bytes.
fn write(folds: &dyn SavedFolds, snapshot: &Snapshot) -> io::Result<u64> {
    let text = seal(snapshot)?;
    folds.keep(snapshot.at.seq, &text)?;
    Ok(text.len() as u64)
}

enum News {
    Batch { at: Position, records: Vec<SharedRecord> },
    Keep { at: Position, files: Files },
}

/// An observer that makes snapshots of the durable records. It holds the projection of the agents'
/// files, because a snapshot needs the lengths of these files.
#[derive(Debug)]
pub struct Snapshots {
    projection: Projection,
    batch: Vec<SharedRecord>,
    /// The beginning and the end of the batch that is being observed.
    span: (Position, Position),
    /// The offset in the journal at which the next snapshot is due.
    due: Arc<AtomicU64>,
    news: Option<SyncSender<News>>,
    thread: Option<JoinHandle<()>>,
}

impl Snapshots {
    /// Starts from the folded journal so far; the agents' files must be up to date.
    #[must_use]
    pub fn new(
        folds: Arc<dyn SavedFolds>,
        at: Position,
        tracker: Tracker,
        projection: Projection,
    ) -> Self {
        let growth = crash::snapshot_growth().unwrap_or(LEAST_GROWTH);
        let growth = super::stand_in::scaled(growth);
        Self::every(growth, folds, at, tracker, projection)
    }

    /// Does the same as [`new`](Self::new), with a snapshot whenever the journal has grown by this
    /// many bytes, but at most one byte of snapshots for eight bytes of journal.
    #[must_use]
    pub fn every(
        growth: u64,
        folds: Arc<dyn SavedFolds>,
        at: Position,
        tracker: Tracker,
        projection: Projection,
    ) -> Self {
        let due = Arc::new(AtomicU64::new(at.offset + growth));
        let (news, received) = sync_channel(QUEUE);
        let next = due.clone();
        let thread = std::thread::Builder::new().name("snapshots".to_owned());
        let thread = thread.spawn(move || keep(&*folds, tracker, growth, &received, &next));
        if let Err(error) = &thread {
            tracing::warn!(%error, "no snapshots: a resume of this run will take longer");
        }
        let (batch, thread) = (Vec::new(), thread.ok());
        Self { projection, batch, span: (at, at), due, news: Some(news), thread }
    }

    /// Sends news to the thread. Once the thread is gone, nothing more is sent.
    fn tell(&mut self, news: News) {
        if self.news.as_ref().is_some_and(|thread| thread.send(news).is_err()) {
            self.news = None;
        }
    }
}

impl Observer for Snapshots {
    fn batch(&mut self, from: Position, to: Position) {
        self.span = (from, to);
    }

    fn committed(&mut self, record: &SharedRecord) {
        self.projection.committed(record);
        self.batch.push(record.clone());
    }

    fn batch_end(&mut self) {
        self.projection.batch_end();
        let (from, to) = self.span;
        let records = std::mem::take(&mut self.batch);
        if self.news.is_none() {
            return;
        }
        self.tell(News::Batch { at: from, records });
        if to.offset >= self.due.load(Ordering::Relaxed) {
            // No other snapshot is due until this one is written.
            self.due.store(u64::MAX, Ordering::Relaxed);
            // The snapshot records the lengths of the files, so their lines must be written first.
            self.projection.catch_up();
            let files = self.projection.files();
            self.tell(News::Keep { at: to, files });
        }
    }

    fn catch_up(&mut self) {
        self.projection.catch_up();
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.news = None;
        // A snapshot that is being written speeds up the next resume, so wait for it.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Folds the records that it receives, and writes a snapshot for each [`News::Keep`].
fn keep(
    folds: &dyn SavedFolds,
    mut tracker: Tracker,
    growth: u64,
    news: &Receiver<News>,
    due: &AtomicU64,
) {
    let mut ended = BTreeMap::new();
    while let Ok(news) = news.recv() {
        match news {
            News::Batch { at, records } => {
                if let Err(error) = tracker.apply(at, &records) {
                    // Such a record also ends the run, which reports it.
                    tracing::debug!(%error, "no more snapshots");
                    return;
                }
            }
            News::Keep { at, mut files } => {
                ended.append(&mut files.ended);
                files.ended = std::mem::take(&mut ended);
                let program = env!("CARGO_PKG_VERSION").to_owned();
                let snapshot = Snapshot { program, at, tracker, files };
                let written = write(folds, &snapshot);
                if let Err(error) = &written {
                    tracing::debug!(%error, "a snapshot could not be written");
                }
                let size = written.unwrap_or(0);
                due.store(at.offset + growth.max(GROWTH * size), Ordering::Relaxed);
                (tracker, ended) = (snapshot.tracker, snapshot.files.ended);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::path::PathBuf;

    use super::*;
    use crate::event::{Draft, PlannedTask, RunCreated};
    use crate::id::{AgentId, Name, RunId};
    use crate::journal::JournalHandle;
    use crate::journal::cut::Cut;
    use crate::journal::driving::{Drivable, OwnedRun};
    use crate::journal::reader::agent_records;
    use crate::journal::samples::log_text;
    use crate::journal::samples::turn;
    use crate::journal::testing::NewRun;
    use crate::message::Json;
    use crate::turn::{AgentEnded, AgentSpawned, Outcome, Program};

    /// Small, so that a few batches make a snapshot.
    const GROWTH: u64 = 2_000;

    fn created() -> Draft {
        let task = |name: &str| PlannedTask::new(Name::new(name).unwrap());
        Draft::run(RunCreated {
            run: RunId::from(uuid::Uuid::now_v7()),
            workflow: "test".to_owned(),
            program: "test".to_owned(),
            file: PathBuf::new(),
            config: Default::default(),
            files: BTreeMap::new(),
            config_hash: String::new(),
            profile: None,
            plan: None,
            proposed: Vec::new(),
            inputs: Json::encode(&()),
            settings: BTreeMap::new(),
            keep_going: false,
            strict: false,
            earlier: Default::default(),
            forked: None,
            overrides: Default::default(),
            tasks: [task("work")].into(),
        })
    }

    fn spawned(agent: &str) -> Draft {
        let program = Program::Command(Default::default());
        let mut draft = turn(agent, 1);
        draft.event = AgentSpawned::main(program).into();
        draft
    }

    fn ended(agent: &str) -> Draft {
        let outcome = Outcome::Cancelled { reason: "enough".to_owned() };
        let mut draft = turn(agent, 1);
        draft.event = AgentEnded {
            outcome,
            turns: 1,
            usage: Default::default(),
            shortfalls: Default::default(),
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        }
        .into();
        draft
    }

    fn write_on(
        (dir, owned): (&NewRun, &OwnedRun),
        at: Position,
        tracker: Tracker,
        files: Projection,
    ) -> JournalHandle {
        let snapshots = Snapshots::every(GROWTH, dir.saved_folds(), at, tracker, files);
        owned.start_writer(at, vec![Box::new(snapshots)]).unwrap()
    }

    /// Makes a run with ended and open agents, in a journal of which several snapshots were made.
    async fn run() -> (NewRun, OwnedRun) {
        let dir = NewRun::unmade();
        let owned = Drivable::create(&*dir).unwrap();
        let files = Projection::new(&*dir, dir.agent_files(), log_text);
        let journal = write_on((&dir, &owned), Position::START, Tracker::default(), files);
        journal.append(vec![created()]).await.unwrap();
        work(&journal, 0..30).await;
        journal.close().await;
        (dir, owned)
    }

    async fn work(journal: &JournalHandle, agents: std::ops::Range<u32>) {
        for agent in agents {
            let name = format!("work~{agent}");
            journal.append(vec![spawned(&name)]).await.unwrap();
            for number in 0..6 {
                journal.append(vec![turn(&name, number)]).await.unwrap();
            }
            if agent % 3 > 0 {
                journal.append(vec![ended(&name)]).await.unwrap();
            }
        }
    }

    fn fold(owned: &OwnedRun, from: Position, mut tracker: Tracker) -> (Position, Tracker) {
        let each = |at: Position, records: &[SharedRecord]| Ok(tracker.apply(at, records)?);
        let after = owned.cut_back(from, Cut::Torn, &mut { each }).unwrap();
        (after.at, tracker)
    }

    fn contents(dir: &NewRun) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(dir.agents()).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    /// Lists the files of the snapshots, the oldest first.
    fn paths(dir: &NewRun) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir.snapshots()).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = entries.collect();
        let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
        paths.sort_by_key(number);
        paths
    }

    #[tokio::test]
    async fn a_snapshot_and_what_follows_give_what_the_whole_journal_gives() {
        let (dir, owned) = run().await;
        let snapshot = newest(&*dir.saved_folds()).expect("a snapshot");
        let journal_len = fs::metadata(dir.journal()).unwrap().len();
        assert!(snapshot.at.offset < journal_len);
        assert_eq!(paths(&dir).len(), 2, "as many as are kept");
        assert_eq!(unseal(&seal(&snapshot).unwrap()).as_ref(), Some(&snapshot));

        let whole = fold(&owned, Position::START, Tracker::default());
        let short = fold(&owned, snapshot.at, snapshot.tracker.clone());
        assert_eq!(short, whole);
        let unfinished = whole.1.unfinished(&(&*dir).into());
        assert_eq!(unfinished.len(), 10);
        for (id, data) in unfinished {
            let mut records = Vec::new();
            let give = |record: &SharedRecord| {
                records.push(record.clone());
                Ok::<_, crate::journal::JournalError>(())
            };
            data.records.for_each(give).unwrap();
            assert_eq!(records, agent_records(&dir.journal(), &id).unwrap());
            assert!(!data.waits && data.first <= records[0].seq);
        }
    }

    #[tokio::test]
    async fn a_run_that_goes_on_from_a_snapshot_keeps_its_files_and_makes_more() {
        let (dir, owned) = run().await;
        let written = contents(&dir);
        let open = AgentId::from_text("work~0");
        // The files as a crash leaves them: one is longer than recorded, one is missing, one has no
        // agent.
        fs::write(dir.log(&open), [&written[&dir.log(&open)][..], b"torn"].concat()).unwrap();
        let last = AgentId::from_text("work~29");
        fs::remove_file(dir.log(&last)).unwrap();
        fs::write(dir.agents().join("nobody.log"), "x").unwrap();
        let snapshot = newest(&*dir.saved_folds()).unwrap();
        let resume_from =
            |base| Projection::resume_from(&*dir, dir.agent_files(), log_text, base).unwrap();
        let projection = resume_from((snapshot.at, snapshot.files.clone()));
        assert_eq!(contents(&dir), written);

        let (at, tracker) = fold(&owned, snapshot.at, snapshot.tracker);
        let journal = write_on((&dir, &owned), at, tracker, projection);
        work(&journal, 30..50).await;
        journal.append(vec![turn("work~0", 9), ended("work~0")]).await.unwrap();
        journal.close().await;
        let later = newest(&*dir.saved_folds()).unwrap();
        assert!(later.at.seq > snapshot.at.seq && later.at.epoch == 2);
        let whole = fold(&owned, Position::START, Tracker::default());
        assert_eq!(fold(&owned, later.at, later.tracker), whole);
        let written = contents(&dir);
        // A file that differs from its recorded length is made again.
        let old = AgentId::from_text("work~1");
        fs::write(dir.log(&old), "shorter").unwrap();
        drop(resume_from((later.at, later.files)));
        assert_eq!(contents(&dir), written);
    }

    #[tokio::test]
    async fn what_does_not_count_is_passed_over() {
        let (dir, _owned) = run().await;
        let paths = paths(&dir);
        let [older, newer] = &paths[..] else { panic!("{paths:?}") };
        let newest = |dir: &NewRun| newest(&*dir.saved_folds());
        let (first, second) = (fs::read_to_string(older).unwrap(), newest(&dir).unwrap());
        let bytes = fs::read(newer).unwrap();
        for spoilt in [&bytes[..bytes.len() / 2], b"", b"{}"] {
            fs::write(newer, spoilt).unwrap();
            assert_eq!(newest(&dir), unseal(&first), "the one before counts");
        }
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 1;
        fs::write(newer, &flipped).unwrap();
        assert_eq!(newest(&dir), unseal(&first));
        // Of another version, or of a journal that has something else there, or ends before.
        let strange = Snapshot { program: "other".to_owned(), ..second.clone() };
        fs::write(newer, seal(&strange).unwrap()).unwrap();
        assert_eq!(newest(&dir), unseal(&first));
        let at = Position { crc: second.at.crc ^ 1, ..second.at };
        fs::write(newer, seal(&Snapshot { at, ..second.clone() }).unwrap()).unwrap();
        assert_eq!(newest(&dir), unseal(&first));
        fs::write(newer, &bytes).unwrap();
        let journal = OpenOptions::new().write(true).open(dir.journal()).unwrap();
        journal.set_len(second.at.offset - 1).unwrap();
        assert_eq!(newest(&dir), unseal(&first));
        dir.saved_folds().forget();
        assert_eq!(newest(&dir), None);
    }
}
