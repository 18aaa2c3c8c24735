//! Places of the file system that a policy names.
//!
//! A place is resolved once, when the run is opened: each component of its path is opened by itself, so that
//! it is known which links were followed, and whether one of them lies where the project or a command can
//! write. The object that was found is held open for as long as the run works, so that no other object can get
//! its number. A process that enters a sandbox opens the path again without following any link, and compares
//! what it finds with that number: a handle from outside cannot be a place of a mount in a namespace of mounts
//! that was made later.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Flags by which an object is held without reading it; a link is held itself.
const HELD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The most links that a path may lead through, as the kernel has it.
const MOST_LINKS: usize = 40;

/// An object of the file system. The number of one that is held open is given to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    dev: u64,
    ino: u64,
}

impl Identity {
    /// Returns the identity of an open object.
    pub(super) fn of(handle: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&rustix::fs::fstat(handle)?))
    }
}

impl From<&Stat> for Identity {
    fn from(stat: &Stat) -> Self {
        Self { dev: stat.st_dev, ino: stat.st_ino }
    }
}

/// A path without links, and the object that it led to when it was resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    #[serde(serialize_with = "encode", deserialize_with = "decode")]
    path: PathBuf,
    /// Absent if any object at the path is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Identity>,
}

/// A path need not be UTF-8, and JSON is.
fn encode<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64_STANDARD.encode(path.as_os_str().as_bytes()))
}

fn decode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = BASE64_STANDARD.decode(text).map_err(de::Error::custom)?;
    Ok(OsString::from_vec(bytes).into())
}

impl<P: Into<PathBuf>> From<P> for Place {
    /// Returns the place of whatever is at a path.
    fn from(path: P) -> Self {
        Self { path: path.into(), id: None }
    }
}

impl Place {
    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the identity of the object; `None` if any object at the path is meant.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.id
    }

    /// Returns the place of whatever is at its path later.
    #[must_use]
    pub fn by_name(self) -> Self {
        Self { id: None, ..self }
    }

    /// Opens the place without following any link.
    ///
    /// # Errors
    /// Returns an error that names the path if nothing is there, a link lies on the way, or another
    /// object stands there than when the place was resolved.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        };
        let handle = without_links(&self.path).map_err(named)?;
        match self.id {
            Some(id) if Identity::of(&handle).map_err(named)? != id => {
                Err(named(io::Error::other("it was replaced by another one while the run works")))
            }
            _ => Ok(handle),
        }
    }
}

/// Opens an absolute path; a link on the way or at its end is an error.
pub(super) fn without_links(path: &Path) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        // The filters of some containers do not know this call.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
        opened => return Ok(opened?),
    }
    let mut handle = rustix::fs::open("/", HELD, Mode::empty())?;
    for part in path.components() {
        if let Component::Normal(name) = part {
            handle = beneath(handle.as_fd(), name)?;
            if is_link(&handle)? {
                return Err(rustix::io::Errno::LOOP.into());
            }
        }
    }
    Ok(handle)
}

/// Opens an entry of a folder; a link is opened itself.
pub(super) fn beneath(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(folder, name, HELD, Mode::empty())?)
}

/// Returns true if the object is a link.
pub(super) fn is_link(handle: impl AsFd) -> io::Result<bool> {
    kind(handle).map(|kind| kind == FileType::Symlink)
}

/// Returns what kind of object it is.
pub(super) fn kind(handle: impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode))
}

