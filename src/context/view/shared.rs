//! A value that copies of a view share until one of them changes it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value behind a pointer: cloning copies the pointer, and the first change of a clone copies the
/// value.
#[derive(Debug, Default)]
pub(super) struct Shared<T>(Arc<T>);

// Not derived: that would ask for `T: Clone`, of which nothing here makes use.
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
