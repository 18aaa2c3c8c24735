//! The status area of a run on terminals of several sizes: a line for each agent that has space, and nothing of it left
//! behind.

use crate::support::desk::{Desk, wait};
use crate::support::pty::Terminal;

/// A run of so many agents whose models do not answer before it is cancelled, and of a command that prints a line and waits.
fn crowd(agents: usize) -> Desk {
    let tasks: String = (1..=agents)
        .map(|number| format!("[tasks.look-{number}]\nagent = 'a'\nprompt = 'go'\n"))
        .collect();
    Desk::offline(
        &format!(
            "[limits]\nmax_concurrency = 400\n[agents.a]\n{tasks}\
             [tasks.builds]\nrun = 'echo compiling one; until test -e go; do sleep 0.05; done'\n"
        ),
        "[[rules]]\nsay = 'seen'\ndelay_ms = 600000\n",
    )
}

/// The sizes of terminals, each with the number of lines that the area may have there.
const SIZES: [((u16, u16), usize); 3] = [((24, 80), 16), ((50, 130), 33), ((8, 40), 4)];

/// Waits until the screen shows an area of a crowd with so many lines, once, and nothing of an earlier one. The screen
/// may be read amid a drawing; what an earlier one left would stay in all of them.
fn until_whole(terminal: &Terminal, agents: usize, most: usize) {
    wait("a whole area, once", || {
        let rows = terminal.rows();
        let begins = |row: &String| row.contains("tasks ") && row.contains(" done,");
        let (above, lines) = rows.split_at(rows.iter().position(begins)?);
        let parts = [" turns · ", "more running:", " t1 "];
        let is_of_area = |row: &String| parts.iter().any(|part| row.contains(part));
        let is_once = lines.iter().filter(|row| begins(row)).count() == 1
            && lines.iter().filter(|row| row.contains(" turns · ")).count() == 1
            && !above.iter().any(is_of_area);
        let is_agent = |line: &&String| line.contains("look-") || line.contains("builds");
        let named = lines.iter().filter(is_agent).count();
        let folded = lines.iter().any(|line| line.contains("more running:"));
        let has_line = lines.iter().any(|line| line.contains("| compiling one"));
        let is_whole = named > agents || (named > 0 && folded);
        let is_all = is_once && is_whole && (has_line || folded);
        // There are as many agents as the area has lines, or more.
        (is_all && lines.len() == most).then_some(())
    });
}

/// Cancels the run of a crowd, and sees that nothing of its area stays.
fn end_crowd(desk: &Desk, terminal: &Terminal) {
    desk.good(&["cancel", "desk"]);
    wait("the end", || terminal.text().contains("its events:").then_some(()));
    let shown = terminal.text();
    assert!(!shown.contains("tasks 0/") && !shown.contains("at work:"), "{shown}");
}

#[test]
fn agents_have_lines_as_far_as_there_is_space() {
    for agents in [30, 300] {
        for (size, most) in SIZES {
            let desk = crowd(agents);
            let terminal = Terminal::start_sized(&desk, size, &["run"]);
            terminal.until(&format!("{} running", agents + 1));
            let first = terminal.written().len();
            let some = 3 * most * usize::from(size.1);
            wait("later drawings", || (terminal.written().len() > first + some).then_some(()));
            until_whole(&terminal, agents, most);
            end_crowd(&desk, &terminal);
        }
    }
}

#[test]
fn a_window_that_grows_and_shrinks_keeps_one_area_of_its_own_size() {
    for agents in [30, 300] {
        let desk = crowd(agents);
        let [middle, large, small] = SIZES;
        let terminal = Terminal::start_sized(&desk, middle.0, &["run"]);
        terminal.until(&format!("{} running", agents + 1));
        until_whole(&terminal, agents, middle.1);
        for ((rows, columns), most) in [large, middle, small, middle, small, large] {
            terminal.resize_to(rows, columns);
            until_whole(&terminal, agents, most);
        }
        end_crowd(&desk, &terminal);
    }
}

#[test]
fn a_plain_run_draws_no_area() {
    let desk = Desk::commands(
        "[tasks.t]\nrun = 'echo compiling; until test -e go; do sleep 0.05; done'\n",
    );
    let run = Terminal::start(&desk, 100, &["run", "--plain"]);
    run.until("task started");
    let attached = Terminal::start(&desk, 100, &["attach", "--plain"]);
    attached.until("task started");
    desk.write("go", "");
    for terminal in [run, attached] {
        terminal.until("its events:");
        let written = terminal.written();
        assert!(!written.contains("tasks 0/1") && !written.contains(" : compiling"), "{written}");
        assert_eq!(terminal.end().0, 0);
    }
}

