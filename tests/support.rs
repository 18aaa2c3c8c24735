//! The harnesses: what the tests of several folders share. `tests/README.md` says which to use when.

pub(crate) mod answer;
pub(crate) mod asked;
pub(crate) mod context_server;
#[path = "../crates/context/src/context/testing.rs"]
pub(crate) mod conversations;
pub(crate) mod desk;
pub(crate) mod endless;
pub(crate) mod faults;
#[path = "../benches/context/made.rs"]
pub(crate) mod made;
pub(crate) mod memory_journal;
pub(crate) mod provider;
pub(crate) mod pty;
pub(crate) mod render;
pub(crate) mod test_run;
pub(crate) mod users;

/// Returns the number by which the machine knows a process that works in `workspace` and knows itself
/// as `number`, perhaps in a process namespace of its own. Another command there may have a short-lived process of
/// the same number: it is waited until that has ended.
pub(crate) fn number_outside(workspace: &std::path::Path, number: &str) -> Option<String> {
    let workspace = workspace.canonicalize().ok()?;
    desk::wait("one process of that number", || {
        let mut found = numbers_outside(&workspace, number);
        (found.len() < 2).then(|| found.pop())
    })
}

fn numbers_outside(workspace: &std::path::Path, number: &str) -> Vec<String> {
    let names = std::fs::read_dir("/proc").expect("the processes").flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let is_one = |outside: &String| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{outside}/{file}"));
        let status = read("status").unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.and_then(|numbers| numbers.split_whitespace().next_back()) == Some(number)
            && std::fs::read_link(format!("/proc/{outside}/cwd")).is_ok_and(|cwd| cwd == workspace)
    };
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(is_one).collect()
}

/// The variable, with its value, by which commands run on a machine that has no sandbox; `None` where
/// there is one.
pub(crate) fn without_sandbox() -> Option<(&'static str, &'static str)> {
    use std::sync::LazyLock;

    use callsheet::tool::sandbox::place::resolve;
    use callsheet::tool::sandbox::{Policy, probe};
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        let workspace = tempfile::tempdir().expect("a folder");
        let root = resolve(workspace.path(), &[]).expect("it is there").place;
        let policy = Policy { write: vec![root.clone()], root: Some(root), ..Policy::default() };
        probe(env!("CARGO_BIN_EXE_callsheet").as_ref(), &policy).is_ok()
    });
    (!*HAS).then_some(("CALLSHEET_SANDBOX__MODE", "danger-full-access"))
}
