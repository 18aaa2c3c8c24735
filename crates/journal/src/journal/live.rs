//! Gives the records that this process makes durable to those who follow them here, so that it does not read its own
//! file back.
//!
//! A follower that falls behind costs neither the run time nor the process memory: what a full queue does not take is
//! read from the file.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::event::SharedRecord;
use crate::journal::Observer;
use crate::journal::line::Position;

/// Bytes of the journal whose records wait for one follower: what a busy run writes between two looks of a follower
/// that is quick enough.
const MOST_BYTES: u64 = 1 << 20;

/// The followers of a journal that this process writes.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<Mutex<Vec<Weak<Mutex<Queue>>>>>);

/// The batches that wait for a follower.
#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    /// Bytes of these batches in the journal.
    bytes: u64,
    /// The end of the last batch that became durable since the follower listens.
    end: Option<u64>,
    /// True if no other batch will come.
    has_ended: bool,
}

#[derive(Clone, Debug)]
struct Batch {
    from: Position,
    to: Position,
    records: Vec<SharedRecord>,
}

impl Live {
    /// Returns the batches from now on, for a follower. It gets those that it does not take in time from the file.
    #[must_use]
    pub fn listen(&self) -> Listener {
        let queue = Arc::default();
        self.0.lock().push(Arc::downgrade(&queue));
        Listener(queue)
    }

    /// Returns the observer of the journal that fills the queues.
    #[must_use]
    pub fn observer(&self) -> LiveObserver {
        let (at, records) = (Position::START, Vec::new());
        LiveObserver { live: self.clone(), batch: Batch { from: at, to: at, records } }
    }

    fn for_each(&self, mut each: impl FnMut(&mut Queue)) {
        self.0.lock().retain(|queue| match queue.upgrade() {
            Some(queue) => {
                each(&mut queue.lock());
                true
            }
            // The follower is gone.
            None => false,
        });
    }
}

/// Fills the queues of followers.
#[derive(Debug)]
pub struct LiveObserver {
    live: Live,
    batch: Batch,
}

impl Observer for LiveObserver {
    fn batch(&mut self, from: Position, to: Position) {
        (self.batch.from, self.batch.to) = (from, to);
    }

    fn committed(&mut self, record: &SharedRecord) {
        self.batch.records.push(record.clone());
    }

    fn batch_end(&mut self) {
        let batch = &self.batch;
        let bytes = batch.to.offset.saturating_sub(batch.from.offset);
        self.live.for_each(|queue| {
            queue.end = Some(batch.to.offset);
            // One that is larger than all is taken if nothing else waits: it is in memory already.
            if queue.batches.is_empty() || queue.bytes + bytes <= MOST_BYTES {
                queue.bytes += bytes;
                queue.batches.push_back(batch.clone());
            }
        });
        self.batch.records.clear();
    }
}

impl Drop for LiveObserver {
    fn drop(&mut self) {
        self.live.for_each(|queue| queue.has_ended = true);
    }
}

/// The batches of one follower.
#[derive(Debug)]
pub struct Listener(Arc<Mutex<Queue>>);

/// What a follower does next.
#[derive(Debug, PartialEq)]
pub(in crate::journal) enum Next {
    /// It takes this batch, after which it stands at the position.
    Take(Vec<SharedRecord>, Position),
    /// It reads the file: something is there that is not in the queue, or nobody knows.
    Read,
    /// It waits: it has everything.
    Wait,
}

impl Listener {
    /// Returns what a follower does that has everything before this position.
    pub(in crate::journal) fn next(&self, at: Position) -> Next {
        let mut queue = self.0.lock();
        while let Some(batch) = queue.batches.pop_front_if(|batch| batch.from.offset <= at.offset) {
            queue.bytes -= batch.to.offset.saturating_sub(batch.from.offset);
            // Those before it were read from the file meanwhile.
            let is_next = (batch.from.offset, batch.from.seq) == (at.offset, at.seq);
            if is_next && batch.from.crc == at.crc {
                return Next::Take(batch.records, batch.to);
            }
        }
        match queue.end {
            Some(end) if end == at.offset && !queue.has_ended => Next::Wait,
            _ => Next::Read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::reader::Reader;
    use crate::journal::samples::turn;
    use crate::journal::testing::NewRun;

    /// Takes what is there in both ways until the queue has nothing more.
    fn take_all(
        listener: &Listener,
        (dir, reader): (&NewRun, &mut Reader),
        seen: &mut Vec<SharedRecord>,
    ) -> [usize; 2] {
        let mut ways = [0, 0];
        loop {
            match listener.next(reader.position()) {
                Next::Take(records, to) => {
                    *reader = Reader::open_at(&dir.journal(), to).unwrap();
                    seen.extend(records);
                    ways[0] += 1;
                }
                Next::Read => {
                    let Some(records) = reader.next_batch().unwrap() else { return ways };
                    seen.extend(records);
                    ways[1] += 1;
                }
                Next::Wait => return ways,
            }
        }
    }

    #[tokio::test]
    async fn a_follower_gets_each_record_once_however_slow_it_is() {
        let live = Live::default();
        let (dir, _owned, journal) = NewRun::written(vec![Box::new(live.observer())]);
        let agent = "a".repeat(60_000);
        let mut made = journal.append(vec![turn("early", 1)]).await.unwrap();
        let mut reader = Reader::open(&dir.journal()).unwrap();
        let (listener, mut seen) = (live.listen(), Vec::new());
        let mut ways = [0, 0];
        for round in 0..6 {
            // In the odd rounds more than the queue holds.
            for number in 0..(if round % 2 == 0 { 3 } else { 40 }) {
                let drafts = vec![turn(&agent, number), turn("b", number)];
                made.extend(journal.append(drafts).await.unwrap());
            }
            // Its observers have heard of what is durable once the next batch is.
            made.extend(journal.append(vec![turn("end", round)]).await.unwrap());
            let taken = take_all(&listener, (&dir, &mut reader), &mut seen);
            ways = [ways[0] + taken[0], ways[1] + taken[1]];
        }
        assert!(ways[0] > 20 && ways[1] > 20, "{ways:?}");
        journal.close().await;
        take_all(&listener, (&dir, &mut reader), &mut seen);
        assert_eq!(seen, made);
        assert_eq!(listener.next(reader.position()), Next::Read, "the file tells the end");
        drop(listener);
        live.for_each(|_| panic!("nobody listens any more"));
    }

    #[test]
    fn another_file_than_the_one_that_is_written_is_read() {
        let live = Live::default();
        let (listener, mut observer) = (live.listen(), live.observer());
        assert_eq!(listener.next(Position::START), Next::Read, "nothing is known yet");
        let to = Position { seq: 2, crc: 7, offset: 100, epoch: 1 };
        observer.batch(Position { crc: 9, ..Position::START }, to);
        observer.batch_end();
        assert_eq!(listener.next(Position::START), Next::Read);
        assert_eq!(listener.next(to), Next::Wait);
        drop(observer);
        assert_eq!(listener.next(to), Next::Read);
    }
}
