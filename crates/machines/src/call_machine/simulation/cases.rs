//! The scenes of the benchmark of the governor, each with what is wanted of it.

use std::time::{Duration, Instant};

use super::{Refuses, Scene, Status, play};

/// What is wanted of a scene.
#[derive(Clone, Copy, Debug)]
pub enum Wants {
    /// This part of the calls a second that the agents make where nothing is refused.
    Part(f64),
    /// This part of so many calls a second from a second on, with at most so many refusals in each second.
    Used {
        /// The calls a second that the provider takes.
        per_second: f64,
        /// The part of them that is used.
        part: f64,
        /// The first second that counts.
        from: usize,
        /// The most refusals in one of them.
        refusals: u32,
    },
    /// A reply for each agent within this time.
    AllWithin(Duration),
}

/// A scene with its target.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What refuses, in words.
    pub name: &'static str,
    /// The scene.
    pub scene: Scene,
    /// The target.
    pub wants: Wants,
}

/// A case that was played.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The target in words.
    pub target: String,
    /// The result in the same words.
    pub result: String,
    /// True if the target is met.
    pub is_met: bool,
}

impl Case {
    /// Plays the case. `began` is any moment, from which the calls count.
    #[must_use]
    pub fn measure(&self, seed: u64, began: Instant) -> Measured {
        let played = play(self.scene, seed, began);
        match self.wants {
            Wants::Part(part) => {
                let all =
                    play(Scene { refuses: Refuses::Nothing, ..self.scene }, seed, began).pace(0);
                let kept = played.pace(0) / all.max(f64::MIN_POSITIVE);
                Measured {
                    target: format!("{:.0} % of {all:.1}/s", part * 100.0),
                    result: format!("{:.0} %, {:.1}/s", kept * 100.0, played.pace(0)),
                    is_met: kept >= part,
                }
            }
            Wants::Used { per_second, part, from, refusals } => {
                let used = played.pace(from) / per_second;
                let most = played.most_refused(from);
                let part_of = format!("{:.0} % of {per_second:.1}/s", part * 100.0);
                Measured {
                    target: format!("{part_of}, {refusals} refused"),
                    result: format!("{:.0} %, {most} refused", used * 100.0),
                    is_met: used >= part && most <= refusals,
                }
            }
            Wants::AllWithin(most) => {
                let took = played.all_served;
                let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
                Measured {
                    target: format!("within {}", seconds(most)),
                    result: took.map_or_else(|| "never".to_owned(), seconds),
                    is_met: took.is_some_and(|took| took <= most),
                }
            }
        }
    }
}

/// Returns the table of the benchmark.
#[must_use]
pub fn cases() -> Vec<Case> {
    let s = Duration::from_secs;
    let slow = |refuses| Scene {
        retry_after: Some(s(1)),
        head: s(1),
        latency: s(2),
        think: Duration::ZERO,
        ..Scene::of(refuses)
    };
    let part = |name, scene, part| Case { name, scene, wants: Wants::Part(part) };
    let used = |name, scene, per_second, from| {
        let wants = Wants::Used { per_second, part: 0.9, from, refusals: 1 };
        Case { name, scene, wants }
    };
    let within = |name, scene, seconds| Case { name, scene, wants: Wants::AllWithin(s(seconds)) };
    let of = |refuses, status| Scene { status, ..Scene::of(refuses) };
    let after_one = |refuses| Scene { retry_after: Some(s(1)), ..Scene::of(refuses) };
    let by_headers = Scene { headers: true, ..Scene::of(Refuses::Window(10, s(1))) };
    let empty = Scene::of(Refuses::Bucket(20.0, 20.0, 0.0));
    vec![
        part("2 % of 429", Scene::of(Refuses::Part(0.02)), 0.9),
        part("5 % of 429", Scene::of(Refuses::Part(0.05)), 0.8),
        part("10 % of 429", Scene::of(Refuses::Part(0.10)), 0.7),
        part("25 % of 429", Scene::of(Refuses::Part(0.25)), 0.5),
        part("5 % of 429, replies of 2 s, Retry-After 1", slow(Refuses::Part(0.05)), 0.8),
        part("25 % of 429, replies of 2 s, Retry-After 1", slow(Refuses::Part(0.25)), 0.5),
        part("25 % of 529", of(Refuses::Part(0.25), Status::Overloaded), 0.5),
        part("25 % of 500", of(Refuses::Part(0.25), Status::Failed), 0.5),
        used("10 in each second", Scene::of(Refuses::Window(10, s(1))), 10.0, 5),
        used("40 in each second", Scene::of(Refuses::Window(40, s(1))), 40.0, 15),
        used("10 in each second, Retry-After 1", after_one(Refuses::Window(10, s(1))), 10.0, 5),
        used("10 in each second, told by headers", by_headers, 10.0, 5),
        used("a bucket of 20, empty, 20 a second", empty, 20.0, 10),
        // It holds the calls of two seconds, and is met by a call that asks and one that does not.
        Case {
            name: "a bucket of 20, 10 a second",
            scene: Scene::of(Refuses::Bucket(10.0, 20.0, 20.0)),
            wants: Wants::Used { per_second: 10.0, part: 0.9, from: 20, refusals: 3 },
        },
        used("a bucket of 5, 40 a second", Scene::of(Refuses::Bucket(40.0, 5.0, 5.0)), 40.0, 10),
        within("20 first calls, 429", of(Refuses::First, Status::RateLimited), 4),
        within("20 first calls, 529", of(Refuses::First, Status::Overloaded), 4),
        within("20 first calls, 500 or reset", of(Refuses::First, Status::Failed), 4),
        within("everything for 20 s, 500", of(Refuses::Until(s(20)), Status::Failed), 40),
        within("everything for 20 s, 429", Scene::of(Refuses::Until(s(20))), 40),
    ]
}
