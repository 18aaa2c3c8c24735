//! Whether a model was given up for its fallbacks, over all calls to it.
//!
//! After a cooldown one call tries it again. A model without fallbacks is never given up.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::policy::{Breaker, BreakerState};

/// The state of a model over all calls.
#[derive(Debug)]
pub(super) struct Health {
    breaker: Mutex<Breaker>,
    born: Instant,
    falls: watch::Sender<()>,
}

/// The right to call a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// The model was given up.
    No,
    /// The model is well.
    Freely,
    /// The model was given up a while ago, and this call tries it.
    AsProbe,
}

/// Tells when a model is given up from now on.
#[derive(Debug)]
pub(super) struct Falls(watch::Receiver<()>);

impl Falls {
    /// Waits until the model is given up.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // There is no model any more that could be given up.
            std::future::pending::<()>().await;
        }
    }
}

impl Health {
    /// Creates the state of a model that is well. One call tries it again so long after it was given up.
    pub(super) fn new(cooldown: Duration) -> Self {
        let breaker = Mutex::new(Breaker::new(1, cooldown));
        Self { breaker, born: Instant::now(), falls: watch::Sender::new(()) }
    }

    /// Returns true if the model may be called, or tried, now.
    pub(super) fn is_ready(&self) -> bool {
        let breaker = self.breaker.lock();
        match breaker.state() {
            BreakerState::Closed => true,
            BreakerState::HalfOpen => false,
            BreakerState::Open => breaker.wait(self.born.elapsed()).is_zero(),
        }
    }

    /// Takes the right to call the model.
    pub(super) fn admit(&self) -> Admitted {
        let mut breaker = self.breaker.lock();
        match (breaker.admit(self.born.elapsed()), breaker.state()) {
            (false, _) => Admitted::No,
            (true, BreakerState::HalfOpen) => Admitted::AsProbe,
            (true, _) => Admitted::Freely,
        }
    }

    /// Returns what tells of the falls from now on.
    pub(super) fn falls(&self) -> Falls {
        Falls(self.falls.subscribe())
    }

    /// Notes that the model was given up.
    pub(super) fn give_up(&self) {
        self.breaker.lock().fail(self.born.elapsed());
        self.falls.send_replace(());
    }

    /// Notes that the model answered.
    pub(super) fn is_well(&self) {
        self.breaker.lock().succeed();
    }

    /// Notes that the call that tried the model had no result.
    pub(super) fn abandon(&self) {
        self.breaker.lock().abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_call_at_a_time_tries_a_model_that_was_given_up() {
        const COOLDOWN: Duration = Duration::from_secs(60);
        let health = Health::new(COOLDOWN);
        let mut falls = health.falls();
        assert_eq!((health.is_ready(), health.admit()), (true, Admitted::Freely));
        health.give_up();
        falls.next().await;
        assert_eq!((health.is_ready(), health.admit()), (false, Admitted::No));
        tokio::time::advance(COOLDOWN).await;
        assert_eq!((health.is_ready(), health.admit()), (true, Admitted::AsProbe));
        assert_eq!((health.is_ready(), health.admit()), (false, Admitted::No), "one is enough");
        health.abandon();
        assert_eq!(health.admit(), Admitted::AsProbe, "the other had no result");
        health.give_up();
        assert_eq!(health.admit(), Admitted::No);
        tokio::time::advance(COOLDOWN).await;
        assert_eq!(health.admit(), Admitted::AsProbe);
        health.is_well();
        assert_eq!(health.admit(), Admitted::Freely);
    }
}
