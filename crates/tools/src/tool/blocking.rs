//! Runs a tool's file work off the runtime's threads, until the call's time limit or cancellation.
//!
//! Knows nothing of the work itself; work that may take long checks its [`CancellationToken`].

use std::io::{self, Read};

use tokio_util::sync::CancellationToken;

use super::{ToolContext, ToolError};

/// Runs `work` on a blocking thread. The token that `work` receives fires when the call is
/// cancelled, has taken too long, or is dropped.
///
/// # Errors
/// Returns the error of `work`, [`ToolError::Cancelled`] or [`ToolError::Timeout`].
pub(super) async fn run<T: Send + 'static>(
    context: &ToolContext,
    work: impl FnOnce(&CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let stop = context.cancel.child_token();
    let _stops_when_dropped = stop.clone().drop_guard();
    let task = tokio::task::spawn_blocking(move || work(&stop));
    let done = tokio::select! {
        done = tokio::time::timeout(context.timeout, task) => done,
        () = context.cancel.cancelled() => return Err(ToolError::Cancelled),
    };
    match done {
        Err(_) => Err(ToolError::Timeout(context.timeout)),
        Ok(Ok(result)) => result,
        // A panic is a defect of this program: it continues to the code that guards the step.
        Ok(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Ok(Err(_)) => Err(ToolError::Cancelled),
    }
}

/// A reader that fails once a token has fired, so that long reads end with their call.
#[derive(Debug)]
pub(super) struct Stoppable<'a, R> {
    reader: R,
    stop: &'a CancellationToken,
}

impl<'a, R> Stoppable<'a, R> {
    /// Makes a reader that reads from `reader` until `stop` fires.
    pub(super) fn new(reader: R, stop: &'a CancellationToken) -> Self {
        Self { reader, stop }
    }
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_cancelled() {
            return Err(io::Error::other("the call was stopped"));
        }
        self.reader.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tool::files::tests::Bench;

    #[tokio::test]
    async fn work_that_takes_too_long_is_told_to_stop() {
        let bench = Bench::new();
        let mut context = bench.context();
        context.timeout = Duration::from_millis(20);
        let (told, hears) = std::sync::mpsc::channel();
        let result = run(&context, move |stop| {
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            told.send(()).map_err(|e| ToolError::Failed(e.to_string()))
        });
        assert!(matches!(result.await, Err(ToolError::Timeout(_))));
        hears.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[tokio::test]
    async fn a_cancelled_call_ends_at_once() {
        let bench = Bench::new();
        let context = bench.context();
        context.cancel.cancel();
        let result = run(&context, |stop| {
            let mut buffer = [0; 4];
            let ended = Stoppable::new(io::repeat(0), stop).read(&mut buffer);
            ended.map_err(|source| ToolError::Io { what: "read".to_owned(), source })
        });
        assert!(matches!(result.await, Err(ToolError::Cancelled | ToolError::Io { .. })));
    }
}
