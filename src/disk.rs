//! Full disks: tells their errors from others, and paces the wait for space.
//!
//! Holds no state. The journal and the result store both wait by these functions.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// First pause between two checks of a full disk; each pause is twice as long as the one before.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(1);

/// Longest pause between two checks: short for a person who has just made space.
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Returns the pause after this one: twice as long, up to [`LONGEST_LOOK`].
#[must_use]
pub(crate) fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_LOOK)
}

/// Returns the pauses between the tries of a writer that waits on a full disk.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_LOOK), |pause| Some(longer(*pause)))
}

/// Makes a file that really takes up this many bytes of the disk, so that writing over it finds
/// space.
pub(crate) fn file_of(path: &Path, bytes: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            io::copy(&mut io::repeat(0).take(bytes), &mut file)?;
            file.sync_data()?;
            file.rewind()?;
        }
        other => other?,
    }
    Ok(file)
}

/// Makes a write past the process's limit of the file size return an error; by default the system
/// ends the process. The change lasts for the life of the process.
///
/// # Errors
/// Returns an error if the signal handler cannot be installed.
pub(crate) fn outlive_file_limits() -> io::Result<()> {
    // The handler stays installed after the stream of its signals is dropped.
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// Returns true if an error says that the disk has no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_to_a_second() {
        let pauses: Vec<_> = pauses().take(20).collect();
        assert_eq!(pauses[0], FIRST_LOOK);
        assert!(pauses.windows(2).all(|two| two[0] <= two[1]));
        assert_eq!(pauses[19], LONGEST_LOOK);
    }
}
