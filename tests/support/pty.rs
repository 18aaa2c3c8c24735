//! The program at a pseudo-terminal, whose screen can be read.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use super::desk::{Desk, wait};

/// The time without output after which a drawing is over, also on a busy machine; the next one follows 200 ms after it
/// began.
const PAUSE: Duration = Duration::from_millis(100);

/// A program at a pseudo-terminal.
pub(crate) struct Terminal {
    master: Box<dyn MasterPty + Send>,
    input: Box<dyn Write + Send>,
    pub(crate) child: Box<dyn Child + Send + Sync>,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Everything that was written.
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(crate) fn start(desk: &Desk, columns: u16, arguments: &[&str]) -> Self {
        Self::start_sized(desk, (40, columns), arguments)
    }

    /// Starts the program at a terminal with so many rows and columns.
    pub(crate) fn start_sized(
        desk: &Desk,
        (rows, columns): (u16, u16),
        arguments: &[&str],
    ) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_callsheet"));
        command.args(arguments);
        command.cwd(desk.path());
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", desk.path());
        command.env("XDG_STATE_HOME", desk.state());
        command.env("TERM", "xterm");
        let child = pair.slave.spawn_command(command).expect("started");
        let mut output = pair.master.try_clone_reader().expect("a reader");
        let input = pair.master.take_writer().expect("a writer");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 500)));
        let written = Arc::new(Mutex::new(Vec::new()));
        let (shown, kept) = (screen.clone(), written.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                kept.lock().expect("no panic").extend_from_slice(&bytes[..length]);
                shown.lock().expect("no panic").process(&bytes[..length]);
            }
        });
        Self { master: pair.master, input, child, screen, written }
    }

    pub(crate) fn text(&self) -> String {
        self.screen.lock().expect("no panic").screen().contents()
    }

    /// The rows of the screen that hold anything. [`Terminal::text`] joins those that are written to the last column.
    pub(crate) fn rows(&self) -> Vec<String> {
        let screen = self.screen.lock().expect("no panic");
        let (_, columns) = screen.screen().size();
        screen.screen().rows(0, columns).filter(|row| !row.trim().is_empty()).collect()
    }

    /// Everything that was written so far, with the codes in it.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().expect("no panic")).into_owned()
    }

    /// Waits until the screen shows a text.
    pub(crate) fn until(&self, wanted: &str) -> String {
        wait(wanted, || Some(self.text()).filter(|text| text.contains(wanted)))
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).and_then(|()| self.input.flush()).expect("typed");
    }

    pub(crate) fn resize(&self, columns: u16) {
        self.resize_to(40, columns);
    }

    /// Changes the size between two drawings, so that none is made for one size and shown in the other.
    pub(crate) fn resize_to(&self, rows: u16, columns: u16) {
        let mut last = (0, Instant::now());
        wait("a pause between two drawings", || {
            let written = self.written.lock().expect("no panic").len();
            if written != last.0 {
                last = (written, Instant::now());
            }
            (last.1.elapsed() > PAUSE).then_some(())
        });
        let mut screen = self.screen.lock().expect("no panic");
        // Terminals keep the row of the cursor: rows for which there is no space go up and out of sight.
        let (row, _) = screen.screen().cursor_position();
        if let Some(beyond @ 1..) = (row + 1).checked_sub(rows) {
            screen.process(format!("\x1b[{beyond}S").as_bytes());
        }
        screen.screen_mut().set_size(rows, columns);
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.master.resize(size).expect("resized");
    }

    pub(crate) fn end(mut self) -> (u32, String) {
        let code = wait("the end of the program", || self.child.try_wait().expect("a child"));
        // The last output may still be on its way.
        let text = wait("the last line", || {
            Some(self.text())
                .filter(|text| text.contains("its events:") || text.contains("resume with"))
        });
        (code.exit_code(), text)
    }
}

impl Drop for Terminal {
    #[expect(clippy::print_stderr, reason = "a test that fails says what was on the screen")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the screen:\n{}", self.rows().join("\n"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
