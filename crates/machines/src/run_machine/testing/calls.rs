//! Calls of models in the simulated world: actors that ask for reservations, and a ledger that bills by rules of its
//! own. No machine sees the ledger.

use std::collections::BTreeMap;

use super::{Pending, World, name};
use crate::event::{Draft, Event};
use crate::failure::{Failure, FailureKind};
use crate::id::AgentId;
use crate::message::{Json, StopReason, Usage, UsageSource};
use crate::run_machine::{Allowance, Purpose, Reservation, SlotBack};
use crate::spec::Price;
use crate::spec::budget::Amount;
use crate::spending::{Rest, Usd};
use crate::turn::{ModelFailed, ModelRequested, ModelResponded, Outcome};

/// The ledger's rules of a world, drawn from its seed.
#[derive(Clone, Copy, Debug)]
pub(in crate::run_machine) struct Ledger {
    pub(in crate::run_machine) price: Price,
    /// The most tokens of a request.
    pub(in crate::run_machine) input: u64,
    pub(in crate::run_machine) output: u64,
    /// The share of what a call could take that it does take, in percent, at least and at most.
    pub(in crate::run_machine) takes: (u64, u64),
    /// Calls in a hundred that are refused before any work, that are cut, and of which nobody reports the tokens.
    pub(in crate::run_machine) faults: (u32, u32, u32),
}

/// A call of an actor.
#[derive(Clone, Debug)]
pub(super) struct Call {
    wish: Reservation,
    /// The most output, once it is granted.
    granted: Option<u64>,
    /// What the provider bills, once it is sent.
    billed: Option<Usage>,
}

impl Call {
    /// Returns true if it is not granted.
    pub(super) fn is_waiting(&self) -> bool {
        self.granted.is_none()
    }
}

/// What the ledger has billed, by agent.
pub(in crate::run_machine) type Bills = BTreeMap<AgentId, Amount>;

impl World {
    fn wish(&mut self, purpose: Purpose) -> Reservation {
        let Ledger { price, input, output, .. } = self.ledger.expect("the world has a ledger");
        Reservation {
            purpose,
            model: name("m"),
            input_tokens: self.rng.u64(1..=input),
            max_output_tokens: output,
            price: Some(price),
            requests: 1,
        }
    }

    /// Asks for a reservation for the next call of an actor.
    pub(super) fn call(&mut self, agent: &AgentId, purpose: Purpose) {
        let wish = self.wish(purpose);
        let call = Call { wish: wish.clone(), granted: None, billed: None };
        if self.calls.insert(agent.clone(), call).is_none() {
            self.request(agent, wish);
        }
    }

    /// Returns what each actor is at, for a failed test.
    pub(in crate::run_machine) fn calls_in_words(&self) -> String {
        let one = |(agent, actor): (&AgentId, &super::Actor)| {
            let call = self.calls.get(agent).map(|call| (call.granted, call.billed.is_some()));
            format!(
                "{agent}: call {call:?}, {} {} {}, {:?}\n",
                actor.returning,
                actor.has_slot,
                self.pending.iter().filter(|pending| super::is_of(pending, agent)).count(),
                actor.steps.front()
            )
        };
        self.actors.iter().map(one).collect()
    }

    /// Handles the reply to such a wish.
    pub(super) fn allowed(&mut self, agent: &AgentId, allowance: Allowance) {
        let is_gone = |pending: &Pending| matches!(pending, Pending::Gone(id, _) if id == agent);
        let ends = self.actors.get(agent).is_none_or(|actor| actor.required_outcome.is_some());
        if ends || self.pending.iter().any(is_gone) {
            return drop(self.calls.remove(agent));
        }
        let without_slot = match allowance {
            Allowance::Granted { max_output_tokens, without_slot } => {
                let call = self.calls.get_mut(agent).expect("it asked");
                assert!(max_output_tokens <= call.wish.max_output_tokens);
                call.granted = Some(max_output_tokens);
                without_slot
            }
            Allowance::Refused { failure, without_slot } => {
                let call = self.calls.remove(agent).expect("it asked");
                let actor = self.actors.get_mut(agent).expect("an actor");
                actor.over_budget = Some((failure, call.wish.purpose == Purpose::HandOver));
                without_slot
            }
        };
        let actor = self.actors.get_mut(agent).expect("an actor");
        if without_slot {
            (actor.has_slot, actor.returning) = (false, true);
            self.request(agent, SlotBack);
        } else {
            self.pending.push(Pending::Step(agent.clone()));
        }
    }

