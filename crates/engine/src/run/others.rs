//! Checks that no other user can put something else in the place of temporary files.

use std::fs;
use std::path::Path;

use crate::trust::others::{Replaces, who_replaces};

/// The user that owns what belongs to nobody of this user namespace.
const UNKNOWN: u32 = 65_534;

/// The map of a machine's own user namespace: all users.
const ALL: [&str; 3] = ["0", "0", "4294967295"];

/// Checks that nobody else can replace a folder for temporary files, or what lies in it. The path is absolute and
/// without links.
///
/// # Errors
/// Returns the path at which somebody could, and what to do.
pub(super) fn check_temporary(path: &Path, user: u32) -> Result<(), String> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let has_all_users = map.split_whitespace().eq(ALL);
    for folder in path.ancestors() {
        let stat =
            rustix::fs::stat(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let why = match who_replaces(&stat, user, None) {
            None => continue,
            // Root itself has this number where a namespace does not know it.
            Some(Replaces::Owner(UNKNOWN)) if !has_all_users => continue,
            Some(Replaces::Owner(owner)) => {
                format!("belongs to the user with the id {owner}, who could rename what is in it")
            }
            Some(Replaces::Writers) => {
                "may be written by other users, who could rename what is in it: `chmod go-w` it"
                    .to_owned()
            }
        };
        let (path, folder) = (path.display(), folder.display());
        return Err(format!(
            "temporary files would lie in {path}, but {folder} {why}; or set TMPDIR to a folder of your own"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_in_which_others_rename_is_no_place_for_temporary_files() {
        let user = rustix::process::geteuid().as_raw();
        let root = tempfile::tempdir().unwrap();
        let above = root.path().canonicalize().unwrap().join("above");
        let folder = above.join("folder");
        fs::create_dir_all(&folder).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        // (mode of the folder, mode of the one above, the one that is named)
        for (own, over, named) in [
            (0o700, 0o755, None),
            (0o1777, 0o755, None),
            (0o700, 0o1777, None),
            (0o777, 0o755, Some(&folder)),
            (0o770, 0o755, Some(&folder)),
            (0o700, 0o777, Some(&above)),
        ] {
            set(&folder, own);
            set(&above, over);
            let checked = check_temporary(&folder, user);
            assert_eq!(checked.is_err(), named.is_some(), "{own:o} {over:o}: {checked:?}");
            if let (Err(error), Some(named)) = (checked, named) {
                assert!(error.contains(&format!("but {} may be", named.display())), "{error}");
            }
        }
        set(&folder, 0o700);
        set(&above, 0o755);
        if user != 0 {
            assert!(check_temporary(&folder, user + 1).is_err());
        }
    }
}
