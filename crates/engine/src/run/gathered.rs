//! Lets folders stand for the protected paths that they hold, when there are too many of them.
//!
//! Each protected path costs every command a few microseconds, so there is a bound. What made the paths may
//! have been a command, which must not be able to keep later runs from starting: a folder that holds very many
//! of them is protected as a whole. Pure.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The numbers of paths from which a folder stands for what it holds, tried in this order: a folder that
/// somebody filled goes before one that happens to hold some.
const STEPS: [usize; 5] = [1_000, 300, 100, 10, 2];

/// Paths, of which some folders stand for what they hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gathered {
    /// All paths, with those folders.
    pub(super) paths: Vec<PathBuf>,
    /// The folders, sorted.
    pub(super) folders: Vec<PathBuf>,
}

/// Gathers paths below `root` into folders until there are no more than `most`, or no folder is left that
/// could stand for others: never the root itself, nor one that holds a path of `open`. Folders as deep as
/// possible are taken. Paths elsewhere stay as they are.
pub(super) fn gather(paths: Vec<PathBuf>, root: &Path, open: &[PathBuf], most: usize) -> Gathered {
    let mut gathered = Gathered { paths, folders: Vec::new() };
    let mut steps = STEPS.into_iter();
    let mut least = steps.next();
    while let Some(count) = least.filter(|_| gathered.paths.len() > most) {
        let chosen = crowded(&gathered.paths, root, open, count);
        if chosen.is_empty() {
            least = steps.next();
            continue;
        }
        let is_held = |path: &Path| path.ancestors().any(|above| chosen.contains(above));
        gathered.paths.retain(|path| !is_held(path));
        gathered.folders.retain(|path| !is_held(path));
        gathered.paths.extend(chosen.iter().cloned());
        gathered.folders.extend(chosen);
    }
    gathered.folders.sort();
    gathered
}

/// Returns the deepest folders that hold at least `least` of the paths.
fn crowded(paths: &[PathBuf], root: &Path, open: &[PathBuf], least: usize) -> HashSet<PathBuf> {
    let mut counts: HashMap<&Path, usize> = HashMap::new();
    for path in paths {
        let above = path.ancestors().skip(1).take_while(|above| *above != root);
        for folder in above.filter(|above| above.starts_with(root)) {
            *counts.entry(folder).or_default() += 1;
        }
    }
    let is_open = |folder: &Path| open.iter().any(|path| path.starts_with(folder));
    counts.retain(|folder, count| *count >= least && !is_open(folder));
    // What is above one that is chosen holds as many.
    let above: HashSet<&Path> = counts.keys().filter_map(|folder| folder.parent()).collect();
    let deepest = counts.keys().filter(|folder| !above.contains(*folder));
    deepest.map(|folder| folder.to_path_buf()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(of: impl Iterator<Item = String>) -> Vec<PathBuf> {
        of.map(PathBuf::from).collect()
    }

    fn repositories(folder: &str, count: usize) -> Vec<PathBuf> {
        let parts = ["config", "hooks", "info/attributes"];
        let of = move |at| parts.map(|part| format!("{folder}/{at}/.git/{part}"));
        paths((0..count).flat_map(of))
    }

    #[test]
    fn few_paths_stay_as_they_are() {
        let few = repositories("/w/a", 10);
        let gathered = gather(few.clone(), Path::new("/w"), &[], 30);
        assert_eq!(gathered, Gathered { paths: few, folders: vec![] });
    }

    #[test]
    fn the_folder_that_was_filled_stands_for_what_it_holds_and_no_other_does() {
        let mut all = repositories("/w/src/made/by/a/command", 3_500);
        all.extend(repositories("/w/services", 300));
        all.push("/w/agents.toml".into());
        all.push("/home/p/.gitconfig".into());
        let gathered = gather(all.clone(), Path::new("/w"), &[], 1_000);
        assert_eq!(gathered.folders, [Path::new("/w/src/made/by/a/command")]);
        assert_eq!(gathered.paths.len(), 300 * 3 + 2 + 1);
        // What is still written is not closed: its parts are, one by one.
        let open = [PathBuf::from("/w/src/made/by/a/command/7/out")];
        let gathered = gather(all, Path::new("/w"), &open, 5_000);
        assert!(gathered.paths.len() <= 5_000, "{}", gathered.paths.len());
        assert!(gathered.folders.iter().all(|folder| !open[0].starts_with(folder)));
    }

    #[test]
    fn every_path_is_among_those_that_are_left_or_in_a_folder_of_them() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let mut part = || ["a", "b", "c", ".git", "hooks"][rng.usize(..5)].to_owned();
            let mut path = |_| format!("/w/{}/{}/{}/{}", part(), part(), part(), part());
            let all = paths((0..100).map(&mut path));
            let open = [PathBuf::from("/w/a/b")];
            let most = all.len() / 4;
            let gathered = gather(all.clone(), Path::new("/w"), &open, most);
            for path in &all {
                assert!(gathered.paths.iter().any(|kept| path.starts_with(kept)), "{path:?}");
            }
            assert!(gathered.folders.iter().all(|folder| folder != Path::new("/w")));
            assert!(gathered.folders.iter().all(|folder| !open[0].starts_with(folder)));
        }
    }

    #[test]
    fn what_lies_in_the_root_itself_cannot_be_gathered() {
        let all = paths((0..50).map(|at| format!("/w/{at}.envrc")));
        assert_eq!(gather(all.clone(), Path::new("/w"), &[], 10).paths, all);
    }
}
