//! Disks: tells the errors of full ones from others and paces the wait for space; opens files that anybody may
//! have put there; makes files durable.
//!
//! Holds no state. The journal and the result store both wait by these functions.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::signal::unix::{SignalKind, signal};

/// First pause between two checks of a full disk; each pause is twice as long as the one before.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(1);

/// Longest pause between two checks: short for a person who has just made space.
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The rights of a file of this program: its owner's alone.
const PRIVATE: u32 = 0o600;

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
/// space. It takes the place of one of this name.
pub fn file_of(path: &Path, bytes: u64) -> io::Result<File> {
    let mut file = make_anew(path)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            io::copy(&mut io::repeat(0).take(bytes), &mut file)?;
            sync_data(&file)?;
            file.rewind()?;
        }
        other => other?,
    }
    Ok(file)
}

/// Makes an empty file for writing, which only its owner can read, in the place of one of this name: that one
/// may be a link, or have another name too, and is not written through.
pub fn make_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)
}

/// Makes a write past the process's limit of the file size return an error; by default the system
/// ends the process. The change lasts for the life of the process.
///
/// # Errors
/// Returns an error if the signal handler cannot be installed.
pub fn outlive_file_limits() -> io::Result<()> {
    // The handler stays installed after the stream of its signals is dropped.
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// The most bytes of a text that is read whole.
const MOST_TEXT: u64 = 256 << 20;

/// The longest line that is read.
const LONGEST_LINE: u64 = 256 << 20;

/// Opens a file of this program that anybody may have put there, for reading. Whatever is no file is an
/// error: a named pipe would wait for a writer for ever, and a link, also one in the place of the folder that
/// holds the file, is never made by this program and may lead anywhere.
pub fn open(path: &Path) -> io::Result<File> {
    opened_in_place(path, OFlags::RDONLY)
}

/// Does the same for reading and writing, and makes the file with [`OFlags::CREATE`]. Nothing is cut or written
/// yet. A file that has another name too is an error: what is written would change a file that lies elsewhere.
pub fn open_to_write(path: &Path, more: OFlags) -> io::Result<File> {
    let file = opened_in_place(path, OFlags::RDWR | more)?;
    match file.metadata()?.nlink() {
        0 | 1 => Ok(file),
        names => Err(io::Error::new(io::ErrorKind::InvalidInput, other_names(names))),
    }
}

/// Returns why a file with so many names is not written.
pub(crate) fn other_names(names: u64) -> String {
    format!(
        "it has {} other name(s) (hard links), which would be written too; put a copy in its place",
        names - 1
    )
}

/// Opens a file of a folder, neither of which is a link.
fn opened_in_place(path: &Path, flags: OFlags) -> io::Result<File> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let of_folder = TO_PASS | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder =
        rustix::fs::open(folder, of_folder, Mode::empty()).map_err(|error| {
            match folder.is_symlink() {
                true => invalid("its folder is a link"),
                false => error.into(),
            }
        })?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | ALWAYS;
    match rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(PRIVATE)) {
        Ok(file) => only_a_file(file.into()),
        Err(rustix::io::Errno::LOOP) => Err(invalid("it is a link")),
        Err(rustix::io::Errno::ISDIR) => Err(invalid("it is not a file")),
        Err(error) => Err(error.into()),
    }
}

/// Never waits for the other end of a pipe, and takes no terminal.
const ALWAYS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// Opens a folder only to go on from it, which needs no right to read it where the system has such a thing.
#[cfg(target_os = "linux")]
const TO_PASS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const TO_PASS: OFlags = OFlags::RDONLY;

fn only_a_file(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(invalid("it is not a file")),
    }
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// Reads a text from a file of this program that anybody may have put there.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    read_text_within(path, MOST_TEXT)
}

/// Does the same as [`read_text`] for a text that has at most so many bytes.
pub(crate) fn read_text_within(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    within(open(path)?, most)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Returns a reader of a file that ends after `most` bytes; a file that is larger now is an error.
pub fn within(file: File, most: u64) -> io::Result<impl Read> {
    match file.metadata()?.len() > most {
        true => {
            let reason = format!("it is larger than {most} bytes, which such a file never is");
            Err(io::Error::new(io::ErrorKind::InvalidData, reason))
        }
        false => Ok(file.take(most)),
    }
}

/// Appends the next line to `line`, with its end. Returns the number of its bytes, 0 at the end of the
/// input. A line without an end for so long is an error: it would fill the memory.
pub fn read_line(input: &mut (impl BufRead + ?Sized), line: &mut Vec<u8>) -> io::Result<usize> {
    read_line_of(input, line, LONGEST_LINE)
}

fn read_line_of(
    mut input: &mut (impl BufRead + ?Sized),
    line: &mut Vec<u8>,
    most: u64,
) -> io::Result<usize> {
    let read = (&mut input).take(most).read_until(b'\n', line)?;
    match read as u64 == most && !line.ends_with(b"\n") {
        true => {
            let reason = format!("a line is longer than {most} bytes, which no record is");
            Err(io::Error::new(io::ErrorKind::InvalidData, reason))
        }
        false => Ok(read),
    }
}

/// Reads a text of at most so many bytes from a file of the system, which may be a link.
pub fn read_text_of(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let file =
        OpenOptions::new().read(true).custom_flags(ALWAYS.bits().cast_signed()).open(path)?;
    only_a_file(file)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// A file for reading whose errors name it.
#[derive(Debug)]
pub(crate) struct NamedFile {
    file: File,
    path: PathBuf,
}

impl NamedFile {
    /// Opens a file that anybody may have put there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: open(path)?, path: path.to_owned() })
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.named(self.file.metadata())
    }

    fn named<T>(&self, made: io::Result<T>) -> io::Result<T> {
        made.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot read {}: {error}", self.path.display()))
        })
    }
}

