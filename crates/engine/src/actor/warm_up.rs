//! The first of several calls with one prefix goes ahead, so that the others read it from the provider's
//! cache instead of writing it again.
//!
//! A cache entry exists once the first reply has begun. Until then the others wait, if the prices say that
//! it pays.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::spec::Price;

/// Tokens of a prefix from which the public services cache it.
const LEAST_TOKENS: u64 = 1024;

/// Time for which the public services keep an entry after its last use.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// The longest time that a call waits for another: a provider that reads a prompt for longer is busy.
const PATIENCE: Duration = Duration::from_secs(15);

/// The state of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// Nobody has used the prefix for a while.
    Cold,
    /// One call has gone ahead.
    Warming,
    /// A reply with the prefix began at this time.
    Warm(Instant),
}

/// The place of a call among those with its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It goes ahead.
    Ahead,
    /// It waits for the one that has.
    Behind,
    /// The entry is warm.
    Free,
}

/// A prefix that the calls of all agents of one definition share.
#[derive(Debug)]
pub(super) struct Prefix {
    entry: watch::Sender<Entry>,
    pays: bool,
}

impl Prefix {
    /// Creates a prefix of about this many tokens that nobody has used.
    pub(super) fn new(tokens: u64, price: Option<&Price>) -> Self {
        let is_cheaper = price.is_some_and(|price| price.cache_read < price.input);
        Self { entry: watch::Sender::new(Entry::Cold), pays: is_cheaper && tokens >= LEAST_TOKENS }
    }

    /// Waits until the prefix is in the cache, or until this call is to go ahead. The caller tells the result
    /// when its reply has begun.
    pub(super) async fn ready(&self) -> Ahead<'_> {
        if !self.pays {
            return Ahead { prefix: None };
        }
        let mut changes = self.entry.subscribe();
        let go = async {
            loop {
                match self.take() {
                    Place::Ahead => return Ahead { prefix: Some(self) },
                    Place::Free => return Ahead { prefix: None },
                    Place::Behind => {}
                }
                if changes.changed().await.is_err() {
                    return Ahead { prefix: None };
                }
            }
        };
        tokio::time::timeout(PATIENCE, go).await.unwrap_or(Ahead { prefix: None })
    }

    fn take(&self) -> Place {
        let mut place = Place::Behind;
        self.entry.send_if_modified(|entry| {
            place = match entry {
                Entry::Warming => Place::Behind,
                Entry::Warm(at) if at.elapsed() < KEPT => Place::Free,
                Entry::Warm(_) | Entry::Cold => {
                    *entry = Entry::Warming;
                    Place::Ahead
                }
            };
            // Who waits already knows that somebody has gone ahead.
            false
        });
        place
    }

    /// Notes that a reply with the prefix has begun.
    pub(super) fn begun(&self) {
        if self.pays {
            self.entry.send_if_modified(|entry| {
                let was_warm = matches!(entry, Entry::Warm(_));
                *entry = Entry::Warm(Instant::now());
                !was_warm
            });
        }
    }
}

/// The call that went ahead, if it did. If it ends before its reply begins, another goes ahead.
#[derive(Debug)]
pub(super) struct Ahead<'a> {
    prefix: Option<&'a Prefix>,
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        let Some(prefix) = self.prefix else { return };
        prefix.entry.send_if_modified(|entry| {
            let is_open = *entry == Entry::Warming;
            if is_open {
                *entry = Entry::Cold;
            }
            is_open
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };

    #[tokio::test(start_paused = true)]
    async fn one_goes_ahead_and_the_others_follow_its_first_word() {
        let prefix = Prefix::new(5_000, Some(&PRICE));
        let ahead = prefix.ready().await;
        assert!(ahead.prefix.is_some());
        let behind = async {
            let since = Instant::now();
            assert!(prefix.ready().await.prefix.is_none());
            since.elapsed()
        };
        let word = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            prefix.begun();
        };
        let (waited, ()) = tokio::join!(behind, word);
        assert_eq!(waited, Duration::from_secs(2));
        drop(ahead);
        assert_eq!(prefix.take(), Place::Free);
        // Each use keeps it, and without any it is gone.
        tokio::time::advance(KEPT - Duration::from_secs(1)).await;
        prefix.begun();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(prefix.take(), Place::Free);
        tokio::time::advance(KEPT).await;
        assert_eq!(prefix.take(), Place::Ahead);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_ends_without_a_word_lets_another_ahead_and_none_waits_for_long() {
        let prefix = Prefix::new(5_000, Some(&PRICE));
        let ahead = prefix.ready().await;
        let (next, ()) = tokio::join!(prefix.ready(), async { drop(ahead) });
        assert!(next.prefix.is_some(), "it goes ahead now");
        let since = Instant::now();
        assert!(prefix.ready().await.prefix.is_none());
        assert_eq!(since.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_where_it_does_not_pay() {
        let dear = Price { cache_read: 3.0, ..PRICE };
        for (tokens, price) in [(5_000, None), (5_000, Some(&dear)), (1_000, Some(&PRICE))] {
            let prefix = Prefix::new(tokens, price);
            let since = Instant::now();
            let (one, other) = tokio::join!(prefix.ready(), prefix.ready());
            assert!(one.prefix.is_none() && other.prefix.is_none());
            assert_eq!(since.elapsed(), Duration::ZERO);
        }
    }
}
