//! Decides whether the answer of an attempt is accepted: its form and its schema, then the checks, then
//! the condition of the loop. An answer that is not accepted goes back to its agent, in the same
//! conversation, as long as the attempt may have another round.
//!
//! Everything is derived from the records: the outcome of the main agent, the rounds of the attempt
//! and the outcomes of the checks of the last round. So a resumed run continues at the same place.
//! The checks work in the slot of the main agent, which has ended by then.

use super::{Attempts, Checking};
use crate::event::Draft;
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, Name};
use crate::output::Output;
use crate::plan::TaskCancelled;
use crate::run_machine::decision::{self, Decision};
use crate::run_machine::desk::Desk;
use crate::run_machine::evaluation::Wanted;
use crate::run_machine::{Action, Facts, Made};
use crate::run_state::Verdict;
use crate::spec::acceptance::Loop;
use crate::turn::{AgentRestarted, AgentSpawned, Cause, CheckPlace, Feedback, Outcome};

/// Name of the agents that make checks, between the id of the agent that they judge and their number.
const CHECK: &str = "check";

/// What an agent that makes a check is told if its answer gave no verdict.
const UNCLEAR: &str = "Your answer gave no verdict. Answer again: the first line is the single word \
    `pass` or the single word `fail`, and nothing else stands in that line.";

impl Facts {
    /// Returns an id that no agent below this one has: a delegation may use the same names.
    fn id_of_check(&self, main: &AgentId) -> Option<AgentId> {
        let name = Name::new(CHECK).ok()?;
        let made = self.state.agents().get(main)?.children.iter();
        let made = made.filter_map(|id| self.state.agents().get(id));
        let made = made.filter(|agent| agent.check.is_some()).count();
        let first = u32::try_from(made).unwrap_or(u32::MAX).saturating_add(1);
        (first..).map(|number| main.child(&name, number)).find(|id| !self.is_taken(id))
    }

    /// Returns a failure whose message names a check.
    fn named(&self, place: usize, index: usize, failure: Failure) -> Failure {
        if failure.kind == FailureKind::Timeout {
            // The time of the attempt or of the run is over, not that of the check.
            return failure;
        }
        let words = self.spec(place).acceptance.checks[index].work.words();
        let message = format!("check {}, {words}: {}", index + 1, failure.message);
        Failure { message, ..failure }
    }
}