    /// Goes on with the call of an actor. Returns false if it has none.
    pub(super) fn go_on_calling(&mut self, agent: &AgentId) -> bool {
        let Some(call) = self.calls.get_mut(agent) else { return false };
        if let (Some(output), None) = (call.granted, call.billed) {
            // It is announced; what the provider bills is on the ledger at once, whatever the process learns.
            let ledger = self.ledger.expect("the world has a ledger");
            let (low, high) = ledger.takes;
            let mut share = |most: u64| most * self.rng.u64(low..=high) / 100;
            let usage = Usage {
                input: share(call.wish.input_tokens),
                output: share(output),
                ..Usage::default()
            };
            call.billed = Some(usage);
            let most = most(&call.wish, output);
            let task = self.actors[agent].task.clone();
            let announced = ModelRequested {
                turn: 1,
                attempt: self.attempt(agent),
                model: name("m"),
                stands_in_for: None,
                messages: 1,
                bytes: 1,
                head_tokens: 0,
                expected_tokens: 0,
                most_tokens: most.tokens,
                most_usd: most.cost.map(Usd::dollars),
            };
            self.queue(agent.as_str(), vec![Draft::agent(&task, agent, announced)]);
        }
        true
    }

    fn attempt(&mut self, agent: &AgentId) -> u32 {
        let attempt = self.attempts.entry(agent.clone()).or_default();
        *attempt += 1;
        *attempt
    }

    /// Sends the call whose announcement is durable, and decides how it ends.
    pub(super) fn announced(&mut self, agent: &AgentId) {
        let Some(call) = self.calls.get(agent) else { return };
        let (refused, ..) = self.ledger.expect("the world has a ledger").faults;
        let is_refused = self.rng.u32(..100) < refused;
        let usage = call.billed.expect("it was announced");
        if !is_refused {
            let price = call.wish.price.expect("a price");
            let bill = self.bills.entry(agent.clone()).or_default();
            *bill += Amount {
                cost: Usd::from_dollars(price.cost(&usage)),
                tokens: usage.total(),
                calls: 1,
            };
        }
        self.pending.push(Pending::Called(agent.clone(), is_refused));
    }

    /// Ends a call.
    pub(super) fn called(&mut self, agent: &AgentId, is_refused: bool) {
        let Some(call) = self.calls.get(agent).cloned() else { return };
        let Ledger { price, faults: (_, cut, uncounted), .. } = self.ledger.expect("a ledger");
        let (Some(output), Some(usage)) = (call.granted, call.billed) else { return };
        let most = most(&call.wish, output);
        let chance = self.rng.u32(..100);
        let event: Event = if is_refused {
            failed(None).into()
        } else if chance < cut {
            failed(most.beyond(&Usage::default(), None)).into()
        } else {
            let is_counted = chance >= cut + uncounted;
            // Without a count, an estimate is settled.
            let known = if is_counted { usage } else { Usage { input: 1, ..Usage::default() } };
            let cost_usd = Some(price.cost(&known));
            ModelResponded {
                turn: 1,
                model: name("m"),
                message: Json::encode(&serde_json::json!({"role": "assistant", "content": []})),
                stop: StopReason::EndTurn,
                usage: known,
                usage_source: if is_counted {
                    UsageSource::Reported
                } else {
                    UsageSource::Expected
                },
                cost_usd,
                unsettled: if is_counted { None } else { most.beyond(&known, cost_usd) },
                context: Default::default(),
                repeats: None,
            }
            .into()
        };
        self.calls.remove(agent);
        let has_answer = matches!(event, Event::ModelResponded(_));
        let task = self.actors[agent].task.clone();
        self.queue(agent.as_str(), vec![Draft::agent(&task, agent, event)]);
        let actor = self.actors.get_mut(agent).expect("an actor");
        if let Some(failure) = actor.over_budget.take_if(|_| has_answer) {
            // What it hands over is no answer.
            let outcome = Outcome::Failed { failure: failure.0, partial: None };
            return self.end_by_itself(agent, outcome);
        }
        if has_answer {
            self.pass(agent);
        }
        self.pending.push(Pending::Step(agent.clone()));
    }

    /// Ends an actor whose budget is used up, after a last reply if it may have one. Returns false if it goes on.
    pub(super) fn hand_over(&mut self, agent: &AgentId) -> bool {
        let actor = self.actors.get_mut(agent).expect("an actor");
        match actor.over_budget.clone() {
            None => return false,
            Some((failure, true)) => {
                let outcome = Outcome::Failed { failure, partial: None };
                self.end_by_itself(agent, outcome);
            }
            Some((_, false)) => {
                let mut wish = self.wish(Purpose::HandOver);
                wish.max_output_tokens =
                    wish.max_output_tokens.min(crate::run_machine::LAST_OUTPUT_TOKENS);
                let call = Call { wish: wish.clone(), granted: None, billed: None };
                self.calls.insert(agent.clone(), call);
                self.request(agent, wish);
            }
        }
        true
    }
}

fn most(wish: &Reservation, output: u64) -> Rest {
    let amount = wish.takes(output, 100, false);
    Rest { tokens: amount.tokens, cost: Some(amount.cost) }
}

fn failed(unsettled: Option<Rest>) -> ModelFailed {
    ModelFailed {
        turn: 1,
        attempt: 1,
        failure: Failure::new(FailureKind::Connection, "cut"),
        retry_in_ms: Some(0),
        next_model: None,
        context_tokens: None,
        window_tokens: None,
        spent: None,
        usage_source: UsageSource::Reported,
        unsettled,
        cut: false,
    }
}
