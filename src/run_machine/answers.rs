//! Decides whether the answer of an attempt is accepted: its form and its schema, then the checks, then
//! the condition of the loop. An answer that is not accepted goes back to its agent, in the same
//! conversation, as long as the attempt may have another round.
//!
//! Everything is derived from the records: the outcome of the main agent, the rounds of the attempt
//! and the outcomes of the checks of the last round. So a resumed run continues at the same place.
//! The checks work in the slot of the main agent, which has ended by then.

use super::decision::Decision;
use super::evaluation::Wanted;
use super::facts::Facts;
use super::slots::Rank;
use super::{Action, Made, RunMachine};
use crate::event::Draft;
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, Name};
use crate::output::Output;
use crate::plan::TaskCancelled;
use crate::run_machine::facts::Checking;
use crate::run_state::Verdict;
use crate::spec::acceptance::Loop;
use crate::turn::{AgentRestarted, AgentSpawned, Cause, CheckPlace, Feedback, Outcome};

/// Name of the agents that make checks, between the id of the agent that they judge and their number.
const CHECK: &str = "check";

/// What an agent that makes a check is told if its answer gave no verdict.
const UNCLEAR: &str = "Your answer gave no verdict. Answer again: the first line is the single word \
    `pass` or the single word `fail`, and nothing else stands in that line.";

