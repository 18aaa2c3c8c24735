//! Plays agents against a provider under a clock of its own, to measure what the admission of calls makes of
//! limits and of noise. The tests and `cargo bench --bench governor` use it; no run does.
//!
//! Pure: chance comes from a seed. The calls are made by the machine that makes those of a run, under the
//! default retry policy, and admitted by the same admission; only the provider is played.

mod cases;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

pub use self::cases::{Case, Measured, Wants, cases};
use super::CallMachine;
use super::error::{ErrorClass, ModelError};
use super::standing::{Models, Rules, Standing};
use super::step::{Call, End, Form, Input, Purpose, Step};
use crate::admission::{self, Action, Admission, Allowance, CallEnd, Remaining};
use crate::id::Name;
use crate::message::{StopReason, Usage};
use crate::policy::RetryPolicy;

/// The call that agents make again and again: a turn of an agent whose conversation fits every window.
const CALL: Call = Call {
    purpose: Purpose::Turn,
    expected_tokens: 1_000,
    messages: 3,
    made_smaller: false,
    announced: 0,
    form: Form { place: 0, max_output_tokens: 4_000, has_schema: false, has_edits: false },
};

/// The window of the model, in tokens: [`CALL`] fills none of it.
const WINDOW: u64 = 200_000;

/// When a provider refuses a call.
#[derive(Clone, Copy, Debug)]
pub enum Refuses {
    /// Never.
    Nothing,
    /// By chance, this part of the calls.
    Part(f64),
    /// What is beyond so many calls in each window of this length.
    Window(u32, Duration),
    /// What finds a bucket empty: calls a second, its size, and what it holds at first.
    Bucket(f64, f64, f64),
    /// The first call of each agent.
    First,
    /// Everything until this time.
    Until(Duration),
}

/// The status of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 429.
    RateLimited,
    /// 529.
    Overloaded,
    /// 500, or a connection that breaks.
    Failed,
}

/// A provider and its agents.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// When it refuses.
    pub refuses: Refuses,
    /// How it refuses.
    pub status: Status,
    /// What its refusals ask to wait.
    pub retry_after: Option<Duration>,
    /// True if its replies tell what is left of a window.
    pub headers: bool,
    /// Time to a refusal.
    pub refusal: Duration,
    /// Time to the head of a reply.
    pub head: Duration,
    /// Time to its end.
    pub latency: Duration,
    /// Time from a reply to the next call of the agent.
    pub think: Duration,
    /// By which part of themselves times are longer or shorter, evenly drawn. Without it, agents keep in step.
    pub spread: f64,
    /// The agents, each with one call at a time.
    pub agents: usize,
    /// The most calls at the same time.
    pub max_concurrency: usize,
    /// The time that is played.
    pub length: Duration,
}

impl Scene {
    /// Twenty agents that make 98 calls a second against a provider that refuses so.
    #[must_use]
    pub fn of(refuses: Refuses) -> Self {
        let ms = Duration::from_millis;
        Self {
            refuses,
            status: Status::RateLimited,
            retry_after: None,
            headers: false,
            refusal: ms(2),
            head: ms(30),
            latency: ms(50),
            think: ms(150),
            spread: 0.25,
            agents: 20,
            max_concurrency: 20,
            length: ms(60_000),
        }
    }
}

/// What came of a scene.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// The calls that were taken, and those that were refused, by second.
    pub seconds: Vec<(u32, u32)>,
    /// The replies that each agent got.
    pub served: Vec<u32>,
    /// The calls that ended without a reply, after all their attempts.
    pub failed: u32,
    /// The time at which the last agent got its first reply.
    pub all_served: Option<Duration>,
}

impl Played {
    /// Returns the calls taken in a second, from this second on.
    #[must_use]
    pub fn pace(&self, from: usize) -> f64 {
        let taken: u32 = self.seconds.iter().skip(from).map(|(taken, _)| *taken).sum();
        f64::from(taken) / self.seconds.len().saturating_sub(from).max(1) as f64
    }

    /// Returns the most calls that were refused in a second, from this second on.
    #[must_use]
    pub fn most_refused(&self, from: usize) -> u32 {
        self.seconds.iter().skip(from).map(|(_, refused)| *refused).max().unwrap_or(0)
    }

    /// Returns all calls that were refused.
    #[must_use]
    pub fn refused(&self) -> u32 {
        self.seconds.iter().map(|(_, refused)| *refused).sum()
    }
}

/// The key of a call: the number of its first attempt, and its own.
type Key = (u64, u64);

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// An agent wants to call.
    Asks(usize),
    /// The pause of an agent's call is over.
    Wakes(usize),
    /// The head of a reply comes.
    Head(Key),
    /// A reply ends.
    Ends(Key),
    /// A refusal comes.
    Refused(Key),
}

/// The model that is called, and what its calls have learned.
struct Model {
    retry: RetryPolicy,
    standing: RefCell<Standing>,
}

impl Models for Model {
    fn count(&self) -> usize {
        1
    }

