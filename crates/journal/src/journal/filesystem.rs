//! The check of the file system that a run's records lie on.
//!
//! A run relies on a lock that only one process can hold, on syncs that make data durable, and on
//! atomic renames. A network file system, or one that another program serves, guarantees none of
//! these, and a run would break there without a sign. So such a file system is refused before a run
//! is created there.

use std::io;
use std::path::Path;

use crate::journal::JournalError;

/// The file system types that are refused: the `f_type` of statfs(2) and the common name. Programs
/// behind FUSE and 9P may serve local files, but the type does not tell. File systems of shared
/// disks that coordinate locks themselves (GFS2, OCFS2) are not refused.
const REFUSED: [(u32, &str); 17] = [
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564c, "NCP"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786f_4256, "a VirtualBox shared folder"),
    (0xbacb_acbc, "a VMware shared folder"),
    (0x7c7c_6673, "a Parallels shared folder"),
];

/// Returns the name of a file system of this type if a run may not lie on it.
#[must_use]
pub fn refused(f_type: u32) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == f_type).map(|(_, name)| *name)
}

/// Checks the file system of `path` or, if that does not exist, of its nearest existing ancestor.
///
/// # Errors
/// Returns an error if a run may not lie on that file system, or if its type cannot be read.
pub fn check(path: &Path) -> Result<(), JournalError> {
    let absolute = std::path::absolute(path);
    let absolute = absolute.map_err(|error| JournalError::cannot("find", path, &error))?;
    for above in absolute.ancestors() {
        match rustix::fs::statfs(above).map_err(io::Error::from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(JournalError::cannot("look at", above, &error)),
            // The type is a number of 32 bits, whatever the width and sign of the field.
            Ok(found) => match refused(found.f_type as u32) {
                Some(kind) => return Err(JournalError::NotLocal { path: path.into(), kind }),
                None => return Ok(()),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_file_systems_are_accepted_and_others_named() {
        // ext4, XFS, Btrfs, tmpfs, overlay, ZFS, F2FS, bcachefs.
        for local in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x794c_7630,
            0x2fc1_2fc1,
            0xf2f5_2010,
            0xca45_1a4e,
        ] {
            assert_eq!(refused(local), None, "{local:x}");
        }
        assert_eq!(refused(0x6969), Some("NFS"));
        assert_eq!(refused(0x6573_5546), Some("FUSE"));
        assert_eq!(refused(0xff53_4d42_u32), Some("CIFS"));
        let mut types = REFUSED.map(|(f_type, _)| f_type);
        types.sort_unstable();
        assert!(types.windows(2).all(|two| two[0] < two[1]), "each stands once");
    }

    #[test]
    fn a_folder_that_is_to_be_made_lies_where_the_one_above_it_does() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(check(root.path()), Ok(()));
        assert_eq!(check(&root.path().join("not/yet/there")), Ok(()));
        std::fs::write(root.path().join("file"), "").unwrap();
        assert!(matches!(check(&root.path().join("file/below")), Err(JournalError::Io(_))));
    }

    #[test]
    fn the_reason_says_what_to_do() {
        let error = JournalError::NotLocal { path: "/net/runs".into(), kind: "NFS" };
        let text = error.to_string();
        assert!(text.starts_with("/net/runs is on NFS") && text.contains("--state-dir"), "{text}");
    }
}