#[test]
fn a_smaller_window_and_a_question_leave_nothing_behind() {
    let desk = Desk::offline(
        "[agents.a]\ntools = ['bash']\n\
         [tasks.asks]\nagent = 'a'\nprompt = 'go'\ndepends_on = ['first']\n\
         [tasks.first]\nrun = 'until test -e resized; do sleep 0.05; done'\n\
         [tasks.waits]\nrun = 'echo compiling; until test -e go; do sleep 0.05; done'\n\
         [tasks.two]\nrun = 'until test -e go; do sleep 0.05; done'\n",
        "[[rules]]\nturn = 1\ncalls = [{ tool = 'bash', input = { command = 'true' } }]\n\
         [[rules]]\nsay = 'done'\n",
    );
    let rules = desk.read("agents.toml").replace("default = \"allow\"", "default = \"ask\"");
    desk.write("agents.toml", &rules);
    let mut terminal = Terminal::start_sized(&desk, (24, 100), &["run"]);
    terminal.until("| compiling");
    terminal.resize_to(12, 60);
    terminal.until("00:02");
    wait("the area, once", || (terminal.text().matches("tasks 0/4").count() == 1).then_some(()));
    desk.write("resized", "");
    let shown = terminal.until("allow? [");
    assert!(!shown.contains("tasks 1/4"), "it is hidden while a question is open: {shown}");
    terminal.types("y\n");
    wait("the area, once", || (terminal.text().matches("tasks 2/4").count() == 1).then_some(()));
    desk.write("go", "");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("tasks 2/4"), "{shown}");
}

#[test]
fn a_warning_of_the_program_amid_the_area_is_a_whole_line_above_a_whole_area() {
    let desk = Desk::commands(
        "[tasks.first]\nrun = 'until test -e now; do sleep 0.05; done'\n\
         [tasks.waits]\nrun = 'echo compiling; until test -e go; do sleep 0.05; done'\n\
         [tasks.gate]\ndepends_on = ['first']\n\
         [tasks.gate.approval]\nmessage = 'go?'\nnotify = { command = ['false'] }\n",
    );
    for (rows, columns) in [(24, 100), (20, 40)] {
        let _ = std::fs::remove_file(desk.path().join("now"));
        let _ = std::fs::remove_file(desk.path().join("go"));
        let mut terminal = Terminal::start_sized(&desk, (rows, columns), &["run", "--also"]);
        terminal.until("tasks 0/3 done, 2 running");
        desk.write("now", "");
        // While the question is on the screen, the area is not, and a warning waits.
        terminal.until("approve? [");
        terminal.types("y\n");
        terminal.until("did not work");
        let seen = terminal.written().len();
        wait("later drawings", || (terminal.written().len() > seen + 1_000).then_some(()));
        let shown = wait("a whole area below a whole line", || {
            let rows = terminal.rows();
            let is_area = |row: &String| row.contains("tasks 2/3");
            let area = rows.iter().position(is_area)?;
            let line = rows.iter().position(|row| row.contains(" WARN "))?;
            // A row that the line needs beside its first one begins with the mark of those.
            let more = rows[line + 1..].iter().take_while(|row| row.starts_with("  | "));
            let whole: String = std::iter::once(&rows[line][..])
                .chain(more.map(|row| &row[4..]))
                .collect::<Vec<_>>()
                .concat();
            let is_whole = whole.contains("a notification command did not work")
                && whole.contains("task=gate")
                && whole.contains("error=");
            let once = rows.iter().filter(|row| is_area(row)).count() == 1;
            let below = rows[area..].join("\n");
            let is_area_whole = below.contains("0 turns") && below.contains("waits run");
            (is_whole && once && line < area && is_area_whole).then_some(rows)
        });
        let before: Vec<_> = shown.iter().take_while(|row| !row.contains("tasks 2/3")).collect();
        assert!(!before.iter().any(|row| row.contains(" turns · ")), "{shown:#?}");
        desk.write("go", "");
        let (code, shown) = terminal.end();
        assert_eq!(code, 0, "{shown}");
        assert!(!shown.contains("tasks 2/3"), "{shown}");
    }
}
