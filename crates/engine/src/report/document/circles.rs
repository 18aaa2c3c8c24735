//! The agents that went in circles, folded from the records: what was done about each, and what it spent after the
//! first notice.
//!
//! Pure. Bounded: agents beyond a number are counted.

use std::collections::HashMap;

use serde::Serialize;

use crate::event::{Event, Record};
use crate::id::AgentId;
use crate::turn::Circle;

/// The most agents that are kept.
const AGENTS: usize = 1_000;

/// An agent that went in circles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Circling {
    /// The agent.
    pub agent: AgentId,
    /// The last step: `noticed`, `held` or `broken`.
    pub step: &'static str,
    /// The rule by which the loop of the last step was noticed.
    pub rule: &'static str,
    /// That loop in words.
    pub what: String,
    /// Number of steps.
    pub steps: u32,
    /// Model calls after the first step.
    pub calls: u32,
    /// Their cost in US dollars; absent if a model has no price.
    pub cost_usd: Option<f64>,
}

/// The agents of a run that went in circles.
#[derive(Clone, Debug, Default)]
pub(super) struct Circles {
    all: Vec<Circling>,
    places: HashMap<AgentId, usize>,
    left_out: u64,
}

impl Circles {
    /// Folds a record.
    pub(super) fn apply(&mut self, record: &Record) {
        let Some(agent) = &record.agent else { return };
        match &record.event {
            Event::LoopNoticed(e) => self.step(agent, "noticed", &e.circle),
            Event::LoopHeld(e) => self.step(agent, "held", &e.circle),
            Event::LoopBroken(e) => self.step(agent, "broken", &e.circle),
            Event::ModelResponded(reply) => {
                let Some(place) = self.places.get(agent) else { return };
                let circling = &mut self.all[*place];
                circling.calls += 1;
                circling.cost_usd = circling.cost_usd.zip(reply.cost_usd).map(|(a, b)| a + b);
            }
            _ => {}
        }
    }

    fn step(&mut self, agent: &AgentId, step: &'static str, circle: &Circle) {
        let place = match self.places.get(agent) {
            Some(place) => *place,
            None if self.all.len() >= AGENTS => {
                self.left_out += 1;
                return;
            }
            None => {
                let (agent, rule, what) = (agent.clone(), "", String::new());
                let (steps, calls, cost_usd) = (0, 0, Some(0.0));
                self.places.insert(agent.clone(), self.all.len());
                self.all.push(Circling { agent, step, rule, what, steps, calls, cost_usd });
                self.all.len() - 1
            }
        };
        let circling = &mut self.all[place];
        (circling.step, circling.rule) = (step, circle.rule.as_str());
        circling.what = circle.words();
        circling.steps += 1;
    }

    /// Returns the agents in the order of their first steps, and the number of steps of those left out.
    pub(super) fn into_all(self) -> (Vec<Circling>, u64) {
        (self.all, self.left_out)
    }
}
