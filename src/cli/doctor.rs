//! `doctor`: says what this machine gives to a run, and what hinders one.
//!
//! It looks and reads: it makes no run, calls no model and prints no value of a variable.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::locate::Project;
use super::{args, say, say_json, threads, version};
use crate::config::{self, Missing, Sources};
use crate::exit::Exit;
use crate::journal::{filesystem, line};
use crate::printable;
use crate::run::sandbox;
use crate::spec::sandbox::SandboxMode;
use crate::tool::wrapper::Wrapper;
use crate::trust::Store;

/// The oldest Linux whose kernel has all that the sandbox needs: Landlock's right to truncate (6.2).
const LEAST_LINUX: (u32, u32) = (6, 2);

/// Space below which a run is likely to pause soon: many times the reserve of a run (64 MiB), and little for
/// what agents and their tools write.
const LITTLE_SPACE: u64 = 1 << 30;

/// Space without which a run does not begin well: the largest reserve that a run sets aside.
const NO_SPACE: u64 = 64 << 20;

/// A configuration that runs a command.
const COMMAND: &str = "version = 1\n[tasks.probe]\nrun = 'true'\n";

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    /// Runs work, but not everything does.
    Warning,
    /// It hinders runs.
    Error,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A row: what was looked at, what was found, and what a person can do about it.
struct Row {
    check: &'static str,
    state: State,
    message: String,
    help: Option<String>,
}

impl Row {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, state: State::Ok, message: message.into(), help: None }
    }

    fn not(
        check: &'static str,
        state: State,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { check, state, message: message.into(), help: Some(help.into()) }
    }
}

pub(super) fn run(project: &Project, verb: &args::Doctor) -> Exit {
    let mut rows =
        vec![versions(), kernel(), user_namespaces(), probe(project), wrapper(), limits()];
    rows.extend(disks(project));
    rows.push(keys(&project.sources()));
    let hinders = rows.iter().any(|row| row.state == State::Error);
    let printed = match verb.json {
        true => say_json(&format!("{}\n", document(&rows, !hinders))),
        false => say(&table(&rows, hinders)),
    };
    match printed {
        Exit::Done if hinders => Exit::Failed,
        exit => exit,
    }
}

fn document(rows: &[Row], ok: bool) -> serde_json::Value {
    let row = |Row { check, state, message, help }: &Row| {
        let state = state.word();
        json!({ "check": check, "state": state, "message": message, "help": help })
    };
    json!({ "ok": ok, "checks": rows.iter().map(row).collect::<Vec<_>>() })
}

fn table(rows: &[Row], hinders: bool) -> String {
    let width = rows.iter().map(|row| row.check.len()).max().unwrap_or_default();
    let mut text = String::new();
    for Row { check, state, message, help } in rows {
        let message = printable::line(message);
        text.push_str(&format!("{:<7}  {check:<width$}  {message}\n", state.word()));
        if let Some(help) = help {
            text.push_str(&format!("{:<7}  {:<width$}  help: {}\n", "", "", printable::line(help)));
        }
    }
    text.push_str(match hinders {
        true => "\nsomething hinders runs on this machine\n",
        false => "\nnothing hinders runs on this machine\n",
    });
    text
}

fn versions() -> Row {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let (file, journal) = (config::VERSION, line::FORMAT);
    let program = version::PROGRAM;
    Row::ok(
        "versions",
        format!("callsheet {program} for {arch} {os}; agents.toml {file}, journal {journal}"),
    )
}

fn kernel() -> Row {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let (major, minor) = LEAST_LINUX;
    let found = format!("Linux {release}");
    match release_of(release) {
        Some(version) if version < LEAST_LINUX => {
            let help =
                format!("use Linux {major}.{minor} or newer: the sandbox of commands needs it");
            Row::not("kernel", State::Error, found, help)
        }
        _ => Row::ok("kernel", found),
    }
}

/// Returns the first two numbers of a release, such as `6.8.0-45-generic`.
fn release_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Reads the switches by which systems keep ordinary users from namespaces. Without them there is a sandbox that
/// allows less.
fn user_namespaces() -> Row {
    let switches = [
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ];
    let is_off = |(path, off): &&(&str, &str)| {
        std::fs::read_to_string(path).is_ok_and(|value| value.trim() == *off)
    };
    match switches.iter().find(is_off) {
        None => Row::ok("user namespaces", "not restricted by a setting"),
        Some((path, off)) => Row::not(
            "user namespaces",
            State::Warning,
            format!("restricted: {path} is {off}"),
            "without them single hosts cannot be allowed, and processes that a command leaves behind outlive it",
        ),
    }
}

