//! Finds where a path leads that a configuration or a command names: through `..`, and so that nothing on
//! the way can be exchanged.
//!
//! `a/../b` is not `b` if `a` is a link, or becomes one. So what is protected is where the path leads now,
//! and the folders before a `..` stay at their place.

use std::path::{Component, Path, PathBuf};

/// The longest path that the kernel opens, in bytes (`PATH_MAX`).
const LONGEST: usize = 4_096;

/// The most links that a path may lead through, as the kernel has it.
const MOST_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    /// The path without `.` and `..`.
    pub(super) path: PathBuf,
    /// The folders that it leaves by `..`, without `.` and `..`.
    pub(super) left: Vec<PathBuf>,
}

/// Follows an absolute path as the kernel does: `..` leads out of what a link leads to. The path itself may
/// be a link. Returns `None` for a path that nothing can open.
pub(super) fn walked(path: &Path) -> Option<Walked> {
    if path.as_os_str().len() > LONGEST {
        return None;
    }
    let mut walked = Walked::default();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                let real = walked.path.canonicalize().ok();
                let left = real.clone().into_iter().chain([walked.path.clone()]);
                walked.left.extend(left.filter(|folder| folder.parent().is_some()));
                walked.path = real.unwrap_or(walked.path);
                walked.path.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                walked.path.push(part);
            }
        }
    }
    walked.left.sort();
    walked.left.dedup();
    Some(walked)
}

/// Returns the paths by which a path leads on through links, the real one last: with its first link replaced
/// by what that leads to, and so on. Each of the links can be exchanged.
pub(super) fn through_links(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if path.canonicalize().is_ok_and(|real| real == path) {
        return found;
    }
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Some(next) = after_first_link(&at).and_then(|next| walked(&next)) else { break };
        found.extend(next.left);
        at = next.path;
        found.push(at.clone());
    }
    found
}

/// Returns a path with its first link replaced by what it leads to; `None` if it has none.
fn after_first_link(path: &Path) -> Option<PathBuf> {
    let mut at = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        at.push(part);
        if let Ok(to) = at.read_link() {
            at.pop();
            return Some(at.join(to).join(parts.as_path()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_leads_where_the_kernel_goes() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path().canonicalize().expect("a path");
        std::fs::create_dir_all(root.join("ws/a/inner")).expect("made");
        std::fs::create_dir_all(root.join("out/deep")).expect("made");
        symlink("../out/deep", root.join("ws/link")).expect("linked");
        for (path, leads, left) in [
            ("ws/./a/b", "ws/a/b", vec![]),
            ("ws/a/../b", "ws/b", vec!["ws/a"]),
            ("ws/a/inner/../../b", "ws/b", vec!["ws/a", "ws/a/inner"]),
            ("ws/link/../b", "out/b", vec!["out/deep", "ws/link"]),
            ("ws/link", "ws/link", vec![]),
            ("ws/gone/../b", "ws/b", vec!["ws/gone"]),
            ("ws/../../../../../../../../../../../../../../..", "/", vec![]),
        ] {
            let found = walked(&root.join(path)).expect("short");
            assert_eq!(found.path, root.join(leads), "{path}");
            let left: Vec<_> = left.into_iter().map(|path| root.join(path)).collect();
            assert!(left.iter().all(|path| found.left.contains(path)), "{path}: {found:?}");
            assert!(!found.path.components().any(|part| part == Component::ParentDir), "{path}");
        }
        assert_eq!(walked(&root.join("../".repeat(2_000))), None);
    }

    #[test]
    fn each_link_on_the_way_is_found() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path().canonicalize().expect("a path");
        std::fs::create_dir_all(root.join("real/inner")).expect("made");
        std::fs::write(root.join("real/file"), "").expect("written");
        for (link, to) in [("one", "two/file"), ("two", "real"), ("loop", "loop")] {
            symlink(to, root.join(link)).expect("linked");
        }
        let found = |path: &str| through_links(&root.join(path));
        assert_eq!(found("one"), [root.join("two/file"), root.join("real/file")]);
        assert_eq!(found("two/gone"), [root.join("real/gone")]);
        assert!(found("real/file").is_empty() && found("gone").is_empty());
        assert!(found("loop").len() <= MOST_LINKS);
    }
}
