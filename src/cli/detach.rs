//! `run --detach`: starts the run in a process of its own, which outlives the terminal.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::locate::Project;
use super::stream::complain_in_lines;
use super::{complain, say};
use crate::exit::Exit;
use crate::id::RunId;

/// The running program, also after another file was put in the place of its own, as a build does or a
/// command in the workspace that holds it.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The name by which lists of processes show it.
pub(super) const NAME: &str = "callsheet";

/// The longest time that a run may take to begin: it loads a file and asks no network.
const BEGIN: Duration = Duration::from_secs(60);

/// The pause between two looks at whether it has begun.
const LOOK: Duration = Duration::from_millis(10);

/// Starts the same command as a detached process, and waits until the run has begun.
pub(super) fn run(project: &Project, id: RunId) -> Exit {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(NAME).args(arguments(std::env::args_os().skip(1), id));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let started = command.spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            complain(&format!("error: the run could not be detached: {error}"));
            return Exit::Bug;
        }
    };
    let run = project.run_with(id);
    let deadline = Instant::now() + BEGIN;
    loop {
        match child.try_wait() {
            Ok(Some(_)) | Err(_) => break,
            Ok(None) if run.has_begun() => break,
            Ok(None) if Instant::now() > deadline => {
                complain("error: the detached run has not begun");
                return Exit::Bug;
            }
            Ok(None) => std::thread::sleep(LOOK),
        }
    }
    if !run.has_begun() {
        return refused(child);
    }
    let (flags, short) = (project.flags(), project.short(&run));
    complain(&format!("watch it:     callsheet attach{flags} {short}"));
    complain(&format!("stop it:      callsheet cancel{flags} {short}"));
    say(&format!("{id}\n"))
}

/// Prints what the process said, which could not start the run, and returns its exit code.
fn refused(mut child: Child) -> Exit {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    // It was made safe to show by that process, with its lines.
    complain_in_lines(said.trim_end());
    match child.wait().ok().and_then(|status| status.code()) {
        Some(2) => Exit::Usage,
        Some(3) => Exit::Provider,
        Some(74) => Exit::Disk,
        Some(75) => Exit::Held,
        Some(_) | None => Exit::Failed,
    }
}

/// Returns the arguments of the detached process: the same without the flag, with the run's id.
fn arguments(given: impl Iterator<Item = OsString>, id: RunId) -> Vec<OsString> {
    let kept = given.filter_map(|argument| {
        let text = argument.to_str();
        match text {
            Some("-d" | "--detach") => None,
            // Short flags that were written together.
            Some(flags)
                if flags.starts_with('-') && flags[1..].chars().all(|c| "vd".contains(c)) =>
            {
                let rest = flags.replace('d', "");
                (rest.len() > 1).then(|| rest.into())
            }
            _ => Some(argument),
        }
    });
    let own = ["--detached".into(), "--run-id".into(), id.to_string().into()];
    kept.chain(own).collect()
}

/// Leaves the terminal's session, so that the end of the terminal does not end this process.
pub(super) fn leave_session() {
    // It fails only for the leader of a group, which a started process is not.
    let _ = rustix::process::setsid();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_left_out_however_it_was_written() {
        let id = RunId::from(uuid::Uuid::nil());
        let passed = |given: &[&str]| {
            let all = arguments(given.iter().map(OsString::from), id);
            let all: Vec<_> = all.into_iter().map(|a| a.into_string().expect("UTF-8")).collect();
            all[..all.len() - 3].join(" ")
        };
        assert_eq!(passed(&["run", "-d", "one"]), "run one");
        assert_eq!(passed(&["-vd", "run"]), "-v run");
        assert_eq!(
            passed(&["run", "--detach", "-f", "d", "--input", "x=-d"]),
            "run -f d --input x=-d"
        );
    }
}