/// Tries the sandbox that commands get in this folder: the one of the configuration if that can be read and runs
/// commands, or else the one of a file without `[sandbox]`.
fn probe(project: &Project) -> Row {
    let check = "sandbox";
    let missing = Missing::Allow;
    let sources = Sources { missing_inputs: missing, missing_keys: missing, ..project.sources() };
    let own = project.file.exists().then(|| config::load(&sources).ok()).flatten();
    if own.as_ref().is_some_and(|own| own.sandbox.mode == SandboxMode::DangerFullAccess) {
        let help = "unset CALLSHEET_SANDBOX__MODE to have one";
        return Row::not(check, State::Warning, "turned off by a person", help);
    }
    let usual = || config::load_text(COMMAND, &Sources::new(&project.file)).ok();
    let proof = own.as_ref().and_then(sandbox::proof);
    let Some(proof) = proof.or_else(|| sandbox::proof(&usual()?)) else {
        let help = "call `callsheet doctor` in another folder";
        return Row::not(check, State::Warning, "not tried: this folder cannot be read", help);
    };
    let message = proof.to_string();
    if proof.missing.is_none() {
        return Row::ok(check, message);
    }
    let folder = || {
        let file = std::path::absolute(&project.file).unwrap_or_default();
        file.parent().map(Path::to_owned).unwrap_or_default()
    };
    let root = own.map_or_else(folder, |own| own.root);
    match Store::of_user().allows_no_sandbox(&root) {
        true => Row::not(check, State::Warning, message, "you have allowed commands without one"),
        false => Row::not(
            check,
            State::Error,
            message,
            "commands run only in a sandbox unless you say otherwise: \
             `callsheet trust --without-sandbox` says so for this machine",
        ),
    }
}

/// Starts this program as commands are started: through the file that is running.
fn wrapper() -> Row {
    let check = "command wrapper";
    let error = |reason: String| {
        Row::not(
            check,
            State::Error,
            reason,
            "/proc must be mounted, and the program's file executable",
        )
    };
    let Some(program) = Wrapper::this_program() else {
        return error("this program cannot be its own wrapper".to_owned());
    };
    let started = Command::new(&program).arg("version").stdin(Stdio::null()).output();
    match started {
        Ok(output) if output.status.success() => {
            Row::ok(check, "the program can start itself around commands")
        }
        Ok(output) => error(format!("{} ended with {}", program.display(), output.status)),
        Err(reason) => error(format!("{} cannot be started: {reason}", program.display())),
    }
}

fn limits() -> Row {
    let check = "limits";
    match (threads::can_open_files(), threads::have_room()) {
        (Ok(()), Ok(())) => Row::ok(check, "enough open files and threads for a run"),
        (Err(error), _) => Row::not(
            check,
            State::Error,
            format!("too few open files: {error}"),
            "raise the limit (`ulimit -n 1024`, or the limit of the container)",
        ),
        (Ok(()), Err(error)) => Row::not(
            check,
            State::Error,
            format!("too few threads: {error}"),
            "raise the limit (`ulimit -u`, or the limit of the container)",
        ),
    }
}

/// Looks at the disk of the records, and at that of temporary folders.
fn disks(project: &Project) -> [Row; 2] {
    let records = project.runs_folder();
    let of_records = match filesystem::check(&records) {
        Ok(()) => space("disk of runs", &records),
        Err(error) => Row::not(
            "disk of runs",
            State::Error,
            error.to_string(),
            "`--state-dir` names another folder",
        ),
    };
    [of_records, space("disk of TMPDIR", &std::env::temp_dir())]
}

fn space(check: &'static str, folder: &Path) -> Row {
    let place = nearest(folder);
    let shown = place.display();
    let found = match rustix::fs::statvfs(&place) {
        Ok(found) => found,
        Err(error) => {
            let message = format!("{shown}: {error}");
            return Row::not(check, State::Error, message, "make the folder, or name another one");
        }
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let message = format!("{} free at {shown}", size(free));
    match free {
        ..NO_SPACE => Row::not(
            check,
            State::Error,
            message,
            "free some space: a run pauses when its disk is full",
        ),
        NO_SPACE..LITTLE_SPACE => {
            Row::not(check, State::Warning, message, "a run pauses when its disk is full")
        }
        LITTLE_SPACE.. => Row::ok(check, message),
    }
}

/// Returns the folder itself, or the nearest one above it that exists.
fn nearest(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    absolute.ancestors().find(|above| above.exists()).unwrap_or(&absolute).to_owned()
}

fn size(bytes: u64) -> String {
    match bytes {
        ..0x4000_0000 => format!("{} MiB", bytes >> 20),
        0x4000_0000.. => format!("{} GiB", bytes >> 30),
    }
}

/// Names the variables of known services that are set. Their values are neither looked at nor printed.
fn keys(sources: &Sources) -> Row {
    let known = config::known_key_variables();
    let is_set = |name: &&&str| {
        sources.environment.get(**name).is_some_and(|value| !value.trim().is_empty())
    };
    let set: Vec<&str> = known.iter().filter(is_set).copied().collect();
    match set.as_slice() {
        [] => Row::ok(
            "keys",
            format!("none of {} is set: only offline and local models answer", known.join(", ")),
        ),
        set => Row::ok("keys", format!("set: {}", set.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_kernels_are_read() {
        for (release, version) in [
            ("6.8.0-45-generic", Some((6, 8))),
            ("5.15.167.4-microsoft-standard-WSL2", Some((5, 15))),
            ("6.12", Some((6, 12))),
            ("6", None),
            ("next", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(release_of(release), version, "{release}");
        }
    }

    #[test]
    fn a_folder_that_is_to_be_made_has_the_space_of_the_one_above_it() {
        let root = tempfile::tempdir().expect("a folder");
        let deep = root.path().join("not/yet/there");
        assert_eq!(nearest(&deep), root.path());
        assert_eq!(space("disk", &deep).message, space("disk", root.path()).message);
    }

    #[test]
    fn sizes_are_rounded_down() {
        assert_eq!([size(0), size((1 << 30) - 1), size(3 << 30)], ["0 MiB", "1023 MiB", "3 GiB"]);
    }
}
