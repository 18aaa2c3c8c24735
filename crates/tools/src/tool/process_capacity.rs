//! A machine that has no room for another process: tells such errors from others, and waits.
//!
//! Nothing of a command has begun when it cannot be started, so it is started again. A machine full of
//! processes is like a full disk: it passes, or a person makes room.

use std::io;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// First pause before another try; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Longest pause: short for a person who has just made room.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Time for which a process waits that takes up room itself.
const SOON: Duration = Duration::from_secs(3);

/// Number of tries in vain after which the log says so: about three seconds.
const TRIES_BEFORE_WARNING: u32 = 8;

/// Errors that say that something is used up for now: EAGAIN (processes), ENOMEM, ENFILE and EMFILE
/// (descriptors). The numbers are those of Linux and macOS; EAGAIN differs between them.
const PASSING: [i32; 4] = [if cfg!(target_os = "macos") { 35 } else { 11 }, 12, 23, 24];

/// Returns true if the machine or the process has no room for a process now.
#[must_use]
pub fn is_passing(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| PASSING.contains(&number))
}

/// Returns the pauses between the tries.
pub(in crate::tool) fn pauses() -> impl Iterator<Item = Duration> {
    let pauses =
        std::iter::successors(Some(FIRST_PAUSE), |pause| Some((*pause * 2).min(LONGEST_PAUSE)));
    // Those that wait for the same room must not all come at once.
    pauses.map(|pause| pause.mul_f64(0.5 + fastrand::f64()))
}

/// Starts something, and tries again for some seconds: for a process that takes up room itself while it
/// waits.
///
/// # Errors
/// Returns the first other error, or the last one when the time is over.
pub(in crate::tool) async fn start_soon<T>(
    start_one: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let over = CancellationToken::new();
    let in_time = over.clone();
    let limit = async move {
        tokio::time::sleep(SOON).await;
        over.cancel();
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        started = start(&in_time, start_one) => started,
        never = limit => match never {},
    }
}

/// Starts something, and tries again as long as there is no room for it and nobody cancels it.
///
/// # Errors
/// Returns the first other error, or the last one when it was cancelled.
pub(in crate::tool) async fn start<T>(
    cancel: &CancellationToken,
    mut start: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let (mut pauses, mut tries) = (pauses(), 0_u32);
    loop {
        tries = tries.saturating_add(1);
        let error = match start() {
            Err(error) if is_passing(&error) => error,
            other => return other,
        };
        if tries == TRIES_BEFORE_WARNING {
            tracing::warn!(%error, "the machine has no room for a process: waiting");
        }
        tokio::select! {
            () = cancel.cancelled() => return Err(error),
            () = tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_waited_for_and_nothing_else() {
        let cancel = CancellationToken::new();
        let mut tries = 0;
        let started = start(&cancel, || {
            tries += 1;
            match tries {
                ..20 => Err(io::Error::from_raw_os_error(PASSING[tries % 4])),
                _ => Ok("started"),
            }
        });
        assert_eq!(started.await.expect("started"), "started");
        let missing = start(&cancel, || Err::<(), _>(io::Error::from_raw_os_error(2))).await;
        assert_eq!(missing.expect_err("an error").raw_os_error(), Some(2));
        let full = || Err::<(), _>(io::Error::from_raw_os_error(PASSING[0]));
        let waiting = start(&cancel, full);
        let later = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(waiting, later);
        assert_eq!(ended.expect_err("cancelled").raw_os_error(), Some(PASSING[0]));
    }
}
