//! The service that resumes stopped runs: what is written, and that the service manager reads it so.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::desk::{Desk, Done};

#[test]
fn the_unit_is_written_and_shown_and_nothing_is_started() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    let config = desk.path().join("config here");
    let call = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        Done::of(command.env("XDG_CONFIG_HOME", &config))
    };
    let shown = call(&["service", "install", "--print"]);
    assert_eq!((shown.code, config.exists()), (0, false), "{}", shown.err);
    let done = call(&["service", "install"]);
    assert_eq!((done.code, &done.out), (0, &shown.out), "{}", done.err);
    if cfg!(target_os = "macos") {
        return;
    }
    let folder = config.join("systemd/user");
    let unit = std::fs::read_dir(&folder).expect("a folder").next().expect("a unit").expect("one");
    assert_eq!(std::fs::read_to_string(unit.path()).expect("a unit"), done.out);
    let name = unit.file_name().into_string().expect("UTF-8");
    assert!(done.err.contains(&format!("enable --now {name}")), "{}", done.err);
    assert!(done.out.contains("\"resume\" \"--all\" \"-f\""), "{}", done.out);
    assert!(desk.runs().is_empty());
    assert_read_by_systemd(&unit.path());
    let none = call(&["service", "install", "-f", "none.toml"]);
    assert!(none.code == 2 && none.err.contains("none.toml"), "{}", none.err);
}

/// Fails if a service manager, where there is one, does not take a unit.
fn assert_read_by_systemd(unit: &Path) {
    let runtime = tempfile::tempdir().expect("a folder");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["--user", "verify"]).arg(unit).env("XDG_RUNTIME_DIR", runtime.path());
    if let Ok(verified) = verify.env("HOME", runtime.path()).output() {
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && said.is_empty(), "{said}");
    }
}

#[test]
fn any_folder_has_a_unit_and_records_stay_where_they_are() {
    if cfg!(target_os = "macos") {
        return;
    }
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    let config = desk.path().join("config");
    for name in ["plain", "ends in \\", "ends in ", "100%n", "$HOME", "a\"b'c", ";", "#x"] {
        let folder = desk.path().join(name);
        fs::create_dir(&folder).expect("a folder");
        let file = folder.join("agents.toml");
        fs::copy(desk.path().join("agents.toml"), &file).expect("a file");
        let _ = fs::remove_dir_all(&config);
        let mut command = desk.command(&["service", "install", "-f"]);
        command.arg(&file).env("XDG_CONFIG_HOME", &config);
        let done = Done::of(command.env("CALLSHEET_STATE_DIR", "runs %s"));
        assert_eq!(done.code, 0, "{name}: {}", done.err);
        let here = desk.path().display().to_string().replace('%', "%%");
        let carried = format!("\"--state-dir\" \"{here}/runs %%s\"\n");
        assert!(done.out.contains(&carried), "{}", done.out);
        let unit = fs::read_dir(config.join("systemd/user")).expect("a folder").next();
        assert_read_by_systemd(&unit.expect("a unit").expect("one").path());
    }
    let mut command = desk.command(&["service", "install", "--print"]);
    let done = Done::of(command.env("CALLSHEET_STATE__DIR", "elsewhere"));
    assert!(done.out.contains("/elsewhere\"\n"), "{}", done.out);
    assert!(!desk.good(&["service", "install", "--print"]).contains("--state-dir"));
}