/// Returns what the agent is told whose answer does not have the form that is wanted.
pub(super) fn form_is_wrong(failure: &Failure) -> String {
    format!(
        "Your answer was not accepted: {}. Give your whole answer again, as one JSON document and \
         nothing else.",
        failure.message
    )
}

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

    /// Returns the time limit of a check.
    fn limit_of_check(&self, id: &AgentId) -> Option<std::time::Duration> {
        let agent = self.state.agents().get(id)?;
        let check = agent.check?;
        let place = self.settings.plan.place(&agent.task)?;
        self.spec(place).acceptance.checks.get(check.index as usize)?.timeout
    }

    /// Returns the time limit of an agent that is not the main agent of its task: a check or a child.
    pub(super) fn limit_of(&self, id: &AgentId) -> Option<std::time::Duration> {
        self.limit_of_check(id).or_else(|| self.limit_of_child(id))
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

impl RunMachine {
    /// Asks for the form of an answer to be checked.
    pub(super) fn check_output(&mut self, place: usize, output: Made, reused: Option<String>) {
        let spec = self.facts.spec(place);
        // What is judged further is written to the task's file once it is accepted. The instances of
        // a fan-out are judged one by one.
        let is_last = !spec.acceptance.judges()
            || spec.fan_out.is_some()
            || reused.is_some()
            || self.facts.judged.get(&place).is_some_and(|judged| judged.is_accepted);
        let is_written = spec.output_file.is_some() && is_last;
        let path = is_written.then(|| Box::new(self.facts.snapshot(place, Wanted::OutputFile)));
        self.facts.proposed.insert(place);
        self.facts.checking.insert(place, Checking { reused, is_last });
        let task = self.facts.name(place).clone();
        self.actions.push_back(Action::CheckOutput { task, output, path, is_last });
    }

    /// Continues to judge the answer of an attempt whose agents have all ended.
    pub(super) fn judge(&mut self, place: usize, main: &AgentId, output: Output) {
        if !self.facts.judged.contains_key(&place) {
            return self.check_output(place, Made::Whole(output), None);
        }
        let round = self.facts.status(place).map_or(1, |status| status.round());
        let of_agent = self.facts.state.agents().get(main).map_or(1, |agent| agent.round);
        let count = self.facts.spec(place).acceptance.checks.len();
        for index in 0..count {
            let index_of = u32::try_from(index).unwrap_or(u32::MAX);
            let at = CheckPlace { round: of_agent, index: index_of };
            let Some((judge, status)) = self.facts.state.check(main, at) else {
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
                    let failure = self.facts.named(place, index, failure);
                    return self.post(Decision::FailAttempt(place, failure));
                }
                Some(Verdict::Cancelled(reason)) => {
                    return self.record_task(place, TaskCancelled { reason }.into());
                }
                // It is at work: no agent of an attempt that is judged is.
                None => return,
            }
        }
        if let Some(Loop { until, max_iterations }) =
            self.facts.spec(place).acceptance.repeat.clone()
        {
            let Some(holds) = self.facts.truth(place, Wanted::Until(round)) else { return };
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
                Err(failure) => return self.post(Decision::FailAttempt(place, failure)),
            }
        }
        if let Some(judged) = self.facts.judged.get_mut(&place) {
            judged.is_accepted = true;
        }
        self.check_output(place, Made::Whole(output), None);
    }

    /// Handles an answer whose form is wrong: its agent is asked again, if it can be.
    pub(super) fn form_is_wrong(&mut self, place: usize, failure: Failure) {
        let cause = match failure.kind {
            FailureKind::OutputFormat => Cause::Format,
            FailureKind::OutputSchema => Cause::Schema,
            _ => return self.post(Decision::FailAttempt(place, failure)),
        };
        let text = form_is_wrong(&failure);
        self.ask_again(place, cause, failure, text);
    }

    fn check_failed(&mut self, place: usize, index: usize, failure: Failure) {
        let check = &self.facts.spec(place).acceptance.checks[index];
        let text = format!(
            "A check of your answer failed, {}: {}{}\nMend what is wrong, then give your whole answer \
             again.",
            check.work.words(),
            failure.message,
            failure.output.as_ref().map(|output| format!("\n{output}")).unwrap_or_default(),
        );
        let output = failure.output.clone().unwrap_or_default();
        let failure = Failure::new(FailureKind::CheckFailed, failure.message);
        let failure = self.facts.named(place, index, failure).with_output(&output);
        self.ask_again(place, Cause::Check, failure, text);
    }

    /// Begins the next round of an attempt, or lets the attempt fail if it may have none.
    fn ask_again(&mut self, place: usize, cause: Cause, failure: Failure, text: String) {
        let Some(status) = self.facts.status(place) else { return };
        let Some(main) = status.agent.clone() else { return };
        let (round, agent) = (status.round(), self.facts.state.agents().get(&main));
        let (restarts, is_command) =
            agent.map_or((0, true), |agent| (agent.restarts, agent.definition.is_none()));
        let mended = status.rounds.iter().filter(|cause| **cause != Cause::Until).count();
        let rules = &self.facts.spec(place).acceptance;
        let text = if is_command { String::new() } else { text };
        let is_over = rules.repeat.as_ref().is_some_and(|repeat| round >= repeat.max_iterations)
            || (cause != Cause::Until && (is_command || mended >= rules.retries as usize));
        if is_over {
            let told = match (cause, round) {
                (Cause::Until, _) | (_, 1) => String::new(),
                _ => format!(" (in round {round})"),
            };
            let message = format!("{}{told}", failure.message);
            return self.post(Decision::FailAttempt(place, Failure { message, ..failure }));
        }
        if !self.may_go_on(place, &main) {
            return;
        }
        if let Some(failure) = self.facts.bound(place, 1) {
            return self.post(Decision::FailAttempt(place, failure));
        }
        self.facts.count_from_now(place);
        self.facts.judged.remove(&place);
        *self.facts.spawning.entry(main.clone()).or_default() += 1;
        let reason = format!("round {}: {}", round.saturating_add(1), cause.words());
        let feedback = Some(Feedback { cause, text });
        let restarted = AgentRestarted { restart: restarts, reason, feedback };
        let task = self.facts.name(place).clone();
        self.record(vec![Draft::agent(&task, &main, restarted)]);
    }

    /// Records the agent of a check.
    fn start_check(&mut self, place: usize, main: &AgentId, at: CheckPlace) {
        if !self.may_go_on(place, main) {
            return;
        }
        let round = self.facts.status(place).map_or(1, |status| status.round());
        let Some(program) = self.facts.program(place, Wanted::Check(at, round)) else { return };
        let program = match program {
            Ok(program) => program,
            Err(failure) => return self.post(Decision::FailAttempt(place, failure)),
        };
        if let Some(failure) = self.facts.bound(place, 1) {
            return self.post(Decision::FailAttempt(place, failure));
        }
        let Some(id) = self.facts.id_of_check(main) else { return };
        self.facts.count_from_now(place);
        self.facts.slots.hand_over(main, id.clone());
        *self.facts.spawning.entry(main.clone()).or_default() += 1;
        let spawned = AgentSpawned {
            depth: 1,
            parent: Some(main.clone()),
            check: Some(at),
            ..AgentSpawned::main(program)
        };
        let task = self.facts.name(place).clone();
        self.record(vec![Draft::agent(&task, &id, spawned)]);
    }

    /// Asks the agent of a check once more, in the same conversation, because its answer gave no
    /// verdict.
    fn ask_judge_again(&mut self, place: usize, main: &AgentId, judge: &AgentId) {
        if !self.may_go_on(place, main) {
            return;
        }
        if let Some(failure) = self.facts.bound(place, 1) {
            return self.post(Decision::FailAttempt(place, failure));
        }
        self.facts.count_from_now(place);
        self.facts.slots.hand_over(main, judge.clone());
        self.facts.begins_soon_below(judge);
        let agent = self.facts.state.agents().get(judge);
        let (restart, is_command) =
            agent.map_or((0, false), |agent| (agent.restarts, agent.definition.is_none()));
        let (text, reason) = match is_command {
            true => ("", "it was killed before it gave a verdict"),
            false => (UNCLEAR, "its answer gave no verdict"),
        };
        let feedback = Some(Feedback { cause: Cause::Format, text: text.to_owned() });
        let reason = reason.to_owned();
        let restarted = AgentRestarted { restart, reason, feedback };
        let task = self.facts.name(place).clone();
        self.record(vec![Draft::agent(&task, judge, restarted)]);
    }

    /// Returns true if the attempt may begin more work now: nobody stops it, and it has its slot. If it
    /// lacks only the slot, it is judged again when it has it.
    fn may_go_on(&mut self, place: usize, main: &AgentId) -> bool {
        if self.facts.interrupted.is_some() {
            // A resumed run decides it again.
            return false;
        }
        match self.facts.sentence_of_task(place) {
            None => {}
            Some(Outcome::Failed { failure, .. }) => {
                self.post(Decision::FailAttempt(place, failure));
                return false;
            }
            Some(Outcome::Cancelled { reason }) => {
                self.record_task(place, TaskCancelled { reason }.into());
                return false;
            }
            Some(Outcome::Completed { .. }) => {}
        }
        if self.facts.slots.holds(main) {
            return true;
        }
        // The last process left the attempt between two agents.
        if !self.facts.slots.is_returning(main) {
            self.facts.slots.return_to(main.clone(), Rank::Main);
        }
        false
    }

    /// Continues an agent that had ended, once the record of its round is durable.
    pub(super) fn round_begins(&mut self, id: &AgentId) {
        self.facts.begins_below(id);
        self.facts.is_counted(id);
        self.facts
            .agents
            .insert(id.clone(), super::facts::OpenAgent::new(super::facts::Stage::Idle));
        if self.facts.interrupted.is_some() {
            return;
        }
        if let Some(outcome) = self.facts.sentence(id) {
            return self.post(Decision::EndAgent(id.clone(), outcome));
        }
        self.post(Decision::Fold(id.clone()));
        self.post(Decision::LimitAttemptOf(id.clone()));
    }

    /// Ends the agents of an attempt: its main agent, or the check that judges it.
    pub(super) fn end_attempt(&mut self, main: &AgentId, outcome: &Outcome) {
        self.post(Decision::EndAgent(main.clone(), outcome.clone()));
        let children = self.facts.state.agents().get(main).map(|main| main.children.as_slice());
        let is_check = |id: &&AgentId| {
            let agent = self.facts.state.agents().get(*id);
            agent.is_some_and(|agent| agent.check.is_some()) && self.facts.agents.contains_key(*id)
        };
        let checks: Vec<_> = children.into_iter().flatten().filter(is_check).cloned().collect();
        for check in checks {
            self.post(Decision::EndAgent(check, outcome.clone()));
        }
    }
}