/// Objects that are held open, so that none of their numbers is given to another one.
#[derive(Clone, Debug, Default)]
pub struct Held(#[expect(dead_code, reason = "they are there to be open")] Arc<Vec<OwnedFd>>);

impl Held {
    /// Holds these objects.
    #[must_use]
    pub fn new(handles: Vec<OwnedFd>) -> Self {
        Self(Arc::new(handles))
    }
}

/// What holds the objects of a policy is no part of what it says.
impl PartialEq for Held {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Held {}

/// What a path led to.
#[derive(Debug)]
pub struct Resolved {
    /// The place.
    pub place: Place,
    /// The object.
    pub handle: OwnedFd,
    /// True if the object lies in a folder that is owned, or is one.
    pub is_owned: bool,
    /// The first link in an owned folder that the path led through.
    pub link: Option<PathBuf>,
}

/// Resolves an absolute path. `owned` are the folders in which the project or a command can write.
///
/// # Errors
/// Returns an error if nothing is there, or a folder on the way cannot be entered.
pub fn resolve(path: &Path, owned: &[Identity]) -> io::Result<Resolved> {
    let root = rustix::fs::open("/", HELD, Mode::empty())?;
    let is_owned = owned.contains(&Identity::of(&root)?);
    let mut way = vec![Step { handle: root, name: OsString::new(), is_owned }];
    let mut rest = parts(path);
    let (mut link, mut links) = (None, 0);
    while let Some(name) = rest.pop() {
        let Some(here) = way.last() else { break };
        if name == ".." {
            if way.len() > 1 {
                way.pop();
            }
            continue;
        }
        let handle = beneath(here.handle.as_fd(), &name)?;
        if is_link(&handle)? {
            links += 1;
            if links > MOST_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            if here.is_owned {
                link.get_or_insert_with(|| path_of(&way).join(&name));
            }
            let target = rustix::fs::readlinkat(&handle, "", Vec::new())?;
            let target = Path::new(OsStr::from_bytes(target.to_bytes())).to_owned();
            if target.is_absolute() {
                way.truncate(1);
            }
            rest.extend(parts(&target));
            continue;
        }
        let is_owned = here.is_owned || owned.contains(&Identity::of(&handle)?);
        way.push(Step { handle, name, is_owned });
    }
    let path = path_of(&way);
    let Some(end) = way.pop() else { return Err(io::ErrorKind::NotFound.into()) };
    let place = Place { path, id: Some(Identity::of(&end.handle)?) };
    Ok(Resolved { place, handle: end.handle, is_owned: end.is_owned, link })
}

/// A folder on the way to a place.
struct Step {
    handle: OwnedFd,
    name: OsString,
    is_owned: bool,
}

fn path_of(way: &[Step]) -> PathBuf {
    way.iter().fold(PathBuf::from("/"), |path, step| path.join(&step.name))
}

/// Returns the components of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn it_is_known_which_links_were_followed_and_where_they_lie() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["ws/bin", "home/tools"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for (link, to) in [
            ("ws/out", "../home/tools"),
            ("ws/whole", "/proc/self/root"),
            ("ws/in", "bin"),
            ("home/way", "../ws/out/.."),
            ("home/safe", "tools"),
            ("ws/loop", "loop"),
        ] {
            symlink(to, root.join(link)).unwrap();
        }
        let owned = [resolve(&root.join("ws"), &[]).unwrap().place.identity().unwrap()];
        // (path, the place, is it owned, the link in an owned folder)
        for (path, place, is_owned, link) in [
            ("ws", "ws", true, None),
            ("ws/bin", "ws/bin", true, None),
            ("ws/in/.", "ws/bin", true, Some("ws/in")),
            ("ws/out", "home/tools", false, Some("ws/out")),
            ("ws/bin/../../home", "home", false, None),
            ("home/way", "home", false, Some("ws/out")),
            ("home/safe", "home/tools", false, None),
        ] {
            let found = resolve(&root.join(path), &owned).unwrap();
            assert_eq!(found.place.path(), root.join(place), "{path}");
            assert_eq!(
                (found.is_owned, found.link),
                (is_owned, link.map(|link| root.join(link))),
                "{path}"
            );
        }
        for path in ["ws/missing", "ws/loop", "ws/bin/x/.."] {
            assert!(resolve(&root.join(path), &owned).is_err(), "{path}");
        }
    }

    #[test]
    fn a_place_is_the_object_that_it_was() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let folder = root.join(OsStr::from_bytes(b"a\xff"));
        fs::create_dir(&folder).unwrap();
        let found = resolve(&folder, &[]).unwrap();
        let text = serde_json::to_string(&found.place).unwrap();
        let place: Place = serde_json::from_str(&text).unwrap();
        assert_eq!(place, found.place);
        place.open().unwrap();
        fs::rename(&folder, root.join("moved")).unwrap();
        assert_eq!(place.open().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&folder).unwrap();
        let error = place.open().unwrap_err().to_string();
        assert!(error.contains("it was replaced"), "{error}");
        place.clone().by_name().open().unwrap();
        fs::remove_dir(&folder).unwrap();
        symlink("moved", &folder).unwrap();
        for place in [place.clone(), place.by_name()] {
            place.open().unwrap_err();
        }
    }
}
