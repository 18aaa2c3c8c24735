//! Tells a sandbox that could not be tried from one that does not hold. Only the second is a reason for fewer
//! namespaces, or for none.
//!
//! Another user can fill a shared disk, the table of processes or the memory. What fails for such a reason
//! says nothing about the kernel, so only the errors by which a kernel refuses count as its answer.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::Failure;
use crate::tool::process_capacity;

/// Exit code of a probe that could not be made. The number of the error stands on stdout, and the reason
/// on stderr.
pub(super) const UNTRIED: i32 = 124;

/// A sandbox could not be tried: nothing is known about this machine.
#[derive(Debug)]
pub struct Untried {
    /// The folder that could not be used.
    place: Option<PathBuf>,
    error: io::Error,
}

impl Untried {
    /// Returns what an error in a folder means.
    pub(super) fn at(place: &Path, error: io::Error) -> Self {
        Self { place: Some(place.to_owned()), error }
    }

    /// Returns true if the error may be over soon.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        !is_answer(&self.error) && self.error.kind() != ErrorKind::ReadOnlyFilesystem
    }
}

impl From<io::Error> for Untried {
    fn from(error: io::Error) -> Self {
        Self { place: None, error }
    }
}

impl fmt::Display for Untried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, error } = self;
        let Some(place) = place.as_deref().map(Path::display) else {
            return write!(f, "{error}; try again when the machine has room");
        };
        match is_full(error) {
            true => write!(
                f,
                "{place}: {error}; free space there, or set TMPDIR to a folder with space"
            ),
            false => {
                write!(f, "{place}: {error}; make it writable, or set TMPDIR to another folder")
            }
        }
    }
}

impl Error for Untried {}

/// Why a sandbox was not proved.
#[derive(Debug)]
pub(super) enum Unproved {
    /// It does not hold, or the kernel refuses it, for this reason.
    Wall(String),
    /// It could not be tried.
    Untried(Untried),
}

impl From<io::Error> for Unproved {
    fn from(error: io::Error) -> Self {
        Self::Untried(error.into())
    }
}

/// An error with what it is about. Other than in a text, its cause can still be found.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub(super) struct About {
    what: String,
    source: Failure,
}

/// Says what an error is about.
pub(super) fn about(what: impl Into<String>, source: impl Into<Failure>) -> Failure {
    Failure::from(About { what: what.into(), source: source.into() })
}

/// Returns true if no space is left.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Returns true if a kernel refuses by such an error. Others say that something is used up or broken now.
fn is_answer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidInput
            | ErrorKind::ArgumentListTooLong
            | ErrorKind::Unsupported
    )
}

/// Returns an error if the one of an attempt says nothing about the wall; else true if the attempt failed.
pub(super) fn is_refused<T>(attempt: io::Result<T>) -> io::Result<bool> {
    /// EIO, ELOOP and ENOBUFS.
    const BROKEN: [i32; 3] = [5, 40, 105];
    match attempt {
        Ok(_) => Ok(false),
        Err(error)
            if is_full(&error)
                || process_capacity::is_passing(&error)
                || error.kind() == ErrorKind::Interrupted
                || error.raw_os_error().is_some_and(|number| BROKEN.contains(&number)) =>
        {
            Err(error)
        }
        Err(_) => Ok(true),
    }
}

/// Returns the error of a kernel that makes no namespaces. Their numbers are limited (`user.max_user_namespaces`),
/// and the kernel then says that there is no space: that is its answer too.
pub(super) fn no_namespaces(error: Errno) -> io::Error {
    match error {
        Errno::EPERM
        | Errno::EACCES
        | Errno::ENOSYS
        | Errno::EINVAL
        | Errno::ENOSPC
        | Errno::EUSERS => {
            io::Error::new(ErrorKind::Unsupported, format!("no namespaces: {error}"))
        }
        error => error.into(),
    }
}

/// Returns the error of the system behind an error, with its number if that is known.
fn cause(error: &(dyn Error + 'static)) -> Option<io::Error> {
    let (mut kind, mut next) = (None, Some(error));
    while let Some(error) = next {
        next = error.source();
        if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.raw_os_error() {
                Some(number) => return Some(io::Error::from_raw_os_error(number)),
                None => kind = kind.or(Some(error.kind())),
            }
        } else if let Some(error) = error.downcast_ref::<rustix::io::Errno>() {
            return Some((*error).into());
        } else if let Some(error) = error.downcast_ref::<Errno>() {
            return Some((*error).into());
        }
    }
    kind.map(io::Error::from)
}

