//! A table of tasks that wait for answers, by the key of the question.
//!
//! A question is sent as mail that holds its key. The actor that receives the answer passes it to
//! the task that waits for the key. There is no reply port, so the answer may come from a successor
//! of the actor that was asked, or arrive twice: the second answer finds no waiting task and is
//! dropped.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The questions without an answer. At most one task waits for each key.
pub struct Replies<K, V>(Mutex<HashMap<K, oneshot::Sender<V>>>);

impl<K, V> Default for Replies<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Replies<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}

impl<K: Clone + Eq + Hash, V> Replies<K, V> {
    /// Begins to wait for an answer. Call this before the question is sent, or a quick answer finds
    /// nobody.
    pub fn expect(&self, key: K) -> Expected<'_, K, V> {
        let (sender, answer) = oneshot::channel();
        self.0.lock().insert(key.clone(), sender);
        Expected { replies: self, key, answer }
    }

    /// Returns the number of questions without an answer.
    pub fn open(&self) -> usize {
        self.0.lock().values().filter(|waiting| !waiting.is_closed()).count()
    }

    /// Passes an answer to the task that waits for it. Returns true if a task did.
    pub fn answer(&self, key: &K, value: V) -> bool {
        let waiting = self.0.lock().remove(key);
        waiting.is_some_and(|waiting| waiting.send(value).is_ok())
    }
}

/// An answer that is expected. Dropping it ends the wait.
#[derive(Debug)]
pub struct Expected<'a, K: Clone + Eq + Hash, V> {
    replies: &'a Replies<K, V>,
    key: K,
    answer: oneshot::Receiver<V>,
}

impl<K: Clone + Eq + Hash, V> Expected<'_, K, V> {
    /// Waits for the answer. Returns `None` if another task now waits under the same key.
    pub async fn wait(mut self) -> Option<V> {
        (&mut self.answer).await.ok()
    }
}

impl<K: Clone + Eq + Hash, V> Drop for Expected<'_, K, V> {
    fn drop(&mut self) {
        // Only this wait's entry is removed: a later wait under the same key has replaced it with
        // its own, whose receiver is open.
        let mut waiting = self.replies.0.lock();
        if waiting.get(&self.key).is_some_and(oneshot::Sender::is_closed) {
            waiting.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_finds_the_latest_that_waits_once() {
        let replies: Replies<&str, u32> = Replies::default();
        let first = replies.expect("a");
        let second = replies.expect("a");
        assert_eq!(first.wait().await, None);
        assert!(replies.answer(&"a", 7));
        assert!(!replies.answer(&"a", 8), "nobody waits any more");
        assert_eq!(second.wait().await, Some(7));
    }

    #[test]
    fn a_wait_that_was_given_up_leaves_nothing_behind() {
        let replies: Replies<&str, u32> = Replies::default();
        let given_up = replies.expect("a");
        drop(given_up);
        assert!(!replies.answer(&"a", 1));
        assert!(replies.0.lock().is_empty());
    }
}
