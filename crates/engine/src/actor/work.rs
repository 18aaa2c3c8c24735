//! Work that actors have done beside their mailboxes: the only place where they start any.
//!
//! Whoever has work done is told its end, also if it ended by a panic: each result comes back as the value
//! or as [`Panicked`], and a `tell` makes mail of both. So no actor waits for a helper that is gone.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{AbortHandle, JoinSet};

pub(super) use crate::fault::Helper;
use crate::fault::{self, Fault};
use crate::foreign::{self, Panicked};

/// The work of one owner. Dropping it aborts all of it, so that work ends with its owner.
#[derive(Debug, Default)]
pub(super) struct Work(JoinSet<()>);

impl Work {
    /// Starts work. `tell` is given its result, or the panic that ended it; it is not called if the
    /// work is aborted.
    pub(super) fn start<T: Send + 'static>(
        &mut self,
        helper: Helper,
        body: impl Future<Output = T> + Send + 'static,
        tell: impl FnOnce(Result<T, Panicked>) + Send + 'static,
    ) -> AbortHandle {
        // What has ended is removed here; otherwise the set would grow for as long as the owner lives.
        while self.0.try_join_next().is_some() {}
        // A step is large, and each future that holds another one by value doubles the stack that it takes.
        let body = Box::pin(body);
        self.0.spawn(async move { tell(guarded(helper, body).await) })
    }

    /// Starts work whose end nobody waits for; a panic is only told to the log.
    pub(super) fn leave(
        &mut self,
        helper: Helper,
        body: impl Future<Output = ()> + Send + 'static,
    ) {
        self.start(helper, body, move |ended| {
            if let Err(panic) = ended {
                tracing::error!(helper = helper.name(), %panic, "work beside a mailbox crashed");
            }
        });
    }

    /// Aborts all of it, and returns when nothing of it is at work.
    pub(super) fn give_up(mut self) -> impl Future<Output = ()> + Send {
        self.0.abort_all();
        async move { while self.0.join_next().await.is_some() {} }
    }
}

async fn guarded<T>(helper: Helper, body: impl Future<Output = T>) -> Result<T, Panicked> {
    let faulty = async {
        match fault::of(helper) {
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(fault) => fault.happen(),
            None => {}
        }
        body.await
    };
    caught(faulty).await
}

/// Returns a future that gives the result of this one, or the panic that ended it.
pub(super) fn caught<T>(
    future: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Panicked>> {
    let panicked = |panic: Box<dyn Any + Send>| Panicked::of(panic.as_ref());
    AssertUnwindSafe(future).catch_unwind().map(move |ended| ended.map_err(panicked))
}

/// Does work that waits for the disk, or that takes long, on a thread of its own.
///
/// # Errors
/// Returns the panic, if it ended by one, and a like error if the program ends meanwhile.
pub(super) async fn blocking<T: Send + 'static>(
    helper: Helper,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Panicked> {
    blocking_for(helper, String::new(), work).await
}

/// Does the same for a task or an agent.
///
/// # Errors
/// Returns an error in the same cases.
pub(super) async fn blocking_for<T: Send + 'static>(
    helper: Helper,
    of: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Panicked> {
    let work = move || {
        if let Some(fault) = fault::of_work(helper, &of) {
            fault.happen();
        }
        work()
    };
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| match error.try_into_panic() {
        Ok(panic) => Panicked::of(panic.as_ref()),
        // A blocking task is lost only when the runtime shuts down.
        Err(_) => Panicked("the program ends".to_owned()),
    })
}

/// Does work that takes long on this thread, while another one does what this one would have done.
pub(super) fn long<T>(helper: Helper, work: impl FnOnce() -> T) -> T {
    let work = || {
        if let Some(fault) = fault::of(helper) {
            fault.happen();
        }
        work()
    };
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is no other thread.
        _ => work(),
    }
}

/// Does work on a thread of its own that nobody waits for.
pub(super) fn leave_blocking(helper: Helper, work: impl FnOnce() + Send + 'static) {
    drop(tokio::task::spawn_blocking(move || {
        let work = || {
            if let Some(fault) = fault::of(helper) {
                fault.happen();
            }
            work();
        };
        if let Err(panic) = foreign::call(work) {
            tracing::error!(helper = helper.name(), %panic, "work beside a mailbox crashed");
        }
    }));
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn each_end_is_reported() {
        let (send, mut ends) = mpsc::unbounded_channel();
        let mut work = Work::default();
        for number in 0..3 {
            let send = send.clone();
            let body = async move {
                tokio::task::yield_now().await;
                assert!(number != 1, "one");
                number
            };
            work.start(Helper::Step, body, move |end| send.send((number, end)).unwrap());
        }
        let mut all = Vec::new();
        while all.len() < 3 {
            all.push(ends.recv().await.unwrap());
        }
        all.sort_by_key(|(number, _)| *number);
        let [(_, first), (_, second), (_, third)] = &all[..] else { panic!("three") };
        assert_eq!((first, second, third), (&Ok(0), &Err(Panicked("one".to_owned())), &Ok(2)));
        let empty: [u8; 0] = [];
        assert!(blocking(Helper::Step, move || empty[all.len()]).await.is_err());
    }
}
