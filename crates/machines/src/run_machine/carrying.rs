//! The order in which the machine makes decisions and carries them out.

use std::sync::Arc;

use super::scope_pauses::PauseChange;
use super::slots::Next;
use super::timers::Timer;
use super::{
    Action, Errand, Facts, Finish, ListAgents, Request, RunMachine, SlotBack, Wish, purse,
};
use crate::spec::{AgentSpec, TaskSpec};
use crate::turn::question::PersonsAnswer;

impl RunMachine {
    /// Takes in what a person gives. `request` is the one who wants to know what became of it.
    pub(super) fn take_answer(&mut self, request: Option<u64>, answer: PersonsAnswer) {
        match Errand::of(&answer.id) {
            Errand::Limits => {
                if let Some((scope, caps)) = purse::read_change(&answer) {
                    return self.purse().set(request, scope, caps, answer.by);
                }
            }
            Errand::Pause => {
                if let Some(change) = PauseChange::read(&answer) {
                    return self.scope_pauses().set(request, change, answer.by);
                }
            }
            Errand::Message => return self.messages().said(request, answer),
            Errand::Answer => {}
        }
        self.questions().answered_by(request, answer);
    }

    /// Gives the wish of an agent to the desk that it is for.
    pub(super) fn wished(&mut self, request: Request) {
        let Request { from, task, id, wish } = request;
        match wish {
            Wish::Child(delegation) => self.agents().delegated(from, task, delegation),
            Wish::Person(ask) => self.questions().asked(from, &task, ask),
            Wish::Tasks(proposal) => self.growth().proposed(from, proposal),
            Wish::Slot(SlotBack) => self.agents().wants_slot(from),
            Wish::Money(reservation) => self.purse().asked(from, id, reservation),
            Wish::Message(letter) => self.messages().asked(from, id, letter),
            Wish::Agents(ListAgents) => self.messages().listed(&from, &id),
            Wish::Wait(wait) => self.background().waited(from, id, wait),
            Wish::Look(look) => self.children().looked(from, &id, &look),
            Wish::Stop(stop) => self.background().stopped(from, &id, &stop),
            Wish::Leave(leave) => self.background().asked_to_leave(from, id, leave),
        }
    }

    /// Handles a timer that fired.
    pub(super) fn fired(&mut self, timer: Timer) {
        match timer {
            Timer::Retry(place) => self.facts.agenda.touch(place),
            Timer::TaskLimit(place) => self.timers().task_limit_reached(place),
            Timer::RunLimit => self.timers().run_limit_reached(),
            Timer::AgentLimit(agent) => self.timers().agent_limit_reached(&agent),
            Timer::Restart(agent) => self.agents().restart_agent(&agent),
            Timer::EndOverdue(agent) => self.timers().end_overdue(&agent),
            Timer::KillOverdue(agent) => self.agents().gone(&agent, None),
            Timer::InterruptOverdue => self.pauses().interrupt_overdue(),
            Timer::PauseOverdue => self.pauses().pause_overdue(),
            // Slots are given out with every decision.
            Timer::Spawn => {}
            Timer::Wait(agent, id) => self.background().wait_is_over(&agent, &id),
            Timer::QuotaTried => self.quotas().tried(),
            Timer::Question(id) => self.questions().overdue(&id),
            Timer::Stalled => self.pauses().stalled(),
            Timer::Notice => self.notices().look_again(),
        }
    }

    /// Carries out what was posted, and all that follows from it: first what follows from the first.
    pub(super) fn carry_out_all(&mut self) {
        let mut waiting = Vec::new();
        loop {
            waiting.extend(self.out.decided.drain(..).rev());
            let Some(next) = waiting.pop() else { return };
            self.carry_out(next);
        }
    }

    /// Adds tasks to the plan, with their agent definitions.
    pub(super) fn extend_plan(&mut self, tasks: Vec<TaskSpec>, agents: Vec<Arc<AgentSpec>>) {
        let Facts { settings, state, agenda, .. } = &mut self.facts;
        if !agents.is_empty() {
            let by_name = agents.iter().map(|agent| (agent.name.clone(), agent.clone()));
            settings.agents.extend(by_name);
            self.out.actions.push_back(Action::Define(agents));
        }
        match settings.plan.extend(tasks) {
            // It was checked before.
            Err(problem) => self.pauses().finish(Finish::Broken(problem.to_string())),
            Ok(added) => {
                agenda.extend(&settings.plan, state, added.clone());
                self.sharing().plan_extended(added.start);
                self.stopping().plan_extended(added);
            }
        }
    }

    /// Adds the instances of a task that has fanned out to the plan.
    pub(super) fn expand(&mut self, place: usize) {
        let Some(status) = self.facts.status(place) else { return };
        let count = status.instances.len();
        let is_known = self.plan().instances(place).len() == count && count > 0;
        let instances = self.facts.settings.plan.expand(place, count);
        if !is_known || self.facts.agenda.instances(place).open() == 0 {
            let standings: Vec<_> = instances.clone().map(|at| self.facts.standing(at)).collect();
            self.facts.agenda.expand(place, instances, &standings);
        }
        // The items may be others than before.
        self.agents().dismiss_unused();
    }

    /// Makes all decisions that follow from the inputs so far, in this order: what the rules have posted; the
    /// beginning of the run; each task that was touched; locks, then slots; the pause for people; its end; who is
    /// told of it.
    pub(super) fn decide(&mut self) {
        self.carry_out_all();
        if self.facts.pauses.is_finishing() {
            return;
        }
        self.hooks().start_next();
        self.carry_out_all();
        match self.facts.pauses.is_interrupted() {
            true => self.pauses().pause_when_quiet(),
            false => self.decide_about_work(),
        }
        self.carry_out_all();
        self.notices().send_what_is_due();
        self.carry_out_all();
    }

    fn decide_about_work(&mut self) {
        let waits = self.hooks().waits_for_start();
        self.carry_out_all();
        if waits {
            return;
        }
        loop {
            while let Some(place) = self.facts.agenda.next_touched() {
                if !self.facts.has_change_under_way(place) {
                    self.tasks().decide(place);
                    self.carry_out_all();
                    self.evaluating().forget_unused(place);
                }
            }
            // Only once all that could start has its place in line.
            self.scarce().grant_locks();
            self.carry_out_all();
            if !self.facts.agenda.is_due() {
                self.fill_slots();
            }
            // Whoever has its locks wants a slot, and an attempt that got its slot back is decided with it.
            if !self.facts.agenda.is_due() {
                break;
            }
        }
        self.questions().pause_for_people();
        self.carry_out_all();
        match self.facts.pauses.is_interrupted() {
            true => self.pauses().pause_when_quiet(),
            false => self.pauses().complete_when_done(),
        }
        self.carry_out_all();
        self.pauses().watch_for_stall();
        self.carry_out_all();
    }

    /// Gives free slots to waiting agents and tasks.
    fn fill_slots(&mut self) {
        while let Some(next) = self.scarce().next() {
            match next {
                Next::Return(agent) => self.agents().slot_granted(agent),
                Next::Child(child) => self.agents().start_child(child),
                Next::Task(place) => self.tasks().start(place),
            }
            self.carry_out_all();
        }
    }
}
