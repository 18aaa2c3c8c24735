//! A full disk: how its errors are told from others, and how a program waits for space.
//!
//! Holds no state. The journal and the result store wait alike, and by this.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// The first pause between two looks at a full disk; each is twice as long as the one before.
pub const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The longest pause between two looks: soon enough for whoever has just made room.
pub const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The pause after this one: twice as long, up to [`LONGEST_LOOK`].
#[must_use]
pub fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_LOOK)
}

/// The pauses of one that waits for a full disk by trying again.
pub fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_LOOK), |pause| Some(longer(*pause)))
}

/// Makes a file that really takes up this much of the disk. What is written over it finds room.
pub fn file_of(path: &Path, bytes: u64) -> io::Result<File> {
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

/// Makes a file that may not grow an error of the write, which is answered, and not the end of the
/// process. Once asked for, it stays so.
///
/// # Errors
/// When the signal cannot be heard.
pub fn outlive_file_limits() -> io::Result<()> {
    // A handler that was set stays, also when nobody listens.
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// Whether an error says that the disk has no room.
pub fn is_full(error: &io::Error) -> bool {
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
