//! Permission questions to a person at the terminal.

use std::io::{self, IsTerminal, PipeReader};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{QueueSelector, tcflush};

use super::rows::rows;
use super::screen::Screen;
use super::stream::Stream;
use crate::id::AgentId;
use crate::model::BoxFuture;
use crate::person::{Asker, Consent, Question};
use crate::run::control::this_process;
use crate::show::question::{self, Answer, Remembered, safe};
use crate::turn::question::ApprovalAnswered;

/// The fewest lines that a page leaves free: the question, its answers and the note below a page.
const BELOW_PAGE: usize = 4;

/// The width of a row where the terminal does not tell its own.
const WIDTH: usize = 80;

/// The height of a page where the terminal does not tell its own.
const HEIGHT: usize = 24;

/// The most bytes of an answer: a terminal gives a line at a time.
const LINE: usize = 4096;

/// Returns an asker for the terminal, or `None` if stdin or stderr is not a terminal.
pub(super) fn asker(screen: &Arc<Screen>) -> Option<Arc<dyn Asker>> {
    has_terminal().then(|| Arc::new(Terminal::new(screen.clone())) as Arc<dyn Asker>)
}

/// Returns true if a person can be asked: stdin and stderr are a terminal.
pub(super) fn has_terminal() -> bool {
    io::stdin().is_terminal() && Stream::Err.is_terminal()
}

/// Shows lines, page by page where they are long, and asks for a yes to all of them. Blocks. The
/// lines must be safe to show.
pub(super) fn confirm(lines: &[String], asked: &str) -> bool {
    let (width, _) = size();
    let rows = rows(lines, width);
    let Ok((never, _open)) = io::pipe() else { return false };
    let mut shown = 0;
    loop {
        shown = page(&rows, shown, BELOW_PAGE);
        let is_whole = shown == rows.len();
        let choices = match is_whole {
            true => format!("{asked} [y yes, n no; enter asks again] "),
            false => format!("line {shown} of {}: enter for more, n no ", rows.len()),
        };
        match prompt(&choices).and_then(|()| line_or_end(&never)).map(|line| Answer::read(&line)) {
            None | Some(Answer::No) => return false,
            Some(Answer::Yes) if is_whole => return true,
            Some(_) => {}
        }
    }
}

/// Asks the person at the terminal, one question at a time.
#[derive(Debug)]
struct Terminal {
    screen: Arc<Screen>,
    remembered: Mutex<Remembered>,
}

impl Terminal {
    fn new(screen: Arc<Screen>) -> Self {
        Self { screen, remembered: Mutex::default() }
    }

    async fn answer(&self, question: &Question) -> Consent {
        let _turn = self.screen.turn().await;
        // An answer to an earlier question may cover this one.
        if self.remembered.lock().allows(question) {
            return true.into();
        }
        let choices = format!("allow? [{}] ", question::choices(question));
        let why = question::reason(question);
        let takes = |answer: Answer| answer != Answer::Rule || question.rule.is_some();
        match said(&self.screen, &question::lines(question), &choices, Some(&why), takes).await {
            None => Consent::default(),
            Some((Answer::No, line)) => no(&line),
            Some((answer, _)) => {
                self.remembered.lock().note(question, answer);
                true.into()
            }
        }
    }
}

/// Returns a no with the reason that was typed.
pub(super) fn no(line: &str) -> Consent {
    Consent { allowed: false, reason: question::reason_of_no(line) }
}

/// Shows lines, page by page where they are long, and asks until the answer is a no, or a yes of a kind that the
/// question `takes`. Returns it with the line that was typed; `None` at the end of the input. The caller holds the turn.
pub(super) async fn said(
    screen: &Screen,
    lines: &[String],
    choices: &str,
    why: Option<&str>,
    takes: impl Fn(Answer) -> bool,
) -> Option<(Answer, String)> {
    let mut open = OpenQuestion::new(screen);
    let (width, _) = size();
    let rows = rows(lines, width);
    let mut shown = 0;
    loop {
        shown = page(&rows, shown, below(choices, width));
        let is_whole = shown == rows.len();
        let asked = match is_whole {
            true => choices.to_owned(),
            false => format!("line {shown} of {}: enter for more, n no ", rows.len()),
        };
        open.is_answered = false;
        let line = read_line(&asked).await?;
        open.is_answered = true;
        match (Answer::read(&line), why) {
            (Answer::No, _) => return Some((Answer::No, line)),
            (Answer::Why, Some(why)) => print(&format!("{why}\n")),
            (answer @ (Answer::Yes | Answer::Always | Answer::Rule | Answer::Tool), _)
                if is_whole && takes(answer) =>
            {
                return Some((answer, line));
            }
            // A yes to a part of the call is none: the rest comes first.
            (Answer::Yes | Answer::Always | Answer::Rule | Answer::Tool, _)
            | (Answer::Why | Answer::Unclear, _) => {}
        }
    }
}