impl Desk<'_, Attempts> {
    /// Asks for the form of an answer to be checked.
    pub(in crate::run_machine) fn check_output(
        &mut self,
        place: usize,
        output: Made,
        reused: Option<String>,
    ) {
        let spec = self.spec(place);
        // What is judged further is written to the task's file once it is accepted. The instances of
        // a fan-out are judged one by one.
        let is_last = !spec.acceptance.judges()
            || spec.fan_out.is_some()
            || reused.is_some()
            || self.attempts.judged.get(&place).is_some_and(|judged| judged.is_accepted);
        let is_written = spec.output_file.is_some() && is_last;
        let path = is_written.then(|| Box::new(self.snapshot(place, Wanted::OutputFile, 0)));
        self.own().checking.insert(place, Checking { reused, is_last });
        let task = self.name(place).clone();
        self.act(Action::CheckOutput { task, output, path, is_last });
    }

    /// Continues to judge the answer of an attempt whose agents have all ended.
    pub(in crate::run_machine) fn judge(&mut self, place: usize, main: &AgentId, output: Output) {
        if !self.attempts.judged.contains_key(&place) {
            return self.check_output(place, Made::Whole(output), None);
        }
        let round = self.status(place).map_or(1, |status| status.round());
        let of_agent = self.state.agents().get(main).map_or(1, |agent| agent.round);
        let count = self.spec(place).acceptance.checks.len();
        for index in 0..count {
            let index_of = u32::try_from(index).unwrap_or(u32::MAX);
            let at = CheckPlace { round: of_agent, index: index_of };
            let Some((judge, status)) = self.state.check(main, at) else {
                return self.start_check(place, main, at);
            };
            match status.verdict() {
                Some(Verdict::Passed) => {}
                Some(Verdict::Failed(failure)) => return self.check_failed(place, index, failure),
                Some(Verdict::Unclear(_)) if status.round == 1 => {
                    let judge = judge.clone();
                    return self.ask_judge_again(place, main, &judge);
                }
                // No answer of the task's agent can mend what its judge says.
                Some(Verdict::Unclear(failure) | Verdict::Undecided(failure)) => {
                    let failure = self.named(place, index, failure);
                    return self.fail(place, failure);
                }
                Some(Verdict::Cancelled(reason)) => {
                    return self.record_task(place, TaskCancelled { reason }.into());
                }
                // It is at work: no agent of an attempt that is judged is.
                None => return,
            }
        }
        if let Some(Loop { until, max_iterations }) = self.spec(place).acceptance.repeat.clone() {
            let Some(holds) = self.truth(place, Wanted::Until(round)) else { return };
            match holds {
                Ok(true) => {}
                Ok(false) => {
                    let message =
                        format!("`until` still does not hold after round {round}: {until}");
                    let text = format!(
                        "Your answer is complete, but the work is not: `{until}` does not hold yet. \
                         Go on with the work, then give your whole answer again (round {} of \
                         {max_iterations}).",
                        round.saturating_add(1)
                    );
                    let failure = Failure::new(FailureKind::MaxIterations, message);
                    return self.ask_again(place, Cause::Until, failure, text);
                }
                Err(failure) => return self.fail(place, failure),
            }
        }
        if let Some(judged) = self.own().judged.get_mut(&place) {
            judged.is_accepted = true;
        }
        self.check_output(place, Made::Whole(output), None);
    }

    /// Handles an answer whose form is wrong: its agent is asked again, if it can be.
    pub(in crate::run_machine) fn form_is_wrong(&mut self, place: usize, failure: Failure) {
        let cause = match failure.kind {
            FailureKind::OutputFormat => Cause::Format,
            FailureKind::OutputSchema => Cause::Schema,
            _ => return self.fail(place, failure),
        };
        let text = decision::ask_to_mend(&failure);
        self.ask_again(place, cause, failure, text);
    }

    fn check_failed(&mut self, place: usize, index: usize, failure: Failure) {
        let check = &self.spec(place).acceptance.checks[index];
        let text = format!(
            "A check of your answer failed, {}: {}{}\nMend what is wrong, then give your whole answer \
             again.",
            check.work.words(),
            failure.message,
            failure.output.as_ref().map(|output| format!("\n{output}")).unwrap_or_default(),
        );
        let output = failure.output.clone().unwrap_or_default();
        let failure = Failure::new(FailureKind::CheckFailed, failure.message);
        let failure = self.named(place, index, failure).with_output(&output);
        self.ask_again(place, Cause::Check, failure, text);
    }

    /// Begins the next round of an attempt, or lets the attempt fail if it may have none.
    fn ask_again(&mut self, place: usize, cause: Cause, failure: Failure, text: String) {
        let Some(status) = self.status(place) else { return };
        let Some(main) = status.agent.clone() else { return };
        let (round, agent) = (status.round(), self.state.agents().get(&main));
        let (restarts, is_command) =
            agent.map_or((0, true), |agent| (agent.restarts, agent.definition.is_none()));
        let mended = status.rounds.iter().filter(|cause| **cause != Cause::Until).count();
        let rules = &self.spec(place).acceptance;
        let text = if is_command { String::new() } else { text };
        let is_over = rules.repeat.as_ref().is_some_and(|repeat| round >= repeat.max_iterations)
            || (cause != Cause::Until && (is_command || mended >= rules.retries as usize));
        if is_over {
            let in_round = match (cause, round) {
                (Cause::Until, _) | (_, 1) => String::new(),
                _ => format!(" (in round {round})"),
            };
            let message = format!("{}{in_round}", failure.message);
            return self.fail(place, Failure { message, ..failure });
        }
        if !self.may_go_on(place, &main) {
            return;
        }
        if let Some(failure) = self.bound(place, 1) {
            return self.fail(place, failure);
        }
        self.post(Decision::CountFromNow(place));
        self.own().judged.remove(&place);
        self.post(Decision::BeginsSoonBelow(main.clone()));
        let reason = format!("round {}: {}", round.saturating_add(1), cause.words());
        let feedback = Some(Feedback { cause, text });
        let restarted = AgentRestarted::new(restarts, reason, feedback);
        let task = self.name(place).clone();
        self.record(vec![Draft::agent(&task, &main, restarted)]);
    }

    /// Records the agent of a check.
    fn start_check(&mut self, place: usize, main: &AgentId, at: CheckPlace) {
        if !self.may_go_on(place, main) {
            return;
        }
        let round = self.status(place).map_or(1, |status| status.round());
        let Some(program) = self.program(place, Wanted::Check(at, round)) else { return };
        let program = match program {
            Ok(program) => program,
            Err(failure) => return self.fail(place, failure),
        };
        if let Some(failure) = self.bound(place, 1) {
            return self.fail(place, failure);
        }
        let Some(id) = self.id_of_check(main) else { return };
        self.post(Decision::CountFromNow(place));
        self.post(Decision::HandOver(main.clone(), id.clone()));
        self.post(Decision::BeginsSoonBelow(main.clone()));
        let spawned = AgentSpawned {
            depth: 1,
            parent: Some(main.clone()),
            check: Some(at),
            ..AgentSpawned::main(program)
        };
        let task = self.name(place).clone();
        self.record(vec![Draft::agent(&task, &id, spawned)]);
    }

    /// Asks the agent of a check once more, in the same conversation, because its answer gave no
    /// verdict.
    fn ask_judge_again(&mut self, place: usize, main: &AgentId, judge: &AgentId) {
        if !self.may_go_on(place, main) {
            return;
        }
        if let Some(failure) = self.bound(place, 1) {
            return self.fail(place, failure);
        }
        self.post(Decision::CountFromNow(place));
        self.post(Decision::HandOver(main.clone(), judge.clone()));
        self.post(Decision::BeginsSoonBelow(judge.clone()));
        let agent = self.state.agents().get(judge);
        let (restart, is_command) =
            agent.map_or((0, false), |agent| (agent.restarts, agent.definition.is_none()));
        let (text, reason) = match is_command {
            true => ("", "it was killed before it gave a verdict"),
            false => (UNCLEAR, "its answer gave no verdict"),
        };
        let feedback = Some(Feedback { cause: Cause::Format, text: text.to_owned() });
        let reason = reason.to_owned();
        let restarted = AgentRestarted::new(restart, reason, feedback);
        let task = self.name(place).clone();
        self.record(vec![Draft::agent(&task, judge, restarted)]);
    }

    /// Returns true if the attempt may begin more work now: nobody stops it, and it has its slot. If it
    /// lacks only the slot, it is judged again when it has it.
    fn may_go_on(&mut self, place: usize, main: &AgentId) -> bool {
        if self.pauses.is_interrupted() {
            // A resumed run decides it again.
            return false;
        }
        if self.is_task_paused(place) {
            // It needs no slot meanwhile, and is decided again when it goes on.
            self.post(Decision::Release(main.clone()));
            return false;
        }
        match self.sentence_of_task(place) {
            None => {}
            Some(Outcome::Failed { failure, .. }) => {
                self.fail(place, failure);
                return false;
            }
            Some(Outcome::Cancelled { reason }) => {
                self.record_task(place, TaskCancelled { reason }.into());
                return false;
            }
            Some(Outcome::Completed { .. }) => {}
        }
        if self.scarce.holds(main) {
            return true;
        }
        // The last process left the attempt between two agents.
        if !self.scarce.is_returning(main) {
            self.post(Decision::ReturnTo(main.clone()));
        }
        false
    }
}
