//! The service that resumes stopped runs: what is written, and that the service manager reads it so.

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
    // Where there is a service manager, it understands the unit.
    let verified =
        Command::new("systemd-analyze").args(["--user", "verify"]).arg(unit.path()).output();
    if let Ok(verified) = verified {
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(!said.contains("Unknown") && !said.contains("Invalid"), "{said}");
    }
    let none = call(&["service", "install", "-f", "none.toml"]);
    assert!(none.code == 2 && none.err.contains("none.toml"), "{}", none.err);
}
