//! What a decision on a call rests on: where its path leads, what lies there, and the files that it runs.
//!
//! A rule or a person decided by these. A call that finds others by then does nothing: what was allowed is
//! what happens.

use serde::{Deserialize, Serialize};

use super::ToolError;

/// The most digits of a hash that a person is shown.
const SHOWN_DIGITS: usize = 12;

/// What a decision rests on. The default binds a call to nothing: no rule looked at it, and nobody was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// The place to which the path of the call leads, as rules name it.
    pub place: Option<String>,
    /// The content of the file that a person was shown, or that its agent knows.
    pub before: Before,
    /// The files of the workspace that the command runs; `None` if nobody was shown them.
    pub scripts: Option<Vec<Script>>,
}

/// The content of a file before a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Before {
    /// Whatever it is.
    #[default]
    Any,
    /// There is no such file.
    Absent,
    /// blake3 hash of the content in hexadecimal.
    Hash(String),
}

/// A file that a command runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Script {
    /// Its path, as rules name it.
    pub path: String,
    /// blake3 hash of its content in hexadecimal.
    pub hash: String,
}

impl Script {
    /// Returns the part of the hash that a person is shown.
    #[must_use]
    pub fn short_hash(&self) -> &str {
        self.hash.get(..SHOWN_DIGITS).unwrap_or(&self.hash)
    }
}

impl Basis {
    /// Refuses a path that leads elsewhere by now.
    ///
    /// # Errors
    /// Returns an error that names both places.
    pub fn agree(&self, text: &str, now: &str) -> Result<(), ToolError> {
        match &self.place {
            Some(place) if place != now => Err(ToolError::Failed(format!(
                "`{text}` leads to `{now}` now, and to `{place}` when it was decided whether the call may \
                 run; nothing was done. Make the call again if it is still right"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a command whose files are other ones by now.
    ///
    /// # Errors
    /// Returns an error that names the first difference.
    pub fn same_scripts(&self, now: &[Script]) -> Result<(), ToolError> {
        let Some(before) = self.scripts.as_deref().filter(|before| *before != now) else {
            return Ok(());
        };
        let differs = |one: &[Script], other: &[Script]| {
            one.iter().find(|script| !other.contains(script)).map(|script| script.path.clone())
        };
        let path = differs(now, before).or_else(|| differs(before, now)).unwrap_or_default();
        Err(ToolError::Failed(format!(
            "`{path}` was changed after a person was asked; the command was not run. Make the call again: \
             the person is asked about the file as it is then"
        )))
    }
}

impl Before {
    /// Refuses to replace another content than this.
    ///
    /// # Errors
    /// Returns an error if the content has changed.
    pub fn agree(&self, text: &str, now: &Self) -> Result<(), ToolError> {
        if *self == Self::Any || self == now {
            return Ok(());
        }
        Err(ToolError::Changed(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_named() {
        let script =
            |path: &str, hash: &str| Script { path: path.to_owned(), hash: hash.to_owned() };
        let scripts = Some(vec![script("a.sh", "1"), script("b.sh", "2")]);
        let basis = Basis { place: Some("docs/x".to_owned()), scripts, ..Basis::default() };
        assert!(basis.agree("docs/x", "docs/x").is_ok());
        let moved = basis.agree("docs/x", "src/x").unwrap_err().to_string();
        assert!(moved.contains("`docs/x` leads to `src/x` now"), "{moved}");
        let (a, b) = (script("a.sh", "1"), script("b.sh", "2"));
        for (now, path) in [
            (vec![a.clone(), b.clone()], None),
            (vec![a.clone(), script("b.sh", "3")], Some("b.sh")),
            (vec![a.clone()], Some("b.sh")),
            (vec![a, b, script("c.sh", "4")], Some("c.sh")),
        ] {
            let told = basis.same_scripts(&now).err().map(|error| error.to_string());
            let starts = path.map(|path| format!("`{path}` was changed"));
            assert_eq!(told.is_some(), starts.is_some(), "{now:?}");
            assert!(told.unwrap_or_default().starts_with(&starts.unwrap_or_default()));
        }
        assert!(Basis::default().same_scripts(&[script("x", "1")]).is_ok());
        let hash = Before::Hash("1".to_owned());
        assert!(Before::Any.agree("f", &hash).is_ok() && hash.agree("f", &hash).is_ok());
        assert!(
            hash.agree("f", &Before::Absent).is_err() && Before::Absent.agree("f", &hash).is_err()
        );
        assert_eq!(script("a", &"7".repeat(64)).short_hash().len(), SHOWN_DIGITS);
    }
}
