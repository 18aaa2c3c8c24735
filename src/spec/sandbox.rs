//! What commands may reach.

/// The settings of `[sandbox]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Names of environment variables that commands get beside the few that they always get.
    pub env: Vec<String>,
}
