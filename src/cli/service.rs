//! `service install`: writes the unit of a service of the user that runs `resume --all` at login and after a
//! crash. It is shown, and started by nobody but the user.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::args;
use super::locate::Project;
use super::{complain, say};
use crate::disk;
use crate::exit::Exit;

/// Seconds between a crash and the next start: a run that crashes at once must not do so all night long.
const RESTART_AFTER: u32 = 30;

/// Seconds for the runs to stop: the grace period of commands, and room for slow disks.
const STOP_WITHIN: u32 = 90;

/// The variables by which a person says where the records are: the service has none of the shell's.
const STATE_DIRS: [&str; 2] = ["CALLSHEET_STATE_DIR", "CALLSHEET_STATE__DIR"];

pub(super) fn run(project: &Project, verb: &args::Service) -> Exit {
    let args::ServiceVerb::Install(install) = &verb.verb;
    let unit = Unit::of(project).and_then(|unit| {
        if !install.print {
            unit.write()?;
        }
        Ok(unit)
    });
    match unit {
        Ok(unit) => {
            if !install.print {
                complain(&format!("written: {}", unit.path.display()));
                unit.commands().iter().for_each(|line| complain(line));
            }
            say(&unit.text)
        }
        Err(error) => {
            complain(&format!("error: {error}"));
            Exit::Usage
        }
    }
}

/// A unit of the system's service manager.
struct Unit {
    path: PathBuf,
    name: String,
    text: String,
}

impl Unit {
    fn of(project: &Project) -> io::Result<Self> {
        let file = fs::canonicalize(&project.file)
            .map_err(|error| io::Error::other(format!("{}: {error}", project.file.display())))?;
        let folder = file.parent().unwrap_or(&file).to_owned();
        let program = std::env::current_exe()?;
        let mut command = vec![text_of(&program)?, "resume".to_owned(), "--all".to_owned()];
        command.extend(["-f".to_owned(), text_of(&file)?]);
        if project.state_dir.is_some() || STATE_DIRS.into_iter().any(is_set) {
            command.extend(["--state-dir".to_owned(), text_of(&project.runs_folder())?]);
        }
        let name = name_of(&folder, &file);
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let home = home.ok_or_else(|| io::Error::other("there is no home directory"))?;
        let folder = text_of(&folder)?;
        Ok(match cfg!(target_os = "macos") {
            true => {
                let name = format!("callsheet.{name}");
                let path = home.join("Library/LaunchAgents").join(format!("{name}.plist"));
                Self { path, text: launch_agent(&name, &folder, &command), name }
            }
            false => {
                let set = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
                let config = set.filter(|set| set.is_absolute());
                let config = config.unwrap_or_else(|| home.join(".config"));
                let name = format!("callsheet-{name}.service");
                let path = config.join("systemd/user").join(&name);
                Self { path, text: systemd(&folder, &command), name }
            }
        })
    }

    fn write(&self) -> io::Result<()> {
        let path = self.path.display();
        let named = |error: io::Error| io::Error::other(format!("{path}: {error}"));
        if let Some(folder) = self.path.parent() {
            // Whatever the mask of new files says: what is in it runs as this user.
            let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
            made.map_err(named)?;
        }
        let written = disk::make_anew(&self.path)
            .and_then(|mut file| disk::write_all(&mut file, self.text.as_bytes()));
        written.map_err(named)
    }

