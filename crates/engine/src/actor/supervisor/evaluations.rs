//! Evaluates templates of tasks on a few threads beside the supervisor's mailbox, each within a time.
//!
//! A template is bounded by its fuel and by the bytes that it makes; within both it may still take minutes. So
//! each evaluation is told to stop when its time is over. One that does not hear that, because it is within
//! one long step, is given up: its task fails, and another thread takes the place of its own, a few times.
//! Results come in the order in which they were asked for, so that questions and starts have the order of the
//! plan; a slow one holds the others up for a moment only. Each has a mark while it is at work, by which the next
//! process knows of which the process died.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use crate::actor::work::{self, Helper};
use crate::failure::Failure;
pub(super) use crate::run_machine::evaluation::{Evaluated, Evaluation};
use crate::template::{self, Stop};
use crate::tool::under_way::UnderWay;

/// The time that one evaluation has. A prompt is rendered in less than a millisecond.
const WITHIN: Duration = Duration::from_secs(20);

/// The time after which one is given up that was told to stop.
const LATEST: Duration = Duration::from_secs(2);

/// The most threads that are replaced: each of them keeps a processor busy for as long as its step takes.
const MOST_REPLACED: usize = 8;

/// The time for which a result waits for those that were asked for before it.
const IN_ORDER_WITHIN: Duration = Duration::from_millis(50);

/// The reason why an evaluation has no result.
pub(super) const CRASHED: &str = "the evaluation crashed";

/// What a person can do about work that ended the process twice.
pub(super) const WAY_ON: &str = "change what it is made from (`resume --accept-changes`), or try it again (`resume --retry-failed`)";

/// The threads that evaluate: enough that one slow template does not delay all, few enough that the agents
/// have processors left.
#[derive(Clone, Debug)]
pub(super) struct Evaluations {
    free: Arc<Semaphore>,
    replaced: Arc<AtomicUsize>,
    under_way: Arc<UnderWay>,
}

/// The place of a result among the others.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: Option<oneshot::Receiver<()>>,
}

impl Order {
    /// Returns what waits until the result before this one was reported, and what is to be dropped once this one
    /// was.
    pub(super) fn next(
        &mut self,
    ) -> (impl Future<Output = ()> + Send + use<>, oneshot::Sender<()>) {
        let (reported, next) = oneshot::channel();
        let before = self.last.replace(next);
        let turn = async move {
            if let Some(before) = before {
                // It is never sent, only dropped.
                let _ = tokio::time::timeout(IN_ORDER_WITHIN, before).await;
            }
        };
        (turn, reported)
    }
}

impl Evaluations {
    /// Makes threads that mark there what they evaluate.
    pub(super) fn new(under_way: Arc<UnderWay>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let free = Arc::new(Semaphore::new(cores.clamp(2, 8)));
        Self { free, replaced: Arc::default(), under_way }
    }

    /// Evaluates, in the order in which it is asked.
    ///
    /// # Errors
    /// Returns the failure of the task; also if the evaluation panics, takes too long, or ended the process twice.
    pub(super) async fn evaluate(self, evaluation: Box<Evaluation>) -> Result<Evaluated, Failure> {
        let crashed = evaluation.failure(CRASHED);
        let late = evaluation.failure(&format!("it takes longer than {} s", WITHIN.as_secs()));
        let of = evaluation.task.to_string();
        let (mark, _turn) = match self.under_way.work(&of, evaluation.what()).await {
            Ok(marked) => marked,
            Err(reason) => return Err(evaluation.failure(&format!("{reason}: {WAY_ON}"))),
        };
        let Ok(thread) = self.free.clone().acquire_owned().await else { return Err(crashed) };
        let stop = Stop::default();
        let until = stop.clone();
        let evaluate = work::blocking_for(Helper::Evaluation, of, move || {
            // The thread is free when the evaluation has ended, also if nobody waits for it any more.
            let (_thread, _mark) = (thread, mark);
            template::until(&until, || evaluation.evaluate())
        });
        let mut evaluate = std::pin::pin!(evaluate);
        let ended = match tokio::time::timeout(WITHIN, &mut evaluate).await {
            Ok(ended) => ended,
            Err(_) => {
                stop.now();
                if tokio::time::timeout(LATEST, evaluate).await.is_err() {
                    self.replace_thread(&late);
                }
                return Err(late);
            }
        };
        ended.unwrap_or_else(|panic| {
            let message = format!("{} ({panic})", crashed.message);
            Err(Failure { message, ..crashed })
        })
    }

    fn replace_thread(&self, late: &Failure) {
        tracing::warn!(failure = %late, "a thread is still in a template");
        if self.replaced.fetch_add(1, Ordering::Relaxed) < MOST_REPLACED {
            self.free.add_permits(1);
        }
    }
}
