//! Tells whether another user can put something else in the place of what lies in a folder.

use rustix::fs::Stat;

/// The permissions to write of all users, and of the group.
const WRITE_OF_ALL: u32 = 0o002;
const WRITE_OF_GROUP: u32 = 0o020;

/// The bit of a folder such as `/tmp`, in which nobody removes or renames what is somebody else's.
const STICKY: u32 = 0o1000;

/// How another user can replace what lies in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaces {
    /// The folder belongs to this user, who is neither root nor the one of this process.
    Owner(u32),
    /// Others may write it, and it has no sticky bit.
    Writers,
}

/// Returns how another user than this one and root can replace what lies in a folder; `None` if nobody can. A group
/// that is `trusted` may write it: many systems give each user one.
pub(crate) fn who_replaces(folder: &Stat, user: u32, trusted: Option<u32>) -> Option<Replaces> {
    let of_group = if trusted == Some(folder.st_gid) { 0 } else { WRITE_OF_GROUP };
    let is_written = folder.st_mode & (WRITE_OF_ALL | of_group) != 0;
    let is_open = is_written && folder.st_mode & STICKY == 0;
    match folder.st_uid {
        owner if owner != 0 && owner != user => Some(Replaces::Owner(owner)),
        _ => is_open.then_some(Replaces::Writers),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn whoever_writes_a_folder_without_the_sticky_bit_replaces_what_is_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let stat = |mode| {
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("set");
            rustix::fs::stat(folder.path()).expect("there")
        };
        let (user, group) = (stat(0o700).st_uid, stat(0o700).st_gid);
        for (mode, trusted, expected) in [
            (0o755, None, None),
            (0o770, None, Some(Replaces::Writers)),
            (0o770, Some(group), None),
            (0o770, Some(group + 1), Some(Replaces::Writers)),
            (0o777, Some(group), Some(Replaces::Writers)),
            (0o1777, None, None),
        ] {
            assert_eq!(who_replaces(&stat(mode), user, trusted), expected, "{mode:o} {trusted:?}");
        }
        let of_another = (user != 0).then_some(Replaces::Owner(user));
        assert_eq!(who_replaces(&stat(0o700), user + 1, None), of_another);
    }
}
