//! The files that tools may touch.
/// Roots.
#[derive(Debug)]
pub struct Workspace;
