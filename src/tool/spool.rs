//! Where a tool's full output goes: written to disk as it comes, then named by its content.
/// Spool.
#[derive(Debug)]
pub struct Spool;