impl Asker for Terminal {
    fn ask(&self, question: Question) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.consent(question).await.allowed })
    }

    fn consent(&self, question: Question) -> BoxFuture<'_, Consent> {
        Box::pin(async move {
            let _waiting = Waiting::new(self.screen.clone(), &question);
            self.answer(&question).await
        })
    }

    fn who(&self) -> String {
        this_process()
    }

    fn answered_elsewhere(&self, agent: &AgentId, answer: &ApprovalAnswered) {
        let by = safe(answer.by.as_deref().unwrap_or("a person"));
        let what = if answer.allowed { "yes" } else { "no" };
        // A stderr that is closed is no error: the run goes on.
        let _ = self.screen.line(&format!("{agent}: {by} answered: {what}"));
    }
}

/// Returns the width and the height of the terminal.
fn size() -> (usize, usize) {
    Stream::Err.size().unwrap_or((WIDTH, HEIGHT))
}

/// Returns the rows that a page leaves free for the choices, which name a rule of any length: the
/// beginning of the page must not scroll out of sight.
fn below(choices: &str, width: usize) -> usize {
    rows(&[choices.to_owned()], width).len().max(BELOW_PAGE - 1) + 1
}

/// Marks an agent as waiting for the person until it is dropped.
struct Waiting {
    screen: Arc<Screen>,
    agent: AgentId,
}

impl Waiting {
    fn new(screen: Arc<Screen>, question: &Question) -> Self {
        screen.wait_for_person(&question.agent);
        Self { screen, agent: question.agent.clone() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.screen.answered(&self.agent);
    }
}

/// A question that holds the screen until it is dropped, answered or not.
struct OpenQuestion<'a> {
    screen: &'a Screen,
    /// True if the cursor stands after a line that was typed.
    is_answered: bool,
}

impl<'a> OpenQuestion<'a> {
    fn new(screen: &'a Screen) -> Self {
        screen.begin_question();
        Self { screen, is_answered: false }
    }
}

/// Prints the rows from `from` on, as many as fit above `below` rows. Returns the number of rows
/// shown so far.
fn page(rows: &[String], from: usize, below: usize) -> usize {
    let (_, height) = size();
    let to = rows.len().min(from + height.saturating_sub(below).max(1));
    rows[from..to].iter().for_each(|row| print(&format!("{row}\n")));
    to
}

fn print(text: &str) {
    // A stderr that is closed is no error; the question then ends with the input.
    let _ = Stream::Err.print(text);
}

/// Shows what may be typed. What was typed before is no answer to it and is dropped first: an answer
/// that comes as soon as the question stands counts. Returns `None` where typed text cannot be
/// dropped: then nobody answers.
fn prompt(choices: &str) -> Option<()> {
    let forgotten = tcflush(io::stdin(), QueueSelector::IFlush).ok();
    print(choices);
    forgotten
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // The question went away, and what follows begins a line of its own.
            print("\n");
        }
        self.screen.end_question();
    }
}

/// Shows what may be typed and reads a line; `None` at the end of the input. Dropping the future
/// leaves nothing behind that could read a later answer.
async fn read_line(choices: &str) -> Option<String> {
    prompt(choices)?;
    // The writer is dropped with the future, which wakes the reading thread.
    let (dropped, _waiting) = io::pipe().ok()?;
    tokio::task::spawn_blocking(move || line_or_end(&dropped)).await.ok().flatten()
}

/// Blocks until a line is typed, or until the writer of `dropped` is gone.
fn line_or_end(dropped: &PipeReader) -> Option<String> {
    let stdin = io::stdin();
    let mut ends = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(dropped, PollFlags::IN)];
    loop {
        match poll(&mut ends, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) if !ends[1].revents().is_empty() => return None,
            Ok(_) => break,
        }
    }
    // A terminal becomes readable when a line is complete, and gives one line at a time.
    let mut line = [0; LINE];
    let length = rustix::io::read(&stdin, &mut line[..]).ok().filter(|length| *length > 0)?;
    Some(String::from_utf8_lossy(&line[..length]).into_owned())
}