impl Read for NamedFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(bytes);
        self.named(read)
    }
}

impl Seek for NamedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let sought = self.file.seek(to);
        self.named(sought)
    }
}

/// The most times in a row that a call is made again because a signal interrupted it. No signal comes so
/// often; a file system that says so for ever is one that fails.
const MOST_INTERRUPTIONS: usize = 100;

/// Makes a call of the system again while it is interrupted by signals, within bounds.
pub(crate) fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let is_interrupted = |made: &io::Result<T>| {
        made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
    };
    let mut tries = std::iter::repeat_with(&mut call).take(MOST_INTERRUPTIONS);
    tries.find(|made| !is_interrupted(made)).unwrap_or_else(call)
}

/// Writes all of the bytes.
pub fn write_all(file: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match retried(|| file.write(bytes))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Makes the content and the metadata of a file or a folder durable.
// The functions here stand in place of those of the standard library, which make an interrupted call again
// for ever.
pub fn sync(file: impl AsFd) -> io::Result<()> {
    #[cfg(target_vendor = "apple")]
    let sync = |file| rustix::fs::fcntl_fullfsync(file);
    #[cfg(not(target_vendor = "apple"))]
    let sync = |file| rustix::fs::fsync(file);
    retried(|| Ok(sync(file.as_fd())?))
}

/// Makes the content of a file durable.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    #[cfg(target_vendor = "apple")]
    return sync(file);
    #[cfg(not(target_vendor = "apple"))]
    retried(|| Ok(rustix::fs::fdatasync(file)?))
}

/// Returns true if an error says that the disk has no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_interrupted_so_often_and_no_more() {
        let call = |interruptions: usize| {
            let mut made = 0;
            let done = retried(|| {
                made += 1;
                let is_done = made > interruptions;
                is_done.then_some(made).ok_or_else(|| io::ErrorKind::Interrupted.into())
            });
            (done.ok(), made)
        };
        assert_eq!(call(0), (Some(1), 1));
        assert_eq!(
            call(MOST_INTERRUPTIONS),
            (Some(MOST_INTERRUPTIONS + 1), MOST_INTERRUPTIONS + 1)
        );
        assert_eq!(call(usize::MAX), (None, MOST_INTERRUPTIONS + 1));
        struct Odd(Vec<u8>);
        impl Write for Odd {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let is_full = self.0.len() >= 7;
                let part = if is_full { &[] } else { &bytes[..bytes.len().min(3)] };
                self.0.extend(part);
                if is_full { Err(io::ErrorKind::Interrupted.into()) } else { Ok(part.len()) }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut file = Odd(Vec::new());
        write_all(&mut file, b"1234567").unwrap();
        assert_eq!(file.0, b"1234567");
        assert_eq!(write_all(&mut file, b"8").unwrap_err().kind(), io::ErrorKind::Interrupted);
        let other = retried(|| Err::<(), _>(io::ErrorKind::NotFound.into()));
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        for path in [root.path(), &pipe, Path::new("/dev/zero")] {
            let error = open(path).unwrap_err().to_string();
            assert_eq!(error, "it is not a file", "{}", path.display());
        }
        let error = open_to_write(&pipe, OFlags::APPEND).unwrap_err().to_string();
        assert_eq!(error, "it is not a file");
        let (file, link) = (root.path().join("file"), root.path().join("link"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(open(&link).unwrap_err().to_string(), "it is a link");
        assert_eq!(read_text_of(&link, 10).unwrap(), "x");
        let (folder, inner) = (root.path().join("folder"), root.path().join("folder/file"));
        std::os::unix::fs::symlink(root.path(), &folder).unwrap();
        assert_eq!(open(&inner).unwrap_err().to_string(), "its folder is a link");
        let other = root.path().join("other");
        std::fs::hard_link(&file, &other).unwrap();
        let error = open_to_write(&file, OFlags::APPEND).unwrap_err().to_string();
        assert!(error.starts_with("it has 1 other name(s)"), "{error}");
        drop(file_of(&other, 1).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
        drop(open_to_write(&file, OFlags::APPEND).unwrap());
        let large = File::create(root.path().join("large")).unwrap();
        large.set_len(100 << 30).unwrap();
        let error = read_text(&root.path().join("large")).unwrap_err().to_string();
        assert_eq!(error, "it is larger than 268435456 bytes, which such a file never is");
        assert_eq!(read_text(&root.path().join("file")).unwrap(), "x");
    }

    #[test]
    fn a_line_is_read_up_to_its_bound() {
        let (mut input, mut line) = (&b"one\nfour\nlonger"[..], Vec::new());
        for wanted in [4, 5] {
            line.clear();
            assert_eq!(read_line_of(&mut input, &mut line, 5).unwrap(), wanted);
        }
        let error = read_line_of(&mut input, &mut line, 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_line(&mut &b"end"[..], &mut line).unwrap(), 3);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_error_of_a_file_names_it() {
        // Nobody may read the first page of a process.
        let path = PathBuf::from(format!("/proc/{}/mem", std::process::id()));
        let error = NamedFile::open(&path).unwrap().read(&mut [0; 8]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read {}: ", path.display())), "{error}");
    }

    #[test]
    fn the_pauses_grow_to_a_second() {
        let pauses: Vec<_> = pauses().take(20).collect();
        assert_eq!(pauses[0], FIRST_LOOK);
        assert!(pauses.windows(2).all(|two| two[0] <= two[1]));
        assert_eq!(pauses[19], LONGEST_LOOK);
    }
}
