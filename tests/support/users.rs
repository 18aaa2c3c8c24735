//! Users who run the program: whoever runs the tests, one without rights, and one without user namespaces.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::desk::Desk;

/// Says what a test leaves out here. It is not captured, so that everybody reads it.
pub(crate) fn skipped(what: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// The user without files and rights of the system (`nobody`).
const NOBODY: u32 = 65_534;

/// A user who runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The one of the tests.
    Own,
    /// An ordinary one.
    Other,
    /// An ordinary one on a machine that refuses user namespaces.
    WithoutNamespaces,
}

/// The program and scripts, where every user can read them.
pub(crate) struct Shared {
    _folder: TempDir,
    pub(crate) program: PathBuf,
    deny: PathBuf,
    /// A script that runs a program which can make no more layers of Landlock: `PROGRAM ARGUMENT...`.
    pub(crate) layers: PathBuf,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("set");
        let path = |name: &str| folder.path().join(name);
        let (program, deny, layers) = (path("callsheet"), path("deny.pl"), path("layers.pl"));
        let built = env!("CARGO_BIN_EXE_callsheet");
        if std::fs::hard_link(built, &program).is_err() {
            std::fs::copy(built, &program).expect("a copy");
        }
        std::fs::write(&deny, DENY).expect("written");
        std::fs::write(&layers, LAYERS).expect("written");
        Self { _folder: folder, program, deny, layers }
    }

    /// The words of a command line before the error number.
    pub(crate) fn deny(&self) -> String {
        format!("perl {}", self.deny.display())
    }

    /// The words that begin a command line whose program gets this error number from these system calls.
    pub(crate) fn denying(&self, errno: u32, calls: &str) -> String {
        format!("{} {errno} {calls}", self.deny())
    }
}

const LAYERS: &str = r#"
use strict; use Config;
my $prctl = $Config{archname} =~ /^x86_64/ ? 157 : 167;
my $attributes = pack 'Q', 1 << 11;
syscall($prctl, 38, 1, 0, 0, 0) == 0 or exit 77;
for (1 .. 16) {
    my $set = syscall(444, $attributes, 8, 0);
    $set >= 0 && syscall(446, $set, 0) == 0 or exit 77;
}
exec { $ARGV[0] } @ARGV or exit 77;
"#;

/// A script that runs a program with system calls refused: `ERRNO NUMBER,NUMBER,... PROGRAM ARGUMENT...`.
const DENY: &str = r#"
use strict; use Config;
my ($errno, $calls, @program) = @ARGV;
my $prctl = $Config{archname} =~ /^x86_64/ ? 157 : 167;
my @calls = split /,/, $calls; my $n = @calls;
my @code = ([0x20, 0, 0, 0]);
push @code, [0x15, $n - $_, 0, $calls[$_]] for 0 .. $n - 1;
push @code, [0x06, 0, 0, 0x7fff0000], [0x06, 0, 0, 0x00050000 | $errno];
my $filter = join '', map { pack 'SCCL', @$_ } @code;
my $list = pack 'S x6 P', scalar(@code), $filter;
syscall($prctl, 38, 1, 0, 0, 0) == 0 && syscall($prctl, 22, 2, $list) == 0 or exit 77;
exec { $program[0] } @program or exit 77;
"#;

/// The number of `unshare`.
pub(crate) const UNSHARE: &str = if cfg!(target_arch = "x86_64") { "272" } else { "97" };

impl Who {
    /// Returns why this user cannot be tried here.
    pub(crate) fn is_missing(self, shared: &Shared) -> Option<String> {
        if self == Self::Own {
            return None;
        }
        let mut sandboxed = Command::new("sh");
        let line = match self {
            Self::WithoutNamespaces => format!("{} true", shared.denying(1, UNSHARE)),
            _ => "true".to_owned(),
        };
        let tried = self.own(sandboxed.args(["-c", &line])).current_dir("/").output();
        match tried {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(format!("only root becomes another user: {error}")),
        }
    }

    /// The program with these arguments, in a desk that is given to the user.
    pub(crate) fn command(self, shared: &Shared, desk: &Desk, arguments: &[&str]) -> Command {
        let mut command = match self {
            Self::Own => return desk.command(arguments),
            Self::Other => Command::new(&shared.program),
            Self::WithoutNamespaces => {
                let mut command = Command::new("perl");
                command.arg(&shared.deny).args(["1", UNSHARE]).arg(&shared.program);
                command
            }
        };
        self.give(desk);
        desk.bare(command.args(arguments));
        self.own(&mut command);
        command
    }

    /// Lets the user run another command.
    pub(crate) fn own(self, command: &mut Command) -> &mut Command {
        match self {
            Self::Own => command,
            // The library also takes the other groups away.
            Self::Other | Self::WithoutNamespaces => command.uid(NOBODY).gid(NOBODY),
        }
    }

    /// Gives the files of the desk to the user.
    pub(crate) fn give(self, desk: &Desk) {
        if self == Self::Own {
            return;
        }
        let mut open = vec![desk.path().to_owned(), desk.state().to_owned()];
        while let Some(path) = open.pop() {
            std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).expect("given");
            if path.is_dir() && !path.is_symlink() {
                let entries = std::fs::read_dir(&path).expect("a folder");
                open.extend(entries.map(|entry| entry.expect("one").path()));
            }
        }
    }
}
