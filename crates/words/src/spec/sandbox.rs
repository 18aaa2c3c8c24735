//! What commands may reach: the settings of `[sandbox]`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The files that commands may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Only a temporary folder of their own.
    ReadOnly,
    /// The workspace and the writable roots.
    #[default]
    WorkspaceWrite,
    /// All files of the user: there is no sandbox.
    DangerFullAccess,
}

impl fmt::Display for SandboxMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        })
    }
}

/// What an agent or a task is kept from, beside what the run is kept from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// True if it may write no files but temporary ones.
    pub read_only: bool,
    /// True if its commands have no network.
    pub offline: bool,
}

impl Confinement {
    /// Returns what both together are kept from.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let read_only = self.read_only || other.read_only;
        Self { read_only, offline: self.offline || other.offline }
    }
}

/// The settings of `[sandbox]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSpec {
    /// The files that commands may write.
    pub mode: SandboxMode,
    /// True if commands may use the whole network.
    pub network: bool,
    /// The hosts that commands may reach otherwise, as [`host_of`] writes them.
    pub hosts: Vec<String>,
    /// Folders that commands may write beside the workspace, and protected paths in it that they
    /// may write.
    pub writable_roots: Vec<PathBuf>,
    /// Folders and files that commands may read beside those of the system and of toolchains.
    pub readable_roots: Vec<PathBuf>,
    /// Names of environment variables that commands get beside the few that they always get.
    pub env: Vec<String>,
    /// True if nothing runs where the sandbox cannot be had, not even commands of the file.
    pub require: bool,
    /// What each process of a command may use.
    pub limits: CommandLimits,
}

/// What each process of a command may use. The defaults end what has run away, and no build or test that
/// is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLimits {
    /// Private memory that can be written, in bytes (`RLIMIT_DATA`). There is none by default: what
    /// AddressSanitizer reserves counts, 16 TiB. Address space (`RLIMIT_AS`) is no measure: Java, Go
    /// and Node reserve far more than they use.
    pub memory: Option<u64>,
    /// Size of a file in bytes. The default is above the largest layer that Amazon's registry of container
    /// images takes, 52,000 MiB.
    pub file_size: u64,
    /// Processor time. The default is what the longest job of GitHub's runners can use: 6 hours on 4
    /// processors.
    pub cpu_time: Duration,
    /// Processes and threads: a fork bomb ends, the tests of a large project do not reach the default.
    pub processes: u64,
    /// Open files. The default is the hard limit that systemd gives.
    pub open_files: u64,
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            memory: None,
            file_size: 64 << 30,
            cpu_time: Duration::from_hours(24),
            processes: 16_384,
            open_files: 524_288,
        }
    }
}

/// Returns the limit that ended a process with this exit code, in words for a person or a model; `None`
/// if it was none of those that send a signal.
#[must_use]
pub fn limit_passed(exit_code: i32) -> Option<&'static str> {
    // The numbers of the signals SIGXCPU and SIGXFSZ on Linux, as shells tell them.
    match exit_code {
        152 => Some("it used more processor time than `cpu_time` in `[sandbox.limits]` allows"),
        153 => Some("it wrote a larger file than `file_size` in `[sandbox.limits]` allows"),
        _ => None,
    }
}

/// Reads a host with its port: `name:port`, `1.2.3.4:port` or `[::1]:port`. Returns it in the form in which
/// hosts are compared: lower case, without a dot at the end; `None` if it is none.
#[must_use]
pub fn host_of(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    // A number may have a sign in Rust.
    let is_number = port.chars().all(|c| c.is_ascii_digit());
    let port: u16 = port.parse().ok().filter(|port| *port > 0 && is_number)?;
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address: std::net::Ipv6Addr = inner.parse().ok()?;
        return Some(format!("[{address}]:{port}"));
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // The longest name that the domain name system has.
    let fits = !host.is_empty() && host.len() <= 253 && host.chars().all(is_name);
    fits.then(|| format!("{host}:{port}"))
}

/// The sandbox of a run's commands, as a process in it found it when the run was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxProof {
    /// The mode that is wanted.
    pub mode: SandboxMode,
    /// True if commands may use the whole network.
    pub network: bool,
    /// The hosts that commands may reach otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The reason why there is no sandbox although one is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// True if protected paths are mounted read-only; otherwise nothing new can be made in a folder
    /// that holds one.
    #[serde(default)]
    pub namespaces: bool,
    /// True if commands have a process namespace: what one starts ends with its call.
    #[serde(default)]
    pub processes: bool,
    /// What the process tried and could not do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// What it could do although it should not: possible with older versions of Linux.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
}

impl SandboxProof {
    /// Returns a line for people if commands ran, or may run, without a sandbox.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let is_none = self.missing.is_some() || self.mode == SandboxMode::DangerFullAccess;
        is_none.then(|| format!("sandbox of commands: {self}"))
    }
}

impl fmt::Display for SandboxProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, network, hosts, missing, namespaces, processes, open, .. } = self;
        if let Some(reason) = missing {
            return match hosts.as_slice() {
                [] => write!(f, "none: {reason}"),
                _ => write!(f, "none, and a run does not start: {reason}"),
            };
        }
        if *mode == SandboxMode::DangerFullAccess {
            return write!(f, "none: a person turned it off (`{mode}`)");
        }
        let network = match (network, hosts.as_slice()) {
            (true, _) => "with network".to_owned(),
            (false, []) => "no network".to_owned(),
            (false, hosts) => format!("network only to {}", hosts.join(", ")),
        };
        write!(f, "{mode}, {network}")?;
        if !namespaces {
            write!(f, "; nothing new can be made beside a protected file")?;
        }
        if !processes {
            write!(f, "; what leaves its process group outlives its command")?;
        }
        if !open.is_empty() {
            write!(f, "; not kept by this kernel: {}", open.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_form() {
        for (text, host) in [
            ("crates.io:443", Some("crates.io:443")),
            ("Crates.IO.:0443", Some("crates.io:443")),
            ("my_host-1:1", Some("my_host-1:1")),
            ("127.0.0.1:65535", Some("127.0.0.1:65535")),
            ("[::0001]:1", Some("[::1]:1")),
            ("crates.io", None),
            ("crates.io:", None),
            ("crates.io:+80", None),
            ("crates.io:65536", None),
            (":443", None),
            (".:443", None),
            ("*.crates.io:443", None),
            ("https://crates.io:443", None),
            ("crates.io:443/x", None),
            ("u@crates.io:443", None),
            ("::1:443", None),
            ("[crates.io]:443", None),
            ("", None),
        ] {
            assert_eq!(host_of(text).as_deref(), host, "{text}");
        }
    }
}
