//! Asks the person at the terminal of a run for the approvals that its tasks wait for.
//!
//! One question at a time, as for permissions. Whoever answers first, here or with a verb, decides: the records say who.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::ask;
use super::screen::Screen;
use crate::client::Client;
use crate::event::{Event, SharedRecord};
use crate::id::Name;
use crate::person::Consent;
use crate::run::control::this_process;
use crate::run_state::RunState;
use crate::show::question::{Answer, lines_of_asked, safe};
use crate::turn::question::{ApprovalAsked, ApprovalKind, PersonsAnswer};

/// The most records of questions and answers that wait while the person reads. What is beyond them can be answered with
/// `approve` and `reject`.
const MOST: usize = 256;

/// What may be typed.
const CHOICES: &str =
    "approve? [y yes, n no (n REASON says why), then enter; enter alone asks again] ";

/// An approval that a task waits for.
#[derive(Debug)]
struct Gate {
    task: Name,
    asked: ApprovalAsked,
}

/// Where the view of a run sends the records that gates are about.
pub(super) type Records = mpsc::Sender<SharedRecord>;

/// Sends a record, if it is about a gate.
pub(super) fn send(records: &Records, record: &SharedRecord) {
    let is_about_gates = matches!(
        record.event,
        Event::ApprovalAsked(_)
            | Event::ApprovalAnswered(_)
            | Event::TaskCancelled(_)
            | Event::TaskFailed(_)
    );
    if is_about_gates {
        // One that nobody takes can be answered elsewhere.
        let _ = records.try_send(record.clone());
    }
}

/// Asks for the approvals of a run until the sender of its records is gone; `before` is the state of a run that is
/// resumed. Dropping the future takes an open question off the screen.
pub(super) fn asking(
    client: Client,
    screen: Arc<Screen>,
    before: Option<&RunState>,
) -> (Records, impl Future<Output = ()> + Send + use<>) {
    let (sender, records) = mpsc::channel(MOST);
    let open = before.map(|state| state.questions().open()).unwrap_or_default();
    let open = open.into_iter().filter_map(|question| gate(&question.task, &question.asked));
    let mut gates = Gates { waiting: open.collect(), records, screen, client };
    (sender, async move { while gates.next().await.is_some() {} })
}

fn gate(task: &Name, asked: &ApprovalAsked) -> Option<Gate> {
    let is_gate = asked.kind == ApprovalKind::Approval;
    is_gate.then(|| Gate { task: task.clone(), asked: asked.clone() })
}

struct Gates {
    waiting: VecDeque<Gate>,
    records: mpsc::Receiver<SharedRecord>,
    screen: Arc<Screen>,
    client: Client,
}

impl Gates {
    /// Waits for the next gate, and asks about it. Returns `None` if there can be no other.
    async fn next(&mut self) -> Option<()> {
        let Some(gate) = self.waiting.pop_front() else {
            let record = self.records.recv().await?;
            self.note(&record);
            return Some(());
        };
        let said = {
            let screen = self.screen.clone();
            let mut asking = pin!(answer(&screen, &gate));
            loop {
                tokio::select! {
                    said = &mut asking => break said,
                    record = self.records.recv() => {
                        let record = record?;
                        if closes(&record, &gate) {
                            return Some(());
                        }
                        self.note(&record);
                    }
                }
            }
        };
        // Without an input nobody answers here.
        let Consent { allowed, reason } = said?;
        let (id, text) = (gate.asked.id, reason.filter(|_| !allowed));
        let answer = PersonsAnswer { id, allowed, text, by: this_process() };
        if let Err(error) = self.client.answer(answer).await {
            // A stderr that is closed is no error: the run goes on.
            let _ = self.screen.line(&format!("the answer was not taken: {error}"));
        }
        Some(())
    }

    fn note(&mut self, record: &SharedRecord) {
        match &record.event {
            Event::ApprovalAsked(asked) => {
                let gate = record.task.as_ref().and_then(|task| gate(task, asked));
                let is_known = self.waiting.iter().any(|waiting| waiting.asked.id == asked.id);
                self.waiting.extend(gate.filter(|_| !is_known));
            }
            _ => self.waiting.retain(|waiting| !closes(record, waiting)),
        }
    }
}

/// Returns true if a gate waits no longer: somebody has answered, or its task has ended.
fn closes(record: &SharedRecord, gate: &Gate) -> bool {
    match &record.event {
        Event::ApprovalAnswered(answered) => answered.id == gate.asked.id,
        Event::TaskCancelled(_) | Event::TaskFailed(_) => record.task.as_ref() == Some(&gate.task),
        _ => false,
    }
}

/// Asks about a gate; `None` at the end of the input.
async fn answer(screen: &Screen, gate: &Gate) -> Option<Consent> {
    let _turn = screen.turn().await;
    let mut lines = vec![format!("{} asks for an approval:", safe(gate.task.as_str()))];
    lines.extend(lines_of_asked(&gate.asked, gate.task.as_str(), None));
    let takes = |answer: Answer| answer == Answer::Yes;
    let (answer, line) = ask::said(screen, &lines, CHOICES, None, takes).await?;
    Some(if answer == Answer::No { ask::no(&line) } else { true.into() })
}
