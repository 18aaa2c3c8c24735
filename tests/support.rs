//! The test bench: parts that several integration tests and the benchmarks use.
//!
//! The paths are written out so that a benchmark can include this file from its own folder.

#[path = "support/answer.rs"]
pub(crate) mod answer;
#[path = "support/asked.rs"]
pub(crate) mod asked;
#[path = "support/endless.rs"]
pub(crate) mod endless;
#[path = "support/provider.rs"]
pub(crate) mod provider;
#[path = "support/render.rs"]
pub(crate) mod render;

/// The variable, with its value, by which commands run on a machine that has no sandbox; `None` where
/// there is one.
pub(crate) fn without_sandbox() -> Option<(&'static str, &'static str)> {
    use std::sync::LazyLock;

    use callsheet::tool::sandbox::{Policy, probe};
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        probe(env!("CARGO_BIN_EXE_callsheet").as_ref(), &Policy::default()).is_ok()
    });
    (!*HAS).then_some(("CALLSHEET_SANDBOX__MODE", "danger-full-access"))
}