    fn rules(&self, _: usize) -> Rules<'_> {
        let (shares_pauses, waits_for_quota) = (true, true);
        let (window, max_output_tokens) = (WINDOW, CALL.form.max_output_tokens);
        Rules { retry: &self.retry, shares_pauses, waits_for_quota, window, max_output_tokens }
    }

    fn with<R>(&self, _: usize, look: impl FnOnce(&mut Standing) -> R) -> R {
        look(&mut self.standing.borrow_mut())
    }
}

/// The call of an agent.
struct UnderWay {
    machine: CallMachine,
    /// The number of its first attempt.
    first: u64,
}

struct Stage {
    scene: Scene,
    began: Instant,
    model: Model,
    admission: Admission<Key>,
    chance: fastrand::Rng,
    queue: BinaryHeap<Reverse<(Duration, u64, Happens)>>,
    calls: u64,
    /// The agents whose attempt asks for a permit or is sent.
    agents: BTreeMap<Key, usize>,
    /// The call of each agent.
    under_way: Vec<Option<UnderWay>>,
    /// What is left of the window of this number, or in the bucket at this time.
    window: (u128, u32),
    bucket: (f64, Duration),
    called: Vec<u32>,
    played: Played,
}

/// Plays a scene. The same seed plays the same. `began` is any moment, from which the calls count.
#[must_use]
pub fn play(scene: Scene, seed: u64, began: Instant) -> Played {
    let provider = Name::new("main").expect("it is a name");
    let rules =
        admission::Rules { is_adaptive: true, ..admission::Rules::of(scene.max_concurrency) };
    let seconds = usize::try_from(scene.length.as_secs()).unwrap_or(0);
    let level = if let Refuses::Bucket(_, _, first) = scene.refuses { first } else { 0.0 };
    let standing = RefCell::new(Standing::new(Duration::from_secs(60), began));
    let mut stage = Stage {
        scene,
        began,
        model: Model { retry: RetryPolicy::default(), standing },
        admission: Admission::new(provider, rules),
        chance: fastrand::Rng::with_seed(seed),
        queue: BinaryHeap::new(),
        calls: 0,
        agents: BTreeMap::new(),
        under_way: std::iter::repeat_with(|| None).take(scene.agents).collect(),
        window: (0, 0),
        bucket: (level, Duration::ZERO),
        called: vec![0; scene.agents],
        played: Played {
            seconds: vec![(0, 0); seconds],
            served: vec![0; scene.agents],
            failed: 0,
            all_served: None,
        },
    };
    (0..scene.agents).for_each(|agent| stage.later(Duration::ZERO, Happens::Asks(agent)));
    stage.run();
    stage.played
}

impl Stage {
    fn later(&mut self, at: Duration, happens: Happens) {
        self.calls += 1;
        self.queue.push(Reverse((at, self.calls, happens)));
    }

    fn run(&mut self) {
        let mut now = Duration::ZERO;
        loop {
            let next = self.queue.peek().map(|Reverse((at, ..))| *at);
            let wake = self.admission.next_wake(now).map(|at| at.max(now));
            let at = [next, wake].into_iter().flatten().min();
            let Some(at) = at.filter(|at| *at < self.scene.length) else { return };
            // An admission that wants to be woken at once again and again would stand still.
            let is_wake = next.is_none_or(|next| wake.is_some_and(|wake| wake < next));
            now = if is_wake { at.max(now + Duration::from_micros(100)) } else { at };
            if is_wake {
                let actions = self.admission.wake(now);
                self.start(now, actions);
            } else if let Some(Reverse((_, _, happens))) = self.queue.pop() {
                self.happen(now, happens);
            }
        }
    }

    fn happen(&mut self, now: Duration, happens: Happens) {
        match happens {
            Happens::Asks(agent) => {
                self.calls += 1;
                let mut machine = CallMachine::new(CALL, &self.model, self.began + now);
                let step = machine.first();
                self.under_way[agent] = Some(UnderWay { machine, first: self.calls });
                self.perform(now, agent, step);
            }
            Happens::Wakes(agent) => self.go_on(now, agent, Input::Woke),
            Happens::Head(key) => {
                if let Some(call) =
                    self.agents.get(&key).and_then(|at| self.under_way[*at].as_mut())
                {
                    call.machine.taken(&self.model);
                }
                let allowance = Allowance { requests: self.left(now), tokens: None };
                let actions = self.admission.taken(now, &key, allowance);
                self.start(now, actions);
            }
            Happens::Ends(key) => {
                let end = |machine: &CallMachine| {
                    machine.end_of_reply(&StopReason::EndTurn, &Usage::default())
                };
                self.ended(now, key, end, Input::Replied);
            }
            Happens::Refused(key) => {
                let error = self.refusal();
                let input = Input::Failed { error: error.clone(), chance: self.chance.f64() };
                self.ended(now, key, |machine| machine.end_of_error(&error), input);
            }
        }
    }

    fn refusal(&self) -> ModelError {
        let class = match self.scene.status {
            Status::RateLimited => ErrorClass::RateLimited,
            Status::Overloaded => ErrorClass::Overloaded,
            Status::Failed => ErrorClass::ServerError,
        };
        let retry_after = self.scene.retry_after;
        ModelError { retry_after, ..ModelError::new(class, "slow down") }
    }

