//! The desks of a run machine, and what a rule that stands at one may see and do.
//!
//! The data of a rule is a struct with private fields, in the file of the rule: a desk. A rule is a method of
//! [`Desk`] for that struct. It reads everything ([`Facts`], to which a desk dereferences), changes the data of
//! its own desk alone, and posts decisions. Nothing else can be written: no rule has another desk in its hand.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Deref;

use super::decision::Decision;
use super::request::Reply;
use super::{Action, Facts};
use crate::event::{Draft, Event};
use crate::id::AgentId;
use crate::turn::question::AnswerOutcome;

/// The data of a desk.
pub(super) trait Data {
    /// Returns it for its rules.
    fn of(facts: &mut Facts) -> &mut Self;
}

/// What the rules have decided, until it is carried out and performed.
#[derive(Clone, Debug, Default)]
pub(super) struct Out {
    pub(super) decided: Vec<Decision>,
    pub(super) actions: VecDeque<Action>,
}

/// A desk at which a rule stands.
pub(super) struct Desk<'a, D> {
    facts: &'a mut Facts,
    out: &'a mut Out,
    data: PhantomData<fn() -> D>,
}

impl<D> Deref for Desk<'_, D> {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        self.facts
    }
}

impl<'a, D: Data> Desk<'a, D> {
    /// Makes the desk of these data.
    pub(super) fn new(facts: &'a mut Facts, out: &'a mut Out) -> Self {
        Self { facts, out, data: PhantomData }
    }

    /// Returns the data of the desk, to change them.
    pub(super) fn own(&mut self) -> &mut D {
        D::of(self.facts)
    }

    /// Decides something, which is carried out when the rule has returned.
    pub(super) fn post(&mut self, decision: Decision) {
        self.out.decided.push(decision);
    }

    /// Asks for an action. No desk reads actions, so they are handed out in the order in which rules ask for
    /// them.
    pub(super) fn act(&mut self, action: Action) {
        self.out.actions.push_back(action);
    }

    /// Asks for events to be recorded.
    pub(super) fn record(&mut self, drafts: Vec<Draft>) {
        self.act(Action::Record(drafts));
    }

    /// Asks for a change of a task to be recorded. No further decision is made about the task until
    /// the record is durable.
    pub(super) fn record_task(&mut self, place: usize, event: Event) {
        let draft = Draft::task(self.name(place), event);
        self.record_start(place, vec![draft]);
    }

    /// Asks for a change of a task to be recorded, with what begins by it.
    pub(super) fn record_start(&mut self, place: usize, drafts: Vec<Draft>) {
        self.facts.proposed.insert(place);
        self.record(drafts);
    }

    /// Says what became of what a person gave, to the one who gave it. What an earlier process took up has nobody who
    /// waits.
    pub(super) fn tell_giver(&mut self, request: Option<u64>, outcome: AnswerOutcome) {
        if let Some(request) = request {
            self.act(Action::TellAnswerer { request, outcome });
        }
    }

    /// Replies to a request.
    pub(super) fn reply(&mut self, to: AgentId, id: &str, reply: Reply) {
        self.act(Action::Reply { to, id: id.to_owned(), reply });
    }
}

/// Makes the facts of a run and its desks. A line is a field of [`Facts`], and a method of the machine that
/// stands at the desk.
macro_rules! desks {
    (
        ($($given:ident: $given_type:ty),*)
        facts { $($(#[doc = $about:literal])* $fact:ident: $fact_type:ty = $first:expr,)* }
        desks { $($(#[doc = $doc:literal])* $field:ident: $desk:ty = $new:expr,)* }
    ) => {
        /// What is known of a run now: its records, its plan and settings, and what no record holds. The latter
        /// is lost with the process, and a resume derives it from the records again.
        #[derive(Clone, Debug)]
        struct Facts {
            $($(#[doc = $about])* $fact: $fact_type,)*
            $($(#[doc = $doc])* $field: $desk,)*
        }

        impl Facts {
            fn new($($given: $given_type),*) -> Self {
                $(let $field: $desk = $new;)*
                $(let $fact: $fact_type = $first;)*
                Self { $($field,)* $($fact,)* }
            }
        }

        $(impl desk::Data for $desk {
            fn of(facts: &mut Facts) -> &mut Self {
                &mut facts.$field
            }
        })*

        impl RunMachine {
            $(fn $field(&mut self) -> desk::Desk<'_, $desk> {
                desk::Desk::new(&mut self.facts, &mut self.out)
            })*
        }
    };
}
pub(super) use desks;
