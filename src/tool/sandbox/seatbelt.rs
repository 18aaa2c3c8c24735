//! Writes a policy as a profile of macOS's sandbox, Seatbelt. Nobody has tried it on a machine yet, and
//! nothing uses it: the program runs on Linux only.

use std::path::Path;

use super::Policy;
use super::place::Place;

/// What every program needs there. Everything else is denied; of several rules that fit, the last one
/// counts.
const BEGINNING: &str = r#"(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal process-info* (target same-sandbox))
(allow sysctl-read)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow ipc-posix-sem)
(allow file-read-metadata)
(allow file-read* (literal "/"))
"#;

/// Files of the system, with the toolchains of Apple, Homebrew and Nix.
const SYSTEM: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/System",
    "/Library",
    "/private/etc",
    "/private/var/db/timezone",
    "/private/var/select",
    "/opt",
    "/nix",
];

/// Devices that hold nothing and change nothing, as on Linux.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

impl Policy {
    /// Returns the profile for `sandbox-exec -p`; `None` if a path is not UTF-8. Its paths must not lead
    /// through links: Seatbelt compares the real ones.
    #[must_use]
    pub fn seatbelt(&self) -> Option<String> {
        let mut profile = BEGINNING.to_owned();
        let mut rule = |rule: &str, filter: &str, path: &Path| {
            let path = path.to_str()?.replace('\\', r"\\").replace('"', "\\\"");
            profile.push_str(&format!("({rule} ({filter} \"{path}\"))\n"));
            Some(())
        };
        for path in SYSTEM.iter().map(Path::new).chain(self.read.iter().map(Place::path)) {
            rule("allow file-read*", "subpath", path)?;
        }
        for path in DEVICES {
            rule("allow file-read* file-write*", "literal", path.as_ref())?;
        }
        for path in self.write.iter().chain(&self.temporary) {
            rule("allow file-read* file-write*", "subpath", path.path())?;
        }
        let pinned = self.pinned.iter().map(|place| (place.path(), "file-write-unlink", "literal"));
        let kept = self.protected.iter().map(|place| (place.path(), "file-write*", "subpath"));
        for (path, kind, filter) in kept.chain(pinned) {
            rule(&format!("deny {kind}"), filter, path)?;
            // A folder on the way to it could be renamed otherwise, and another put in its place.
            let is_below = |above: &&Path| {
                let roots = || self.write.iter().map(Place::path);
                roots().any(|root| above.starts_with(root) && root != *above)
            };
            for above in path.ancestors().skip(1).take_while(is_below) {
                rule("deny file-write-unlink", "literal", above)?;
            }
        }
        // Single hosts need a proxy, which has none there.
        if self.network {
            profile.push_str("(allow network* system-socket)\n");
        }
        Some(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_says_what_the_policy_says() {
        let policy = Policy {
            read: vec!["/Users/a/.cargo/bin".into()],
            write: vec!["/w".into(), r#"/a "b" \c"#.into()],
            protected: vec!["/w/agents.toml".into(), "/w/.git/hooks".into()],
            temporary: Some("/private/tmp/t".into()),
            ..Policy::default()
        };
        let own = policy.seatbelt().expect("all is UTF-8");
        let (_, own) =
            own.split_once("(allow file-read* (subpath \"/nix\"))\n").expect("the system");
        assert_eq!(
            own,
            r#"(allow file-read* (subpath "/Users/a/.cargo/bin"))
(allow file-read* file-write* (literal "/dev/null"))
(allow file-read* file-write* (literal "/dev/zero"))
(allow file-read* file-write* (literal "/dev/random"))
(allow file-read* file-write* (literal "/dev/urandom"))
(allow file-read* file-write* (subpath "/w"))
(allow file-read* file-write* (subpath "/a \"b\" \\c"))
(allow file-read* file-write* (subpath "/private/tmp/t"))
(deny file-write* (subpath "/w/agents.toml"))
(deny file-write* (subpath "/w/.git/hooks"))
(deny file-write-unlink (literal "/w/.git"))
"#
        );
        let open = Policy { network: true, ..Policy::default() }.seatbelt().expect("all is UTF-8");
        assert!(open.starts_with(BEGINNING) && open.ends_with("(allow network* system-socket)\n"));
    }

    #[test]
    fn a_path_that_is_not_utf_8_has_no_profile() {
        use std::os::unix::ffi::OsStringExt;
        use std::path::PathBuf;
        let path = std::ffi::OsString::from_vec(b"/\xff".to_vec());
        assert_eq!(
            Policy { write: vec![PathBuf::from(path).into()], ..Policy::default() }.seatbelt(),
            None
        );
    }
}