    /// Gives the permit of an attempt back, and its end to the call.
    fn ended(
        &mut self,
        now: Duration,
        key: Key,
        end: impl FnOnce(&CallMachine) -> CallEnd,
        input: Input,
    ) {
        let Some(agent) = self.agents.remove(&key) else { return };
        let Some(call) = &self.under_way[agent] else { return };
        let end = end(&call.machine);
        let actions = self.admission.done(now, &key, end);
        self.start(now, actions);
        self.go_on(now, agent, input);
    }

    /// Tells the call of an agent what came of its last step.
    fn go_on(&mut self, now: Duration, agent: usize, input: Input) {
        let Some(call) = &mut self.under_way[agent] else { return };
        let step = call.machine.next(&self.model, self.began + now, input);
        self.perform(now, agent, step);
    }

    fn perform(&mut self, now: Duration, agent: usize, step: Step) {
        match step {
            Step::Announce { .. } | Step::Failed(_) | Step::Cut { .. } => {
                self.go_on(now, agent, Input::Recorded);
            }
            Step::LetAhead => self.go_on(now, agent, Input::Woke),
            Step::Permit { pause, .. } => self.ask(now, agent, pause),
            Step::Send => self.send(now, agent),
            Step::Wait(pause) => self.later(now + pause, Happens::Wakes(agent)),
            Step::End(end) => {
                self.under_way[agent] = None;
                self.note_end(now, agent, &end);
                let think = self.scene.think.mul_f64(self.spread());
                self.later(now + think, Happens::Asks(agent));
            }
        }
    }

    fn note_end(&mut self, now: Duration, agent: usize, end: &End) {
        let Played { served, failed, all_served, .. } = &mut self.played;
        match end {
            End::Replied => served[agent] += 1,
            End::Failed(_) | End::Cancelled => *failed += 1,
        }
        if all_served.is_none() && served.iter().all(|replies| *replies > 0) {
            *all_served = Some(now);
        }
    }

    fn ask(&mut self, now: Duration, agent: usize, pause: Duration) {
        self.calls += 1;
        let first = self.under_way[agent].as_ref().map_or(0, |call| call.first);
        let key = (first, self.calls);
        self.agents.insert(key, agent);
        let actions = self.admission.ask(now, key, 0, pause);
        self.start(now, actions);
    }

    /// Lets the calls go on that were admitted.
    fn start(&mut self, now: Duration, actions: Vec<Action<Key>>) {
        for action in actions {
            if let Action::Admit(key) = action {
                let agent = self.agents[&key];
                self.go_on(now, agent, Input::Admitted);
            }
        }
    }

    fn send(&mut self, now: Duration, agent: usize) {
        // The permit of the call under way is the only one that an agent has.
        let key = self.agents.iter().find(|(_, of)| **of == agent).map(|(key, _)| *key);
        let Some(key) = key else { return };
        self.called[agent] += 1;
        let takes = self.takes(now, agent);
        let second = usize::try_from(now.as_secs()).unwrap_or(0);
        if let Some((taken, refused)) = self.played.seconds.get_mut(second) {
            *if takes { taken } else { refused } += 1;
        }
        if takes {
            let spread = self.spread();
            self.later(now + self.scene.head.mul_f64(spread), Happens::Head(key));
            self.later(now + self.scene.latency.mul_f64(spread), Happens::Ends(key));
        } else {
            self.later(now + self.scene.refusal, Happens::Refused(key));
        }
    }

    /// Returns the factor of the next times.
    fn spread(&mut self) -> f64 {
        1.0 + self.scene.spread * (2.0 * self.chance.f64() - 1.0)
    }

    fn takes(&mut self, now: Duration, agent: usize) -> bool {
        match self.scene.refuses {
            Refuses::Nothing => true,
            Refuses::Part(part) => self.chance.f64() >= part,
            Refuses::First => self.called[agent] > 1,
            Refuses::Until(end) => now >= end,
            Refuses::Window(most, length) => {
                let number = now.as_nanos() / length.as_nanos().max(1);
                if self.window.0 != number {
                    self.window = (number, 0);
                }
                let takes = self.window.1 < most;
                self.window.1 += u32::from(takes);
                takes
            }
            Refuses::Bucket(rate, size, _) => {
                let (level, since) = self.bucket;
                let level = (level + rate * now.saturating_sub(since).as_secs_f64()).min(size);
                let takes = level >= 1.0;
                self.bucket = (if takes { level - 1.0 } else { level }, now);
                takes
            }
        }
    }

    /// Returns what the headers tell.
    fn left(&self, now: Duration) -> Option<Remaining> {
        let Refuses::Window(most, length) = self.scene.refuses else { return None };
        let passed = now.as_nanos() % length.as_nanos().max(1);
        let passed = Duration::from_nanos(u64::try_from(passed).unwrap_or(0));
        let rest = Remaining {
            left: u64::from(most.saturating_sub(self.window.1)),
            resets_in: length.saturating_sub(passed),
        };
        self.scene.headers.then_some(rest)
    }
}

#[cfg(test)]
mod tests;