/// Returns the error of the system for which a sandbox could not be tried; `None` if the kernel refuses it.
pub(super) fn untried(error: &(dyn Error + 'static)) -> Option<io::Error> {
    cause(error).filter(|cause| !is_answer(cause))
}

/// Reads what a probe printed that ended with [`UNTRIED`].
pub(super) fn heard(number: &[u8], said: &str, temporary: Option<&Path>) -> Untried {
    let number = std::str::from_utf8(number).ok().and_then(|text| text.trim().parse().ok());
    let kind = io::Error::from_raw_os_error(number.unwrap_or_default()).kind();
    let error = io::Error::new(kind, said.to_owned());
    // Nothing else of a disk is written in a sandbox.
    let place = temporary.filter(|_| is_full(&error)).map(Path::to_owned);
    Untried { place, error }
}

#[cfg(test)]
mod tests {
    use super::super::NOT_ENTERED;
    use super::*;

    fn code(error: impl Into<Failure>) -> i32 {
        if untried(&*error.into()).is_some() { UNTRIED } else { NOT_ENTERED }
    }

    #[test]
    fn what_is_used_up_is_no_answer_of_the_kernel() {
        // EIO, EAGAIN, ENOMEM, EBUSY, ENFILE, EMFILE, ENOSPC, EROFS, ELOOP, ENOBUFS, EDQUOT, EINTR
        for number in [5, 11, 12, 16, 23, 24, 28, 30, 40, 105, 122, 4] {
            let error = || io::Error::from_raw_os_error(number);
            assert_eq!(code(error()), UNTRIED, "{}", error());
            assert_eq!(code(about("a place", error())), UNTRIED, "{}", error());
            let named = io::Error::new(error().kind(), "a place");
            assert_eq!(code(about("around", named)), UNTRIED, "{}", error());
            assert_eq!(code(rustix::io::Errno::from_raw_os_error(number)), UNTRIED);
            assert_eq!(code(Errno::from_raw(number)), UNTRIED);
        }
        // EPERM, ENOENT, E2BIG, EACCES, EINVAL, ENOSYS, EOPNOTSUPP
        for number in [1, 2, 7, 13, 22, 38, 95] {
            assert_eq!(code(io::Error::from_raw_os_error(number)), NOT_ENTERED, "{number}");
        }
        assert_eq!(code("a text"), NOT_ENTERED);
    }

    #[test]
    fn a_limit_of_namespaces_is_an_answer_and_no_room_for_them_is_none() {
        for error in [Errno::ENOSPC, Errno::EUSERS, Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
            assert_eq!(code(no_namespaces(error)), NOT_ENTERED, "{error}");
        }
        for error in [Errno::ENOMEM, Errno::EAGAIN, Errno::EMFILE, Errno::ENFILE, Errno::EINTR] {
            assert_eq!(code(no_namespaces(error)), UNTRIED, "{error}");
        }
    }

    #[test]
    fn an_attempt_that_had_no_room_is_no_refusal() {
        let of = |number| is_refused(Err::<(), _>(io::Error::from_raw_os_error(number)));
        for number in [5, 11, 12, 23, 24, 28, 40, 122] {
            assert!(of(number).is_err(), "{number}");
        }
        for number in [1, 2, 3, 13, 101, 111] {
            assert!(of(number).unwrap(), "{number}");
        }
        assert!(!is_refused(Ok(())).unwrap());
    }

    #[test]
    fn the_place_is_named_with_what_to_do() {
        let place = Path::new("/full");
        let full = heard(b"28\n", "no room", Some(place));
        assert_eq!(
            full.to_string(),
            "/full: no room; free space there, or set TMPDIR to a folder with space"
        );
        assert!(full.may_pass());
        let closed = Untried::at(place, io::Error::from_raw_os_error(13));
        assert!(closed.to_string().contains("make it writable") && !closed.may_pass(), "{closed}");
        let machine = heard(b"24\n", "too many open files", Some(place));
        assert!(machine.to_string().ends_with("when the machine has room"), "{machine}");
        assert!(heard(b"junk", "a reason", None).to_string().starts_with("a reason"));
    }
}
