//! Decides about the children that agents ask for.

use super::Agents;
use crate::event::Draft;
use crate::id::{AgentId, CallKey, Name};
use crate::run_machine::Facts;
use crate::run_machine::decision::{Child, Decision};
use crate::run_machine::desk::Desk;
use crate::run_machine::request::{ChildReply, Delegation, Refused, Reply};
use crate::turn::{AgentSpawned, Program};

/// Sentence after the prompt of a child whose answer must fit a schema, which follows.
const FORM: &str =
    "\n\nAnswer with one JSON document that fits this JSON Schema, and with nothing else:\n";

impl Facts {
    /// Returns the reason why the limits allow no further child, in words for the model; `None` if
    /// they do.
    fn refusal(&self, place: usize, delegation: &Delegation) -> Option<String> {
        let limits = &self.settings.limits;
        if delegation.depth > limits.max_depth {
            return Some(format!("the delegation depth of {} is reached", limits.max_depth));
        }
        if self.children_left_for(place) > 0 {
            return None;
        }
        let most = limits.max_descendants;
        Some(match self.children_left() {
            0 => format!("the run's limit of {most} children is reached; do the work yourself"),
            left => format!(
                "this task has used its share of the run's {most} children, and the {left} that are \
                 left are kept for other tasks; do the work yourself"
            ),
        })
    }

    /// Returns true if an agent has this id, or a child that comes will have it.
    fn is_given(&self, id: &AgentId) -> bool {
        self.is_taken(id) || self.agents.coming.values().any(|coming| coming == id)
    }

    /// Returns the child that a call asked for.
    fn child_of(&self, call: &CallKey) -> Option<AgentId> {
        self.state.child_of_call(call).or(self.agents.coming.get(call)).cloned()
    }
}

impl Desk<'_, Agents> {
    /// Handles a parent's request for a child, or again for the child of an earlier call.
    pub(in crate::run_machine) fn delegated(
        &mut self,
        parent: AgentId,
        task: Name,
        delegation: Delegation,
    ) {
        // A parent that waits for its children needs no slot.
        self.post(Decision::Release(parent.clone()));
        if let Some(child) = self.child_of(&delegation.call) {
            return match (delegation.background, self.is_taken(&child)) {
                (true, true) => {
                    self.answer(&parent, &delegation.call, Ok(ChildReply::Begun(child)));
                }
                // Its record comes, and with it the answer.
                (true, false) => {}
                // A child that is still at work answers when it ends.
                (false, _) => self.post(Decision::GiveResult(child)),
            };
        }
        if delegation.continues.is_some() {
            return self.post(Decision::ContinueChild(parent, Box::new(delegation)));
        }
        // What cleans up after a stop goes on as before.
        let is_ending = self.pauses.is_interrupted() || self.sentence(&parent).is_some();
        let place = self.settings.plan.place(&task);
        let (Some(place), false) = (place, is_ending || self.agents.is_over(&parent)) else {
            // The parent was asked to end, and waits until then. An answer would be recorded as the
            // call's result, so a resumed run could not make the call again.
            return;
        };
        let refusal = self.refusal(place, &delegation);
        if let Some(reason) = refusal.or_else(|| self.unaffordable(&parent, &delegation)) {
            return self.answer(&parent, &delegation.call, Err(Refused(reason)));
        }
        let agent = match &delegation.name {
            Some(name) => self.named_child(&parent, name),
            None => self.next_child(&parent, &delegation.agent),
        };
        self.own().coming.insert(delegation.call.clone(), agent.clone());
        self.post(Decision::CountChild(place));
        let child = Child { agent, parent, task, delegation };
        self.post(Decision::WantChild(place, Box::new(child)));
    }

    pub(in crate::run_machine) fn answer(
        &mut self,
        parent: &AgentId,
        call: &CallKey,
        answer: Result<ChildReply, Refused>,
    ) {
        // A parent without an actor asks again after it has resumed.
        if self.agents.is_live(parent) {
            self.post(Decision::NoteLoose(parent.clone()));
            self.reply(parent.clone(), call.as_str(), Reply::Child(answer));
        }
    }

    /// Records a new child that has got a slot.
    pub(in crate::run_machine) fn start_child(&mut self, child: Child) {
        let Child { agent: id, parent, task, delegation } = child;
        let schema = self.schema_of_child(&delegation);
        let Delegation { depth, call, agent, mut prompt, timeout, budget, background, .. } =
            delegation;
        if let Some(schema) = &schema {
            prompt.push_str(FORM);
            prompt.push_str(schema.as_str());
        }
        let place = self.settings.plan.place(&task).filter(|_| !self.agents.is_over(&parent));
        let Some(place) = place else { return self.forget_coming(&task, &call) };
        self.post(Decision::BeginChild(place, id.clone()));
        self.begins_soon_below(&parent);
        let definition = |id: &AgentId| self.state.agents().get(id)?.definition.clone();
        let lineage = self.line_of(&parent).iter().filter_map(definition).collect();
        let spawned = AgentSpawned {
            program: Program::Model { agent, prompt: prompt.into() },
            depth,
            parent: Some(parent),
            call: Some(call),
            lineage,
            check: None,
            answer_schema: schema,
            timeout_ms: timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            budget,
            background,
        };
        self.record(vec![Draft::agent(&task, &id, spawned)]);
    }

    /// Returns the id of a new child that its parent calls so. A name is used once: a second child gets a number.
    fn named_child(&self, parent: &AgentId, name: &Name) -> AgentId {
        let mut ids = (2..).map(|number| parent.child(name, number));
        let first = parent.named(name);
        match self.is_given(&first) {
            true => ids.find(|id| !self.is_given(id)).unwrap_or(first),
            false => first,
        }
    }

    /// Returns the id of a new child. The children of a parent are numbered by agent definition, in
    /// the order of the requests.
    fn next_child(&mut self, parent: &AgentId, agent: &Name) -> AgentId {
        let started = || {
            let children = self.state.agents().get(parent).map(|parent| &parent.children);
            let definition = |id: &AgentId| self.state.agents().get(id)?.definition.clone();
            let of_kind = |id: &&AgentId| definition(id).as_ref() == Some(agent);
            let count = children.into_iter().flatten().filter(of_kind).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let known =
            self.agents.ordinals.get(parent).and_then(|numbers| numbers.get(agent)).copied();
        let mut ordinal = known.unwrap_or_else(started) + 1;
        while self.is_given(&parent.child(agent, ordinal)) {
            ordinal += 1;
        }
        let numbers = self.own().ordinals.entry(parent.clone()).or_default();
        numbers.insert(agent.clone(), ordinal);
        parent.child(agent, ordinal)
    }

    /// Forgets a child that a call asked for and that will not begin.
    pub(in crate::run_machine) fn forget_coming(&mut self, task: &Name, call: &CallKey) {
        self.own().coming.remove(call);
        if let Some(place) = self.settings.plan.place(task) {
            self.post(Decision::TakeBackChild(place));
        }
    }
}