    /// Returns what the user does next.
    fn commands(&self) -> Vec<String> {
        let Self { name, path, .. } = self;
        match cfg!(target_os = "macos") {
            true => vec![
                format!("start it:     launchctl bootstrap gui/$(id -u) '{}'", path.display()),
                format!("end it:       launchctl bootout gui/$(id -u)/{name}"),
            ],
            false => vec![
                format!("start it:     systemctl --user daemon-reload && systemctl --user enable --now {name}"),
                format!("watch it:     journalctl --user -f -u {name}"),
                format!("end it:       systemctl --user disable --now {name}"),
                "note: it starts when you log in; `loginctl enable-linger` starts it when the machine does"
                    .to_owned(),
                "note: it has no keys of your shell: put NAME=value lines into \
                 ~/.config/callsheet/environment, readable for you only"
                    .to_owned(),
            ],
        }
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

fn text_of(path: &Path) -> io::Result<String> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    let refused = || format!("{}: a unit can hold no such path", path.display());
    text.map(str::to_owned).ok_or_else(|| io::Error::other(refused()))
}

/// Returns a name that is the same for one file and differs from that of any other.
fn name_of(folder: &Path, file: &Path) -> String {
    let last = folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let last: String = last.chars().map(plain).take(40).collect();
    let hash = blake3::hash(file.as_os_str().as_encoded_bytes()).to_hex();
    format!("{}-{}", last.trim_matches('-'), &hash[..8])
}

/// Quotes a word as systemd reads it (systemd.service(5), "Command lines" and "Specifiers"). Variables are
/// put into all words but the first, the program.
fn quoted(word: &str, is_program: bool) -> String {
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '$' if is_program => quoted.push(c),
            '%' | '$' => quoted.extend([c, c]),
            _ => quoted.push(c),
        }
    }
    quoted + "\""
}

fn systemd(folder: &str, command: &[String]) -> String {
    let command: Vec<_> =
        command.iter().enumerate().map(|(at, word)| quoted(word, at == 0)).collect();
    let plain = folder.replace('%', "%%");
    // A `\` or a blank at the end of a line would not be part of it, and these values have no quotes.
    format!(
        "# Written by `callsheet service install`: resumes the runs that were stopped.\n\
         [Unit]\n\
         Description=callsheet: stopped runs of `{plain}`\n\
         \n\
         [Service]\n\
         WorkingDirectory={plain}/\n\
         ExecStart={}\n\
         EnvironmentFile=-%E/callsheet/environment\n\
         # Only after a crash: a run that failed or waits for a person is not resumed again and again.\n\
         Restart=on-abnormal\n\
         RestartSec={RESTART_AFTER}\n\
         # The program hears the signal first and lets its runs stop, so that they can be resumed.\n\
         KillMode=mixed\n\
         TimeoutStopSec={STOP_WITHIN}\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        command.join(" ")
    )
}

fn launch_agent(name: &str, folder: &str, command: &[String]) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let words: String =
        command.iter().map(|word| format!("    <string>{}</string>\n", escaped(word))).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!-- Written by `callsheet service install`: resumes the runs that were stopped. -->\n\
         <plist version=\"1.0\">\n<dict>\n\
         \x20 <key>Label</key><string>{name}</string>\n\
         \x20 <key>WorkingDirectory</key><string>{}</string>\n\
         \x20 <key>ProgramArguments</key>\n  <array>\n{words}  </array>\n\
         \x20 <key>RunAtLoad</key><true/>\n\
         \x20 <key>KeepAlive</key><dict><key>Crashed</key><true/></dict>\n\
         \x20 <key>ThrottleInterval</key><integer>{RESTART_AFTER}</integer>\n\
         \x20 <key>ExitTimeOut</key><integer>{STOP_WITHIN}</integer>\n\
         </dict>\n</plist>\n",
        escaped(folder)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_add_to_a_command() {
        assert_eq!(quoted("/a b", true), "\"/a b\"");
        assert_eq!(quoted("/100%/$HOME/\"x\\", false), r#""/100%%/$$HOME/\"x\\""#);
        assert_eq!(quoted("/100%/$HOME", true), r#""/100%%/$HOME""#);
        let unit = systemd("/odd\\", &["/c\\".to_owned(), "x\\".to_owned()]);
        assert!(!unit.lines().any(|line| line.ends_with(['\\', ' '])), "{unit}");
        assert!(text_of(Path::new("/a\nExecStart=/bin/evil")).is_err());
        let plist = launch_agent("n", "/a&b", &["<string>".to_owned()]);
        assert!(plist.contains("/a&amp;b") && plist.contains("&lt;string&gt;"), "{plist}");
    }

    #[test]
    fn two_files_have_two_names() {
        let folder = Path::new("/home/you/Big Project!");
        let one = name_of(folder, &folder.join("agents.toml"));
        assert!(one.starts_with("big-project-"), "{one}");
        assert_ne!(one, name_of(folder, &folder.join("other.toml")));
    }
}
