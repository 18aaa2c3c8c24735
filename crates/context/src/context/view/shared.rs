//! A value that the copies of a view share until one of them changes it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A shared value: cloning copies the pointer, and the first change of a clone copies the value.
#[derive(Debug, Default)]
pub(super) struct Shared<T>(Arc<T>);

// Not derived: the derive would require `T: Clone`, which cloning the pointer does not need.
impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}
